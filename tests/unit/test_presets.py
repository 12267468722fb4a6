"""Presets and the numbers of the tables that they come from."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from sut_fairseq.models.architectures import ARCHITECTURES
from sut_fairseq.models.classifier_architectures import CLASSIFIERS

# NDR Tables 7 to 9: size of a state, of the feed-forward layer, heads, steps, dropout.
NDR_TABLES = {
    "ndr_ctl": (256, 512, 1, 14, 0.5),
    "ndr_ctl_transformer": (128, 256, 4, 11, 0.1),
    "ndr_ctl_rel": (128, 256, 4, 11, 0.1),
    "ndr_ctl_rel_gate": (256, 512, 1, 14, 0.5),
    "ndr_ctl_abs_rel_gate": (256, 512, 1, 14, 0.5),
    "ndr_ctl_geometric": (128, 256, 4, 11, 0.1),
    "ndr_arithmetic": (256, 1024, 4, 15, 0.5),
    "ndr_arithmetic_transformer": (128, 256, 4, 11, 0.5),
    "ndr_arithmetic_rel": (128, 256, 4, 11, 0.5),
    "ndr_arithmetic_abs_rel_gate": (256, 1024, 4, 15, 0.5),
    "ndr_listops": (512, 1024, 16, 20, 0.1),
    "ndr_listops_transformer": (256, 1024, 16, 6, 0.015),
    "ndr_listops_rel": (256, 1024, 16, 6, 0.015),
    "ndr_listops_abs_rel_gate": (512, 1024, 16, 20, 0.1),
}
# Dropout of queries, and of gates (NDR C.3; in models without gates that of the authors' runs).
QUERIES_AND_GATES = {
    "ndr_ctl": (0.1, 0.1),
    "ndr_ctl_transformer": (0, 0),
    "ndr_ctl_rel": (0, 0),
    "ndr_ctl_rel_gate": (0.1, 0.1),
    "ndr_ctl_abs_rel_gate": (0.1, 0.1),
    "ndr_ctl_geometric": (0, 0),
    "ndr_arithmetic": (0.1, 0.1),
    "ndr_arithmetic_transformer": (0, 0),
    "ndr_arithmetic_rel": (0.1, 0),
    "ndr_arithmetic_abs_rel_gate": (0.1, 0.1),
    "ndr_listops": (0.1, 0.05),
    "ndr_listops_transformer": (0, 0),
    "ndr_listops_rel": (0.05, 0),
    "ndr_listops_abs_rel_gate": (0.1, 0.05),
}
# Size of a state (of each direction), layers, dropout.
RECURRENT = {
    "ndr_ctl_lstm": (200, 1, 0.5),
    "ndr_ctl_bilstm": (200, 1, 0.5),
    "ndr_ctl_dnc": (200, 1, 0.5),
    "ndr_arithmetic_lstm": (200, 2, 0.5),
    "ndr_arithmetic_bilstm": (200, 2, 0.5),
    "ndr_listops_lstm": (512, 4, 0.1),
    "ndr_listops_bilstm": (512, 4, 0.1),
}
# Dropout of sublayers, of attention weights, after the activation, and in routers.
SUT_DROPOUTS = {
    "sut_base": (0.2, 0.2, 0.1, 0.2),
    "sut_big": (0.2, 0.2, 0.1, 0.2),
    "ut_base": (0.2, 0.2, 0.1, 0),
    "ut_big": (0.2, 0.2, 0.1, 0),
    "sut_logical_inference": (0.5, 0.2, 0.5, 0.1),
    "ut_cfq": (0.5, 0.2, 0.5, 0.1),
    "ut_cfq_t5": (0.5, 0.2, 0.5, 0.1),
}


def test_the_tables_are_of_all_presets() -> None:
    encoders = {name for name, (model, _) in CLASSIFIERS.items() if model == "encoder_classifier"}
    assert encoders - {"sut_classifier_tiny"} == NDR_TABLES.keys() == QUERIES_AND_GATES.keys()
    assert CLASSIFIERS.keys() - encoders == RECURRENT.keys()


@pytest.mark.parametrize("name", NDR_TABLES)
def test_data_routers_and_their_baselines(name: str) -> None:
    options = CLASSIFIERS[name][1]
    embed_dim, hidden_dim, heads, steps, dropout = NDR_TABLES[name]
    assert options["encoder_embed_dim"] == embed_dim
    assert options["encoder_ffn_embed_dim"] == hidden_dim
    assert options["encoder_attention_heads"] == heads
    assert options["encoder_layers"] == steps
    assert options["dropout"] == options["activation_dropout"] == dropout
    given = (options.get(f"{what}_dropout", 0) for what in ("attention_query", "copy_gate"))
    assert tuple(given) == QUERIES_AND_GATES[name]
    # ListOps' label is the value of the outermost operator, which comes first.
    assert options.get("readout", "last") == ("first" if "listops" in name else "last")


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_baselines(name: str) -> None:
    options = CLASSIFIERS[name][1]
    found = (options[key] for key in ("encoder_hidden_size", "encoder_layers", "dropout"))
    assert tuple(found) == RECURRENT[name]
    both = "bilstm" in name
    assert options.get("encoder_bidirectional", False) == both
    assert options["encoder_embed_dim"] == (1 + both) * options["encoder_hidden_size"]


@pytest.mark.parametrize("name", SUT_DROPOUTS)
def test_dropouts_of_the_sparse_universal_transformer(name: str) -> None:
    kinds = ("dropout", "attention_dropout", "activation_dropout", "router_dropout")
    assert tuple(ARCHITECTURES[name][kind] for kind in kinds) == SUT_DROPOUTS[name]


def test_options_that_are_given_stay() -> None:
    arguments = Namespace(encoder_layers=2, dropout=0.0)
    ARCH_CONFIG_REGISTRY["sut_base"](arguments)
    assert (arguments.encoder_layers, arguments.decoder_layers) == (2, 6)
    assert (arguments.dropout, arguments.attention_dropout) == (0.0, 0.2)
