"""What the data-set programs share: where files come from, counts, and the text they write."""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

import pytest

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders import raw_files
from sut_data.kit import by_depth, preparation
from sut_data.kit import examples as dataset
from sut_data.kit.examples import Example
from sut_data.sets.scan import command as scan


def test_checksums_are_those_of_the_files(shared_data: Path) -> None:
    """Each published file on disk has the checksum that a download of it must have."""
    compared = 0
    for data_set in ("cogs", "logical_inference", "pcfg_set"):
        for name, checksum in raw_files.checksums(data_set).items():
            text = "".join(
                f"{line}\n" for line in read_lines(shared_data / data_set / f"{name}.gz")
            )
            assert hashlib.sha256(text.encode()).hexdigest() == checksum, name
            compared += 1
    assert compared == 4 + 20 + 24


def test_checksums_are_well_formed() -> None:
    """One for each file; every data set of the list is one that is downloaded by it."""
    lines = [line for line in read_lines(raw_files.CHECKSUMS) if not line.startswith("#")]
    names = [line[66:] for line in lines]
    assert len(set(names)) == len(names) > 50
    assert all(re.fullmatch(r"[0-9a-f]{64}  \w+/[\w./-]+", line) for line in lines)
    sets = {name.partition("/")[0] for name in names}
    assert sets == {"cogs", "logical_inference", "multi30k", "pcfg_set", "wmt14"}
    assert sum(len(raw_files.checksums(data_set)) for data_set in sets) == len(names)


def test_downloads_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not among the packages, where nobody looks, but where the user stands."""
    assert raw_files.checkout() == Path(__file__).resolve().parents[4]
    monkeypatch.setattr(raw_files, "PACKAGE", tmp_path / "lib" / "site-packages" / "sut_data")
    monkeypatch.chdir(tmp_path)
    assert raw_files.checkout() is None
    assert raw_files.downloads() == tmp_path / "data-bin" / "downloads"


def test_files_are_downloaded_with_their_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch(url: str, destination: Path, sha256: str | None, *, of_content: bool) -> Path:
        calls.append((url, sha256, of_content))
        return destination

    monkeypatch.setattr(raw_files, "fetch", fetch)
    urls = {"train.tsv": "https://host/a", "other/new.tsv": "https://host/b"}
    files = raw_files.obtain(None, "cogs", urls)
    folder = raw_files.downloads() / "cogs"
    assert files == {name: folder / name for name in urls}
    known = raw_files.checksums("cogs")["train.tsv"]
    assert calls == [("https://host/a", known, False), ("https://host/b", None, False)]
    name = "train.en"
    files = raw_files.obtain(None, "multi30k", {name: "https://host/c.gz"})
    assert files == {name: raw_files.downloads() / "multi30k" / "train.en.gz"}
    assert calls[2] == ("https://host/c.gz", raw_files.checksums("multi30k")[name], True)


def test_files_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/x.tsv", "b/y.tsv", "y.tsv.gz"):
        (tmp_path / name).touch()
    files = raw_files.obtain(tmp_path, "cogs", {"x.tsv": "", "y.tsv": ""})
    assert files == {"x.tsv": tmp_path / "b" / "x.tsv", "y.tsv": tmp_path / "y.tsv.gz"}
    with pytest.raises(InputError, match="has neither z.tsv nor z.tsv.gz"):
        raw_files.find(tmp_path, "z.tsv")
    with pytest.raises(InputError, match="is not a folder: give the one that holds z.tsv"):
        raw_files.find(tmp_path / "y.tsv.gz", "z.tsv")


def test_a_limit_keeps_the_same_random_examples() -> None:
    examples = [Example(f"s{n}", "t", (str(n),)) for n in range(100)]
    parts = dataset.cut({"train": examples, "test": examples[:3]}, 10)
    assert len(parts["train"]) == 10 and len(parts["test"]) == 3
    assert set(parts["train"]) < set(examples)
    assert parts["train"] != examples[:10]
    assert parts["train"] == dataset.cut({"train": examples[::-1]}, 10)["train"]
    assert dataset.cut(parts, None) is parts


def test_a_limit_keeps_copies_as_other_examples() -> None:
    """SCAN's splits repeat one pair thousands of times: neither all copies go nor all stay."""
    others = [Example(f"s{n}", "t") for n in range(1_000)]
    parts = {"train": [Example("jump", "t")] * 100 + others}
    kept = dataset.cut(parts, 550)["train"]
    assert 35 < kept.count(Example("jump", "t")) < 65


def test_a_limit_keeps_every_label() -> None:
    train = [Example(f"s{n}", "common") for n in range(50)]
    train += [Example(f"r{n}", f"rare {n % 3}") for n in range(6)]
    parts = {"train": train, "test": train[::-1]}
    for limit in (1, 4, 5, 20, 100):
        kept = dataset.cut(parts, limit, labels=True)
        assert len(kept["train"]) == len(set(kept["train"])) == min(max(limit, 4), len(train))
        assert {example.target for example in kept["train"]} == {e.target for e in train}
        assert kept["test"] == dataset.cut(parts, limit)["test"]
    # Of each label, the example that comes first in the random order.
    assert set(dataset.cut(parts, 20, labels=True)["train"]) > {
        next(e for e in dataset.keyed_order(train, "limit") if e.target == label)
        for label in ("common", "rare 0", "rare 1", "rare 2")
    }


def test_text_of_the_parts(tmp_path: Path) -> None:
    example = Example("a b", "c", ("1", "yes"))
    parts = {"train": [example] * 2, "valid": [example], "test": [example], "gen": [example]}
    inputs = dataset.write_text(tmp_path, parts, ["size", "kind"])
    names = {f"{part}.{name}" for part in parts for name in ("src", "tgt", "size", "kind")}
    names -= {"train.size", "train.kind"}
    assert inputs.files() == {name: tmp_path / name for name in names}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert list(inputs.pairs) == list(parts)
    assert (tmp_path / "train.src").read_text() == "a b\na b\n"
    assert (tmp_path / "gen.tgt").read_text() == "c\n"
    assert (tmp_path / "gen.kind").read_text() == "yes\n"


@pytest.mark.parametrize(
    ("published", "message"),
    [
        ({"train": 1200, "test": 34}, "set: 1,200 train, 34 test; the published sizes agree."),
        ({"test": 34}, "set: 1,200 train, 34 test; the published sizes agree (compared: test)."),
        ({"other": 5}, "set: 1,200 train, 34 test."),
        ({}, "set: 1,200 train, 34 test."),
    ],
)
def test_only_sizes_that_were_compared_agree(
    published: dict[str, int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset.check_counts("set", {"train": 1200, "test": 34}, published, None)
    assert capsys.readouterr().out == message + "\n"


@pytest.mark.parametrize("train", [[], ["a"], ["a", "b", "b"], ["b", "b"]])
def test_a_training_set_too_small_to_take_from(train: list[str]) -> None:
    parts = {"train": [Example(word, word) for word in train]}
    once = sum(train.count(word) == 1 for word in train)
    with pytest.raises(InputError) as refused:
        dataset.take_validation(parts, 500, "give --valid FILE")
    assert str(refused.value) == (
        f"no pair of the training set can be spared for validation: {once} of its {len(train)} "
        "occur only once, and at least 2 are needed; give --valid FILE."
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("--limit 5 --cutoff 24", []),
        ("--split length --raw elsewhere", []),
        ("--valid-size 9", ["--valid-size 9"]),
        ("--sizes 900 9 9 9 --test-depths 7", ["--sizes 900 9 9 9", "--test-depths 7"]),
        ("--seed 3 --sizes 2 2 2 2 --test-depths 8 7 8", []),
    ],
)
def test_options_that_make_other_sets_are_named(line: str, expected: list[str]) -> None:
    """Neither the split, which the stamp has, nor a seed, nor --limit, which is there by itself."""
    by_depth_options = by_depth.make_parser("p", "", by_depth.Sizes(2, 2, 2, 2), "")
    by_depth.add_test_depths(by_depth_options, (7, 8))
    parser = by_depth_options if "--sizes" in line else scan.make_options("p")
    args = parser.parse_args([*line.split(), "--out", "o"])
    assert preparation.own_options(args) == expected


def test_a_recipe_is_files_and_options(tmp_path: Path) -> None:
    def recipe(files: dict[str, str], name: str = "scan", **options: object) -> str:
        for file, content in files.items():
            (tmp_path / file).write_text(content)
        paths = [tmp_path / file for file in files]
        return preparation.recipe(name, argparse.Namespace(**options), paths)

    first = recipe({"a": "x", "b": "y"}, seed=1, out=Path("o"), raw=None, processes=2)
    assert first == recipe({"a": "x", "b": "y"}, seed=1, out=Path("p"), raw=Path("r"), processes=1)
    others = [
        recipe({"a": "x", "b": "z"}, seed=1),
        recipe({"a": "x"}, seed=1),
        recipe({"a": "x", "c": "y"}, seed=1),
        recipe({"a": "x", "b": "y"}, seed=2),
        recipe({"a": "x", "b": "y"}, seed=1, limit=None),
        recipe({"a": "x", "b": "y"}, "cogs", seed=1),
    ]
    assert len({first, *others}) == 7
