"""What `sut-doctor` says of installations and machines that are not as they should be."""

from __future__ import annotations

import json
import os
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from sut_data.doctor import finding, installed, machine, main
from sut_data.doctor.finding import Finding, Ran, last_line, numbers, run

GOOD = {"version": "2.13.0", "cuda": None, "threads": 1, "gpus": [], "problem": ""}
GPU = {"name": "A100", "memory": 80.0, "precisions": ["float32", "bfloat16"], "problem": ""}
DONE = Ran([])


def pretend(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let these distributions be installed, and no others."""
    known = {name.replace("_", "-"): number for name, number in versions.items()}
    monkeypatch.setattr(installed, "installed", known.get)


@pytest.mark.parametrize(
    ("versions", "fix"),
    [
        (
            dict(fairseq="0.12.2", fairseq_fixed="0.12.3.1"),
            "both `fairseq` 0.12.2 and `fairseq-fixed` 0.12.3.1 are installed and overwrite each "
            "other's files: `pip uninstall fairseq fairseq-fixed`, then run `pip install .` in the "
            "repository again.",
        ),
        (
            dict(fairseq="0.12.2"),
            "`fairseq` 0.12.2 is installed instead of `fairseq-fixed`: `pip uninstall fairseq`, "
            "then run `pip install .` in the repository again.",
        ),
        ({}, "`fairseq-fixed` is not installed: run `pip install .` in the repository again."),
        (
            dict(fairseq_fixed="0.11"),
            "`fairseq-fixed` 0.11 is installed, but 0.12.3.1 is needed: run `pip install .` in the "
            "repository again.",
        ),
        (
            dict(fairseq_fixed="0.12.3.1"),
            "fairseq cannot be imported (ImportError: no libbleu): `pip uninstall fairseq-fixed`, "
            "then run `pip install .` in the repository again.",
        ),
    ],
)
def test_fairseq(versions: dict[str, str], fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, **versions)
    found = installed.check_fairseq([], Ran([], "ImportError: no libbleu"))
    assert found.fix == fix


def test_another_fairseq_in_the_way(tmp_path: Path) -> None:
    found = installed.check_fairseq([{"file": str(tmp_path / "fairseq" / "__init__.py")}], DONE)
    assert found.fix.startswith(f"`import fairseq` finds {tmp_path / 'fairseq'}, not the installed")


@pytest.mark.parametrize(
    ("versions", "document", "fix"),
    [
        ({}, None, "torch is not installed: run `pip install .` in the repository."),
        (dict(torch="2.5.1+cu121"), GOOD, "torch 2.5.1+cu121 is too old: 2.6 or newer is needed"),
        (dict(torch="2.13.0"), None, "torch 2.13.0 cannot be used (killed): install it again"),
        (dict(torch="2.13.0"), GOOD, ""),
    ],
)
def test_torch(
    versions: dict[str, str], document: Any, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, **versions)
    found = installed.check_torch(document, Ran([], "" if document else "killed"))
    assert found.fix.startswith(fix) and found.ok == (not fix)


def test_what_an_installation_must_have_stands_in_it() -> None:
    assert installed.required("fairseq-fixed") == "0.12.3.1"
    assert numbers(installed.required("torch")) >= (2, 6)
    assert installed.required("nothing") == ""


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "package_folder", lambda: None)
    found = installed.check_package()
    assert "is installed, but its folder is not there" in found.fix
    pretend(monkeypatch)
    assert "the package sut_fairseq is not installed: run" in installed.check_package().fix
    assert installed.probe("plugin") == ([], Ran([], "the package sut_fairseq is not installed"))


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(document: dict[str, Any] | None) -> str:
        found = installed.check_gpu(document)
        return found.fix or f"ok: {found.found}"

    built = {**GOOD, "cuda": "12.8", "problem": "the driver is too old"}
    broken = {**GPU, "problem": "no kernel image"}
    monkeypatch.setattr(installed, "has_gpu", lambda: False)
    assert said(GOOD) == "ok: none; everything runs on the CPU"
    assert said(None).startswith("ok: none was looked for")
    assert said({**built, "gpus": [GPU]}) == "ok: A100, 80 GB: float32, bfloat16"
    assert said({**built, "gpus": [broken]}).startswith("A100 does not compute (no kernel image):")
    monkeypatch.setattr(installed, "has_gpu", lambda: True)
    assert said(None) == "there is a GPU, but torch cannot be used: see above."
    assert "torch 2.13.0 is built for the CPU only: install a build" in said(GOOD)
    assert "torch 2.13.0 says: the driver is too old: install a build" in said(built)


def test_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert installed.check_threads({**GOOD, "threads": 2}).found == "2 cores, 2 threads"
    found = installed.check_threads({**GOOD, "threads": 16})
    assert found.fix.endswith("many times slower: `export OMP_NUM_THREADS=2`.")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "with 3 threads on 2 cores" in installed.check_threads(None).fix


def test_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = machine.check_compiler(needed=True)
    assert found.fix.startswith("there is no C++ compiler (c++, g++ or clang++), and fairseq has")
    assert machine.check_compiler(needed=False).ok
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert "`c++` does not compile a program of one line" in machine.check_compiler(True).fix
    broken.write_text("#!/bin/sh\necho 'c++ 99'\n")
    monkeypatch.setattr(machine.sysconfig, "get_paths", lambda: {"include": sys.prefix})
    assert "install Python's headers" in machine.check_compiler(needed=True).fix
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(machine.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert machine.check_compiler(needed=True) == Finding("C++ compiler", "c++ (c++ 99)")
    broken.rename(tmp_path / "wrapper")
    (tmp_path / "wrapper").write_text("#!/bin/sh\n[ \"$1\" = mine ] && echo 'mine 7'\n")
    monkeypatch.setenv("CXX", "wrapper mine")
    assert machine.check_compiler(True) == Finding("C++ compiler", "wrapper mine (mine 7)")


@pytest.mark.parametrize(
    ("system", "library", "fix"),
    [
        ("Darwin", ("", ""), ""),
        ("Linux", ("glibc", "2.36"), ""),
        ("Linux", ("glibc", "2.17"), "glibc 2.17 is too old for torch's packages: use a system"),
        ("Linux", ("", ""), "this system has no glibc, for which torch's packages are built"),
    ],
)
def test_c_libraries(
    system: str, library: tuple[str, str], fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.platform, "system", lambda: system)
    monkeypatch.setattr(machine.platform, "libc_ver", lambda: library)
    found = machine.check_c_library()
    assert found.fix.startswith(fix) and found.ok == (not fix)


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: usage(5e9))
    assert machine.check_disk().ok and "5.0 GB free in" in machine.check_disk().found
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: usage(1.5e9))
    assert machine.check_disk().fix == f"{Path.cwd()} has 1.5 GB free: make room for 2.5 GB."


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.check_python().ok
    monkeypatch.setattr(machine.sys, "version_info", (3, 10, 2))
    assert machine.check_python().fix.endswith("is too old: use 3.11 or newer.")


def test_programs_that_fail(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    for code, problem in (
        ("print(1)", ""),
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("import os; os.kill(os.getpid(), 4)", "it was killed by signal 4"),
        ("import sys; sys.exit(3)", "it said nothing"),
        ("import time; time.sleep(60)", "it did not end within 0.5 s"),
    ):
        program.write_text(code)
        assert run(program, seconds=0.5 if "sleep" in code else 60).problem == problem
    program.write_text("import os, sys; print(os.environ['A'], sys.argv[1])")
    assert run(program, ["b"], seconds=60, environment={"A": "a"}).lines == ["a b"]
    assert last_line("\n") == "it said nothing"


def test_what_comes_after_a_failure_is_not_tried() -> None:
    assert installed.check_fairseq([], None).fix == "not tried, because torch does not work."
    for ran in (None, DONE):
        assert installed.check_plugin([], ran).fix == "not tried, because fairseq does not work."
    assert "fairseq cannot import sut_fairseq (KeyError: 1)" in (
        installed.check_plugin([{}], Ran([], "KeyError: 1")).fix
    )
    assert installed.check_training(works=False).fix.startswith("not tried")


def test_a_training_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def probe(name: str, folder: str, **options: Any) -> tuple[list[Any], Ran]:
        folders.append(folder)
        return [], Ran([], "OSError: full")

    monkeypatch.setattr(installed, "probe", probe)
    assert "does not train and generate (OSError: full)" in installed.check_training(True).fix
    assert not os.path.exists(folders[0])


def test_lines_json_and_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [Finding("one", "is there"), Finding("another", "is not", "get one.")]
    monkeypatch.setattr(main, "check_all", lambda: iter(findings))
    assert main.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok  one           is there",
        "fix another       get one.",
        "1 of 2 need something: another",
    ]
    assert main.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "checks": [
            {"name": "one", "ok": True, "found": "is there", "fix": None},
            {"name": "another", "ok": False, "found": "is not", "fix": "get one."},
        ],
    }
    monkeypatch.setattr(main, "check_all", lambda: iter(findings[:1]))
    assert main.main([]) == 0
    assert capsys.readouterr().out.endswith("all is well\n")


def test_a_check_that_fails_itself_is_a_line() -> None:
    def check() -> Finding:
        raise FileNotFoundError(2, "No such file", "/proc/none")

    found = main.guarded("disk", check)
    assert found.fix.startswith("this could not be checked (FileNotFoundError: ")
    assert finding.Finding("disk", "").ok
