"""`sut-options` shows what fairseq-train really takes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fairseq import options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY

from sut_fairseq.analysis.options import describe, headings, names
from sut_fairseq.cli.options import main
from sut_fairseq.models.architectures import ARCHITECTURES


def parsed(*arguments: str) -> dict[str, Any]:
    """The model's configuration that fairseq-train makes of a command line."""
    line = ["data", *arguments]
    read = options.parse_args_and_arch(options.get_training_parser(), line)
    return dict(convert_namespace_to_omegaconf(read).model)


@pytest.mark.parametrize("arch", ["sut_base", "ndr_seq2seq", "ndr_listops_rel", "ndr_ctl_dnc"])
def test_defaults_are_those_of_fairseq_train(arch: str) -> None:
    real = parsed("--arch", arch)
    shown = [one for group in describe(arch).groups for one in group.options]
    assert len(shown) > 10
    for option in shown:
        name = option.flag.removeprefix("--").replace("-", "_")
        assert option.default == real[name], option
    presets = ARCHITECTURES.get(arch)
    if presets is not None:
        default = vars(MODEL_DATACLASS_REGISTRY["universal_transformer"]())
        changed = {name for name, value in presets.items() if value != default[name]}
        assert {o.flag for o in shown if o.preset} == {f"--{n.replace('_', '-')}" for n in changed}


def test_every_option_of_a_criterion_is_there_once() -> None:
    groups = describe("cross_entropy_with_auxiliary").groups
    flags = [one.flag for group in groups for one in group.options]
    fields = CRITERION_DATACLASS_REGISTRY["cross_entropy_with_auxiliary"].__dataclass_fields__
    expected = {f"--{name.replace('_', '-')}" for name in fields} - {"---name", "--sentence-avg"}
    assert len(flags) == len(set(flags)) and set(flags) == expected
    assert [group.title for group in groups][-1] == "Weights of the auxiliary losses"


def test_everything_has_a_name_and_a_title() -> None:
    known = names()
    assert {"sut_base", "ndr_ctl_lstm", "classification", "sequence_classification"} < set(known)
    assert "transformer" not in known
    for name in known:
        described = describe(name)
        assert described.about and all(group.title for group in described.groups)
        assert not any("(" in group.title for group in described.groups), "no docstring of its own"
        assert all(one.help for group in described.groups for one in group.options if one.preset)
    assert sum(map(len, headings().values())) == len(known)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["sut_tiny"]) == 0
    shown = capsys.readouterr().out
    assert "* --attention-experts N" in shown and "  --attention-kind VALUE" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert main(["sut_tiny", "--preset-only"]) == 0
    assert "--attention-kind" not in capsys.readouterr().out
    assert main(["sut_tiny", "--preset-only", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups and all(one["preset"] for group in groups for one in group["options"])
    assert main([]) == 0
    assert "architectures of the model universal_transformer\n" in capsys.readouterr().out
    assert main(["ut_tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "universal_transformer"
    assert main(["--preset-only"]) == 2
    assert "--preset-only is for one architecture: name it" in capsys.readouterr().err
    assert main(["classification", "--preset-only"]) == 2
    assert "for architectures, but classification is a criterion" in capsys.readouterr().err
    assert main(["sut_bse"]) == 2
    assert "task `sut_bse` here; the nearest are sut_base" in capsys.readouterr().err
