"""Mean of the parameters of checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from sut_fairseq.checkpoints.reading import first_not_finite, load_checkpoint
from sut_fairseq.checkpoints.settings import setting
from sut_fairseq.checkpoints.writing import shared_memory
from sut_fairseq.cli._selection import CheckpointInfo
from sut_fairseq.errors import InputError
from sut_fairseq.modules.precision import exact, exact_dtype
from sut_fairseq.modules.trained_words import split_words

# Settings of models that change what they compute, most of which no tensor's name or shape shows.
# A training may be resumed with others of the rest: dropouts, layouts, longest sentences, ...
_SETTINGS = (
    *("encoder_layers", "decoder_layers", "encoder_block", "decoder_block", "copy_gate_update"),
    *("encoder_normalize_before", "decoder_normalize_before", "no_token_positional_embeddings"),
    *("encoder_attention_heads", "decoder_attention_heads", "attention_head_dim"),
    *("attention_kind", "attention_experts", "attention_top_k", "activation_fn"),
    *("feed_forward_kind", "ffn_experts", "ffn_top_k"),
    *("attention_retrievals", "attention_value_scores", "attention_value_matrices"),
    *("attention_biases", "attention_distribution", "attention_positions", "attention_window"),
    *("attention_buckets", "attention_max_distance", "cross_attention"),
    *("encoder_halting", "decoder_halting", "alpha_threshold", "halting_epsilon", "readout"),
    *("recurrent_kind", "encoder_bidirectional", "boundary_tokens", "attender", "mix_content"),
    *("attend", "stop_gate", "dnc_cells", "no_dnc_masking", "no_dnc_erasure", "no_dnc_sharpening"),
)


class ParameterAverage:
    """Mean of the tensors of several checkpoints, with one checkpoint in memory at a time.

    Floating-point tensors are summed in float32 (float64 in float64) and the mean is cast back to
    their own type. Other tensors, counters for instance, have no meaningful mean: the one added
    last is kept, and `differing` names those that were not equal. Tensors that share memory are
    averaged once and share memory in the result. All checkpoints that store their words must store
    the same ones.
    """

    def __init__(self) -> None:
        self.count = 0
        self.differing: set[str] = set()
        self._first: Path | None = None
        self._ties: dict[str, str] = {}
        self._sums: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        self._kinds: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self._words: dict[str, Tensor] = {}

    def add(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Add one checkpoint's tensors; `path` is for error messages.

        Raises:
            InputError: the tensors differ from the earlier ones in name, shape, type or shared
                memory, one of them is not all finite, or the words differ.
        """
        tensors, words = split_words(tensors)
        for key, ours in words.items():
            if not torch.equal(self._words.setdefault(key, ours.clone()), ours):
                raise InputError(
                    f"`{path}` was trained with other words than the others; average checkpoints "
                    f"of one run."
                )
        kinds = {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in tensors.items()}
        ties = shared_memory(tensors)
        if self._first is None:
            self._first, self._kinds, self._ties = path, kinds, ties
        else:
            _check_same_model(self._first, self._kinds, path, kinds)
            if ties != self._ties:
                raise InputError(
                    f"`{self._first}` and `{path}` do not share memory between the same "
                    f"parameters; average checkpoints of one run, all saved in the same way."
                )
        name = first_not_finite(tensors)
        if name is not None:
            raise InputError(
                f"`{path}` has NaN or infinite numbers in `{name}`, and so would every average "
                f"with it; leave this checkpoint out."
            )
        for key, leader in ties.items():
            if key == leader:
                self._add_tensor(key, tensors[key])
        self.count += 1

    def result(self) -> OrderedDict[str, Tensor]:
        """The mean of everything added, with the keys of the first checkpoint in their order."""
        means = dict(self._kept)
        for key, total in self._sums.items():
            means[key] = (total / self.count).to(self._kinds[key][1])
        averaged = OrderedDict((key, means[leader]) for key, leader in self._ties.items())
        averaged.update(self._words)
        return averaged

    def _add_tensor(self, key: str, tensor: Tensor) -> None:
        if not tensor.is_floating_point():
            if key in self._kept and not torch.equal(self._kept[key], tensor):
                self.differing.add(key)
            self._kept[key] = tensor.clone()
            return
        if key in self._sums:
            self._sums[key] += exact(tensor)
        else:
            self._sums[key] = tensor.to(exact_dtype(tensor.dtype), copy=True)


def average_checkpoints(infos: Sequence[CheckpointInfo]) -> tuple[dict[str, Any], list[str]]:
    """Average checkpoints into one that fairseq loads.

    Settings, number of updates, and the state of criterion and task come from the checkpoint that
    was trained longest. The optimizer state is left out because it does not belong to the new
    parameters, and the validation value because it has not been measured for them.

    Returns:
        the new checkpoint, and the keys of integer tensors that differed.

    Raises:
        InputError: they are not of the same model.
    """
    ordered = sorted(infos, key=lambda info: info.updates)
    _check_same_arch(ordered)
    average = ParameterAverage()
    before: tuple[Path, dict[str, Any]] | None = None  # the first checkpoint and its settings
    for info in tqdm(ordered, desc="averaging", unit="file", disable=None):
        state = load_checkpoint(info.path)
        settings = {name: setting(state, "model", name) for name in _SETTINGS}
        before = before or (info.path, settings)
        _check_same_settings(*before, info.path, settings)
        average.add(info.path, state["model"])
    taken_over = ("args", "cfg", "criterion", "optimizer_history", "task_state")
    new: dict[str, Any] = {key: state[key] for key in taken_over if key in state}
    new["model"] = average.result()
    new["extra_state"] = {
        "val_loss": None,
        "averaged_from": [
            {"file": info.path.name, "epoch": info.epoch, "updates": info.updates}
            for info in ordered
        ],
    }
    iterator = (state.get("extra_state") or {}).get("train_iterator")
    if iterator is not None:
        # fairseq-train needs it to continue from this checkpoint with a fresh optimizer.
        new["extra_state"]["train_iterator"] = iterator
    return new, sorted(average.differing)


def _check_same_arch(infos: Sequence[CheckpointInfo]) -> None:
    first = infos[0]
    for info in infos[1:]:
        if info.arch and first.arch and info.arch != first.arch:
            raise InputError(
                f"`{first.path}` is of the architecture `{first.arch}`, but `{info.path}` is of "
                f"`{info.arch}`; average checkpoints of one architecture."
            )


def _check_same_settings(
    first: Path, expected: Mapping[str, Any], path: Path, given: Mapping[str, Any]
) -> None:
    """Refuse a model that computes another function; a setting that one does not record is equal.

    None stands for a default that depends on other settings.
    """
    for name, ours in expected.items():
        if None not in (ours, given[name]) and ours != given[name]:
            raise InputError(
                f"`{first}` has the setting `{name}` {ours}, but `{path}` has {given[name]}: their "
                f"models compute different functions; average checkpoints of one model."
            )


def _check_same_model(
    first: Path,
    expected: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    path: Path,
    given: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
) -> None:
    for here, there, keys in (
        (first, path, [key for key in expected if key not in given]),
        (path, first, [key for key in given if key not in expected]),
    ):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise InputError(
                f"`{here}` has the parameter `{keys[0]}`{more}, which `{there}` lacks; average "
                f"checkpoints of one model."
            )
    for key, (shape, dtype) in expected.items():
        other_shape, other_dtype = given[key]
        if other_shape != shape or other_dtype != dtype:
            raise InputError(
                f"The parameter `{key}` is {_kind(shape, dtype)} in `{first}`, but "
                f"{_kind(other_shape, other_dtype)} in `{path}`; average checkpoints of one model."
            )


def _kind(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).split('.')[-1]} of shape {shape}"
