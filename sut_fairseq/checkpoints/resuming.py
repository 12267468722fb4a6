"""Which checkpoint a training resumes from when the last one is damaged or gone."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from sut_data.files import put_aside
from sut_fairseq.checkpoints.integrity import DamagedCheckpointError, check_whole
from sut_fairseq.checkpoints.progress import progress_of
from sut_fairseq.errors import InputError

logger = logging.getLogger(__name__)


def find_start(folder: Path, suffix: str = "") -> Path | None:
    """The checkpoint to resume from: the last one, or else the newest that is whole.

    Damaged ones that are found on the way are kept as `<name>.damaged`. The log says which one is
    used, and how many updates are lost.

    Args:
        folder: of the checkpoints of one training; it need not exist.
        suffix: what fairseq puts before `.pt` in every name.

    Returns:
        None if the folder has no whole checkpoint: then the training starts over.

    Raises:
        InputError: a file that may be whole cannot be read now.
    """
    last = folder / f"checkpoint_last{suffix}.pt"
    if last.is_symlink() and not last.exists():
        raise InputError(
            f"{last} is a link to {last.readlink()}, which is not there: mount its disk, mend the "
            "link, or delete it."
        )
    there, progress = last.exists(), progress_of(last)
    if there and _is_whole(last):
        return last
    others = _others(folder, suffix)
    known = [updates for updates, _ in others]
    if progress is not None:
        known.append(progress.updates)
    for updates, path in others:
        if _is_whole(path):
            logger.warning(
                "%s is %s: going on from %s, the newest intact checkpoint, at update %d; %s",
                last.name,
                "damaged" if there else "missing",
                path,
                updates,
                _lost(max(known) - updates, exactly=progress is not None),
            )
            return path
    if there or others:
        lost = _lost(max(known, default=0), exactly=progress is not None)
        logger.warning("no checkpoint in %s is intact: the training begins anew; %s", folder, lost)
    return None


def _lost(updates: int, *, exactly: bool) -> str:
    if exactly:
        return f"{updates} updates are lost"
    if updates:
        return f"at least {updates} updates are lost"
    return "whether later updates are lost is not known"


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint is whole; one that is not is renamed."""
    try:
        check_whole(path)
    except DamagedCheckpointError as problem:
        kept = put_aside(path, "damaged")
        logger.warning("%s It is kept as %s.", problem, kept.name)
        return False
    return True


def _others(folder: Path, suffix: str) -> list[tuple[int, Path]]:
    """The checkpoints of epochs, intervals and best scores with their updates, newest first."""
    name = re.compile(rf"checkpoint(\d+|_\d+_\d+|_best|\.best_.*){re.escape(suffix)}\.pt")
    found = []
    for path in folder.glob("checkpoint*.pt"):
        progress = progress_of(path) if name.fullmatch(path.name) else None
        if progress is not None and progress.resumable:
            found.append((progress.updates, path))
    return sorted(found, reverse=True)
