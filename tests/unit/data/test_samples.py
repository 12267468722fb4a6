"""The samples of `tests/data` are what their program writes, and nothing else."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path


def test_the_samples_are_those_of_their_program(samples: Path, tmp_path: Path) -> None:
    program = "make_samples.py"
    shutil.copy(samples / program, tmp_path)
    runpy.run_path(str(tmp_path / program), run_name="__main__")
    written = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(samples): path for path in samples.rglob("*") if path.is_file()}
    kept = {name: path for name, path in kept.items() if "__pycache__" not in name.parts}
    assert written.keys() == kept.keys() - {Path("README.md")}
    for name, path in written.items():
        assert path.read_bytes() == kept[name].read_bytes(), name
