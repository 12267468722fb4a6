"""Training steps recorded as CUDA graphs, one for each shape of a batch.

A depth loop has thousands of small operations, and a GPU computes them faster than Python can
launch them. A CUDA graph launches all operations of a forward and a backward pass at once. What it
computes is fixed: shapes, the order of operations, and the address of each tensor. So batches are
padded to a few shapes and copied to where the graph reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.criterions.cuda_graphs import CudaGraphs, Record
from sut_fairseq.errors import InputError

Compute = Callable[[nn.Module, Mapping[str, Any]], tuple[Tensor, Any, dict[str, Any]]]

# The shapes that are left after that many are rare.
MOST_RECORDINGS = 200

# The tensors of a batch that a model and a criterion read; those with a column for each word.
_TENSORS = ("src_tokens", "src_lengths", "prev_output_tokens", "target", "group")
_WORDS = ("src_tokens", "prev_output_tokens", "target")
_SIZES = ("ntokens", "nsentences")


class RecordedSteps:
    """Computes the loss of training batches as `compute` does, and its gradients along with it.

    The first batch of a shape is computed as usual, the second is recorded, and from then on the
    recording is replayed. Gradients reach the parameters when the loss is differentiated, which
    must happen before the next batch. Before a step is recorded, drop the losses of earlier steps:
    torch would wait for their streams, which is not possible in a recording.

    Args:
        compute: maps model and batch to a loss, its denominator and a log. It must not read a value
            from the device, and must take the numbers of tokens and sentences from the batch, where
            they may be tensors.
        padding: index of the padding symbol.
        multiple: sentences are padded at the end to a multiple of this many words.
        pads_sentences: whether a batch may get sentences of nothing but padding, which must not
            count: it is then padded to one of eight numbers of sentences between two powers of 2.
        autocast: dtype of autocast inside `compute`; None: no autocast.
        record: how to record; None: as a CUDA graph.
    """

    def __init__(
        self,
        compute: Compute,
        *,
        padding: int,
        multiple: int,
        pads_sentences: bool = True,
        autocast: torch.dtype | None = None,
        record: Record | None = None,
    ) -> None:
        self._compute = compute
        self._padding = padding
        self._multiple = multiple
        self._pads_sentences = pads_sentences
        self._autocast = autocast
        self._record: Record = CudaGraphs() if record is None else record
        self._seen: Counter[Any] = Counter()
        self._recordings: dict[Any, _Recording] = {}
        self._gradients: list[Tensor] = []
        self._played = 0

    def __len__(self) -> int:
        """Number of recordings."""
        return len(self._recordings)

    def __call__(
        self, model: nn.Module, sample: Mapping[str, Any]
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """What `compute` returns for a batch.

        Raises:
            InputError: for a batch with other tensors than words, labels and groups, or if its step
                cannot be recorded.
        """
        if model._forward_hooks:  # fairseq uses hooks to find the source of a NaN
            return self._compute(model, sample)
        inputs = self._padded(_tensors(sample))
        shape = tuple((name, *tensor.shape) for name, tensor in inputs.items())
        recording = self._recordings.get(shape)
        if recording is None:
            if not self._seen:
                self._check(model)
            self._seen[shape] += 1
            if self._seen[shape] == 1 or len(self) == MOST_RECORDINGS:
                return self._compute(model, sample)
            parameters = [p for p in model.parameters() if p.requires_grad]
            if not self._gradients:
                self._gradients = [torch.empty_like(p) for p in parameters]
            recording = _Recording(
                self._compute, model, sample, inputs, parameters, self._gradients, self._record
            )
            self._recordings[shape] = recording
        self._played += 1
        loss, sample_size, log = recording.play(sample, inputs)
        played = self._played

        def gradients() -> list[Tensor | None]:
            if played != self._played:
                raise RuntimeError("a recorded loss must be differentiated before the next batch")
            return recording.gradients

        loss = _WithGradients.apply(loss, gradients, *recording.parameters)
        return loss, sample_size, log

    def _check(self, model: nn.Module) -> None:
        dtype = self._autocast or next(model.parameters()).dtype
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        self._record.check(model, dtype)

    def _padded(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        sentences = len(inputs["target"])
        rows = _few(sentences) - sentences if self._pads_sentences else 0
        padded = {}
        for name, tensor in inputs.items():
            words = name in _WORDS
            columns = -tensor.shape[1] % self._multiple if words else 0
            sides = (0, columns, 0, rows) if words else (0, rows)
            fill = self._padding if words else 0
            padded[name] = F.pad(tensor, sides, value=fill) if any(sides) else tensor
        return padded


class _Recording:
    """One step, for batches of one shape."""

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        sample: Mapping[str, Any],
        inputs: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        shared: Sequence[Tensor],
        record: Record,
    ) -> None:
        self.parameters = parameters
        self.gradients: list[Tensor | None] = []
        self._log: dict[str, Any] = {}
        self._sample_size: Any = None
        self._inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        device = inputs["target"].device
        # Sums are divided by these sizes, which differ between batches of one shape.
        self._sizes = {
            name: torch.tensor(float(sample[name]), device=device)
            for name in _SIZES
            if name in sample
        }
        read = _sample(sample, self._inputs) | self._sizes

        def step() -> list[Tensor]:
            loss, self._sample_size, self._log = compute(model, read)
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            # All recordings write to the same memory.
            kept: list[Tensor | None] = [
                None if new is None else old for new, old in zip(found, shared, strict=True)
            ]
            torch._foreach_copy_(
                [old for old in kept if old is not None], [new for new in found if new is not None]
            )
            self.gradients = kept
            return [loss.detach(), *self._computed().values()]

        self._again, self._outputs = record(step)

    def play(
        self, sample: Mapping[str, Any], inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """Replay the step on a batch: its loss without gradients, its denominator, and its log."""
        for name, tensor in inputs.items():
            self._inputs[name].copy_(tensor)
        for name, size in self._sizes.items():
            size.fill_(sample[name])
        self._again()
        loss, *values = _copies(self._outputs)
        log = {name: self._number(value, sample) for name, value in self._log.items()}
        log |= zip(self._computed(), values)
        return loss, self._number(self._sample_size, sample), log

    def _computed(self) -> dict[str, Tensor]:
        """The logged tensors, except for the batch's sizes."""
        sizes = list(map(id, self._sizes.values()))
        return {
            name: value
            for name, value in self._log.items()
            if isinstance(value, Tensor) and id(value) not in sizes
        }

    def _number(self, value: Any, sample: Mapping[str, Any]) -> Any:
        """A size of this batch in place of the tensor that stands for it."""
        for name, size in self._sizes.items():
            if value is size:
                return sample[name]
        return value


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are known already."""

    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, gradients: Callable[[], list[Tensor | None]], *parameters: Tensor
    ) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients()
        # Copies: the next batch overwrites them.
        scaled = iter(torch._foreach_mul([g for g in gradients if g is not None], incoming))
        return None, None, *(None if g is None else next(scaled) for g in gradients)


def _tensors(sample: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a batch that enter the computation, by name.

    Raises:
        InputError: for other tensors that might enter it.
    """
    values = {**sample, **sample["net_input"]}
    found = {n: value for n, value in values.items() if isinstance(value, Tensor) and n != "id"}
    unknown = sorted(found.keys() - set(_TENSORS))
    if unknown:
        raise InputError(
            f"--cuda-graphs knows batches of words, labels and groups, but the task's have "
            f"{', '.join(unknown)} as well: leave it out."
        )
    return found


def _sample(sample: Mapping[str, Any], inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The batch with these tensors in place of its own."""
    net_input = {name: inputs.get(name, value) for name, value in sample["net_input"].items()}
    return {**sample, **{n: inputs[n] for n in inputs if n in sample}, "net_input": net_input}


def _few(sentences: int) -> int:
    """Round up to one of eight numbers between two powers of 2."""
    step = 1 << max((sentences - 1).bit_length() - 4, 0)
    return -(-sentences // step) * step


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors, made in one operation for each dtype."""
    copies: dict[int, Tensor] = {}
    for dtype in {tensor.dtype for tensor in tensors}:
        own = [(i, tensor) for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for _, tensor in own])
        parts = flat.split([tensor.numel() for _, tensor in own])
        copies |= {i: part.view_as(tensor) for (i, tensor), part in zip(own, parts)}
    return [copies[i] for i in range(len(tensors))]
