"""SCAN, prepared as a user prepares it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.forking import forking
from tests.integration.preparing import WRITE_INDICES, assert_refused, fake_fairseq, run


def test_scan_from_the_grammar(repository: Path, tmp_path: Path) -> None:
    words = ["bash", str(repository / "data-prep" / "scan.sh"), "--out", "data-bin/scan"]
    first = run(words, tmp_path, **forking())
    assert first.returncode == 0, first.stderr
    assert "SCAN simple (generated): 16,728 train, 4,182 test; the published" in first.stdout
    assert re.search("sut-experiment train scan (--size small )?--data ", first.stdout)
    out = tmp_path / "data-bin" / "scan"
    for split, pairs in (("train", 16228), ("valid", 500), ("test", 4182)):
        sentences = (out / "text" / f"{split}.src").read_text(encoding="utf-8").splitlines()
        assert len(sentences) == pairs
        assert re.search(rf"^{split} +{pairs} +9 +48 +0 src, 0 tgt$", first.stdout, re.MULTILINE)
        for side in ("src", "tgt"):
            assert (out / f"{split}.src-tgt.{side}.bin").stat().st_size > 0
    assert {"dict.src.txt", "dict.tgt.txt"} < {path.name for path in out.iterdir()}
    assert [path.name for path in out.parent.iterdir()] == ["scan"]

    before = (out / "train.src-tgt.src.bin").stat().st_mtime_ns
    second = run(words, tmp_path)
    assert second.returncode == 0, second.stderr
    assert "is up to date" in second.stdout
    assert (out / "train.src-tgt.src.bin").stat().st_mtime_ns == before
    assert second.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]


def test_scan_from_the_published_files(repository: Path, tmp_path: Path, shared_data: Path) -> None:
    script = str(repository / "data-prep" / "scan.sh")
    options = ["--split", "addprim_turn_left", "--raw", str(shared_data / "scan")]
    words = ["bash", script, *options, "--valid-size", "7", "--out", "out"]
    result = run(words, tmp_path, **fake_fairseq(tmp_path, WRITE_INDICES))
    assert result.returncode == 0, result.stderr
    assert "(published files): 21,890 train, 1,208 test; the published sizes" in result.stdout
    assert re.search(r"^valid +7 ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "the following arguments are required: --out"),
        (["--out"], "argument --out: expected one argument"),
        (["--out", "o", "--fast"], "unrecognized arguments: --fast"),
        (["--out", "o", "--split", "mcd4"], "invalid choice: 'mcd4'"),
        (["--out", "o", "--valid-size", "0"], "--valid-size must be between 1 and 16727"),
        (["--out", "o", "--valid-size", "many"], "invalid int value: 'many'"),
        (["--out", "o", "--raw", "absent"], "--raw absent is not a folder"),
        (["--out", "o", "--raw", "."], "--raw . has neither tasks_train_simple.txt nor"),
    ],
)
def test_scan_refuses(repository: Path, tmp_path: Path, options: list[str], sentence: str) -> None:
    result = run(["bash", str(repository / "data-prep" / "scan.sh"), *options], tmp_path)
    assert_refused(result, sentence)
    assert not list(tmp_path.iterdir())


def test_scan_refuses_incomplete_files(repository: Path, tmp_path: Path) -> None:
    for side in ("train", "test"):
        path = tmp_path / f"tasks_{side}_length.txt"
        path.write_text("IN: jump OUT: I_JUMP\n", encoding="utf-8")
    words = ["bash", str(repository / "data-prep" / "scan.sh"), "--split", "length"]
    result = run([*words, "--raw", ".", "--out", "out"], tmp_path)
    assert_refused(result, "was published with 16,990 train, 3,920 test: the files are")
    assert not (tmp_path / "out").exists()
