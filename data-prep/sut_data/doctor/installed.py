"""Checks of what is installed; whatever imports torch or fairseq runs in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sut_data.doctor.finding import Finding, Ran, numbers, run
from sut_data.tables import counted
from sut_data.text.chunks import cores

PACKAGE = "sut_fairseq"
INSTALL = "run `pip install .` in the repository"
# Seconds after which a program counts as stuck; from a cold disk torch alone takes many.
IMPORTING, TRAINING = 180.0, 300.0
_PINNED, _OTHER = "fairseq-fixed", "fairseq"


def check_package() -> Finding:
    """Whether this package is installed, and where."""
    place, number = package_folder(), installed(PACKAGE)
    if number is None or place is None:
        what = "is not installed" if number is None else "is installed, but its folder is not there"
        return Finding(PACKAGE, "none", f"the package {PACKAGE} {what}: {INSTALL}.")
    return Finding(PACKAGE, f"{number} ({place})")


def package_folder() -> Path | None:
    """The folder of this package, found without importing it."""
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def installed(name: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def required(name: str) -> str:
    """The version that this package asks for: `2.6` of `torch>=2.6`; empty if it is unknown."""
    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError:
        return ""
    found = (re.match(rf"{name}\s*[=>]=\s*([\d.]+)", line) for line in lines)
    return next((match[1] for match in found if match), "")


def probe(
    name: str, *arguments: str, seconds: float = IMPORTING, **environment: str
) -> tuple[list[Any], Ran]:
    """Run one of the programs of `cli/_probes`; the arguments are those of `run`.

    Returns:
        the JSON documents that it printed, one per line, and how it ended.
    """
    folder = package_folder()
    if folder is None:
        return [], Ran([], f"the package {PACKAGE} is not installed")
    ran = run(
        folder / "cli" / "_probes" / f"{name}.py",
        arguments,
        seconds=seconds,
        environment=environment,
    )
    documents = []
    for line in ran.lines:
        try:
            documents.append(json.loads(line))
        except ValueError:
            continue  # output of a library
    return documents, ran


def check_torch(found: dict[str, Any] | None, ran: Ran) -> Finding:
    """Whether torch is new enough, can be imported, and multiplies.

    Args:
        found: what the probe "accelerator" printed; None if nothing.
        ran: how it ended.
    """
    number, oldest = installed("torch"), required("torch")
    if number is None:
        return Finding("torch", "none", f"torch is not installed: {INSTALL}.")
    if numbers(number) < numbers(oldest):
        return Finding(
            "torch", number,
            f"torch {number} is too old: {oldest} or newer is needed, install it in a fresh "
            "environment.",
        )  # fmt: skip
    if found is None:
        return Finding(
            "torch", number,
            f"torch {number} cannot be used ({ran.problem}): install it again, `pip install "
            f"--force-reinstall torch=={number.partition('+')[0]}`.",
        )  # fmt: skip
    built = f"CUDA {found['cuda']}" if found["cuda"] else "CPU only"
    return Finding("torch", f"{found['version']} ({built})")


def check_threads(found: dict[str, Any] | None) -> Finding:
    """Whether torch uses no more threads than there are cores."""
    usable, given = cores(), os.environ.get("OMP_NUM_THREADS")
    threads = found["threads"] if found else int(given) if given and given.isdigit() else usable
    said = f"{counted(usable, 'core')}, {counted(threads, 'thread')}"
    said += " (OMP_NUM_THREADS)" if given else ""
    if threads > usable:
        return Finding(
            "cores", said,
            f"torch computes with {threads} threads on {usable} cores, which makes decoding many "
            f"times slower: `export OMP_NUM_THREADS={usable}`.",
        )  # fmt: skip
    return Finding("cores", said)


def has_gpu() -> bool:
    """Whether the system has an NVIDIA GPU, as seen without torch."""
    return shutil.which("nvidia-smi") is not None and Path("/dev/nvidia0").exists()


def check_gpu(found: dict[str, Any] | None) -> Finding:
    """Whether torch can use the GPUs of this machine, and in which precisions."""
    if found is None:
        if not has_gpu():
            return Finding("GPU", "none was looked for, since torch cannot be used")
        return Finding("GPU", "unknown", "there is a GPU, but torch cannot be used: see above.")
    if not found["gpus"]:
        if not has_gpu():
            return Finding("GPU", "none; everything runs on the CPU")
        why = "is built for the CPU only" if not found["cuda"] else f"says: {found['problem']}"
        return Finding(
            "GPU", "not usable",
            f"there is a GPU, but torch {found['version']} {why}: install a build of torch for "
            "its driver (`nvidia-smi` shows the newest CUDA that this supports).",
        )  # fmt: skip
    said, fixes = [], []
    for gpu in found["gpus"]:
        said.append(f"{gpu['name']}, {gpu['memory']:.0f} GB: {', '.join(gpu['precisions'])}")
        if gpu["problem"]:
            fixes.append(f"{gpu['name']} does not compute ({gpu['problem']}): update its driver, "
                         "or hide it with CUDA_VISIBLE_DEVICES")  # fmt: skip
    return Finding("GPU", "; ".join(said), f"{'; '.join(fixes)}." if fixes else "")


def check_fairseq(found: list[Any], ran: Ran | None) -> Finding:
    """Whether the right distribution of fairseq is installed, alone, and is the one imported.

    Args:
        found: what the probe "plugin" printed.
        ran: how it ended; None if it was not started, because torch does not work.
    """
    pinned, other, wanted = installed(_PINNED), installed(_OTHER), required(_PINNED)
    again = f"{INSTALL} again"
    if other is not None and pinned is not None:
        return Finding(
            "fairseq", "two",
            f"both `{_OTHER}` {other} and `{_PINNED}` {pinned} are installed and overwrite each "
            f"other's files: `pip uninstall {_OTHER} {_PINNED}`, then {again}.",
        )  # fmt: skip
    if other is not None:
        return Finding(
            "fairseq", f"{_OTHER} {other}",
            f"`{_OTHER}` {other} is installed instead of `{_PINNED}`: `pip uninstall {_OTHER}`, "
            f"then {again}.",
        )  # fmt: skip
    if pinned is None:
        return Finding("fairseq", "none", f"`{_PINNED}` is not installed: {again}.")
    if wanted and numbers(pinned) != numbers(wanted):
        return Finding(
            "fairseq", f"{_PINNED} {pinned}",
            f"`{_PINNED}` {pinned} is installed, but {wanted} is needed: {again}.",
        )  # fmt: skip
    if ran is None:
        return Finding("fairseq", "not tried", "not tried, because torch does not work.")
    if not found:
        return Finding(
            "fairseq", f"{_PINNED} {pinned}",
            f"fairseq cannot be imported ({ran.problem}): `pip uninstall {_PINNED}`, then {again}.",
        )  # fmt: skip
    imported = Path(found[0]["file"]).resolve()
    own = Path(str(distribution(_PINNED).locate_file("fairseq/__init__.py"))).resolve()
    if imported != own:
        return Finding(
            "fairseq", f"{imported.parent}",
            f"`import fairseq` finds {imported.parent}, not the installed `{_PINNED}`: take that "
            "folder out of PYTHONPATH, or uninstall what put it there.",
        )  # fmt: skip
    return Finding("fairseq", f"{_PINNED} {pinned} (and no `{_OTHER}` beside it)")


def check_plugin(found: list[Any], ran: Ran | None) -> Finding:
    """Whether fairseq registers our models with `--user-dir`; arguments as `check_fairseq`."""
    if len(found) > 1:
        said = f"fairseq knows {found[1]['architectures']} architectures of {PACKAGE}"
        return Finding("plugin", said)
    if not found or ran is None:
        return Finding("plugin", "not tried", "not tried, because fairseq does not work.")
    return Finding(
        "plugin", "not registered",
        f"fairseq cannot import {PACKAGE} ({ran.problem}): {INSTALL} again.",
    )  # fmt: skip


def check_training(works: bool) -> Finding:
    """Whether a tiny model trains on random words, and generates.

    Args:
        works: whether fairseq knows the plugin; otherwise nothing is tried.
    """
    if not works:
        return Finding("training", "not tried", "not tried, because the plugin does not work.")
    with tempfile.TemporaryDirectory(prefix="sut-doctor-") as folder:
        # So tiny a model gains nothing from more threads, and loses much if the cores are busy.
        found, ran = probe("training", folder, seconds=TRAINING, OMP_NUM_THREADS="1")
    if ran.problem or not found:
        return Finding(
            "training", "failed",
            f"a tiny model does not train and generate ({ran.problem or 'it said nothing'}): see "
            "docs/troubleshooting.md, or report it with the lines above.",
        )  # fmt: skip
    result = found[-1]
    return Finding(
        "training",
        f"{result['updates']} updates and {result['sentences']} generated sentences in "
        f"{result['seconds']:.1f} s on the {result['device']}",
    )
