"""The differentiable neural computer and the LSTM as readers of sentences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sut_fairseq.modules.recurrent.dnc import DNC
from sut_fairseq.modules.recurrent.lstm import LSTM
from sut_fairseq.modules.recurrent.memory import ExternalMemory, MemoryState
from tests.comparison import assert_agree, normal, randomise
from tests.reference_dnc import Sizes, dnc

INPUT_DIM, HIDDEN_DIM = 2, 3
CELLS, HEADS, WORD = 3, 2, 2
LENGTHS = torch.tensor([4, 1, 3])
CHANGES = ("masked", "erased", "sharpened")


def build(seed: int = 1, **changes: bool) -> DNC:
    memory = ExternalMemory(CELLS, HEADS, WORD, **changes)
    model = DNC(INPUT_DIM, HIDDEN_DIM, memory).double()
    randomise(model, seed, scale=1.0)
    return model


def inputs(seed: int = 0) -> Tensor:
    return normal(len(LENGTHS), 4, INPUT_DIM, seed=seed)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict.fromkeys(CHANGES, False),
        *({name: name == only for name in CHANGES} for only in CHANGES),
    ],
    ids=["all", "none", *CHANGES],
)
def test_it_is_its_equations(changes: dict[str, bool]) -> None:
    model, x = build(**changes), inputs()
    parameters = dict(model.named_parameters())
    sizes = Sizes(CELLS, HEADS, WORD, **changes)
    expected = torch.stack(
        [dnc(row[:length], parameters, sizes) for row, length in zip(x, LENGTHS.tolist())]
    )
    assert_agree({"output": model(x, LENGTHS)}, {"output": expected}, {**parameters, "inputs": x})


def readers() -> dict[str, torch.nn.Module]:
    sizes = dict(num_layers=2, dropout=0.3)
    lstm = LSTM(INPUT_DIM, HIDDEN_DIM, **sizes)
    both_ways = LSTM(INPUT_DIM, HIDDEN_DIM, bidirectional=True, **sizes)
    return {
        "dnc": build(),
        "lstm": randomise(lstm.double(), 2).eval(),
        "bilstm": randomise(both_ways.double(), 3).eval(),
    }


@pytest.mark.parametrize("name", ["dnc", "lstm", "bilstm"])
def test_padding_and_batch_mates_change_nothing(name: str) -> None:
    reader, x = readers()[name], inputs().detach()
    whole = reader(x, LENGTHS)
    assert whole.shape == (3, reader.output_dim)
    garbage = torch.cat([x, torch.full_like(x, 7.0)], dim=1)
    for row, length in enumerate(LENGTHS.tolist()):
        garbage[row, length:] = 7.0
        alone = reader(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(alone[0], whole[row], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(reader(garbage, LENGTHS), whole, rtol=1e-12, atol=1e-12)


def test_the_lstm_is_read_at_both_ends() -> None:
    reader, x = readers()["bilstm"], inputs().detach()[:1]
    states = reader.layers(x)[0][0]
    ends = torch.cat([states[-1, :HIDDEN_DIM], states[0, HIDDEN_DIM:]])
    torch.testing.assert_close(reader(x, LENGTHS[:1])[0], ends)


class Told:
    """An interface vector put together by hand; everything that is not set is 0."""

    def __init__(self, memory: ExternalMemory) -> None:
        self.memory = memory

    def step(self, before: MemoryState, **said: Tensor) -> tuple[Tensor, MemoryState]:
        parts = []
        for name, shape in self.memory._shapes.items():
            parts.append(said.pop(name, torch.zeros(shape)).expand(shape).flatten())
        assert not said
        return self.memory(torch.cat(parts).double().unsqueeze(0), before)


YES, NO = torch.tensor([50.0]), torch.tensor([-50.0])


def written(told: Told, *values: float) -> MemoryState:
    """A memory whose free cells were filled with these values, one after the other."""
    state = told.memory.start(torch.zeros(1, 1, dtype=torch.float64))
    for value in values:
        where = dict(write_gate=YES, allocation_gate=YES, erase=YES, free_gates=NO)
        _, state = told.step(state, write=torch.tensor([value, 1.0]), **where)
    return state


def test_writing_fills_free_cells_and_links_them() -> None:
    state = written(Told(ExternalMemory(CELLS, HEADS, WORD)), 2.0, 3.0)
    expected = torch.tensor([[2.0, 1.0], [3.0, 1.0], [0.0, 0.0]]).double()
    torch.testing.assert_close(state.cells[0], expected)
    links = torch.zeros(CELLS, CELLS).double()
    links[1, 0] = 1  # the second was written right after the first
    torch.testing.assert_close(state.links[0], links)


@pytest.mark.parametrize("sharpened", [True, False])
def test_reading_by_content_and_along_the_links(sharpened: bool) -> None:
    """The head looks the first value up, then follows the order in which they were written."""
    told = Told(ExternalMemory(CELLS, 1, WORD, masked=False, sharpened=sharpened))
    state = written(told, -2.0, 3.0)
    by_content, forward = torch.tensor([[0.0, 50.0, 0.0]]), torch.tensor([[0.0, 0.0, 50.0]])
    keys = torch.tensor([[0.0, 0.0], [-2.0, 1.0]])
    idle = dict(write_gate=NO, free_gates=NO)
    words, state = told.step(state, modes=by_content, keys=keys, strengths=YES.expand(2), **idle)
    torch.testing.assert_close(words[0, 0], torch.tensor([-2.0, 1.0]).double())
    words, state = told.step(state, modes=forward, **idle)
    found = torch.tensor([3.0, 1.0]).double()
    # Sharpening by the least power, 1.7, leaves the other cells what the epsilon gives them.
    torch.testing.assert_close(words[0, 0], found, rtol=0, atol=1e-6)


@pytest.mark.parametrize("erased", [True, False])
def test_freeing_what_was_read(erased: bool) -> None:
    """The cell is free again; its content is gone only with erasure."""
    told = Told(ExternalMemory(CELLS, 1, WORD, erased=erased))
    state = written(told, 4.0)
    read = dict(keys=torch.tensor([[0.0, 0.0], [4.0, 1.0]]), strengths=YES.expand(2))
    by_content = torch.tensor([[0.0, 50.0, 0.0]])
    _, state = told.step(state, modes=by_content, write_gate=NO, free_gates=NO, **read)
    assert state.usage[0, 0] > 0.999
    _, state = told.step(state, modes=by_content, write_gate=NO, free_gates=YES)
    assert state.usage[0, 0] < 0.001
    assert state.cells[0, 0, 0] == pytest.approx(0.0 if erased else 4.0, abs=1e-3)


def test_a_mask_leaves_components_out_of_the_look_up() -> None:
    """Two cells differ in the first component only: masked, the key finds both alike."""
    told = Told(ExternalMemory(2, 1, WORD))
    state = written(told, 0.0, 9.0)
    weights = []
    for first in (YES, NO):
        masks = torch.stack([torch.zeros(2), torch.cat([first, YES])])
        look = dict(keys=torch.tensor([[0.0, 0.0], [9.0, 1.0]]), strengths=YES.expand(2))
        modes = torch.tensor([[0.0, 50.0, 0.0]])
        _, after = told.step(state, modes=modes, masks=masks, write_gate=NO, **look)
        weights.append(after.read_weights[0, 0, 1].item())
    assert weights[0] > 0.999 and weights[1] == pytest.approx(0.5, abs=1e-3)


def test_gradients_are_finite_from_an_empty_memory() -> None:
    model, x = build().float(), inputs().float().detach()
    model(x, LENGTHS).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
