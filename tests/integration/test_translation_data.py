"""Multi30k, WMT'14 and anybody's natural text, prepared as a user prepares them."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from sut_data.errors import InputError
from sut_data.kit.corpora import write_set
from sut_data.sets import multi30k
from sut_data.sets import wmt14_en_de as wmt14
from sut_data.text.tokenization import TextSide, load_tokenization
from tests.integration.forking import forking
from tests.integration.preparing import WRITE_INDICES, fake_fairseq

Completed = subprocess.CompletedProcess[str]


def run(
    repository: Path, cwd: Path, script: str, *options: object, **environment: str
) -> Completed:
    words = ["bash", str(repository / "data-prep" / script), *map(str, options)]
    environment = {**os.environ, **environment}
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=environment)


def assert_refused(result: Completed, sentence: str) -> None:
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr


def read(path: Path) -> list[str]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
            return stream.read().split("\n")[:-1]
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def published_sizes(samples: Path, folder: Path, files: dict[str, int]) -> Path:
    """A folder with files of the sizes that were published, of sentences with running numbers."""
    folder.mkdir()
    for language in ("en", "de"):
        sentences = read(samples / f"sentences.{language}")
        for name, size in files.items():
            lines = (f"{sentences[n % len(sentences)]} {n}\n" for n in range(size))
            with gzip.open(folder / f"{name}.{language}.gz", "wt", 1, encoding="utf-8") as file:
                file.writelines(lines)
    return folder


@pytest.fixture()
def multi30k_files(samples: Path, tmp_path: Path) -> Path:
    return published_sizes(samples / "multi30k", tmp_path / "raw", dict(multi30k.FILES.values()))


def test_multi30k(repository: Path, tmp_path: Path, multi30k_files: Path) -> None:
    check_multi30k(repository, tmp_path, multi30k_files, **forking())


@pytest.mark.slow
def test_the_published_multi30k(repository: Path, tmp_path: Path, shared_data: Path) -> None:
    check_multi30k(repository, tmp_path, shared_data / "multi30k")


def check_multi30k(repository: Path, tmp_path: Path, raw: Path, **environment: str) -> None:
    words = ["--raw", raw, "--limit", 200, "--bpe", 300, "--out", "data-bin/m"]
    first = run(repository, tmp_path, "multi30k.sh", *words, **environment)
    assert first.returncode == 0, first.stderr
    for name, size in (("train", "29,000"), ("val", "1,014"), ("test_2017_mscoco", "461")):
        assert f"Multi30k {name}: {size} pairs, as published." in first.stdout
    out = tmp_path / "data-bin" / "m"
    line = first.stdout.splitlines()[-1].replace(" --size small", "")  # which is without a GPU
    assert line == f"  sut-experiment train multi30k --data {out}"
    assert os.listdir(out.parent) == ["m"]
    sets = {path.name.split(".")[0] for path in out.glob("*.idx")}
    assert sets == {"train", "valid", "test", "test_2017_flickr", "test_2017_mscoco"}

    for language, (side, treatment) in zip(("en", "de"), load_tokenization(out).items()):
        assert treatment == TextSide(language, "bpe", out / "subwords.bpe")
        published = [line.strip() for line in read(raw / f"test_2016_flickr.{language}.gz")]
        kept = read(out / "text" / f"test.raw.{side}")
        assert len(kept) == 200 and kept == [published[i] for i in range(4, 1000, 5)]
        # What `sut-translate` would do with the same text.
        assert [treatment.encode(line) for line in kept] == read(out / "text" / f"test.{side}")
    assert (out / "dict.src.txt").read_bytes() == (out / "dict.tgt.txt").read_bytes()

    stamp = json.loads((out / "prepared.json").read_text())
    assert (stamp["dataset"], stamp["split"], stamp["limited"]) == ("multi30k", "en_de", True)

    second = run(repository, tmp_path, "multi30k.sh", *words)
    assert "is up to date" in second.stdout
    assert os.listdir(out.parent) == ["m"]


def test_the_wmt_sample(repository: Path, tmp_path: Path, samples: Path) -> None:
    files = {name: size for _, name, size in wmt14.SAMPLE}
    raw = published_sizes(samples / "wmt14_ende", tmp_path / "raw", files)
    check_the_wmt_sample(repository, tmp_path, raw)


@pytest.mark.slow
def test_the_published_wmt_sample(repository: Path, tmp_path: Path, shared_data: Path) -> None:
    check_the_wmt_sample(repository, tmp_path, shared_data / "wmt14_ende")


def check_the_wmt_sample(repository: Path, tmp_path: Path, raw: Path) -> None:
    words = ["--raw", raw, "--limit", 500, "--bpe", 500, "--out", "out"]
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    result = run(repository, tmp_path, "wmt14_en_de.sh", *words, **environment)
    assert result.returncode == 0, result.stderr
    assert "the tokenised sample, 10,000 training pairs of the 4,520,620" in result.stdout
    for name, size in (
        ("train10k", "10,000"),
        ("newstest2013", "3,000"),
        ("newstest2014", "2,737"),
    ):
        assert f"{name}: {size} pairs, as published." in result.stdout
    dropped = re.search(r"dropped from train: (\d+) of 500 pairs \((.*)\)", result.stdout)
    kept = re.search(r"^train +(\d+)", result.stdout, re.MULTILINE)
    assert dropped and kept and int(dropped[1]) + int(kept[1]) == 500
    out = tmp_path / "out"
    stamp = json.loads((out / "prepared.json").read_text())
    assert (stamp["dataset"], stamp["split"]) == ("wmt14", "sample")
    for line in zip(read(out / "text" / "train.src"), read(out / "text" / "train.tgt")):
        shorter, longer = sorted(len(side.split()) for side in line)
        assert longer <= 250 and longer <= 1.5 * shorter
    for language, (side, treatment) in zip(("en", "de"), load_tokenization(out).items()):
        published = read(raw / f"newstest2014.{language}.gz")
        symbols = read(out / "text" / f"test.{side}")
        assert len(symbols) == 500
        tokens = [treatment.join(line) for line in symbols]
        assert set(tokens) <= {" ".join(line.split()) for line in published}
        readable = read(out / "text" / f"test.raw.{side}")
        assert readable == [treatment.detokenize(line) for line in tokens]
        assert "&apos;" not in " ".join(readable)


def make_archives(folder: Path) -> None:
    """The official archives with a few lines each, in their official places."""
    folder.mkdir()
    for number, (archive, (_, names, _)) in enumerate(zip(wmt14.ARCHIVES, wmt14.OFFICIAL)):
        with tarfile.open(folder / archive.rsplit("/", 1)[1], "w:gz") as tar:
            for name in ("README", *names):
                path = folder / name
                line = f"Text {number}, {name[-2:]}."
                if ".sgm" in name:
                    line = f'<doc>\n<seg id="1">{line[:-1]} &amp; &quot;é&#34;. </seg>\n</doc>'
                path.write_text(f"{line}\n" * 2, encoding="utf-8")
                tar.add(path, f"training/{name}")
                path.unlink()


def test_official_archives_and_files(tmp_path: Path) -> None:
    raw, unpacked = tmp_path / "raw", tmp_path / "unpacked"
    make_archives(raw)
    unpacked.mkdir()
    sets = wmt14.official_sets(wmt14.official_files(raw), unpacked)
    assert {name: [corpus.sizes[0] for corpus in corpora] for name, corpora in sets.items()} == {
        "train": [1_920_209, 2_399_123, 201_288],
        "valid": [3_000],
        "test": [3_003],
    }
    assert [read(corpus.source) for corpus in sets["train"]] == [
        [f"Text {i}, en."] * 2 for i in range(3)
    ]
    assert [read(corpus.target) for corpus in sets["train"]] == [
        [f"Text {i}, de."] * 2 for i in range(3)
    ]
    assert read(sets["test"][0].source) == ['Text 4, gm & "é".'] * 2

    again = tmp_path / "again"
    again.mkdir()
    for path in unpacked.glob("*[!t]"):
        with gzip.open(again / f"{path.name}.gz", "wb") as stream:
            stream.write(path.read_bytes())
    (tmp_path / "none").mkdir()
    files = wmt14.official_files(again)
    for name, corpora in wmt14.official_sets(files, tmp_path / "none").items():
        for one, other in zip(corpora, sets[name]):
            assert read(one.source) == read(other.source) and read(one.target) == read(other.target)

    corpora = [corpus._replace(sizes=(2,)) for corpus in sets["train"]]
    write_set(corpora, 4, tmp_path / "train")
    assert read(tmp_path / "train.src") == [f"Text {i}, en." for i in (0, 1, 2, 2)]
    with pytest.raises(
        InputError, match="has 2 source and 2 target lines, but was published with 1,"
    ):
        write_set(sets["train"], None, tmp_path / "train")


def test_damaged_archives_are_refused(repository: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    make_archives(raw)
    tar = raw / "training-parallel-europarl-v7.tgz"
    whole = tar.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive"):
        tar.write_bytes(content)
        result = run(repository, tmp_path, "wmt14_en_de.sh", "--raw", raw, "--out", "out")
        assert_refused(result, "training-parallel-europarl-v7.tgz cannot be unpacked")
    with tarfile.open(tar, "w:gz") as empty:
        empty.add(raw / "dev.tgz", "x")
    result = run(repository, tmp_path, "wmt14_en_de.sh", "--raw", raw, "--out", "out")
    assert_refused(result, "does not hold europarl-v7.de-en.de: fetch it again")
    assert os.listdir(tmp_path) == ["raw"]


@pytest.mark.parametrize(
    ("script", "options", "sentence"),
    [
        ("multi30k.sh", [], "the following arguments are required: --out"),
        ("multi30k.sh", ["--out", "o", "--raw", "absent"], "--raw absent is not a folder"),
        ("multi30k.sh", ["--out", "o", "--raw", "."], "--raw . has neither train.en nor"),
        (
            "multi30k.sh",
            ["--out", "o", "--limit", "0"],
            "--limit: must be a whole number of at least 1",
        ),
        ("multi30k.sh", ["--out", "o", "--bpe", "x"], "--bpe: must be a whole number of"),
        ("wmt14_en_de.sh", ["--out", "o", "--raw", "."], "neither europarl-v7.de-en.en nor"),
        ("wmt14_en_de.sh", ["--out", "o", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_options_are_refused(
    repository: Path, tmp_path: Path, script: str, options: list[str], sentence: str
) -> None:
    assert_refused(run(repository, tmp_path, script, *options), sentence)
    assert not os.listdir(tmp_path)


def test_altered_files_are_refused(repository: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for language in ("en", "de"):
            (raw / f"{name}.{language}").write_text("A cat.\n")
    result = run(repository, tmp_path, "multi30k.sh", "--raw", raw, "--out", "out")
    assert_refused(result, "has 1 source and 1 target lines, but was published with 29,000")
    assert os.listdir(tmp_path) == ["raw"]


@pytest.mark.parametrize("script", ["multi30k.sh", "wmt14_en_de.sh"])
def test_help(repository: Path, tmp_path: Path, script: str) -> None:
    result = run(repository, tmp_path, script, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: {script}") and "--raw DIR" in result.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--bpe", "0"], "--bpe must be at least 1, but is 0 instead"),
        (["--bpe", "9" * 20], "--bpe must be at most 2147483647, but is 9999"),
        (["--sentencepiece", "-3"], "--sentencepiece must be at least 1, but is -3 instead"),
        (["--max-length", "0"], "--max-length must be at least 1"),
        (["--max-ratio", "0.5"], "--max-ratio must be at least 1, but is 0.5 instead"),
        (["--max-ratio", "nan"], "--max-ratio must be at least 1, but is nan instead"),
        (["--tokenized"], "--tokenized needs --moses SRC TGT"),
        (["--moses", "en", "German"], "--moses: The language `German` is not a code of two"),
        (["--split-symbols", "--moses", "en", "de"], "--split-symbols is for formal languages"),
        (["--bpe", "9", "--words"], "not allowed with argument --bpe"),
        (["--bpe", "9", "--sentencepiece", "9"], "not allowed with argument --bpe"),
        (["--bpe", "9"], "t, line 2 is blank"),
    ],
)
def test_bad_options_for_natural_text_are_refused(
    repository: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    (tmp_path / "t").write_text("A cat.\n\n")
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", "t", "t")]
    result = run(repository, tmp_path, "parallel_text.sh", *files, "--out", "out", *options)
    assert_refused(result, sentence)
    assert os.listdir(tmp_path) == ["t"]


def test_a_killed_run_leaves_nothing_trusted(
    repository: Path, tmp_path: Path, multi30k_files: Path
) -> None:
    """Killed politely while it works with the text: the folder beside the result is gone too."""
    script = str(repository / "data-prep" / "multi30k.sh")
    process = subprocess.Popen(
        ["bash", script, "--raw", str(multi30k_files), "--out", "out", "--reverse"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.partial-*/words/train.src")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    (source,) = tmp_path.glob(".out.text-*/train.src")
    assert read(source)[0] == read(multi30k_files / "train.de.gz")[0]  # --reverse
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() != 0
    assert os.listdir(tmp_path) == ["raw"]
