"""Exact match of fairseq-generate's output, and that no sentence is left out in silence."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import indexed_dataset

from sut_data.text.splitting import split_symbols
from sut_fairseq.cli._generated import complete_pairs, count_sentences, read_pairs
from sut_fairseq.cli.exact_match import main

# Three sentences out of order, two hypotheses each; only sentence 1 is right.
GENERATED = """\
2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading model(s)
S-2\tjump twice
T-2\tI_JUMP I_JUMP
H-2\t-0.25\tI_JUMP
D-2\t-0.25\tI_JUMP
P-2\t-0.1 -0.4
H-2\t-0.50\tI_JUMP I_JUMP
D-2\t-0.50\tI_JUMP I_JUMP
P-2\t-0.1 -0.4
S-1\twalk
T-1\tI_WALK
H-1\t-0.01\tI_WALK
D-1\t-0.01\tI_WALK
H-1\t-3.00\tI_RUN
D-1\t-3.00\tI_RUN
S-0\trun
T-0\tI_RUN
H-0\t-0.50\t
D-0\t-0.50\t
E-0_1\tI_RUN
Generate test with beam=5: BLEU4 = 12.34
"""


def test_only_the_best_hypothesis_counts() -> None:
    assert read_pairs(GENERATED.splitlines()) == {
        2: ("I_JUMP I_JUMP", "I_JUMP"),
        1: ("I_WALK", "I_WALK"),
        0: ("I_RUN", ""),
    }


def test_the_detokenised_hypothesis_is_compared() -> None:
    lines = ["T-0\tHe's here.", "H-0\t-0.1\tHe &apos;s here .", "D-0\t-0.1\tHe's here."]
    assert complete_pairs(lines, expected=1) == [("He's here.", "He's here.")]
    assert complete_pairs(["T-0\ta b", "H-0\t-0.1\ta b"], expected=1) == [("a b", "a b")]


def test_an_empty_reference_can_be_matched() -> None:
    assert complete_pairs(["T-0\t", "H-0\t-0.1\t", "D-0\t-0.1\t"], expected=1) == [("", "")]


def test_missing_sentences_are_an_error() -> None:
    lines = [line for n in (0, 2, 9) for line in (f"T-{n}\ta", f"H-{n}\t-1\ta")]
    with pytest.raises(ValueError) as error:
        complete_pairs(lines, expected=10)
    message = str(error.value)
    assert "7 of 10 sentences are missing" in message
    assert "(number 1, 3, 4, 5, 6, ...)" in message
    assert "--required-batch-size-multiple 1" in message
    assert message.endswith("; if another set was translated, name it with --gen-subset.")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["T-0\ta", "H-0\t-1\ta", "T-0\ta", "H-0\t-1\ta"], "Sentence 0 occurs twice"),
        (["T-0\ta", "H-0\t-1\ta", "T-1\ta"], "Sentence 1 has a reference .* but no hypothesis"),
        (["T-0\ta", "T-1\ta"], r"2 sentences \(number 0, 1\) have a reference"),
        (["S-0\ta", "H-0\t-1\ta"], "Sentence 0 has a hypothesis .* but no reference"),
        (["T-3\ta", "H-3\t-1\ta"], "has only 2 .*; name with --data and --gen-subset what"),
        (
            [line for n in (0, 1, 2) for line in (f"T-{n}\ta", f"H-{n}\t-1\ta")],
            "has a sentence 2, but the data set has only 2 ",
        ),
        ([], "no T- and H- lines"),
        (["nothing of that kind"], "no T- and H- lines"),
    ],
)
def test_what_cannot_be_scored(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        complete_pairs(lines, expected=2)


@pytest.fixture(scope="module", params=["mmap", "lazy"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised test set of three sentences, as fairseq-preprocess writes it."""
    folder = tmp_path_factory.mktemp("data-bin")
    for language in ("src", "tgt"):
        prefix = str(folder / f"test.src-tgt.{language}")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", request.param, vocab_size=20)
        for length in (2, 1, 3):
            builder.add_item(torch.full((length,), 4, dtype=torch.int32))
        builder.finalize(f"{prefix}.idx")
    return folder


def test_the_index_tells_the_number(data: Path) -> None:
    assert count_sentences(data) == 3
    assert count_sentences(data, "test", "src", "tgt") == 3
    assert count_sentences(data, "test", "tgt", "src") == 3  # translated the other way


def test_a_subset_that_is_not_there(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no subset `dev` for src-tgt; its subsets are: test"):
        count_sentences(data, "dev")
    with pytest.raises(ValueError, match="There is no data folder"):
        count_sentences(data / "nowhere")
    with pytest.raises(ValueError, match="its subsets are: none"):
        count_sentences(tmp_path)


def test_a_shortened_index(data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    index = folder / "test.src-tgt.tgt.idx"
    index.write_bytes(index.read_bytes()[:30])
    with pytest.raises(ValueError, match="cannot be read; run fairseq-preprocess again"):
        count_sentences(folder)


def test_a_damaged_index(tmp_path: Path) -> None:
    for ending in ("idx", "bin"):
        (tmp_path / f"test.src-tgt.tgt.{ending}").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read; run fairseq-preprocess again"):
        count_sentences(tmp_path)


def test_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = tmp_path / "generated.txt"
    generated.write_text(GENERATED, encoding="utf-8")
    assert main([str(generated), "--data", str(data)]) == 0
    assert capsys.readouterr().out == "exact match 33.33 % (1 of 3 sentences)\n"
    assert main([str(generated), "--expected", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "exact_match": pytest.approx(100 / 3),
        "correct": 1,
        "scored": 3,
        "expected": 3,
    }


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        (["I_RUN", "I_WALK", "I_JUMP I_JUMP"], True),
        (["I_RUN", "I_WALK", "I_LOOK"], True),  # a dictionary may have changed a word
        (list(map(split_symbols, ["I_RUN", "I_WALK", "I_JUMP I_JUMP"])), True),  # --remove-bpe
        (["I_WALK", "I_RUN", "I_LOOK"], False),
    ],
)
def test_output_of_another_set_is_refused(
    lines: list[str],
    same: bool,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generated, folder = tmp_path / "generated.txt", tmp_path / "data"
    generated.write_text(GENERATED, encoding="utf-8")
    shutil.copytree(data, folder)
    (folder / "text").mkdir()
    (folder / "text" / "test.tgt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    side = {"language": None, "subwords": "symbols", "model": None}
    document = json.dumps({"src": side, "tgt": side})
    (folder / "tokenization.json").write_text(document, encoding="utf-8")
    assert main([str(generated), "--data", str(folder)]) == (0 if same else 2)
    error = capsys.readouterr().err
    assert ("are not those of `test` in" in error) == (not same), error


def test_output_that_was_detokenised(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By --tokenizer moses: the folder has the tokens of the same sentences."""
    generated, folder = tmp_path / "generated.txt", tmp_path / "data"
    readable, tokens = ["He's here.", "Is he?", "No!"], ["He &apos;s here .", "Is he ?", "No !"]
    lines = [f"T-{n}\t{one}\nH-{n}\t-1\t{one}\n" for n, one in enumerate(readable)]
    generated.write_text("".join(lines), encoding="utf-8")
    shutil.copytree(data, folder)
    (folder / "text").mkdir()
    (folder / "text" / "test.tgt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    side = {"language": "en", "subwords": "words", "model": None}
    document = json.dumps({"src": side, "tgt": side})
    (folder / "tokenization.json").write_text(document, encoding="utf-8")
    assert main([str(generated), "--data", str(folder)]) == 0
    assert capsys.readouterr().out == "exact match 100.00 % (3 of 3 sentences)\n"


def test_text_that_is_not_detokenised_needs_no_sacremoses(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    generated, folder = tmp_path / "generated.txt", tmp_path / "data"
    generated.write_text(GENERATED, encoding="utf-8")
    shutil.copytree(data, folder)
    (folder / "text").mkdir()
    (folder / "text" / "test.tgt").write_text("I_RUN\nI_WALK\nI_JUMP I_JUMP\n", encoding="utf-8")
    side = {"language": "en", "subwords": "words", "model": None}
    document = json.dumps({"src": side, "tgt": side})
    (folder / "tokenization.json").write_text(document, encoding="utf-8")
    assert main([str(generated), "--data", str(folder)]) == 0


def test_the_command_fails_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = tmp_path / "generated.txt"
    generated.write_text(GENERATED, encoding="utf-8")
    assert main([str(generated), "--expected", "4"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sut-exact-match: error: 1 of 4 sentences are missing")
    assert main([str(generated), "--expected", "3", "--gen-subset", "valid"]) == 2
    assert "--expected is given: leave --gen-subset out." in capsys.readouterr().err
    generated.write_bytes(b"T-0\t\xff\n")
    assert main([str(generated), "--expected", "4"]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing"), "--expected", "4"]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--expected", "0"], ["--expected", "many"]])
def test_the_number_of_sentences_must_be_given(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["generated.txt", *arguments])
    assert exit_code.value.code == 2
    assert "--expected" in capsys.readouterr().err
