"""Memory that a training needs on each GPU, by part, computed without a GPU.

A training step runs on torch's meta device, where tensors have shapes but no values. There the
peak of live bytes can be counted for models and batches of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.benchmark.peak import peak_bytes
from sut_fairseq.analysis.benchmark.peers import COMMAND, own_criterion
from sut_fairseq.analysis.benchmark.steps import sample_of, training_step
from sut_fairseq.analysis.benchmark.timing import Conditions
from sut_fairseq.analysis.depth import stacks
from sut_fairseq.analysis.untrained import build, random_batch
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput

_META = torch.device("meta")
# The token layout and the expert backend that training on a GPU uses.
_AS_ON_A_GPU = ("--token-layout", "masked", "--expert-backend", "grouped")


@dataclass(frozen=True)
class Batch:
    """What one GPU computes at once: pairs of sentences, all of one length."""

    sentences: int
    src_len: int
    tgt_len: int


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU.

    Attributes:
        parameters: weights and buffers.
        experts: the weights of experts among them.
        gradients: in the precision of the weights.
        buckets: copies of the gradients for the all-reduce over workers; 0 with one worker.
        optimizer: Adam's two moments in float32; unless training is in float32, also copies of
            weights and gradients in it.
        activations: everything else that is alive at the peak of a training step.
        activations_of_a_step: how much of `activations` each step of depth adds.
    """

    parameters: int
    experts: int
    gradients: int
    buckets: int
    optimizer: int
    activations: int
    activations_of_a_step: int

    @property
    def total(self) -> int:
        """All parts; `parameters` include `experts`, `activations` include those of a step."""
        parts = (self.parameters, self.gradients, self.buckets, self.optimizer, self.activations)
        return sum(parts)


def parameters(model: nn.Module) -> int:
    """Number of parameters that are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def parameters_of_experts(model: nn.Module) -> int:
    """Number of parameters of experts, in all routed modules."""
    return sum(parameters(layer) for layer in _expert_layers(model))


def parameters_of_one_expert(model: nn.Module) -> int:
    """Number of parameters of one expert in each routed module."""
    return sum(parameters(layer) // layer.num_experts for layer in _expert_layers(model))


def experts_of_layers(model: nn.Module) -> list[int]:
    """The distinct numbers of experts that routed modules have, ascending."""
    return sorted({layer.num_experts for layer in _expert_layers(model)})


def _expert_layers(model: nn.Module) -> list[ExpertInput | ExpertOutput]:
    return [m for m in model.modules() if isinstance(m, (ExpertInput, ExpertOutput))]


def _bytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def memory_of(
    arch: str,
    vocab_size: int,
    flags: Sequence[str],
    batch: Batch,
    *,
    dtype: torch.dtype,
    workers: int,
) -> Memory:
    """Memory of a training with Adam.

    Args:
        arch, vocab_size, flags: see `untrained.build`.
        batch: what is computed at once.
        dtype: float32, or bfloat16 for `--bf16`; `--autocast bfloat16` needs less than the one and
            more than the other.
        workers: number of GPUs.

    Raises:
        InputError: as in `untrained.build` and `random_batch`.
    """
    with _META:
        model, task = build(arch, vocab_size, (*flags, *_AS_ON_A_GPU), command=COMMAND)
        model = model.to(dtype)
        inputs = random_batch(
            model, task, src_len=batch.src_len, tgt_len=batch.tgt_len, sentences=batch.sentences
        )
    conditions = Conditions(_META, torch.float32, repetitions=1, seed=1)
    criterion, sample = own_criterion(task), sample_of(inputs, _META)

    loops = list(stacks(model).values())
    recomputed = any(stack.checkpoint_activations for stack in loops)

    def activations(num_steps: int | None) -> int:
        step = training_step(
            model,
            criterion,
            sample,
            conditions,
            num_steps=num_steps,
            checkpoint_activations=recomputed,
        )
        return peak_bytes(step, conditions) - sum(map(_bytes, step.tensors()))

    of_all = activations(None)
    # From two different depths of at least 2, since the first step needs less than a later one.
    deepest = max(stack.num_steps for stack in loops)
    few, many = max(2, deepest // 2), max(4, deepest)
    of_many = of_all if all(s.num_steps == many for s in loops) else activations(many)
    of_a_step = (of_many - activations(few)) // ((many - few) * len(loops))
    size, trained = dtype.itemsize, parameters(model)
    copies = 0 if dtype == torch.float32 else 2  # weights and gradients, by fairseq's optimizer
    return Memory(
        parameters=sum(_bytes(tensor) for tensor in (*model.parameters(), *model.buffers())),
        experts=size * parameters_of_experts(model),
        gradients=size * trained,
        buckets=size * trained if workers > 1 else 0,
        optimizer=4 * (2 + copies) * trained,
        activations=of_all,
        activations_of_a_step=of_a_step,
    )
