"""The external memory of a differentiable neural computer (Graves et al. 2016, Methods).

With the three changes of Csordás and Schmidhuber 2019: masked look-up, cells that are erased when
they are freed, and temporal links that are sharpened before they are followed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_EPSILON = 1e-6  # added where an empty memory would cause a division by 0


class MemoryState(NamedTuple):
    """What the memory holds after a step; all of it is 0 at the start.

    Attributes:
        cells: contents M, `(batch, num_cells, word_dim)`.
        usage: how much each cell is in use, u, in [0, 1], `(batch, num_cells)`.
        write_weights: w^w, `(batch, num_cells)`.
        precedence: how much each cell was the last one written, p, `(batch, num_cells)`.
        links: how much cell i was written right after cell j, L, `(batch, num_cells, num_cells)`.
        read_weights: w^r, `(batch, num_heads, num_cells)`.
    """

    cells: Tensor
    usage: Tensor
    write_weights: Tensor
    precedence: Tensor
    links: Tensor
    read_weights: Tensor


class ExternalMemory(nn.Module):
    """Cells that a controller writes to and reads from; without parameters.

    Args:
        num_cells: number of cells N.
        num_heads: number of read heads R.
        word_dim: size of a cell W.
        masked: cells are looked up by the components that the controller chooses.
        erased: a freed cell loses its content, not only its claim to be kept.
        sharpened: the controller chooses how sharp the distributions that follow links are.
    """

    def __init__(
        self,
        num_cells: int,
        num_heads: int,
        word_dim: int,
        *,
        masked: bool = True,
        erased: bool = True,
        sharpened: bool = True,
    ) -> None:
        super().__init__()
        self.num_cells = num_cells
        self.num_heads = num_heads
        self.word_dim = word_dim
        self.masked = masked
        self.erased = erased
        self.sharpened = sharpened
        # Outputs of the controller in a step, by name; where there is a write head, it comes first.
        self._shapes: dict[str, tuple[int, ...]] = {
            "keys": (1 + num_heads, word_dim),
            "strengths": (1 + num_heads,),
            "erase": (word_dim,),
            "write": (word_dim,),
            "free_gates": (num_heads,),
            "allocation_gate": (1,),
            "write_gate": (1,),
            "modes": (num_heads, 3),
        }
        if masked:
            self._shapes["masks"] = (1 + num_heads, word_dim)
        if sharpened:
            self._shapes["sharpness"] = (2, num_heads)

    @property
    def interface_dim(self) -> int:
        """Size of the interface vector, which controls the memory."""
        return sum(math.prod(shape) for shape in self._shapes.values())

    def start(self, like: Tensor) -> MemoryState:
        """An empty memory for each row of `like`, with its dtype and device."""
        batch, cells, heads = len(like), self.num_cells, self.num_heads
        shapes = [(cells, self.word_dim), (cells,), (cells,), (cells,), (cells, cells)]
        return MemoryState(*(like.new_zeros(batch, *shape) for shape in [*shapes, (heads, cells)]))

    def forward(self, interface: Tensor, before: MemoryState) -> tuple[Tensor, MemoryState]:
        """Write once, then read with every head.

        Args:
            interface: output of the controller, `(batch, interface_dim)`.
            before: the memory before this step.

        Returns:
            the words read, `(batch, num_heads, word_dim)`, and the memory after this step.
        """
        says = self._split(interface)
        strengths = 1 + F.softplus(says["strengths"])
        masks = says["masks"].sigmoid() if self.masked else torch.ones_like(says["keys"])

        retention = (1 - says["free_gates"].sigmoid().unsqueeze(2) * before.read_weights).prod(1)
        used = before.usage + before.write_weights - before.usage * before.write_weights
        usage = used * retention
        found = _look_up(before.cells, says["keys"][:, :1], strengths[:, :1], masks[:, :1])
        allocate = says["allocation_gate"].sigmoid()
        place = allocate * _allocation(usage) + (1 - allocate) * found.squeeze(1)
        write_weights = says["write_gate"].sigmoid() * place

        kept = 1 - write_weights.unsqueeze(2) * says["erase"].sigmoid().unsqueeze(1)
        if self.erased:
            kept = kept * retention.unsqueeze(2)
        cells = before.cells * kept + write_weights.unsqueeze(2) * says["write"].unsqueeze(1)
        links, precedence = _linked(before, write_weights)

        forward = before.read_weights @ links.transpose(1, 2)
        backward = before.read_weights @ links
        if self.sharpened:
            sharpness = 1 + F.softplus(says["sharpness"])
            backward, forward = map(_sharpen, (backward, forward), sharpness.unbind(1))
        content = _look_up(cells, says["keys"][:, 1:], strengths[:, 1:], masks[:, 1:])
        modes = says["modes"].softmax(dim=2).unsqueeze(3)
        ways = torch.stack([backward, content, forward], dim=2)
        read_weights = (modes * ways).sum(dim=2)
        after = MemoryState(cells, usage, write_weights, precedence, links, read_weights)
        return read_weights @ cells, after

    def _split(self, interface: Tensor) -> dict[str, Tensor]:
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        parts = zip(self._shapes.items(), interface.split(sizes, dim=1))
        return {name: part.unflatten(1, shape) for (name, shape), part in parts}


def _look_up(cells: Tensor, keys: Tensor, strengths: Tensor, masks: Tensor) -> Tensor:
    """Softmax over cells of strength times cosine of key and cell, both masked.

    Args:
        cells: `(batch, num_cells, word_dim)`.
        keys: `(batch, num_heads, word_dim)`.
        strengths: `(batch, num_heads)`.
        masks: in [0, 1], `(batch, num_heads, word_dim)`.

    Returns:
        `(batch, num_heads, num_cells)`.
    """
    square = masks**2
    products = (square * keys) @ cells.transpose(1, 2)
    cell_norms = (square @ (cells**2).transpose(1, 2) + _EPSILON).sqrt()
    key_norms = ((square * keys**2).sum(dim=2, keepdim=True) + _EPSILON).sqrt()
    return (strengths.unsqueeze(2) * products / (cell_norms * key_norms)).softmax(dim=2)


def _allocation(usage: Tensor) -> Tensor:
    """Where to write next: the least used cell to the extent that it is free, then the next, ..."""
    ascending, order = usage.sort(dim=1, stable=True)
    all_before_in_use = F.pad(ascending.cumprod(dim=1)[:, :-1], (1, 0), value=1.0)
    allocation = (1 - ascending) * all_before_in_use
    return torch.zeros_like(usage).scatter(1, order, allocation)


def _linked(before: MemoryState, write_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Links and precedence after a write with the weights `(batch, num_cells)`."""
    to, since = write_weights.unsqueeze(2), write_weights.unsqueeze(1)
    links = (1 - to - since) * before.links + to * before.precedence.unsqueeze(1)
    links = links * (1 - torch.eye(links.shape[1], dtype=links.dtype, device=links.device))
    remaining = 1 - write_weights.sum(dim=1, keepdim=True)
    return links, remaining * before.precedence + write_weights


def _sharpen(weights: Tensor, sharpness: Tensor) -> Tensor:
    """Weights `(batch, num_heads, num_cells)` to the power of `(batch, num_heads)`, normalised."""
    return (sharpness.unsqueeze(2) * (weights + _EPSILON).log()).softmax(dim=2)
