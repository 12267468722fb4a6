"""What a checkpoint says of its training, and which settings fairseq would run as Python."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from sut_fairseq.errors import InputError

# What fairseq passes to `eval` when it builds a task, a model or a criterion from a checkpoint's
# settings; a test searches its source for more.
EVALUATED = frozenset(
    {
        *("adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters", "wer_args"),
        *("encoder_layers", "encoder_attention", "decoder_layers", "decoder_attention"),
        *("self_attention", "project_input", "gated_attention", "downsample", "pretrained"),
        *("conv_feature_layers", "conv_aggregator_layers", "conv_layers", "input_layers"),
        *("left_pad_source", "left_pad_target", "feature_encoder_spec"),
        *("encoder_xformers_att_config", "decoder_xformers_att_config", "xformers_att_config"),
        *("pipeline_balance", "pipeline_encoder_balance", "pipeline_decoder_balance"),
        *("pipeline_devices", "pipeline_encoder_devices", "pipeline_decoder_devices"),
        *("adam_betas", "adamax_betas", "adafactor_eps", "lamb_betas"),
    }
)
# Numbers, texts, lists and dictionaries of them, and `[(512, 3, 2)] * 4 + [...]`.
_PLAIN = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Mult),
)


def settings_of(state: Mapping[str, Any], group: str) -> MutableMapping[str, Any] | None:
    """The settings of a group: `cfg[group]`, or in older checkpoints all in `args`; None: none."""
    found = state.get("args") or (state.get("cfg") or {}).get(group)
    found = vars(found) if isinstance(found, Namespace) else found
    return found if isinstance(found, MutableMapping) else None


def setting(state: Mapping[str, Any], group: str, name: str) -> Any:
    """A training setting, see `settings_of`; None if it is not recorded."""
    return (settings_of(state, group) or {}).get(name)


def name_of(state: Mapping[str, Any], group: str) -> Any:
    """Name of the "model" (its architecture), "task" or "criterion" of a training, or None."""
    option = "arch" if group == "model" else group
    return setting(state, group, option) or setting(state, group, "_name")


def updates_of(state: Mapping[str, Any]) -> int | None:
    """After how many updates a checkpoint was written, if it says so."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates")


def averaged_in(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The checkpoints that a checkpoint is the average of; empty if it is no average."""
    return (state.get("extra_state") or {}).get("averaged_from") or ()


def refuse_code(path: str | Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose settings hold Python code that fairseq would run.

    Args:
        path: of the checkpoint, for the message.
        state: fairseq's dictionary, with the settings under `cfg` or `args`.

    Raises:
        InputError: if one does: fairseq evaluates some settings whatever they contain.
    """
    for name, value in _texts([state.get("cfg"), state.get("args")]):
        if name in EVALUATED and not _is_plain(value):
            raise InputError(
                f"`{path}` is refused because fairseq would run its setting `{name}` as Python "
                f"code: `{value[:60]}`; a setting may be a plain value only."
            )


def _texts(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of all settings that are strings, at any depth."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=False)
    if isinstance(settings, Namespace):
        settings = vars(settings)
    if isinstance(settings, Mapping):
        for key in settings:
            yield from _texts(settings[key], str(key))
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            yield from _texts(value, name)
    elif isinstance(settings, str):
        yield name, settings
    elif isinstance(settings, (bytes, bytearray)):  # `eval` takes them too
        yield name, settings.decode(errors="replace")


def _is_plain(text: str) -> bool:
    """Whether evaluating a text can do nothing but give a value."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _PLAIN) for node in ast.walk(tree))
