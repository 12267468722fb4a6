"""What a GPU would need, seen without one: all of a training step on torch's meta device.

A tensor there has a shape and no values. Whatever mixes it with a tensor of the CPU, or asks for a
value, which on a GPU means to wait for it, fails.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sut_fairseq.analysis.untrained import build
from sut_fairseq.criterions.classification import ClassificationCriterion
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.models.retrieval_network import (
    ContextualRetrievalModel,
    ContextualRetrievalModelConfig,
)
from sut_fairseq.tasks.contextual_retrieval import (
    ContextualRetrievalConfig,
    ContextualRetrievalTask,
)
from tests.models import (
    HALTING,
    MIXTURE,
    NDR,
    batch,
    classification_task,
    configurations,
    sample_of,
    small_classifier,
    small_model,
    task,
)

# Those that read words: contextual retrieval has objects in their place, and its own test below.
ARCHITECTURES = sorted(
    name
    for name, model in ARCH_MODEL_REGISTRY.items()
    if model.__module__.startswith("sut_fairseq.") and model is not ContextualRetrievalModel
)
# Sizes in multiples of 16 bytes, for the grouped product.
ON_A_GPU = dict(token_layout="masked", expert_backend="grouped", encoder_ffn_embed_dim=16)
TWO_STEPS = dict(encoder_layers=2, decoder_layers=2)


class Elsewhere(TorchDispatchMode):
    """Notes every operation that reads or makes a tensor that is not on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        if any(isinstance(leaf, Tensor) and leaf.device.type != "meta" for leaf in leaves):
            self.operations.append(str(func))
        return result


def to_meta(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {name: to_meta(value) for name, value in sample.items()}
    return sample.to("meta") if isinstance(sample, Tensor) else sample


def assert_trains_on_meta(
    build: Any, criterion: Any, sample: dict[str, Any], **options: Any
) -> None:
    with torch.device("meta"):
        model = build(**{**options, **ON_A_GPU}, dtype=torch.bfloat16).train()
    sample = to_meta(sample)
    with Elsewhere() as elsewhere:
        loss, _, _ = criterion(model, sample)
        loss.backward()
    assert elsewhere.operations == []
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.device.type == "meta", name


needs_grouped = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this torch has no torch.nn.functional.grouped_mm"
)


@needs_grouped
@pytest.mark.parametrize("options", configurations().values(), ids=configurations())
@pytest.mark.parametrize(
    ("longest", "dropout"),
    [
        pytest.param(6, 0.0, id="short", marks=pytest.mark.slow),
        pytest.param(12, 0.1, id="beyond the window, with dropout"),
    ],
)
def test_a_training_step_of_every_kind(
    options: dict[str, Any], longest: int, dropout: float
) -> None:
    names = ("dropout", "attention_dropout", "activation_dropout", "router_dropout")
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1)
    sample = sample_of(batch((longest, 2, 4), (3, 8, 5)))
    dropouts = dict.fromkeys(names, dropout)
    assert_trains_on_meta(small_model, criterion, sample, **TWO_STEPS, **options, **dropouts)


@needs_grouped
@pytest.mark.parametrize("options", [{**MIXTURE, **HALTING}, NDR["ndr"]], ids=["sut", "ndr"])
def test_a_training_step_of_a_classifier(options: dict[str, Any]) -> None:
    criterion = ClassificationCriterion(classification_task(), False, 0.1)
    sample = {"net_input": batch(), "target": torch.tensor([[4, 2], [5, 2], [6, 2]])}
    criterion.task.label_indices(to_meta(sample))  # takes the table of labels there, once
    assert_trains_on_meta(small_classifier, criterion, sample, **options)


@needs_grouped
def test_what_stays_on_the_cpu_or_waits_is_seen() -> None:
    sample = sample_of(batch())
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1)

    def scalar(states: Tensor) -> Tensor:
        return torch.tensor(2.0)  # torch mixes a tensor without dimensions with any device

    def waiting(states: Tensor) -> int:
        return int(states.max())

    def spoilt(factor: Any) -> Any:
        def build(**options: Any) -> torch.nn.Module:
            model = small_model(**options)
            layer = model.decoder.output_projection
            layer.register_forward_pre_hook(lambda _, inputs: inputs[0] * factor(inputs[0]))
            return model

        return build

    with pytest.raises(AssertionError, match="lift_fresh"):
        assert_trains_on_meta(spoilt(scalar), criterion, sample)
    with pytest.raises(RuntimeError, match="item"):
        assert_trains_on_meta(spoilt(waiting), criterion, sample)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_builds_on_meta(arch: str) -> None:
    """No weight is drawn, nor a buffer made, anywhere but where the model is built."""
    with torch.device("meta"):
        model, _ = build(arch, 1000)
    assert_all_on_meta(model)


@pytest.mark.parametrize("kind", ["multihead", "compositional"])
def test_a_retrieval_network_builds_on_meta(kind: str) -> None:
    config = ContextualRetrievalModelConfig(attention_kind=kind)
    task = ContextualRetrievalTask(ContextualRetrievalConfig(sets_per_epoch=1))
    with torch.device("meta"):
        model = ContextualRetrievalModel.build_model(config, task)
    assert_all_on_meta(model)


def assert_all_on_meta(model: torch.nn.Module) -> None:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    assert tensors
    assert {name for name, tensor in tensors if tensor.device.type != "meta"} == set()
