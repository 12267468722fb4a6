"""Steps to measure: a forward and a backward pass, of a module or of a model with its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sut_fairseq import losses
from sut_fairseq.analysis.benchmark.timing import Conditions
from sut_fairseq.analysis.depth import stacks
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.whole import attend_within
from sut_fairseq.statistics import RouterCalls, route_statistics


@dataclass(frozen=True)
class Step:
    """A forward and a backward pass, without an update of the parameters.

    Calling it drops old gradients and runs both, as in training.

    Attributes:
        module: the module whose parameters get gradients.
        forward: returns tensors and, for each, the gradient to start from (None: 1).
        inputs: tensors that the forward pass reads.
    """

    module: nn.Module
    forward: Callable[[], tuple[list[Tensor], list[Tensor | None]]]
    inputs: tuple[Tensor, ...] = ()

    def __call__(self) -> None:
        self.clear_gradients()
        self.forward_backward()

    def forward_backward(self) -> None:
        """Run both passes; gradients are added to existing ones."""
        outputs, gradients = self.forward()
        torch.autograd.backward(outputs, gradients)

    def clear_gradients(self) -> None:
        """Drop existing gradients."""
        for tensor in self._differentiated():
            tensor.grad = None

    def zero_gradients(self) -> None:
        """Set existing gradients to zero."""
        for tensor in self._differentiated():
            if tensor.grad is not None:
                tensor.grad.zero_()

    def tensors(self) -> Iterator[Tensor]:
        """Parameters, buffers and inputs, and the gradients that exist."""
        yield from self.module.buffers()
        yield from self.inputs
        for tensor in self._differentiated():
            yield tensor
            if tensor.grad is not None:
                yield tensor.grad

    def _differentiated(self) -> Iterator[Tensor]:
        yield from self.module.parameters()
        yield from (tensor for tensor in self.inputs if tensor.requires_grad)


class WholeSentences(nn.Module):
    """An attention kind on whole sentences, as the depth loop calls it.

    Args:
        attention: the kind.
        forms_weights: whether the weights must be formed, which torch's fused kernels never do.
    """

    def __init__(self, attention: Attention, *, forms_weights: bool = False) -> None:
        super().__init__()
        self.attention = attention
        # A `look` callback rules out the fused kernels.
        self.look = (lambda *seen: None) if forms_weights else None

    def forward(self, states: Tensor) -> tuple[Tensor, RouterCalls | None]:
        """Attend within the sentences of `(batch, length, embed_dim)`."""
        return attend_within(self.attention, states, self.look)


def layer_step(layer: nn.Module, states: Tensor, gradient: Tensor, conditions: Conditions) -> Step:
    """A step of one layer by itself.

    Args:
        layer: maps states to a result and, if it routes, its router's calls, whose mutual
            information is differentiated too, as in training.
        states: the layer's input, of any shape; gets a gradient too.
        gradient: gradient of the result, of its shape.
    """

    def forward() -> tuple[list[Tensor], list[Tensor | None]]:
        with conditions.autocast():
            result, calls = layer(states)
        outputs: list[Tensor] = [result]
        gradients: list[Tensor | None] = [gradient.to(result.dtype)]
        if calls is not None:
            outputs.append(losses.mutual_information(route_statistics([calls])))
            gradients.append(None)
        return outputs, gradients

    return Step(layer, forward, (states,))


def training_step(
    model: nn.Module,
    criterion: nn.Module,
    sample: Mapping[str, Any],
    conditions: Conditions,
    *,
    num_steps: int | Mapping[str, int] | None = None,
    checkpoint_activations: bool = False,
) -> Step:
    """A training step of a model on a fairseq batch, without the optimiser's update.

    Args:
        model, criterion: any fairseq encoder-decoder model and its loss.
        sample, conditions: the batch, device and dtype.
        num_steps: how many steps each depth loop runs, with the same weights: a number for both, or
            one for each by "encoder" and "decoder"; None: as built.
        checkpoint_activations: if `num_steps` is given, whether to recompute activations.
    """

    def forward() -> tuple[list[Tensor], list[Tensor | None]]:
        model.train()
        if num_steps is not None:
            for name, stack in stacks(model).items():
                stack.num_steps = num_steps if isinstance(num_steps, int) else num_steps[name]
                stack.checkpoint_activations = checkpoint_activations
        with conditions.autocast():
            loss, _, _ = criterion(model, sample)
        return [loss], [None]

    return Step(model, forward, (*sample["net_input"].values(), sample["target"]))


def sample_of(batch: Mapping[str, Tensor], device: torch.device) -> dict[str, Any]:
    """A fairseq batch on a device; the target is the decoder's input shifted by one token."""
    inputs = {name: tensor.to(device) for name, tensor in batch.items()}
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}
