"""From options to modules: each option changes what it names, each dropout is where it belongs."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.models._axis import Kind
from sut_fairseq.models._config import TokenOptions, UniversalTransformerConfig
from sut_fairseq.models._embedding import token_embedding, token_embeddings
from sut_fairseq.models._kinds import FEED_FORWARD
from sut_fairseq.modules.attention.positions.direction import Direction
from sut_fairseq.modules.attention.positions.window import RelativeWindow
from sut_fairseq.modules.copy_gate import CopyGate
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.feedforward import DenseFeedForward, FeedForward
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from tests.models import (
    COMPOSITIONAL,
    HALTING,
    LOCATION,
    MIXTURE,
    NDR,
    batch,
    dictionary,
    small_model,
    small_recurrent,
)

# For each option what a model has without it, and another value.
ACT = dict(encoder_halting="act", decoder_halting="act-ut")
GATE = NDR["abs/rel gate"]
LOCATION_ = {name: value for name, value in LOCATION.items() if name != "seed"}
OPTIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "encoder_embed_dim": ({}, 24),
    "decoder_embed_dim": ({}, 24),
    "share_all_embeddings": (dict(joined=True), True),
    "separate_embeddings": (dict(joined=True, share_all_embeddings=True), True),
    "share_decoder_input_output_embed": ({}, True),
    "max_source_positions": ({}, 50),
    "max_target_positions": ({}, 50),
    "no_token_positional_embeddings": ({}, True),
    "encoder_block": ({}, "data-router"),
    "decoder_block": ({}, "data-router"),
    "copy_gate_update": (GATE, "layer-norm"),
    "copy_gate_dropout": (GATE, 0.37),
    "encoder_layers": ({}, 5),
    "decoder_layers": ({}, 5),
    "encoder_normalize_before": ({}, True),
    "decoder_normalize_before": ({}, True),
    "dropout": ({}, 0.37),
    "token_layout": ({}, "masked"),
    "checkpoint_activations": ({}, True),
    "encoder_attention_heads": ({}, 4),
    "decoder_attention_heads": (dict(attention_head_dim=4), 3),
    "attention_head_dim": ({}, 5),
    "attention_experts": (MIXTURE, 5),
    "attention_top_k": (MIXTURE, 3),
    "attention_kind": ({}, "compositional"),
    "attention_retrievals": (COMPOSITIONAL, 3),
    "attention_retrieval_dim": (COMPOSITIONAL, 5),
    "attention_value_scores": (COMPOSITIONAL, "linear"),
    "attention_value_matrices": (COMPOSITIONAL, "own"),
    "attention_value_dim": (COMPOSITIONAL, 5),
    "attention_biases": ({}, "all"),
    "attention_distribution": ({}, "others"),
    "attention_positions": ({}, "buckets"),
    "cross_attention": (dict(location_hidden_size=8), "mix"),
    "location_hidden_size": (LOCATION_, 9),
    "attention_query_dropout": (NDR["rel"], 0.37),
    "attention_window": (dict(attention_positions="window"), 3),
    "attention_buckets": (dict(attention_positions="buckets"), 8),
    "attention_max_distance": (dict(attention_positions="buckets"), 9),
    "attention_dropout": ({}, 0.37),
    "encoder_ffn_embed_dim": ({}, 20),
    "decoder_ffn_embed_dim": ({}, 20),
    "ffn_experts": (MIXTURE, 4),
    "ffn_top_k": (MIXTURE, 1),
    "feed_forward_kind": ({}, "own"),
    "activation_fn": ({}, "gelu"),
    "activation_dropout": ({}, 0.37),
    "router_dropout": (MIXTURE, 0.37),
    "router_sample": (MIXTURE, True),
    "expert_backend": (MIXTURE, "grouped"),
    "encoder_halting": ({}, "act"),
    "decoder_halting": ({}, "act"),
    "alpha_threshold": (HALTING, 0.7),
    "halting_epsilon": (ACT, 0.37),
    "halting_dropout": (HALTING, 0.37),
}
ENCODER_ONLY = {"encoder_block", "encoder_layers", "encoder_normalize_before", "encoder_halting"}
ENCODER_ONLY |= {"max_source_positions"}
DECODER_ONLY = {"location_hidden_size", "cross_attention", "max_target_positions"}
TYING = {"share_all_embeddings", "separate_embeddings", "share_decoder_input_output_embed"}


class AsItWas(FeedForward):
    """y = h."""

    def forward(self, states: Tensor, *_: Any) -> tuple[Tensor, None]:
        return states, None


def description(model: nn.Module) -> dict[str, Any]:
    """What a model is made of: for each module its kind, its plain attributes, and its shapes."""
    found = {}
    for name, module in model.named_modules():
        attributes = {
            key: getattr(value, "__name__", value)
            for key, value in vars(module).items()
            if isinstance(value, (bool, int, float, str)) or hasattr(value, "__name__")
        }
        attributes.pop("_incremental_state_id", None)  # fairseq's, new for each decoder
        shapes = {key: tuple(one.shape) for key, one in module.named_parameters(recurse=False)}
        found[name] = (type(module).__name__, attributes, shapes)
    return found


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_reaches_every_module_that_it_names(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ours follow from the number of experts.
    own = Kind("as it was", lambda config, side, activation: AsItWas())
    monkeypatch.setitem(FEED_FORWARD.kinds, "own", own)
    base, value = OPTIONS[option]
    before, after = (
        description(small_model(**{"activation_fn": "relu", **base, **changed}))
        for changed in ({}, {option: value})
    )
    differing = {
        name.split(".")[0]
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and name
    }
    if option in TYING:
        tensors = [
            len(list(small_model(**{**base, **changed}).parameters()))
            for changed in ({}, {option: value})
        ]
        assert tensors[0] != tensors[1]
    elif option in ENCODER_ONLY:
        assert "encoder" in differing and "decoder" not in differing
    elif option in DECODER_ONLY or option.startswith("decoder_"):
        assert "decoder" in differing and "encoder" not in differing
    else:
        assert differing == {"encoder", "decoder"}


def test_the_options_above_are_all() -> None:
    assert OPTIONS.keys() == {
        one.name for one in fields(UniversalTransformerConfig) if not one.name.startswith("_")
    }


@pytest.mark.parametrize(
    ("options", "matrices"),
    [
        ({}, 3),
        (dict(share_decoder_input_output_embed=True), 2),
        (dict(share_all_embeddings=True), 1),
        (dict(share_decoder_input_output_embed=True, separate_embeddings=True), 3),
        (dict(share_all_embeddings=True, separate_embeddings=True), 3),
    ],
)
def test_which_embeddings_are_shared(options: dict[str, Any], matrices: int) -> None:
    for model in (small_model(joined=True, **options), small_recurrent(joined=True, **options)):
        decoder = model.decoder
        tables = [model.encoder.embedding.tokens, decoder.embedding.tokens]
        found = {id(one.weight) for one in [*tables, decoder.output_projection]}
        assert len(found) == matrices
        if matrices == 2:
            assert decoder.embedding.tokens.weight is decoder.output_projection.weight


@pytest.mark.parametrize(
    ("biases", "expected"),
    [
        ("none", set()),
        ("value-scores", {"value_scores.query"}),
        ("all", {"value_scores.query", "query", "key", "value", "output"}),
    ],
)
def test_biases_of_attention(biases: str, expected: set[str]) -> None:
    block = small_model(**COMPOSITIONAL, attention_biases=biases).decoder.stack.block
    for attention in (block.self_attention, block.cross_attention):
        names = {name for name, _ in attention.named_parameters() if name.endswith(".bias")}
        assert {name.removesuffix(".bias") for name in names} == expected


def dropped(model: nn.Module) -> Counter[tuple[str, float]]:
    """How often each dropout acts in a training step, by its name and its probability."""
    calls: Counter[tuple[str, float]] = Counter()
    for name, module in model.named_modules():
        if isinstance(module, Dropout) and module.p:
            key = name, module.p
            module.register_forward_hook(lambda *_, key=key: calls.update([key]))
    model.train()(**batch())
    return calls


PROBABILITIES = dict(
    dropout=0.11, attention_dropout=0.12, activation_dropout=0.13, router_dropout=0.14
)
TWO_STEPS = dict(encoder_layers=2, decoder_layers=2)


@pytest.mark.parametrize("halting", [{}, {"halting_dropout": 0.15}, {"halting_dropout": 0.0}])
def test_dropouts_of_the_sparse_universal_transformer(halting: dict[str, float]) -> None:
    options = {**MIXTURE, **HALTING, **PROBABILITIES, **TWO_STEPS, **halting}
    found = dropped(small_model(**options, alpha_threshold=1.0))
    expected: dict[tuple[str, float], int] = {}
    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "cross"])):
        block = f"{side}.stack.block"
        expected |= {
            (f"{side}.embedding.dropout", 0.11): 1,
            # After each step but the last.
            (f"{side}.stack.halting.dropout", halting.get("halting_dropout", 0.11)): 1,
            (f"{block}.dropout", 0.11): 2 * (1 + len(attentions)),  # of sublayers
            (f"{block}.feed_forward.activation_dropout", 0.13): 2,
            (f"{block}.feed_forward.router.dropout", 0.14): 2,
        }
        for kind in attentions:
            expected[f"{block}.{kind}_attention.core.dropout", 0.12] = 2
            expected[f"{block}.{kind}_attention.router.dropout", 0.14] = 2
    assert found == {key: times for key, times in expected.items() if key[1]}


@pytest.mark.parametrize("kind", ["ndr", "abs/rel gate"])
def test_dropouts_of_the_data_router(kind: str) -> None:
    more = dict(attention_query_dropout=0.15, copy_gate_dropout=0.16)
    model = small_model(**{**NDR[kind], **PROBABILITIES, **TWO_STEPS, **more})
    found = dropped(model)
    expected: dict[tuple[str, float], int] = {}
    for side, cross in (("encoder", False), ("decoder", True)):
        block = f"{side}.stack.block"
        assert getattr(model, side).stack.block.copy_gate.dropout == 0.16
        expected |= {
            (f"{side}.embedding.dropout", 0.11): 1,
            (f"{block}.feed_forward.activation_dropout", 0.13): 2,
            (f"{block}.copy_gate.hidden_dropout", 0.13): 2,
            (f"{block}.self_attention.core.dropout", 0.12): 2,
            # Geometric attention has one kind of queries, relative positions have two.
            (f"{block}.self_attention.core.positions.dropout", 0.15): 2 if kind == "ndr" else 4,
        }
        if cross:
            expected[f"{block}.cross_attention.core.dropout", 0.12] = 2
    # Of what attention adds, two steps each.
    expected |= {("encoder.stack.block.dropout", 0.11): 2, ("decoder.stack.block.dropout", 0.11): 4}
    assert found == expected


def test_dropout_of_the_recurrent_bottleneck() -> None:
    assert dropped(small_recurrent(dropout=0.5)) == {("decoder.writer.dropout", 0.5): 1}


def layers_with_dropout() -> dict[str, nn.Module]:
    """Of two linear maps each, with a dropout of 1/2 between them."""
    sizes = dict(embed_dim=6, hidden_dim=8, activation=F.gelu, activation_dropout=0.5)
    return {
        "router": Router(6, 3, 2, dropout=0.5),
        "halting": StickBreakingHalting(6, alpha_threshold=0.9, dropout=0.5),
        "dense": DenseFeedForward(**sizes),
        "mixture": MixtureFeedForward(Router(6, 3, 2), **sizes),
        "gate": CopyGate(6, hidden_dropout=0.5),
    }


@pytest.mark.parametrize("kind", layers_with_dropout())
def test_dropout_comes_after_the_activation(kind: str) -> None:
    """What the second map reads is twice what it reads in evaluation, or 0."""
    torch.manual_seed(1)
    layer, states, read = layers_with_dropout()[kind], torch.randn(9, 6), []
    layer.output.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    for training in (False, True):
        layer.train(training)
        if isinstance(layer, StickBreakingHalting):
            layer.advance(states, layer.start(states))
        else:
            layer(states)
    whole, dropped = read
    kept = dropped != 0
    assert kept.any() and (whole[~kept] != 0).any()
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_initial_values() -> None:
    """Those that the papers name, and the variances that Xavier and the scale of words ask for."""
    torch.manual_seed(1)
    direction = Direction(6, 2, 16)
    assert (float(direction.alpha), float(direction.beta), float(direction.gamma)) == (0.25, 1, 0)
    assert not RelativeWindow(2, 3, 4).embedding.any()
    for experts in (ExpertInput(24, 64, 32, bias=True), ExpertOutput(24, 64, 32, bias=True)):
        bound = (6 / 96) ** 0.5  # of each expert's own matrix
        assert experts.weight.abs().max() <= bound
        assert float(experts.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    words = token_embedding(dictionary(900), 64).weight.detach()
    assert float(words.std()) == pytest.approx(64**-0.5, rel=0.05)
    assert not words[dictionary().pad()].any()
    options = TokenOptions(encoder_embed_dim=16)
    sides = (dictionary(), dictionary(900))
    *_, projection = token_embeddings(options, *sides, target_dim=32, output_dim=64)
    assert float(projection.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.05)
