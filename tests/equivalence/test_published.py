"""Imported checkpoints return what the published SUT code returns, by loops written from it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.analysis.depth import set_threshold
from sut_fairseq.checkpoints.published import translate
from sut_fairseq.checkpoints.settings import setting
from sut_fairseq.inference.importing import import_published
from sut_fairseq.inference.original import Outputs, compare
from tests import reference_published as reference
from tests.models import HALTING, batch, small_model
from tests.published import checkpoint

THRESHOLDS = (0.999, 0.7, 0.3)
LENGTHS = (9, 2, 5), (4, 8, 6)  # longer than the window of 3 tokens, and shorter
KINDS: dict[str, dict[str, Any]] = {
    "published": {},
    "pre-norm": dict(encoder_normalize_before=True, decoder_normalize_before=True),
    "no halting": dict(encoder_halting=False, decoder_halting=False),
    "the encoder halts": dict(decoder_halting=False),
    "separate words": dict(
        share_all_embeddings=False, share_decoder_input_output_embed=False, target_words=11
    ),
    "no positions": dict(no_token_positional_embeddings=True),
    "one expert": dict(
        sizes=dict(experts=1, ffn_experts=1), encoder_attn_k=1, decoder_attn_k=1
    ),
}  # fmt: skip


def original(state: dict[str, Any], threshold: float) -> Outputs:
    """What the loops make of a batch of short and long sentences."""
    inputs = batch(*LENGTHS)
    tokens = inputs["src_tokens"], inputs["prev_output_tokens"]
    settings = state["args"] or state["cfg"]["model"]
    logits = reference.logits(state["model"], settings, *tokens, threshold)
    return Outputs(*tokens, logits, threshold)


def imported(state: dict[str, Any], folder: Path) -> Any:
    """Our model of a checkpoint."""
    torch.save(state, folder / "theirs.pt")
    return import_published(folder / "theirs.pt").model


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_outputs_agree(
    kind: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-4; nearly all that differs is the 1e-6 that the published code adds to sums of gates.

    The rest is float32, in which fairseq computes its GELU.
    """
    state = checkpoint(**kind)
    model = imported(state, tmp_path)
    thresholds = (0.7,) if kind is KINDS["no halting"] else THRESHOLDS
    for epsilon, most, several in ((1e-6, 1e-4, (0.7,)), (0.0, 2e-6, thresholds)):
        monkeypatch.setattr(reference, "EPSILON", epsilon)
        for threshold in several:
            found = compare(model, original(state, threshold), 1.0, "here")
            assert found.tokens == 18 and found.differing == 0
            assert found.difference < most


def test_thresholds_matter(tmp_path: Path) -> None:
    """So that agreement at three of them says something: tokens stop after different steps."""
    state = checkpoint()
    outputs = [original(state, threshold).logits for threshold in THRESHOLDS]
    assert all((a - b).abs().max() > 0.1 for a, b in zip(outputs, outputs[1:]))
    model = imported(state, tmp_path).double()
    steps = []
    for threshold in THRESHOLDS:
        set_threshold(model, threshold)
        halting = model(**batch(*LENGTHS))[1]["halting"].values()
        steps.append(sum(float(side.steps_run) for side in halting))
    assert steps == sorted(steps, reverse=True) and len(set(steps)) == 3


def test_what_could_go_wrong_shows(tmp_path: Path) -> None:
    """Without the translation of a layout, or at another threshold, outputs differ."""
    state = checkpoint()
    outputs = original(state, 0.7)
    for name, wrong in (
        ("encoder.stack.halting.output.weight", lambda tensor: tensor.flip(0)),
        ("encoder.stack.block.self_attention.core.positions.embedding",
         lambda tensor: torch.nn.functional.pad(tensor[:, 1:-1], (0, 0, 1, 1))),
        ("decoder.stack.block.self_attention.core.positions.embedding",
         lambda tensor: tensor.flip(1)),
    ):  # fmt: skip
        model = imported(state, tmp_path)
        parameter = model.get_parameter(name)
        parameter.data = wrong(parameter.data)
        assert compare(model, outputs, 1.0, "here").differing > 0, name
    other = replace(outputs, alpha_threshold=0.3)
    assert compare(imported(state, tmp_path), other, 1.0, "here").differing > 0


@torch.no_grad()
@pytest.mark.parametrize(("greatest", "tolerance"), [(0.05, 1e-4), (50.0, 5e-3)])
def test_how_close_is_close_enough(greatest: float, tolerance: float) -> None:
    """1e-4, times the greatest logit of the token if that is above 1; tokens count, not logits."""
    model = small_model(**HALTING, dtype=torch.float32)
    inputs = batch()
    tokens = inputs["src_tokens"], inputs["prev_output_tokens"]
    model.decoder.output_projection.weight *= greatest / model(**inputs)[0][1, 0].abs().max()
    logits = model(**inputs)[0]
    for share, differing in ((0.8, 0), (1.2, 1)):
        outputs = Outputs(*tokens, logits.clone(), 0.999)
        least = outputs.logits[1, 0].abs().topk(3, largest=False).indices
        outputs.logits[1, 0, least] += share * tolerance
        found = compare(model, outputs, 1.0, "here")
        assert found.differing == differing
        assert found.difference == pytest.approx(share * tolerance, rel=0.01)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_agrees_with_nothing(value: float, tmp_path: Path) -> None:
    """Least of all with the other logits of its token, whose tolerance it would make infinite."""
    state = checkpoint()
    outputs = original(state, 0.7)
    outputs.logits[:, 0, 3] = value
    found = compare(imported(state, tmp_path), outputs, 1.0, "here")
    assert found.differing == len(outputs.logits) and not found.difference < torch.inf


def test_settings_of_either_form() -> None:
    """Under `cfg`, and under `args` as earlier versions of fairseq wrote them."""
    ours = [translate(checkpoint(flat=flat)) for flat in (False, True)]
    assert ours[0].options == ours[1].options
    for name, tensor in ours[0].tensors.items():
        assert torch.equal(tensor, ours[1].tensors[name])
    # Where there are both, fairseq builds the model from `args`.
    both = {"args": Namespace(arch="flat"), "cfg": {"model": {"arch": "grouped"}}}
    assert setting(both, "model", "arch") == "flat"
