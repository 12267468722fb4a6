"""What the depth loops of a model do on a batch, step by step: attention, copy gates, halting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.errors import InputError
from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.location import MAPS, NUMBERS
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.recurrent.gru import GRUDecoder
from sut_fairseq.modules.stack import Stack
from sut_fairseq.modules.tokens import ActiveTokens


class Choice(NamedTuple):
    """The experts that a router chose at all steps; blank where the token was not computed.

    Attributes:
        indices: `(run, batch, length, top_k)`, -1 if blank.
        weights: weight of each in the mixture, same shape, NaN if blank; a token's sum to 1.
    """

    indices: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Shape:
    """What can be looked at in the encoder or the decoder of a model.

    Attributes:
        num_steps: how many steps its loop may run; 1 for a recurrent decoder.
        halts: whether its tokens can halt.
        num_heads: of its attention.
        stack: the loop; None for a recurrent decoder.
    """

    num_steps: int
    halts: bool
    num_heads: int
    stack: Stack | None


@dataclass(frozen=True)
class StackTrace:
    """The steps of one depth loop; all tensors are on the CPU, NaN where nothing was computed.

    Attributes:
        num_steps: how many steps the loop may run; `run` <= `num_steps` are recorded, fewer if
            every token halts before.
        computed: which tokens took the step, `(run, batch, length)`, bool.
        attention: by "self_attention" and, in a decoder, "cross_attention": the weights,
            `(run, batch, num_heads, length, num_keys)`, before dropout; those of a mixture are
            averaged over the chosen experts by the weights that the router gave them.
        top_k: by the same names the number of experts averaged; 1 if there is no mixture.
        gates: of a data-router block, in (0, 1), `(run, batch, length, embed_dim)`; else None.
        gazes: by the same names, for attention with a moving gaze, its components (`NUMBERS` and
            `MAPS` of `modules.location`), `(run, batch, num_heads, length, ...)`.
        halted: probability of having halted before the step, `(run, batch, length)`, NaN at
            padding only; None without halting.
        experts: by "self_attention", "cross_attention" and "feed_forward", for those that are
            mixtures.
    """

    num_steps: int
    computed: Tensor
    attention: dict[str, Tensor]
    top_k: dict[str, int]
    gates: Tensor | None
    halted: Tensor | None
    gazes: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    experts: dict[str, Choice] = field(default_factory=dict)

    @property
    def depth(self) -> Tensor:
        """Steps until each token was read out, `(batch, length)`, 0 at padding.

        Stick-breaking: the steps it ran. ACT: T, which may be fewer than it ran.
        """
        if self.halted is None:
            return self.computed.sum(dim=0)
        return (self.computed & (self.halted < 1)).sum(dim=0)


@dataclass(frozen=True)
class Trace:
    """What a model did on a batch.

    Attributes:
        output: the first result of its `forward`, the scores.
        stacks: by "encoder" and "decoder", those that it has.
    """

    output: Tensor
    stacks: dict[str, StackTrace]


def trace(model: nn.Module, sample: dict[str, Any]) -> Trace:
    """Run a model on a batch and record every step.

    It runs in evaluation mode, without gradients; a decoder reads all `prev_output_tokens` at once.
    Afterwards the model is as before.

    Args:
        model: a model that has steps to look at: with depth loops (`encoder_classifier`,
            `universal_transformer`), or with a recurrent decoder (`recurrent_translation`), which
            counts as a single step.
        sample: a batch as fairseq collates it, on the device of the model.

    Raises:
        InputError: if the model has no steps to look at.
    """
    observers = recorders(model)
    with evaluating(model):
        output = model(**sample["net_input"], observers=observers)[0]
    return Trace(output.cpu(), {name: one.result() for name, one in observers.items()})


def looked_at(model: nn.Module) -> dict[str, Shape]:
    """What there is to look at in a model, by "encoder" and "decoder".

    Raises:
        InputError: if there is nothing.
    """
    found = {}
    for name, loop in stacks(model).items():
        attention: Any = loop.block.self_attention
        found[name] = Shape(loop.num_steps, loop.halting.halts, attention.num_heads, loop)
    if any(isinstance(module, GRUDecoder) for module in model.modules()):
        found["decoder"] = Shape(1, False, 1, None)
    if not found:
        raise InputError(
            f"there are no steps to look at in a {type(model).__name__}: give an "
            "encoder_classifier, a universal_transformer or a recurrent_translation model."
        )
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, without gradients; restore its modes on exit."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def recorders(model: nn.Module, *, maps: bool = True) -> dict[str, Recorder]:
    """Observers of everything there is to look at, to be passed to `forward` as `observers`.

    Args:
        model: as for `trace`.
        maps: whether to record attention and gates, which costs memory, and time because attention
            cannot be fused.

    Raises:
        InputError: if there is nothing to look at.
    """
    return {
        name: Recorder(shape.num_steps, shape.halts, maps)
        for name, shape in looked_at(model).items()
    }


class Recorder(Observer):
    """Collects the steps of one depth loop on one batch.

    Args:
        num_steps: how many steps the loop may run.
        halts: whether its tokens can halt.
        maps: whether to collect attention and gates.
    """

    def __init__(self, num_steps: int, halts: bool, maps: bool) -> None:
        self.looks_inside = maps
        self._num_steps = num_steps
        self._halts = halts
        self._halted: Tensor | None = None
        self._tokens: ActiveTokens | None = None
        self._steps: dict[str, list[Tensor]] = {}
        self._expert_weights: dict[str, Tensor] = {}
        self._top_k: dict[str, int] = {}

    def result(self) -> StackTrace:
        """What was recorded."""
        steps = {name: torch.stack(tensors) for name, tensors in self._steps.items()}
        gazes: dict[str, dict[str, Tensor]] = {}
        experts: dict[str, Choice] = {}
        for name, values in steps.items():
            part, _, what = name.rpartition(".")
            if what == "expert_indices":
                weights = steps[f"{part}.expert_weights"]
                experts[part] = Choice(values.nan_to_num(-1).long(), weights)
            elif what in (*NUMBERS, *MAPS):
                gazes.setdefault(part, {})[what] = values
        return StackTrace(
            num_steps=self._num_steps,
            computed=steps["computed"],
            attention={name: steps[name] for name in self._top_k},
            top_k=dict(self._top_k),
            gates=steps.get("gate"),
            halted=steps.get("halted"),
            gazes=gazes,
            experts=experts,
        )

    def halting(self, tokens: ActiveTokens, state: HaltingState) -> None:
        if self._halts:
            halted = 1 - state.remaining
            self._halted = (
                _blank_but(tokens, halted)
                if self._halted is None
                else tokens.put(self._halted, halted)
            )

    def step(self, step: int, tokens: ActiveTokens) -> None:
        self._tokens = tokens
        everyone = torch.ones(len(tokens), dtype=torch.bool, device=tokens.column.device)
        self._add("computed", tokens.put(everyone.new_zeros(tokens.batch, tokens.length), everyone))
        if self._halted is not None:
            self._add("halted", self._halted)

    def saw(self, name: str, values: Tensor) -> None:
        assert self._tokens is not None, "`step` comes first"
        part, _, what = name.rpartition(".")
        if what == "expert_indices":
            self._add(name, _blank_but(self._tokens, values.float()))
        elif what == "expert_weights":
            # A mixture shows its choice before its weights.
            self._expert_weights[part] = values
            self._add(name, _blank_but(self._tokens, values))
        elif what == "weights":
            self._top_k[part] = values.shape[2]
            expert_weights = self._expert_weights.pop(part, None)
            if expert_weights is None:
                weights = values.squeeze(2)
            else:
                weights = torch.einsum("nhkj,nk->nhj", values, expert_weights)
            self._add(part, _blank_but(self._tokens, weights).transpose(1, 2))
        elif what in (*NUMBERS, *MAPS):
            self._add(name, _blank_but(self._tokens, values).transpose(1, 2))
        elif name == "gate":
            self._add(name, _blank_but(self._tokens, values))

    def _add(self, name: str, values: Tensor) -> None:
        self._steps.setdefault(name, []).append(values.cpu())


def _blank_but(tokens: ActiveTokens, values: Tensor) -> Tensor:
    """`(batch, length, ...)` with the active tokens' `(num_tokens, ...)`, NaN elsewhere."""
    grid = values.new_full((tokens.batch, tokens.length, *values.shape[1:]), torch.nan)
    return tokens.put(grid, values)
