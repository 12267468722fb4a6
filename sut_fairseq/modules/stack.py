"""The depth loop: one block, applied to each token for several steps or until it halts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.block import Block
from sut_fairseq.modules.halting.course import Course
from sut_fairseq.modules.halting.fixed_depth import FixedDepth
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.observer import Look, Observer
from sut_fairseq.modules.step_memory import StepMemory, lay_out
from sut_fairseq.modules.tokens import LAYOUTS, ActiveTokens
from sut_fairseq.statistics import (
    HaltingStatistics,
    RouterCalls,
    RoutingStatistics,
    route_statistics,
)


class StackOutput(NamedTuple):
    """What the loop returns.

    Attributes:
        states: the read-out of each token (with stick-breaking its expected halted state),
            `(batch, length, embed_dim)`; at padding the input, normalised like the rest.
        routing: sums over all steps for each routed module, by its name in the block; empty in
            incremental decoding, where nothing is learned.
        halting: sums over all tokens; None for a stack whose depth is fixed.
    """

    states: Tensor
    routing: dict[str, RoutingStatistics]
    halting: HaltingStatistics | None


class Stack(nn.Module):
    """Runs a block `num_steps` times over the tokens that have not halted (SUT Algorithm 1).

    Queries come from the unhalted states h of the active tokens, keys and values from what the
    halting kind lets others attend to (stick-breaking: the expected halted states S) of all tokens.
    A token that needs no more steps keeps its states: it is no longer computed at all, and its keys
    and values stay as they are.

    Args:
        block: the shared block.
        num_steps: number of steps, at least 1; the weights do not depend on it.
        halting: the halting kind; None: a fixed depth. With one step, a unit that predicts after a
            step is never used, and its parameters get no gradient.
        final_norm: applied to the result (pre-norm blocks need it); None: nothing.
        checkpoint_activations: recompute each step in the backward pass instead of keeping its
            activations.
        layout: how padding and halted tokens are left out, "compact" or "masked" (see `tokens`), or
            "auto": masked in training on a GPU, where reading their number would cost more than
            computing them, and under `torch.compile`; else compact.

    Raises:
        InputError: if `num_steps` is less than 1, or for an unknown layout.
    """

    def __init__(
        self,
        block: Block,
        num_steps: int,
        *,
        halting: Halting[Any] | None = None,
        final_norm: nn.Module | None = None,
        checkpoint_activations: bool = False,
        layout: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("token_layout", layout, LAYOUTS)
        check(num_steps >= 1, "num_steps", "at least 1", num_steps)
        self.block = block
        self.num_steps = num_steps
        self.halting: Halting[Any] = FixedDepth() if halting is None else halting
        self.final_norm = nn.Identity() if final_norm is None else final_norm
        self.checkpoint_activations = checkpoint_activations
        self.layout = layout

    def forward(
        self,
        states: Tensor,
        padding_mask: Tensor,
        cross_memory: Memory | None = None,
        cache: DecodingCache | None = None,
        num_steps: int | None = None,
        observer: Observer | None = None,
    ) -> StackOutput:
        """Run the loop.

        Args:
            states: embedded tokens, `(batch, length, embed_dim)`.
            padding_mask: True at padding, `(batch, length)`.
            cross_memory: keys and values of cross-attention.
            cache: earlier positions in incremental decoding; `states` are then the positions that
                follow them, which are added to the cache.
            num_steps: number of steps of this call; None: the stack's own.
            observer: is told what is computed.

        Raises:
            InputError: if `num_steps` is less than 1, the mask does not fit the states, or
                activations are checkpointed in a block that updates its buffers.
        """
        if num_steps is None:
            num_steps = self.num_steps
        check(num_steps >= 1, "num_steps", "at least 1", num_steps)
        tokens = self._tokens(states, padding_mask)
        hidden = tokens.take(states)
        course = Course(
            self.halting, hidden, tokens, num_steps, decoding=cache is not None, observer=observer
        )
        shows_read_out = self.halting.shows_read_out
        padding = _if_any(padding_mask, tokens)
        memory = StepMemory(
            self.block, states, tokens, padding, cache, shows_read_out=shows_read_out
        )
        routing: dict[str, list[RouterCalls]] = {}
        if cross_memory is not None and cache is not None and cache.gazes_move:
            cross_memory = cross_memory.for_each_sentence()  # once, not at every step

        for step in range(num_steps):
            hidden = course.advance(step, hidden)
            attended = memory.before(step, course.tokens)
            if attended is None:
                break
            if cross_memory is not None and cache is not None:
                cross_memory = cross_memory._replace(
                    gaze=cache.gaze(step), query_offset=cache.length
                )
            hidden, read_out, step_routing = self._step(
                step, hidden, course, attended, cross_memory, observer
            )
            memory.put(course.tokens, hidden, read_out)
            for name, calls in step_routing.items():
                routing.setdefault(name, []).append(calls)

        memory.close()
        sums = {}
        if cache is None:
            sums = {name: route_statistics(calls) for name, calls in routing.items()}
        return StackOutput(self.final_norm(memory.read_out), sums, course.finish())

    def _step(
        self,
        step: int,
        hidden: Tensor,
        course: Course[Any],
        memory: Memory,
        cross_memory: Memory | None,
        observer: Observer | None,
    ) -> tuple[Tensor, Tensor, dict[str, RouterCalls]]:
        """Run one step for the active tokens: their h, their read-out and the routers' calls."""
        inputs = (hidden, course.tokens, course.state, memory, cross_memory, course.run(hidden))
        if self.checkpoint_activations and self.training:
            before = self._versions()
            result = checkpoint(self._compute, *inputs, use_reentrant=False)
            # The backward pass would compute with the new values, and update them once more.
            allowed = "off with a block that updates buffers of its own in training"
            check(self._versions() == before, "checkpoint_activations", allowed, True)
            return result
        look: Look | None = None
        if observer is not None:
            observer.step(step, course.tokens)
            look = observer.saw if observer.looks_inside else None
        return self._compute(*inputs, look=look)

    def _compute(
        self,
        hidden: Tensor,
        tokens: ActiveTokens,
        state: HaltingState,
        memory: Memory,
        cross_memory: Memory | None,
        call_weights: Tensor | None,
        look: Look | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, RouterCalls]]:
        output = self.block(hidden, tokens, memory, cross_memory, call_weights, look)
        return output.hidden, self.halting.read_out(output.hidden, state), output.routing

    def _versions(self) -> list[int]:
        """A number for each buffer of the block, which grows whenever it is changed."""
        return [buffer._version for buffer in self.block.buffers()]

    def _tokens(self, states: Tensor, padding_mask: Tensor) -> ActiveTokens:
        # Other masks would be read, too, and give wrong results: ~1 is -2, which counts as True.
        if padding_mask.dtype != torch.bool or padding_mask.shape != states.shape[:2]:
            batch, length = states.shape[:2]
            requirement = f"a bool tensor of the size ({batch}, {length}) of the states' grid"
            given = f"a tensor of {padding_mask.dtype} of the size {tuple(padding_mask.shape)}"
            check(False, "padding_mask", requirement, given)
        layout = self.layout
        if layout == "auto":
            masked = torch.compiler.is_compiling() or (self.training and padding_mask.is_cuda)
            layout = "masked" if masked else "compact"
        return ActiveTokens.from_mask(~padding_mask, layout)

    def unrecordable(self, dtype: torch.dtype) -> str | None:
        """Why a training step cannot be recorded as a CUDA graph; None: it can.

        Args:
            dtype: the dtype of matrix products.
        """
        if self.layout == "compact":
            return "needs shapes that do not depend on values: drop --token-layout compact"
        if self.checkpoint_activations:
            return "does not go with --checkpoint-activations"
        return None

    def cross_memory(self, states: Tensor, padding_mask: Tensor) -> Memory:
        """Keys and values of cross-attention, computed once for all steps.

        Args:
            states: the encoder's states, `(batch, source_length, source_dim)`.
            padding_mask: True at padding, `(batch, source_length)`.

        Raises:
            InputError: if the mask does not fit the states.
        """
        tokens = self._tokens(states, padding_mask)
        new = self.block.cross_keys_values(tokens.take(states))
        keys, values = (grid.transpose(1, 2) for grid in lay_out(tokens, new))
        return Memory(keys, values, _if_any(padding_mask, tokens))


def _if_any(padding_mask: Tensor, tokens: ActiveTokens) -> Tensor | None:
    """The mask that `tokens` were made from; None without padding: attention then hides nothing."""
    return None if tokens.active is None and tokens.fills_grid else padding_mask
