"""A plugin's kind with options, sums and a loss of its own, in commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.commands import TINY, run, training, words

PLUGIN = '''
from dataclasses import dataclass, field

import torch
from fairseq.dataclass import FairseqDataclass
from sut_fairseq.losses import auxiliary
from sut_fairseq.models.kinds import register_kind
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from sut_fairseq.modules.halting.sums import HaltingSums
from sut_fairseq.statistics import HaltingStatistics


@dataclass
class Options(FairseqDataclass):
    """Mine."""

    halting_prior: float = field(default=0.25, metadata={"help": "probability expected"})


@dataclass
class Sums(HaltingStatistics):
    from_prior: torch.Tensor


class Adding(HaltingSums):
    def __init__(self, prior, *arguments):
        super().__init__(*arguments)
        self.prior = prior

    def finish(self, tokens, state):
        sums = super().finish(tokens, state)
        distance = (sums.expected_depth - sums.tokens / self.prior).abs()
        return Sums(**vars(sums), from_prior=distance)


class WithPrior(StickBreakingHalting):
    def __init__(self, embed_dim, prior, **options):
        super().__init__(embed_dim, **options)
        self.prior = prior

    def sums(self, tokens, num_steps):
        return Adding(self.prior, tokens.count(), num_steps)


def build(config, side):
    threshold = config.alpha_threshold
    return WithPrior(side.embed_dim, config.halting_prior, alpha_threshold=threshold)


register_kind("halting", "prior", "near a prior", build, options=Options)


@auxiliary("from_prior", "halting", "distance of depths from the prior")
def from_prior(statistics):
    if not isinstance(statistics, Sums):
        return None
    return statistics.from_prior / statistics.tokens.clamp(min=1)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "own_prior"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    return folder


def test_options_and_loss_of_a_kind(plugin: Path, data: Path, tmp_path: Path) -> None:
    """One stack has the kind and the other one not, whose statistics lack the loss's sum."""
    own = ("--user-dir", plugin)
    kinds = words("--encoder-halting prior --halting-prior 0.5 --from-prior-weight 2")
    options = [*training(data, tmp_path, *TINY, *kinds), *own]
    first = run("fairseq-train", *options).logged("train_inner")
    assert "has no effect" not in str(first)
    terms = [float(log["from_prior_loss"]) for log in first]
    depths = [float(log["encoder_expected_depth"]) for log in first]
    assert terms == [pytest.approx(abs(depth - 2), abs=2e-3) for depth in depths]
    resumed = run("fairseq-train", *options, "--max-update", 3).logged("train_inner")
    assert [log["num_updates"] for log in resumed] == ["3"]
    # A command that changes the option, as any other of the model.
    line = ("--path", tmp_path / "checkpoint_last.pt", "--data", data)
    overrides = ("--model-overrides", "{'halting_prior': 0.1}")
    assert "encoder depth" in run("sut-evaluate", *own, *line, *overrides).stdout


def test_options_of_a_kind_have_a_help(plugin: Path) -> None:
    own = ("--user-dir", plugin)
    shown = run("sut-options", "sut_classifier_tiny", *own).stdout
    assert "--halting-prior X" in shown.partition("\nDynamic halting\n")[2].partition("\n\n")[0]
    assert shown.count("prior, near a prior") == 1
    assert "--from-prior-weight X" in run("sut-options", "classification", *own).stdout


def test_a_loss_without_the_kind_that_it_reads(plugin: Path, data: Path, tmp_path: Path) -> None:
    own = ("--from-prior-weight", 2, "--halting-prior", 0.5, "--user-dir", plugin)
    run_of = run("fairseq-train", *training(data, tmp_path, *TINY, *own))
    for lost in (
        "--from-prior-weight 2.0 has no effect: this model has no halting that it reads",
        "--halting-prior has no effect on this model with its other options",
    ):
        assert lost in run_of.stdout + run_of.stderr
    assert "from_prior_loss" not in run_of.stdout


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            'auxiliary("from_prior"',
            'auxiliary("remainder"',
            "there is an auxiliary loss `remainder` already: choose another name.",
        ),
        (
            "    halting_prior:",
            "    dropout:",
            "there is an option `dropout` already: choose another name.",
        ),
        (
            "    halting_prior:",
            "    lr:",
            "there is an option `lr` already: choose another name.",
        ),
        (
            "= field(default=0.25, metadata=",
            "= field(default_factory=float, metadata=",
            "the option `halting_prior` needs a default, not a factory.",
        ),
        (
            "from dataclasses",
            "from __future__ import annotations\nfrom dataclasses",
            "the type of the option `halting_prior` is a text, which fairseq cannot read: leave "
            "out `from __future__ import annotations` where it is defined.",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    old: str, new: str, sentence: str, plugin: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(plugin, tmp_path / "changed")
    text = (folder / "__init__.py").read_text()
    (folder / "__init__.py").write_text(text.replace(old, new).lstrip())
    refused = run("sut-macs", "--user-dir", folder, "--arch", "sut_tiny", ok=False)
    assert sentence in refused.last_line
