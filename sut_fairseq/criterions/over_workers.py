"""Statistics summed over all workers, so that a loss is that of one process with all batches.

An auxiliary loss f is not linear in its sums S. The mean over workers w of f(S_w) is therefore not
f(S_1 + S_2 + ...), and its gradients differ too.

A batch that a worker computes only because it has no other counts for nothing (see `_workers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from fairseq.distributed import utils as fairseq_distributed
from torch import Tensor, distributed

from sut_fairseq._workers import IGNORED


def several_workers() -> bool:
    """Whether this process is one of several that train together."""
    initialized = distributed.is_available() and distributed.is_initialized()
    return initialized and distributed.get_world_size() > 1


def sum_over_workers(
    extra: Mapping[str, Any], sample_size: int, *, ignored: bool
) -> tuple[dict[str, Any], Tensor]:
    """Sum the statistics of the batches that the workers compute at the same time.

    Every worker must call it, once for each batch. The gradient of a sum flows to this worker's
    part alone: summed over workers, the gradients are those of the loss of the sums.

    Args:
        extra: a model's extra output with its "routing" and "halting" statistics.
        sample_size: of this worker's batch.
        ignored: whether this worker's batch counts for nothing.

    Returns:
        the same output with sums over all workers, and the sum of their sample sizes, scalar.
    """
    own = list(_sums(extra))
    if not own:
        return dict(extra), torch.tensor(0.0)
    size = torch.full_like(own[0], 0 if ignored else sample_size)
    flat = torch.cat([part.detach().reshape(-1).to(size.dtype) for part in (size, *own)])
    if ignored:
        flat = torch.zeros_like(flat)
    # One collective call for all of them, on the device.
    fairseq_distributed.all_reduce(flat, group=fairseq_distributed.get_data_parallel_group())
    total, *totals = flat.split([1, *(part.numel() for part in own)])
    # Bitwise equal in all workers, with the gradient of this worker's part.
    sums = iter(value.view_as(part) + (part - part.detach()) for value, part in zip(totals, own))
    replaced = {
        kind: {
            name: replace(statistics, **{f.name: next(sums) for f in fields(statistics)})
            for name, statistics in extra[kind].items()
        }
        for kind in _kinds(extra)
    }
    return {**extra, **replaced}, total.squeeze()


def counted(
    sample: Mapping[str, Any], loss: Tensor, sample_size: int, log: dict[str, Any]
) -> tuple[Tensor, int, dict[str, Any]]:
    """What a criterion that knows ignored batches returns: for such a batch only zeros.

    The other workers wait for this one's gradients, so the loss must be a 0 that keeps its graph.

    Args:
        sample: the batch.
        loss: of the batch, a scalar.
        sample_size: its denominator.
        log: sums to log.
    """
    if sample.get(IGNORED, False):
        return loss * 0, 0, {name: 0 * value for name, value in log.items()}
    return loss, sample_size, log


def _kinds(extra: Mapping[str, Any]) -> list[str]:
    return [kind for kind in ("routing", "halting") if kind in extra]


def _sums(extra: Mapping[str, Any]) -> Iterator[Tensor]:
    """All sums, in an order that is the same in every worker."""
    for kind in _kinds(extra):
        for statistics in extra[kind].values():
            yield from (getattr(statistics, f.name) for f in fields(statistics))
