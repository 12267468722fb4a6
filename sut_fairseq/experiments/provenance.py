"""Where a result comes from: data, code and computer."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sut_data.folders.binarise import LOG
from sut_data.folders.prepared import STAMP, check_stamp, set_of, without_added
from sut_data.text.treatment import Counts
from sut_fairseq._machine import processor
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.json_files import read_json

_ADVERTISEMENT = (
    b"INFO:fairseq.tasks.text_to_speech:Please install tensorboardX: pip install tensorboardX\n"
)
_READ = (".bin", ".idx")  # what fairseq-train reads besides the dictionaries


@dataclass(frozen=True, kw_only=True)
class Data:
    """A prepared folder, or data that a task draws itself.

    Attributes:
        folder: its path at the time; empty where there is none.
        dataset, split: what `sut-prepare` calls them; empty for other folders.
        limited: whether examples were left out of it.
        options: options of `sut-prepare` that make its sets differ from the usual ones.
        digest: of its list of files and its dictionaries, or of the options of drawn data.
    """

    folder: str
    dataset: str = ""
    split: str = ""
    limited: bool = False
    options: list[str] = field(default_factory=list)
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The code: its version and, in a git checkout, its commit and whether tracked files differ."""

    version: str
    commit: str | None = None
    changed: bool | None = None

    def __str__(self) -> str:
        if self.commit is None:
            return self.version
        return f"{self.version}, {self.commit[:10]}{' with changes' if self.changed else ''}"


@dataclass(frozen=True, kw_only=True)
class Computer:
    """The machine that a training ran on.

    Attributes:
        tf32: whether the GPUs round float32 numbers to TF32 in matrix products.
    """

    processor: str
    cores: int
    threads: str
    gpus: list[str]
    python: str
    torch: str
    tf32: bool = False

    def __str__(self) -> str:
        if self.gpus:
            products = ", TF32" if self.tf32 else ""
            return f"{len(self.gpus)} x {self.gpus[0]}, torch {self.torch}{products}"
        return f"{self.processor}, {self.threads} of {self.cores} cores, torch {self.torch}"


def stamp_of(data: Path) -> dict[str, Any]:
    """The stamp that `sut-prepare` wrote into a prepared folder; empty for other folders.

    Raises:
        InputError: if it is damaged.
    """
    path = data / STAMP
    stamp = read_json(path) if path.is_file() else {}
    if not isinstance(stamp, dict):
        return {}
    try:
        check_stamp(stamp)
    except TypeError as error:
        raise InputError(f"{path} is damaged ({error}): make the folder again.") from error
    return stamp


def describe_data(data: Path) -> Data:
    """What a prepared folder holds.

    Raises:
        InputError: if it is not a prepared folder, or files are missing or of another size.
    """
    dictionaries = sorted(data.glob("dict.*.txt"))
    if not dictionaries:
        raise InputError(f"{data} has no dict.src.txt: make the folder with `sut-prepare` first.")
    stamp = stamp_of(data)
    for name, size in stamp.get("files", {}).items():
        path = data / name
        if path.suffix in _READ and (not path.is_file() or path.stat().st_size != size):
            raise InputError(
                f"{path} is not what `sut-prepare` put there (a file of {size:,} bytes): make the "
                "folder again."
            )
    return Data(
        folder=str(data),
        dataset=stamp.get("dataset") or "",
        split=stamp.get("split") or "",
        limited=bool(stamp.get("limited")),
        options=stamp.get("options") or [],
        digest=_digest(data, stamp, dictionaries),
    )


def _digest(data: Path, stamp: dict[str, Any], dictionaries: Sequence[Path]) -> str:
    """A digest of the training data: of the stamp or, without one, of the files.

    Dictionaries are read in any case.
    """
    digest = hashlib.sha256()
    if stamp:
        # The training data do not change with sets that were added later, with another version of
        # the programs, or with other options that gave the same text.
        unread = ("recipe", "options")
        made = {key: value for key, value in without_added(stamp).items() if key not in unread}
        # How much of a set is also in the training text follows from the two texts.
        shared = Counts._fields.index("trained")
        if "counts" in made:
            made["counts"] = {split: row[:shared] for split, row in made["counts"].items()}
        if LOG in made.get("files", {}) and (data / LOG).is_file():
            made["files"] = {**made["files"], LOG: len(_usual_log(data / LOG))}
        digest.update(json.dumps(made, sort_keys=True).encode())
    else:
        parts = sorted(path for ending in ("*.bin", "*.idx") for path in data.glob(ending))
        for path in parts:
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.name} {checksum}\n".encode())
    for path in dictionaries:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def added_set(data: Path, subset: str) -> str:
    """A digest of the text of a set that was added to a prepared folder; empty for other sets."""
    texts = stamp_of(data).get("also", {}).items()
    own = {name: checksum for name, checksum in texts if set_of(name) == subset}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16] if own else ""


def _usual_log(path: Path) -> bytes:
    """The log of fairseq-preprocess as one process without tensorboardX would write it.

    The log is among the files of a stamp, but neither of these two changes the data.
    """
    text = re.sub(rb"\bworkers=\d+", b"workers=1", path.read_bytes())
    return _ADVERTISEMENT + text.replace(_ADVERTISEMENT, b"")


def describe_drawn(dataset: str, split: str, options: Mapping[str, Any]) -> Data:
    """The data that a task draws with these options."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    return Data(folder="", dataset=dataset, split=split, digest=digest.hexdigest()[:16])


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

    # An installed package may be inside the checkout of another project.
    if not (root / ".git").exists():
        return Code(version=version("sut_fairseq"))
    changes = git("status", "--porcelain", "--untracked-files=no")
    return Code(
        version=version("sut_fairseq"),
        commit=git("rev-parse", "HEAD"),
        changed=None if changes is None else bool(changes),
    )


def describe_computer(threads: str, gpus: int) -> Computer:
    """Describe this machine.

    Args:
        threads: how many the training may use.
        gpus: how many it uses.
    """
    import torch  # only here: most of `sut-experiment` answers without it

    names = [torch.cuda.get_device_name(n) for n in range(min(gpus, torch.cuda.device_count()))]
    return Computer(
        processor=processor(),
        cores=os.cpu_count() or 1,
        threads=threads,
        gpus=names,
        python=platform.python_version(),
        torch=torch.__version__,
        tf32=bool(names) and torch.get_float32_matmul_precision() != "highest",
    )
