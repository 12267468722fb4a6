"""Attention outside a depth loop: all tokens of a sentence, or set, attend to each other once."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.interface import Attention, Memory
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import RouterCalls


def attend_within(
    attention: Attention, states: Tensor, look: Look | None = None
) -> tuple[Tensor, RouterCalls | None]:
    """Let all tokens of each row attend to each other.

    Args:
        attention: any kind whose source and target states have one size.
        states: `(batch, length, embed_dim)`, without padding.
        look: receives weights and more, see `Observer.saw`.

    Returns:
        `(batch, length, embed_dim)`, and the router's calls if the kind is routed.
    """
    grid = states.shape[:2]
    padding_mask = torch.zeros(grid, dtype=torch.bool, device=states.device)
    layout = "masked" if states.is_cuda else "compact"  # all are active: no need to wait
    tokens = ActiveTokens.from_mask(~padding_mask, layout)
    flat = tokens.take(states)
    keys, values = (new.unflatten(0, grid).transpose(1, 2) for new in attention.keys_values(flat))
    memory = Memory(keys, values, padding_mask)
    result, calls = attention(flat, tokens, memory, tokens.weights(None, flat), look)
    return result.unflatten(0, grid), calls
