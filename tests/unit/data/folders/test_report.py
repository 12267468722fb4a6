"""What is said about a prepared folder: references out of reach, and too few subwords."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sut_data.folders.report import report
from sut_data.text.pairs import Inputs
from sut_data.text.pipeline import prepare_text
from sut_data.text.subwords import learn_bpe, learn_sentencepiece
from sut_data.text.treatment import Counts, Treatment

TARGETS = {
    "train": ["answer(city(all))", "answer(state(loc_2(usa)))"],
    "valid": ["answer(city(loc_2(usa)))", "answer(state(all))"],
    "test": ["answer(city(all))", "answer(river(all))"],
}


def counts_of(folder: Path, treatment: Treatment) -> dict[str, Counts]:
    pairs = {}
    for split, lines in TARGETS.items():
        for side in ("src", "tgt"):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
        pairs[split] = (folder / f"{split}.src", folder / f"{split}.tgt")
    out = folder / treatment.subwords
    out.mkdir()
    return prepare_text(Inputs(pairs, {}), treatment, out)


def test_references_out_of_reach_are_counted_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").touch()
    words = counts_of(tmp_path, Treatment())
    assert [row.unreachable for row in words.values()] == [0, 2, 1]
    report(tmp_path, words, "Split them.")
    shown = capsys.readouterr().out
    assert "warning: 2 of 2 references of valid have a word that the training text lacks" in shown
    assert "warning: 1 of 2 references of test" in shown
    assert shown.endswith("Split them.\n")

    symbols = counts_of(tmp_path, Treatment(subwords="symbols"))
    assert [row.unreachable for row in symbols.values()] == [0, 0, 1]  # no river in training
    report(tmp_path, {"valid": symbols["valid"]}, "Split them.")
    assert "warning" not in capsys.readouterr().out


def test_pairs_of_training_in_evaluation_sets_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").touch()
    report(tmp_path, counts_of(tmp_path, Treatment()))
    shown = capsys.readouterr().out
    assert "1 of 2 pairs of test are in the training text too\n" in shown
    assert "of valid are in" not in shown


def test_a_part_of_train_is_no_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").touch()
    report(tmp_path, {"short": Counts(3, 4, 1, 0, 0, trained=3)}, of_train=["short"])
    shown = capsys.readouterr().out
    assert "short is a part of train, to begin a training with" in shown
    assert "in the training text too" not in shown


def test_too_few_subwords_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn_bpe(Counter({"low": 3, "lower": 2}), 300, tmp_path / "codes")
    merges = len((tmp_path / "codes").read_text().splitlines()) - 1
    said = f"--bpe 300: the text has only {merges} merges to learn, so that its words stay whole"
    assert capsys.readouterr().out.startswith(said)
    learn_sentencepiece(["the lower the better"] * 20, 800, tmp_path / "model", 1)
    first = capsys.readouterr().out
    assert first.startswith("--sentencepiece 800: the text has only enough for ")
    learn_sentencepiece(["the lower the better"] * 20, 13, tmp_path / "model", 1)
    assert capsys.readouterr().out == ""
