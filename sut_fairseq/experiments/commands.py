"""Trainings of an experiment as commands of fairseq-train."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.schema import (
    Experiment,
    Settings,
    Value,
    is_of_machine,
    less_is_better,
    whole,
    without_machine,
)
from sut_fairseq.experiments.settings import (
    Choice,
    compose,
    refuse_options_of_run,
    stages,
    values_of,
)

USER_DIR = Path(__file__).resolve().parents[1]


def split_line(line: str, where: str) -> list[str]:
    """The words of a command line as a shell reads them.

    Raises:
        InputError: for an unclosed quotation; the message says `where`.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise InputError(f"{where} {line}: {str(error).lower()}.") from error


@dataclass(frozen=True)
class Machine:
    """What a command depends on besides the experiment.

    Attributes:
        gpus: number of GPUs of one training, on all machines; 0: on the CPU.
        launched: whether a launcher starts the processes, and says how many there are.
    """

    gpus: int
    launched: bool = False

    def settings(self) -> Settings:
        """Device, processes and data workers."""
        if self.gpus == 0:
            return {"cpu": True, "num-workers": 0}
        # By default fairseq takes every GPU that it sees.
        processes: Settings = {} if self.launched else {"distributed-world-size": self.gpus}
        return {**processes, "num-workers": 2}


@dataclass(frozen=True)
class Training:
    """One call of fairseq-train: a stage of a run, or the training that counts.

    Attributes:
        name: of the stage; empty for the training that counts.
        folder: for its output.
        data: prepared folder; None where the task draws its data.
        settings: its options, except those that depend on machine and folder.
        machine_settings: options that depend on the machine.
        start: checkpoint whose parameters it starts from.
    """

    name: str
    folder: Path
    data: Path | None
    settings: Settings
    machine_settings: Settings
    start: Path | None

    def command(self) -> list[str]:
        """The whole command line, beginning with `fairseq-train`."""
        own: Settings = {"save-dir": str(self.folder / "checkpoints")}
        if self.start is not None:
            own["finetune-from-model"] = str(self.start)
        fixed: Settings = {"user-dir": str(USER_DIR)}
        if self.data is not None:
            fixed |= {"source-lang": "src", "target-lang": "tgt"}
        options = {**fixed, **self.settings, **self.machine_settings, **own}
        data = [] if self.data is None else [str(self.data)]
        return ["fairseq-train", *data, *words(options)]

    @property
    def updates(self) -> int | None:
        """Number of updates, if known."""
        return whole(self.settings.get("max-update"))


def plan(
    experiment: Experiment, choice: Choice, seed: int, data: Data, folder: Path, machine: Machine
) -> list[Training]:
    """All trainings of a run, in their order; the last one is the one that counts.

    Args:
        experiment: what is run.
        choice: which model, size and so on.
        seed: of each training.
        data: what it is trained on.
        folder: of the run.
        machine: what it runs on.
    """
    drawn = {} if data.folder else experiment.generate[data.split]
    trainings: list[Training] = []
    start: Path | None = None
    for stage in stages(experiment, choice):
        # Options for one GPU, the same everywhere so that a run can move, and for this machine.
        portable, here = (
            values_of(compose(experiment, choice, stage, gpus)) for gpus in (1, machine.gpus)
        )
        on_machine = machine.settings() | {
            name: value
            for name, value in here.items()
            if portable.get(name) != value or is_of_machine(name)
        }
        portable = without_machine(portable)
        metric = str(portable.get("best-checkpoint-metric", experiment.metric))
        fixed: Settings = {"task": experiment.task, **drawn, **_selection(metric), "seed": seed}
        trainings.append(
            Training(
                name="" if stage is None else stage.name,
                folder=folder if stage is None else folder / stage.name,
                data=Path(data.folder) if data.folder else None,
                settings={**fixed, **portable},
                machine_settings=on_machine,
                start=start,
            )
        )
        start = trainings[-1].folder / "checkpoints" / "checkpoint_last.pt"
    return trainings


def _selection(metric: str) -> Settings:
    """Options that select the best checkpoint: the lowest loss, or the highest score."""
    chosen: Settings = {"best-checkpoint-metric": metric}
    if not less_is_better(metric):
        chosen["maximize-best-checkpoint-metric"] = True
    return chosen


def words(settings: Mapping[str, Value]) -> list[str]:
    """Options as words of a command line."""
    line: list[str] = []
    for name, value in settings.items():
        if value is None or value is False:
            continue
        line.append(f"--{name}")
        if value is not True:
            line.append(str(value))
    return line


def written(settings: Mapping[str, Value]) -> str:
    """Options as text that a shell reads."""
    return shlex.join(words(settings))


def read_words(line: Sequence[str]) -> tuple[tuple[str, Value], ...]:
    """The user's own options of fairseq-train, as written after `--`.

    Raises:
        InputError: for a word that belongs to no option, or an option that each run decides.
    """
    options: dict[str, list[str]] = {}
    name = ""
    for word in line:
        if word == "--":  # scripts that append their own options repeat it
            continue
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            options[name] = [value] if equals else []
        elif not name:
            raise InputError(
                f"`{word}` belongs to no option: after -- come options of fairseq-train."
            )
        else:
            options[name].append(word)
    for name, values in options.items():
        if len(values) > 1:
            raise InputError(
                f"--{name} takes one value, not {shlex.join(values)}: put it into quotes."
            )
    refuse_options_of_run(options, "after --")
    return tuple((name, values[0] if values else True) for name, values in options.items())


def program(name: str) -> list[str]:
    """A console command of this environment: its script, beside the interpreter or on PATH.

    Raises:
        InputError: if there is none.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise InputError(f"there is no command `{name}`: install fairseq into this environment.")
    return [found]
