"""Data of experiments, made by `sut-prepare`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sut_data.command_line import leave_out
from sut_data.folders.training import OF_EXPERIMENT
from sut_data.interrupts import uninterrupted
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.commands import split_line
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.settings import check_name

FOLDER = Path("data-bin")
DEFAULT = "default"  # a split for which `sut-prepare` has no name
PROGRAM = (sys.executable, "-m", "sut_data")  # `sut-prepare`, of this environment


def split_of(experiment: Experiment, split: str | None) -> str:
    """The chosen split; by default the experiment's first one.

    Raises:
        InputError: if there is none of that name.
    """
    splits = experiment.splits
    if not splits:
        raise InputError(
            f"{experiment.name} does not say how its data are made (key `prepare`): give --data."
        )
    if split is None:
        return next(iter(splits))
    check_name(f"{experiment.name} has the splits", split, splits)
    return split


def folder_of(experiment: Experiment, split: str | None) -> Path:
    """The usual folder of the data: one for each split; `DEFAULT` is not part of its name."""
    name = split_of(experiment, split)
    own = Path(experiment.name).name  # columns of the matrix have the name of their folder
    alone = name == DEFAULT or len(experiment.splits) == 1
    return FOLDER / (own if alone else f"{own}-{name}")


def by_option(words: Sequence[str]) -> dict[str, list[str]]:
    """Arguments of `sut-prepare` by option; `--bpe=9` is `--bpe 9`."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.setdefault(name, []).extend([value] if equals else [])
        elif name:
            found[name].append(word)
    return found


def prepare(
    experiment: Experiment,
    split: str | None,
    out: Path | None,
    more: Sequence[str],
    program: Sequence[str] = PROGRAM,
) -> Path:
    """Make the data of an experiment.

    Args:
        experiment: whose data.
        split: which of them; None: the first one.
        out: folder; None: the usual one.
        more: further options of `sut-prepare`.
        program: the command to call.

    Returns:
        the folder.

    Raises:
        InputError: if the data could not be made, or a further option would change them.
    """
    if experiment.generate:
        raise InputError(
            f"{experiment.name} draws its data as it trains: there is nothing to prepare."
        )
    folder = out or folder_of(experiment, split)
    split = split_of(experiment, split)
    lines = {
        name: split_line(line, f"{experiment.path}: prepare.{name}:")
        for name, line in experiment.prepare.items()
    }
    words = lines[split]
    fixed = {"out", "split", *(option for line in lines.values() for option in by_option(line))}
    if given := [name for name in by_option(more) if name in fixed]:
        leave_out(
            given,
            f"after --: {experiment.path.name} says which data these are, --split and --out "
            "before -- choose among them and name their folder",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    line = [*words, "--out", str(folder), *more]
    environment = {**os.environ, OF_EXPERIMENT: experiment.name}
    if _run([*program, *line], environment):
        raise InputError(f"`{shlex.join(['sut-prepare', *line])}` failed: it says why above.")
    return folder


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command and return its exit status; if this process is told to stop, stop it, too."""
    with uninterrupted():  # no signal before there is a process to pass it on to
        process = subprocess.Popen(command, env=environment)
    with process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()  # on which it cleans up
            raise
