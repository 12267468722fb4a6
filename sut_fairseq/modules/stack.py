"""The depth loop: one block, run several steps, each token until it halts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sut_fairseq.modules.arrangement import DistinctRows
from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.block import TransformerBlock
from sut_fairseq.modules.errors import check, check_choice
from sut_fairseq.modules.halting import HaltingState, StickBreakingHalting
from sut_fairseq.modules.tokens import LAYOUTS, ActiveTokens
from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics


class StackOutput(NamedTuple):
    """What the loop returns.

    Attributes:
        states: expected halted states S_L, `(batch, length, embed_dim)`; the input at padding.
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

    def run(self, num_tokens: int | Tensor, remaining: Tensor | None) -> None:
        """Count a step: E[depth] is the sum over steps of the probability of reaching them."""
        self.steps_run = self.steps_run + num_tokens
        if remaining is not None:
            self.expected_depth = self.expected_depth + remaining.sum()

    def stop(self, remaining: Tensor, halted: Tensor, step: int) -> None:
        """Count tokens that halt before this step: what mass they keep goes to the last step."""
        unused = (remaining * halted).sum()
        self.expected_depth = self.expected_depth + unused * (self.num_steps - step)

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
        )


class Stack(nn.Module):
    """Runs a block `num_steps` times over the tokens that have not halted (SUT Algorithm 1).

    Queries come from the unhalted states h of the active tokens, keys and values from the expected
    halted states S of all tokens. A token that has halted keeps its h and S: it is no longer
    computed at all, and its keys and values stay as they are.

    Args:
        block: the shared block.
        num_steps: number of steps, at least 1; the weights do not depend on it.
        halting: the halting unit; None runs all steps for all tokens. With one step it is never
            asked, and its parameters get no gradient.
        final_norm: applied to the result (pre-norm blocks need it); None: nothing.
        checkpoint_activations: recompute each step in the backward pass instead of keeping its
            activations.
        layout: how tokens that are padding or have halted are left out, "compact" or "masked"
            (see `tokens`), or "auto": masked where reading their number would cost more than
            computing them, in training on a GPU, and under `torch.compile`; else compact.
    """

    def __init__(
        self,
        block: TransformerBlock,
        num_steps: int,
        *,
        halting: StickBreakingHalting | None = None,
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
    ) -> StackOutput:
        """Run the loop.

        Args:
            states: embedded tokens, `(batch, length, embed_dim)`.
            padding_mask: True at padding, `(batch, length)`.
            cross_memory: keys and values of cross-attention.
            cache: earlier positions in incremental decoding; `states` are then the positions that
                follow them, and the cache holds these as well afterwards.
        """
        tokens = changed = self._tokens(padding_mask)
        hidden, expected_states = tokens.take(states), states
        halting_state = None if self.halting is None else self.halting.start(hidden)
        counts = _Counts(tokens.count(), self.num_steps)
        keys_values: tuple[Tensor, Tensor] | None = None
        routing: dict[str, RoutingStatistics] = {}

        for step in range(self.num_steps):
            if halting_state is not None and step > 0:
                tokens, hidden, halting_state = self._halt(
                    step, tokens, hidden, halting_state, counts
                )
            if cache is None:
                # Nobody else will look at the keys and values of a sentence that has halted.
                changed = changed.in_sentences_of(tokens)
            if len(changed) or keys_values is None:
                keys_values = self._update_keys_values(keys_values, changed, expected_states)
            keys, values = (grid.transpose(1, 2) for grid in keys_values)
            if not len(tokens):
                if cache is not None:
                    cache.fill(step, keys, values)
                break
            memory = Memory(keys, values, padding_mask)
            if cache is not None:
                memory = cache.extend(step, keys, values)
            changed = tokens
            remaining = None if halting_state is None else halting_state.log_remaining.exp()
            weights = tokens.weights(remaining, hidden)
            counts.run(tokens.count(), None if remaining is None else weights)
            inputs = (hidden, tokens, halting_state, weights, memory, cross_memory)
            if self.checkpoint_activations and self.training:
                outputs = checkpoint(self._run_step, *inputs, use_reentrant=False)
            else:
                outputs = self._run_step(*inputs)
            hidden, own, step_routing = outputs
            # The first grid is the caller's; later ones nobody needs any more without gradients.
            overwrite = step > 0 and not torch.is_grad_enabled()
            expected_states = tokens.put(expected_states, own, overwrite=overwrite)
            for name, statistics in step_routing.items():
                routing[name] = routing[name] + statistics if name in routing else statistics

        if cache is not None:
            cache.advance(states.shape[1])
        if self.final_norm is not None:
            expected_states = self.final_norm(expected_states)
        halting = None if halting_state is None else counts.statistics(halting_state.log_remaining)
        return StackOutput(expected_states, routing, halting)

    def _halt(
        self,
        step: int,
        tokens: ActiveTokens,
        hidden: Tensor,
        halting_state: HaltingState,
        counts: _Counts,
    ) -> tuple[ActiveTokens, Tensor, HaltingState]:
        """Predict who halts before this step; the tokens that go on, their h and their state."""
        assert self.halting is not None
        halting_state = self.halting.advance(hidden, halting_state)
        halted = self.halting.halted(halting_state)
        remaining = tokens.weights(halting_state.log_remaining.exp(), hidden)
        assert remaining is not None
        counts.stop(remaining, halted, step)
        tokens, places = tokens.keep(~halted)
        if places is None:
            return tokens, hidden, halting_state
        return tokens, DistinctRows.apply(hidden, places), halting_state.select(places)

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
        """One step for the active tokens: their h and s, routing statistics."""
        output = self.block(hidden, tokens, memory, cross_memory, call_weights)
        own = output.hidden
        if self.halting is not None and halting_state is not None:
            own = self.halting.expected_state(own, halting_state)
        return output.hidden, own, output.routing

    def _update_keys_values(
        self,
        keys_values: tuple[Tensor, Tensor] | None,
        changed: ActiveTokens,
        expected_states: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, `(batch, length, num_heads, head_dim)`, after a step.

        Only those of the tokens that the step changed are computed.
        """
        new = self.block.keys_values(changed.take(expected_states))
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
