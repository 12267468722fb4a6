"""What a model of the contextual retrieval task gets wrong, and what its searches retrieve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sut_fairseq.analysis.traces import evaluating
from sut_fairseq.errors import InputError
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel
from sut_fairseq.tasks.contextual_retrieval import ContextualRetrievalTask
from sut_fairseq.tasks.retrieval_sets import Sets

# Combinations of preferences, and what the names of the subsets that have them end in.
COMBINATIONS = {"shown": "", "held_out": "_held_out", "all": "_all"}
_BATCH = 256  # sets

Look = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class Choices:
    """Which retrievals the searches of a model choose, as means over objects.

    Attributes:
        by_wanted: value scores by search of the task, the retrieval that it wants, and retrieval of
            the model, `(S, R, num_retrievals)`; NaN for what is never wanted. The scores are those
            of the model's search that finds what the task's search should find.
        by_search: value scores by search and retrieval of the model,
            `(num_searches, num_retrievals)`.
        found: weight that each search of the model puts on the object that each search of the
            task should find, `(num_searches, S)`.
    """

    by_wanted: Tensor
    by_search: Tensor
    found: Tensor

    @property
    def finder(self) -> list[int]:
        """Which search of the model finds what each search of the task should find."""
        return self.found.argmax(dim=0).tolist()


def check_task(model: Any, task: Any) -> None:
    """Refuse models and tasks of another kind."""
    fits = isinstance(model, ContextualRetrievalModel) and isinstance(task, ContextualRetrievalTask)
    if not fits:
        raise InputError("this is for models that were trained with --task contextual_retrieval.")


def absolute_errors(
    model: ContextualRetrievalModel,
    task: ContextualRetrievalTask,
    subset: str = "test",
    progress: Callable[[int], object] = lambda _: None,
) -> dict[str, tuple[int, float]]:
    """Number of sets and mean absolute error, by their combinations of preferences.

    Args:
        model, task: a trained model and its task.
        subset: `test` or `valid`.
        progress: called with the number of sets of each batch that is done.
    """
    errors = {}
    for name, ending in COMBINATIONS.items():
        if not len(task.combinations[ending]):
            continue
        total, count = 0.0, 0
        for _, batch in _batches(task, subset + ending):
            with evaluating(model):
                predictions, _ = model(**batch["net_input"])
            total += float((predictions - batch["target"]).abs().sum())
            count += predictions.numel()
            progress(batch["nsentences"])
        errors[name] = len(task.dataset(subset + ending)), total / count
    return errors


def choices(model: ContextualRetrievalModel, task: ContextualRetrievalTask, subset: str) -> Choices:
    """What the searches of a model retrieve on a set (COMP Figures 4, 5 and 11).

    Raises:
        InputError: if its attention has no value scores.
    """
    scores, weights, preferences = [], [], []
    for sets, batch in _batches(task, subset):
        seen: dict[str, Tensor] = {}
        with evaluating(model):
            model(**batch["net_input"], look=seen.__setitem__)
        if "value_scores" not in seen:
            raise InputError(
                "this model chooses no retrievals: only compositional attention with more than one "
                "has value scores."
            )
        # (num_tokens, num_searches, 1, num_objects): the weight on the object to be found
        winners = task.rule.winners(sets).flatten(0, 1)
        found = (
            seen["weights"]
            .squeeze(2)
            .gather(2, winners.unsqueeze(1).expand(-1, seen["weights"].shape[1], -1))
        )
        scores.append(seen["value_scores"])
        weights.append(found)
        preferences.append(sets.preferences.flatten(0, 1))
    score, weight, wanted = torch.cat(scores), torch.cat(weights), torch.cat(preferences)
    found = weight.mean(dim=0)
    rule = task.rule
    by_wanted = score.new_full((rule.num_searches, rule.num_retrievals, score.shape[2]), torch.nan)
    for search, finder in enumerate(found.argmax(dim=0).tolist()):
        for retrieval in wanted[:, search].unique().tolist():
            by_wanted[search, retrieval] = score[wanted[:, search] == retrieval, finder].mean(dim=0)
    return Choices(by_wanted, score.mean(dim=0), found)


def _batches(task: ContextualRetrievalTask, subset: str) -> Iterator[tuple[Sets, dict[str, Any]]]:
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    for start in range(0, len(dataset), _BATCH):
        numbers = list(range(start, min(start + _BATCH, len(dataset))))
        yield dataset.sets.select(numbers), dataset.collater(numbers)
