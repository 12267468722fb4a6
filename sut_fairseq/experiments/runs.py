"""A training with all its stages, and whether its folder holds it already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from sut_fairseq.checkpoints.progress import progress_of
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import records
from sut_fairseq.experiments.commands import Machine, Training, plan, words
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.reading import MATRIX, is_ours
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.schema import Experiment, Settings, whole, without_machine
from sut_fairseq.experiments.settings import Choice


@dataclass(frozen=True)
class Run:
    """A training with all its stages.

    Attributes:
        experiment: what is run.
        choice: which model, size and so on.
        seed: of the training.
        data: what it is trained on.
        folder: of the run.
    """

    experiment: Experiment
    choice: Choice
    seed: int
    data: Data
    folder: Path

    @property
    def called(self) -> str:
        """How its record names the experiment: by our name, or by the path of a user's file."""
        path = self.experiment.path
        return self.experiment.name if is_ours(path) else str(path.resolve())

    def trainings(self, machine: Machine) -> list[Training]:
        """What is run, the stages first."""
        return plan(self.experiment, self.choice, self.seed, self.data, self.folder, machine)

    def settings(self, machine: Machine) -> dict[str, Settings]:
        """Options of fairseq-train by stage."""
        return {one.name: one.settings for one in self.trainings(machine)}


def name_of_run(experiment: Experiment, choice: Choice, seed: int, data: Data) -> str:
    """Name of its folder in that of its experiment; says what is unusual about the run.

    In a column of the matrix, which has data of its own, it leaves out their name.
    """
    name = Path(data.folder).name if data.folder else data.split
    of_data = "" if f"{MATRIX}/{name}" == experiment.name else f"{name}-"
    without = f"-without-{choice.without}" if choice.without else ""
    size = "" if choice.size == next(iter(experiment.sizes)) else f"-{choice.size}"
    return f"{of_data}{choice.model}{without}{size}-seed-{seed}"


class Change(Enum):
    """What may change when an existing run continues."""

    NOTHING = "nothing"
    LENGTH = "its number of updates"
    SETTINGS = "that and other options of fairseq-train"


def check_same(run: Run, record: Record, machine: Machine) -> None:
    """Refuse to continue a run if its folder holds another one.

    Raises:
        InputError: saying what differs.
    """
    changed = records.differences(record.trainings, _settings(run, record, machine))
    if changed or (record.experiment, record.model) != (run.called, run.choice.model):
        what = ", ".join(changed[:5]) or f"{record.experiment}, {record.model}"
        how = "choose another --out"
        if _differs_in_length(run, record, machine):
            how += ", or go on with it by `sut-experiment train` with --change-length"
        elif _is_of_same_name(run, record):
            how += ", or go on with it by `sut-experiment train` with --change-settings"
        raise InputError(f"{run.folder} holds a run of other settings: {what}; {how}.")
    if record.data.digest != run.data.digest:
        raise InputError(
            f"{run.folder} holds a run on other data ({record.data.folder}): choose another --out."
        )


def _settings(
    run: Run, record: Record, machine: Machine, changed: bool = False
) -> dict[str, Settings]:
    """Options by stage; if settings were `changed`, now or before, finished stages keep theirs."""
    settings = run.settings(machine)
    if changed or record.settings_changed:
        ended = (stage for stage in settings if stage and record.finished(stage))
        settings |= {stage: record.trainings[stage] for stage in ended}
    return settings


def _is_of_same_name(run: Run, record: Record) -> bool:
    """Whether the run is one of the same experiment, model, size and seed on the same data."""
    before = (record.experiment, record.model, record.size, record.without, record.seed)
    chosen = run.choice
    now = (run.called, chosen.model, chosen.size, chosen.without, run.seed)
    return before == now and record.data.digest == run.data.digest


def _before_length(run: Run, record: Record) -> Run:
    """The run with the number of updates of its record."""
    return replace(run, choice=replace(run.choice, updates=record.updates))


def _differs_in_length(run: Run, record: Record, machine: Machine) -> bool:
    """Whether the run differs from its record only in `--updates`."""
    if record.updates == run.choice.updates:
        return False
    try:
        check_same(_before_length(run, record), record, machine)
    except InputError:
        return False
    return True


def saved_updates(folder: Path) -> int | None:
    """Number of updates in the last checkpoint of a training; None without a checkpoint."""
    last = progress_of(folder / "checkpoints" / "checkpoint_last.pt")
    return None if last is None else last.updates


def changed_record(run: Run, record: Record, machine: Machine, change: Change) -> Record:
    """The record of a run that continues with other settings than it was started with.

    Raises:
        InputError: if more differs than may change, a finished stage would get another length, the
            run already has as many updates, or its last checkpoint is missing.
    """
    in_length = _differs_in_length(run, record, machine)
    if not in_length and not (change is Change.SETTINGS and _is_of_same_name(run, record)):
        check_same(run, record, machine)
        return record
    settings = _settings(run, record, machine, changed=not in_length)
    if settings.keys() != record.trainings.keys():
        had, has = (", ".join(filter(None, one)) or "none" for one in (record.trainings, settings))
        raise InputError(
            f"{run.folder} was started with other stages ({had}; now {has}), which cannot change: "
            "choose another --out."
        )
    for stage in settings:
        if not records.differences({stage: record.trainings[stage]}, {stage: settings[stage]}):
            continue
        if stage and record.finished(stage):
            raise InputError(
                f"{run.folder} cannot get another length: its stage {stage} is finished, and would "
                "have another length, too; choose another --out."
            )
        folder = run.folder / stage
        # 0 is no limit, and what is not a number fairseq-train refuses.
        saved, limit = saved_updates(folder), whole(settings[stage].get("max-update"))
        if saved is None and record.finished(stage):
            raise InputError(
                f"{folder} has no checkpoint_last.pt to go on from: put it back, or choose another "
                "--out."
            )
        if saved is not None and limit and saved >= limit:
            raise InputError(
                f"{folder} has been trained for {saved:,} updates: give --updates more."
            )
    sessions = [
        one if one.stage or one.outcome != "finished" else replace(one, outcome="prolonged")
        for one in record.sessions
    ]
    return replace(
        record,
        updates=run.choice.updates,
        options=without_machine(dict(run.choice.own)),
        trainings=settings,
        sessions=sessions,
        planned_before=[*record.planned_before, _plan_before(run, record, machine)],
        settings_changed=record.settings_changed or not in_length,
    )


def _plan_before(run: Run, record: Record, machine: Machine) -> str:
    """The old length of a run, the old values of the options that change now, and until when."""
    old = record.trainings[""]
    changed = records.differing(old, _before_length(run, record).settings(machine)[""])
    if not changed:
        return record.planned
    options = [" ".join(words({name: old.get(name)})) or f"no --{name}" for name in changed]
    until = f"until update {saved_updates(run.folder) or 0:,}"
    return f"{record.planned} with {', '.join(options)} {until}"
