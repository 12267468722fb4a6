"""Preparation on a terminal and in a pipe: what takes long is shown there, and nothing here."""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from sut_data import main as command
from sut_data import waiting
from sut_data.folders import making
from sut_data.sets import multi30k, wmt14_en_de
from tests.unit.data.folders.test_adding import binarised

RAW = "--raw {samples} --limit 9"
# What each data set does, by what it says meanwhile.
SHOWN = {
    "arithmetic": ("--sizes 300 20 20 20 --limit 20", "depth 5", "shuffling"),
    "cfq": (RAW, "reading CFQ", "computing checksums"),
    "cogs": (RAW, "reading COGS", "writing the text"),
    "ctl": ("--limit 20", "depth 9", "shuffling"),
    "listops": ("--sizes 20 5 5 --min-length 5 --max-length 30 --processes 1", "generating", ""),
    "listops_dependency": (
        "--sizes 70 6 2 2 --processes 1 --test-depths 7",
        "depth 7",
        "shuffling",
    ),
    "logical_inference": (RAW, "reading logical inference", "writing the text"),
    "long_lookup_tables": (RAW, "making the lookups", "writing the text"),
    "multi30k": ("--raw {raw} --bpe 50", "counting Multi30k train", "writing train.src"),
    "pcfg": (f"{RAW} --split 10k", "reading PCFG SET", "writing the text"),
    "scan": ("--limit 9 --valid-size 9", "making SCAN", "computing checksums"),
    "wmt14_en_de": ("--raw {raw} --bpe 50", "counting train10k", "tokenising train"),
    "parallel_text": (
        "--train {raw}/train.en {raw}/train.de --valid {raw}/val.en {raw}/val.de "
        "--test {raw}/val.en {raw}/val.de --sentencepiece 60 --limit 20",
        "learning sentencepiece",
        "segmenting train",
    ),
}


def test_every_data_set_is_here() -> None:
    assert SHOWN.keys() == command.set_files().keys()


class Terminal:
    """A pseudo-terminal as standard error, and what appears on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 200))
        self._file = os.fdopen(theirs, "w")
        self._parts: list[bytes] = []
        self._done = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        monkeypatch.setattr(sys, "stderr", self._file)

    def _read(self) -> None:
        while True:
            if select.select([self._ours], [], [], 0.2)[0]:
                self._parts.append(os.read(self._ours, 10_000))
            elif self._done.is_set():
                return

    def text(self) -> str:
        self._file.flush()
        self._done.set()
        self._reader.join()
        self._file.close()
        os.close(self._ours)
        return b"".join(self._parts).decode()


class Hurry(threading.Event):
    """Lets nothing be so quick that it needs no word."""

    def wait(self, timeout: float | None = None) -> bool:
        return timeout != waiting.QUIET and super().wait(timeout)


@pytest.fixture
def line(
    request: pytest.FixtureRequest,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """The command line of a data set, with a few of its examples and nothing for fairseq to do."""
    name = request.param
    monkeypatch.setattr(making, "binarise", binarised)
    files = {part: (file, 24) for part, (file, _) in multi30k.FILES.items()}
    monkeypatch.setattr(multi30k, "FILES", files)
    sample = tuple((part, file, 24) for part, file, _ in wmt14_en_de.SAMPLE)
    monkeypatch.setattr(wmt14_en_de, "SAMPLE", sample)
    for language in ("en", "de"):
        text = (samples / "multi30k" / f"sentences.{language}").read_text().splitlines()
        for file in (
            "train",
            *(file for _, (file, _) in files.items()),
            *(f for _, f, _ in sample),
        ):
            (tmp_path / f"{file}.{language}").write_text("\n".join((text * 24)[:24]) + "\n")
    folder = samples / {"pcfg": "pcfg_set"}.get(name, name)
    options = [one.format(samples=folder, raw=tmp_path) for one in SHOWN[name][0].split()]
    return [name, *options, "--out", str(tmp_path / "out")]


@pytest.mark.parametrize("line", SHOWN, indirect=True)
def test_a_terminal_and_a_pipe(
    line: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(waiting, "QUIET", 0.001)
    assert command.main(line) == 0
    printed, errors = capsys.readouterr()
    assert errors == "" and "\r" not in printed
    assert printed.count(f"{tmp_path / 'out'} is ready (") == 1

    threads = SimpleNamespace(Event=Hurry, Thread=threading.Thread)
    monkeypatch.setattr(waiting, "threading", threads)
    with monkeypatch.context() as patched:
        terminal = Terminal(patched)
        status = command.main([*line[:-1], str(tmp_path / "again")])
        shown = terminal.text()
    assert status == 0, shown
    for words in SHOWN[line[0]][1:]:
        assert words in shown
    assert shown.rstrip(" ").endswith("\r")  # nothing of it stays
