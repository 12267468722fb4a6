"""What the depth loops of a model do on a batch, step by step: attention, copy gates, halting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.errors import InputError
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.halting import HaltingState
from sut_fairseq.modules.stack import Stack
from sut_fairseq.modules.tokens import ActiveTokens


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
        halted: probability of having halted before the step, `(run, batch, length)`, NaN at
            padding only; None without halting.
    """

    num_steps: int
    computed: Tensor
    attention: dict[str, Tensor]
    top_k: dict[str, int]
    gates: Tensor | None
    halted: Tensor | None

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
        output: what its `forward` returned first, the scores.
        stacks: by "encoder" and "decoder", as far as it has them.
    """

    output: Tensor
    stacks: dict[str, StackTrace]


def trace(model: nn.Module, sample: dict[str, Any]) -> Trace:
    """Run a model on a batch and record every step.

    It runs in evaluation mode, without gradients; a decoder runs on `prev_output_tokens`, all at
    once. Afterwards the model is as before.

    Args:
        model: a model with depth loops (`encoder_classifier`, `universal_transformer`).
        sample: a batch as fairseq collates it, on the device of the model.

    Raises:
        InputError: if the model has no depth loop.
    """
    with recording(model) as recorders:
        output = model(**sample["net_input"])[0]
    return Trace(output.cpu(), {name: one.result() for name, one in recorders.items()})


def depth_loops(model: nn.Module) -> dict[str, Stack]:
    """The depth loops of a model, by "encoder" and "decoder".

    Raises:
        InputError: if there is none.
    """
    found = stacks(model)
    if not found:
        raise InputError(
            f"there are no steps to look at in a {type(model).__name__}: give an encoder_classifier"
            " or a universal_transformer."
        )
    return found


@contextmanager
def recording(model: nn.Module, *, maps: bool = True) -> Iterator[dict[str, _Recorder]]:
    """Records the one batch that a model runs meanwhile, in evaluation mode, without gradients.

    Args:
        model: a model with depth loops.
        maps: whether to record attention and gates, which takes memory, and time because attention
            cannot be fused.

    Raises:
        InputError: if the model has no depth loop.
    """
    loops = depth_loops(model)
    with ExitStack() as undo, torch.no_grad():
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
        model.eval()
        yield {name: _Recorder(stack, undo, maps) for name, stack in loops.items()}


class _Recorder:
    """Collects the steps of one depth loop.

    Args:
        stack: the loop.
        undo: what it changes on modules is undone when this closes.
        maps: whether to collect attention and gates.
    """

    def __init__(self, stack: Stack, undo: ExitStack, maps: bool) -> None:
        self._stack = stack
        self._undo = undo
        # What modules inside the block returned in the present step, by name.
        self._outputs: dict[str, Any] = {}
        self._tokens: ActiveTokens | None = None
        self._remaining: Tensor | None = None
        self._halted: Tensor | None = None
        self._steps: dict[str, list[Tensor]] = {}
        block: Any = stack.block
        self._attention = {
            name: getattr(block, name)
            for name in ("self_attention", "cross_attention")
            if maps and getattr(block, name) is not None
        }
        for name, attention in self._attention.items():
            core = attention.core
            undo.callback(setattr, core, "may_fuse", core.may_fuse)
            core.may_fuse = False
            self._note(f"{name}.weights", core.distribution)
            self._note(f"{name}.routing", getattr(attention, "router", None))
        self._note("gates", getattr(block, "copy_gate", None) if maps else None)
        self._hook(block, self._after_step)
        if stack.halting is not None:
            for method in ("start", "advance"):
                self._watch(stack.halting, method)

    def result(self) -> StackTrace:
        steps = {name: torch.stack(tensors) for name, tensors in self._steps.items()}
        return StackTrace(
            num_steps=self._stack.num_steps,
            computed=steps["computed"],
            attention={name: steps[name] for name in self._attention},
            top_k={
                name: attention.router.top_k if hasattr(attention, "router") else 1
                for name, attention in self._attention.items()
            },
            gates=steps.get("gates"),
            halted=steps.get("halted"),
        )

    def _hook(self, module: nn.Module, function: Callable[..., None]) -> None:
        self._undo.callback(module.register_forward_hook(function).remove)

    def _note(self, name: str, module: nn.Module | None) -> None:
        """Keep what a module returns until the end of the step."""

        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            self._outputs[name] = output

        if module is not None:
            self._hook(module, note)

    def _watch(self, halting: nn.Module, name: str) -> None:
        """Look at the states that a method of a halting unit returns; methods have no hooks."""
        method = getattr(halting, name)

        def watched(*inputs: Any) -> Any:
            state = method(*inputs)
            self._before_step(state)
            return state

        # On the instance, where it hides that of the class until it is taken away again.
        setattr(halting, name, watched)
        self._undo.callback(delattr, halting, name)

    def _before_step(self, state: HaltingState) -> None:
        """Read the state before the coming step, of the tokens of the last one."""
        self._remaining = state.remaining
        if self._tokens is not None and self._halted is not None:
            self._halted = self._tokens.put(self._halted, 1 - state.remaining)

    def _after_step(self, block: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        _, tokens, memory, cross_memory, *_ = inputs
        self._tokens = tokens
        shape = (tokens.batch, tokens.length)
        everyone = torch.ones(len(tokens), dtype=torch.bool, device=memory.keys.device)
        self._add("computed", tokens.put(everyone.new_zeros(shape), everyone))
        if self._remaining is not None:
            if self._halted is None:
                self._halted = _blank_but(tokens, 1 - self._remaining)
            self._add("halted", self._halted)
        memories = {"self_attention": memory, "cross_attention": cross_memory}
        for name in self._attention:
            weights = _by_token(self._outputs[f"{name}.weights"], tokens, memories[name])
            routing = self._outputs.get(f"{name}.routing")
            if routing is None:
                weights = weights.squeeze(2)
            else:
                weights = torch.einsum("nhkj,nk->nhj", weights, routing.expert_weights)
            self._add(name, _blank_but(tokens, weights).transpose(1, 2))
        if "gates" in self._outputs:
            self._add("gates", _blank_but(tokens, self._outputs["gates"]))
        self._outputs.clear()

    def _add(self, name: str, values: Tensor) -> None:
        self._steps.setdefault(name, []).append(values.cpu())


def _blank_but(tokens: ActiveTokens, values: Tensor) -> Tensor:
    """`(batch, length, ...)` with the active tokens' `(num_tokens, ...)`, NaN elsewhere."""
    grid = values.new_full((tokens.batch, tokens.length, *values.shape[1:]), torch.nan)
    return tokens.put(grid, values)


def _by_token(weights: Tensor, tokens: ActiveTokens, memory: Memory) -> Tensor:
    """Weights by token, `(num_tokens, num_heads, top_k, num_keys)`.

    Args:
        weights: `(rows, num_heads, width, top_k, num_keys)`, as arranged by `AttentionCore`.
        tokens: the queries.
        memory: what they attended to.
    """
    arrangement = tokens.arrange(memory.rows, memory.keys.shape[0])
    return arrangement.from_sentences(weights.transpose(1, 2))
