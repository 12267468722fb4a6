"""What GPUs send each other: gradients, or with experts on different GPUs their tokens.

All experts are on every GPU here. With *expert parallelism* each GPU would hold some of them, and
tokens would travel to their experts and back. It is not implemented; `exchanged_bytes` tells what
it would send.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward


def ring_bytes(num_bytes: float, workers: int) -> float:
    """Bytes that each of `workers` sends and receives in a ring all-reduce of `num_bytes`."""
    return 2 * (workers - 1) / workers * num_bytes


def exchanged(model: nn.Module) -> dict[str, int]:
    """Numbers that a token sends to its experts and gets back in a forward pass, by depth loop.

    A feed-forward expert keeps its hidden layer; in attention, tokens return between the queries
    and the output projection.
    """
    numbers = dict.fromkeys(stacks(model), 0)
    for side, stack in stacks(model).items():
        for module in stack.block.modules():
            if isinstance(module, MixtureFeedForward):
                size = module.input.in_features + module.output.out_features
            elif isinstance(module, MixtureAttention):
                layers = (module.query, module.output)
                size = sum(layer.in_features + layer.out_features for layer in layers)
            else:
                continue
            numbers[side] += stack.num_steps * module.router.top_k * size
    return numbers


def exchanged_bytes(model: nn.Module, tokens: Mapping[str, int], size: int, workers: int) -> float:
    """Bytes that a GPU sends, and receives, for its `tokens` of each loop, forward and backward.

    A number has `size` bytes.
    """
    numbers = sum(each * tokens[side] for side, each in exchanged(model).items())
    return 2 * numbers * size * (workers - 1) / workers
