"""Runs the trainings of experiments: resumable, one by one or in parallel."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from sut_data.files import put_aside
from sut_data.interrupts import uninterrupted
from sut_data.text.chunks import cores
from sut_fairseq.checkpoints.interruption import UNFINISHED
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import provenance, records, training_process
from sut_fairseq.experiments.commands import Machine, Training, program
from sut_fairseq.experiments.progress import Progress
from sut_fairseq.experiments.records import LOG, Record, Session
from sut_fairseq.experiments.runs import Change, Run, changed_record, check_same, saved_updates
from sut_fairseq.experiments.schema import without_machine

PROGRAM_NAME = "sut-experiment"
Say = Callable[[str], None]
Finish = Callable[[Run], None]


class FailedTrainingsError(InputError):
    """Trainings ended with an error; the others have been run."""


class Trainer:
    """Runs trainings, one by one or several in parallel.

    Args:
        machine: a training uses all its GPUs or, with several jobs, one of them.
        jobs: how many trainings run at a time.
        launcher: words that every command begins with, such as `srun`.
        say: called with a sentence about what happens.
        change: what may differ when an existing run continues; any other difference is refused.

    Attributes:
        machine: what each training runs on.
        launcher: as given.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        jobs: int,
        launcher: Sequence[str] = (),
        say: Say,
        change: Change = Change.NOTHING,
    ) -> None:
        self.machine = replace(machine, gpus=min(machine.gpus, 1)) if jobs > 1 else machine
        self._jobs = jobs
        self.launcher = list(launcher)
        self._say = say
        self._change = change
        self._devices: queue.Queue[str] = queue.Queue()
        names = _gpus(machine.gpus)
        for number in range(jobs):
            self._devices.put(names[number % len(names)])
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()
        self._threads = os.environ.get("OMP_NUM_THREADS") or str(1 if jobs > 1 else cores())

    def train(self, runs: Sequence[Run], finish: Finish = lambda run: None) -> None:
        """Run the trainings that are not finished.

        Args:
            runs: in the order to train them.
            finish: called with each run once its trainings are finished, now or before.

        Raises:
            InputError: before anything is run or written, if a folder holds a run with other
                settings.
            FailedTrainingsError: at the end, if trainings failed.
            ToldToStop: if trainings were told to stop.
        """
        self.check(runs)
        if self._jobs == 1:
            failures = [self._one(run, finish) for run in runs]
        else:
            failures = self._side_by_side(runs, finish)
        sentences = [failure for failure in failures if failure]
        if sentences:
            raise FailedTrainingsError("; ".join(sentences))
        if self._stopped.is_set():
            raise training_process.ToldToStop  # the trainings were told, not this process

    def check(self, runs: Sequence[Run]) -> None:
        """Refuse what could not be run; nothing is run or written.

        Raises:
            InputError: if a folder holds a run with other settings, or is inside that of a run.
        """
        for run in runs:
            for above in run.folder.parents:
                if (above / records.RECORD).is_file():
                    raise InputError(
                        f"{run.folder} would be inside {above}, the folder of a run, where no "
                        "command finds it: choose another --out."
                    )
            self._record(run)

    def _side_by_side(self, runs: Sequence[Run], finish: Finish) -> list[str]:
        with ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(self._one, run, finish) for run in runs]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                return [future.result() for future in futures]
            except BaseException as end:
                self._stopped.set()
                for future in futures:
                    future.cancel()
                for process in list(self._processes):
                    training_process.tell_to_stop(process, end)
                raise

    def _record(self, run: Run) -> Record:
        """The record with which a run starts or continues; one that has saved nothing is replaced.

        Raises:
            InputError: if the folder holds another run, or checkpoints that no record is about.
        """
        new = self._new_record(run)
        if not (run.folder / records.RECORD).exists():
            if records.has_saved(run.folder, new):
                raise InputError(
                    f"{run.folder} has checkpoints, but no {records.RECORD} that says how they "
                    "were trained: put a copy of it back, or choose another --out."
                )
            return new
        record = records.read_record(run.folder)
        try:
            check_same(run, record, self.machine)
        except InputError:
            finished = any(one.outcome == "finished" for one in record.sessions)
            if not finished and not records.has_saved(run.folder, record):
                return new
            if self._change is Change.NOTHING:
                raise
            return changed_record(run, record, self.machine, self._change)
        return replace(record, data=run.data)  # the same data, perhaps in another folder by now

    def _new_record(self, run: Run) -> Record:
        chosen = run.choice
        return Record(
            experiment=run.called,
            model=chosen.model,
            size=chosen.size,
            without=chosen.without,
            seed=run.seed,
            updates=chosen.updates,
            options=without_machine(dict(chosen.own)),
            data=run.data,
            trainings=run.settings(self.machine),
        )

    def _one(self, run: Run, finish: Finish) -> str:
        """Run the unfinished trainings of a run; returns why one failed, or nothing."""
        if self._stopped.is_set():
            return ""
        device = self._devices.get()
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            with training_process.locked(run.folder) as lock:
                # Read again under the lock, where no other process can write one.
                record = self._record(run)
                there = (run.folder / records.RECORD).exists()
                before = records.read_record(run.folder) if there else record
                changed = record.planned_before != before.planned_before
                trainings = run.trainings(self.machine)
                saved = _saved(trainings) if changed else []
                records.write_record(run.folder, record)
                ended = False
                try:
                    for training in trainings:
                        failure = self._stage(run, training, device, lock)
                        if failure or self._stopped.is_set():
                            return failure
                    ended = True
                finally:
                    # A change with which nothing was trained is undone, however that came.
                    if changed and not ended and _saved(trainings) == saved:
                        records.write_record(run.folder, before)
                finish(run)
        except InputError as error:
            return str(error)
        finally:
            self._devices.put(device)
        return ""

    def _stage(self, run: Run, training: Training, device: str, lock: int) -> str:
        """Run one training unless it is finished; returns why it failed, or nothing.

        A training that was told to stop has not failed; after it no other one begins. If this
        process is told to stop, it passes that on to the training.
        """
        record = records.read_record(run.folder)
        what = f"{run.choice.model}, seed {run.seed}"
        if training.name:
            what += f", stage {training.name}"
        if record.finished(training.name):
            self._say(f"already trained: {what} ({training.folder})")
            return ""
        training.folder.mkdir(parents=True, exist_ok=True)
        log = training.folder / LOG
        if log.exists() and all(one.stage != training.name for one in record.sessions):
            put_aside(log, "earlier")  # of a run without checkpoints, which this one replaces
        session = Session(
            stage=training.name,
            command=[*self.launcher, *training.command()],
            code=provenance.describe_code(),
            computer=provenance.describe_computer(self._threads, self.machine.gpus),
            started=records.stamp(),
        )
        past = [records.closed(run.folder, one) for one in record.sessions]
        records.write_record(run.folder, replace(record, sessions=[*past, session]))
        on = run.data.folder or " ".join(["data drawn for", run.data.dataset, run.data.split])
        self._say(f"training {what} on {on.rstrip()} (log: {log})")
        start, written = records.now(), log.stat().st_size if log.exists() else 0
        process: subprocess.Popen[bytes] | None = None
        status: int | None = None
        try:
            with uninterrupted():  # no signal before there is a process to pass it on to
                process = self._start(training.command(), log, device, lock)
                self._processes.add(process)
            self._wait_for(process, log, written, training.updates)
        except BaseException as told:
            if process is not None:
                training_process.tell_to_stop(process, told)
                process.wait()  # it has time to save
            raise
        finally:
            end = records.now()
            if process is not None:
                self._processes.discard(process)
                status = process.returncode
            session = replace(
                session,
                ended=records.stamp(end),
                seconds=round((end - start).total_seconds(), 1),
                outcome=training_process.outcome(status),
            )
            records.write_record(run.folder, replace(record, sessions=[*past, session]))
        if status == UNFINISHED:
            self._stopped.set()
            return ""
        if session.outcome == "killed":
            return (
                f"the training of {what} was killed, which happens when memory runs out; the same "
                f"command goes on from its last checkpoint (log: {log})"
            )
        if status:
            return f"the training of {what} failed; {log} ends: {training_process.last_line(log)}"
        self._say(f"trained {what} in {session.seconds:,.0f} s")
        return ""

    def _start(
        self, command: list[str], log: Path, device: str, lock: int
    ) -> subprocess.Popen[bytes]:
        """Start fairseq-train; its output is appended to the log.

        It inherits the lock: even if this process is killed, no other one can train in the folder.
        """
        environment = {**os.environ, "OMP_NUM_THREADS": self._threads}
        if self._jobs > 1 and self.machine.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = device
        with open(log, "a", encoding="utf-8") as file:
            return subprocess.Popen(
                [*self.launcher, *program(command[0]), *command[1:]],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
            )

    def _wait_for(
        self, process: subprocess.Popen[bytes], log: Path, written: int, updates: int | None
    ) -> None:
        """Wait for the end of fairseq-train, and show its progress if it is the only one."""
        if self._stopped.is_set():  # it started after the others had been told
            process.terminate()
        if self._jobs == 1:
            with Progress(updates) as progress:
                training_process.follow(process, log, written, progress)
        process.wait()


def _gpus(number: int) -> list[str]:
    """Names for CUDA_VISIBLE_DEVICES of the GPUs to use, among those visible to this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = (
        re.split(r"\s*,\s*", visible.strip()) if visible else [str(each) for each in range(number)]
    )
    return names[:number] or [""]


def _saved(trainings: Sequence[Training]) -> list[int | None]:
    """Number of updates in the last checkpoint of each training."""
    return [saved_updates(training.folder) for training in trainings]
