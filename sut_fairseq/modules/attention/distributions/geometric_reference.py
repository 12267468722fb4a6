"""Geometric attention weights as in the paper; `geometric` computes the same faster."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def geometric_reference(
    scores: Tensor, visible: Tensor | None, positions: Tensor, *, causal: bool = False
) -> Tensor:
    """Probability that each key is the closest one that matches (NDR Eq. 6-8), in plain autograd.

    Arguments and result are those of `geometric`, with `causal` those of `geometric_to_the_left`.
    """
    keys, queries = torch.arange(scores.shape[-1], device=scores.device), positions[..., None]
    may_match = keys < queries if causal else keys != queries
    may_match = (may_match if visible is None else may_match & visible)[:, None, :, None]
    # Eq. 6: P_ij = sigmoid(score_ij), 0 for a hidden key; in logarithms, for accuracy.
    log_match = F.logsigmoid(scores).masked_fill(~may_match, -torch.inf)
    log_rest = F.logsigmoid(-scores).masked_fill(~may_match, 0.0)
    # Eq. 8: the keys from the closest to the furthest, of two equally close ones the right first.
    order = (2 * (keys - queries).abs() - (keys > queries).int()).argsort(dim=-1)
    ranks = order.argsort(dim=-1)
    order, ranks = (index[:, None, :, None].expand_as(scores) for index in (order, ranks))
    # Eq. 7: P_ij times 1 - P_ik of all closer keys.
    closer = F.pad(log_rest.gather(-1, order)[..., :-1], (1, 0)).cumsum(dim=-1)
    return (log_match + closer.gather(-1, ranks)).exp()
