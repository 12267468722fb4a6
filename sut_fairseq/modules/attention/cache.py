"""What incremental decoding keeps between positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.interface import Memory


class DecodingCache:
    """Keys and values of all earlier positions, one entry for each step of the depth loop.

    The block is shared by all steps but its keys and values are not: at step l a token attends to
    the states that earlier tokens had after step l - 1. Cross-attention reads the same memory at
    every step, so its keys and values are kept once. Padding is not remembered: a target may be
    padded at its end, as fairseq does it, but not at its start.

    Attributes:
        length: number of positions held.
        memory: keys and values of cross-attention, set by the first forward pass.
    """

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self.length = 0
        self.memory: Memory | None = None
        self._keys: Tensor | None = None  # (num_steps, batch, num_heads, capacity, head_dim)
        self._values: Tensor | None = None

    def extend(self, step: int, keys: Tensor, values: Tensor) -> Memory:
        """Write the keys and values of the new positions at one step.

        Args:
            step: step of the depth loop, from 0.
            keys, values: `(batch, num_heads, num_new, head_dim)`.

        Returns:
            all positions at that step, the new ones included.
        """
        end = self.length + keys.shape[2]
        if self._keys is None or self._values is None or self._keys.shape[3] < end:
            self._keys = self._grown(self._keys, keys, end)
            self._values = self._grown(self._values, values, end)
        self._keys[step, :, :, self.length : end] = keys
        self._values[step, :, :, self.length : end] = values
        return Memory(
            self._keys[step, :, :, :end], self._values[step, :, :, :end], query_offset=self.length
        )

    def advance(self, num_new: int) -> None:
        """Count the new positions as held, once all steps have been written."""
        self.length += num_new

    def reorder(self, new_order: Tensor) -> None:
        """Select sentences (beams), `new_order` `(new_batch,)`, for all steps at once."""
        if self._keys is not None and self._values is not None:
            unmoved = torch.arange(self._keys.shape[1], device=new_order.device)
            if torch.equal(new_order, unmoved):
                return  # greedy search asks for this at every position
            self._keys = self._keys.index_select(1, new_order)
            self._values = self._values.index_select(1, new_order)
        if self.memory is not None:
            mask = self.memory.padding_mask
            self.memory = Memory(
                self.memory.keys.index_select(0, new_order),
                self.memory.values.index_select(0, new_order),
                None if mask is None else mask.index_select(0, new_order),
            )

    def _grown(self, buffer: Tensor | None, new: Tensor, needed: int) -> Tensor:
        """A buffer for `needed` positions; doubling keeps the cost of copying linear."""
        batch, num_heads, _, head_dim = new.shape
        grown = new.new_zeros(self.num_steps, batch, num_heads, max(16, 2 * needed), head_dim)
        if buffer is not None:
            grown[:, :, :, : self.length] = buffer[:, :, :, : self.length]
        return grown
