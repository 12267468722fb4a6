"""What made the folder of a run: command, code, data and machine, in its file `run.json`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.schema import Settings
from sut_fairseq.experiments.typed import Place, build

RECORD = "run.json"
LOG = "train.log"
_STAMP = "prepared.json"


@dataclass(frozen=True, kw_only=True)
class Data:
    """A prepared folder.

    Attributes:
        folder: where it lay.
        dataset, split: what `sut-prepare` calls them; empty for other folders.
        limited: whether examples were left out of it.
        digest: of its list of files and its dictionaries.
    """

    folder: str
    dataset: str = ""
    split: str = ""
    limited: bool = False
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The program: its version, and where it is a git checkout its commit and whether tracked
    files differ from that."""

    version: str
    commit: str | None = None
    changed: bool | None = None

    def __str__(self) -> str:
        if self.commit is None:
            return self.version
        return f"{self.version}, {self.commit[:10]}{' with changes' if self.changed else ''}"


@dataclass(frozen=True, kw_only=True)
class Computer:
    """What a training ran on."""

    processor: str
    cores: int
    threads: str
    gpus: list[str]
    python: str
    torch: str

    def __str__(self) -> str:
        if self.gpus:
            return f"{len(self.gpus)} x {self.gpus[0]}, torch {self.torch}"
        return f"{self.processor}, {self.threads} of {self.cores} cores, torch {self.torch}"


@dataclass(frozen=True, kw_only=True)
class Session:
    """One call of fairseq-train.

    Attributes:
        stage: which training of the run; empty for the one that counts.
        command: the command line.
        started, ended: times in UTC.
        seconds: between the two.
        outcome: running, finished, failed, or killed.
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
    """The file of a run.

    Attributes:
        experiment: its name, or the path of the user's own file.
        model, size, without, seed: what was chosen.
        updates: what --updates gave, if anything.
        options: the user's own options of fairseq-train.
        data: what it was trained on.
        trainings: options of fairseq-train by stage, but for those of machine and folder.
        sessions: what was run, in this order.
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

    def finished(self, stage: str = "") -> bool:
        """Whether a training has come to its end."""
        return any(one.stage == stage and one.outcome == "finished" for one in self.sessions)

    @property
    def seconds(self) -> float:
        """Time of all trainings."""
        return sum(session.seconds or 0 for session in self.sessions)

    @property
    def length(self) -> str:
        """How many updates there are, or epochs."""
        options = self.trainings[""]
        if "max-update" in options:
            return f"{int(str(options['max-update'])):,} updates"
        return f"{options.get('max-epoch', 'no limit of')} epochs"

    def key(self) -> tuple[Any, ...]:
        """What runs that differ in nothing but the seed have in common."""
        trainings = {
            stage: {name: value for name, value in options.items() if name != "seed"}
            for stage, options in self.trainings.items()
        }
        chosen = (self.experiment, self.model, self.size, self.without, self.data.digest)
        return (*chosen, json.dumps(trainings, sort_keys=True))


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)


def stamp_of(data: Path) -> dict[str, Any]:
    """What `sut-prepare` wrote about a prepared folder; nothing for other folders."""
    path = data / _STAMP
    stamp = read_json(path) if path.is_file() else {}
    return stamp if isinstance(stamp, dict) else {}


def describe_data(data: Path) -> Data:
    """What a prepared folder holds.

    Raises:
        InputError: if it is none.
    """
    dictionaries = sorted(data.glob("dict.*.txt"))
    if not dictionaries:
        raise InputError(f"{data} has no dict.src.txt: make the folder with `sut-prepare` first.")
    stamp = stamp_of(data)
    digest = hashlib.sha256()
    if stamp:
        digest.update(json.dumps(stamp, sort_keys=True).encode())
    else:
        parts = sorted(path for ending in ("*.bin", "*.idx") for path in data.glob(ending))
        digest.update(repr([(path.name, path.stat().st_size) for path in parts]).encode())
    for path in dictionaries:
        digest.update(path.read_bytes())
    return Data(
        folder=str(data),
        dataset=stamp.get("dataset") or "",
        split=stamp.get("split") or "",
        limited=bool(stamp.get("limited")),
        digest=digest.hexdigest()[:16],
    )


def describe_code() -> Code:
    """The version of this package, and the commit where it is a git checkout."""
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed package may lie within somebody else's checkout.
    if not (root / ".git").exists():
        return Code(version=version("sut_fairseq"))
    changes = git("status", "--porcelain", "--untracked-files=no")
    return Code(
        version=version("sut_fairseq"),
        commit=git("rev-parse", "HEAD"),
        changed=None if changes is None else bool(changes),
    )


def describe_computer(threads: str, gpus: int) -> Computer:
    """This machine.

    Args:
        threads: how many the training may use.
        gpus: how many it uses.
    """
    names = [torch.cuda.get_device_name(n) for n in range(min(gpus, torch.cuda.device_count()))]
    return Computer(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        threads=threads,
        gpus=names,
        python=platform.python_version(),
        torch=torch.__version__,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def read_record(run: Path) -> Record:
    """The record of a run.

    Raises:
        InputError: if the folder is that of no run.
    """
    path = run / RECORD
    if not path.is_file():
        raise InputError(
            f"{run} is not the folder of a run: name one that `sut-experiment train` made."
        )
    return build(Record, read_json(path), Place(path, {}))


def read_json(path: Path) -> Any:
    """A JSON file of ours.

    Raises:
        InputError: if it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): remove it and make it again.") from error


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file; a file of that name is replaced only by a whole one."""
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def write_record(run: Path, record: Record) -> None:
    """Write the record of a run into its folder."""
    write_json(run / RECORD, dataclasses.asdict(record))


def find_runs(folders: list[Path]) -> list[Path]:
    """The runs among these folders and below them, in order, each once.

    Raises:
        InputError: for a folder without any.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        if (folder / RECORD).is_file():
            found[folder] = None
            continue
        inside = sorted(path.parent for path in folder.rglob(RECORD))
        if not inside:
            raise InputError(
                f"{folder} is not the folder of a run, nor are there any in it: name one that "
                "`sut-experiment train` made."
            )
        found |= dict.fromkeys(inside)
    return list(found)


def differences(before: dict[str, Settings], after: dict[str, Settings]) -> list[str]:
    """Options in which the trainings of two runs differ, as `name (old, now new)`."""
    found = []
    for stage in {**before, **after}:
        old, new = before.get(stage, {}), after.get(stage, {})
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                found.append(f"{name} ({old.get(name)}, now {new.get(name)})")
    return list(dict.fromkeys(found))
