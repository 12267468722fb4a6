"""Incremental decoding computes what the full forward pass computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from sut_fairseq.analysis.traces import trace
from sut_fairseq.models.recurrent_translation import RecurrentTranslationModel
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from sut_fairseq.modules.halting.act import AdaptiveComputationTime
from tests.combinations import every_pair
from tests.models import (
    ATTENTION_KINDS,
    HALTING,
    MIXTURE,
    NDR,
    RECURRENT_KINDS,
    batch,
    lower_threshold,
    padding,
    small_model,
    small_recurrent,
)

Translator = UniversalTransformerModel | RecurrentTranslationModel

THRESHOLDS = (0.999, 0.5, 0.1)
SLOW = [pytest.mark.slow]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
POSITIONS = {
    "window": dict(attention_positions="window", no_token_positional_embeddings=True),
    "buckets": dict(attention_positions="buckets", no_token_positional_embeddings=True),
    "absolute": dict(attention_positions="none"),
    "window and absolute": dict(attention_positions="window"),
}
ACT = {
    name: dict(encoder_halting=name, decoder_halting=name, halting_epsilon=0.4, decoder_layers=6)
    for name in ("act", "act-ut")
}


def decode(
    model: Translator,
    encoder_out: dict[str, Any],
    tokens: Tensor,
    chunks: tuple[int, ...] = (),
) -> tuple[Tensor, int]:
    """Scores of all columns, fed in chunks (one by one unless given), and the steps run."""
    state: dict[str, Any] = {}
    scores, end, steps_run = [], 0, 0
    for num_new in chunks or (1,) * tokens.shape[1]:
        end += num_new
        new, extra = model.decoder(tokens[:, :end], encoder_out, incremental_state=state)
        assert new.shape[1] == num_new
        scores.append(new)
        if "decoder" in extra.get("halting", {}):
            steps_run += int(extra["halting"]["decoder"].steps_run)
    return torch.cat(scores, dim=1), steps_run


@torch.no_grad()
def assert_incremental_equals_full(
    model: Translator,
    inputs: dict[str, Tensor],
    tolerance: float,
    *chunkings: tuple[int, ...],
) -> Any:
    """Columns go one by one, or in each of the chunkings; returns the decoder's halting."""
    tokens = inputs["prev_output_tokens"]
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    full, extra = model.decoder(tokens, encoder_out)
    halting = extra.get("halting", {}).get("decoder")
    real = ~padding(tokens)
    for chunks in chunkings or ((),):
        ours, steps_run = decode(model, encoder_out, tokens, chunks)
        torch.testing.assert_close(ours[real], full[real], rtol=tolerance, atol=tolerance)
        if halting is not None:
            # With ACT a token cannot know how deep those after it will be.
            full_depth = isinstance(model.decoder.stack.halting, AdaptiveComputationTime)
            assert steps_run == int(halting.steps_possible if full_depth else halting.steps_run)
    return halting


# By default every kind in a window with absolute positions, and one kind at all positions.
POSITIONED = [
    pytest.param(
        kind,
        positions,
        id=f"{name}-{where}",
        marks=[] if kind is MIXTURE or where == "window and absolute" else SLOW,
    )
    for name, kind in ATTENTION_KINDS.items()
    for where, positions in POSITIONS.items()
]


@pytest.mark.parametrize(("kind", "positions"), POSITIONED)
def test_one_token_at_a_time(kind: dict[str, Any], positions: dict[str, Any]) -> None:
    model = small_model(**kind, **positions, **HALTING)
    skipped = []
    for alpha_threshold in THRESHOLDS:
        lower_threshold(model, alpha_threshold)
        halting = assert_incremental_equals_full(model, batch(), 1e-10)
        skipped.append(1 - float(halting.steps_run / halting.steps_possible))
    assert skipped == sorted(skipped) and skipped[0] < skipped[-1], "thresholds that matter"
    assert 0 < skipped[-1] < 0.75, "neither nothing skipped nor all but the first step"


@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_gradients(kind: dict[str, Any]) -> None:
    """Those of a loss over positions that were decoded one by one, past a change of beams."""
    model = small_model(**kind, **HALTING, decoder_layers=3)
    inputs = batch()
    tokens = inputs["prev_output_tokens"]
    real, gradients = ~padding(tokens), []
    order = torch.tensor([1, 0, *range(2, len(tokens))])
    for full in (True, False):
        model.zero_grad()
        if full:
            scores = model(**inputs)[0]
        else:
            encoded = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
            state: dict[str, Any] = {}
            columns = []
            for end in range(1, tokens.shape[1] + 1):
                columns.append(model.decoder(tokens[:, :end], encoded, incremental_state=state)[0])
                if end == 2:  # there and back
                    for _ in range(2):
                        model.decoder.reorder_incremental_state(state, order)
            scores = torch.cat(columns, dim=1)
        scores[real].square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("halting", [{}, HALTING, ACT["act"]], ids=["none", "stick", "act"])
@pytest.mark.parametrize("kind", NDR.values(), ids=NDR)
def test_data_router(kind: dict[str, Any], halting: dict[str, Any]) -> None:
    model = small_model(**kind, **halting)
    for alpha_threshold in THRESHOLDS if halting is HALTING else (None,):
        if alpha_threshold is not None:
            lower_threshold(model, alpha_threshold)
        assert_incremental_equals_full(model, batch(), 1e-10, (), (3, 1, 3))


@every_pair(act=ACT, kind=ATTENTION_KINDS, positions=["window", "buckets"])
def test_adaptive_computation_time(
    act: dict[str, Any], kind: dict[str, Any], positions: str
) -> None:
    """Sentences end before the last step, but what their tokens would do there is remembered."""
    model = small_model(**kind, **POSITIONS[positions], **act)
    halting = assert_incremental_equals_full(model, batch(), 1e-10, (), (3, 1, 3))
    assert halting.tokens < halting.steps_run < halting.steps_possible


@pytest.mark.parametrize("kind", RECURRENT_KINDS.values(), ids=RECURRENT_KINDS)
def test_recurrent(kind: dict[str, Any]) -> None:
    model = small_recurrent(**kind)
    assert_incremental_equals_full(model, batch((6, 1, 4)), 1e-10, (), (3, 1, 3))
    # One full pass of the multiplicative kind in float32 is 8e-6 away from the same in float64.
    assert_incremental_equals_full(small_recurrent(**kind, dtype=torch.float32), batch(), 3e-5)


@pytest.mark.parametrize("kind", RECURRENT_KINDS.values(), ids=RECURRENT_KINDS)
def test_recurrent_under_beam_reordering(kind: dict[str, Any]) -> None:
    assert_beams_equal_full_passes(small_recurrent(**kind))


# Halting with post-norm is above.
@pytest.mark.parametrize(
    ("halting", "pre_norm"),
    [({}, False), ({}, True), (HALTING, True)],
    ids=["fixed depth", "fixed depth, pre-norm", "halting, pre-norm"],
)
@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_norms_and_fixed_depth(
    kind: dict[str, Any], halting: dict[str, Any], pre_norm: bool
) -> None:
    model = small_model(
        **kind, **halting, encoder_normalize_before=pre_norm, decoder_normalize_before=pre_norm
    )
    assert_incremental_equals_full(model, batch(), 1e-10)


@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_several_tokens_at_a_time(kind: dict[str, Any]) -> None:
    model = small_model(**kind, **HALTING, alpha_threshold=0.5)
    assert_incremental_equals_full(model, batch(), 1e-10, (7,), (2, 5), (3, 1, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_in_float32(kind: dict[str, Any], device: str) -> None:
    """The precision that people decode in."""
    model = small_model(**kind, **HALTING, dtype=torch.float32).to(device)
    inputs = {name: values.to(device) for name, values in batch().items()}
    for alpha_threshold in THRESHOLDS if kind is MIXTURE or device == "cuda" else (0.5,):
        lower_threshold(model, alpha_threshold)
        assert_incremental_equals_full(model, inputs, 1e-5)


REPORTED = {"stick": {**HALTING, "alpha_threshold": 0.5}, **ACT}
# By default every kind with one layout of each kind of halting; the mixture with both.
REPORTING = [
    pytest.param(
        kind,
        halting,
        layout,
        id=f"{name}-{stops}-{layout}",
        marks=[] if kind is MIXTURE or (layout == "masked") == (stops == "act") else SLOW,
    )
    for name, kind in ATTENTION_KINDS.items()
    for stops, halting in REPORTED.items()
    for layout in ("compact", "masked")
]


@torch.no_grad()
@pytest.mark.parametrize(("kind", "halting", "layout"), REPORTING)
def test_reported_attention(kind: dict[str, Any], halting: dict[str, Any], layout: str) -> None:
    """That of the last step that counts for a token; a distribution over its source's words."""
    model = small_model(**kind, **halting, token_layout=layout)
    inputs = batch()
    tokens = inputs["prev_output_tokens"]
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    scores, extra = model.decoder(tokens, encoder_out)
    assert extra["attn"] is None
    model.decoder.reports_attention = True
    same, extra = model.decoder(tokens, encoder_out)
    torch.testing.assert_close(same, scores, rtol=1e-12, atol=1e-12)
    (weights,) = extra["attn"]
    real = ~padding(tokens)
    assert weights.shape == (*tokens.shape, inputs["src_tokens"].shape[1])
    torch.testing.assert_close(weights.sum(dim=2)[real], torch.ones(int(real.sum())))
    assert not weights.masked_select(padding(inputs["src_tokens"]).unsqueeze(1)).any()
    steps = trace(model, {"net_input": inputs}).stacks["decoder"]
    each = steps.attention["cross_attention"].mean(dim=2)  # over heads: by step, row and column
    last = steps.depth - 1
    assert len(set(last[real].tolist())) > 1
    for row, column in real.nonzero().tolist():
        if kind is MIXTURE:
            continue  # traces weigh experts by their gates, the decoder weighs them equally
        expected = each[last[row, column], row, column]
        torch.testing.assert_close(weights[row, column], expected, check_dtype=False)
    state: dict[str, Any] = {}
    for column in range(tokens.shape[1]):
        seen = tokens[:, : column + 1]
        _, extra = model.decoder(seen, encoder_out, incremental_state=state)
        (new,) = extra["attn"]
        rows = real[:, column]
        torch.testing.assert_close(new[rows, 0], weights[rows, column], rtol=1e-5, atol=1e-6)
    model.train()
    assert model(**inputs)[1]["attn"] is None


def test_references_scored_by_models_with_and_without_attention() -> None:
    """By fairseq's scorer, in either order: a model that reports none does not count."""
    inputs = batch()
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    sample = {"net_input": inputs, "target": target}
    models = [small_recurrent(), small_model(**HALTING)]
    one, other = (
        SequenceScorer(models[0].decoder.dictionary).generate(ensemble, sample)
        for ensemble in (models, models[::-1])
    )
    for (first,), (second,) in zip(one, other, strict=True):
        torch.testing.assert_close(first["score"], second["score"])
        torch.testing.assert_close(first["attention"], second["attention"])
        assert first["attention"].any()


def test_longer_than_the_cache_first_holds() -> None:
    model = small_model(**HALTING, alpha_threshold=0.5)
    assert_incremental_equals_full(model, batch((3, 5), (40, 35)), 1e-10)


# All pairs of kinds and positions go one token at a time above.
REORDERED = [
    pytest.param(
        kind,
        positions,
        threshold,
        id=f"{name}-{positions}-{threshold}",
        marks=[] if kind is MIXTURE or (positions, threshold) == ("window", 0.5) else SLOW,
    )
    for name, kind in ATTENTION_KINDS.items()
    for positions, threshold in [
        *((one, 0.5) for one in POSITIONS),
        *(("window", one) for one in (0.999, 0.1)),
    ]
]


@pytest.mark.parametrize(("kind", "positions", "alpha_threshold"), REORDERED)
def test_under_beam_reordering(
    kind: dict[str, Any], positions: str, alpha_threshold: float
) -> None:
    model = small_model(**kind, **POSITIONS[positions], **HALTING, alpha_threshold=alpha_threshold)
    assert_beams_equal_full_passes(model)


# Those of a fixed depth are in test_every_kind.
@pytest.mark.parametrize("halting", [HALTING, ACT["act"]], ids=["stick", "act"])
@pytest.mark.parametrize("kind", NDR.values(), ids=NDR)
def test_data_router_under_beam_reordering(kind: dict[str, Any], halting: dict[str, Any]) -> None:
    steps = dict(encoder_layers=2, decoder_layers=3)
    assert_beams_equal_full_passes(small_model(**{**steps, **kind, **halting}))


@pytest.mark.parametrize("act", ACT.values(), ids=ACT)
def test_adaptive_computation_time_under_beam_reordering(act: dict[str, Any]) -> None:
    assert_beams_equal_full_passes(small_model(**MIXTURE, **POSITIONS["window"], **act))


@torch.no_grad()
def assert_beams_equal_full_passes(model: Translator) -> None:
    """Beams are repeated, swapped and dropped between positions, as beam search does.

    After each position the scores must be those of a full pass over the prefixes that are left.
    """
    length = 7
    inputs = batch(target_lengths=(length,) * 3)
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    sources = inputs["src_tokens"]
    tokens = inputs["prev_output_tokens"]
    orders = {
        1: [0, 0, 1, 1, 2, 2],  # every sentence becomes two beams
        2: [1, 0, 3, 3, 5, 4],
        4: [2, 3, 4, 5],  # the first sentence is finished
        5: [3, 2, 0, 0],
        6: [1],
    }
    state: dict[str, Any] = {}
    scores: list[Tensor] = []  # of the positions since the last change
    generator = torch.Generator().manual_seed(3)
    for column in range(length):
        if column in orders:
            order = torch.tensor(orders[column])
            model.decoder.reorder_incremental_state(state, order)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
            sources, tokens = sources[order], tokens[order]
            # From here on the copies of a beam go on differently.
            others = torch.randint(4, 11, (len(order), length - column), generator=generator)
            tokens[:, column:] = others
        end = column + 1
        scores.append(model.decoder(tokens[:, :end], encoder_out, incremental_state=state)[0])
        if end in orders or end == length:
            # A full pass is causal: it also tells the scores of earlier positions.
            fresh = model.encoder(sources, sources.ne(1).sum(1))
            full = model.decoder(tokens[:, :end], fresh)[0][:, -len(scores) :]
            torch.testing.assert_close(torch.cat(scores, dim=1), full, rtol=1e-10, atol=1e-10)
            scores = []


def test_reordering_keeps_what_belongs_to_the_batch() -> None:
    model = small_model(**MIXTURE, **HALTING)
    inputs = batch()
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    reordered = model.encoder.reorder_encoder_out(encoder_out, torch.tensor([2, 2, 0]))
    assert reordered.keys() - encoder_out.keys() == {"rows"}
    for key, value in encoder_out.items():
        assert reordered[key] is value, "nothing is copied"
    again = model.encoder.reorder_encoder_out(reordered, torch.tensor([2, 1, 0, 0]))
    assert again["rows"][0].tolist() == [0, 2, 2, 2]


ORDERS = [[0, 0, 1, 1, 2, 2], [2, 0, 2], [1], [1, 2, 0]]
# By default every kind with two beams for each sentence, each layout once; and every order with one
# kind, in both ways with both layouts.
SHARED = [
    pytest.param(
        kind,
        order,
        incremental,
        layout,
        id=f"{name}-{order}-{incremental}-{layout}",
        marks=[]
        if kind is MIXTURE or (order is ORDERS[0] and incremental == (layout == "compact"))
        else SLOW,
    )
    for name, kind in ATTENTION_KINDS.items()
    for order in ORDERS
    for incremental in (False, True)
    for layout in ("compact", "masked")
]


@torch.no_grad()
@pytest.mark.parametrize(("kind", "order", "incremental", "layout"), SHARED)
def test_hypotheses_share_the_keys_of_their_source(
    kind: dict[str, Any], order: list[int], incremental: bool, layout: str
) -> None:
    """Attending through `rows` equals attending to copies of the encoder's states."""
    model = small_model(**kind, **HALTING, alpha_threshold=0.5, token_layout=layout)
    inputs = batch()
    source, target = inputs["src_tokens"], inputs["prev_output_tokens"]
    encoder_out = model.encoder(source)
    reordered = model.encoder.reorder_encoder_out(encoder_out, torch.tensor(order))
    hypotheses = target.repeat(2, 1)[: len(order)]
    copied = model.encoder(source[order])
    expected = model.decoder(hypotheses, copied)[0]
    if incremental:
        scores, _ = decode(model, reordered, hypotheses)
    else:
        scores = model.decoder(hypotheses, reordered)[0]
    real = hypotheses.ne(1)
    torch.testing.assert_close(scores[real], expected[real], rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_two_decoders_share_one_incremental_state() -> None:
    """An ensemble: fairseq may hand the same dictionary to several models."""
    models = [small_model(**HALTING, seed=seed) for seed in (1, 2)]
    inputs = batch()
    tokens = inputs["prev_output_tokens"]
    encoder_outs = [m.encoder(inputs["src_tokens"], inputs["src_lengths"]) for m in models]
    shared: dict[str, Any] = {}
    together = [
        [m.decoder(tokens[:, :end], out, incremental_state=shared)[0] for end in (1, 2)]
        for m, out in zip(models, encoder_outs)
    ]
    for model, out, scores in zip(models, encoder_outs, together):
        alone, _ = decode(model, out, tokens[:, :2])
        assert torch.equal(torch.cat(scores, dim=1), alone)
