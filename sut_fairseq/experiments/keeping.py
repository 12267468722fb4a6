"""What is kept of a run for good: its record, results and curve, without checkpoints and logs.

A folder that is kept is read like that of the run. Its files name no folder of the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.costs import COSTS
from sut_fairseq.experiments.curves import read_curve, write_curve
from sut_fairseq.experiments.evaluating import SUFFIX
from sut_fairseq.experiments.json_files import read_json, write_json
from sut_fairseq.experiments.reading import is_file
from sut_fairseq.experiments.records import RECORD, Record, read_record


def keep(run: Path, folder: Path) -> Path:
    """Write what is kept of a run into `folder/EXPERIMENT/DATA-RUN`, and return that folder.

    Raises:
        InputError: if it is no run, or one that has not come to its end.
    """
    record = read_record(run)
    if not record.finished():
        raise InputError(f"{run} has not come to its end: train on, then keep it.")
    name = record.experiment
    kept = folder / (Path(name).stem if is_file(name) else name) / _name(run, record)
    if kept.resolve() == run.resolve():
        return kept
    kept.mkdir(parents=True, exist_ok=True)
    costs = [run / COSTS] if (run / COSTS).is_file() else []
    for path in (run / RECORD, *costs, *sorted(run.glob(f"*{SUFFIX}"))):
        write_json(kept / path.name, _without_folders(read_json(path)))
    write_curve(kept, read_curve(run))
    return kept


def _name(run: Path, record: Record) -> str:
    """Of the folder that is kept: that of the run, and of its data unless it says them."""
    own, data = run.resolve().name, Path(record.data.folder).name
    return own if own.startswith(data) else f"{data}-{own}"


def _without_folders(document: Any) -> Any:
    """A JSON document whose absolute paths begin with the last folders that say something."""
    if isinstance(document, dict):
        return {key: _without_folders(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_without_folders(value) for value in document]
    if isinstance(document, str) and document.startswith("/"):
        return _relative(Path(document))
    return document


def _relative(path: Path) -> str:
    """A path from the working folder on; of another place, its last two parts."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(Path(*path.parts[-2:]))
