"""The scores of `sut-bleu` by hand and by sacreBLEU itself, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import sacrebleu
import torch
from fairseq.data import indexed_dataset

from sut_data.text.tokenization import TextSide, save_tokenization
from sut_fairseq.cli.bleu import main, score_file, split_compounds, tokenized_bleu
from sut_fairseq.errors import InputError

RAW = [
    "Ein Mann sagt: \u201eDas ist ein gelb-gr\u00fcnes Auto!\u201c",
    "Zwei Hunde rennen \u00fcber die Wiese.",
    "Es ist 3,5 m lang & kostet 20 %.",
]
RAW_HYPOTHESES = [
    "Ein Mann sagt: \u201eDas ist ein gelb-gr\u00fcnes Haus!\u201c",
    "Zwei Hunde rennen schnell \u00fcber die Wiese.",
    "Es ist 3,5 m lang & kostet 30 %.",
]


def test_bleu_by_hand() -> None:
    # n-grams of "a b c d e" in "a b c d f": 4 of 5, 3 of 4, 2 of 3, 1 of 2; equal lengths.
    assert tokenized_bleu(["a b c d f"], ["a b c d e"]) == pytest.approx(
        100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    )
    # All n-grams match, but the hypothesis is two words short of six: exp(1 - 6/4).
    assert tokenized_bleu(["a b c d"], ["a b c d e f"]) == pytest.approx(100 * math.exp(-0.5))
    # Counts are summed over the sentences, not scores averaged; a word counts as often as it may.
    assert tokenized_bleu(["a b c d e", "x x x x"], ["a b c d e", "x y z u"]) == pytest.approx(
        100 * (6 / 9 * 4 / 7 * 3 / 5 * 2 / 3) ** 0.25
    )
    # Case and punctuation are those of the tokens, and nothing is smoothed.
    assert tokenized_bleu(["A b c d e"], ["a b c d e"]) < 100
    assert tokenized_bleu(["a b c x"], ["a b c d"]) == 0


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("ein gelb-gr\u00fcnes Auto", "ein gelb ##AT##-##AT## gr\u00fcnes Auto"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("Vor- und Nachteile - so", "Vor- und Nachteile - so"),
        ("-a b-", "-a b-"),
        ("a\u3000-b", "a\u3000 ##AT##-##AT## b"),  # no space of ASCII: a part of the word
    ],
)
def test_compounds(line: str, split: str) -> None:
    assert split_compounds(line) == split


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A prepared folder with a test set of three sentences, without its source side."""
    folder = tmp_path / "data-bin"
    (folder / "text").mkdir(parents=True)
    (folder / "codes").write_text("#version: 0.2\nW i\nWi e\nu n\n", encoding="utf-8")
    bpe = TextSide("de", "bpe", folder / "codes")
    save_tokenization(folder, {"src": bpe, "tgt": bpe})
    for name, lines in (("test.tgt", map(bpe.encode, RAW)), ("test.raw.tgt", RAW)):
        (folder / "text" / name).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    prefix = str(folder / "test.src-tgt.tgt")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=20)
    for _ in RAW:
        builder.add_item(torch.full((3,), 4, dtype=torch.int32))
    builder.finalize(f"{prefix}.idx")
    return folder


def side_of(data: Path) -> TextSide:
    return TextSide("de", "bpe", data / "codes")


def generated(data: Path, references: list[str], hypotheses: list[str]) -> Path:
    """What fairseq-generate would have written, out of order."""
    lines = [
        f"T-{n}\t{references[n]}\nH-{n}\t-0.5\t{hypotheses[n]}\nD-{n}\t-0.5\t{hypotheses[n]}\n"
        for n in (2, 0, 1)
        if n < len(references)
    ]
    path = data / "generated.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def encoded(data: Path) -> tuple[list[str], list[str]]:
    side = side_of(data)
    return [side.encode(x) for x in RAW], [side.encode(x) for x in RAW_HYPOTHESES]


def test_the_scores_are_those_of_sacrebleu(data: Path) -> None:
    side = side_of(data)
    references, hypotheses = encoded(data)
    assert any("@@" in line for line in hypotheses)
    scores = score_file(generated(data, references, hypotheses), data)
    tokens = [[side.tokenize(x) for x in lines] for lines in (RAW_HYPOTHESES, RAW)]
    plain = sacrebleu.metrics.BLEU(tokenize="none", force=True)
    assert scores.tokenized_bleu == pytest.approx(plain.corpus_score(tokens[0], [tokens[1]]).score)
    split = [[line.replace("b-g", "b ##AT##-##AT## g") for line in lines] for lines in tokens]
    assert split != tokens
    assert scores.tokenized_bleu_compound_split == pytest.approx(
        plain.corpus_score(split[0], [split[1]]).score
    )
    assert scores.tokenized_bleu_compound_split > scores.tokenized_bleu
    # Moses' quotation marks do not come back, so these are not exactly RAW_HYPOTHESES.
    readable = [side.decode(line) for line in hypotheses]
    assert scores.sacrebleu == pytest.approx(sacrebleu.corpus_bleu(readable, [RAW]).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(readable, [RAW]).score)
    assert "tok:13a" in scores.sacrebleu_signature and "case:mixed" in scores.sacrebleu_signature
    assert "nc:6" in scores.chrf_signature
    assert (scores.sentences, scores.tokens, scores.references) == (3, "Moses (de)", "raw")


def test_perfect_translations(data: Path) -> None:
    references, _ = encoded(data)
    scores = score_file(generated(data, references, references), data)
    assert scores.tokenized_bleu == scores.tokenized_bleu_compound_split == pytest.approx(100)


def test_subwords_may_be_joined_already(data: Path) -> None:
    side = side_of(data)
    pair = encoded(data)
    before = score_file(generated(data, *pair), data)
    joined = [[side.join(line) for line in lines] for lines in pair]
    assert score_file(generated(data, *joined), data) == before


def test_unknown_words_of_the_reference(data: Path) -> None:
    """fairseq writes them `<<unk>>`; what is compared is the text itself."""
    references, hypotheses = encoded(data)
    before = score_file(generated(data, references, hypotheses), data)
    unknown = [references[0].replace("M@@", "<<unk>>"), *references[1:]]
    assert unknown != references
    assert score_file(generated(data, unknown, hypotheses), data) == before
    # Joined with the rest of its word, too, from which it cannot be told apart.
    side = side_of(data)
    joined = [[side.join(line) for line in lines] for lines in (unknown, hypotheses)]
    assert "<<unk>>" in joined[0][0]
    assert score_file(generated(data, *joined), data) == before


@pytest.mark.parametrize("came_tokenized", [False, True])
def test_without_raw_references(data: Path, came_tokenized: bool) -> None:
    references, hypotheses = encoded(data)
    if came_tokenized:
        stamp = {"made_from": {"tokenized": True}, "counts": {}, "files": {}}
        (data / "prepared.json").write_text(json.dumps(stamp))
    else:
        (data / "text" / "test.raw.tgt").unlink()
    scores = score_file(generated(data, references, hypotheses), data)
    side = side_of(data)
    lines = [[side.decode(line) for line in lines] for lines in (hypotheses, references)]
    assert scores.references == "detokenized"
    assert scores.sacrebleu == pytest.approx(sacrebleu.corpus_bleu(lines[0], [lines[1]]).score)


def test_a_damaged_stamp(data: Path) -> None:
    """It says whether raw text is to be expected, so it is not guessed."""
    (data / "prepared.json").write_text('{"made_from": 1}')
    with pytest.raises(InputError, match="prepared.json is damaged .*: make the folder again"):
        score_file(generated(data, *encoded(data)), data)


def test_the_command(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(generated(data, *encoded(data)))
    assert main([path, "--data", str(data), "--subset", "test", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main([path, "--data", str(data)]) == 0
    printed = capsys.readouterr().out
    for name in ("tokenized_bleu", "tokenized_bleu_compound_split", "sacrebleu", "chrf"):
        (line,) = [line for line in printed.splitlines() if line.split()[0] == name]
        assert float(line.split()[1]) == pytest.approx(document[name], abs=0.005)
    assert document["sacrebleu_signature"] in printed and document["chrf_signature"] in printed
    assert "3 sentences; sacrebleu and chrf against the raw references" in printed


def refusal(data: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([str(path), "--data", str(data)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("sut-bleu: error: ")
    return captured.err


def test_a_missing_sentence(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references, hypotheses = encoded(data)
    path = generated(data, references[:2], hypotheses[:2])
    assert "1 of 3 sentences are missing" in refusal(data, path, capsys)


def test_other_references(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references, hypotheses = encoded(data)
    path = generated(data, [references[1], references[0], references[2]], hypotheses)
    assert "The reference of sentence 0" in refusal(data, path, capsys)
    path = generated(data, RAW, RAW_HYPOTHESES)
    assert "generate without --tokenizer and --bpe" in refusal(data, path, capsys)


def test_a_carriage_return_ends_no_line(data: Path) -> None:
    """Within a raw reference, as sut-prepare keeps it; one at its end belongs to the line end."""
    text = data / "text" / "test.raw.tgt"
    text.write_bytes("\n".join([f"{RAW[0]}\r", RAW[1].replace(" ", "\r", 1), RAW[2]]).encode())
    scores = score_file(generated(data, *encoded(data)), data)
    assert (scores.sentences, scores.references) == (3, "raw")


def test_a_folder_that_is_not_whole(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = generated(data, *encoded(data))
    text = data / "text" / "test.raw.tgt"
    text.write_text("one line\n", encoding="utf-8")
    assert "has 1 lines, but the data set has 3 sentences" in refusal(data, path, capsys)
    text.write_bytes(b"one\ntwo\nb\xfcnf\n")
    assert f"`{text}` is not UTF-8 (" in refusal(data, path, capsys)
    text.unlink()
    (data / "codes").unlink()
    assert "names codes, which is not there" in refusal(data, path, capsys)
    (data / "text" / "test.tgt").unlink()
    assert "the text that was binarised" in refusal(data, path, capsys)
    assert "No such file" in refusal(data, data / "nothing", capsys)
