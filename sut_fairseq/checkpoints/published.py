"""Checkpoints of the SUT code that its authors published: the same model under other names.

That code (https://github.com/shawntan/SUT, 2023) has a counterpart of every tensor of this
package's model, and differs in five ways:

- A block that halts is registered twice, so that its tensors have two names each.
- The halting unit predicts (continue, halt), ours (halt, continue).
- Relative embeddings are `(heads, size, offsets)`, ours `(heads, offsets, size)`. Offsets are
  clipped one short of the window, so that the outermost embeddings are never read.
- A single expert has a router, whose weight for it is 1.
- The halting threshold is read from the environment, and is in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sut_fairseq.checkpoints.settings import setting, settings_of
from sut_fairseq.errors import InputError

SIDES = ("encoder", "decoder")

_BLOCK, _TWICE = "universal_layer", "halting_universal_layer.mod"
_ROUTER = {"0.weight": "input.weight", "0.bias": "input.bias", "3.weight": "output.weight"}
_ATTENTION = {
    "k_proj.weight": "key.weight",
    "v_proj.weight": "value.weight",
    "q_proj.experts.w": "query.weight",
    "q_proj.output_experts.w": "output.weight",
    **{f"q_proj.w_gate.{theirs}": f"router.{ours}" for theirs, ours in _ROUTER.items()},
}
_WINDOW = {"rel_pos_emb": "core.positions.embedding"}
_FEED_FORWARD = {
    "experts.w": "input.weight",
    "experts.b": "input.bias",
    "output_experts.w": "output.weight",
    "output_experts.b": "output.bias",
    **{f"w_gate.{theirs}": f"router.{ours}" for theirs, ours in _ROUTER.items()},
}
_NORM = {"weight": "weight", "bias": "bias"}
_SELF = {
    "self_attn": ("self_attention", {**_ATTENTION, **_WINDOW}),
    "self_attn_layer_norm": ("self_attention_norm", _NORM),
    "moe": ("feed_forward", _FEED_FORWARD),
    "final_layer_norm": ("feed_forward_norm", _NORM),
}
_CROSS = {
    "encoder_attn": ("cross_attention", _ATTENTION),
    "encoder_attn_layer_norm": ("cross_attention_norm", _NORM),
}
# Entries that say nothing about the model.
_UNREAD = ("version", "embed_positions._float_tensor")
# Options of that code that make a model that this package does not have.
_REFUSED = (
    *("no_scale_embedding", "layernorm_embedding", "encoder_learned_pos", "decoder_learned_pos"),
    *("no_cross_attention", "cross_self_attention", "no_decoder_final_norm"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "adaptive_softmax_cutoff"),
    *("scale_attn", "scale_heads", "scale_fc", "scale_resids"),
)
# That code's own defaults: a checkpoint is sure to hold only options that differ from them.
_DEFAULTS: dict[str, Any] = {
    **{f"{side}_layers": 6 for side in SIDES},
    **{f"{side}_{kind}_k": 8 for side in SIDES for kind in ("attn", "ff")},
    **{f"{side}_{name}": False for side in SIDES for name in ("normalize_before", "halting")},
    **{f"max_{name}_positions": 1024 for name in ("source", "target")},
    **dict.fromkeys(("share_all_embeddings", "share_decoder_input_output_embed"), False),
    **dict(no_token_positional_embeddings=False, activation_fn="gelu"),
    **dict(dropout=0.1, attention_dropout=0.0, activation_dropout=0.0),
    **dict(gating_dropout=0.0, halting_dropout=0.0),
}
# Options that have another name here, and those that have the same.
_RENAMED = {"router_dropout": "gating_dropout"}
_SAME = (
    *("encoder_layers", "decoder_layers", "encoder_normalize_before", "decoder_normalize_before"),
    *("max_source_positions", "max_target_positions", "no_token_positional_embeddings"),
    *("share_all_embeddings", "share_decoder_input_output_embed"),
    *("activation_fn", "dropout", "attention_dropout", "activation_dropout", "halting_dropout"),
)


@dataclass(frozen=True)
class Translation:
    """A model of the published code in this package's terms.

    Attributes:
        options: of the model `universal_transformer`, without `alpha_threshold`.
        tensors: its parameters by name; those that are tied are one object.
    """

    options: dict[str, Any]
    tensors: dict[str, Tensor]


def names(side: str, *, halts: bool, pre_norm: bool) -> dict[str, str]:
    """Names of the tensors of one side, there -> here.

    Args:
        side: "encoder" or "decoder".
        halts: whether it has a halting unit.
        pre_norm: whether it has a layer norm after the last step.
    """
    found = {"embed_tokens.weight": "embedding.tokens.weight"}
    for part, (ours, tensors) in {**_SELF, **(_CROSS if side == "decoder" else {})}.items():
        for theirs, name in tensors.items():
            found[f"{_BLOCK}.{part}.{theirs}"] = f"stack.block.{ours}.{name}"
    if halts:
        for theirs, name in _ROUTER.items():  # its unit has the form of a router
            found[f"halting_universal_layer._gate.{theirs}"] = f"stack.halting.{name}"
    if pre_norm:
        found |= {f"layer_norm.{name}": f"stack.final_norm.{name}" for name in _NORM}
    if side == "decoder":
        found["output_projection.weight"] = "output_projection.weight"
    return {f"{side}.{theirs}": f"{side}.{name}" for theirs, name in found.items()}


def translate(state: Mapping[str, Any]) -> Translation:
    """Turn a checkpoint of the published code into a model of this package.

    The outputs are equal except for the gates of experts, which that code divides by their sum
    plus 1e-6.

    Args:
        state: fairseq's dictionary, with the tensors under `model` and the settings under `args`
            or `cfg`.

    Raises:
        InputError: if it is from another program, has unknown tensors, lacks some, or has an
            option that this package does not have.
    """

    def given(name: str) -> Any:
        value, default = setting(state, "model", name), _DEFAULTS.get(name)
        if value is None:
            return default
        if type(default) in (int, float) and not isinstance(value, (int, type(default))):
            kind = "a whole number" if isinstance(default, int) else "a number"
            raise InputError(f"its setting `{name}` must be {kind}, but is {value!r} instead.")
        return value

    if not settings_of(state, "model"):
        raise InputError(
            "it has no settings (`args` or `cfg`) that say how the model was built: give one that "
            "fairseq-train wrote, or fairseq's average_checkpoints.py."
        )
    refused = [name for name in _REFUSED if given(name)]
    if refused:
        raise InputError(
            f"it was trained with --{refused[0].replace('_', '-')}, which this package's model "
            "does not have."
        )
    table: dict[str, str] = {}
    for side in SIDES:
        halts, pre_norm = bool(given(f"{side}_halting")), bool(given(f"{side}_normalize_before"))
        table |= names(side, halts=halts, pre_norm=pre_norm)
    theirs = _once(state["model"])
    _check_names(theirs, table)
    options = _options(theirs, given)
    tensors = {ours: _convert(key, theirs[key], ours) for key, ours in table.items()}
    for experts, modules in (
        ("attention_experts", ("self_attention", "cross_attention")),
        ("ffn_experts", ("feed_forward",)),
    ):
        if options[experts] == 1:
            _without_router(tensors, modules)
    _tie(tensors, options)
    return Translation(options, tensors)


def _once(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the second names of blocks, and without entries that say nothing."""
    kept = dict(tensors)
    for side in SIDES:
        for name in _UNREAD:
            kept.pop(f"{side}.{name}", None)
        for key in [key for key in kept if key.startswith(f"{side}.{_TWICE}.")]:
            again = kept.pop(key)
            name = key.replace(_TWICE, _BLOCK)
            if name in kept and not torch.equal(kept[name], again):
                raise InputError(
                    f"it has `{name}` and `{key}`, which are one tensor in the published code, "
                    "with different values."
                )
            kept.setdefault(name, again)
    return kept


def _check_names(tensors: Iterable[str], expected: Iterable[str]) -> None:
    """Refuse a checkpoint whose tensors are not those of the published code with its settings."""
    given, known = dict.fromkeys(tensors), dict.fromkeys(expected)
    missing = [key for key in known if key not in given]
    unknown = [key for key in given if key not in known]
    said = [
        f"{verb} {_listed(keys)}"
        for verb, keys in (("lacks", missing), ("has the unknown", unknown))
        if keys
    ]
    if said:
        raise InputError(
            f"its parameters are not those of the published SUT code with its settings: it "
            f"{' and '.join(said)}."
        )


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"`{keys[0]}`{more}"


def _convert(key: str, tensor: Tensor, ours: str) -> Tensor:
    """A tensor in the layout of this package."""
    if ours.endswith("stack.halting.output.weight"):
        _check_shape(key, tensor, "(2, size)", tensor.ndim == 2 and len(tensor) == 2)
        return tensor.flip(0)
    if ours.endswith("positions.embedding"):
        embedding = tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        # Never read there: farther offsets use the nearest embedding that is read.
        embedding[:, 0], embedding[:, -1] = embedding[:, 1], embedding[:, -2]
        return embedding
    return tensor


def _check_shape(key: str, tensor: Tensor, expected: str, holds: bool) -> None:
    if not holds:
        raise InputError(f"its `{key}` should be {expected}, but is {tuple(tensor.shape)}.")


def _options(tensors: Mapping[str, Tensor], given: Callable[[str], Any]) -> dict[str, Any]:
    """The options of our model: sizes from the tensors, the rest from the settings."""
    options: dict[str, Any] = {name: given(name) for name in _SAME}
    options |= {ours: given(theirs) for ours, theirs in _RENAMED.items()}
    both: dict[str, list[Any]] = {}
    for side in SIDES:
        block = f"{side}.{_BLOCK}"

        def shape(name: str, expected: str) -> tuple[int, ...]:
            tensor = tensors[name]
            _check_shape(name, tensor, expected, tensor.ndim == expected.count(",") + 1)
            return tuple(tensor.shape)

        _, embed_dim = shape(f"{side}.embed_tokens.weight", "(words, size)")
        window = f"{block}.self_attn.rel_pos_emb"
        heads, head_dim, offsets = shape(window, "(heads, size, offsets)")
        _check_shape(
            window, tensors[window], "(heads, size, an odd number)", offsets > 2 and offsets % 2 > 0
        )
        experts, _, hidden_dim = shape(f"{block}.moe.experts.w", "(experts, size, hidden size)")
        options[f"{side}_embed_dim"] = embed_dim
        options[f"{side}_attention_heads"] = heads
        options[f"{side}_ffn_embed_dim"] = hidden_dim
        options[f"{side}_halting"] = "stick-breaking" if given(f"{side}_halting") else "none"
        for part in ("self_attn", *(["encoder_attn"] if side == "decoder" else [])):
            key = f"{block}.{part}.q_proj.experts.w"
            both.setdefault("attention_experts", []).append(shape(key, "(experts, size, size)")[0])
        both.setdefault("attention_top_k", []).append(given(f"{side}_attn_k"))
        both.setdefault("attention_head_dim", []).append(head_dim)
        both.setdefault("attention_window", []).append(offsets // 2)
        both.setdefault("ffn_experts", []).append(experts)
        both.setdefault("ffn_top_k", []).append(min(given(f"{side}_ff_k"), experts))
    for name, values in both.items():
        if len(set(values)) > 1:
            raise InputError(
                f"its encoder and decoder differ in `{name}` ({values[0]} and {values[-1]}), which "
                "both sides of this package's model share."
            )
        options[name] = values[0]
    return options


def _without_router(tensors: dict[str, Tensor], modules: tuple[str, ...]) -> None:
    """Turn single experts into dense layers: a router without a choice gives the weight 1."""
    for key in list(tensors):
        parts = key.split(".")
        if not {*parts} & {*modules}:
            continue
        if "router" in parts:
            del tensors[key]
        elif parts[-2] in ("query", "input", "output"):
            weight = tensors[key][0]
            tensors[key] = weight.t().contiguous() if weight.ndim == 2 else weight.clone()


def _tie(tensors: dict[str, Tensor], options: Mapping[str, Any]) -> None:
    """Make shared embeddings one object again: tools that average checkpoints copy them."""
    tied = ["decoder.output_projection.weight", "decoder.embedding.tokens.weight"]
    if options["share_all_embeddings"]:
        tied.append("encoder.embedding.tokens.weight")
    elif not options["share_decoder_input_output_embed"]:
        return
    for key in tied[1:]:
        if not torch.equal(tensors[tied[0]], tensors[key]):
            raise InputError(
                "its settings say that embeddings are shared, but the tensors have different "
                "values: it is damaged, or was put together from several."
            )
        tensors[key] = tensors[tied[0]]
