"""What is kept of a run for good: its record, results and curve, without checkpoints and logs.

A kept folder is read like that of the run. Its files contain no paths of the machine, except that
of a user's own experiment file, which is read, too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.costs import COSTS
from sut_fairseq.experiments.curves import read_curve, write_curve
from sut_fairseq.experiments.evaluating import SUFFIX
from sut_fairseq.experiments.json_files import read_json, write_json
from sut_fairseq.experiments.reading import is_file
from sut_fairseq.experiments.records import RECORD, Record, read_record
from sut_fairseq.experiments.typed import Place, build


def keep(run: Path, folder: Path) -> Path:
    """Write what is kept of a run into `folder/EXPERIMENT/DATA-RUN`, and return that folder.

    If the run was kept before, it is updated. Other files in the folder stay.

    Raises:
        InputError: if it is not a run, is not finished, or another run is kept there.
    """
    record = read_record(run)
    if not record.finished():
        raise InputError(f"{run} is not finished: finish its training, then keep it.")
    name = record.experiment
    kept = folder / (Path(name).stem if is_file(name) else name) / _name(run, record)
    if kept.resolve() == run.resolve():
        return kept
    documents = {path: _without_folders(read_json(path)) for path in _documents(run)}
    if is_file(name):
        here = Path(name).is_relative_to(Path.cwd())
        documents[run / RECORD]["experiment"] = _relative(Path(name)) if here else name
    _check_same(kept, build(Record, documents[run / RECORD], Place(run / RECORD, {})), run)
    kept.mkdir(parents=True, exist_ok=True)
    for gone in {path.name for path in _documents(kept)} - {path.name for path in documents}:
        (kept / gone).unlink()
    for path, document in documents.items():
        write_json(kept / path.name, document)
    if curve := read_curve(run):  # the curve outlives a deleted log
        write_curve(kept, curve)
    return kept


def _documents(run: Path) -> list[Path]:
    """The files to keep of a run, besides its curve."""
    files = [run / RECORD, run / COSTS, *sorted(run.glob(f"*{SUFFIX}"))]
    return [path for path in files if path.is_file()]


def _check_same(kept: Path, record: Record, run: Path) -> None:
    """Refuse to replace another kept run of the same name.

    A repetition has the same settings, but its first session began at another time. A run whose
    length was changed is still the same run.
    """
    if not (kept / RECORD).is_file():
        return
    # The path of a user's file depends on the folder from which it was kept.
    before = replace(read_record(kept), experiment=record.experiment)
    begun = [one.sessions[0].started if one.sessions else "" for one in (before, record)]
    alike = (before.key(), before.seed) == (record.key(), record.seed)
    if begun[0] != begun[1] or not (alike or record.planned_before != before.planned_before):
        raise InputError(
            f"{kept} holds another run than {run}, of other settings or begun at another time: "
            "rename the folder of the run, or keep it elsewhere with another --into."
        )


def _name(run: Path, record: Record) -> str:
    """Name of the kept folder: that of the run, after that of its data unless it begins with it."""
    own, data = run.resolve().name, Path(record.data.folder).name or record.data.split
    return own if own.startswith(data) else f"{data}-{own}"


def _without_folders(document: Any) -> Any:
    """A JSON document with its absolute paths shortened to their last, informative parts.

    Rows of results are left as they are: text that begins with a slash is data there.
    """
    if isinstance(document, dict):
        return {
            key: value if key == "rows" else _without_folders(value)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [_without_folders(value) for value in document]
    if isinstance(document, str) and document.startswith("/"):
        return _relative(Path(document))
    return document


def _relative(path: Path) -> str:
    """A path relative to the working folder; of one outside it, the last two parts."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(Path(*path.parts[-2:]))
