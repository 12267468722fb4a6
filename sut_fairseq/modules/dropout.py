"""Dropout that does not dominate training on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_VALUES = 1 << 16  # of a 16-bit random number


class Dropout(nn.Module):
    """Dropout, with cheaper random numbers on a CPU than torch's.

    torch draws a separate random number for each element, which takes an eighth of a training step
    of `sut_base` on two cores. Here 16 random bits decide: the probability is rounded to a multiple
    of 2^-16, and the scale matches the rounded probability, so that the expectation is exact.

    Args:
        p: probability of dropping an element, in [0, 1].
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        dropped = round(self.p * _VALUES)
        quick = x.device.type == "cpu" and x.is_floating_point()
        if not quick or not 0 < dropped < _VALUES or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        noise = torch.empty(x.shape, dtype=x.dtype)
        torch.ge(bits, dropped - _VALUES // 2, out=noise)
        scale = _VALUES / (_VALUES - dropped)
        if x.dtype.itemsize < 4:  # too coarse for the scale
            return x * noise * scale
        return x * noise.mul_(scale)

    def extra_repr(self) -> str:
        return f"p={self.p}"
