"""What GPUs send each other: gradients, or with experts on different GPUs their tokens.

All experts are on every GPU here. With *expert parallelism* each GPU would hold some of them, and
tokens would travel to their experts and back. It is not implemented; `Exchange` tells when it would
send less.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward


def ring_bytes(num_bytes: float, workers: int) -> float:
    """Bytes that each of `workers` sends and receives in a ring all-reduce of `num_bytes`."""
    return 2 * (workers - 1) / workers * num_bytes


@dataclass(frozen=True)
class Exchange:
    """Numbers that a token sends to its experts and gets back, of size 2 or 4 bytes each.

    Attributes:
        source: for a source token, in a forward pass through all steps.
        target: for a target token.
    """

    source: int
    target: int

    @classmethod
    def of(cls, model: nn.Module) -> Exchange:
        """Of a model with mixtures of experts; 0 without them.

        A feed-forward expert keeps its hidden layer; in attention, tokens return between the
        queries and the output projection.
        """
        numbers = {"encoder": 0, "decoder": 0}
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
        return cls(numbers["encoder"], numbers["decoder"])

    def bytes(self, source_tokens: int, target_tokens: int, size: int, workers: int) -> float:
        """Bytes that a GPU sends, and receives, for its tokens, forward and backward."""
        numbers = self.source * source_tokens + self.target * target_tokens
        return 2 * numbers * size * (workers - 1) / workers
