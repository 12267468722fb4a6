"""What must not change the fairseq model's results."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from tests.models import (
    ATTENTION_KINDS,
    HALTING,
    MIX,
    MIXTURE,
    NDR,
    RECURRENT_KINDS,
    SMALL,
    batch,
    lower_threshold,
    padding,
    small_model,
    small_recurrent,
    task,
)

KINDS = {**ATTENTION_KINDS, **NDR}


@pytest.mark.parametrize(
    ("kind", "alpha_threshold"),
    [
        pytest.param(
            kind,
            threshold,
            id=f"{name}-{threshold}",
            # What a threshold changes is the same for every kind of attention.
            marks=[] if kind is MIXTURE or threshold == 0.5 else [pytest.mark.slow],
        )
        for name, kind in KINDS.items()
        for threshold in (0.999, 0.5, 0.1)
    ],
)
@torch.no_grad()
def test_a_sentence_alone_and_in_any_batch(kind: dict[str, Any], alpha_threshold: float) -> None:
    model = small_model(**kind, **HALTING, alpha_threshold=alpha_threshold)
    together, alone = compare_alone_and_in_batches(model)
    for side, sums in together.items():
        assert sum(int(own[side].steps_run) for own in alone) == int(sums.steps_run)


@pytest.mark.parametrize("kind", RECURRENT_KINDS.values(), ids=RECURRENT_KINDS)
@torch.no_grad()
def test_a_sentence_alone_and_in_any_batch_of_a_recurrent_model(kind: dict[str, Any]) -> None:
    compare_alone_and_in_batches(small_recurrent(**kind))


def compare_alone_and_in_batches(model: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Outputs are the same; returns the halting statistics of all together, and of each alone."""
    source_lengths, target_lengths = (6, 2, 4, 1), (3, 7, 5, 7)
    inputs = batch(source_lengths, target_lengths)
    together, extra = model(**inputs)
    statistics = []
    for row, (source_length, target_length) in enumerate(zip(source_lengths, target_lengths)):
        alone, own = model(
            inputs["src_tokens"][row : row + 1, -source_length:],
            torch.tensor([source_length]),
            inputs["prev_output_tokens"][row : row + 1, :target_length],
        )
        torch.testing.assert_close(alone[0], together[row, :target_length], rtol=1e-10, atol=1e-10)
        if own["attn"] is not None:
            weights = extra["attn"][0][row, :target_length]
            torch.testing.assert_close(own["attn"][0][0], weights[:, -source_length:])
            assert not weights[:, :-source_length].any()
        statistics.append(own.get("halting", {}))
    # Batch-mates in another order, and more padding than needed.
    order = torch.tensor([2, 0, 3])
    source = torch.nn.functional.pad(inputs["src_tokens"][order], (3, 0), value=1)
    target = torch.nn.functional.pad(inputs["prev_output_tokens"][order], (0, 2), value=1)
    again, _ = model(source, torch.tensor([4, 6, 1]), target)
    real = ~padding(target)
    torch.testing.assert_close(again[real], together[order][real[:, :7]], rtol=1e-10, atol=1e-10)
    return extra.get("halting", {}), statistics


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_garbage_in_padding(kind: dict[str, Any]) -> None:
    assert_padding_is_ignored(small_model(**kind, **HALTING, alpha_threshold=0.5))


def assert_padding_is_ignored(model: Any) -> None:
    """Whatever it is embedded as, and whatever the encoder has left in its place."""
    inputs = batch()
    real = ~padding(inputs["prev_output_tokens"])
    clean, extra = model(**inputs)
    for side in (model.encoder, model.decoder):
        side.embedding.tokens.weight[1] = torch.nan
    encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
    hidden = padding(inputs["src_tokens"]).T.unsqueeze(-1)
    encoder_out["encoder_out"] = [encoder_out["encoder_out"][0].masked_fill(hidden, torch.inf)]
    dirty, dirty_extra = model.decoder(inputs["prev_output_tokens"], encoder_out)
    assert torch.equal(dirty[real], clean[real])
    assert extra.get("halting") == dirty_extra.get("halting")
    for name, sums in extra["routing"].items():
        assert torch.equal(sums.probability, dirty_extra["routing"][name].probability)


@pytest.mark.parametrize("kind", ["sut", "recurrent"])
@pytest.mark.parametrize("sharing", ["none", "decoder", "all"])
def test_no_parameter_is_registered_twice(sharing: str, kind: str) -> None:
    build: Any = (
        small_recurrent if kind == "recurrent" else partial(small_model, **MIXTURE, **HALTING)
    )
    model = build(
        joined=sharing == "all",
        share_all_embeddings=sharing == "all",
        share_decoder_input_output_embed=sharing == "decoder",
    )
    places: dict[tuple[int, int], list[str]] = {}
    for name, values in model.state_dict().items():
        key = (values.data_ptr(), values.numel())
        places.setdefault(key, []).append(name)
    tied = sorted(sorted(names) for names in places.values() if len(names) > 1)
    projection, target = "decoder.output_projection.weight", "decoder.embedding.tokens.weight"
    assert (
        tied
        == {
            "none": [],
            "decoder": [[target, projection]],
            "all": [[target, projection, "encoder.embedding.tokens.weight"]],
        }[sharing]
    )


def snapshot(model: torch.nn.Module) -> dict[str, Any]:
    """All attributes of all modules; tensors by identity and content."""

    def frozen(value: Any) -> Any:
        if isinstance(value, Tensor):
            return (id(value), value.detach().clone().numpy().tobytes())
        if isinstance(value, dict):
            return {key: frozen(item) for key, item in value.items()}
        return value if isinstance(value, (int, float, str, bool, type(None))) else id(value)

    return {
        f"{name}.{key}": frozen(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


STATELESS: dict[str, Any] = {
    "sut": partial(small_model, **MIXTURE, **HALTING, alpha_threshold=0.5),
    "mix": partial(small_model, **MIX, **HALTING, alpha_threshold=0.5),
    "recurrent": partial(small_recurrent, attender="mix", stop_gate=True),
}


@pytest.mark.parametrize("build", STATELESS.values(), ids=STATELESS)
@pytest.mark.parametrize("training", [False, True])
def test_a_forward_pass_leaves_no_state(training: bool, build: Any) -> None:
    model = build(dropout=0.1).train(training)
    before = snapshot(model)
    inputs = batch()
    model(**inputs)
    if not training:
        with torch.no_grad():
            encoder_out = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
            state: dict[str, Any] = {}
            for end in (1, 2, 3):
                model.decoder(
                    inputs["prev_output_tokens"][:, :end], encoder_out, incremental_state=state
                )
                model.decoder.reorder_incremental_state(state, torch.tensor([1, 0, 2]))
    assert snapshot(model) == before


@pytest.mark.parametrize("sides", [(), ("encoder",), ("decoder",), ("encoder", "decoder")])
@pytest.mark.parametrize("layers", [(3, 5), (5, 2)])
def test_sides_are_independent(layers: tuple[int, int], sides: tuple[str, ...]) -> None:
    halting = {f"{side}_halting": "stick-breaking" for side in sides}
    model = small_model(
        **MIXTURE,
        **halting,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        decoder_embed_dim=12,
    ).train()
    scores, extra = model(**batch())
    assert set(extra["halting"]) == set(sides)
    num_tokens = {"encoder": 12, "decoder": 15}
    for side, num_steps in zip(("encoder", "decoder"), layers):
        calls = extra["routing"][f"{side}.feed_forward"].weight
        if side in sides:
            sums = extra["halting"][side]
            assert int(sums.tokens) == num_tokens[side]
            assert int(sums.steps_possible) == num_tokens[side] * num_steps
            assert 1 <= float(losses.expected_depth(sums).detach()) <= num_steps
            assert 0 < float(calls) < num_tokens[side] * num_steps
        else:
            assert int(calls) == num_tokens[side] * num_steps
    scores.sum().backward()


@torch.no_grad()
def test_more_steps_than_in_training() -> None:
    trained = small_model(**MIXTURE, **HALTING, alpha_threshold=0.1, encoder_layers=3)
    deeper = small_model(**MIXTURE, **HALTING, alpha_threshold=0.1, encoder_layers=9, seed=5)
    deeper.load_state_dict(trained.state_dict())
    shallow, deep = (m(**batch()) for m in (trained, deeper))
    runs = [float(x[1]["halting"]["encoder"].steps_run) for x in (shallow, deep)]
    assert runs[0] < runs[1] < 9 * 12
    assert not torch.allclose(shallow[0], deep[0])


@torch.no_grad()
def test_a_lower_threshold_skips_more() -> None:
    model = small_model(**MIXTURE, **HALTING)
    shares = []
    for alpha_threshold in (1.0, 0.9, 0.5, 0.1):
        lower_threshold(model, alpha_threshold)
        shares.append(float(model(**batch())[1]["halting"]["decoder"].skipped))
    assert shares == sorted(shares) and shares[0] < shares[-1]


def test_options_from_before_one_existed() -> None:
    """The checkpoint of an earlier version holds no value for an option that came later."""
    config = replace(UniversalTransformerConfig(), **{**SMALL, "dropout": 0.25})
    stored = {name: value for name, value in vars(config).items() if name != "token_layout"}
    for options in (Namespace(**stored), OmegaConf.create(stored)):
        model = UniversalTransformerModel.build_model(options, task())
        assert model.encoder.stack.layout == "auto"
        assert model.encoder.embedding.dropout.p == 0.25
