"""Training curves, thinned to as many points as a screen shows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

MOST_POINTS = 300  # of a curve

Curve = list[tuple[int, float]]


def training_record(
    log: str, points: Iterable[tuple[int, str, str, float]]
) -> dict[str, Any] | None:
    """The curves of a training.

    Args:
        log: name of the file that the points are from.
        points: (updates, set, measure, value), ordered by updates; NaN and infinity are left out.

    Returns:
        `log`, and `curves`: by measure, by set ("train", "valid", ...), points of (updates, value),
        at most `MOST_POINTS`. Measures without two points on a set are left out; None if all are.
    """
    curves: defaultdict[str, defaultdict[str, Curve]] = defaultdict(lambda: defaultdict(list))
    for updates, subset, measure, value in points:
        if math.isfinite(value):
            curves[measure][subset].append((updates, value))
    drawn = {
        measure: {subset: _thinned(points) for subset, points in by_set.items()}
        for measure, by_set in curves.items()
        if any(len(points) > 1 for points in by_set.values())
    }
    return {"log": log, "curves": drawn} if drawn else None


def _thinned(points: Curve) -> Curve:
    """Every n-th point, and the last."""
    if len(points) <= MOST_POINTS:
        return points
    step = math.ceil(len(points) / (MOST_POINTS - 1))
    return [*points[:-1:step], points[-1]]
