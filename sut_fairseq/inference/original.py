"""Outputs that another program computed with the same weights, to compare a model with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from sut_fairseq.analysis.depth import set_threshold
from sut_fairseq.errors import InputError

TOLERANCE = 1e-4
_TENSORS = {"src_tokens": 2, "prev_output_tokens": 2, "logits": 3}
_THRESHOLD = "alpha_threshold"


@dataclass(frozen=True)
class Outputs:
    """A batch and the original's outputs for it, teacher-forced.

    Attributes:
        src_tokens: padded source sentences, `(batch, src_len)`.
        prev_output_tokens: padded inputs of the decoder, `(batch, tgt_len)`.
        logits: scores before the softmax, `(batch, tgt_len, vocabulary)`.
        alpha_threshold: the threshold that they were computed with; None: unknown.
    """

    src_tokens: Tensor
    prev_output_tokens: Tensor
    logits: Tensor
    alpha_threshold: float | None = None


@dataclass(frozen=True)
class Agreement:
    """How close a model's outputs are to the original's.

    Attributes:
        difference: greatest absolute difference of a logit, over all target tokens but padding.
        tokens: number of these tokens.
        differing: how many of them have a logit that differs by more than `TOLERANCE`, times the
            token's greatest finite absolute logit if that is greater than 1.
        alpha_threshold: the threshold of the comparison.
    """

    difference: float
    tokens: int
    differing: int
    alpha_threshold: float


def read_outputs(path: Path) -> Outputs:
    """Read outputs from a `.npz` file of NumPy, or a dictionary of tensors that torch has saved.

    Raises:
        InputError: if the file cannot be read, or holds something else; nothing in it is run.
    """
    if not path.is_file():
        raise InputError(f"There is no file `{path}`; check its path.")
    try:
        if path.suffix == ".npz":
            with numpy.load(path, allow_pickle=False) as archive:
                content: Any = {name: torch.from_numpy(archive[name]) for name in archive.files}
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make either reader fail in many ways
        raise InputError(_unreadable(path, error)) from error
    if not isinstance(content, Mapping):
        raise InputError(_unreadable(path, None))
    return _outputs(path, content)


def _unreadable(path: Path, error: Exception | None) -> str:
    reason = "" if error is None else f" ({str(error).partition(chr(10))[0][:120]})"
    return (
        f"`{path}` is no file of outputs{reason}: give a .npz of NumPy or a dictionary of tensors "
        f"that torch has saved, with {', '.join(f'`{name}`' for name in _TENSORS)}."
    )


def _outputs(path: Path, content: Mapping[str, Any]) -> Outputs:
    found: dict[str, Tensor] = {}
    for name, dimensions in _TENSORS.items():
        value = content.get(name)
        if not torch.is_tensor(value) or value.ndim != dimensions:
            raise InputError(
                f"`{path}` needs `{name}`, a tensor of {dimensions} dimensions; it has "
                f"{_described(value)}."
            )
        if value.is_floating_point() != (name == "logits"):
            kind = "floating-point numbers" if name == "logits" else "whole numbers"
            raise InputError(f"`{path}`: `{name}` must be {kind}, but is {value.dtype}.")
        if not value.numel():
            raise InputError(f"`{path}`: `{name}` is empty.")
        found[name] = value if name == "logits" else value.long()
    shape = found["prev_output_tokens"].shape
    if found["logits"].shape[:2] != shape or len(found["src_tokens"]) != shape[0]:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in found.items())
        raise InputError(f"`{path}`: these sizes are not of one batch: {shapes}.")
    return Outputs(**found, alpha_threshold=_threshold(path, content.get(_THRESHOLD)))


def _threshold(path: Path, value: Any) -> float | None:
    if value is None:
        return None
    if torch.is_tensor(value) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, (int, float)) or not 0 < value <= 1:
        shown = _described(value) if torch.is_tensor(value) else repr(value)
        raise InputError(f"`{path}`: `{_THRESHOLD}` must be a number in (0, 1], but is {shown}.")
    return float(value)


def _described(value: Any) -> str:
    if value is None:
        return "none of that name"
    return f"{tuple(value.shape)}" if torch.is_tensor(value) else f"a {type(value).__name__}"


@torch.no_grad()
def compare(model: Any, outputs: Outputs, alpha_threshold: float, name: str) -> Agreement:
    """Compute the same outputs with a model, and compare.

    Args:
        model: an encoder and decoder in evaluation mode; it keeps the halting threshold of the
            comparison, and its precision: float64 if the outputs are, else float32.
        outputs: the original's.
        alpha_threshold: used if the outputs do not name theirs.
        name: of the outputs, for messages.

    Raises:
        InputError: if the outputs are of a model with other words or lengths, or of no words.
    """
    if outputs.alpha_threshold is not None:
        alpha_threshold = outputs.alpha_threshold
    _check_sizes(model, outputs, name)
    double = outputs.logits.dtype == torch.float64
    model.to(torch.float64 if double else torch.float32)
    set_threshold(model, alpha_threshold)
    pad = model.encoder.dictionary.pad()
    lengths = outputs.src_tokens.ne(pad).sum(dim=1)
    logits, _ = model(outputs.src_tokens, lengths, outputs.prev_output_tokens)
    real = outputs.prev_output_tokens.ne(pad)
    theirs = outputs.logits.to(logits.dtype)[real]
    differences = (logits[real] - theirs).abs()
    # NaN and infinity never agree, so count what is not within a tolerance that is finite.
    greatest = theirs.where(theirs.isfinite(), 0).abs().amax(dim=1, keepdim=True)
    within = differences <= TOLERANCE * greatest.clamp(min=1)
    return Agreement(
        difference=float(differences.max()),
        tokens=int(real.sum()),
        differing=int((~within).any(dim=1).sum()),
        alpha_threshold=alpha_threshold,
    )


def _check_sizes(model: Any, outputs: Outputs, name: str) -> None:
    sides = (
        ("src_tokens", outputs.src_tokens, model.encoder),
        ("prev_output_tokens", outputs.prev_output_tokens, model.decoder),
    )
    for what, tokens, side in sides:
        words, longest = len(side.dictionary), side.max_positions()
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < words:
            raise InputError(f"`{name}`: `{what}` must be numbers of words, from 0 to {words - 1}.")
        if tokens.shape[1] > longest:
            raise InputError(
                f"`{name}`: `{what}` has {tokens.shape[1]} tokens, but the model takes {longest}."
            )
    if outputs.prev_output_tokens.eq(model.decoder.dictionary.pad()).all():
        raise InputError(f"`{name}`: `prev_output_tokens` has only padding: nothing to compare.")
    vocabulary = outputs.logits.shape[2]
    if vocabulary != len(model.decoder.dictionary):
        raise InputError(
            f"`{name}`: `logits` has {vocabulary:,} words, but the model "
            f"{len(model.decoder.dictionary):,}: the outputs are of another model."
        )
