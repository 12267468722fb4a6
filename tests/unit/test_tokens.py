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
    assert (tokens.batch, tokens.length) == tuple(mask.shape)


def test_in_front(mask: torch.Tensor) -> None:
    """Whether each sentence keeps its first tokens, any number of them."""
    tokens = ActiveTokens.from_mask(mask)
    in_front = all(row == sorted(row, reverse=True) for row in mask.tolist())
    assert tokens.in_front == in_front
    lengths = torch.tensor([[2], [0], [3]])
    assert ActiveTokens.from_mask(torch.arange(3) < lengths).in_front
    assert ActiveTokens.from_mask(mask, "masked").in_front


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


@pytest.mark.parametrize("rows", [None, [0, 0, 1], [1, 0, 1], [4, 4, 4]])
def test_arranges_by_the_row_attended_to(mask: torch.Tensor, rows: list[int] | None) -> None:
    tokens = ActiveTokens.from_mask(mask)
    if not len(tokens):
        return
    batch = mask.shape[0]
    attended = torch.arange(batch) if rows is None else torch.tensor(rows[:batch])
    num_rows = batch if rows is None else 5
    arrangement = tokens.arrange(None if rows is None else attended, num_rows)
    values = tokens.take(grid_like(mask, 2))
    arranged = arrangement.by_sentence(values)
    present = arrangement.present
    present = torch.arange(num_rows) if present is None else present
    assert arranged.shape == (len(present), arrangement.width, 2)
    of_token = attended[tokens.row]
    assert arrangement.width == int(torch.bincount(of_token).max())
    assert set(of_token.tolist()) <= set(present.tolist())
    for row, own in zip(present, arranged):
        expected = values[of_token == row]
        assert torch.equal(own[: len(expected)], expected)
        assert not own[len(expected) :].any()
    assert torch.equal(arrangement.from_sentences(arranged), values)


def test_leaves_out_rows_that_nobody_attends_to() -> None:
    mask = torch.zeros(8, 3, dtype=torch.bool)
    mask[2], mask[5, 0] = True, True
    arrangement = ActiveTokens.from_mask(mask).arrange(None, 8)
    assert (arrangement.num_rows, arrangement.width) == (2, 3)
    assert arrangement.present.tolist() == [2, 5]


def test_keeping_is_masking(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    running = torch.arange(len(tokens)) % 2 == 0
    remaining = torch.zeros(mask.numel(), dtype=torch.bool)
    remaining[tokens.index[running]] = True
    expected = ActiveTokens.from_mask(remaining.view_as(mask))
    kept, places = tokens.keep(running)
    assert torch.equal(kept.index, expected.index)
    if len(kept) == len(tokens):
        assert kept is tokens and places is None
    else:
        assert torch.equal(tokens.index[places], kept.index)
    masked, places = ActiveTokens.from_mask(mask, "masked").keep(remaining)
    assert places is None
    assert torch.equal(masked.active.view_as(mask), remaining.view_as(mask))


def test_sentences_in_common(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask)
    others = tokens.keep(tokens.row == 1)[0]
    expected = tokens.index[tokens.row == 1]
    found, places = tokens.in_sentences_of(others)
    assert torch.equal(found.index, expected)
    assert torch.equal(tokens.index if places is None else tokens.index[places], expected)
    same, places = tokens.in_sentences_of(tokens)
    assert same is tokens and places is None


def test_masked_tokens_are_the_whole_grid(mask: torch.Tensor) -> None:
    tokens = ActiveTokens.from_mask(mask, "masked")
    grid = grid_like(mask, 2)
    assert len(tokens) == mask.numel()
    assert int(tokens.count()) == int(mask.sum())
    assert torch.equal(tokens.take(grid), grid.flatten(0, 1))
    written = tokens.put(grid, -grid.flatten(0, 1))
    assert torch.equal(written, torch.where(mask.unsqueeze(-1), -grid, grid))
    assert tokens.column.view_as(mask).tolist() == [list(range(mask.shape[1]))] * len(mask)
    weights = torch.full((mask.numel(),), 0.5)
    assert torch.equal(tokens.weights(weights, weights), 0.5 * mask.flatten())
    assert torch.equal(tokens.weights(None, weights), mask.flatten().float())
