"""What a model does with the sentences of a split: depth by group, and who uses which expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq import tasks
from torch import Tensor

from sut_fairseq.analysis import average_steps, trained
from sut_fairseq.analysis.depth import set_threshold
from sut_fairseq.analysis.evaluation import by_reference
from sut_fairseq.analysis.traces import evaluating, looked_at
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.tokens import ActiveTokens

Progress = Callable[[int], object]
_TOP_WORDS = 8
_OFTEN = 3  # a rarer word says nothing about an expert


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
        model, task: a trained model that halts, and its task with the split loaded.
        split, numbers: which sentences.
        by: what makes a group.
        thresholds: halting thresholds; None: as the model is.
        max_tokens: of a batch, padding included.
        progress: called with the number of sentences of each batch that is done.

    Returns:
        `by`; `sentences`, how many; `groups`, each with its name and `sentences`; `greatest` number
        of steps by loop; `steps`: for each threshold by loop the average of each group.
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


def routers(model: Any) -> dict[str, dict[str, Router]]:
    """The routers of each depth loop, by the layer that they belong to."""
    return {
        name: {
            place.split(".")[0]: module
            for place, module in ([] if shape.stack is None else shape.stack.block.named_modules())
            if isinstance(module, Router)
        }
        for name, shape in looked_at(model).items()
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
    """Which words use which expert; the model reads the reference, at its present threshold.

    Arguments are as for `depth_record`.

    Returns:
        `sentences`, how many, and `layers`: by loop and layer for each expert its `load` (share of
        all choices) and `words`: those that send more than an even part of their weight to it,
        the greatest part first, each with this part and how often it was seen; words seen less
        than three times do not count.
    """
    dataset, ask = task.dataset(split), by_reference(model, task)
    dictionaries = {"encoder": task.source_dictionary, "decoder": task.target_dictionary}
    uses = {
        name: {layer: _Use(len(dictionaries[name]), one.num_experts) for layer, one in own.items()}
        for name, own in routers(model).items()
    }
    for group in trained.similar_lengths(dataset, numbers, max_tokens):
        batch = dataset.collater([dataset[number] for number in group])
        inputs = batch["net_input"]
        tokens = {"encoder": inputs["src_tokens"], "decoder": inputs.get("prev_output_tokens")}
        inputs["observers"] = {name: _Watch(tokens[name], own) for name, own in uses.items()}
        with evaluating(model):
            ask(batch)
        progress(len(group))
    return {
        "sentences": len(numbers),
        "layers": {
            name: {layer: use.record(dictionaries[name].symbols) for layer, use in own.items()}
            for name, own in uses.items()
        },
    }


class _Use:
    """Sums of what one router chose.

    Args:
        vocabulary: number of words.
        num_experts: number of experts.
    """

    def __init__(self, vocabulary: int, num_experts: int) -> None:
        self.weight = torch.zeros(vocabulary, num_experts)
        self.seen = torch.zeros(vocabulary, dtype=torch.long)
        self.load = torch.zeros(num_experts, dtype=torch.long)

    def see(self, tokens: Tensor) -> None:
        """Count the words of all tokens, `(num_tokens,)`."""
        self.seen += tokens.bincount(minlength=len(self.seen))

    def add(self, tokens: Tensor, indices: Tensor, weights: Tensor) -> None:
        """Add a step: tokens `(num_tokens,)`, their experts and weights `(num_tokens, top_k)`."""
        rows = tokens.unsqueeze(1).expand_as(indices)
        self.weight.index_put_((rows, indices), weights.float(), accumulate=True)
        self.load += indices.flatten().bincount(minlength=len(self.load))

    def record(self, symbols: Sequence[str]) -> list[dict[str, Any]]:
        """For each expert its load and its words."""
        often = (self.seen >= _OFTEN).nonzero().flatten()
        # The weights of a token sum to 1 at each step.
        shares = self.weight[often] / self.weight[often].sum(dim=1, keepdim=True)
        result = []
        for expert, load in enumerate(self.load.tolist()):
            best = shares[:, expert].topk(min(_TOP_WORDS, len(often)))
            words = [
                [symbols[word], round(share, 3), int(self.seen[word])]
                for share, word in zip(best.values.tolist(), often[best.indices].tolist())
                if share > 1 / len(self.load)
            ]
            total = max(1, int(self.load.sum()))
            result.append({"load": round(load / total, 4), "words": words})
        return result


class _Watch(Observer):
    """Adds what the routers of a loop choose, of one batch.

    Args:
        tokens: what the loop reads, `(batch, length)`.
        uses: sums, by layer.
    """

    def __init__(self, tokens: Tensor, uses: dict[str, _Use]) -> None:
        self._tokens = tokens
        self._uses = uses
        self._indices: dict[str, Tensor] = {}

    def step(self, step: int, tokens: ActiveTokens) -> None:
        self._active = tokens.active
        self._own = self._chosen(tokens.take(self._tokens))
        if step == 0:
            for use in self._uses.values():
                use.see(self._own)

    def saw(self, name: str, values: Tensor) -> None:
        layer, _, what = name.rpartition(".")
        if what == "expert_indices":
            self._indices[layer] = values
        elif what == "expert_weights":
            indices = self._chosen(self._indices.pop(layer))
            self._uses[layer].add(self._own, indices, self._chosen(values))

    def _chosen(self, values: Tensor) -> Tensor:
        """Those of the active tokens, `(num_tokens, ...)`."""
        return values if self._active is None else values[self._active]
