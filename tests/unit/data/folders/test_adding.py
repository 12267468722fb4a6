"""Evaluation sets that are added to a prepared folder: what they hold, and all or nothing."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from multiprocessing import Process
from pathlib import Path
from typing import Any

import pytest

from sut_data.errors import InputError
from sut_data.folders import adding, making
from sut_data.folders.binarise import LOG
from sut_data.folders.making import make_folder
from sut_data.folders.prepared import (
    added_sets,
    alone,
    hidden_folder,
    is_whole,
    read_stamp,
    without_added,
    write_stamp,
)
from sut_data.main import main
from sut_data.text.pairs import SIDES, Inputs
from sut_data.text.treatment import Counts, Treatment

TEXT = {
    "train": (["ein Hund läuft .", "eine Katze schläft .", "der Hund bellt (laut) ."] * 4,
              ["a dog runs .", "a cat sleeps .", "the dog barks (loudly) ."] * 4),
    "valid": (["ein Hund bellt ."], ["a dog barks ."]),
    "test": (["eine Katze läuft ."], ["a cat runs ."]),
    "more": (["der Esel  schläft .", "die Katze bellt (laut) ."],
             ["the donkey sleeps .", "the cat (zzz) barks ."]),
    "others": (["Hund"], ["dog"]),
}  # fmt: skip
TREATMENTS = {
    "words": Treatment(),
    "one dictionary": Treatment(joined=True),
    "symbols": Treatment(subwords="symbols"),
    "BPE": Treatment(joined=True, subwords="bpe", size=20, languages=("de", "en")),
    "BPE of each side": Treatment(subwords="bpe", size=20, max_length=9, max_ratio=2.0),
    "sentencepiece": Treatment(joined=True, subwords="sentencepiece", size=40),
    "tokens": Treatment(languages=("de", "en"), tokenized=True),
}


def binarised(
    folder: Path,
    splits: Iterable[str],
    joined: bool,
    workers: int,
    prepared: Path | None = None,
) -> None:
    """What stands for fairseq-preprocess: its log, dictionaries as it writes them, and rows."""
    (folder / LOG).write_text("done\n")
    words: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    for split, side in product(splits, SIDES):
        text = (folder / "text" / f"{split}.{side}").read_text(encoding="utf-8")
        if split == "train":
            words[side].update(text.split())
        index = struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, 4, text.count("\n"))
        (folder / f"{split}.src-tgt.{side}.idx").write_bytes(index)
        (folder / f"{split}.src-tgt.{side}.bin").write_bytes(text.encode())
    for side in SIDES:
        counts = words["src"] + words["tgt"] if joined else words[side]
        lines = [f"{word} {number}\n" for word, number in counts.items()]
        dictionary = "".join([*lines, "madeupword0000 0\n"])
        if prepared is not None:
            dictionary = (prepared / f"dict.{side}.txt").read_text(encoding="utf-8")
        (folder / f"dict.{side}.txt").write_text(dictionary, encoding="utf-8")


@pytest.fixture(autouse=True)
def without_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "binarise", binarised)
    monkeypatch.setattr(adding, "binarise", binarised)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path / "text"
    folder.mkdir()
    pairs = {}
    for split, sides in TEXT.items():
        for side, lines in zip(SIDES, sides):
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        pairs[split] = (folder / f"{split}.src", folder / f"{split}.tgt")
    return pairs


Files = dict[str, tuple[Path, Path]]


def inputs_of(files: Files, *names: str) -> Inputs:
    return Inputs({name: files[name] for name in names}, {})


@pytest.fixture
def out(files: Files, tmp_path: Path) -> Path:
    """A folder of words with train, valid and test."""
    made = tmp_path / "made" / "out"
    make_folder(made, inputs_of(files, "train", "valid", "test"), Treatment(), {"split": "a"})
    return made


def content(folder: Path) -> dict[str, bytes]:
    """All that is in a folder and beside it."""
    paths = [path for path in folder.parent.rglob("*") if path.is_file()]
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("treatment", TREATMENTS.values(), ids=TREATMENTS)
def test_it_is_as_if_prepared_from_the_start(
    treatment: Treatment, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "kinds").write_text("one\ntwo\n")
    column = {("more", "kind"): tmp_path / "kinds"}
    base = inputs_of(files, "train", "valid", "test")
    whole = Inputs(inputs_of(files, *TEXT).pairs, column)
    later, first = tmp_path / "later", tmp_path / "first"
    make_folder(later, base, treatment, {})
    expected = make_folder(first, whole, treatment, {})
    added = adding.add(later, Inputs(inputs_of(files, "more").pairs, column))
    more = adding.add(later, inputs_of(files, "others"))

    made = {path.relative_to(first): path.read_bytes() for path in first.rglob("*.*")}
    del made[Path("prepared.json")]
    for path, expected_bytes in made.items():
        assert (later / path).read_bytes() == expected_bytes, path
    assert len(made) == len([*later.rglob("*.*")]) - 1
    assert {**added, **more} == {name: expected["counts"][name] for name in ("more", "others")}
    assert added["more"].unknown_src > 0 and added["more"].unknown_tgt > 0
    assert added["more"].unreachable >= 1

    # Either command finds the folder up to date, and keeps what the stamp says of it.
    stamp = read_stamp(later)
    assert stamp is not None and is_whole(later, stamp)
    assert {name: Counts(*row) for name, row in stamp["counts"].items()} == expected["counts"]
    assert stamp["files"] == expected["files"]
    for inputs in (base, whole):
        make_folder(later, inputs, treatment, {})
        assert read_stamp(later) == stamp


def test_what_was_added_is_told_apart(out: Path, files: Files) -> None:
    before = read_stamp(out)
    assert before is not None and without_added(before) == before
    adding.add(out, inputs_of(files, "more"))
    after = read_stamp(out)
    assert after is not None and added_sets(after) == {"more"}
    assert without_added(after) == before
    assert set(after["files"]) - set(before["files"]) == {
        *(f"more.src-tgt.{side}.{end}" for side in SIDES for end in ("bin", "idx")),
        *(f"text/more.{side}" for side in SIDES),
    }


def test_another_treatment_would_lose_it(out: Path, files: Files) -> None:
    adding.add(out, inputs_of(files, "more"))
    before = content(out)
    three = ("train", "valid", "test")
    with pytest.raises(InputError, match="has the set more, which was added to it: move the fold"):
        make_folder(out, inputs_of(files, *three), Treatment(joined=True), {})
    assert content(out) == before
    make_folder(out, inputs_of(files, *three, "more"), Treatment(joined=True), {})
    stamp = read_stamp(out)
    assert stamp is not None and "also" not in stamp and "more" in stamp["counts"]


@pytest.mark.parametrize("meanwhile", ["a set", "a file", "another folder", "nothing"])
def test_what_is_put_into_a_folder_while_it_is_made_anew_is_kept(
    meanwhile: str,
    out: Path,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def changing(*arguments: Any, **more: Any) -> None:
        binarised(*arguments, **more)
        if meanwhile == "a set":
            adding.add(out, inputs_of(files, "more"))
        elif meanwhile == "a file":
            (out / "notes").write_text("mine")
        elif meanwhile == "another folder":
            (out / "prepared.json").unlink()

    monkeypatch.setattr(making, "binarise", changing)
    made = making.make_folder(
        out, inputs_of(files, "train", "valid", "test"), Treatment(joined=True), {}
    )
    assert read_stamp(out) == json.loads(json.dumps(made))
    earlier = out.with_name("out.earlier")
    names = {"out"} if meanwhile == "nothing" else {"out", "out.earlier"}
    assert set(os.listdir(out.parent)) == names
    said = f"While {out} was made anew, it changed: the earlier folder is kept as {earlier}."
    assert (said in capsys.readouterr().out) == (meanwhile != "nothing")
    kept = {"a set": "more.src-tgt.src.bin", "a file": "notes", "another folder": "dict.src.txt"}
    assert meanwhile == "nothing" or (earlier / kept[meanwhile]).is_file()


def test_folders_that_cannot_be_replaced(
    out: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "below").mkdir()
    monkeypatch.chdir(out / "below")
    with pytest.raises(InputError, match="it is the current folder or has it inside: run the"):
        make_folder(out, inputs_of(files, "train", "valid", "test"), Treatment(joined=True), {})
    adding.add(out, inputs_of(files, "more"))
    sentence = "/proc is a mount point, which cannot be replaced: name a folder in it"
    with pytest.raises(InputError, match=sentence), hidden_folder(Path("/proc"), "partial"):
        raise AssertionError("it was not refused")


def test_a_full_disk_is_told_with_its_place(
    out: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(making, "binarise", full)
    before = content(out)
    with pytest.raises(OSError, match=rf"No space left on device: '{out}'"):
        make_folder(out, inputs_of(files, "train", "valid", "test"), Treatment(joined=True), {})
    assert content(out) == before


def failing(number: int, error: BaseException) -> Callable[[Path, Path], Path]:
    """`Path.rename` that fails when it is called for the nth time."""
    calls = iter(range(1, 1000))
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if next(calls) == number:
            raise error
        return rename(path, target)

    return fail


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("error", [OSError("no room"), KeyboardInterrupt()], ids=["OS", "Ctrl-C"])
def test_a_failure_while_it_is_put_in_place(
    number: int, error: BaseException, out: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(out)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing(number, error))
        with pytest.raises(type(error)):
            adding.add(out, inputs_of(files, "more"))
    assert content(out) == before
    adding.add(out, inputs_of(files, "more"))


@pytest.mark.parametrize("part", ["prepare_text", "binarise", "check_binarised", "write_stamp"])
def test_a_failure_of_a_part(
    part: str, out: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = content(out)
    monkeypatch.setattr(adding, part, fail)
    with pytest.raises(KeyboardInterrupt):
        adding.add(out, inputs_of(files, "more"))
    assert content(out) == before


def add_and_die(out: Path, inputs: Inputs, number: int) -> None:
    """Add sets, and end as SIGKILL does at the nth renaming, of files or of the stamp."""
    calls = iter(range(1, 1000))

    def dying(original: Callable[..., Path]) -> Callable[..., Path]:
        def call(*arguments: Any) -> Path:
            if next(calls) == number:
                os._exit(9)
            return original(*arguments)

        return call

    Path.rename = dying(Path.rename)  # type: ignore[method-assign]
    Path.replace = dying(Path.replace)  # type: ignore[method-assign]
    adding.add(out, inputs)
    os._exit(0)


@pytest.mark.parametrize("number", range(1, 9))
def test_killed_while_it_is_put_in_place(number: int, out: Path, files: Files) -> None:
    """Six files, then the stamp; the next look at the folder finds it as it was."""
    before = content(out)
    child = Process(target=add_and_die, args=(out, inputs_of(files, "more"), number))
    child.start()
    child.join()
    assert child.exitcode == (9 if number <= 7 else 0)
    stamp = read_stamp(out)
    assert stamp is not None and is_whole(out, stamp)
    if number > 7:
        assert "more" in stamp["counts"]
        return
    inside = {name: text for name, text in content(out).items() if name.startswith("out/")}
    assert {name: text for name, text in inside.items() if "out/." not in name} == before
    adding.add(out, inputs_of(files, "more"))
    assert os.listdir(out.parent) == ["out"]
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_a_journal_deletes_nothing_else(out: Path, files: Files) -> None:
    adding.add(out, inputs_of(files, "more"))
    before = content(out)
    dead = 2**22 + 1  # above the largest process number of Linux
    for text in ('["more", "train", "../text", "own"]', "[", "7", '[["a"]]'):
        (out / f".{dead}-added.json").write_text(text)
        (out / "notes.own").write_text("mine")
        read_stamp(out)
        assert content(out) == {**before, "out/notes.own": b"mine"}, text
    assert (files["train"][0]).exists()


def test_two_at_a_time(out: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(out), pytest.raises(InputError, match="another process is adding a set"):
        adding.add(out, inputs_of(files, "more"))

    def changing(*arguments: Any, **more: Any) -> None:
        binarised(*arguments, **more)
        stamp = read_stamp(out)
        assert stamp is not None
        write_stamp(out, {**stamp, "recipe": "another"})

    monkeypatch.setattr(adding, "binarise", changing)
    with pytest.raises(InputError, match="has been changed by another process: try again"):
        adding.add(out, inputs_of(files, "more"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("more absent {text}/more.tgt", "the set more names absent, which does not exist"),
        ("more {text} {text}/more.tgt", "which is not a file: give a text file"),
        ("more {text}/more.src {text}/test.tgt", "more.src has 2 lines but {text}/test.tgt has 1"),
        ("more {text}/blank {text}/more.tgt", "blank, line 2 is blank: every sentence needs"),
        ("more {text}/more.src {text}/end", "pair 2 of more has the word `</s>` on its target"),
        ("train {text}/more.src {text}/more.tgt", "whose names begin with train or valid"),
        ("valid2 {text}/more.src {text}/more.tgt", "whose names begin with train or valid"),
        ("test {text}/more.src {text}/more.tgt", "the name test: there is a set of that name"),
        ("dict {text}/more.src {text}/more.tgt", "has a file dict.src.txt already: choose another"),
        ("own {text}/more.src {text}/more.tgt", "has a file own.txt already: choose another name"),
        ("a.b {text}/more.src {text}/more.tgt", "a name may hold letters, digits, _ and - only"),
        ("../a {text}/more.src {text}/more.tgt", "a name may hold letters, digits, _ and - only"),
        ("more {text}/more.src {text}/more.tgt others", "each set needs three words, NAME SRC TGT"),
        ("a {text}/more.src {text}/more.tgt a {text}/others.src {text}/others.tgt",
         "the name a: there is a set of that name"),
        ("a {text}/more.src {text}/more.tgt --column test kind {text}/blank",
         "--column test: there is no such set; those given are a."),
        ("a {text}/more.src {text}/more.tgt --column a kind {text}/others.src",
         "others.src has 1 values but its split has 2 pairs"),
    ],
)  # fmt: skip
def test_refusals(
    words: str, sentence: str, out: Path, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence each, and the folder stays as it was."""
    text = files["test"][0].parent
    (text / "blank").write_text("a\n \n")
    (text / "end").write_text("a\nb </s> c\n")
    (out / "own.txt").touch()
    before = content(out)
    try:
        status = main(["also", str(out), *words.format(text=text).split()])
    except SystemExit as ending:
        status = int(str(ending.code))
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2 and line.startswith("sut-prepare also: error: ")
    assert sentence.format(text=text) in line
    assert content(out) == before


def test_folders_that_cannot_be_added_to(
    out: Path, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path) -> str:
        assert main(["also", str(folder), "more", *map(str, files["more"])]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "is not a folder that `sut-prepare` made: make one first" in refused(out.parent)
    assert "is not a folder that `sut-prepare` made: make one first" in refused(out / "absent")
    lost = (out / "text" / "train.src").rename(out.parent / "lost")
    assert "lacks files that were in it: make it again" in refused(out)
    lost.rename(out / "text" / "train.src")
    stamp = json.loads((out / "prepared.json").read_text())
    for languages in (None, ["de"]):
        edited = {**stamp, "made_from": {**stamp["made_from"], "languages": languages}}
        (out / "prepared.json").write_text(json.dumps(edited))
        assert "prepared.json was changed by hand: make the folder again" in refused(out)
    stamp["made_from"]["layout"] = 1
    (out / "prepared.json").write_text(json.dumps(stamp))
    assert "was made by another version of this program: make it again" in refused(out)


def test_what_is_said(out: Path, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    line = [str(part) for name in ("more", "others") for part in (name, *files[name])]
    assert main(["also", str(out), *line]) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    assert said.splitlines()[1] == "more        2            5            5   2 src, 2 tgt"
    assert "warning: 2 of 2 references of more have a word that the training text lacks" in said
    assert said.splitlines()[-1].startswith(f"{out} now has `more`, `others` (")
    with hidden_folder(out, "also"):
        pass
    assert os.listdir(out.parent) == ["out"]
