"""What the commands share: errors in one sentence, and loading only what is safe."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from sut_fairseq.analysis.sentences import Sentence, Word
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli import average, evaluate, experiment, importing, report
from sut_fairseq.cli._command import check_apart, each_of, print_json, run_command
from sut_fairseq.cli._glyphs import missing_glyphs_named
from sut_fairseq.cli.user_dir import main as user_dir
from sut_fairseq.errors import InputError

RAN: list[str] = []


def _payload(mark: str) -> None:
    RAN.append(mark)


class Smuggled:
    """An object that runs a function of its choice when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _payload, ("ran",)


def _save(path: Path, **more: Any) -> Path:
    torch.save({"model": {"weight": torch.arange(4.0)}, **more}, path)
    return path


def test_a_body_that_finishes_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("sut-x", lambda: print("done")) == 0
    assert capsys.readouterr().out == "done\n"


def test_an_input_error_becomes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        raise InputError("`top_k` is 6,\n   but at most 4.")

    assert run_command("sut-x", body) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "sut-x: error: `top_k` is 6, but at most 4.\n"


def test_files_that_must_differ(tmp_path: Path) -> None:
    """Whatever a command writes replaces what is there: not what it reads, nor what it wrote."""
    file, link = tmp_path / "a", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    check_apart({"--out": file, "--csv": tmp_path / "b", "--log": None, "--plot": None})
    check_apart({"--out": "/dev/null", "--csv": Path("/dev/null")})
    for one, other in ((file, link), (tmp_path / "new", f"{tmp_path}/./new")):
        with pytest.raises(InputError, match="^--out and --csv both name .*: give them different"):
            check_apart({"--out": one, "--csv": other})


@pytest.mark.parametrize(
    ("main", "line", "options"),
    [
        (average.main, "--from . --best 1 --log a --output a", "--log and --output"),
        (evaluate.main, "--path a --csv a", "--path and --csv"),
        (evaluate.main, "--path a --csv b.png --plot b.png", "--csv and --plot"),
        (evaluate.main, "--path . --csv checkpoint_best.pt", "--path and --csv"),
        (experiment.main, "report . --out b --csv ./b", "--out and --csv"),
        (importing.main, "c --check a --out a", "--check and --out"),
    ],
)
def test_nothing_that_is_read_is_replaced(
    main: Callable[[list[str]], int],
    line: str,
    options: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "checkpoint_best.pt"):
        _save(tmp_path / name)
    before = (tmp_path / "a").read_bytes()
    assert main(line.split()) == 2
    assert options in capsys.readouterr().err
    assert (tmp_path / "a").read_bytes() == before


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nothing.txt"
    assert run_command("sut-x", lambda: missing.open().close()) == 2
    assert capsys.readouterr().err == f"sut-x: error: `{missing}`: No such file or directory.\n"


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command("sut-x", lambda: print(1 / 0))


def test_messages_pass_no_control_characters_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of runs that are refused, of words that a model lacks, of glyphs that a font lacks."""
    clear = "\x1b[2J"

    def refuse(run: Path) -> None:
        raise InputError(f"{run}: {clear}")

    with pytest.raises(InputError, match="2 of 2 runs could not be kept"):
        each_of([tmp_path, tmp_path], refuse, "kept")
    words: Any = Dictionary()
    words.add_symbol(f"{clear}turn")
    sentence = Sentence("turn", [Word(f"turn{clear}", unknown=True)], {})
    report._tell_unknown(SimpleNamespace(source_dictionary=words), sentence)
    with missing_glyphs_named("sut-report"):
        warnings.warn(f"Glyph 27 ({clear}) missing from font(s) DejaVu Sans.", stacklevel=1)
    said = capsys.readouterr().err
    assert said.count(r"\x1b") == 5 and "\x1b" not in said


def test_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "é", "value": 0.5})
    assert json.loads(capsys.readouterr().out) == {"name": "é", "value": 0.5}


def test_what_json_cannot_say_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model that has diverged, say."""
    nan, infinite = float("nan"), float("inf")
    print_json({"loss": nan, "rows": [{"depth": 1.5, "sums": (-infinite, np.float64(nan), 2)}]})
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_constant=pytest.fail) == {
        "loss": None,
        "rows": [{"depth": 1.5, "sums": [None, None, 2]}],
    }


@pytest.mark.parametrize("lazy", [False, True])
def test_load_what_fairseq_writes(tmp_path: Path, lazy: bool) -> None:
    meters = {"val": np.float64(1.5)}
    path = _save(tmp_path / "a.pt", cfg={"model": Namespace(arch="x")}, extra_state=meters)
    state = load_checkpoint(path, lazy=lazy)
    assert state["cfg"]["model"].arch == "x"
    assert state["model"]["weight"].tolist() == [0, 1, 2, 3]
    assert state["extra_state"]["val"] == 1.5


def test_load_the_format_of_old_torch(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    model = {"weight": torch.ones(2)}
    torch.save({"model": model}, path, _use_new_zipfile_serialization=False)
    assert load_checkpoint(path, lazy=True)["model"]["weight"].tolist() == [1, 1]


@pytest.mark.parametrize("new_format", [True, False])
def test_a_smuggled_class_is_refused_by_name(tmp_path: Path, new_format: bool) -> None:
    path = tmp_path / "evil.pt"
    state = {"model": {}, "extra_state": Smuggled()}
    torch.save(state, path, _use_new_zipfile_serialization=new_format)
    with pytest.raises(ValueError, match=r"class `[\w.]*_payload`, which is refused"):
        load_checkpoint(path)
    assert RAN == []


@pytest.mark.parametrize("kept", [0, 0.1, 0.6, 0.95])
@pytest.mark.parametrize("new_format", [True, False])
def test_a_truncated_checkpoint(tmp_path: Path, kept: float, new_format: bool) -> None:
    path = tmp_path / "cut.pt"
    state = {"model": {"weight": torch.zeros(1000)}}
    torch.save(state, path, _use_new_zipfile_serialization=new_format)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    # The old format has no end that could be missed, so there it may look merely damaged.
    expected = "is truncated" if new_format or kept == 0 else "truncated|damaged"
    with pytest.raises(ValueError, match=expected):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [
        b"I am a letter, not a checkpoint.\n" * 10,
        bytes(range(256)) * 8,
        pickle.dumps([1, 2]),
        pickle.dumps({"weights": 3}),
    ],
    ids=["text", "bytes", "pickled list", "pickled dictionary"],
)
def test_a_file_that_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"letter\.pt` is not a fairseq checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("state", [{"weight": torch.ones(1)}, {"model": 3}, [1], {"model": [1]}])
def test_a_torch_file_without_a_model(tmp_path: Path, state: Any) -> None:
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="not a fairseq checkpoint.* key `model`"):
        load_checkpoint(tmp_path / "other.pt")


def test_a_path_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no checkpoint `.*nothing\.pt`"):
        load_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match="is a folder"):
        load_checkpoint(tmp_path)


def test_user_dir_is_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    import sut_fairseq

    assert user_dir([]) == 0
    printed = Path(capsys.readouterr().out.strip())
    assert printed.is_absolute()
    assert printed == Path(sut_fairseq.__file__).resolve().parent


def test_the_pins_lie_in_the_package(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    """`constraints.txt` at the top, which the scripts use, is nothing but a reference to them."""
    assert user_dir(["--constraints"]) == 0
    pins = Path(capsys.readouterr().out.strip())
    assert pins.is_absolute()
    lines = [line for line in pins.read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert any(line.startswith("torch==") for line in lines)
    top = (repository / "constraints.txt").read_text().splitlines()
    assert [line for line in top if line[0] != "#"] == ["-c sut_fairseq/constraints.txt"]
