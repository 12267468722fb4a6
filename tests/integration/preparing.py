"""Runs the scripts of data-prep, with or without fairseq-preprocess."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

Completed = subprocess.CompletedProcess[str]
WRITE_INDICES = """
import struct, sys

def cli_main():
    option = lambda name: sys.argv[sys.argv.index(name) + 1]
    sets = {"train": option("--trainpref"), "valid": option("--validpref")}
    for number, prefix in enumerate(option("--testpref").split(",")):
        sets[f"test{number or ''}"] = prefix
    for side in ("src", "tgt"):
        for name, prefix in sets.items():
            with open(f"{prefix}.{side}", "rb") as stream:
                lines = stream.read().splitlines()
            with open(f"{name}.src-tgt.{side}.idx", "wb") as stream:
                stream.write(struct.pack("<9sQBQ", b"MMIDIDX\\0\\0", 1, 4, len(lines)))
            with open(f"{name}.src-tgt.{side}.bin", "wb") as stream:
                stream.write(b"word" * sum(len(line.split()) + 1 for line in lines))
        with open(f"dict.{side}.txt", "w") as stream:
            stream.write("word 1\\n")
"""


def run(words: list[str], cwd: Path, **environment: str) -> Completed:
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )


def assert_refused(result: Completed, sentence: str) -> None:
    """One line on standard error that holds `sentence`, and status 2."""
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr


def fake_fairseq(folder: Path, body: str) -> dict[str, str]:
    """An environment in which `fairseq-preprocess` is the given code."""
    package = folder / "fake" / "fairseq_cli"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "preprocess.py").write_text(body, encoding="utf-8")
    return {"PYTHONPATH": str(package.parent)}
