"""Architectures that another plugin registers: every command that builds a model finds them."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.integration.commands import TINY, run, training, words

PLUGIN = """
from sut_fairseq.models.architectures import ARCHITECTURES, register_architecture
from sut_fairseq.models.kinds import register_kind
from sut_fairseq.modules.attention.distributions.softmax import Softmax

class Halved(Softmax):
    '''Weights that sum up to a half.'''
    fuses = False
    def forward(self, *arguments, **more):
        return super().forward(*arguments, **more) / 2

register_kind("attention-distribution", "halved", "half of softmax", lambda config, side: Halved())
options = {**ARCHITECTURES["sut_tiny"], "decoder_layers": 2, "attention_distribution": "halved"}
register_architecture("universal_transformer", "own_sut", options)
"""

OWN_MODELS = """
from dataclasses import dataclass, field
from fairseq.dataclass import FairseqDataclass
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture

@dataclass
class Config(FairseqDataclass):
    '''Of mine.'''
    width: int = field(default=3, metadata={"help": "how wide"})

@register_criterion("own_criterion", dataclass=Config)
class Criterion(FairseqCriterion):
    '''Counts.'''

@register_model("own_model")
class Model(BaseFairseqModel):
    '''Declares its flags itself.'''
    @staticmethod
    def add_args(parser):
        parser.add_argument("--height", type=int, metavar="N", help="how high")

@register_model_architecture("own_model", "own_model_tall")
def tall(args):
    args.height = getattr(args, "height", 9)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "own_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    return folder


@pytest.fixture(scope="module")
def checkpoint(plugin: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After two updates in bfloat16, which fairseq alone refuses without torch_xla."""
    save_dir = tmp_path_factory.mktemp("own")
    options = [*training(data, save_dir, *TINY), "--arch", "own_sut", "--bf16"]
    run("fairseq-train", *options, "--user-dir", plugin)
    return save_dir / "checkpoint_last.pt"


def test_commands_with_the_user_dir(plugin: Path, checkpoint: Path, data: Path) -> None:
    own = ("--user-dir", plugin)
    counted = run("sut-macs", *own, "--path", checkpoint, "--json").stdout
    assert json.loads(counted)["halting"]["decoder"]["depth"] > 0
    evaluated = run("sut-evaluate", *own, "--path", checkpoint, "--data", data, "--json").stdout
    assert json.loads(evaluated)
    short = words("--max-len-a 0 --max-len-b 8")
    assert run("sut-translate", checkpoint, *own, *short, stdin="jump\n").stdout.count("\n") == 1
    drawn = run(
        "sut-report", "--path", checkpoint, *own, "--sentence", "jump", "--out", "pictures",
        *words("--max-len 8 --format svg"), cwd=checkpoint.parent,
    )  # fmt: skip
    assert "pictures" in drawn.stdout
    run("sut-macs", "--arch", "own_sut", "--encoder-layers", 1, *own)
    listed = json.loads(run("sut-options", *own, "own_sut", "--json").stdout)["groups"]
    options = {one["flag"]: one["default"] for group in listed for one in group["options"]}
    assert options["--decoder-layers"] == 2 and options["--attention-distribution"] == "halved"
    tiny = words("--tokens 1e6 --gpus 2 --vocab-size 40 --max-tokens 10 --src-len 4 --tgt-len 5")
    assert "2 GPUs" in run("sut-benchmark", "plan", "--arch", "own_sut", *own, *tiny).stdout


def test_options_of_models_of_the_plugin(tmp_path: Path) -> None:
    """Its own classes, with fairseq's configurations or in the older way, beside ours."""
    folder = tmp_path / "own_models"
    folder.mkdir()
    (folder / "__init__.py").write_text(OWN_MODELS)
    own = ("--user-dir", folder)
    listed = json.loads(run("sut-options", *own, "--json").stdout)
    assert listed["architectures of the model own_model"] == ["own_model_tall"]
    assert {"own_criterion", "classification"} < set(listed["criterions"])
    assert "sut_base" in listed["architectures of the model universal_transformer"]
    shown = run("sut-options", "own_model_tall", *own).stdout
    assert "--arch own_model_tall\nDeclares its flags itself." in shown
    assert "Options of Model\n* --height N  9  how high" in shown
    assert "  --width N  3  how wide" in run("sut-options", "own_criterion", *own).stdout


def test_an_evaluation_averages_translates_and_counts(
    plugin: Path, checkpoint: Path, data: Path, text: Path, tmp_path: Path
) -> None:
    prepared = tmp_path / "prepared"
    shutil.copytree(data, prepared)
    (prepared / "text").mkdir()
    for side in ("src", "tgt"):
        shutil.copy(text / f"test.{side}", prepared / "text")
    line = ("evaluate", "--data", prepared, "--checkpoints", checkpoint.parent, "--cpu")
    line = (*line, *words("--beam 1 --out out --user-dir"), plugin)
    shown = run("sut-experiment", *line, cwd=tmp_path)
    assert "encoder steps per token" in shown.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["scores"]["sentences"] == results["cost"]["sentences"] > 0


def test_an_export_names_the_plugin_that_it_needs(
    plugin: Path, checkpoint: Path, tmp_path: Path
) -> None:
    exported = run("sut-export", checkpoint, "--out", tmp_path / "own").stdout
    card = (tmp_path / "own" / "README.md").read_text()
    assert "\n- Needs the plugin: `own_plugin` (`--user-dir`" in card
    line = ("sut-translate", tmp_path / "own", "--user-dir", plugin)
    assert f"`{shlex.join(map(str, line))}`" in exported
    short = words("--beam 1 --max-len-a 0 --max-len-b 8")
    assert run(*line, *short, stdin="jump\n").stdout.count("\n") == 1


def test_without_it_a_sentence_says_what_is_missing(checkpoint: Path, tmp_path: Path) -> None:
    refused = run("sut-macs", "--path", checkpoint, ok=False)
    assert refused.last_line == (
        f"sut-macs: error: the architecture `own_sut` of `{checkpoint}` is not registered: give "
        "the plugin's folder with --user-dir, or in Python import its module before."
    )
    refused = run("sut-macs", "--path", checkpoint, "--user-dir", "gone", ok=False)
    assert refused.last_line.endswith("--user-dir gone: there is no such folder; check its path.")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("import nothing_of_that_name\n")
    refused = run("sut-macs", "--path", checkpoint, "--user-dir", tmp_path / "broken", ok=False)
    assert "broken cannot be imported (ModuleNotFoundError: No module" in refused.last_line
