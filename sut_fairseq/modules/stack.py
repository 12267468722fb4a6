"""The depth loop: one block, run several steps, each token until it halts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.block import Block
from sut_fairseq.modules.halting import Halting, HaltingState
from sut_fairseq.modules.tokens import LAYOUTS, ActiveTokens
from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics


class StackOutput(NamedTuple):
    """What the loop returns.

    Attributes:
        states: what is read out of each token (with stick-breaking its expected halted state),
            `(batch, length, embed_dim)`; the input at padding.
        routing: sums over all steps for each routed module, by its name in the block.
        halting: sums over all tokens; None for a stack that does not halt.
    """

    states: Tensor
    routing: dict[str, RoutingStatistics]
    halting: HaltingStatistics | None


class _Counts:
    """Adds up `HaltingStatistics` while the loop runs."""

    def __init__(self, num_tokens: int | Tensor, num_steps: int) -> None:
        self.num_tokens = num_tokens
        self.num_steps = num_steps
        self.steps_run: int | Tensor = 0
        self.expected_depth: Tensor | float = 0.0
        self.remainder: Tensor | float = 0.0

    def run(self, tokens: ActiveTokens, remaining: Tensor | None) -> None:
        """Count a step: E[depth] is the sum over steps of the probability of reaching them."""
        self.steps_run = self.steps_run + tokens.count()
        if remaining is not None:
            self.expected_depth = self.expected_depth + self._sum(tokens, remaining)

    def stop(self, tokens: ActiveTokens, state: HaltingState, stopped: Tensor, step: int) -> None:
        """Count tokens that run `step` steps, where `stopped`: mass they keep goes to the last."""
        unused = self._sum(tokens, state.remaining * stopped)
        self.expected_depth = self.expected_depth + unused * (self.num_steps - step)
        self.finish(tokens, state.remainder * stopped)

    def finish(self, tokens: ActiveTokens, remainder: Tensor) -> None:
        """Count the remainders of tokens that run no more steps."""
        self.remainder = self.remainder + self._sum(tokens, remainder)

    @staticmethod
    def _sum(tokens: ActiveTokens, values: Tensor) -> Tensor:
        weights = tokens.weights(values, like=values)
        assert weights is not None
        return weights.sum()

    def statistics(self, like: Tensor) -> HaltingStatistics:
        """The sums, as tensors with the dtype and device of `like`."""

        def tensor(number: Tensor | float) -> Tensor:
            # Filling happens on the device; a tensor made from a number would be copied there.
            if isinstance(number, Tensor):
                return number.to(like.dtype)
            return torch.full((), number, dtype=like.dtype, device=like.device)

        return HaltingStatistics(
            tokens=tensor(self.num_tokens),
            expected_depth=tensor(self.expected_depth),
            steps_run=tensor(self.steps_run),
            steps_possible=tensor(self.num_tokens * self.num_steps),
            remainder=tensor(self.remainder),
        )


class Stack(nn.Module):
    """Runs a block `num_steps` times over the tokens that have not halted (SUT Algorithm 1).

    Queries come from the unhalted states h of the active tokens, keys and values from what the
    halting kind lets others attend to (stick-breaking: the expected halted states S) of all tokens.
    A token that needs no more steps keeps its states: it is no longer computed at all, and its keys
    and values stay as they are.

    Args:
        block: the shared block.
        num_steps: number of steps, at least 1; the weights do not depend on it.
        halting: the halting unit; None runs all steps for all tokens. With one step a unit that
            predicts after a step is never asked, and its parameters get no gradient.
        final_norm: applied to the result (pre-norm blocks need it); None: nothing.
        checkpoint_activations: recompute each step in the backward pass instead of keeping its
            activations.
        layout: how tokens that are padding or have halted are left out, "compact" or "masked"
            (see `tokens`), or "auto": masked where reading their number would cost more than
            computing them, in training on a GPU, and under `torch.compile`; else compact.
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
        self.halting = halting
        self.final_norm = final_norm
        self.checkpoint_activations = checkpoint_activations
        self.layout = layout

    def forward(
        self,
        states: Tensor,
        padding_mask: Tensor,
        cross_memory: Memory | None = None,
        cache: DecodingCache | None = None,
        num_steps: int | None = None,
    ) -> StackOutput:
        """Run the loop.

        Args:
            states: embedded tokens, `(batch, length, embed_dim)`.
            padding_mask: True at padding, `(batch, length)`.
            cross_memory: keys and values of cross-attention.
            cache: earlier positions in incremental decoding; `states` are then the positions that
                follow them, and the cache holds these as well afterwards.
            num_steps: number of steps of this call; None: the stack's own.

        Raises:
            ValueError: if `num_steps` is less than 1.
        """
        if num_steps is None:
            num_steps = self.num_steps
        check(num_steps >= 1, "num_steps", "at least 1", num_steps)
        tokens = changed = self._tokens(padding_mask)
        hidden, read_out, attended = tokens.take(states), states, states
        halting_state = None if self.halting is None else self.halting.start(hidden)
        counts = _Counts(tokens.count(), num_steps)
        keys_values: tuple[Tensor, Tensor] | None = None
        routing: dict[str, RoutingStatistics] = {}

        for step in range(num_steps):
            if halting_state is not None and step > 0:
                tokens, hidden, halting_state = self._halt(
                    step, tokens, hidden, halting_state, counts, decoding=cache is not None
                )
            if cache is None:
                # Nobody else will look at the keys and values of a sentence that has halted.
                changed = changed.in_sentences_of(tokens)
            if len(changed) or keys_values is None:
                keys_values = self._update_keys_values(keys_values, changed, attended)
            keys, values = (grid.transpose(1, 2) for grid in keys_values)
            if not len(tokens):
                if cache is not None:
                    cache.fill(step, keys, values)
                break
            memory = Memory(keys, values, padding_mask)
            if cache is not None:
                memory = cache.extend(step, keys, values)
            changed = tokens
            remaining = call_weights = None
            if self.halting is not None and halting_state is not None:
                remaining = halting_state.remaining
                call_weights = self.halting.call_weights(remaining)
            call_weights = tokens.weights(call_weights, hidden)
            counts.run(tokens, remaining)
            inputs = (hidden, tokens, halting_state, call_weights, memory, cross_memory)
            if self.checkpoint_activations and self.training:
                outputs = checkpoint(self._run_step, *inputs, use_reentrant=False)
            else:
                outputs = self._run_step(*inputs)
            hidden, own, step_routing = outputs
            # The first grid is the caller's; later ones nobody needs any more without gradients.
            overwrite = step > 0 and not torch.is_grad_enabled()
            newest = own if self.halting is None else self.halting.attended(hidden, own)
            # Two grids only for a kind that reads out one thing and attends to another.
            one_grid = newest is own
            read_out = tokens.put(read_out, own, overwrite=overwrite)
            attended = read_out if one_grid else tokens.put(attended, newest, overwrite=overwrite)
            for name, statistics in step_routing.items():
                routing[name] = routing[name] + statistics if name in routing else statistics

        if cache is not None:
            cache.advance(states.shape[1])
        if self.final_norm is not None:
            read_out = self.final_norm(read_out)
        halting = None
        if halting_state is not None:
            counts.finish(tokens, halting_state.remainder)
            halting = counts.statistics(halting_state.remaining)
        return StackOutput(read_out, routing, halting)

    def _halt(
        self,
        step: int,
        tokens: ActiveTokens,
        hidden: Tensor,
        halting_state: HaltingState,
        counts: _Counts,
        *,
        decoding: bool,
    ) -> tuple[ActiveTokens, Tensor, HaltingState]:
        """Predict who halts before this step; the tokens that go on, their h and their state."""
        assert self.halting is not None
        halting_state = self.halting.advance(hidden, halting_state)
        computed = self.halting.computed(halting_state, tokens, decoding)
        counts.stop(tokens, halting_state, ~computed, step)
        tokens, places = tokens.keep(computed)
        if places is None:
            return tokens, hidden, halting_state
        return tokens, hidden.index_select(0, places), halting_state.select(places)

    def _tokens(self, padding_mask: Tensor) -> ActiveTokens:
        layout = self.layout
        if layout == "auto":
            masked = torch.compiler.is_compiling() or (self.training and padding_mask.is_cuda)
            layout = "masked" if masked else "compact"
        return ActiveTokens.from_mask(~padding_mask, layout)

    def cross_memory(self, states: Tensor, padding_mask: Tensor) -> Memory:
        """Keys and values of cross-attention, once for all steps.

        Args:
            states: the encoder's states, `(batch, source_length, source_dim)`.
            padding_mask: True at padding, `(batch, source_length)`.
        """
        tokens = self._tokens(padding_mask)
        new = self.block.cross_keys_values(tokens.take(states))
        keys, values = (grid.transpose(1, 2) for grid in self._grids(tokens, new))
        return Memory(keys, values, padding_mask)

    def _run_step(
        self,
        hidden: Tensor,
        tokens: ActiveTokens,
        halting_state: HaltingState | None,
        call_weights: Tensor | None,
        memory: Memory,
        cross_memory: Memory | None,
    ) -> tuple[Tensor, Tensor, dict[str, RoutingStatistics]]:
        """One step for the active tokens: their h and what is read out, routing statistics."""
        output = self.block(hidden, tokens, memory, cross_memory, call_weights)
        own = output.hidden
        if self.halting is not None and halting_state is not None:
            own = self.halting.read_out(own, halting_state)
        return output.hidden, own, output.routing

    def _update_keys_values(
        self,
        keys_values: tuple[Tensor, Tensor] | None,
        changed: ActiveTokens,
        attended: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, `(batch, length, num_heads, head_dim)`, after a step.

        Only those of the tokens that the step changed are computed.
        """
        new = self.block.keys_values(changed.take(attended))
        if keys_values is None:
            return self._grids(changed, new)
        overwrite = not torch.is_grad_enabled()
        keys, values = (changed.put(*pair, overwrite=overwrite) for pair in zip(keys_values, new))
        return keys, values

    @staticmethod
    def _grids(tokens: ActiveTokens, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Lay keys and values `(num_tokens, ...)` out as `(batch, length, ...)`; 0 elsewhere."""
        shape = (tokens.batch, tokens.length, *new[0].shape[1:])
        keys, values = (tokens.put(own.new_zeros(shape), own, overwrite=True) for own in new)
        return keys, values
