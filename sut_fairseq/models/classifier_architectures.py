"""Named architectures of classifiers: those of the Neural Data Router's tables (NDR Tables 7-9).

`ndr_<task>` is the data router, `ndr_<task>_<baseline>` a model that it is compared with;
`sut_classifier_tiny` is the encoder of `sut_tiny`. All that are not recurrent can use ACT
(`--encoder-halting act`, or `act-ut` for Dehghani's variant).
"""

from __future__ import annotations

from typing import Any

# Imported so that the models that the architectures belong to are registered first.
from sut_fairseq.models import encoder_classifier, recurrent_classifier  # noqa: F401
from sut_fairseq.models.architectures import ARCHITECTURES, DATA_ROUTER, register_architecture


def _of_encoder(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a translation model that concern its encoder."""
    return {name: value for name, value in options.items() if not name.startswith("decoder_")}


# With relative positions the authors' models read the embedded words unchanged. A copy gate could
# not restore what dropout removes from them before the first step.
_INTACT = dict(no_token_positional_embeddings=True, embedding_dropout=0.0)
_ROUTER = _of_encoder(DATA_ROUTER) | _INTACT

_TRANSFORMER = dict(attention_positions="none", activation_fn="relu")
_RELATIVE = dict(_TRANSFORMER, **_INTACT, attention_positions="transformer-xl")
_GATED = dict(encoder_block="data-router", copy_gate_update="tanh", copy_gate_dropout=0.1)

# Everything but the sizes.
_KINDS: dict[str, dict[str, Any]] = {
    "": _ROUTER,
    "_transformer": _TRANSFORMER,
    "_rel": _RELATIVE,
    "_rel_gate": dict(_RELATIVE, **_GATED, attention_query_dropout=0.1),
    "_abs_rel_gate": dict(
        _RELATIVE, **_GATED, attention_positions="absolute-relative", attention_query_dropout=0.1
    ),
    "_geometric": dict(
        _TRANSFORMER,
        **_INTACT,
        attention_distribution="geometric",
        attention_positions="direction",
    ),
}


def _sizes(
    embed_dim: int, hidden_dim: int, num_heads: int, num_steps: int, dropout: float
) -> dict[str, Any]:
    return dict(
        encoder_embed_dim=embed_dim,
        encoder_ffn_embed_dim=hidden_dim,
        encoder_attention_heads=num_heads,
        encoder_layers=num_steps,
        dropout=dropout,
        activation_dropout=dropout,
    )


_CTL, _CTL_PLAIN = _sizes(256, 512, 1, 14, 0.5), _sizes(128, 256, 4, 11, 0.1)
_ARITHMETIC, _ARITHMETIC_PLAIN = _sizes(256, 1024, 4, 15, 0.5), _sizes(128, 256, 4, 11, 0.5)
# Appendix D.2 reads ListOps from the first column, C.3 says the last for all tasks: the label is
# the value of the outermost operator, which comes first.
_LISTOPS = dict(_sizes(512, 1024, 16, 20, 0.1), readout="first")
_LISTOPS_PLAIN = dict(_sizes(256, 1024, 16, 6, 0.015), readout="first")
_LISTOPS_GATE = dict(copy_gate_dropout=0.05, attention_query_dropout=0.1)

_ENCODERS: dict[str, dict[str, Any]] = {
    "ndr_ctl": _CTL,
    "ndr_ctl_transformer": _CTL_PLAIN,
    "ndr_ctl_rel": _CTL_PLAIN,
    "ndr_ctl_rel_gate": _CTL,
    "ndr_ctl_abs_rel_gate": _CTL,
    "ndr_ctl_geometric": _CTL_PLAIN,
    "ndr_arithmetic": _ARITHMETIC,
    "ndr_arithmetic_transformer": _ARITHMETIC_PLAIN,
    # Appendix C.3 speaks of models with gates only; the authors' runs have it here too.
    "ndr_arithmetic_rel": dict(_ARITHMETIC_PLAIN, attention_query_dropout=0.1),
    "ndr_arithmetic_abs_rel_gate": _ARITHMETIC,
    "ndr_listops": dict(_LISTOPS, **_LISTOPS_GATE),
    "ndr_listops_transformer": _LISTOPS_PLAIN,
    "ndr_listops_rel": dict(_LISTOPS_PLAIN, attention_query_dropout=0.05),
    "ndr_listops_abs_rel_gate": dict(_LISTOPS, **_LISTOPS_GATE),
}


def _recurrent(
    size: int, num_layers: int, dropout: float, *, embed_dim: int | None = None, **others: Any
) -> dict[str, Any]:
    return dict(
        encoder_embed_dim=embed_dim or size,
        encoder_hidden_size=size,
        encoder_layers=num_layers,
        dropout=dropout,
        **others,
    )


# For bidirectional models the tables give the size of both directions together.
_BOTH = dict(encoder_bidirectional=True)
_RECURRENT: dict[str, dict[str, Any]] = {
    "ndr_ctl_lstm": _recurrent(200, 1, 0.5),
    "ndr_ctl_bilstm": _recurrent(200, 1, 0.5, embed_dim=400, **_BOTH),
    "ndr_ctl_dnc": _recurrent(200, 1, 0.5, recurrent_kind="dnc"),
    "ndr_arithmetic_lstm": _recurrent(200, 2, 0.5),
    "ndr_arithmetic_bilstm": _recurrent(200, 2, 0.5, embed_dim=400, **_BOTH),
    "ndr_listops_lstm": _recurrent(512, 4, 0.1),
    "ndr_listops_bilstm": _recurrent(512, 4, 0.1, embed_dim=1024, **_BOTH),
}


def _baseline(name: str) -> str:
    """`_rel_gate` of `ndr_ctl_rel_gate`; nothing of `ndr_ctl`."""
    _, separator, baseline = name.removeprefix("ndr_").partition("_")
    return separator + baseline


CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: ("encoder_classifier", {**_KINDS[_baseline(name)], **sizes})
        for name, sizes in _ENCODERS.items()
    },
    "sut_classifier_tiny": ("encoder_classifier", _of_encoder(ARCHITECTURES["sut_tiny"])),
    **{name: ("recurrent_classifier", options) for name, options in _RECURRENT.items()},
}

for _name, (_model, _options) in CLASSIFIERS.items():
    register_architecture(_model, _name, _options)
