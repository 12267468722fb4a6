"""Checks of the machine, which need nothing but Python."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sut_data.doctor.finding import Finding, numbers

OLDEST_PYTHON = (3, 11)
OLDEST_GLIBC = (2, 28)  # of torch's wheels
# For three checkpoints of `sut_base`, 0.8 GB each: the best, the last, and one being written.
ROOM, ROOM_FOR_TEMPORARY_FILES = 2.5, 0.1  # GB
_COMPILERS = ("c++", "g++", "clang++")


def check_python() -> Finding:
    """Version of Python."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("Python", found, f"Python {found} is too old: use {oldest} or newer.")
    return Finding("Python", found)


def check_compiler(needed: bool) -> Finding:
    """Whether there is a C++ compiler that finds its headers and Python's.

    Args:
        needed: whether something remains to be compiled.
    """
    name = "C++ compiler"
    # $CXX may begin with a wrapper: `ccache g++`.
    found = os.environ.get("CXX", "").split() or [*filter(shutil.which, _COMPILERS)][:1]
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    problem = ""
    if not found:
        problem = "there is no C++ compiler (c++, g++ or clang++)"
        remedy = "install g++ (Debian and Ubuntu: `apt-get install build-essential`)"
    elif not _compiles(found):
        problem = f"`{shlex.join(found)}` does not compile a program of one line"
        remedy = "install g++ (Debian and Ubuntu: `apt-get install build-essential`)"
    elif not headers.is_file():
        problem = f"there is no {headers}"
        remedy = "install Python's headers (Debian and Ubuntu: `apt-get install python3-dev`)"
    if not problem:
        return Finding(name, f"{shlex.join(found)} ({_version(found)})")
    if needed:
        return Finding(name, problem, f"{problem}, and fairseq has to be compiled: {remedy}.")
    return Finding(name, f"{problem}; only installing fairseq again and torch.compile need it")


def _compiles(compiler: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            [*compiler, "-x", "c++", "-fsyntax-only", "-"],
            input="#include <vector>\nint main() { return 0; }\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _version(compiler: Sequence[str]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=60)
    return (done.stdout.splitlines() or ["version unknown"])[0]


def check_c_library() -> Finding:
    """Version of glibc."""
    name = "C library"
    if platform.system() != "Linux":
        return Finding(name, f"{platform.system()} has no glibc, and needs none")
    kind, version = platform.libc_ver()
    oldest = ".".join(map(str, OLDEST_GLIBC))
    if kind != "glibc":
        return Finding(
            name, "no glibc",
            f"this system has no glibc, for which torch's packages are built: use one that has "
            f"{oldest} or newer (Debian, Ubuntu, Fedora, ...).",
        )  # fmt: skip
    if numbers(version) < OLDEST_GLIBC:
        return Finding(
            name, f"glibc {version}",
            f"glibc {version} is too old for torch's packages: use a system or a container with "
            f"{oldest} or newer.",
        )  # fmt: skip
    return Finding(name, f"glibc {version}")


def check_disk() -> Finding:
    """Free space where checkpoints and temporary files are written."""
    found, fixes = [], []
    here, temporary = Path.cwd(), Path(tempfile.gettempdir())
    for folder, room in ((here, ROOM), (temporary, ROOM_FOR_TEMPORARY_FILES)):
        free = shutil.disk_usage(folder).free / 1e9
        found.append(f"{free:,.1f} GB free in {folder}")
        if free < room:
            fixes.append(f"{folder} has {free:,.1f} GB free: make room for {room:g} GB")
    if os.stat(here).st_dev == os.stat(temporary).st_dev:
        found = found[:1]
    if not os.access(here, os.W_OK):
        fixes.append(f"{here} cannot be written to: go to another folder before you train")
    return Finding("disk", ", ".join(found), f"{'; '.join(fixes)}." if fixes else "")
