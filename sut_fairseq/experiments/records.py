"""The record of a run: command, code, data and machine, in the file `run.json` of its folder."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.json_files import read_as, write_json
from sut_fairseq.experiments.provenance import Code, Computer, Data
from sut_fairseq.experiments.schema import Settings, Value, whole, without_machine

RECORD = "run.json"
LOG = "train.log"
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \|", re.MULTILINE)  # in local time
_TAIL = 100_000  # bytes: more than the longest line


@dataclass(frozen=True, kw_only=True)
class Session:
    """One call of fairseq-train.

    Attributes:
        stage: which training of the run; empty for the one that counts.
        command: the command line.
        started, ended: times in UTC.
        seconds: between the two.
        outcome: running, finished, prolonged (finished, but the run was extended afterwards),
            interrupted (it was told to stop, and saved), failed, or killed.
    """

    stage: str
    command: list[str]
    code: Code
    computer: Computer
    started: str
    ended: str | None = None
    seconds: float | None = None
    outcome: str = "running"


@dataclass(frozen=True, kw_only=True)
class Record:
    """The record of a run, as in its file.

    Attributes:
        experiment: its name, or the path of the user's own file.
        model, size, without, seed: what was chosen.
        updates: value of --updates, if given.
        options: the user's own options of fairseq-train.
        data: what it was trained on.
        trainings: options of fairseq-train by stage, except those of machine and folder.
        sessions: in the order in which they ran.
        planned_before: the lengths that it had before `--change-length` or `--change-settings`,
            each with the old values of the options that were changed then. Until then the run used
            these options, and its learning rate schedules followed these lengths.
        settings_changed: whether more than the length was changed.
    """

    experiment: str
    model: str
    size: str
    without: str | None = None
    seed: int
    updates: int | None = None
    options: Settings = field(default_factory=dict)
    data: Data
    trainings: dict[str, Settings]
    sessions: list[Session] = field(default_factory=list)
    planned_before: list[str] = field(default_factory=list)
    settings_changed: bool = False

    def finished(self, stage: str = "", settings: Settings | None = None) -> bool:
        """Whether a training is finished, with these settings if they are given."""
        before = self.trainings.get(stage, {})
        if settings is not None and differences({stage: before}, {stage: settings}):
            return False
        return any(one.stage == stage and one.outcome == "finished" for one in self.sessions)

    @property
    def trained_until(self) -> str:
        """When its last session ended, or else began; such times compare as text."""
        last = self.sessions[-1] if self.sessions else None
        return (last.ended or last.started) if last else ""

    @property
    def seconds(self) -> float:
        """Time of all trainings."""
        return sum(session.seconds or 0 for session in self.sessions)

    @property
    def computers(self) -> str:
        """The machines it ran on, each once, in order of first use."""
        return _distinct(str(session.computer) for session in self.sessions)

    @property
    def codes(self) -> str:
        """The versions of the code that trained it, each once, in order of first use."""
        return _distinct(str(session.code) for session in self.sessions)

    @property
    def length(self) -> str:
        """Its length in updates or epochs, and the lengths that were planned before."""
        if not self.planned_before:
            return self.planned
        return f"{self.planned}, {self.former_plans}"

    @property
    def former_plans(self) -> str:
        """The lengths that were planned before, in words; at least one."""
        return f"planned for {', then for '.join(self.planned_before)} before"

    @property
    def own_length(self) -> str:
        """Its length and the option that set it; empty if it was always that of the size."""
        if self.planned_before:
            return f"{self.length} (`{self.change_option}`)"
        return "" if self.updates is None else f"{self.length} (`--updates`)"

    @property
    def change_option(self) -> str:
        """The option of `sut-experiment train` that changed it."""
        return "--change-settings" if self.settings_changed else "--change-length"

    @property
    def planned(self) -> str:
        """Its length in updates or epochs."""
        options = self.trainings[""]
        if "max-update" in options:
            number = whole(options["max-update"])
            shown = options["max-update"] if number is None else f"{number:,}"
            return f"{shown} updates"
        return f"{options.get('max-epoch', 'no limit of')} epochs"

    @property
    def all_updates(self) -> int | None:
        """Updates of all stages; None if one of them is limited by epochs only."""
        numbers = [whole(options.get("max-update")) for options in self.trainings.values()]
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) else None

    @property
    def amount(self) -> int | None:
        """The most tokens or sentences, as batches are counted, that all stages can train on.

        None if one of them is limited by epochs only.
        """
        total = 0
        for options in self.trainings.values():
            batch = options.get("max-tokens", options.get("batch-size", 1))
            factors = options.get("max-update"), options.get("update-freq", 1), batch
            numbers = [number for number in map(whole, factors) if number is not None]
            if len(numbers) < len(factors):
                return None
            total += math.prod(numbers)
        return total

    def key(self) -> tuple[Any, ...]:
        """The key that runs have in common if they differ only in the seed."""
        trainings = {
            stage: {name: _plain(value) for name, value in options.items() if name != "seed"}
            for stage, options in self.trainings.items()
        }
        chosen = (self.experiment, self.model, self.size, self.without, self.data.digest)
        return (*chosen, *self.planned_before, json.dumps(trainings, sort_keys=True))


def _distinct(names: Iterable[str]) -> str:
    return "; then ".join(dict.fromkeys(names))


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)


def stamp(time: datetime | None = None) -> str:
    """A time, by default now, to the second, in the form used in files."""
    return (time or now()).isoformat(timespec="seconds")


def read_record(run: Path) -> Record:
    """The record of a run.

    Raises:
        InputError: if the folder is not that of a run.
    """
    path = run / RECORD
    if not path.is_file():
        raise InputError(
            f"{run} is not the folder of a run: name one that `sut-experiment train` made."
        )
    record = read_as(Record, path, "put a copy of it back, or train in another folder")
    if "" not in record.trainings:
        raise InputError(f"{path} is damaged (no training in `trainings`): make the run again.")
    # Records from before an option counted as one of the machine still list it.
    trainings = {stage: without_machine(options) for stage, options in record.trainings.items()}
    return replace(record, options=without_machine(record.options), trainings=trainings)


def write_record(run: Path, record: Record) -> None:
    """Write the record of a run into its folder."""
    write_json(run / RECORD, dataclasses.asdict(record))


def closed(folder: Path, session: Session) -> Session:
    """Close a session that was killed before it recorded its end: it ended when its log did."""
    if session.outcome != "running":
        return session
    log = folder / session.stage / LOG
    start = datetime.fromisoformat(session.started)
    end = _last_words(log, start) if log.exists() else start
    return replace(
        session,
        ended=stamp(end),
        seconds=max(0.0, round((end - start).total_seconds(), 1)),
        outcome="killed",
    )


def _last_words(log: Path, start: datetime) -> datetime:
    """When the log of a session that began at `start` ended."""
    written = datetime.fromtimestamp(log.stat().st_mtime, UTC)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        times = _TIME.findall(file.read().decode(errors="replace"))
    # In a copied folder, the file may be newer than its last entry.
    said = datetime.fromisoformat(times[-1]).astimezone(UTC) if times else written
    return said if start <= said <= written else written


def has_saved(folder: Path, record: Record) -> bool:
    """Whether there is a checkpoint of any of the trainings of a run, damaged ones included."""
    # Not by a recursive search of the folder, which would not follow links to folders.
    return any(
        any((folder / stage / "checkpoints").glob("checkpoint*.pt*")) for stage in record.trainings
    )


def find_runs(folders: list[Path]) -> list[Path]:
    """The runs among these folders and below them, in order, each once; links are followed.

    Raises:
        InputError: for a folder without runs.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        inside = sorted(_runs_below(folder))
        if not inside:
            raise InputError(
                f"{folder} is not the folder of a run, nor are there any in it: name one that "
                "`sut-experiment train` made."
            )
        found |= dict.fromkeys(inside)
    return list(found)


def holds_runs(folder: Path) -> bool:
    """Whether a folder is that of a run, or has any below it."""
    return any(True for _ in _runs_below(folder))


def _runs_below(folder: Path) -> Iterator[Path]:
    """The folders of runs below a folder, or itself; each once, even if links are circular."""
    seen: set[str] = set()
    for place, inner, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real not in seen and RECORD in files:
            yield Path(place)
        if real in seen or RECORD in files:
            inner.clear()  # do not search further down
        seen.add(real)


def _plain(value: Value) -> Value:
    """A setting in comparable form: on a command line a number is text, and 1e-3 is 0.001."""
    try:
        return value if isinstance(value, bool) or value is None else float(value)
    except ValueError:
        return value


def differences(before: dict[str, Settings], after: dict[str, Settings]) -> list[str]:
    """Options in which the trainings of two runs differ, as `name (old, now new)`."""
    found = []
    for stage in {**before, **after}:
        old, new = before.get(stage, {}), after.get(stage, {})
        found += [f"{name} ({old.get(name)}, now {new.get(name)})" for name in differing(old, new)]
    return list(dict.fromkeys(found))


def differing(before: Settings, after: Settings) -> list[str]:
    """Names of the options in which two trainings differ."""
    return [
        name for name in {**before, **after} if _plain(before.get(name)) != _plain(after.get(name))
    ]
