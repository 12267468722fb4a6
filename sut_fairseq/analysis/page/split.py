"""What a model does on a split: depth by group, and which words use which expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairseq import tasks

from sut_fairseq.analysis import average_steps
from sut_fairseq.analysis.depth import set_threshold
from sut_fairseq.analysis.expert_use import Use, expert_use

Progress = Callable[[int], object]
_TOP_WORDS = 8


def depth_record(
    model: Any,
    task: tasks.FairseqTask,
    split: str,
    numbers: Sequence[int],
    by: str,
    thresholds: Sequence[float | None],
    *,
    max_tokens: int,
    progress: Progress,
) -> dict[str, Any]:
    """Average steps by group at each threshold, as `average_steps.by_group` counts them.

    Args:
        thresholds: halting thresholds; None: as the model is.
        model, task, by, max_tokens, progress: as there.
        split, numbers: which sentences.

    Returns:
        `by`; `sentences`, how many; `groups`, each with its name and `sentences`; `greatest` number
        of steps by loop; `steps`: for each threshold, by loop, the average of each group.
    """
    greatest = average_steps.halting_stacks(model)
    steps: list[dict[str, list[float]]] = []
    rows: list[dict[str, Any]] = []
    for threshold in thresholds:
        if threshold is not None:
            set_threshold(model, threshold)
        rows = average_steps.by_group(
            model, task, {split: numbers}, by, max_tokens=max_tokens, progress=progress
        )
        steps.append({name: [round(row[f"{name}_steps"], 3) for row in rows] for name in greatest})
    return {
        "by": by,
        "sentences": len(numbers),
        "groups": [{"name": row["group"], "sentences": row["sentences"]} for row in rows],
        "greatest": greatest,
        "steps": steps,
    }


def expert_record(
    model: Any,
    task: tasks.FairseqTask,
    split: str,
    numbers: Sequence[int],
    *,
    max_tokens: int,
    progress: Progress,
) -> dict[str, Any]:
    """Which words use which expert, as counted by `expert_use`, whose arguments it takes.

    Returns:
        `sentences`, how many, and `layers`: by loop and layer, for each expert its `load` (share of
        all choices) and `words`: those that send it more than an even share of their weight,
        greatest share first, each with this share and how often it was seen; words seen fewer
        than three times do not count.
    """
    uses = expert_use(model, task, split, numbers, max_tokens=max_tokens, progress=progress)
    return {
        "sentences": len(numbers),
        "layers": {
            name: {layer: _layer_record(use) for layer, use in own.items()}
            for name, own in uses.items()
        },
    }


def _layer_record(use: Use) -> list[dict[str, Any]]:
    return [
        {
            "load": round(load, 4),
            "words": [[word.text, round(word.share, 3), word.seen] for word in words],
        }
        for load, words in zip(use.loads(), use.words(_TOP_WORDS), strict=True)
    ]
