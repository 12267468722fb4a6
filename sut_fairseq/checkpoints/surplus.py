"""Checkpoints that `--keep-*` does not keep, and that a killed training had no time to delete."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import checkpoint_paths

logger = logging.getLogger(__name__)


def delete_surplus(options: Any, suffix: str, spared: Path) -> None:
    """Delete what fairseq deletes after it has saved: all checkpoints but those to keep.

    A training that is killed in between leaves one too many. fairseq deletes it only at the next
    save of the same kind, which may never come: it deletes checkpoints of intervals only when it
    saves within an epoch.

    Args:
        options: of checkpoints, with their folder.
        suffix: what fairseq puts before `.pt` in every name.
        spared: the checkpoint that the training resumes from.
    """
    surplus = [*_intervals(options, suffix), *_epochs(options, suffix), *_best(options, suffix)]
    surplus = [path for path in surplus if path != spared]
    for path in surplus:
        path.unlink(missing_ok=True)
    if surplus:
        names = ", ".join(path.name for path in surplus)
        logger.info("deleted what the options --keep-* do not keep: %s", names)


def _intervals(options: Any, suffix: str) -> list[Path]:
    kept, spacing = options.keep_interval_updates, options.keep_interval_updates_pattern
    if kept < 1:
        return []
    ranked = _ranked(options, rf"checkpoint_\d+_(\d+){re.escape(suffix)}\.pt")
    # Multiples of a spacing are kept, and do not count.
    return [path for path, updates in ranked if spacing == -1 or updates % spacing][kept:]


def _epochs(options: Any, suffix: str) -> list[Path]:
    kept = options.keep_last_epochs
    if kept < 1:
        return []
    ranked = _ranked(options, rf"checkpoint(\d+){re.escape(suffix)}\.pt")
    return [path for path, _ in ranked[kept:]]


def _best(options: Any, suffix: str) -> list[Path]:
    kept = options.keep_best_checkpoints
    if kept < 1:
        return []
    name = rf"checkpoint\.best_{re.escape(options.best_checkpoint_metric)}_(\d+\.?\d*)"
    ranked = _ranked(options, rf"{name}{re.escape(suffix)}\.pt")
    if not options.maximize_best_checkpoint_metric:
        ranked.reverse()
    return [path for path, _ in ranked[kept:]]


def _ranked(options: Any, pattern: str) -> list[tuple[Path, float]]:
    """The checkpoints of such names with the number in them, the highest first."""
    found = checkpoint_paths(options.save_dir, pattern, keep_match=True)
    return [(Path(path), number) for path, number in found]
