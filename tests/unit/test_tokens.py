"""Lists of active tokens: order, arrangement by sentence, reading and writing."""

from __future__ import annotations

import pytest
import torch

from sut_fairseq.modules.tokens import ActiveTokens

MASKS = {
    "ragged": [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
    "holes": [[1, 0, 1], [0, 0, 0], [1, 1, 0]],
    "full": [[1, 1, 1], [1, 1, 1]],
    "even": [[1, 0, 1], [0, 1, 1]],
    "none": [[0, 0], [0, 0]],
    "one": [[0, 0, 0], [0, 1, 0]],
}


@pytest.fixture(params=MASKS.values(), ids=MASKS.keys())
def mask(request: pytest.FixtureRequest) -> torch.Tensor:
    return torch.tensor(request.param).bool()


def grid_like(mask: torch.Tensor, *rest: int) -> torch.Tensor:
    shape = (*mask.shape, *rest)
    return 1 + torch.arange(torch.Size(shape).numel(), dtype=torch.float).view(shape)


def test_lists_tokens_row_by_row(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    places = mask.nonzero().tolist()
    assert len(tokens) == len(places)
    assert tokens.index.tolist() == [row * mask.shape[1] + column for row, column in places]
    assert tokens.column.tolist() == [column for _, column in places]
    assert tokens.width == int(mask.sum(1).max())
    assert (tokens.batch, tokens.length) == tuple(mask.shape)


def test_take_reads_what_put_writes(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    grid = grid_like(mask, 2)
    taken = tokens.take(grid)
    assert torch.equal(taken, grid[mask])
    before = grid.clone()
    written = tokens.put(grid, -taken)
    assert torch.equal(grid, before), "a copy is written, not the grid"
    assert torch.equal(written[mask], -grid[mask])
    assert torch.equal(written[~mask], grid[~mask])


def test_put_passes_gradients_to_what_it_kept_and_wrote() -> None:
    mask = torch.tensor(MASKS["holes"]).bool()
    tokens = ActiveTokens.from_mask(mask)
    grid = grid_like(mask, 2).requires_grad_()
    values = torch.ones(len(tokens), 2, requires_grad=True)
    (tokens.put(grid, values) * 3).sum().backward()
    assert torch.equal(grid.grad, torch.where(mask, 0.0, 3.0).unsqueeze(-1).expand_as(grid))
    assert (values.grad == 3).all()


def test_put_keeps_the_dtype_of_the_grid(mask: torch.Tensor) -> None:
    """Under autocast a step may end in another dtype than the states it goes into."""
    tokens = ActiveTokens.from_mask(mask)
    written = tokens.put(grid_like(mask, 2), torch.ones(len(tokens), 2, dtype=torch.bfloat16))
    assert written.dtype == torch.float32


def test_by_sentence_aligns_left_and_comes_back(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    if not len(tokens):
        return
    grid = grid_like(mask, 2)
    arranged = tokens.by_sentence(tokens.take(grid))
    assert arranged.shape == (mask.shape[0], tokens.width, 2)
    for row in range(mask.shape[0]):
        own = grid[row, mask[row]]
        assert torch.equal(arranged[row, : len(own)], own)
        assert not arranged[row, len(own) :].any()
    assert torch.equal(tokens.from_sentences(arranged), tokens.take(grid))


def test_selecting_is_masking(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    chosen = torch.arange(0, len(tokens), 2)
    remaining = torch.zeros(mask.numel(), dtype=torch.bool)
    remaining[tokens.index[chosen]] = True
    expected = ActiveTokens.from_mask(remaining.view_as(mask))
    selected = tokens.select(chosen)
    assert torch.equal(selected.index, expected.index)
    assert torch.equal(selected.slot, expected.slot)
    assert selected.width == expected.width
