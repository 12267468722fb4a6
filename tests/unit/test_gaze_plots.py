"""Traces and pictures of attention whose gaze moves: recurrent decoders, and heads of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sut_fairseq.analysis import trace_plots
from sut_fairseq.analysis.gaze_plots import gaze_figure
from sut_fairseq.analysis.traces import StackTrace, trace
from sut_fairseq.modules.location import MAPS, NUMBERS
from tests.models import HALTING, LOCATION, MIX, batch, padding, small_model, small_recurrent
from tests.unit.test_traces import assert_legible, words

INPUTS = batch((6, 2, 4), (3, 7, 5))
SOURCE, TARGET = (~padding(INPUTS[key]) for key in ("src_tokens", "prev_output_tokens"))
RECURRENT = {
    "mix": dict(attender="mix"),
    "location": dict(attender="location"),
    "mix, attend before": dict(attender="mix", attend="before"),
}
HEADS = {
    "mix": MIX,
    "location halting": {**LOCATION, **HALTING, "alpha_threshold": 0.5},
    "masked": {**MIX, **HALTING, "alpha_threshold": 0.5, "token_layout": "masked"},
}


def decoder(model: nn.Module) -> StackTrace:
    return trace(model, {"net_input": INPUTS}).stacks["decoder"]


def assert_made_of_its_parts(steps: StackTrace, mixed: bool) -> None:
    """Weights are those of location, or their mixture with content, and move as the blocks say."""
    gaze, weights = steps.gazes["cross_attention"], steps.attention["cross_attention"]
    assert set(gaze) == {*NUMBERS, *MAPS} - (set() if mixed else {"content", "location_share"})
    for values in gaze.values():
        assert values.shape[:4] == weights.shape[:4]
        blank = values.isnan().reshape(*weights.shape[:4], -1).all(dim=-1)
        assert torch.equal(blank, weights.isnan().all(dim=-1))
    expected = gaze["location"]
    if mixed:
        share = gaze["location_share"].unsqueeze(-1)
        expected = share * expected + (1 - share) * gaze["content"]
    torch.testing.assert_close(weights, expected, equal_nan=True)
    # The centre of the first query: from one word before the first, by the building blocks.
    first = gaze["blocks"][0, :, :, 0]
    step = 1 / (SOURCE.sum(dim=1) - 1).clamp(min=1).unsqueeze(1)
    mean = -first[..., 0] * step + first[..., 1] * step + first[..., 2]
    centre = torch.where(mean < 0, 0.01 * mean, torch.where(mean > 1, 0.99 + 0.01 * mean, mean))
    torch.testing.assert_close(gaze["centre"][0, :, :, 0], centre / step)
    assert (gaze["spread"].nan_to_num(1) >= 0.27).all()


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_decoders_count_as_one_step(kind: str) -> None:
    model = small_recurrent(**RECURRENT[kind])
    found = trace(model, {"net_input": INPUTS})
    assert list(found.stacks) == ["decoder"]
    steps = found.stacks["decoder"]
    assert steps.num_steps == 1 and steps.halted is None and steps.gates is None
    assert torch.equal(steps.computed[0], TARGET)
    scores, extra = model(**INPUTS)
    torch.testing.assert_close(found.output, scores)
    shown = steps.attention["cross_attention"][0, :, 0]
    torch.testing.assert_close(shown[TARGET], extra["attn"][0][TARGET])
    assert not shown.nan_to_num()[~SOURCE.unsqueeze(1).expand_as(shown)].any()
    assert_made_of_its_parts(steps, "mix" in kind)


def test_a_recurrent_decoder_that_looks_at_content() -> None:
    steps = decoder(small_recurrent(attender="additive"))
    assert steps.gazes == {} and list(steps.attention) == ["cross_attention"]


@pytest.mark.parametrize("kind", HEADS)
def test_heads_that_move(kind: str) -> None:
    steps = decoder(small_model(**HEADS[kind]))
    assert_made_of_its_parts(steps, "location" not in kind)
    assert (~steps.computed[-1] & TARGET).any() == ("halting" in str(HEADS[kind]))


def parts(num_queries: int, num_keys: int, mixed: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.rand(num_queries, *shape, generator=generator)

    found = {"attention": random(num_keys), "location": random(num_keys), "blocks": random(3)}
    found |= {"centre": 30 * random(), "spread": random()}
    if mixed:
        found |= {"content": random(num_keys), "location_share": random()}
    found["centre"][-1] = torch.nan
    return found


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("queries", "keys", "length"), [(1, 1, 2), (3, 20, 6), (40, 30, 20)])
def test_pictures_are_legible(queries: int, keys: int, length: int, mixed: bool) -> None:
    given = parts(queries, keys, mixed)
    figure = gaze_figure(given, words(queries, length), words(keys, length), title="the title")
    *panels, bar = figure.axes
    assert len(panels) == (4 if mixed else 3) and bar.get_ylabel() == "attention weight"
    table = next(panel for panel in panels if panel.get_title() == "numbers")
    names = [label.get_text() for label in table.get_xticklabels()]
    assert names == [*(["share"] if mixed else []), "ρ mean", "ρ step", "ρ one", "μ", "σ"]
    cells = [text.get_text() for text in table.texts]
    assert cells[-2] == "" and float(cells[-1]) == pytest.approx(
        float(given["spread"][-1]), abs=0.01
    )
    assert_legible(figure)


def test_all_pictures() -> None:
    labels = {"encoder": [f"w{i}" for i in range(6)], "decoder": [f"v{i}" for i in range(7)]}

    def names(model: nn.Module, **options: Any) -> list[str]:
        figures = trace_plots.stack_figures("decoder", decoder(model), labels, **options)
        return [name for name, _ in figures if "gaze" in name]

    assert names(small_recurrent(attender="mix")) == ["decoder_gaze"]
    model = small_model(**MIX, decoder_layers=2)
    both = [f"decoder_gaze_step_{step}_head_{head}" for step in (1, 2) for head in (1, 2)]
    assert names(model) == both
    assert names(model, head=2) == both[1::2]
