"""Which evaluations of translations, by `sut-experiment evaluate`, are those of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import averaged_in, updates_of
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import json_files

# The files of such an evaluation.
_RESULTS, _AVERAGE = "results.json", "average.pt"


def translations_by(
    checkpoint: Path, state: Mapping[str, Any], run: Path | None
) -> Iterator[dict[str, Any]]:
    """Results of evaluating its translations, found beside it or in a folder of its run."""
    places = [checkpoint.absolute().parent, *([] if run is None else [run])]
    found = dict.fromkeys(
        path
        for place in places
        for part in ("", "*/")
        for path in sorted(place.glob(part + _RESULTS))
    )
    for path in found:
        try:
            document = json_files.read_json(path)
        except InputError:
            continue
        if isinstance(document, dict) and {"scores", "cost", "subset"} <= document.keys():
            # The average that made the translations is beside their results.
            itself = os.path.realpath(path.with_name(_AVERAGE)) == os.path.realpath(checkpoint)
            if itself or _is_average_of(document, path.with_name(_AVERAGE), checkpoint, state):
                yield document


def _is_average_of(
    document: Mapping[str, Any], average: Path, checkpoint: Path, state: Mapping[str, Any]
) -> bool:
    """Whether this checkpoint alone, as an average of one, made the translations.

    The average shows it wherever it was moved; without it, the file that the results name does.
    """
    averaged = list(document.get("checkpoints") or [])
    if len(averaged) != 1 or averaged_in(state) or averaged[0].get("updates") != updates_of(state):
        return False
    if not average.is_file():
        named = str(averaged[0].get("file") or "")
        return os.path.realpath(named) == os.path.realpath(checkpoint)
    try:
        weights = load_checkpoint(average, lazy=True)["model"]
    except InputError:  # damaged
        return False
    ours = state["model"]
    return weights.keys() == ours.keys() and all(
        torch.equal(weights[name], ours[name]) for name in ours
    )
