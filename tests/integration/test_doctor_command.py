"""`sut-doctor` on this machine, and where torch is broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import fairseq
import pytest
import torch

from sut_data.doctor import installed
from tests.integration.commands import run, start

NAMES = [
    *("sut_fairseq", "Python", "torch", "fairseq", "plugin", "C++ compiler", "cores", "GPU"),
    *("C library", "disk", "training"),
]


def children(pid: int) -> str:
    """The command lines of the processes that a process has started."""
    try:
        numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return " ".join(Path(f"/proc/{number}/cmdline").read_text() for number in numbers)
    except OSError:  # one of them has just ended
        return ""


def probed(name: str, *arguments: object) -> list[dict[str, Any]]:
    """What a program of `sut-doctor` prints, run where torch and fairseq are imported already."""
    folder = installed.package_folder()
    assert folder is not None
    path = folder / "cli" / "_probes" / f"{name}.py"
    code = f"import runpy, sys; sys.argv = {[str(path), *map(str, arguments)]!r}"
    code += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    return [json.loads(line) for line in run("python", "-c", code).stdout.splitlines()]


def test_the_programs_find_what_is_there(tmp_path: Path) -> None:
    (about,) = probed("accelerator")
    assert about["version"] == torch.__version__ and about["threads"] >= 1
    assert [gpu["problem"] for gpu in about["gpus"]] == [""] * torch.cuda.device_count()
    first, second = probed("plugin")
    assert first == {"file": fairseq.__file__} and second["architectures"] > 20
    (trained,) = probed("training", tmp_path)
    assert (trained["updates"], trained["sentences"]) == (20, 8)


@pytest.mark.slow
def test_all_is_well_where_the_tests_run(tmp_path: Path) -> None:
    """As a user runs it: torch is imported three times."""
    finished = run("sut-doctor", "--json", cwd=tmp_path)
    document = json.loads(finished.stdout)
    assert [one["name"] for one in document["checks"]] == NAMES
    assert document["ok"] and not [one for one in document["checks"] if one["fix"]]
    assert document["checks"][-1]["found"].startswith("20 updates and 8 generated sentences in ")
    assert finished.stderr == "" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')",
         "(ImportError: libcudart.so.12: cannot open shared object file)"),
        ("import os; os.kill(os.getpid(), 4)", "(it was killed by signal 4)"),
    ],
)  # fmt: skip
def test_a_broken_torch_is_a_line(code: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(code)
    finished = run("sut-doctor", environment={"PYTHONPATH": str(tmp_path)}, ok=False)
    lines = finished.stdout.splitlines()
    assert finished.status == 1 and "Traceback" not in finished.stdout + finished.stderr
    assert [line[4:18].strip() for line in lines[:-1]] == NAMES
    wrong = {line[4:18].strip(): line[18:] for line in lines[:-1] if line.startswith("fix ")}
    assert wrong.keys() - {"disk", "GPU"} == {"torch", "fairseq", "plugin", "training"}
    assert f"cannot be used {said}: install it again" in wrong["torch"]
    assert wrong["fairseq"] == "not tried, because torch does not work."
    assert wrong["training"] == "not tried, because the plugin does not work."
    assert lines[-1].startswith(f"{len(wrong)} of 11 need something: torch, fairseq, plugin")


def test_it_needs_neither_torch_nor_fairseq() -> None:
    code = (
        "import sys\n"
        "from sut_data.doctor.main import make_parser\n"
        "make_parser().format_help()\n"
        "print(*{'torch', 'fairseq', 'numpy', 'sut_fairseq'} & {*sys.modules})"
    )
    done = subprocess.run(["python", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_ctrl_c_while_a_check_runs(tmp_path: Path) -> None:
    """The program that it waits for ends as well."""
    with start("sut-doctor", cwd=tmp_path, own_group=True) as running:
        assert running.wait_for(lambda: "accelerator.py" in children(running.pid))
        os.kill(running.pid, signal.SIGINT)
        finished = running.finished(ok=False)
    assert (finished.status, finished.stderr) == (130, "sut-doctor: interrupted.\n")
