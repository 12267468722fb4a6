"""All that a page shows: the model, sentences at a list of thresholds, a split, the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sut_fairseq.analysis.expert_use import routers
from sut_fairseq.analysis.page.answers import answer_record, sentence_record
from sut_fairseq.analysis.sentences import Reader, Sentence
from sut_fairseq.analysis.traces import Shape
from sut_fairseq.modules.halting.act import AdaptiveComputationTime
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting

FORMAT = 1
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)


def thresholds_of(reader: Reader, asked: Sequence[float] | None) -> Sequence[float | None]:
    """The thresholds to compare, ascending and including the model's own; [None] if it has none."""
    own = reader.alpha_threshold
    if own is None:
        return [None]
    return sorted({*(THRESHOLDS if asked is None else asked), own})


def model_record(
    reader: Reader, *, name: str, checkpoint: str, data: str, updates: int
) -> dict[str, Any]:
    """The record of a model.

    Args:
        reader: the model.
        name, checkpoint, data: names of its architecture, file and folder.
        updates: number of updates it was trained for; 0: unknown.

    Returns:
        these, `parameters`, `labels` (whether it predicts a label), and `stacks`: for each loop its
        `steps`, `halting` and, by layer, `experts` ([how many, how many are chosen]).
    """
    stacks: dict[str, Any] = {}
    for loop, own in routers(reader.model).items():
        shape = reader.shapes[loop]
        stacks[loop] = {
            "steps": shape.num_steps,
            "halting": _halting(shape),
            "experts": {layer: [one.num_experts, one.top_k] for layer, one in own.items()},
        }
    return {
        "name": name,
        "checkpoint": checkpoint,
        "data": data,
        "updates": updates,
        "parameters": sum(parameter.numel() for parameter in reader.model.parameters()),
        "labels": reader.labels,
        "stacks": stacks,
    }


def _halting(shape: Shape) -> str:
    """How the tokens of a loop halt, in words."""
    kind = None if shape.stack is None else shape.stack.halting
    if isinstance(kind, StickBreakingHalting):
        return "stick-breaking"
    if isinstance(kind, AdaptiveComputationTime):
        return "adaptive computation time"
    return "halting" if shape.halts else "fixed depth"


def sentences_record(
    reader: Reader,
    sentences: Sequence[Sentence],
    thresholds: Sequence[float | None],
    *,
    target: str | None,
    progress: Callable[[], object],
) -> list[dict[str, Any]]:
    """Each sentence, with its answers at all thresholds.

    The model's own threshold is restored afterwards.

    Args:
        reader, sentences: whom to ask, and what.
        thresholds: as returned by `thresholds_of`.
        target: what the decoder reads instead of the model's own answer.
        progress: called after each answer.
    """
    own = reader.alpha_threshold
    found = []
    for sentence in sentences:
        answers = []
        for threshold in thresholds:
            answers.append(answer_record(reader.ask(sentence, threshold, target=target)))
            progress()
        found.append({**sentence_record(sentence), "answers": answers})
    if own is not None:
        reader.alpha_threshold = own
    return found
