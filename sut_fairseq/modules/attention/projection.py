"""The key and value projections that the multi-head attention kinds share."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.initialization import xavier_linear


class KeyValueProjection(Attention):
    """Keys and values of `num_heads` heads of `head_dim`.

    Args:
        source_dim: size of the states attended to.
        num_heads, head_dim: heads and their size.
        bias: whether both projections have biases.
        reads_keys: whether keys are read; if not, they have size 0 and no parameters.
    """

    def __init__(
        self,
        source_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        bias: bool = False,
        reads_keys: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        inner_dim = num_heads * head_dim
        self.key = xavier_linear(source_dim, inner_dim, bias=bias) if reads_keys else None
        self.value = xavier_linear(source_dim, inner_dim, bias=bias)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Project `(num_tokens, source_dim)`: -> two `(num_tokens, num_heads, head_dim)`.

        Keys that are not read are `(num_tokens, num_heads, 0)`.
        """
        values = self.value(states).view(-1, self.num_heads, self.head_dim)
        if self.key is None:
            return values[..., :0], values
        return self.key(states).view(values.shape), values
