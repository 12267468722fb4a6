"""Preparation of parallel text, run as a user runs it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration import commands
from tests.integration.preparing import WRITE_INDICES, assert_refused, fake_fairseq, run

TINY = {
    "train": (["a b", "c", "d e f", "a"], ["x", "y z", "w", "x x"]),
    "valid": (["a c"], ["x y"]),
    "test": (["b q", "e"], ["z", "w"]),
}


@pytest.fixture()
def tiny(tmp_path: Path) -> Path:
    """A folder with `train.src` ... `test.tgt`, a few sentences each."""
    folder = tmp_path / "text"
    folder.mkdir()
    for split, sides in TINY.items():
        for suffix, sentences in zip(("src", "tgt"), sides):
            (folder / f"{split}.{suffix}").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return folder


def command(repository: Path, text: Path, out: Path, *options: str) -> list[str]:
    """The command line that prepares the files of `tiny`."""
    files = {split: [str(text / f"{split}.{side}") for side in ("src", "tgt")] for split in TINY}
    arguments = [word for split, pair in files.items() for word in (f"--{split}", *pair)]
    script = str(repository / "data-prep" / "parallel_text.sh")
    return ["bash", script, *arguments, "--out", str(out), *options]


def prepared(words: list[str], cwd: Path) -> commands.Finished:
    """What the script runs, with fairseq's programs in forks."""
    return commands.run("sut-prepare", "parallel_text", *words[2:], cwd=cwd)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="two dictionaries", marks=pytest.mark.slow),
        pytest.param(["--joined"], id="one"),
    ],
)
def test_the_printed_command_trains(
    repository: Path, tiny: Path, tmp_path: Path, options: list[str]
) -> None:
    """They are as printed, but for two updates."""
    result = prepared(command(repository, tiny, tmp_path / "out", *options), tmp_path)
    printed = result.stdout.partition("Train on it with:\n")[2]
    alone, _, experiment = printed.partition("or, with scores and records, as an experiment:\n")
    program, *arguments = shlex.split(alone.replace("\\\n", " "))
    commands.run("fairseq-train", *arguments, "--max-update", 2, cwd=tmp_path)
    assert program.endswith("fairseq-train") and "--cpu" in arguments
    kept = {path.name for path in (tmp_path / "checkpoints" / "out").iterdir()}
    assert "checkpoint_last.pt" in kept and "checkpoint1.pt" not in kept and len(kept) <= 4

    if options:
        return  # the commands of the README are an experiment on a joined dictionary
    program, *arguments = shlex.split(experiment)
    commands.run(program, *arguments, "--max-update", 2, cwd=tmp_path)
    assert (tmp_path / "runs" / "out" / "checkpoints" / "checkpoint_best.pt").exists()


def test_a_plan_is_measured(repository: Path, tiny: Path, tmp_path: Path) -> None:
    result = prepared(command(repository, tiny, tmp_path / "out", "--plan"), tmp_path)
    measured = re.search(
        r"Measured: (\S+) s for an update \(mean of 20\) on \d+ CPU cores?; the 600 updates will "
        r"take about (\d+) (s|min) here\.\n$",
        result.stdout,
    )
    assert measured is not None, result.stdout
    seconds = int(measured[2]) * (60 if measured[3] == "min" else 1)
    assert seconds >= 600 * float(measured[1]) * 0.9
    assert result.stderr == "" and sorted(os.listdir(tmp_path)) == ["out", "text"]


@pytest.mark.slow  # the unit tests of measuring have trainings that fail
def test_a_plan_whose_training_fails(repository: Path, tiny: Path, tmp_path: Path) -> None:
    words = command(repository, tiny, tmp_path / "out", "--plan", "--arch", "no_such")
    wrong = run(words, tmp_path)
    assert wrong.returncode == 2 and "Train on it with" in wrong.stdout
    assert wrong.stderr.splitlines()[-1].endswith(
        "fairseq-train failed with status 2; the end of its output is above. The data are prepared."
    )


@pytest.mark.parametrize("script", ["scan.sh", "parallel_text.sh"])
def test_help(repository: Path, tmp_path: Path, script: str) -> None:
    result = run(["bash", str(repository / "data-prep" / script), "--help"], tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: {script}")
    assert "--out DIR" in result.stdout


def test_a_killed_run_leaves_nothing_trusted(repository: Path, tmp_path: Path, tiny: Path) -> None:
    """Killed hard, then politely, then left alone: only the last run puts a folder in place."""
    out = tmp_path / "out"
    for how, left_over in ((signal.SIGKILL, 1), (signal.SIGTERM, 0)):
        process = subprocess.Popen(
            command(repository, tiny, out), stdout=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob(f".out.partial-{process.pid}@*/fairseq-preprocess.log")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, how)
        assert process.wait() != 0
        assert not out.exists()
        assert len(list(tmp_path.glob(".out.partial-*"))) == left_over

    (tiny / "train.src").write_text("a b\r\nc\r\n d  e f\r\na", encoding="utf-8")  # no last newline
    with gzip.open(tiny / "train.tgt.gz", "wt", encoding="utf-8") as stream:
        stream.write((tiny / "train.tgt").read_text(encoding="utf-8"))
    words = command(repository, tiny, out, "--joined")
    words[words.index(str(tiny / "train.tgt"))] += ".gz"
    result = run(words, tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^train +4 +3 +2 +0 src, 0 tgt$", result.stdout, re.MULTILINE)
    assert re.search(r"^test +2 +2 +1 +1 src, 0 tgt$", result.stdout, re.MULTILINE)
    assert "--share-all-embeddings" in result.stdout
    assert not list(tmp_path.glob(".out.*"))
    assert (out / "text" / "train.src").read_text(encoding="utf-8") == "a b\nc\nd e f\na\n"
    assert (out / "dict.src.txt").read_bytes() == (out / "dict.tgt.txt").read_bytes()
    check_rebuilding(words, tmp_path, tiny, out)


def check_rebuilding(words: list[str], cwd: Path, text: Path, out: Path) -> None:
    """What makes a finished folder be rebuilt; a stand-in for fairseq reports each attempt."""
    attempt = fake_fairseq(cwd, "def cli_main():\n    raise SystemExit('rebuilding')\n")
    assert run(words, cwd, **attempt).returncode == 0

    stamp = (out / "prepared.json").read_text(encoding="utf-8")
    assert "rebuilding" in run(words[:-1], cwd, **attempt).stderr  # without --joined
    lost = (out / "valid.src-tgt.src.bin").rename(cwd / "lost")
    assert "rebuilding" in run(words, cwd, **attempt).stderr
    lost.rename(out / "valid.src-tgt.src.bin")
    (text / "test.tgt").write_text("w\nw\n", encoding="utf-8")
    assert "rebuilding" in run(words, cwd, **attempt).stderr
    # All those attempts failed, so the earlier folder is still there, whole.
    assert (out / "prepared.json").read_text(encoding="utf-8") == stamp

    (out / "checkpoint.pt").touch()
    assert_refused(run(words, cwd, **attempt), "holds checkpoint.pt, which this program did not")


def test_a_failing_preprocess_shows_its_log(repository: Path, tmp_path: Path, tiny: Path) -> None:
    environment = fake_fairseq(
        tmp_path,
        "def cli_main():\n    for i in range(99): print('line', i)\n    raise SystemExit(3)\n",
    )
    result = run(command(repository, tiny, tmp_path / "out"), tmp_path, **environment)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "line 79" and lines[-2] == "line 98"
    assert lines[-1].endswith("failed with status 3; the end of its log is above.")
    assert not list(tmp_path.glob("*out*"))


def test_lost_sentences_are_noticed(repository: Path, tmp_path: Path, tiny: Path) -> None:
    """A stand-in for fairseq writes indices of four rows, which is right for train alone."""
    body = (
        "import struct, sys\n"
        "def cli_main():\n"
        "    folder = sys.argv[sys.argv.index('--destdir') + 1]\n"
        "    for split in ('train', 'valid', 'test'):\n"
        "        for side in ('src', 'tgt'):\n"
        "            with open(f'{folder}/{split}.src-tgt.{side}.idx', 'wb') as stream:\n"
        "                stream.write(struct.pack('<9sQBQ', b'MMIDIDX\\0\\0', 1, 4, 4))\n"
    )
    result = run(
        command(repository, tiny, tmp_path / "out"), tmp_path, **fake_fairseq(tmp_path, body)
    )
    assert_refused(result, "wrote 4 sentences for valid.src, but the text has 1")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("train.src", None, "train.src, which does not exist"),
        ("valid.tgt", b"", "valid.tgt, which is empty"),
        ("test.tgt", b"z\n", "test.src has 2 lines but "),
        ("train.src", b"a b\nc\nd\na\ne\n", "has 5 lines but "),
        ("train.tgt", b"x\n \nw\nx\n", "train.tgt, line 2 is blank"),
        ("train.tgt", b"x\n\xff\xfe\nw\nx\n", "train.tgt is not UTF-8 text"),
    ],
)
def test_bad_text_is_refused(
    repository: Path, tmp_path: Path, tiny: Path, name: str, content: bytes | None, sentence: str
) -> None:
    (tiny / name).unlink()
    if content is not None:
        (tiny / name).write_bytes(content)
    result = run(command(repository, tiny, tmp_path / "out"), tmp_path)
    assert_refused(result, sentence)
    assert not list(tmp_path.glob("*out*"))


def test_a_broken_gzip_file_is_refused(repository: Path, tmp_path: Path, tiny: Path) -> None:
    words = command(repository, tiny, tmp_path / "out")
    for content in (b"plain text\n", gzip.compress(b"x\ny z\nw\nx x\n" * 99)[:-9]):
        (tiny / "train.tgt.gz").write_bytes(content)
        changed = [word + ".gz" if word == str(tiny / "train.tgt") else word for word in words]
        assert_refused(run(changed, tmp_path), "ends in .gz but does not decompress")


def test_a_folder_of_somebody_else_is_kept(repository: Path, tmp_path: Path, tiny: Path) -> None:
    result = run(command(repository, tiny, tiny), tmp_path)
    assert_refused(result, "exists and was not made by this program")
    assert len(list(tiny.iterdir())) == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "the following arguments are required: --train, --valid, --test, --out"),
        (["--train", "a"], "argument --train: expected 2 arguments"),
        (["--bpe", "3"], "required"),
    ],
)
def test_bad_options_are_refused(
    repository: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    script = str(repository / "data-prep" / "parallel_text.sh")
    assert_refused(run(["bash", script, *options], tmp_path), sentence)


def test_further_sets_and_columns(repository: Path, tmp_path: Path, tiny: Path) -> None:
    """Sets keep the names they were given, whatever fairseq calls them in between."""
    for name, lines in (("long", ["a a a", "b", "d q"]), ("test1", ["c"])):
        (tiny / f"{name}.src").write_text("\n".join(lines), encoding="utf-8")
        (tiny / f"{name}.tgt").write_text("x\n" * len(lines), encoding="utf-8")
    (tiny / "sizes").write_text(" 3 \n1\n2  of 9", encoding="utf-8")
    words = command(repository, tiny, tmp_path / "out")
    for name in ("long", "test1"):  # fairseq makes them test1 and test2
        words += ["--also", name, str(tiny / f"{name}.src"), str(tiny / f"{name}.tgt")]
    words += ["--column", "long", "size", str(tiny / "sizes")]
    result = prepared(words, tmp_path)
    assert re.search(r"^long +3 +3 +1 +1 src, 0 tgt$", result.stdout, re.MULTILINE)
    assert re.search(r"^test1 +1 +1 +1 +0 src, 0 tgt$", result.stdout, re.MULTILINE)
    text = tmp_path / "out" / "text"
    assert (text / "long.size").read_text(encoding="utf-8") == "3\n1\n2 of 9\n"
    assert (text / "long.src").read_text(encoding="utf-8") == "a a a\nb\nd q\n"
    sets = {path.name.split(".")[0] for path in (tmp_path / "out").glob("*.idx")}
    assert sets == {"train", "valid", "test", "long", "test1"}

    assert "is up to date" in run(words, tmp_path).stdout
    (tiny / "sizes").write_text("3\n1\n2\n", encoding="utf-8")
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    assert "is ready" in run(words, tmp_path, **environment).stdout
    assert (text / "long.size").read_text(encoding="utf-8") == "3\n1\n2\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--also", "train2", "a", "b"], "whose names begin with train or valid"),
        (["--also", "test", "a", "b"], "--also test: there is a set of that name"),
        (["--also", "a,b", "a", "b"], "a name may hold letters, digits, _ and - only"),
        (["--also", "../a", "a", "b"], "a name may hold letters, digits, _ and - only"),
        (["--also", "more", "a", "b"], "--also more names a, which does not exist"),
        (["--column", "more", "size", "a"], "those given are train, valid, test"),
        (["--column", "test", "src", "a"], "that set has a src already"),
        (["--column", "test", "a.b", "a"], "a name may hold letters, digits, _ and - only"),
        (["--column", "test", "size", "a"], "--column test size names a, which does not exist"),
        (["--column", "test", "size", "one"], "one has 1 values but its split has 2 pairs"),
        (["--column", "test", "size", "gap"], "gap, line 2 is blank"),
    ],
)
def test_bad_sets_and_columns_are_refused(
    repository: Path, tmp_path: Path, tiny: Path, options: list[str], sentence: str
) -> None:
    (tmp_path / "one").write_text("1\n", encoding="utf-8")
    (tmp_path / "gap").write_text("1\n\n", encoding="utf-8")
    result = run(command(repository, tiny, tmp_path / "out", *options), tmp_path)
    assert_refused(result, sentence)
    assert not list(tmp_path.glob("*out*"))


def test_a_name_that_fairseq_would_cut_is_refused(
    repository: Path, tmp_path: Path, tiny: Path
) -> None:
    result = run(command(repository, tiny, tmp_path / "out 10:30"), tmp_path)
    assert_refused(result, "fairseq takes `:` for the end of a folder's name")
    assert not list(tmp_path.glob("*out*"))


def test_a_limit(repository: Path, tmp_path: Path, tiny: Path) -> None:
    (tiny / "kind").write_text("one\ntwo\n", encoding="utf-8")
    column = ("--column", "test", "kind", str(tiny / "kind"))
    words = command(repository, tiny, tmp_path / "out", "--limit", "1", *column)
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    result = run(words, tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    text = {path.name: path.read_text() for path in (tmp_path / "out" / "text").iterdir()}
    expected = {
        "train.src": "a\n",
        "train.tgt": "x x\n",
        "valid.src": "a c\n",
        "valid.tgt": "x y\n",
    }
    assert text == {**expected, "test.src": "e\n", "test.tgt": "w\n", "test.kind": "two\n"}
    assert json.loads((tmp_path / "out" / "prepared.json").read_text())["limited"] is True
    assert "is up to date" in run(words, tmp_path, **environment).stdout
    assert not list(tmp_path.glob(".out*"))

    (tiny / "kind").write_text("one\n", encoding="utf-8")
    assert_refused(run(words, tmp_path), "kind has 1 values but its split has 2 pairs")
    (tiny / "train.src").write_text("a\n", encoding="utf-8")
    assert_refused(run(words, tmp_path), "has 1 lines but ")
    assert_refused(run([*words, "--limit", "0"], tmp_path), "must be a whole number of at least 1")


def test_the_stamp_names_no_place(repository: Path, tmp_path: Path, tiny: Path) -> None:
    """A prepared folder can be moved or copied and is still recognised."""
    words = command(repository, tiny, tmp_path / "out")
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    assert run(words, tmp_path, **environment).returncode == 0
    assert str(tmp_path) not in json.dumps((tmp_path / "out" / "prepared.json").read_text())
    (tmp_path / "out").rename(tmp_path / "moved")
    (tiny / "train.src").rename(tiny / "first.src")
    words = [word.replace("train.src", "first.src") for word in words[:-1]]
    assert "is up to date" in run([*words, str(tmp_path / "moved")], tmp_path).stdout
