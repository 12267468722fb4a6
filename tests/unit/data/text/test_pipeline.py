"""Natural text from files to symbols: nothing lost unreported, the same on one core or many."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from subword_nmt import learn_bpe

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.text import pipeline as text_pipeline
from sut_data.text import subwords as subword_models
from sut_data.text.chunks import CHUNK, ordered_map
from sut_data.text.pairs import Inputs
from sut_data.text.pipeline import prepare_text
from sut_data.text.tokenization import TextSide, load_tokenization
from sut_data.text.treatment import Counts, Treatment

SENTENCES = [
    ("The cats aren't here.", "Die Katzen sind nicht hier."),
    ("Cats, cats & cats!", "Katzen, Katzen & Katzen!"),
    ('"Where is the hat?"', "\u201eWo ist der Hut?\u201c"),
    ("The hat is here, the cat is there.", "Der Hut ist hier, die Katze ist dort."),
]
Lines = list[tuple[str, str]]


def write(folder: Path, **splits: Lines) -> Inputs:
    """Files of the given pairs; train also has a column with the number of each line."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {}
    for split, lines in splits.items():
        pairs[split] = (folder / f"{split}.a", folder / f"{split}.b")
        for side, path in enumerate(pairs[split]):
            text = "".join(line[side] + "\n" for line in lines)
            path.write_text(text, encoding="utf-8", newline="\n")
    column = folder / "numbers"
    column.write_text("".join(f"{number}\n" for number in range(len(splits["train"]))))
    return Inputs(pairs, {("train", "number"): column})


def prepare(folder: Path, train: Lines, treatment: Treatment) -> dict[str, Counts]:
    out = folder / "out"
    out.mkdir(parents=True)
    inputs = write(folder / "in", train=train, valid=SENTENCES[:1], test=SENTENCES)
    return prepare_text(inputs, treatment, out)


def read(folder: Path, name: str) -> list[str]:
    return (folder / "out" / "text" / name).read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("kind", "size"), [("bpe", 30), ("sentencepiece", 60), ("words", 0)])
@pytest.mark.parametrize("languages", [("en", "de"), (None, None)])
def test_the_folder_says_how_it_was_made(
    tmp_path: Path, kind: str, size: int, joined: bool, languages: tuple[str | None, str | None]
) -> None:
    treatment = Treatment(joined, kind, size, languages)
    counts = prepare(tmp_path, SENTENCES * 5, treatment)
    sides = load_tokenization(tmp_path / "out")
    assert [side.subwords for side in sides.values()] == [kind, kind]
    assert [side.language for side in sides.values()] == list(languages)
    assert (sides["src"].model == sides["tgt"].model) == (joined or kind == "words")
    for column, name in enumerate(("src", "tgt")):
        given_text = [" ".join(pair[column].split()) for pair in SENTENCES]
        assert read(tmp_path, f"test.{name}") == [sides[name].encode(line) for line in given_text]
        assert read(tmp_path, f"train.{name}") == read(tmp_path, f"test.{name}") * 5
        if treatment.changes_text:
            assert read(tmp_path, f"test.raw.{name}") == given_text
    assert counts["train"].pairs == 20 and counts["test"].unknown_src == 0
    folders = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert folders == ["text"]


def test_tokenized_text_is_only_made_readable(tmp_path: Path) -> None:
    sides = (TextSide("en"), TextSide("de"))
    out = tmp_path / "out"
    out.mkdir()
    lines = [tuple(side.tokenize(line) for side, line in zip(sides, pair)) for pair in SENTENCES]
    inputs = write(tmp_path / "in", train=lines * 5, valid=lines, test=lines)
    prepare_text(inputs, Treatment(True, "bpe", 30, ("en", "de"), tokenized=True), out)
    read_back = load_tokenization(out)
    for side, name in enumerate(("src", "tgt")):
        assert [read_back[name].join(line) for line in read(tmp_path, f"test.{name}")] == [
            line[side] for line in lines
        ]
    assert read(tmp_path, "test.raw.tgt")[0] == SENTENCES[0][1]


def test_drops_are_counted(tmp_path: Path) -> None:
    train = [
        ("a b", "c d"),
        ("", "x"),
        ("a", " \t"),
        ("a " * 9, "b " * 8),
        ("a a a a", "b"),
        *SENTENCES,
    ]
    counts = prepare(tmp_path, train, Treatment(max_length=8, max_ratio=3))["train"]
    assert counts == Counts(5, 8, 8, 0, 0, blank=2, too_long=1, uneven=1)
    assert read(tmp_path, "train.number") == ["0", "5", "6", "7", "8"]
    assert read(tmp_path, "train.src")[0] == "a b"


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)
PAIRS = st.lists(st.tuples(LINE, LINE), min_size=1, max_size=12)


@settings(deadline=None)
@given(
    PAIRS,
    st.sampled_from(["words", "bpe"]),
    st.sampled_from([("en", "de"), (None, None)]),
    st.none() | st.integers(1, 5),
    st.none() | st.floats(1, 3),
)
def test_no_line_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
    train: Lines,
    kind: str,
    languages: tuple[str | None, str | None],
    max_length: int | None,
    max_ratio: float | None,
) -> None:
    """Whatever the lines are: refused in a sentence, or every one is kept or counted as dropped."""
    folder = tmp_path_factory.mktemp("fuzz")
    treatment = Treatment(True, kind, 9, languages, False, max_length, max_ratio)
    try:
        counts = prepare(folder, train, treatment)["train"]
    except InputError:
        return
    kept = [int(number) for number in read(folder, "train.number")]
    assert len(kept) == counts.pairs == len(train) - sum(counts[5:])
    sides = load_tokenization(folder / "out")
    for column, name in enumerate(("src", "tgt")):
        assert read(folder, f"train.{name}") == [sides[name].encode(train[i][column]) for i in kept]


def test_all_cores_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffle = random.Random(1)
    words = " ".join(word for pair in SENTENCES for word in pair).split()
    train = [
        (" ".join(shuffle.choices(words, k=4)), " ".join(shuffle.choices(words, k=4)))
        for _ in range(2 * CHUNK + 7)
    ]
    treatment = Treatment(False, "bpe", 40, ("en", "de"), max_ratio=1.5)
    alone = prepare(tmp_path / "one", train, treatment)
    monkeypatch.setattr(text_pipeline, "PARALLEL_FROM", 1)
    monkeypatch.setattr(text_pipeline, "cores", lambda: 3)
    assert prepare(tmp_path / "many", train, treatment) == alone
    for path in (tmp_path / "one" / "out").rglob("*.*"):
        other = tmp_path / "many" / "out" / path.relative_to(tmp_path / "one" / "out")
        assert path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("train", "treatment", "sentence"),
    [
        ([("", "x")], Treatment(), "train.a, line 1 is blank"),
        (
            [("a", "x"), ("a\u200b", "\u200b")],
            Treatment(subwords="bpe", size=9),
            "--bpe finds no two",
        ),
        ([("", "x")], Treatment(max_length=9), "all 1 pairs of train were dropped"),
        (
            [("ab", "c")],
            Treatment(subwords="sentencepiece", size=4),
            "--sentencepiece 4 is too small for this text, .* give at least 6.",
        ),
        (
            [("", "")],
            Treatment(subwords="sentencepiece", size=4),
            "--sentencepiece 4 does not suit",
        ),
    ],
)
def test_unfit_text_is_refused(
    tmp_path: Path, train: Lines, treatment: Treatment, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        prepare(tmp_path, train, treatment)


def test_sentencepiece_learns_from_long_lines(tmp_path: Path) -> None:
    """By default it skips lines of more than 4,192 bytes; ours of more than 16,384."""
    subword_models.learn_sentencepiece(["xyzzy " * 1000, "a"], 20, tmp_path / "model", 1)
    pieces = SentencePieceProcessor(model_file=str(tmp_path / "model"))
    assert pieces.piece_to_id("z") != pieces.unk_id()


def test_an_invisible_evaluation_sentence_is_refused(tmp_path: Path) -> None:
    inputs = write(tmp_path, train=SENTENCES, valid=[("a", "\u200b")], test=SENTENCES)
    with pytest.raises(InputError, match="pair 1 of valid has a side of invisible characters"):
        prepare_text(inputs, Treatment(languages=("en", "de")), tmp_path)


@pytest.mark.parametrize("word", ["<s>", "<pad>", "</s>"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize(("side", "name"), [(0, "source"), (1, "target")])
def test_fairseqs_own_words_are_refused(
    tmp_path: Path, word: str, split: str, side: int, name: str
) -> None:
    """It would end the sentence there, or mask a word, and report nothing."""
    lines = dict.fromkeys(("train", "valid", "test"), SENTENCES)
    odd = [f"{text} {word} odd" if number == side else text for number, text in enumerate("ab")]
    lines[split] = [*SENTENCES, (odd[0], odd[1])]
    inputs = write(tmp_path, **lines)
    with pytest.raises(InputError) as error:
        prepare_text(inputs, Treatment(), tmp_path)
    assert f"pair 5 of {split} has the word `{word}` on its {name} side" in str(error.value)


def test_a_subword_that_is_a_word_of_fairseqs_is_refused(tmp_path: Path) -> None:
    train = [("x </s>", "yz")] * 9
    with pytest.raises(InputError, match="pair 1 of train has the word `</s>` on its source side"):
        prepare(tmp_path, train, Treatment(subwords="bpe", size=9))


@pytest.mark.parametrize(
    "treatment", [Treatment(languages=("en", "de")), Treatment(subwords="symbols")]
)
def test_what_is_taken_apart_is_no_word_of_fairseqs(tmp_path: Path, treatment: Treatment) -> None:
    lines = [("a </s> <pad>", "b <s> c")]
    inputs = write(tmp_path / "in", train=lines, valid=lines, test=lines)
    assert prepare_text(inputs, treatment, tmp_path)["test"].unknown_tgt == 0


def test_the_unknown_word_of_a_corpus_is_counted_as_unknown(tmp_path: Path) -> None:
    """fairseq gives it the index of unknown words, in training too: it can never be generated."""
    lines = [("a <unk>", "b c"), ("a", "<unk> b <unk>")]
    inputs = write(tmp_path / "in", train=lines, valid=lines, test=lines[::-1])
    counts = prepare_text(inputs, Treatment(), tmp_path)
    for split in ("valid", "test"):
        assert counts[split] == Counts(
            2, 2, 3, unknown_src=1, unknown_tgt=2, unreachable=1, trained=2
        )


@pytest.mark.parametrize(
    "treatment", [Treatment(), Treatment(subwords="bpe", size=9, languages=("en", "de"))]
)
def test_pairs_that_training_has_too_are_counted(tmp_path: Path, treatment: Treatment) -> None:
    """A pair, not a source with another target; one that is repeated, each time."""
    (source, target), *others = SENTENCES
    test = [(source, target), (f" {source} ", target), (source, "Nein."), ("No.", target)]
    inputs = write(tmp_path / "in", train=SENTENCES, valid=others, test=test)
    inputs.pairs["more"] = inputs.pairs["train"]
    counts = prepare_text(inputs, treatment, tmp_path)
    assert [counts[split].trained for split in counts] == [0, 3, 2, 4]


def test_merges_are_those_of_subword_nmt(repository: Path) -> None:
    """On the words of the longest text there is here."""
    counts: Counter[str] = Counter()
    for line in islice(read_lines(repository / "README.md"), 300):
        counts.update(line.split())
    counts.update({"ababab": 7, "aaaaa": 5, "abcabcab": 3, "\u00e4</w>": 9})
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    codes: list[str] = []
    output = type("Output", (), {"write": lambda self, line: codes.append(line)})()
    learn_bpe.learn_bpe([f"{word} {count}" for word, count in words], output, 600, is_dict=True)
    found = list(subword_models.find_merges(words))
    assert [f"{left} {right}\n" for left, right in found[:600]] == codes[1:]
    assert len(found) == len({left + right for left, right in found}) > 600


def test_what_occurs_once_is_not_merged() -> None:
    words = [("abab", 1), ("cab", 1), ("xy", 1)]
    assert list(subword_models.find_merges(words)) == [("a", "b</w>")]


def test_too_many_different_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subword_models, "COUNTED_WORDS", 3)
    counts = Counter({"a": 2, "b": 1})
    subword_models.count_words(counts, Counter("ccd"))
    assert counts == {"a": 2, "c": 2}


def test_few_chunks_are_read_ahead() -> None:
    taken = []

    def items() -> object:
        for number in range(100):
            taken.append(number)
            yield number

    results = ordered_map(abs, items(), 2)  # type: ignore[arg-type]
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) <= 10
    assert list(results) == list(range(3, 100))


def test_an_error_in_a_chunk_arrives() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(ordered_map(int, ["1", "x", *"23456789"], 2))


def _die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_noticed() -> None:
    with pytest.raises(InputError, match="most likely because memory ran out"):
        list(ordered_map(_die, range(9), 2))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_live_however_they_are_started(method: str, repository: Path) -> None:
    """Not all methods make them children of the process that they work for."""
    code = (
        "import multiprocessing, operator\n"
        "from sut_data.text.chunks import ordered_map\n"
        f"multiprocessing.set_start_method('{method}')\n"
        "print(*ordered_map(operator.neg, range(40), 2))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository / "data-prep",
        capture_output=True,
        text=True,
    )
    assert process.stdout.split() == [str(-number) for number in range(40)], process.stderr


def test_processes_end_with_a_killed_parent(repository: Path) -> None:
    code = (
        "import os, time\n"
        "from sut_data.text.chunks import ordered_map\n"
        "for process in ordered_map(lambda_, range(99), 2): print(process, flush=True)\n"
    ).replace("lambda_", "identify")
    code = (
        "import os, time\ndef identify(_):\n    time.sleep(0.05)\n    return os.getpid()\n" + code
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=repository / "data-prep",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    workers = {int(process.stdout.readline()) for _ in range(8)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{worker}/status") for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@settings(deadline=None)
@given(st.lists(LINE, min_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_are_read_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, packed: bool
) -> None:
    """Only a line feed ends a line: not a carriage return, nor any of Unicode's separators."""
    lines = [line.rstrip("\r") for line in lines]
    content = end.join([*lines, ""]).encode()
    path = tmp_path_factory.mktemp("lines") / ("text.gz" if packed else "text")
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    lines[0] = lines[0].removeprefix("\ufeff")
    assert list(read_lines(path)) == lines
