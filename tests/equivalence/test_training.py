"""What a training step may rely on: gradients for all, recomputation, dropout, precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.modules.location import Weighter
from tests.combinations import every_pair
from tests.models import (
    ATTENTION_KINDS,
    HALTING,
    LOCATION,
    MIX,
    MIXTURE,
    RECURRENT_KINDS,
    batch,
    configurations,
    padding,
    sample_of,
    small_model,
    small_recurrent,
    task,
)

MOVING: dict[str, Any] = {
    **{name: partial(small_recurrent, **options) for name, options in RECURRENT_KINDS.items()},
    "heads by location": partial(small_model, **LOCATION),
    "heads that mix": partial(small_model, **MIX),
}


def criterion(**weights: float) -> CrossEntropyWithAuxiliaryCriterion:
    return CrossEntropyWithAuxiliaryCriterion(
        task(), sentence_avg=False, label_smoothing=0.1, weights=weights
    )


@pytest.mark.parametrize(
    ("kind", "sample"),
    # Only experts are sampled.
    [(kind, False) for kind in ATTENTION_KINDS.values()] + [(MIXTURE, True)],
    ids=[*ATTENTION_KINDS, "sampled mixture"],
)
def test_checkpointed_activations_change_nothing(kind: dict[str, Any], sample: bool) -> None:
    results = []
    for checkpoint in (False, True):
        model = small_model(
            **kind,
            **HALTING,
            alpha_threshold=0.6,
            checkpoint_activations=checkpoint,
            dropout=0.2,
            attention_dropout=0.1,
            activation_dropout=0.1,
            router_dropout=0.1,
            router_sample=sample,
        ).train()
        torch.manual_seed(7)
        scores, extra = model(**batch())
        terms = criterion().auxiliary_terms(extra)
        objective = scores.square().mean() + sum(terms.values())
        objective.backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        results.append((scores, terms, extra["halting"], gradients))
        assert (extra["halting"]["encoder"].steps_run < 12 * 4).item()
    plain, checkpointed = results
    assert torch.equal(plain[0], checkpointed[0])
    assert plain[1] == checkpointed[1] and plain[2] == checkpointed[2]
    assert plain[3].keys() == checkpointed[3].keys()
    for name, gradient in plain[3].items():
        torch.testing.assert_close(
            gradient, checkpointed[3][name], rtol=1e-12, atol=1e-14, msg=lambda _, n=name: n
        )


@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_skipping_halted_tokens_is_masking_them(kind: dict[str, Any]) -> None:
    """Scores, steps run and all gradients are those of the layout that keeps every token."""
    results = []
    for layout in ("compact", "masked"):
        options = dict(HALTING, alpha_threshold=0.5, token_layout=layout)
        model = small_model(**kind, **options).train()
        inputs = batch()
        scores, extra = model(**inputs)
        assert 0 < extra["halting"]["decoder"].skipped < 0.75
        scores = scores[~padding(inputs["prev_output_tokens"])]
        terms = criterion().auxiliary_terms(extra)
        (scores.square().mean() + sum(terms.values())).backward()
        steps_run = [sums.steps_run for sums in extra["halting"].values()]
        results.append([scores, *steps_run, *(p.grad for p in model.parameters())])
    for compact, masked in zip(*results, strict=True):
        torch.testing.assert_close(compact, masked, rtol=1e-10, atol=1e-12, check_dtype=False)


def test_checkpointing_recomputes_each_step() -> None:
    """Without this the test above would pass for a flag that does nothing."""
    calls = {}
    for checkpoint in (False, True):
        model = small_model(checkpoint_activations=checkpoint).train()
        count = []
        block = model.encoder.stack.block
        block.feed_forward.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        model(**batch())[0].sum().backward()
        calls[checkpoint] = len(count)
    assert calls == {False: 4, True: 8}


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("alpha_threshold", [0.999, 0.5, 0.1])
@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_every_parameter_gets_a_gradient(weight: float, alpha_threshold: float, top_k: int) -> None:
    """DistributedDataParallel waits for each parameter, whichever experts a batch has used."""
    model = small_model(
        **HALTING,
        **{**MIXTURE, "attention_top_k": top_k, "ffn_top_k": top_k},
        alpha_threshold=alpha_threshold,
    ).train()
    objective = criterion(mutual_information=weight, expected_depth=weight)
    loss, _, _ = objective(model, sample_of(batch((2, 1), (2, 1))))
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


AT_ONCE = dict(alpha_threshold=0.01, halting_epsilon=0.99)
ONE_STEP = dict(encoder_layers=1, decoder_layers=1)


@every_pair(
    options=configurations(),
    depth={"several": {}, "at once": AT_ONCE, "one": ONE_STEP},
    layout=["compact", "masked"],
)
def test_every_parameter_of_every_kind_gets_a_gradient(
    options: dict[str, Any], depth: dict[str, Any], layout: str
) -> None:
    """Also where tokens halt at once, and with one step, where a unit may not be asked at all."""
    model = small_model(**{**options, **depth, "token_layout": layout}).train()
    loss, _, _ = criterion()(model, sample_of(batch()))
    loss.backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    untrained = {n.split(".")[2] for n, p in model.named_parameters() if not p.requires_grad}
    assert untrained <= ({"halting"} if depth is ONE_STEP else set())


def test_every_parameter_gets_a_gradient_when_all_halt_at_once() -> None:
    """The extreme: no token of the batch runs a second step."""
    model = small_model(**MIXTURE, **HALTING, alpha_threshold=0.1).train()
    for stack in (model.encoder.stack, model.decoder.stack):
        stack.halting.output.weight.data.zero_()  # 0.5, above the threshold
    inputs = batch()
    loss, _, log = criterion(expected_depth=0.1)(model, sample_of(inputs))
    assert log["halting_decoder_steps_run"] == log["halting_decoder_tokens"]
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    "options",
    [
        dict(dropout=0.5),
        dict(attention_dropout=0.5),
        dict(activation_dropout=0.5),
        dict(MIXTURE, attention_dropout=0.5),
        dict(MIXTURE, activation_dropout=0.5),
        dict(MIXTURE, router_dropout=0.5),
        dict(HALTING, halting_dropout=0.5),
    ],
    ids=lambda options: " ".join(
        ("mixture" if "ffn_experts" in options else "dense", [*options][-1])
    ),
)
def test_each_dropout_acts_on_both_sides_in_training_only(options: dict[str, Any]) -> None:
    model = small_model(**options)
    inputs = batch()

    def encoded() -> Tensor:
        return model.encoder(inputs["src_tokens"], inputs["src_lengths"])["encoder_out"][0]

    quiet_states, (quiet, _) = encoded(), model(**inputs)
    assert torch.equal(quiet, model(**inputs)[0])
    model.encoder.train()
    assert not torch.equal(encoded(), quiet_states)
    model.encoder.eval()
    model.decoder.train()
    assert not torch.equal(model(**inputs)[0], quiet)


def test_a_gaze_is_exact_under_autocast() -> None:
    weighter = Weighter(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        gaze, _ = weighter(torch.randn(2, 5, 4), torch.zeros(2, 3))
    assert {part.dtype for part in gaze} == {torch.float32}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("kind", MOVING.values(), ids=MOVING)
def test_autocast_keeps_positions_exact(kind: Any, device: str) -> None:
    """In bfloat16 a place would be a multiple of 1/256, and a gaze soon at the wrong word."""
    model = kind(dtype=torch.float32).to(device).train()
    inputs = {name: values.to(device) for name, values in batch().items()}
    exact, _ = model(**inputs)
    with torch.autocast(device, torch.bfloat16):
        scores, extra = model(**inputs)
    real = ~padding(inputs["prev_output_tokens"])
    both = [scores[real].float().flatten(), exact[real].flatten()]
    assert torch.corrcoef(torch.stack(both))[0, 1] > 0.9
    for weights in extra["attn"] or ():
        assert weights.dtype == torch.float32
    scores.float().square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("kind", ATTENTION_KINDS.values(), ids=ATTENTION_KINDS)
def test_autocast_keeps_the_sums_in_float32(
    kind: dict[str, Any], checkpoint: bool, device: str
) -> None:
    """In bfloat16 a sum stops growing at 256 tokens; in float16 a squared one soon overflows."""
    model = small_model(
        **{**MIXTURE, "attention_experts": 1, "attention_top_k": 1, **kind},
        **HALTING,
        alpha_threshold=0.5,
        dtype=torch.float32,
        checkpoint_activations=checkpoint,
    )
    model = model.to(device).train()
    inputs = {name: values.to(device) for name, values in batch().items()}
    exact, _ = model(**inputs)
    with torch.autocast(device, torch.bfloat16):
        scores, extra = model(**inputs)
    assert scores.dtype == torch.bfloat16
    # Rounding may send a token to another expert or halt it a step later: hence only roughly.
    real = ~padding(inputs["prev_output_tokens"])
    assert torch.corrcoef(torch.stack([scores[real].flatten(), exact[real].flatten()]))[0, 1] > 0.9
    for sums in [*extra["routing"].values(), *extra["halting"].values()]:
        assert {value.dtype for value in vars(sums).values()} == {torch.float32}
    (scores.float().square().sum() + sum(criterion().auxiliary_terms(extra).values())).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
