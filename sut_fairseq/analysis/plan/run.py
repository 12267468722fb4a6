"""The cost of a whole training, from measured constants and stated assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from sut_fairseq.analysis.benchmark.peers import own_model
from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.depth import stacks
from sut_fairseq.analysis.plan.memory import (
    Batch,
    experts_of_layers,
    memory_of,
    parameters_of_experts,
    parameters_of_one_expert,
)
from sut_fairseq.analysis.plan.speed import Speed
from sut_fairseq.analysis.plan.traffic import exchanged_bytes, ring_bytes
from sut_fairseq.analysis.untrained import random_batch
from sut_fairseq.errors import InputError, check

# Factor by which recomputed activations slow down a step of depth, however small the batch: on a
# CPU with one pair of 4 + 4 tokens, 1.93 for sut_tiny and 1.87 for ut_tiny. Arithmetic grows by a
# third at most, but most of the time to start operations is spent in the forward pass.
_RECOMPUTED_STEP = 1.9


@dataclass(frozen=True)
class Machines:
    """What the training runs on; rates are bytes per second in one direction.

    Attributes:
        gpus: number of GPUs, of all machines together.
        machines: number of machines.
        memory: bytes of one GPU.
        link: between the GPUs of one machine.
        network: of one machine to all others.
    """

    gpus: int
    machines: int
    memory: float
    link: float
    network: float

    def __post_init__(self) -> None:
        check(
            self.gpus % self.machines == 0,
            "--gpus",
            f"a multiple of --machines ({self.machines})",
            self.gpus,
        )

    @property
    def narrowest(self) -> float:
        """Bandwidth of a ring through all GPUs, which enters and leaves each machine once."""
        return self.link if self.machines == 1 else min(self.link, self.network)


@dataclass(frozen=True)
class Training:
    """What is trained.

    Attributes:
        arch, vocab_size, flags: the model, see `untrained.build`.
        tokens: target tokens of the whole training.
        max_tokens: source or target tokens that a GPU computes at once, whichever are more.
        src_len, tgt_len: lengths of all sentences.
        update_freq: batches of a GPU between two updates.
        dtype: see `memory_of`.
    """

    arch: str
    vocab_size: int
    flags: Sequence[str]
    tokens: float
    max_tokens: int
    src_len: int
    tgt_len: int
    update_freq: int
    dtype: torch.dtype

    @property
    def batch(self) -> Batch:
        """What a GPU computes at once."""
        sentences = self.max_tokens // max(self.src_len, self.tgt_len)
        if not sentences:
            raise InputError(
                f"--max-tokens {self.max_tokens} holds no sentence of --src-len {self.src_len} and "
                f"--tgt-len {self.tgt_len}: give more tokens or shorter sentences."
            )
        return Batch(sentences, self.src_len, self.tgt_len)


def plan(training: Training, on: Machines, speed: Speed) -> dict[str, Any]:
    """Time, memory and traffic, ready for JSON; sizes in bytes, times in seconds.

    Raises:
        InputError: for an unknown architecture or flag, or if a size is not allowed.
    """
    batch, workers = training.batch, on.gpus
    model, task = own_model(training.arch, training.vocab_size, training.flags)
    loops = stacks(model).values()
    steps = sum(stack.num_steps for stack in loops)
    recomputed = any(stack.checkpoint_activations for stack in loops)
    pair = random_batch(model, task, src_len=batch.src_len, tgt_len=batch.tgt_len)
    forward = count(model, [pair])
    # The backward pass has two products for each of the forward pass.
    macs = 3 * batch.sentences * forward.macs_full
    if recomputed:
        kept = forward.by_kind["output projection"] + forward.by_kind["halting"]
        macs += batch.sentences * (forward.macs_full - kept)
    memory = memory_of(
        training.arch,
        training.vocab_size,
        training.flags,
        batch,
        dtype=training.dtype,
        workers=workers,
    )
    sent = ring_bytes(memory.gradients, workers)
    started = steps * (_RECOMPUTED_STEP if recomputed else 1)
    computing = training.update_freq * speed.seconds(started, macs)
    adding = sent / on.narrowest
    tokens = workers * training.update_freq * batch.sentences * batch.tgt_len
    updates = math.ceil(training.tokens / tokens)
    seconds = updates * (computing + adding)
    return {
        "machines": asdict(on),
        "speed": asdict(speed),
        "model": {
            "params": sum(p.numel() for p in model.parameters()),
            "params_of_experts": parameters_of_experts(model),
            "steps": steps,
            "macs_of_batch": macs,
        },
        "memory": {
            **asdict(memory),
            "total": memory.total,
            "fits": memory.total <= on.memory,
            "recomputes": recomputed,
        },
        "update": {
            "tokens": tokens,
            "gradients": memory.gradients,
            "sent_by_each_gpu": sent,
            "seconds": computing + adding,
            "seconds_computing": computing,
            "seconds_adding_up": adding,
        },
        "run": {
            "updates": updates,
            "tokens_per_second": tokens / (computing + adding),
            "hours": seconds / 3600,
            "gpu_hours": workers * seconds / 3600,
        },
        "expert_parallelism": _expert_parallelism(model, training, on, memory.total),
    }


def _expert_parallelism(
    model: Any, training: Training, on: Machines, used: int
) -> dict[str, Any] | None:
    """Traffic with experts on different GPUs, and when it is less than that of gradients."""
    of_experts = parameters_of_experts(model)
    if not of_experts or on.gpus == 1:
        return None
    batch, size = training.batch, training.dtype.itemsize
    lengths = {"encoder": batch.src_len, "decoder": batch.tgt_len}
    tokens = {side: batch.sentences * length for side, length in lengths.items()}
    exchanged = training.update_freq * exchanged_bytes(model, tokens, size, on.gpus)
    one = parameters_of_one_expert(model)
    # Weight, gradient, bucket and Adam's moments of a parameter; below float32 two copies in it.
    state = 3 * size + 8 + (0 if size == 4 else 8)
    free = on.memory - used + state * of_experts  # without any expert
    return {
        "sent_by_each_gpu": exchanged,
        "gradients_saved": ring_bytes(size * of_experts, on.gpus),
        "experts": experts_of_layers(model),
        "experts_for_less_traffic": math.ceil(exchanged / ring_bytes(size * one, on.gpus)),
        "experts_for_full_memory": math.floor(free / (state * one)),
    }
