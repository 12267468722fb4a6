"""Traces of depth loops, and the pictures made of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import Tensor, nn

from sut_fairseq.analysis import trace_plots
from sut_fairseq.analysis.traces import StackTrace, evaluating, recorders, trace
from sut_fairseq.errors import InputError
from sut_fairseq.models.encoder_classifier import EncoderClassifier
from tests import references
from tests.models import (
    COMPOSITIONAL,
    HALTING,
    MIXTURE,
    batch,
    lower_threshold,
    padding,
    small_model,
)
from tests.unit.test_sequence_classification import classifier, sources

INPUTS = batch()
REAL = {
    "encoder": ~padding(INPUTS["src_tokens"]),
    "decoder": ~padding(INPUTS["prev_output_tokens"]),
}
ROUTER = dict(
    encoder_block="data-router",
    decoder_block="data-router",
    attention_distribution="geometric",
    attention_positions="direction",
)
ACT = dict(encoder_halting="act", decoder_halting="act-ut")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "halting": HALTING,
    "mixture": {**MIXTURE, **HALTING},
    "masked": {**MIXTURE, **HALTING, "token_layout": "masked"},
    "compositional": {**COMPOSITIONAL, **HALTING},
    "act": ACT,
    "router": ROUTER,
    "router halting": {**ROUTER, **MIXTURE, **ACT},
}


def traced(model: nn.Module, inputs: dict[str, Tensor] = INPUTS) -> dict[str, StackTrace]:
    return trace(model, {"net_input": inputs}).stacks


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_distributions_and_blank_where_nothing_was_computed(kind: str) -> None:
    model = small_model(**KINDS[kind])
    stacks = traced(model)
    assert list(stacks) == ["encoder", "decoder"]
    geometric = "router" in kind
    for name, steps in stacks.items():
        run, length = len(steps.computed), REAL[name].shape[1]
        assert 1 <= run <= steps.num_steps == 4
        assert steps.computed.shape == (run, 3, length)
        assert torch.equal(steps.computed[0], REAL[name])
        kinds = ["self_attention", "cross_attention"][: 1 + (name == "decoder")]
        assert list(steps.attention) == list(steps.top_k) == kinds
        for attention, weights in steps.attention.items():
            keys = "encoder" if attention == "cross_attention" else name
            assert weights.shape == (run, 3, 2, length, REAL[keys].shape[1])
            blank = weights.isnan()
            assert torch.equal(blank, ~steps.computed[:, :, None, :, None].expand_as(blank))
            assert not weights.nan_to_num()[
                :, ~REAL[keys][:, None, None].expand_as(weights[0])
            ].any()
            sums = weights.sum(dim=-1)[~blank.any(dim=-1)]
            if geometric and attention == "self_attention":
                assert (sums <= 1 + 1e-12).all() and sums.min() < 0.99
                assert not weights.nan_to_num().diagonal(dim1=-2, dim2=-1).any()
            else:
                assert_same(sums, torch.ones_like(sums))
            later = weights.nan_to_num().triu(diagonal=1)
            assert attention == "cross_attention" or later.any() == (name == "encoder")
        assert (steps.gates is None) == (not geometric)
        if steps.gates is not None:
            assert steps.gates.shape == (run, 3, length, 16)
            assert torch.equal(steps.gates.isnan().any(dim=-1), ~steps.computed)
            gates = steps.gates[steps.computed]
            assert ((gates > 0) & (gates < 1)).all()


@pytest.mark.parametrize("kind", ["plain", "mixture", "router", "router mixture"])
def test_weights_of_the_first_step_by_their_equations(kind: str) -> None:
    """Token by token, expert by expert; scores from positions are left out."""
    options = {**(ROUTER if "router" in kind else {}), **(MIXTURE if "mixture" in kind else {})}
    model = small_model(**{**options, "attention_positions": "none"})
    tokens = INPUTS["src_tokens"]
    found = traced(model)["encoder"].attention["self_attention"][0]
    attention = model.encoder.stack.block.self_attention
    scale = math.sqrt(attention.head_dim)
    states = model.encoder.embedding(tokens).detach()
    for sentence, real in enumerate(REAL["encoder"]):
        keys, _ = attention.keys_values(states[sentence])
        for i in real.nonzero().flatten().tolist():
            queries, gates = [attention.query], [1.0]
            if "mixture" in kind:
                routing = attention.router(states[sentence, i : i + 1])
                gates = routing.expert_weights[0].tolist()
                assert len(gates) == 2 and max(gates) < 1
                queries = [attention.query.weight[e].T for e in routing.expert_indices[0]]
            expected = torch.zeros(2, tokens.shape[1], dtype=torch.float64)
            for gate, query in zip(gates, queries):
                project = query.weight if isinstance(query, nn.Linear) else query
                heads = (project @ states[sentence, i]).view(2, -1)
                for head in range(2):
                    scores = {
                        j: heads[head] @ keys[j, head] / scale
                        for j in real.nonzero().flatten().tolist()
                    }
                    if "router" in kind:
                        weights = torch.stack(references.geometric(scores, i))
                    else:
                        weights = torch.stack(list(scores.values())).softmax(0)
                    expected[head, real] += gate * weights.detach()
            assert_same(found[sentence, :, i], expected)


@pytest.mark.parametrize("kind", ["plain", "mixture", "masked", "router halting"])
def test_experts_are_those_that_the_routers_choose(kind: str) -> None:
    model = small_model(**KINDS[kind])
    tokens, real = INPUTS["src_tokens"], REAL["encoder"]
    for name, steps in traced(model).items():
        layers = ["self_attention", "cross_attention", "feed_forward"]
        if name == "encoder":
            layers.remove("cross_attention")
        assert list(steps.experts) == ([] if kind == "plain" else layers)
        for indices, weights in steps.experts.values():
            assert indices.shape == weights.shape == (*steps.computed.shape, 2)
            assert torch.equal(indices >= 0, steps.computed[..., None].expand_as(indices))
            assert torch.equal(weights.isnan(), indices < 0)
            assert_same(
                weights.sum(-1)[steps.computed], torch.ones(int(steps.computed.sum())).double()
            )
    if kind == "plain":
        return
    block, states = model.encoder.stack.block, model.encoder.embedding(tokens).detach()
    expected = block.self_attention.router(states[real])
    indices, weights = traced(model)["encoder"].experts["self_attention"]
    assert torch.equal(indices[0][real], expected.expert_indices)
    assert_same(weights[0][real], expected.expert_weights.detach())


@pytest.mark.parametrize("kind", ["halting", "mixture", "act", "router halting"])
def test_batch_mates_padding_and_layout_change_nothing(kind: str) -> None:
    model = small_model(**KINDS[kind])
    both = traced(model)
    masked = traced(small_model(**{**KINDS[kind], "token_layout": "masked"}))
    for name, steps in both.items():
        other = masked[name]
        assert torch.equal(steps.computed, other.computed)
        assert (~steps.computed[-1] & REAL[name]).any() or "act" in str(KINDS[kind])
        for attention, weights in steps.attention.items():
            assert_same(other.attention[attention], weights)
        assert steps.halted is not None and other.halted is not None
        assert_same(other.halted, steps.halted)
    for number in range(3):
        source, target = (
            INPUTS[key][number, REAL[name][number]].unsqueeze(0)
            for key, name in (("src_tokens", "encoder"), ("prev_output_tokens", "decoder"))
        )
        sentence = dict(src_tokens=source, src_lengths=None, prev_output_tokens=target)
        for name, alone in traced(model, sentence).items():
            real = REAL[name][number]
            assert alone.halted is not None and both[name].halted is not None
            run = len(alone.halted)
            assert torch.equal(alone.computed[:, 0], both[name].computed[:run, number, real])
            assert_same(alone.halted[:, 0], both[name].halted[:run, number, real])
            own = both[name].attention["self_attention"][:run, number][:, :, real][..., real]
            assert_same(alone.attention["self_attention"][:, 0], own)


@pytest.mark.parametrize("kind", ["plain", "mixture", "router halting"])
def test_steps_alone(kind: str) -> None:
    """Without maps, which take memory and rule out fused attention."""
    model = small_model(**KINDS[kind])
    observers = recorders(model, maps=False)
    model(**INPUTS, observers=observers)
    for name, steps in traced(model).items():
        found = observers[name].result()
        assert torch.equal(found.computed, steps.computed)
        assert (found.halted is None) == (steps.halted is None)
        assert found.attention == {} and found.experts == {} and found.gates is None
        assert steps.attention != {}


def test_a_model_that_recomputes_activations_in_training() -> None:
    """In evaluation it recomputes nothing: every step can be looked at."""
    plain, recomputing = (
        traced(small_model(**HALTING, checkpoint_activations=flag)) for flag in (False, True)
    )
    for name, steps in plain.items():
        assert torch.equal(recomputing[name].computed, steps.computed)
        assert recomputing[name].attention.keys() == steps.attention.keys() != set()
        for attention, weights in steps.attention.items():
            assert_same(recomputing[name].attention[attention], weights)


@pytest.mark.parametrize("kind", ["halting", "mixture", "masked"])
def test_depth_is_what_the_model_counts(kind: str) -> None:
    model = small_model(**KINDS[kind])
    _, extra = model(**INPUTS)
    for name, steps in traced(model).items():
        statistics = extra["halting"][name]
        assert int(statistics.steps_run) == int(steps.depth.sum()) == int(steps.computed.sum())
        assert int(statistics.tokens) == int((steps.depth > 0).sum())
        assert steps.depth[REAL[name]].unique().numel() > 1


def test_depth_without_halting_is_all_steps() -> None:
    for name, steps in traced(small_model()).items():
        assert steps.halted is None
        assert torch.equal(steps.depth, 4 * REAL[name].int())


def test_depth_of_act_is_the_step_of_the_read_out() -> None:
    """Others of the sentence may keep a token running after it."""
    for steps in traced(small_model(**ACT)).values():
        run = steps.computed.sum(dim=0)
        assert (steps.depth <= run).all() and (steps.depth < run).any()
        longest = steps.depth.amax(dim=1, keepdim=True)
        assert torch.equal(run, torch.where(run > 0, longest, 0))


def constant_halting(model: Any, probability: float) -> None:
    """Let every token be predicted to halt with this probability after every step."""
    for stack in (model.encoder.stack, model.decoder.stack):
        nn.init.zeros_(stack.halting.output.weight)
        if stack.halting.output.bias is None:
            assert probability == 0.5
        else:
            nn.init.constant_(stack.halting.output.bias, math.log(probability / (1 - probability)))


@pytest.mark.parametrize(
    ("options", "probability", "expected"),
    [(HALTING, 0.5, [0, 0.5, 0.75]), (ACT, 0.4, [0, 0.4, 0.8])],
    ids=["stick-breaking", "act"],
)
def test_probability_of_having_halted(
    options: dict[str, str], probability: float, expected: list[float]
) -> None:
    """All halt after three steps: 0.875 is above the threshold, 0.8 + 0.4 above 1 - epsilon."""
    model = small_model(**options)
    constant_halting(model, probability)
    if options is HALTING:
        lower_threshold(model, 0.8)
    for name, steps in traced(model).items():
        assert steps.halted is not None
        values = steps.halted[:, REAL[name]]
        assert_same(values, torch.tensor(expected, dtype=values.dtype)[:, None].expand_as(values))
        assert torch.equal(steps.halted.isnan(), (~REAL[name]).expand_as(steps.halted))
        assert torch.equal(steps.depth, 3 * REAL[name].int())


def test_what_has_halted_keeps_its_probability() -> None:
    """Where tokens halt at different steps; only padding has none."""
    model = small_model(**HALTING)
    lower_threshold(model, 0.6)
    for name, steps in traced(model).items():
        assert steps.halted is not None
        gone = ~steps.computed & REAL[name]
        assert gone.any() and not gone[-1][REAL[name]].all()
        assert torch.equal(steps.halted.isnan(), (~REAL[name]).expand_as(steps.halted))
        assert (steps.halted[gone] >= 0.6).all()
        assert (steps.halted[:, REAL[name]].diff(dim=0) >= 0).all()


def test_pictures_of_halting_are_blank_where_nothing_was_computed() -> None:
    model = small_model(**HALTING)
    lower_threshold(model, 0.6)
    steps = traced(model)["encoder"]
    computed = steps.computed[:, 0]
    words = {"encoder": ["word"] * computed.shape[1]}
    figure = dict(trace_plots.stack_figures("encoder", steps, words))["encoder_halting"]
    shown = torch.from_numpy(figure.axes[0].images[0].get_array().filled(torch.nan))
    assert shown.shape == (steps.num_steps, computed.shape[1])
    assert torch.equal(~shown[: len(computed)].isnan(), computed) and not computed.all()


def test_gates_are_those_of_the_copy_gate() -> None:
    model = small_model(**ROUTER)
    bias = torch.linspace(-4, 2, 16).double()
    for stack in (model.encoder.stack, model.decoder.stack):
        nn.init.zeros_(stack.block.copy_gate.output.weight)
        stack.block.copy_gate.output.bias.data.copy_(bias)
    for steps in traced(model).values():
        assert steps.gates is not None
        gates = steps.gates[steps.computed]
        assert_same(gates, bias.sigmoid().expand_as(gates))


def test_a_classifier() -> None:
    model = classifier(**{k: v for k, v in ROUTER.items() if k != "decoder_block"})
    assert isinstance(model, EncoderClassifier)
    found = trace(model, {"net_input": {"src_tokens": sources()}})
    assert list(found.stacks) == ["encoder"] and found.output.shape == (3, 5)
    assert_same(found.output, model(sources())[0].detach())


def state(model: nn.Module) -> list[tuple[Any, ...]]:
    """All that is stored on modules: attributes, and the contents of their dictionaries."""
    return [
        (name, {key: dict(v) if isinstance(v, dict) else v for key, v in vars(module).items()})
        for name, module in model.named_modules()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model = small_model(**KINDS[kind])
    output = model(**INPUTS)[0]
    model.train()
    model.encoder.eval()
    before = state(model)
    found = trace(model, {"net_input": INPUTS})
    assert not found.output.requires_grad
    assert_same(found.output, output.detach())
    assert state(model) == before
    with pytest.raises(ZeroDivisionError), evaluating(model):
        assert state(model) != before
        model(**INPUTS)
        raise ZeroDivisionError
    assert state(model) == before
    assert torch.is_grad_enabled()
    assert torch.equal(model.eval()(**INPUTS)[0], output)


def test_a_model_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="no steps to look at in a LSTM"):
        trace(nn.LSTM(2, 2), {"net_input": {}})


# Of the pictures.


def overlapping(axes: Axes, renderer: Any) -> list[str]:
    """Labels of an axis that touch the next one by more than a pixel."""
    found = []
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        boxes = [label.get_window_extent(renderer) for label in labels]
        for label, one, other in zip(labels, boxes, boxes[1:]):
            shared = min(one.x1, other.x1) - max(one.x0, other.x0)
            if shared > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1:
                found.append(label.get_text())
    return found


def assert_legible(figure: Any, smallest: float = 4.5) -> None:
    """No label touches another, or a map that is not its own, or the edge of the page."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, page = canvas.get_renderer(), figure.bbox
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    for axes, box in zip(figure.axes, boxes):
        assert not overlapping(axes, renderer)
        assert page.x0 <= box.x0 and page.y0 <= box.y0 and box.x1 <= page.x1 and box.y1 <= page.y1
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            assert label.get_fontsize() >= smallest
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            assert not one.padded(-1).overlaps(other.padded(-1))
    titles = [text.get_window_extent(renderer) for text in figure.texts]
    assert all(box.x1 <= page.x1 and box.y0 >= max(b.y1 for b in boxes) - 4 for box in titles)
    for above, below in zip(titles, titles[1:]):
        assert above.y0 >= below.y1


def words(number: int, length: int) -> list[str]:
    return ["WM$_^gW"[: 1 + i % 7] * (length // 2) for i in range(number)]


@pytest.mark.parametrize(
    ("steps", "queries", "keys", "length"),
    [(1, 3, 3, 2), (24, 3, 4, 20), (5, 1, 60, 6), (2, 60, 60, 20), (14, 6, 6, 2), (1, 1, 1, 2)],
)
def test_attention_maps_are_legible(steps: int, queries: int, keys: int, length: int) -> None:
    maps = torch.rand(steps, queries, keys, generator=torch.Generator().manual_seed(1))
    maps[-1, 0] = torch.nan
    figure = trace_plots.attention_figure(
        maps, words(queries, length), words(keys, length), title="the title " * 4, note="note " * 9
    )
    *panels, bar = figure.axes
    assert [panel.get_title() for panel in panels] == [f"step {n + 1}" for n in range(steps)]
    for panel, values in zip(panels, maps):
        shown = panel.images[0].get_array()
        assert_same(torch.from_numpy(shown.filled(math.nan)), values)
        assert panel.images[0].get_clim() == (0, 1)
    assert bar.get_ylabel() == "attention weight"
    width, height = figure.get_size_inches()
    assert 2 <= width <= 40 and 1.5 <= height <= 30
    assert_legible(figure)


@pytest.mark.parametrize(("steps", "length"), [(1, 3), (24, 3), (24, 60), (2, 118)])
def test_maps_of_steps_are_legible(steps: int, length: int) -> None:
    values = torch.rand(steps, length)
    figure = trace_plots.steps_figure(
        values, words(length, 6), title="title", measure="mean openness over channels", most=0.4
    )
    panel, bar = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()][-1] == str(steps)
    assert panel.images[0].get_clim() == (0, 0.4)
    assert bar.get_ylabel() == "mean openness over channels"
    assert_legible(figure)


def test_all_pictures_of_a_decoder() -> None:
    model = small_model(**KINDS["router halting"])
    steps = traced(model)["decoder"]
    own = {name: [f"w{i}" for i in range(real.shape[1])] for name, real in REAL.items()}
    figures = dict(trace_plots.stack_figures("decoder", steps, own, head=2))
    assert list(figures) == [
        *("decoder_self_attention_head_2", "decoder_cross_attention_head_2"),
        *("decoder_gates", "decoder_halting"),
    ]
    figure = figures["decoder_cross_attention_head_2"]
    title, note = (text.get_text() for text in figure.texts)
    assert title == "decoder cross-attention, head 2 of 2"
    assert note.startswith("rows: queries, columns: keys; weighted mean of the 2 chosen experts")
    shown = torch.from_numpy(figure.axes[0].images[0].get_array().filled(math.nan))
    assert_same(shown.double(), steps.attention["cross_attention"][0, 0, 1].float().double())
    greatest = dict(trace_plots.stack_figures("decoder", steps, own))
    shown = torch.from_numpy(
        greatest["decoder_self_attention_maximum"].axes[0].images[0].get_array().filled(math.nan)
    )
    weights = steps.attention["self_attention"][0, 0]
    assert_same(shown.double(), torch.maximum(weights[0], weights[1]).float().double())
