"""What tokens attend to in each step: states, their keys and values, the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.block import Block
from sut_fairseq.modules.tokens import ActiveTokens

KeysValues = tuple[Tensor, Tensor]


class StepMemory:
    """The states of all tokens during one call of the depth loop, and their keys and values.

    Between two steps only the tokens that took the last one have changed: the keys and values of
    the others are kept.

    Args:
        block: makes keys and values of states.
        states: inputs of the first step, `(batch, length, embed_dim)`.
        tokens: the tokens that are not padding.
        padding_mask: True at padding, `(batch, length)`; None: no padding.
        cache: earlier positions in incremental decoding; the new ones are added to it.
        shows_read_out: see `Halting`.

    Attributes:
        read_out: the result so far, `(batch, length, embed_dim)`; the input at padding.
    """

    def __init__(
        self,
        block: Block,
        states: Tensor,
        tokens: ActiveTokens,
        padding_mask: Tensor | None,
        cache: DecodingCache | None,
        *,
        shows_read_out: bool,
    ) -> None:
        self._block = block
        self._padding_mask = padding_mask
        self._cache = cache
        self._shows_read_out = shows_read_out
        self._changed = tokens
        self._keys_values: KeysValues | None = None
        self._shown = tokens.take(states)  # states of `_changed` that others attend to
        self._is_own = False  # the first grid is the caller's
        self.read_out = states

    def before(self, step: int, tokens: ActiveTokens) -> Memory | None:
        """What `tokens` attend to in step `step` (from 0); None if there are no `tokens`."""
        changed, shown = self._changed, self._shown
        if self._cache is None:
            # The keys and values of a sentence that has halted are never attended to again.
            changed, places = changed.in_sentences_of(tokens)
            shown = shown if places is None else shown.index_select(0, places)
        if len(changed) or self._keys_values is None:
            self._keys_values = self._updated(changed, self._block.keys_values(shown))
        self._changed = tokens
        keys, values = (grid.transpose(1, 2) for grid in self._keys_values)
        if not len(tokens):
            if self._cache is not None:
                self._cache.fill(step, keys, values)
            return None
        if self._cache is not None:
            return self._cache.extend(step, keys, values)
        return Memory(keys, values, self._padding_mask)

    def put(self, tokens: ActiveTokens, hidden: Tensor, read_out: Tensor) -> None:
        """Store the results of a step for `tokens`, both `(num_tokens, embed_dim)`.

        Args:
            tokens: the tokens that took the step.
            hidden: their new states.
            read_out: their read-out.
        """
        overwrite = self._is_own and not torch.is_grad_enabled()
        self._is_own = True
        self.read_out = tokens.put(self.read_out, read_out, overwrite=overwrite)
        self._shown = (read_out if self._shows_read_out else hidden).to(self.read_out.dtype)

    def close(self) -> None:
        """Count the new positions as decoded, after the last step."""
        if self._cache is not None:
            self._cache.advance(self.read_out.shape[1])

    def _updated(self, changed: ActiveTokens, new: KeysValues) -> KeysValues:
        """Keys and values of all tokens, with the `new` ones of `changed`, see `lay_out`."""
        if self._keys_values is None:
            return lay_out(changed, new)
        overwrite = not torch.is_grad_enabled()
        keys, values = (
            changed.put(grid, own, overwrite=overwrite)
            for grid, own in zip(self._keys_values, new, strict=True)
        )
        return keys, values


def lay_out(tokens: ActiveTokens, new: KeysValues) -> KeysValues:
    """Keys and values `(num_tokens, ...)` as `(batch, length, ...)` each, 0 elsewhere."""
    shape = (tokens.batch, tokens.length)
    keys, values = (
        tokens.put(own.new_zeros(*shape, *own.shape[1:]), own, overwrite=True) for own in new
    )
    return keys, values
