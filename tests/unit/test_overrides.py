"""Which keys --model-overrides may have."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import nullcontext
from typing import Any

import pytest

from sut_fairseq.cli._overrides import check_overrides
from sut_fairseq.errors import InputError
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._given import complete

SETTINGS = dict(encoder_layers=3, alpha_threshold=0.9)


@pytest.mark.parametrize(
    "state",
    [
        {"cfg": {"model": SETTINGS}},
        {"cfg": {"model": Namespace(**SETTINGS)}},
        {"args": Namespace(**SETTINGS), "cfg": None},  # as older versions of fairseq wrote it
    ],
    ids=["cfg", "cfg of a command line", "args"],
)
def test_keys(state: dict[str, Any]) -> None:
    check_overrides({"encoder_layers": 5}, state)
    with pytest.raises(InputError, match="no option `encoder_layer`; similar ones are encoder_la"):
        check_overrides({"encoder_layer": 5}, state)


def test_texts_that_fairseq_would_run() -> None:
    """The command line is to blame, not the checkpoint."""
    state = {"args": Namespace(encoder_layers=3, left_pad_source="True", arch="tiny"), "cfg": None}
    for overrides in (
        {"encoder_layers": "x"}, {"encoder_layers": "5"}, {"encoder_layers": ["print(1)"]},
        {"left_pad_source": "print(1)"}, {"left_pad_source": b"print(1)"},
    ):  # fmt: skip
        sentence = f"^--model-overrides: `{next(iter(overrides))}` is .* and cannot be .*: fairseq"
        with pytest.raises(InputError, match=sentence):
            check_overrides(overrides, state)
    check_overrides({"left_pad_source": "False", "arch": "print(1)", "encoder_layers": 5}, state)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("alpha_treshold", "alpha_threshold"),
        ("alpha-threshold", "alpha_threshold"),
        ("encoder_layer", "encoder_layers"),
        ("alpha_threshold", ""),
        ("num_retrievals", ""),  # an option of a task of ours
        ("max_target_durations", ""),  # of a task of fairseq's
        ("beam", ""),
        ("label_smoothing", ""),  # of a criterion
        ("codebook_negatives", ""),  # of other models, in an ensemble
        ("halting", "encoder_halting` or `decoder_halting` or `halting_"),
        ("anything_else", "unknown"),
    ],
)
def test_misspelt_options_in_commands_of_fairseq(
    name: str, near: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Names that are close to an option's are refused; other unknown ones are warned of."""
    line = ["--path", "x", f"--model-overrides={{'{name}': 1}}", "--beam", "3"]
    monkeypatch.setattr(sys, "argv", ["own_program.py", *line])
    complete(UniversalTransformerConfig, Namespace())
    monkeypatch.setattr(sys, "argv", ["/bin/fairseq-generate", *line])
    sentence = f"no option `{name}` .did you mean `{near}"
    refused = near not in ("", "unknown")
    with pytest.raises(InputError, match=sentence) if refused else nullcontext():
        complete(UniversalTransformerConfig, Namespace())
    warned = [f"--model-overrides: no option `{name}` is known; it may have no effect"]
    assert [one.getMessage() for one in caplog.records] == (warned if near == "unknown" else [])


@pytest.mark.parametrize("name", ["encoder_layerdrop", "encoder_layers_to_keep"])
def test_an_option_of_another_model_of_an_ensemble_is_not_misspelt(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However close it is to one of ours; where there is no other model, it would do nothing."""
    for path, refused in (("x", True), ("x:y", False)):
        line = ["--path", path, f"--model-overrides={{'{name}': 1}}"]
        monkeypatch.setattr(sys, "argv", ["/bin/fairseq-generate", *line])
        with pytest.raises(InputError, match=name) if refused else nullcontext():
            complete(UniversalTransformerConfig, Namespace())
    assert not caplog.records
