"""Which words are routed to which expert (SUT Table 3 and Figure 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from fairseq import tasks
from torch import Tensor

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.evaluation import by_reference
from sut_fairseq.analysis.traces import evaluating, looked_at
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.tokens import ActiveTokens

_OFTEN = 3  # a rarer word says nothing about an expert


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


class WordUse(NamedTuple):
    """A word and an expert.

    Attributes:
        text: the word.
        seen: how often the split has it.
        share: share of the word's weight that the expert got, over all steps, in [0, 1].
        affinity: pointwise mutual information of the two, see `Use.affinity`.
    """

    text: str
    seen: int
    share: float
    affinity: float


class Use:
    """The choices of one router, summed over all steps.

    Args:
        symbols: the words, by their number.
        num_experts: number of experts.

    Attributes:
        weight: sum of the weights with which tokens of a word chose an expert,
            `(num_words, num_experts)`; those of a token sum to 1 at each step.
        seen: number of tokens of each word, `(num_words,)`.
        load: number of choices of each expert, `(num_experts,)`.
    """

    def __init__(self, symbols: Sequence[str], num_experts: int) -> None:
        self.symbols = symbols
        # In float32 the sum of a frequent word would no longer grow beyond 2 ** 24.
        self.weight = torch.zeros(len(symbols), num_experts, dtype=torch.double)
        self.seen = torch.zeros(len(symbols), dtype=torch.long)
        self.load = torch.zeros(num_experts, dtype=torch.long)

    def see(self, tokens: Tensor) -> None:
        """Count the words of all tokens, `(num_tokens,)`."""
        self.seen += tokens.bincount(minlength=len(self.seen))

    def add(self, tokens: Tensor, indices: Tensor, weights: Tensor) -> None:
        """Add a step: tokens `(num_tokens,)`, their experts and weights `(num_tokens, top_k)`.

        An index may be `num_experts`, see `RouterCalls`.
        """
        chosen = indices < len(self.load)
        rows, indices = tokens.unsqueeze(1).expand_as(indices)[chosen], indices[chosen]
        self.weight.index_put_((rows, indices), weights[chosen].double(), accumulate=True)
        self.load += indices.bincount(minlength=len(self.load))

    def often(self) -> Tensor:
        """The words that were seen at least three times, the most frequent first."""
        order = self.seen.argsort(descending=True, stable=True)
        return order[self.seen[order] >= _OFTEN]

    def affinity(self) -> Tensor:
        """Pointwise mutual information of word w and expert e in nats, `(num_words, num_experts)`.

        log p(w, e) / (p(w) p(e)), where p(w, e) is the share of all weight that goes from w to e;
        -inf where there is none.
        """
        joint = self.weight / self.weight.sum().clamp(min=1e-30)
        even = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
        return torch.where(joint > 0, (joint / even).log(), -torch.inf)

    def words(self, most: int | None = None) -> list[list[WordUse]]:
        """For each expert, the words that send it the greatest share of their weight, best first.

        Args:
            most: at most this many, all with more than an even share; None: all words that were
                seen at least three times.
        """
        often, affinity = self.often(), self.affinity()
        shares = self.weight[often] / self.weight[often].sum(dim=1, keepdim=True)
        result = []
        for expert, own in enumerate(shares.unbind(dim=1)):
            order = own.argsort(descending=True, stable=True)
            if most is not None:
                order = order[own[order] > 1 / len(self.load)][:most]
            words = often[order]
            columns = (words, self.seen[words], own[order], affinity[words, expert])
            rows = zip(*(column.tolist() for column in columns))
            result.append([WordUse(self.symbols[word], *figures) for word, *figures in rows])
        return result

    def loads(self) -> list[float]:
        """The share of all choices that each expert got."""
        return [load / max(1, int(self.load.sum())) for load in self.load.tolist()]


def expert_use(
    model: Any,
    task: tasks.FairseqTask,
    split: str,
    numbers: Sequence[int],
    *,
    max_tokens: int,
    progress: Callable[[int], object],
) -> dict[str, dict[str, Use]]:
    """Which words use which expert; the model reads the reference, at its current threshold.

    Args:
        model, task: a trained model on the CPU, and its task with the split loaded.
        split, numbers: which sentences.
        max_tokens: of a batch, padding included.
        progress: called with the number of sentences of each batch that is done.

    Returns:
        the sums by loop ("encoder", "decoder") and layer ("self_attention", ...).
    """
    ask = by_reference(model, task)
    symbols = {"encoder": task.source_dictionary.symbols, "decoder": _read_by_decoder(task)}
    uses = {
        name: {layer: Use(symbols[name], one.num_experts) for layer, one in own.items()}
        for name, own in routers(model).items()
    }
    for batch in trained.batches_of(task.dataset(split), numbers, max_tokens):
        inputs = batch["net_input"]
        tokens = {"encoder": inputs["src_tokens"], "decoder": inputs.get("prev_output_tokens")}
        inputs["observers"] = {name: _Watch(tokens[name], own) for name, own in uses.items()}
        with evaluating(model):
            ask(batch)
        progress(len(batch["id"]))
    return uses


def _read_by_decoder(task: tasks.FairseqTask) -> list[str]:
    """Names of a decoder's tokens: it reads <eos> only at the start, as the begin symbol."""
    words = task.target_dictionary
    symbols: list[str] = words.symbols.copy()
    symbols[words.eos()] = words.bos_word
    return symbols


class _Watch(Observer):
    """Adds up what the routers of a loop choose on one batch.

    Args:
        tokens: what the loop reads, `(batch, length)`; may be longer, because to predict a label
            the loop reads the first token alone.
        uses: sums, by layer.
    """

    def __init__(self, tokens: Tensor, uses: dict[str, Use]) -> None:
        self._tokens = tokens
        self._uses = uses
        self._indices: dict[str, Tensor] = {}

    def step(self, step: int, tokens: ActiveTokens) -> None:
        self._active = tokens.active
        self._own = self._chosen(tokens.take(self._tokens[:, : tokens.length]))
        if step == 0:
            for use in self._uses.values():
                use.see(self._own)

    def saw(self, name: str, values: Tensor) -> None:
        layer, _, what = name.rpartition(".")
        if layer not in self._uses:
            return  # it chooses without a `Router`
        if what == "expert_indices":
            self._indices[layer] = values
        elif what == "expert_weights":
            indices = self._chosen(self._indices.pop(layer))
            self._uses[layer].add(self._own, indices, self._chosen(values))

    def _chosen(self, values: Tensor) -> Tensor:
        """The values of the active tokens, `(num_tokens, ...)`."""
        return values if self._active is None else values[self._active]
