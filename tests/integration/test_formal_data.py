"""The preparation of the formal data sets, run as a user runs it.

fairseq-preprocess takes seconds, so most runs here have a stand-in that writes what they check.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
from collections import Counter
from pathlib import Path

import pytest

from sut_data.main import main
from sut_data.sets.long_lookup_tables.command import PUBLISHED_SIZES
from tests.integration import commands
from tests.integration.preparing import (
    WRITE_INDICES,
    Completed,
    assert_refused,
    fake_fairseq,
    run,
)

SPLITS = ("train", "valid", "test")
SCRIPTS = (*("cfq", "cogs", "listops", "logical_inference", "long_lookup_tables", "pcfg", "scan"),)
BY_DEPTH = ("arithmetic", "ctl", "listops_dependency")
WAIT = """
import pathlib, time

def cli_main():
    pathlib.Path("waiting").touch()
    time.sleep(60)
"""
CFQ_ENTRY = {
    "questionPatternModEntities": "Did M0's editor marry M1",
    "sparqlPatternModEntities": "SELECT count(*) WHERE {\nM0 ns:p.q ?x0 .\nM0 ns:p.q M1\n}",
}


def script(repository: Path, name: str) -> list[str]:
    return ["bash", str(repository / "data-prep" / f"{name}.sh")]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def prepared(out: Path) -> dict[str, int]:
    """The lines of each part of a prepared folder; its sides and columns must be aligned."""
    sizes: dict[str, set[int]] = {}
    for path in (out / "text").iterdir():
        sizes.setdefault(path.name.partition(".")[0], set()).add(len(lines_of(path)))
    assert all(len(lengths) == 1 for lengths in sizes.values()), sizes
    return {part: lengths.pop() for part, lengths in sizes.items()}


def columns(out: Path, part: str) -> set[str]:
    return {path.suffix[1:] for path in (out / "text").glob(f"{part}.*")} - {"src", "tgt"}


def identity(out: Path) -> tuple[str | None, str | None, bool | None]:
    """What the stamp calls the folder."""
    stamp = json.loads((out / "prepared.json").read_text(encoding="utf-8"))
    return stamp.get("dataset"), stamp.get("split"), stamp.get("limited")


@pytest.mark.parametrize("name", SCRIPTS + BY_DEPTH)
def test_help(repository: Path, tmp_path: Path, name: str) -> None:
    """Only what has raw files has the option for them."""
    result = run([*script(repository, name), "--help"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: {name}.sh")
    assert all(option in result.stdout for option in ("--limit N", "--out DIR"))
    assert ("--raw" in result.stdout) == (name in SCRIPTS)


def test_a_limit_that_empties_a_set(repository: Path, tmp_path: Path) -> None:
    """None of the ten lists of this seed is as short as those of the stage `first`."""
    words = [*script(repository, "listops_dependency"), "--seed", "5", "--limit", "1"]
    result = run([*words, "--out", "out"], tmp_path)
    sentence = "None of the training examples belongs to the set `first`: give a greater --limit."
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        2,
        f"listops_dependency.sh: error: {sentence}",
    )
    assert not list(tmp_path.iterdir())


def test_a_script_behind_a_link(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(repository / "data-prep" / "scan.sh")
    result = run(["bash", tmp_path / "mine", "--help"], tmp_path)
    assert result.returncode == 0 and result.stdout.startswith("usage: scan.sh")


def test_logical_inference(repository: Path, tmp_path: Path, samples: Path) -> None:
    """With fairseq-preprocess itself, in a fork, and a second time."""
    words = [*script(repository, "logical_inference"), "--split", "A", "--limit", "20"]
    words += ["--raw", str(samples / "logical_inference"), "--out", "out"]
    first = commands.run("sut-prepare", "logical_inference", *words[2:], cwd=tmp_path)
    out = tmp_path / "out"
    assert "test; published were 128,969 lines to train on, 37,367 test." in first.stdout
    command = f"sut-experiment train logical_inference --data {out.resolve()}"
    line = first.stdout.splitlines()[-1].replace(" --size small", "")  # which is without a GPU
    assert line.strip() == command
    assert "short is a part of train" in first.stdout
    assert "of short are in the training text" not in first.stdout
    train, short = (lines_of(out / "text" / f"{part}.src") for part in ("train", "short"))
    few = prepared(out)
    assert (few["train"], few["test"], few["short"]) == (20, 20, len(short))
    assert 0 < few["valid"] < 20 and 0 < few["heldout"] <= 20
    assert 0 < len(short) < 20 and set(short) < set(train)
    for part in ("valid", "test", "heldout"):
        assert columns(out, part) == {"operators", "A", "B", "C"}
        assert (out / f"{part}.src-tgt.src.bin").stat().st_size > 0
    assert not columns(out, "train")
    assert set(lines_of(out / "text" / "valid.A")) == {"no"}
    assert set(lines_of(out / "text" / "heldout.A")) == {"yes"}
    test = zip(*(lines_of(out / "text" / f"test.{c}") for c in ("src", "operators", "A")))
    for source, operators, matches in test:
        sides = [side.split() for side in source.split(" #SEP# ")]
        assert int(operators) == min(
            12, max(sum(side.count(word) for word in ("and", "or", "not")) for side in sides)
        )
        assert (matches == "yes") == ("( and ( not a ) )" in source)
    assert set(lines_of(out / "text" / "train.tgt")) == {*"=<>^|v#"}
    labels = Counter(line.split()[0] for line in lines_of(out / "dict.tgt.txt"))
    assert {*"=<>^|v#"} <= labels.keys()

    stamp = json.loads((out / "prepared.json").read_text())
    assert identity(out) == ("logical_inference", "A", True)
    # A folder that was made before it was named gets its name without being made anew.
    unnamed = {key: stamp[key] for key in ("made_from", "counts", "files")}
    (out / "prepared.json").write_text(json.dumps(unnamed))
    second = run(words, tmp_path)
    assert second.returncode == 0, second.stderr
    assert "is up to date" in second.stdout
    assert json.loads((out / "prepared.json").read_text()) == stamp


@pytest.mark.parametrize(
    ("name", "options", "sizes", "message"),
    [
        ("cogs", [], [9, 6, 6, 9], "gen; published were 24,155 train, 3,000 valid, 3,000 test"),
        ("pcfg", ["--split", "10k"], [9, 9, 9], "60 train, 10 valid, 10 test; published were"),
        ("cfq", ["--split", "mcd1"], [9, 4, 6], "14 train, 4 valid, 6 test; published were"),
        ("cfq", ["--split", "mcd2"], [9, 4, 6], "14 train, 4 valid, 6 test; published were"),
        (
            "listops",
            ["--train-file", "test_d8", "--test-file", "test_d14", "--valid-size", "12"],
            [10, 9, 9],  # each label is trained
            "ListOps test_d14: 50 test; published were 10,000 test.",
        ),
        ("scan", ["--split", "mcd1"], [9, 3, 9], "40 train, 3 valid, 12 test; published were"),
        ("scan", ["--split", "mcd2"], [9, 3, 9], "40 train, 12 test, 3 valid; published were"),
        (
            "scan",
            ["--split", "jump", "--valid-size", "5"],
            [9, 5, 9],
            "28 train, 12 test; published were 14,670 train, 7,706 test.",
        ),
        (
            "long_lookup_tables",
            [],
            [9, 7, 9],
            "long (published files): 70 train, 7 valid, 7 heldout_inputs, 7 heldout_compositions",
        ),
        ("long_lookup_tables", ["--split", "noisy"], [9, 7, 9], "published were 9,081 train, 475"),
    ],
    ids=["cogs", "pcfg", "cfq", "cfq official", "listops", "scan", "scan written out", "scan jump"]
    + ["long lookup tables", "noisy start"],
)
def test_samples(
    repository: Path,
    tmp_path: Path,
    samples: Path,
    name: str,
    options: list[str],
    sizes: list[int],
    message: str,
) -> None:
    """Each form in which a data set is published, from a few lines of it."""
    raw = samples / {"pcfg": "pcfg_set"}.get(name, name)
    words = [*script(repository, name), "--raw", str(raw), "--out", "out", *options]
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    result = run([*words, "--limit", "9"], tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert message in result.stdout
    found = prepared(tmp_path / "out")
    assert [found[part] for part in (*SPLITS, "gen") if part in found] == sizes
    assert identity(tmp_path / "out")[::2] == (name, True)


@pytest.mark.parametrize("split", ["mcd1", "mcd2"])
def test_a_size_for_the_validation_set_that_is_there(
    repository: Path, tmp_path: Path, samples: Path, split: str
) -> None:
    words = [*script(repository, "scan"), "--raw", str(samples / "scan"), "--split", split]
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    line = [*words, "--limit", "9", "--valid-size", "5", "--out", "out"]
    result = run(line, tmp_path, **environment)
    assert result.returncode == 2 and not (tmp_path / "out").exists()
    sentence = f"leave out --valid-size with --split {split}, which has a validation set of its own"
    assert sentence in result.stderr


def test_files_of_ones_own(repository: Path, tmp_path: Path) -> None:
    """Any words in SCAN's form; what train and test share is reported."""
    (tmp_path / "a").write_text("".join(f"IN: do {n} OUT: D{n}\n" for n in range(20)))
    (tmp_path / "b").write_text("IN: do 3 OUT: D3\nIN: do 99 OUT: D99\n")
    (tmp_path / "c").write_text("IN: do 7 OUT: D7\n")
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    words = [*script(repository, "scan"), "--train", "a", "--test", "b", "--out", "out"]
    taken = run([*words, "--valid-size", "5"], tmp_path, **environment)
    assert taken.returncode == 0, taken.stderr
    assert "SCAN, files of your own: 20 train, 2 test." in taken.stdout
    assert "overlap: 1 of the 2 test pairs are in the training set" in taken.stdout
    assert prepared(tmp_path / "out") == {"train": 15, "valid": 5, "test": 2}
    assert identity(tmp_path / "out") == ("scan", "own", None)
    stamp = json.loads((tmp_path / "out" / "prepared.json").read_text())
    assert stamp["options"] == ["--valid-size 5"]
    given = run([*words, "--valid", "c"], tmp_path, **environment)
    assert prepared(tmp_path / "out") == {"train": 20, "valid": 1, "test": 2}, given.stderr
    assert "is up to date" in run([*words, "--valid", "c"], tmp_path, **environment).stdout
    (tmp_path / "c").write_text("")
    assert_refused(run([*words, "--valid", "c"], tmp_path), "c is empty: give at least one line.")
    (tmp_path / "b").write_text("IN: do 3 OUT: D3\nIN: do\n")
    assert_refused(run(words, tmp_path), "b, line 2: expected `IN: <command> OUT: <actions>`")


@pytest.mark.parametrize(
    ("name", "options", "sizes", "column", "message"),
    [
        (
            "cogs",
            ["--raw", "{data}/cogs"],
            {"train": 24155, "valid": 3000, "test": 3000, "gen": 21000},
            "type",
            "COGS gen: 21 types, 1,000 in the smallest, 1,000 in the largest; the published sizes",
        ),
        (
            "pcfg",
            ["--raw", "{data}", "--split", "10k"],
            {"train": 7779, "valid": 457, "test": 916},
            "functions",
            "PCFG SET 10k: 7,779 train, 457 valid, 916 test; the published sizes agree.",
        ),
        (
            "listops",
            ["--raw", "{data}/listops", "--train-file", "test_d8", "--test-file", "test_d14"]
            + ["--test-file", "test_d20", "--limit", "70"],
            {"train": 70, "valid": 70, "test": 70, "test_d20": 70},
            "depth",
            "ListOps test_d20: 10,000 test_d20; the published sizes agree.",
        ),
        (
            "long_lookup_tables",
            ["--raw", "{data}/long_lookup_tables", "--split", "reverse"],
            {**PUBLISHED_SIZES, "test": 27_892},
            "attention tables set",
            "4,096 longer_new_5; the published sizes agree.",
        ),
    ],
    ids=["cogs", "pcfg", "listops", "long_lookup_tables"],
)
def test_published_files(
    repository: Path,
    tmp_path: Path,
    shared_data: Path,
    name: str,
    options: list[str],
    sizes: dict[str, int],
    column: str,
    message: str,
) -> None:
    words = [word.format(data=shared_data) for word in options]
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    result = run([*script(repository, name), *words, "--out", "out"], tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert message in result.stdout
    assert re.search(f"sut-experiment train {name} (--size small )?--data ", result.stdout)
    assert prepared(tmp_path / "out") == sizes
    expected = set(column.split())
    assert all(columns(tmp_path / "out", part) == expected for part in sizes if part != "train")
    split = {"pcfg": "10k", "listops": "nangia_bowman", "long_lookup_tables": "reverse"}.get(name)
    assert identity(tmp_path / "out") == (name, split, True if "--limit" in words else None)


@pytest.mark.parametrize(
    ("name", "split", "options", "sizes"),
    [
        (
            "scan",
            "cutoff_40",
            ["--cutoff", "40"],
            {"train": 18204, "valid": 500, "test": 128, "iid": 2078},
        ),
        ("scan", "addprim_jump", ["--split", "jump", "--limit", "9"], dict.fromkeys(SPLITS, 9)),
        ("listops", "lra", ["--limit", "12"], dict.fromkeys(SPLITS, 12)),
        (
            "listops",
            "generated",
            ["--sizes", "30", "20", "10", "--min-length", "9", "--max-length", "99"],
            {"train": 30, "valid": 20, "test": 10},
        ),
        (
            "long_lookup_tables",
            "noisy",
            ["--split", "noisy", "--limit", "12", "--seed", "7"],
            dict.fromkeys((*PUBLISHED_SIZES, "test"), 12),
        ),
        ("ctl", "forward", ["--limit", "11"], dict.fromkeys((*SPLITS, "valid_deep"), 11)),
        (
            "arithmetic",
            None,
            ["--sizes", "700", "60", "8", "9", "--test-depths", "7"],
            {"train": 700, "valid": 60, "valid_deep": 8, "test": 9},
        ),
    ],
    ids=["scan cut-off", "scan", "lra", "listops", "long_lookup_tables", "ctl", "arithmetic"],
)
def test_generated(
    repository: Path,
    tmp_path: Path,
    name: str,
    split: str | None,
    options: list[str],
    sizes: dict[str, int],
) -> None:
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    result = run([*script(repository, name), *options, "--out", "out"], tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert prepared(tmp_path / "out") == sizes
    assert identity(tmp_path / "out") == (name, split, True if "--limit" in options else None)
    experiment = "scan_cutoffs" if split == "cutoff_40" else name
    assert re.search(f"sut-experiment train {experiment} (--size small )?--data ", result.stdout)
    if split == "lra":
        assert set(lines_of(tmp_path / "out" / "text" / "train.tgt")) == {*"0123456789"}


@pytest.mark.parametrize("command", [["sut-prepare"], ["python", "-m", "sut_data"]])
def test_the_installed_command(tmp_path: Path, command: list[str]) -> None:
    """Without a checkout's doors, by its own name."""
    words = [str(Path(sysconfig.get_path("scripts"), command[0])), *command[1:]]
    words += ["ctl", "--limit", "11", "--out", "out"]
    result = run(words, tmp_path, **fake_fairseq(tmp_path, WRITE_INDICES))
    assert result.returncode == 0, result.stderr
    assert prepared(tmp_path / "out") == dict.fromkeys((*SPLITS, "valid_deep"), 11)
    assert_refused(run([*words, "--seed", "x"], tmp_path), "see `sut-prepare ctl --help`.")


def test_directions_of_ctl(repository: Path, tmp_path: Path) -> None:
    """The same samples in the same order, the words of each line the other way round."""
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    words = [*script(repository, "ctl"), "--seed", "5", "--sizes", "500", "50", "30", "20"]
    for direction in ("forward", "backward"):
        options = ["--direction", direction, "--out", direction]
        result = run([*words, *options], tmp_path, **environment)
        assert result.returncode == 0, result.stderr
        assert identity(tmp_path / direction) == ("ctl", direction, None)
        command = f"sut-experiment train ctl --data {(tmp_path / direction).resolve()}"
        line = result.stdout.splitlines()[-1].replace(" --size small", "")
        assert line.strip() == command
    forward, backward = tmp_path / "forward" / "text", tmp_path / "backward" / "text"
    sizes = {"train": 500, "valid": 50, "valid_deep": 30, "test": 20}
    assert prepared(forward.parent) == prepared(backward.parent) == sizes
    for part in sizes:
        assert columns(forward.parent, part) == (set() if part == "train" else {"depth"})
        for one, other in zip(
            lines_of(forward / f"{part}.src"), lines_of(backward / f"{part}.src")
        ):
            assert one.split() == other.split()[::-1]
        assert lines_of(forward / f"{part}.tgt") == lines_of(backward / f"{part}.tgt")


def test_listops_by_dependency_depth(repository: Path, tmp_path: Path) -> None:
    """The counts by depth that are printed are those of the folder."""
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    words = [*script(repository, "listops_dependency"), "--out", "out", "--test-depths", "7"]
    result = run([*words, "--sizes", "600", "50", "9", "8"], tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    out = tmp_path / "out"
    sizes = prepared(out)
    first = lines_of(out / "text" / "first.src")
    assert sizes == {"train": 600, "valid": 50, "valid_deep": 9, "test": 8, "first": len(first)}
    assert identity(out) == ("listops_dependency", None, None)
    rows = [line.split() for line in result.stdout.splitlines()[1:11]]
    assert rows[0] == ["depth", "train", "valid", "valid_deep", "test"]
    assert rows[1] == ["0", "10", "0", "0", "0"]
    assert rows[-2:] == [["7", "0", "0", "0", "8"], ["all", "600", "50", "9", "8"]]
    for index, part in enumerate(("valid", "valid_deep", "test"), start=2):
        found = Counter(lines_of(out / "text" / f"{part}.depth"))
        assert found == Counter(
            {row[0]: int(row[index]) for row in rows[1:-1] if row[index] != "0"}
        )
    assert set(lines_of(out / "text" / "train.tgt")) == {*"0123456789"}
    train = lines_of(out / "text" / "train.src")
    assert 0 < len(first) < 600 and set(first) < set(train)
    alone = re.compile(r"\[((MIN|MAX|MED) \d \d|SM( \d)+) \]")
    assert {line for line in train if alone.fullmatch(line)} < set(first)
    pairs = [line for line in first if not alone.fullmatch(line)]
    assert pairs and not any(re.search(r"\d \d \d", line) for line in pairs)


def test_a_second_run_costs_nothing(repository: Path, tmp_path: Path) -> None:
    """Nothing is generated or read again, but what killed runs left is deleted.

    Other options, or a lost file, are noticed.
    """
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    words = [*script(repository, "listops"), "--sizes", "9", "9", "9", "--out", "out"]
    words += ["--min-length", "1100", "--max-length", "1300"]
    first = run(words, tmp_path, **environment)
    assert first.returncode == 0, first.stderr
    assert "seed 1: 9 train, 9 valid, 9 test." in first.stdout
    longest = max(
        int(row.split()[2]) for row in first.stdout.splitlines() if row.startswith(SPLITS)
    )
    assert first.stdout.endswith(f"/out -- --max-source-positions {longest + 1}\n")
    for purpose in ("text", "partial", "old"):  # of killed runs: no process has this number
        (tmp_path / f".out.{purpose}-{2**22 + 1}").mkdir()
    second = run([*words, "--processes", "1"], tmp_path, **environment)
    assert second.returncode == 0, second.stderr
    assert "seed 1" not in second.stdout and "out is up to date" in second.stdout
    assert not [*tmp_path.glob(".out.*")]
    assert second.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert "seed 2" in run([*words, "--seed", "2"], tmp_path, **environment).stdout
    (tmp_path / "out" / "dict.src.txt").unlink()
    third = run([*words, "--seed", "2"], tmp_path, **environment).stdout
    assert "seed 2" in third and "out is ready" in third


def test_cfq(repository: Path, tmp_path: Path) -> None:
    """The official form; sizes other than the published ones pass with a limit only."""
    (tmp_path / "raw" / "splits").mkdir(parents=True)
    (tmp_path / "raw" / "dataset.json").write_text(json.dumps([CFQ_ENTRY] * 5), encoding="utf-8")
    split = {"trainIdxs": [0, 1, 2], "devIdxs": [3], "testIdxs": [4]}
    path = tmp_path / "raw" / "splits" / "random_split.json"
    path.write_text(json.dumps(split), encoding="utf-8")
    environment = fake_fairseq(tmp_path, WRITE_INDICES)
    words = [*script(repository, "cfq"), "--split", "random", "--raw", "raw", "--out", "out"]
    result = run(words, tmp_path, **environment)
    assert_refused(result, "has 3 train, 1 test, but was published with 95,744 train, 11,967 test")
    assert not (tmp_path / "out").exists()

    result = run([*words, "--limit", "2"], tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert "mean 15.0, at most 15 as published; mean 12.0, at most 12 as targets" in result.stdout
    assert prepared(tmp_path / "out") == {"train": 2, "valid": 1, "test": 1}
    assert lines_of(tmp_path / "out" / "text" / "test.query_length") == ["15"]
    assert lines_of(tmp_path / "out" / "text" / "test.tgt") == [
        "SELECT count ( * ) WHERE { M0 p.q ?x0 M1 }"
    ]

    result = run([*words, "--limit", "2", "--no-simplify"], tmp_path, **environment)
    assert lines_of(tmp_path / "out" / "text" / "test.tgt") == [
        "SELECT count ( * ) WHERE { M0 p.q ?x0 . M0 p.q M1 }"
    ]


def test_lost_lines_are_noticed(repository: Path, tmp_path: Path, samples: Path) -> None:
    raw = str(samples / "cogs")
    result = run([*script(repository, "cogs"), "--raw", raw, "--out", "out"], tmp_path)
    assert_refused(result, "6 test, 12 gen, but was published with 24,155 train, 3,000")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("cfq", ["--raw", "."], "--raw . has neither dataset.json nor cfq1.1.tar.gz"),
        ("cogs", ["--raw", "."], "--raw . has neither train.tsv nor train.tsv.gz"),
        ("cogs", ["--raw", "absent"], "--raw absent is not a folder"),
        ("cogs", ["--raw", ".", "--limit", "0"], "must be a whole number of at least 1"),
        ("cogs", [], "the following arguments are required: --out"),
        ("cogs", ["--exposures", "0"], "--exposures: must be a whole number of at least 1"),
        ("cogs", ["--exposures", "1001"], "--exposures must be at most 1,000, but is 1,001"),
        ("pcfg", ["--raw", ".", "--split", "mcd1"], "invalid choice: 'mcd1'"),
        ("scan", ["--cutoff", "48"], "--cutoff must be between 1 and 47 actions, but is 48"),
        ("scan", ["--cutoff", "3", "--split", "length"], "not allowed with argument"),
        (
            "scan",
            ["--split", "mcd1"],
            "--split mcd1 follows from no rule, so it needs --raw DIR",
        ),
        ("scan", ["--train", "a"], "files of your own need both --train and --test"),
        ("scan", ["--valid", "a"], "files of your own need both --train and --test"),
        ("scan", ["--train", "a", "--split", "jump"], "not allowed with argument"),
        (
            "scan",
            ["--train", "a", "--test", "b"],
            "--train a: there is no such file; check its path",
        ),
        ("scan", ["--train", "a", "--test", "b", "--raw", "."], "--raw is for published files"),
        ("listops", ["--min-length", "9", "--max-length", "10"], "--max-length 10: expressions"),
        ("listops", ["--train-file", "test_d8"], "--train-file and --test-file need --raw"),
        ("listops", ["--valid-size", "5"], "leave out --valid-size without --raw: --sizes has"),
        (
            "listops",
            ["--raw", ".", "--seed", "3", "--processes", "2"],
            "leave out --seed and --processes with --raw, which reads expressions",
        ),
        (
            "long_lookup_tables",
            ["--raw", ".", "--seed", "3"],
            "leave out --seed with --raw, which reads tables and generates none",
        ),
        (
            "pcfg",
            ["--raw", ".", "--split", "10k", "--valid-size", "5"],
            "leave out --valid-size with --split 10k, which has a validation set of its own",
        ),
        (
            "scan",
            ["--train", "a", "--test", "b", "--valid", "c", "--valid-size", "5"],
            "leave out --valid-size with --valid, which is all of the validation set",
        ),
        ("ctl", ["--direction", "up"], "invalid choice: 'up' (choose from"),
        ("ctl", ["--raw", "."], "unrecognized arguments: --raw ."),
        ("ctl", ["--sizes", "300", "20", "3", "2"], "no room for all 72 of depth 1: give more"),
        ("ctl", ["--sizes", "9", "9"], "expected 4 arguments"),
        ("ctl", ["--sizes", "9999999", "9", "9", "9"], "only 531,432 different ones exist"),
        ("arithmetic", ["--sizes", "10", "60", "1", "1"], "leaves nothing to train on"),
        ("arithmetic", ["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        ("listops_dependency", ["--test-depths", "9"], "invalid choice: 9 (choose from 7, 8)"),
        ("listops_dependency", ["--processes", "0"], "must be a whole number of at least 1"),
        (
            "listops",
            ["--raw", ".", "--train-file", "a", "--test-file", "a"],
            "a, a: each file can be used once",
        ),
        (
            "listops",
            ["--raw", ".", "--test-file", "a", "--test-file", "test"],
            "--test-file test: there is a set of that name; choose another one.",
        ),
        (
            "listops",
            ["--raw", ".", "--test-file", "a", "--test-file", "b.c"],
            "--test-file `b.c`: a name may hold letters, digits, _ and - only.",
        ),
    ],
)
def test_bad_options(
    tmp_path: Path,
    name: str,
    options: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one process: `test_help` shows that each script hands its options to `main`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its handlers
    out = ["--out", "out"] if options else []
    line = [f"{name}.sh", *options, *out]
    assert_refused(in_process(line, capsys), sentence)
    assert not list(tmp_path.iterdir())


def in_process(line: list[str], capsys: pytest.CaptureFixture[str]) -> Completed:
    """Run a script's Python."""
    try:
        status = main(line)
    except SystemExit as ending:
        status = int(ending.code or 0)
    printed = capsys.readouterr()
    return Completed(line, status, printed.out, printed.err)


def test_a_killed_run_leaves_nothing_trusted(repository: Path, tmp_path: Path) -> None:
    """Killed while fairseq works: politely, then hard; another run then makes the folder."""
    work = tmp_path / "work"
    work.mkdir()
    words = [*script(repository, "scan"), "--limit", "3", "--out", "out"]
    environment = {**os.environ, **fake_fairseq(tmp_path, WAIT)}
    for how, left_over in ((signal.SIGTERM, 0), (signal.SIGKILL, 2)):  # raw text and result
        process = subprocess.Popen(
            words, cwd=work, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 30
        while not list(work.glob(".out.partial-*/waiting")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        if how == signal.SIGTERM:
            process.terminate()  # the program alone; it must stop what it has started
        else:
            os.killpg(process.pid, how)
        assert process.wait() != 0
        assert len(list(work.iterdir())) == left_over
        assert not (work / "out").exists()

    shutil.rmtree(tmp_path / "fake")
    result = run(words, work, **fake_fairseq(tmp_path, WRITE_INDICES))
    assert result.returncode == 0, result.stderr
    assert prepared(work / "out") == {"train": 3, "valid": 3, "test": 3}
    assert os.listdir(work) == ["out"]
