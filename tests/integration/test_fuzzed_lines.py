"""Lines that programs stumble over, through everything that reads lines.

Nothing ends in a traceback, and as many lines come out as went in, or it is said how many did not.
A few hundred by default; 100,000 with `--slow`.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from pathlib import Path

import pytest
from subword_nmt.learn_bpe import learn_bpe

from sut_data.text.subwords import learn_sentencepiece
from sut_data.text.tokenization import TextSide, save_tokenization
from tests import nasty
from tests.integration.commands import Finished, on_cpu, run, words

FEW, MANY = 300, 100_000
SIZES = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]
KINDS = ["words", "bpe", "sentencepiece"]
PLAIN = ["the dog jumps twice", "run and look left", "Ein Hund, ein Haus."] * 10
SEARCH = words("--beam 1 --max-len-b 2")


@pytest.fixture
def treated(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Path:
    """The dictionaries of the data with a tokenisation; most of what it makes is unknown."""
    kind, folder = request.param, tmp_path / "treated"
    folder.mkdir()
    for side in ("src", "tgt"):
        shutil.copy(data / f"dict.{side}.txt", folder)
    model = folder / "subwords"
    if kind == "bpe":
        with open(model, "w", encoding="utf-8") as codes:
            learn_bpe(io.StringIO("\n".join(PLAIN)), codes, 30)
    elif kind == "sentencepiece":
        learn_sentencepiece(PLAIN, 40, model, 1)
    given = (kind, None if kind == "words" else model)
    sides = {"src": TextSide("en", *given), "tgt": TextSide("de", *given)}
    save_tokenization(folder, sides)
    return folder


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("treated", KINDS, indirect=True)
def test_translate(count: int, treated: Path, trained: Path, tmp_path: Path) -> None:
    lines = [line.encode() for line in (*nasty.lines(count, seed=1), *nasty.LONG)] + [*nasty.BROKEN]
    random.Random(1).shuffle(lines)
    (tmp_path / "lines").write_bytes(b"\n".join([*lines, b"no end"]))
    options = ("--data", treated, "--input", tmp_path / "lines", *SEARCH)
    finished = run("sut-translate", trained, *options)
    assert finished.stdout.count("\n") == len(lines) + 1
    *notes, unknown = finished.stderr.splitlines()
    numbers = [int(re.match(r"sut-translate: line (\d+): the (line|sentence) ", note)[1])  # type: ignore[index]
               for note in notes]  # fmt: skip
    broken = [number for number, line in enumerate(lines, start=1) if line in nasty.BROKEN]
    long = [number for number, line in enumerate(lines, start=1) if len(line) > 65_536]
    assert set(broken + long) <= set(numbers) and len(numbers) < len(lines) / 4
    assert re.search(rf"in [\d,]+ of {len(lines) + 1:,} lines, are unknown to the model", unknown)
    assert unknown.isprintable()


def test_translate_as_json(trained: Path, data: Path) -> None:
    """Every record is one line, with the text that came."""
    lines = [line for line in nasty.NASTY if len(line) < 100 and "\r" not in line]
    options = ("--data", data, "--json", *SEARCH)
    finished = run("sut-translate", trained, *options, stdin="\n".join(lines))
    records = [json.loads(line) for line in finished.stdout.split("\n")[:-1]]
    assert [record["source"] for record in records] == lines


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(
    "options",
    [
        "--moses en de --bpe 200 --joined --max-length 200",
        pytest.param("--moses en de --max-ratio 9", marks=pytest.mark.slow),
        pytest.param("--sentencepiece 300000 --joined", marks=pytest.mark.slow),
        pytest.param("--words", marks=pytest.mark.slow),
    ],
)
def test_prepare(count: int, options: str, tmp_path: Path) -> None:
    """What is left out of the training text is counted; all other lines are there."""
    for seed, side in enumerate(("src", "tgt")):
        length = 1_000_000 if count == MANY else 100_000
        lines = [*nasty.lines(count, seed), "x" * length, "word " * (length // 5)]
        if options == "--words":  # where blank lines and fairseq's own marks are errors
            marks = {"<s>", "<pad>", "</s>"}
            wrong = [not line.split() or bool(marks & set(line.split())) for line in lines]
            lines = ["blank" if one else line for one, line in zip(wrong, lines)]
        write(tmp_path / f"train.{side}", lines)
        write(tmp_path / f"dev.{side}", PLAIN)
    files = [word for split in ("valid", "test") for word in (f"--{split}", "dev.src", "dev.tgt")]
    line = ("parallel_text", "--train", "train.src", "train.tgt", *files, "--out", "out")
    finished = run("sut-prepare", *line, *words(options), cwd=tmp_path, ok=False)
    assert finished.status == 0, finished.stderr[-2000:]
    stamp = json.loads((tmp_path / "out" / "prepared.json").read_text())
    kept, _, _, _, _, *dropped = stamp["counts"]["train"]
    assert kept + sum(dropped) == count + 2
    for side in ("src", "tgt"):
        content = (tmp_path / "out" / "text" / f"train.{side}").read_bytes()
        assert content.count(b"\n") == kept


@pytest.mark.parametrize("broken", nasty.BROKEN, ids=lambda line: line.hex())
def test_prepare_says_where_text_is_not_utf8(broken: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"fine\n" * 3 + broken + b"\nfine\n")
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", "bad", "bad")]
    finished = run("sut-prepare", "parallel_text", *files, "--out", "out", cwd=tmp_path, ok=False)
    assert finished.status == 2 and not (tmp_path / "out").exists()
    assert re.fullmatch(
        r"sut-prepare parallel_text: error: bad is not UTF-8 text \(near line [1-5]\): .*\n",
        finished.stderr,
    )


@pytest.mark.parametrize("count", SIZES)
def test_interactive(count: int, trained: Path, data: Path, tmp_path: Path) -> None:
    """With our model; fairseq ends lines at a carriage return too, and wants UTF-8."""
    lines = [line.replace("\r", " ") for line in nasty.lines(count, seed=2)]
    write(tmp_path / "lines", lines)
    finished = interactive(data, trained, tmp_path / "lines", "--batch-size", 50)
    answered = re.findall(r"(?m)^H-(\d+)\t", finished.stdout)
    said = re.findall(r"([\d,]+) samples have invalid sizes and will be skipped", both(finished))
    skipped = sum(int(number.replace(",", "")) for number in said)
    assert len(answered) + skipped == len(set(answered)) + skipped == count
    assert skipped < count / 4


def interactive(data: Path, model: Path, file: Path, *options: object) -> Finished:
    fixed = ("--path", model, "--input", file, "--buffer-size", 500, *SEARCH)
    skip = "--skip-invalid-size-inputs-valid-test"
    return on_cpu("fairseq-interactive", data, *fixed, skip, *options)


def both(finished: Finished) -> str:
    return finished.stdout + finished.stderr


def test_columns(data: Path, text: Path, trained: Path, tmp_path: Path) -> None:
    """Groups of any name, whatever the locale of whoever looks at them."""
    size = len((text / "test.src").read_text().splitlines())
    values = [line for line in nasty.NASTY if line.split() and len(line) < 50][:size]
    folder = shutil.copytree(data, tmp_path / "data")
    (folder / "text").mkdir()
    write(folder / "text" / "test.odd", values)
    options = ("--path", trained, "--data", folder, "--by", "odd", "--csv", tmp_path / "rows.csv")
    program = (
        "import sys; sys.stdout.reconfigure(encoding='ascii')\n"
        f"from sut_fairseq.cli.evaluate import main; sys.exit(main({[*map(str, options)]!r}))"
    )
    finished = run("python", "-c", program)
    assert finished.stdout.isascii() and "exact match" in finished.stdout
    rows = (tmp_path / "rows.csv").read_bytes().decode()
    assert all(value.strip() in rows for value in values if not set(value) & set('"\r,'))


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
