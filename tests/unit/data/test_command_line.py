"""The parser, the ends of commands, files written whole, and tables."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sut_data.command_line import Parser, run_command, seed, whole_number
from sut_data.errors import InputError, check_choice
from sut_data.files import (
    check_can_make,
    check_writable,
    is_abandoned,
    leftovers,
    own_mark,
    write_whole,
    written_whole,
)
from sut_data.folders.prepared import hidden_folder
from sut_data.main import main, set_files, summary
from sut_data.tables import table

DEAD = 2**22 + 1  # above the largest process number of Linux


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "²", "٣"])
def test_only_whole_numbers_from_1_on(text: str) -> None:
    assert whole_number("12") == 12
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number of at least 1"):
        whole_number(text)


@pytest.mark.parametrize("digits", [19, 5000])
def test_whole_numbers_that_nothing_can_hold(digits: int) -> None:
    assert whole_number("9" * 18) == 10**18 - 1
    with pytest.raises(argparse.ArgumentTypeError, match=f"at most 18 digits, but has {digits}"):
        whole_number("9" * digits)


@pytest.mark.parametrize("text", ["9" * 20, "-" + "9" * 20, "9" * 5000, "1.5", "one", ""])
def test_only_seeds_that_torch_takes(text: str) -> None:
    assert [seed("12"), seed("-3"), seed(str(2**63 - 1))] == [12, -3, 2**63 - 1]
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number between -9"):
        seed(text)


@pytest.mark.parametrize("words", [["--nothing"], ["--fil", "x"], []])
def test_a_wrong_command_line_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser("sut-x")
    parser.add_argument("--file", required=True)
    with pytest.raises(SystemExit) as ending:
        parser.parse_args(words)
    assert ending.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sut-x: error: ") and line.endswith("; see `sut-x --help`.")


def test_help_wraps_paragraphs_and_keeps_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "word " * 12 + "end:\n  a   one\n  b   two\nafter it\n\nlast\n"
    shown = Parser("sut-x", text).format_help().partition("\n\n")[2]
    assert shown.startswith("word " * 6 + "word\n" + "word " * 5 + "end:\n  a   one\n  b   two\n")
    assert "  b   two\nafter it\n\nlast\n\noptions:" in shown


def _raise(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (InputError("a,\n  b."), 2, "x: error: a, b."),
        (FileNotFoundError(2, "No such file", "f"), 2, "x: error: `f`: No such file."),
        (KeyboardInterrupt(), 130, "x: interrupted."),
        (ModuleNotFoundError("no", name="nice"), 2, f"nice is not installed for {sys.executable}"),
        (
            ModuleNotFoundError("no", name="subword_nmt.apply_bpe"),
            2,
            "this needs subword-nmt, which is not installed: run `pip install 'sut_fairseq[text]'`",
        ),
    ],
)
def test_what_the_user_can_cause_is_one_sentence(
    error: BaseException, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("x", _raise(error)) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


@pytest.mark.parametrize("error", [KeyError("k"), ModuleNotFoundError("no", name="sut_data.x")])
def test_a_defect_of_ours_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_command("x", _raise(error))


def test_a_reader_may_leave() -> None:
    program = "from sut_data.main import main; import sys; sys.exit(main(['scan', '--help']))"
    command = shlex.join([sys.executable, "-c", program])
    code = f"{command} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    shell = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert (shell.stdout, shell.stderr) == ("0\n", "")


def test_a_choice_is_checked_in_one_sentence() -> None:
    check_choice("kind", "a", ["a", "b"])
    with pytest.raises(InputError, match="`kind` must be one of a, b, but is c instead"):
        check_choice("kind", "c", iter(["a", "b"]))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with written_whole(path) as partial:
        partial.write_text("one")
        assert partial.suffix == ".png" and not path.exists()
    with pytest.raises(KeyError), written_whole(path) as partial:
        partial.write_text("two")
        raise KeyError
    assert [child.name for child in tmp_path.iterdir()] == ["a.png"]
    assert path.read_text() == "one"
    write_whole(path, "three \u2192")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # writing, unlike opening, has no name
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"), written_whole(path):
        raise full
    assert path.read_text(encoding="utf-8") == "three \u2192"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyError), written_whole(tmp_path / "new") as partial:
        (partial / "deep").mkdir(parents=True)
        raise KeyError
    assert not [*tmp_path.iterdir()]
    with written_whole(tmp_path / "new") as partial:
        partial.mkdir()
        (partial / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "file"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_link_stays_one(tmp_path: Path, fails: bool) -> None:
    """What it leads to is replaced, in its own folder."""
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "rows", tmp_path / "a.csv"
    target.write_text("old")
    link.symlink_to(Path("elsewhere", "rows"))
    with suppress(KeyError), written_whole(link) as partial:
        assert (partial.parent, partial.suffix) == (target.parent, ".csv")
        partial.write_text("new")
        if fails:
            raise KeyError
    assert (link.readlink(), link.read_text()) == (
        Path("elsewhere", "rows"),
        "old" if fails else "new",
    )
    assert os.listdir(target.parent) == ["rows"]


@pytest.mark.parametrize("named", ["by a path", "by its number"])
def test_a_pipe_is_written_to(tmp_path: Path, named: str) -> None:
    """And never replaced: a device, `/dev/null` for one, is there for the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(pipe, os.O_WRONLY)
    try:
        with written_whole(pipe if named == "by a path" else Path(f"/dev/fd/{writing}")) as partial:
            partial.write_text("new")
        assert os.read(reading, 100) == b"new"
        with pytest.raises(KeyError), written_whole(pipe):
            raise KeyError
        assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", " is a folder: give the name of a file."),
        ("no/rows", ": there is no folder {}/no; make it first."),
        ("lost", ": there is no folder {}/no; make it first."),
        ("closed/rows", ": you have no right to write to {}/closed; choose another place."),
        ("pipe", ": you have no right to write to {}/pipe; choose another place."),
        ("rows", None),
        ("link", None),
        ("open pipe", None),
    ],
)
def test_what_cannot_be_written_is_refused(
    name: str, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(0o500)
    os.mkfifo(tmp_path / "pipe", 0o400)
    os.mkfifo(tmp_path / "open pipe", 0o600)
    (tmp_path / "lost").symlink_to(Path("no", "rows"))
    (tmp_path / "link").symlink_to("rows")
    # As for anybody; root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _: bool(os.stat(path).st_mode & 0o200))
    path = tmp_path / name
    if reason is None:
        check_writable(path, "--csv")
        return
    with pytest.raises(InputError) as refused:
        check_writable(path, "--csv")
    assert str(refused.value) == f"--csv {path}{reason.format(tmp_path)}"


@pytest.mark.parametrize(
    ("name", "inside", "reason"),
    [
        ("new", False, None),
        ("new/a/b", True, None),
        ("there", True, None),
        ("closed", False, None),
        ("closed", True, "you have no right to write to {}/closed; choose another place."),
        ("closed/a/b", False, "you have no right to write to {}/closed; choose another place."),
        ("file/a", False, "{}/file is a file; choose another place."),
        ("file", True, "{}/file is a file; choose another place."),
    ],
)
def test_what_cannot_be_made_is_refused(
    name: str, inside: bool, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(0o500)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, _: bool(os.stat(path).st_mode & 0o200))
    path = tmp_path / name
    if reason is None:
        check_can_make(path, "--out x", inside=inside)
        return
    with pytest.raises(InputError) as refused:
        check_can_make(path, "--out x", inside=inside)
    assert str(refused.value) == f"--out x: {reason.format(tmp_path)}"


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    """As `--csv /dev/stdout > rows` names it: what else is printed would be lost."""
    with open(tmp_path / "rows", "w") as file:
        link = tmp_path / "link"
        link.symlink_to(f"/dev/fd/{file.fileno()}")
        for path in (Path(f"/dev/fd/{file.fileno()}"), link):
            with pytest.raises(InputError, match=f"^--csv {path} leads to a file that is open"):
                check_writable(path, "--csv")
    check_writable(tmp_path / "rows", "--csv")


@pytest.mark.parametrize("process", [DEAD, os.getpid()], ids=["ended", "own"])
@pytest.mark.parametrize("host", ["node-1", "node-2"])
def test_what_another_host_writes_stays(
    process: int, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared disk; no process here has its number, or in a container this very one has."""
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "node-1")
        there.setattr(os, "getpid", lambda: process)
        mark = own_mark()
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    theirs, rows = tmp_path / f".out.partial-{mark}" / "train", tmp_path / f".{mark}-a.csv"
    theirs.parent.mkdir()
    theirs.touch()
    rows.touch()
    with hidden_folder(tmp_path / "out", "partial"):
        assert theirs.exists() is (host == "node-2")
    assert leftovers(tmp_path, "*.csv") == ([] if host == "node-2" else [rows])


@pytest.mark.parametrize(
    ("mark", "abandoned"),
    [
        ("{ended}", True),  # from before marks named the host
        ("{ended}@here", True),
        ("{ended}@elsewhere", False),
        ("{own}", True),
        ("{own}@here", True),
        ("{own}@elsewhere", False),
        ("{living}", False),
        ("{living}@here", False),
        ("notes@here", False),
        ("", False),
    ],
)
def test_whose_a_mark_is(mark: str, abandoned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    mark = mark.format(ended=DEAD, own=os.getpid(), living=os.getppid())
    assert is_abandoned(mark) is abandoned


def test_tables() -> None:
    rows = [("name", "n", "remark"), ("long name", 12345, ""), ("é", 7, "yes")]
    assert table(rows, "<><").splitlines() == [
        "name           n  remark",
        "long name  12345",
        "é              7  yes",
    ]
    assert table([("a", 1, 22), ("bb", 333, 4)]).splitlines() == ["a     1  22", "bb  333   4"]
    assert table([]) == ""


def test_every_set_says_in_a_line_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert {"scan", "cfq", "parallel_text", "wmt14_en_de"} < set(set_files())
    for name, file in set_files().items():
        assert f"\n  {name} " in listed and summary(file) in listed
        assert summary(file).endswith(".") and len(summary(file)) < 100
    with pytest.raises(SystemExit) as ending:
        main(["--help"])
    assert ending.value.code == 0
    assert capsys.readouterr().out == listed


@pytest.mark.parametrize(("name", "near"), [("scam", "scan"), ("wmt14", "wmt14_en_de"), ("?", "")])
def test_an_unknown_set_is_refused_with_the_nearest(
    name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--out", "o"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"sut-prepare: error: there is no data set `{name}`; did you mean `{near}"
    )


@pytest.mark.parametrize("name", list(set_files()))
def test_each_set_has_a_door_and_names_itself(
    name: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    door = repository / "data-prep" / f"{name}.sh"
    assert len(door.read_text().splitlines()) == 3
    for command, shown in ((name, f"sut-prepare {name}"), (door.name, door.name)):
        with pytest.raises(SystemExit) as ending:
            main([command, "--help"])
        assert ending.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: {shown} ")
