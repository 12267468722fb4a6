"""The masked layout: a training step that never waits for the device, and compiles to one graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from tests.models import HALTING, MIXTURE, batch, small_model, task

pytestmark = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this torch has no torch.nn.functional.grouped_mm"
)

ACT = dict(encoder_halting="act", decoder_halting="act-ut")

# What reads a value, or a shape that depends on values, from the device.
WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "bincount"),
    *("equal", "is_nonzero", "repeat_interleave", "lift_fresh"),
}


class Watch(TorchDispatchMode):
    """Notes every operation that would have to wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        by_mask = any(i is not None and i.dtype == torch.bool for i in indices)
        if name in WAITS or by_mask:
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def model_of(**options: Any) -> UniversalTransformerModel:
    sizes = dict(encoder_ffn_embed_dim=16, alpha_threshold=0.5, halting_epsilon=0.4)
    model = small_model(**{**MIXTURE, **HALTING, **sizes, **options}, dtype=torch.float32)
    return model.train()


def objective(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Our criterion with every term that has a gradient of its own."""
    terms = ("mutual_information", "expected_depth", "remainder", "router_z")
    weights = dict.fromkeys(terms, 0.1)
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=weights)
    sample = {"net_input": inputs, "target": inputs["prev_output_tokens"], "ntokens": 9}
    return criterion(model, sample)[0]


@pytest.mark.parametrize("halting", [HALTING, ACT], ids=["stick-breaking", "act"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_training_step_waits_for_nothing(checkpoint: bool, halting: dict[str, str]) -> None:
    options = dict(halting, dropout=0.1, router_dropout=0.1, checkpoint_activations=checkpoint)
    model = model_of(token_layout="masked", expert_backend="grouped", **options)
    inputs = batch()
    with Watch() as watch:
        objective(model, inputs).backward()
    assert watch.waits == []
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_watch_sees_what_the_compact_layout_waits_for() -> None:
    model, inputs = model_of(token_layout="compact", expert_backend="loop"), batch()
    with Watch() as watch:
        objective(model, inputs)
    assert {"nonzero", "bincount", "_local_scalar_dense"} <= set(watch.waits)


def test_a_training_step_compiles_to_one_graph() -> None:
    """In bfloat16: torch can trace grouped_mm in no other precision."""
    kinds = dict(encoder_halting="act", decoder_halting="stick-breaking")
    model = model_of(expert_backend="grouped", encoder_layers=2, decoder_layers=2, **kinds)
    # Tracing shows what breaks a graph; generating code for it would take minutes.
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    results = []
    for runs in (model, compiled):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            scores, extra = runs(**batch())
        sums = [s.expected_depth + s.remainder for s in extra["halting"].values()]
        loss = scores.float().square().mean() + torch.stack(sums).sum()
        loss.backward()
        results.append([loss, *(parameter.grad for parameter in model.parameters())])
    for ours, theirs in zip(*results):
        error = (ours - theirs).norm() / theirs.norm().clamp(min=1e-3)
        assert error < 0.02


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("layout, backend", [("compact", "loop"), ("masked", "grouped")])
def test_deterministic_on_request(layout: str, backend: str, device: str) -> None:
    """Nothing is used that torch would refuse, and two runs agree to the bit."""
    model = model_of(token_layout=layout, expert_backend=backend).to(device)
    inputs = {name: tensor.to(device) for name, tensor in batch().items()}
    gradients: list[list[Tensor]] = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            model.zero_grad()
            model(**inputs)[0].square().sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(gradients[0]) > 20
    assert all(torch.equal(one, other) for one, other in zip(*gradients))
