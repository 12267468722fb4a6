"""A training step against those of a dense Universal Transformer and of a Transformer.

The Transformer has the same MACs. A step is without the optimiser's update.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqEncoderDecoderModel
from torch import nn

from sut_fairseq.analysis.benchmark.peers import (
    COMMAND,
    equal_transformer,
    macs_of_pair,
    own_criterion,
    own_model,
    plain_criterion,
)
from sut_fairseq.analysis.benchmark.report import Report, size
from sut_fairseq.analysis.benchmark.steps import Step, sample_of, training_step
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.analysis.depth import stacks
from sut_fairseq.analysis.untrained import build, random_batch
from sut_fairseq.errors import check
from sut_fairseq.models.universal_transformer import UniversalTransformerModel

REPETITIONS = 5

_TIMES = (1, 2, 4)


@dataclass(frozen=True)
class Sizes:
    """Models and batch sizes; a step is forward pass, loss and backward pass, without an update."""

    arch: str = size("sut_base", "architecture")
    flags: str = size("", "options of that architecture in one text, as fairseq-train takes them")
    dense_arch: str = size(
        "ut_base", "dense architecture of as many parameters to compare with; `none`: without one"
    )
    transformer_heads: int | None = size(
        None, "attention heads of the Transformer (default: one for each 64 dimensions)", kind=int
    )
    sentences: int = size(64, "sentence pairs")
    src_len: int = size(32, "tokens of each source sentence")
    tgt_len: int = size(32, "tokens of each target sentence")
    vocab_size: int = size(32768, "size of the one dictionary of all models")
    recorded: bool = size(False, "measure --arch with --cuda-graphs as well (needs a GPU)")
    scaling: bool = size(True, "measure --arch with 2 and 4 times the sentences and steps as well")
    scaling_sentences: int = size(32, "sentence pairs of the smallest of these batches")

    @property
    def lengths(self) -> dict[str, int]:
        """Numbers of tokens of a sentence pair."""
        return dict(src_len=self.src_len, tgt_len=self.tgt_len)


class Preset(NamedTuple):
    """Sizes under one name, and what they are."""

    about: str
    sizes: dict[str, Any]


PRESETS = {
    "small": Preset(
        "the models of the experiment logical_inference in size small, 4,096 tokens",
        dict(
            arch="sut_tiny",
            flags="--encoder-embed-dim 64 --encoder-ffn-embed-dim 64 --encoder-layers 6 "
            "--decoder-layers 1 --attention-window 1 --decoder-halting none "
            "--no-token-positional-embeddings",
            dense_arch="none",
            transformer_heads=8,
            sentences=128,
            tgt_len=2,
            vocab_size=16,
            scaling=False,
        ),
    )
}


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure a training step, in which nothing halts, of each model on the same words.

    Raises:
        InputError: for an unknown architecture, or if a size is not allowed.
    """
    others = (sizes.arch, "transformer")
    requirement = f"other than {' and '.join(others)}"
    check(sizes.dense_arch not in others, "--dense-arch", requirement, sizes.dense_arch)
    on_gpu = conditions.device.type == "cuda"
    check(on_gpu or not sizes.recorded, "--recorded", "left out without --device cuda", True)
    report = Report("train", sizes, conditions)
    if not sizes.scaling:
        report.leave_out("scaling_sentences", reason="--no-scaling measures no such batches")
    torch.manual_seed(conditions.seed)
    model, task = own_model(sizes.arch, sizes.vocab_size, sizes.flags.split())
    batch = random_batch(model, task, **sizes.lengths, sentences=sizes.sentences)
    steps, macs = _models(report, model, task, sizes, sample_of(batch, conditions.device))
    timings = measure(steps, conditions, description="training")
    target_tokens = sizes.sentences * sizes.tgt_len
    # The backward pass has two products for each of the forward pass.
    macs = {name: 3 * sizes.sentences * one for name, one in macs.items()}
    report.add_times(timings, macs=macs, tokens=dict.fromkeys(steps, target_tokens))
    for name, other, meaning in (
        ("to_ut", sizes.dense_arch, f"target tokens per second / those of {sizes.dense_arch}"),
        ("to_transformer", "transformer", "target tokens per second / a Transformer's, equal MACs"),
        ("to_loop", "loop", "target tokens per second / those of the expert backend `loop`"),
        ("to_recorded", "recorded", "target tokens per second / those with --cuda-graphs"),
    ):
        if other in steps:
            report.add_ratio(name, timings.ratio(other, sizes.arch), meaning)
    if sizes.scaling:
        del steps
        _scaling(report, model, task, sizes)
    return report


def _models(
    report: Report,
    model: UniversalTransformerModel,
    task: SimpleNamespace,
    sizes: Sizes,
    sample: dict[str, Any],
) -> tuple[dict[str, Step], dict[str, int]]:
    """A training step of each model, and the MACs of its forward pass for one sentence pair."""
    conditions = report.conditions
    transformer, hidden_dim = equal_transformer(
        model, task, heads=sizes.transformer_heads, **sizes.lengths
    )
    report.settings["transformer_ffn_dim"] = hidden_dim
    models: dict[str, nn.Module] = {sizes.arch: model, "transformer": transformer}
    if sizes.dense_arch != "none":
        dense, _ = build(sizes.dense_arch, sizes.vocab_size, name="--dense-arch", command=COMMAND)
        pairs = isinstance(dense, FairseqEncoderDecoderModel)
        check(pairs, "--dense-arch", "an encoder-decoder (e.g. ut_base, lstm)", sizes.dense_arch)
        models[sizes.dense_arch] = dense
    if conditions.device.type == "cuda":
        flags = (*sizes.flags.split(), "--expert-backend", "loop")
        models["loop"], _ = build(sizes.arch, sizes.vocab_size, flags, command=COMMAND)
    steps, macs = {}, {}
    for name, one in models.items():
        macs[name] = macs_of_pair(one, task, **sizes.lengths)
        criterion = plain_criterion(task) if name == "transformer" else own_criterion(task)
        steps[name] = training_step(one.to(conditions.device), criterion, sample, conditions)
        report.variant(name)["params"] = sum(p.numel() for p in one.parameters())
    if sizes.recorded:
        # The multiple does not matter, because all these sentences have one length.
        steps["recorded"] = training_step(model, own_criterion(task, 1), sample, conditions)
        macs["recorded"] = macs[sizes.arch]
        for _ in range(2):  # the second call records the step
            steps["recorded"]()
    return steps, macs


def _scaling(
    report: Report, model: UniversalTransformerModel, task: SimpleNamespace, sizes: Sizes
) -> None:
    """How the time of one model grows with the number of sentences and with that of steps."""
    conditions = report.conditions
    criterion = own_criterion(task)
    built = {name: stack.num_steps for name, stack in stacks(model).items()}
    variants, tokens = {}, {}
    for kind, more_sentences, more_steps in (
        *(("tokens", times, 1) for times in _TIMES),
        *(("steps", 1, times) for times in _TIMES[1:]),
    ):
        sentences = sizes.scaling_sentences * more_sentences
        batch = random_batch(model, task, **sizes.lengths, sentences=sentences)
        name = f"{kind}_{max(more_sentences, more_steps)}x"
        tokens[name] = sentences * sizes.tgt_len
        variants[name] = training_step(
            model,
            criterion,
            sample_of(batch, conditions.device),
            conditions,
            num_steps={name: steps * more_steps for name, steps in built.items()},
        )
    # Few repetitions suffice for such large differences, and large variants take long.
    few = replace(conditions, repetitions=min(3, conditions.repetitions))
    timings = measure(variants, few, description="scaling")
    report.add_times(timings, tokens=tokens)
    for kind, what in (("tokens", "sentences"), ("steps", "steps of both depth loops")):
        for times in _TIMES[1:]:
            report.add_ratio(
                f"cost_{times}x_{kind}",
                timings.ratio(f"{kind}_{times}x", "tokens_1x"),
                f"time at {times} times as many {what} / time at 1",
            )
