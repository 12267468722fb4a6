"""What incremental decoding keeps between positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.distributions.gaze import GazeState
from sut_fairseq.modules.attention.interface import Memory


class DecodingCache:
    """Keys and values of all earlier positions, one entry for each step that any of them took.

    The block is shared by all steps but its keys and values are not: at step l a token attends to
    the states that earlier tokens had after step l - 1. A token that has halted keeps its keys and
    values, so an entry for a step that no token has taken yet would repeat the one before: it is
    made when the first token gets that far. Cross-attention reads the same memory at every step,
    so its keys and values are kept once; a moving gaze has its own state at each step. No padding
    mask is kept: a target may be padded at its end, as in fairseq, where later queries are padding
    too, but not at its start. Buffers are written in place, but copied first if gradients are
    computed, which need their old contents.

    Attributes:
        length: number of positions held.
        memory: keys and values of cross-attention, set by the first forward pass.
    """

    def __init__(self) -> None:
        self.length = 0
        self.memory: Memory | None = None
        # For each step that any position took: where its cross-attention looked.
        self._gazes: list[GazeState] = []
        # For each step: keys and values, (batch, num_heads, capacity, head_dim).
        self._entries: list[tuple[Tensor, Tensor]] = []

    @property
    def num_entries(self) -> int:
        """Number of steps that have an entry."""
        return len(self._entries)

    @property
    def gazes_move(self) -> bool:
        """Whether cross-attention depends on where earlier positions looked, once there are any."""
        return bool(self._gazes) and self._gazes[0].travelled is not None

    def gaze(self, step: int) -> GazeState:
        """Where the cross-attention of earlier positions looked in step `step`, from 0."""
        if step == len(self._gazes):
            self._gazes.append(GazeState())
        return self._gazes[step]

    def extend(self, step: int, keys: Tensor, values: Tensor) -> Memory:
        """Write the keys and values of the new positions at one step.

        Args:
            step: step of the depth loop, from 0.
            keys, values: `(batch, num_heads, num_new, head_dim)`.

        Returns:
            all positions at that step, the new ones included.
        """
        end = self.length + keys.shape[2]
        is_new = step == len(self._entries)
        held = self._entries[step - 1 if is_new else step] if self._entries else (None, None)
        keys, values = (
            self._with(new, old, overwrite=not is_new) for new, old in zip((keys, values), held)
        )
        self._entries[step : step + 1] = [(keys, values)]
        return Memory(keys[:, :, :end], values[:, :, :end], query_offset=self.length)

    def fill(self, step: int, keys: Tensor, values: Tensor) -> None:
        """Write new positions that all halted before this step to it and to all later ones."""
        for later in range(step, max(step + 1, self.num_entries)):
            self.extend(later, keys, values)

    def advance(self, num_new: int) -> None:
        """Count the new positions as held, once all steps have been written."""
        self.length += num_new

    def reorder(self, new_order: Tensor) -> None:
        """Select sentences (beams), `new_order` `(new_batch,)`, for all steps at once.

        Beams that keep their places are not copied, nor is unused capacity.
        """
        batch = self._entries[0][0].shape[0] if self._entries else None
        if new_order.numel() == batch and not torch.is_grad_enabled():
            places = torch.arange(batch, device=new_order.device)
            moved = (new_order != places).nonzero().squeeze(1)
            if moved.numel():
                for tensor in (tensor for entry in self._entries for tensor in entry):
                    held = tensor[:, :, : self.length]
                    held.index_copy_(0, moved, held.index_select(0, new_order[moved]))
        else:
            self._entries = [
                (self._selected(keys, new_order), self._selected(values, new_order))
                for keys, values in self._entries
            ]
        for gaze in self._gazes:
            gaze.reorder(new_order)
        if self.memory is not None:
            self.memory = _reordered(self.memory, new_order)

    def _selected(self, buffer: Tensor, new_order: Tensor) -> Tensor:
        _, num_heads, capacity, head_dim = buffer.shape
        selected = buffer.new_empty(new_order.numel(), num_heads, capacity, head_dim)
        held = buffer[:, :, : self.length]
        selected[:, :, : self.length] = held.index_select(0, new_order)
        return selected

    def _with(self, new: Tensor, held: Tensor | None, *, overwrite: bool) -> Tensor:
        """A buffer with the new positions behind the old ones, if possible the one that is held."""
        batch, num_heads, num_new, head_dim = new.shape
        end = self.length + num_new
        buffer = held if overwrite and not torch.is_grad_enabled() else None
        if buffer is None or buffer.shape[2] < end:
            capacity = 0 if held is None else held.shape[2]
            if capacity < end:
                capacity = max(16, 2 * end)  # doubling keeps the cost of copying linear
            buffer = new.new_empty(batch, num_heads, capacity, head_dim)
            if held is not None:
                buffer[:, :, : self.length] = held[:, :, : self.length]
        buffer[:, :, self.length : end] = new
        return buffer


def _reordered(memory: Memory, new_order: Tensor) -> Memory:
    """The memory for reordered beams: only `rows` changes, until sentences are done."""
    num_rows = memory.keys.shape[0]
    rows = memory.rows
    if rows is None:
        rows = torch.arange(num_rows, device=new_order.device)
    shrinks = new_order.numel() < rows.numel()
    rows = rows.index_select(0, new_order)
    if shrinks:
        used, renumbered = rows.unique(return_inverse=True)
        if used.numel() < num_rows:
            memory, rows = memory.select(used), renumbered
    return memory._replace(rows=rows)
