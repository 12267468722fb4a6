"""Keys and values, projected alike by every attention kind of heads."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.initialization import xavier_linear


class KeyValueProjection(Attention):
    """Keys and values of `num_heads` heads of `head_dim`, without biases.

    Args:
        source_dim: size of the states attended to.
        num_heads, head_dim: heads and their size.
    """

    def __init__(self, source_dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.key = xavier_linear(source_dim, num_heads * head_dim, bias=False)
        self.value = xavier_linear(source_dim, num_heads * head_dim, bias=False)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Project `(num_tokens, source_dim)`: -> two `(num_tokens, num_heads, head_dim)`."""
        shape = (-1, self.num_heads, self.head_dim)
        return self.key(states).view(shape), self.value(states).view(shape)
