"""Absolute positions."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from sut_fairseq.modules.positions import SinusoidalPositions

PAD = 1


@pytest.mark.parametrize("embed_dim", [8, 9])
@pytest.mark.parametrize(
    "length", [5, 12, 13, 40], ids=["short", "longest", "one more", "longer than the table"]
)
def test_are_those_of_fairseq(embed_dim: int, length: int) -> None:
    tokens = torch.full((4, length), 5)
    tokens[1, -3:] = PAD
    tokens[2, :2] = PAD
    tokens[3] = PAD
    theirs = SinusoidalPositionalEmbedding(embed_dim, PAD, init_size=12 + PAD + 1)(tokens)
    ours = SinusoidalPositions(embed_dim, 12, first=PAD + 1)
    assert torch.equal(ours(tokens.eq(PAD)), theirs)
    assert torch.equal(ours(tokens.eq(PAD), 3), theirs[:, 3:])
    assert not ours.state_dict()
