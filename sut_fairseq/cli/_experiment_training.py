"""Trainings of `sut-experiment`: run on the machine given by the options, stopped by signals."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from sut_data.command_line import forget_output
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import records
from sut_fairseq.experiments.commands import Machine, split_line
from sut_fairseq.experiments.running import PROGRAM_NAME, Finish, Say, Trainer
from sut_fairseq.experiments.runs import Change, Run
from sut_fairseq.experiments.training_process import ToldToStop

_TO_STOP = (signal.SIGTERM, signal.SIGUSR1)  # how Slurm tells a job to end


def clock() -> Say:
    """Return a printer of sentences with elapsed seconds, even while output is redirected.

    A closed pipe ends the printing, but not the work.
    """
    start, output = time.monotonic(), sys.stdout

    def say(sentence: str) -> None:
        try:
            print(f"[{time.monotonic() - start:4.0f} s] {sentence}", file=output, flush=True)
        except BrokenPipeError:
            forget_output(output)

    return say


def listed(run: Run, arguments: argparse.Namespace, change: Change = Change.NOTHING) -> str:
    """The commands of a run as one would type them; finished trainings are commented out.

    `arguments` are those of `train` or `matrix`.
    """
    gpus = 1 if arguments.gpus is None else arguments.gpus
    trainer = _trainer(arguments, gpus, lambda _: None, Change.NOTHING)
    there = (run.folder / records.RECORD).is_file()
    record = records.read_record(run.folder) if there else None
    lines = []
    for one in run.trainings(trainer.machine):
        line = shlex.join([*trainer.launcher, *one.command()])
        # A finished stage stays as it is when settings are changed.
        changed = change is Change.SETTINGS or (record is not None and record.settings_changed)
        stays = one.name and changed
        done = record is not None and record.finished(one.name, None if stays else one.settings)
        lines.append(f"# finished: {line}" if done else line)
    return "\n".join(lines)


def _trainer(arguments: argparse.Namespace, gpus: int, say: Say, change: Change) -> Trainer:
    launcher = split_line(arguments.launcher, "--launcher")
    return Trainer(
        Machine(gpus, launched=bool(launcher)),
        jobs=arguments.jobs,
        launcher=launcher,
        say=say,
        change=change,
    )


def check(runs: Sequence[Run], arguments: argparse.Namespace, *, change: Change) -> None:
    """Refuse the runs that `train` would refuse, on any machine; nothing is run.

    Raises:
        InputError: if a folder holds a run with other settings.
    """
    _trainer(arguments, arguments.gpus or 0, lambda _: None, change).check(runs)


@contextmanager
def stoppable(again: str = "goes on with the same command") -> Iterator[None]:
    """Raise `ToldToStop` in the block when the job must end, so that its trainings stop, too.

    Args:
        again: says how to start again, for the message.
    """
    before = {number: signal.signal(number, _stop) for number in _TO_STOP}
    told = False
    try:
        yield
    except ToldToStop:
        told = True
        print(f"{PROGRAM_NAME}: interrupted; {again}.", file=sys.stderr)
        raise
    finally:
        if not told:  # else this process is about to end, which a second signal must not cut short
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


def train(
    runs: Sequence[Run],
    arguments: argparse.Namespace,
    say: Say,
    finish: Finish = lambda run: None,
    *,
    change: Change = Change.NOTHING,
) -> None:
    """Run the trainings that are not finished.

    Args:
        runs: in the order to train them.
        arguments: with `gpus`, `jobs` and `launcher`.
        say: called with a sentence about what happens.
        finish: see `Trainer.train`.
        change: see `Trainer`.

    Raises:
        InputError: for more GPUs than there are, and as in `Trainer.train`.
    """
    from torch import cuda  # only here: most of `sut-experiment` answers without it

    there = cuda.device_count()
    gpus = there if arguments.gpus is None else arguments.gpus
    if gpus > there and not arguments.launcher.strip():
        raise InputError(
            f"--gpus {gpus}: this machine has {there} that PyTorch can use: give at most that "
            "many, or a --launcher that starts the training on other machines, too."
        )
    with stoppable():  # trainings have time to save, and the stop is recorded
        _trainer(arguments, gpus, say, change).train(runs, finish)


def _stop(number: int, frame: FrameType | None) -> None:
    """End once the trainings have ended; a second signal must not cut that short."""
    for each in _TO_STOP:
        signal.signal(each, signal.SIG_IGN)
    raise ToldToStop(number)
