"""Which times and peaks the ratios of `sut-benchmark` compare, with made-up measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import Any

import pytest
import torch

from sut_fairseq.analysis.benchmark.halting import _saved
from sut_fairseq.analysis.benchmark.report import Report
from sut_fairseq.analysis.benchmark.timing import Conditions, Ratio, Timings

SUBJECTS = "sut_fairseq.analysis.benchmark"
CONDITIONS = Conditions(torch.device("cpu"), torch.float32, repetitions=5, seed=1)
PAIRS: dict[str, Any] = dict(arch="sut_tiny", sentences=2, src_len=4, tgt_len=5, vocab_size=40)
LAYERS: dict[str, Any] = dict(embed_dim=16, num_experts=4, top_k=2)
SIZES: dict[str, dict[str, Any]] = {
    "experts": dict(**LAYERS, hidden_dim=8, tokens=32),
    "attention": dict(
        **LAYERS, num_heads=2, head_dim=4, lengths=(8,), tokens=16, searches=2, retrievals=(3,)
    ),
    "train": dict(**PAIRS, dense_arch="ut_cfq", scaling_sentences=3),
    "decode": dict(**PAIRS, beam=2, thresholds=(0.999, 0.6)),
    "memory": dict(**PAIRS, steps=(2, 4), attention_length=4, attention_tokens=8),
    "functions": dict(functions=("combine",), settings=("tiny",)),
}
# What is divided by what; memory is that of peaks.
RATIOS = {
    "experts": "to_dense dense/experts, to_dense_without_router dense_without_router/experts, "
    "to_gemm gemm/experts, to_loop loop/experts",
    "attention": "mixture_to_dense_8 dense_8/mixture_8, mixture_to_torch_8 "
    "torch_8/mixture_no_window_8, dense_to_torch_8 torch_8/dense_no_window_8, "
    "window_cost_8 mixture_8/mixture_no_window_8, dense_window_cost_8 dense_8/dense_no_window_8, "
    "memory_mixture_to_dense_8 mixture_8/dense_8, geometric_to_softmax_8 geometric_8/softmax_8, "
    "geometric_causal_to_softmax_8 geometric_causal_8/softmax_causal_8, "
    "memory_geometric_to_softmax_8 geometric_8/softmax_8, "
    "time_3_8 compositional_3_8/multihead_8, memory_3_8 compositional_3_8/multihead_weights_8",
    "train": "to_ut ut_cfq/sut_tiny, to_transformer transformer/sut_tiny, "
    "cost_2x_tokens tokens_2x/tokens_1x, cost_4x_tokens tokens_4x/tokens_1x, "
    "cost_2x_steps steps_2x/tokens_1x, cost_4x_steps steps_4x/tokens_1x",
    "decode": "to_transformer transformer/sut_tiny, time_at_0.6 threshold_0.6/sut_tiny",
    "memory": "memory_4_to_2_steps steps_4/steps_2, "
    "memory_4_to_2_steps_checkpointed steps_4_checkpointed/steps_2_checkpointed, "
    "memory_checkpointed_2 steps_2_checkpointed/steps_2, "
    "memory_checkpointed_4 steps_4_checkpointed/steps_4, memory_mixture_to_dense mixture/dense",
    "functions": "combine_tiny combine_tiny_plain/combine_tiny, "
    "memory_combine_tiny combine_tiny_plain/combine_tiny",
}


def made_up(subject: str, monkeypatch: pytest.MonkeyPatch) -> Report:
    """A report in which each variant takes another time and as many bytes as another one has."""
    seconds, peaks = count(1), count(1000, 7)

    def measure(variants: Iterable[str], conditions: Conditions, **_: object) -> Timings:
        return Timings({name: [float(next(seconds))] * conditions.repetitions for name in variants})

    names = {"train": "training", "decode": "decoding"}
    modules = {subject: import_module(f"{SUBJECTS}.{names.get(subject, subject)}")}
    if subject == "attention":
        modules["compositional"] = import_module(f"{SUBJECTS}.compositional")
    for module in modules.values():
        monkeypatch.setattr(module, "measure", measure)
        for peak in ("peak_bytes", "added_bytes"):
            if hasattr(module, peak):
                monkeypatch.setattr(module, peak, lambda *_: next(peaks))
    report: Report = modules[subject].run(modules[subject].Sizes(**SIZES[subject]), CONDITIONS)
    return report


@pytest.mark.parametrize("subject", SIZES)
def test_ratios_are_those_of_the_variants_that_they_name(
    subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = made_up(subject, monkeypatch)
    for line in RATIOS[subject].split(", "):
        name, quotient = line.split()
        above, below = (report.variant(one) for one in quotient.split("/"))
        measured = "peak_bytes" if name.startswith("memory") else "median"
        expected = above[measured] / below[measured]
        assert report.ratios[name].median == pytest.approx(expected), name


def test_the_bound_of_compositional_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multi-head attention that forms its weights, and three times its values."""
    report = made_up("attention", monkeypatch)
    parts = ("compositional_3_8", "multihead_weights_8", "multihead_values_8")
    for measured, name in (("median", "time_to_bound_3_8"), ("peak_bytes", "memory_to_bound_3_8")):
        own, weighed, values = (report.variant(part)[measured] for part in parts)
        assert report.ratios[name].median == pytest.approx(own / (weighed + 3 * values))


def test_macs_and_tokens_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forward and backward pass: of experts without router, of attention as its products."""
    found = made_up("experts", monkeypatch).variants["dense_without_router"]
    assert found["macs"] == 3 * 32 * 2 * (2 * 16 * 8)
    assert found["gmacs_per_second"] == pytest.approx(found["macs"] / found["median"] / 1e9)
    found = made_up("attention", monkeypatch).variants
    inner, shared, offsets = 2 * 2 * 4, 2 * 4, 2 * 7 + 1  # a sentence of 8 has no larger offsets
    products = inner * 2 * 8
    for name, projections, positions in (
        ("torch_8", 4 * 16 * inner, 0),
        ("dense_8", 4 * 16 * inner, inner * offsets),
        ("mixture_8", 2 * 16 * inner + 2 * 16 * shared + 16 * (16 + 4), inner * offsets),
    ):
        assert found[name]["macs"] == 3 * 16 * (projections + products + positions), name


def test_tokens_of_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Target tokens, of as many sentences as a variant has."""
    variants = made_up("train", monkeypatch).variants
    for name, sentences in (("sut_tiny", 2), ("tokens_1x", 3), ("tokens_4x", 12), ("steps_4x", 3)):
        found = variants[name]
        assert found["tokens_per_second"] * found["median"] == pytest.approx(sentences * 5), name


def test_large_batches_are_measured_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    training = import_module(f"{SUBJECTS}.training")

    def measure(variants: Any, conditions: Conditions, *, description: str) -> Timings:
        asked.append((description, conditions.repetitions))
        return Timings({name: [1.0] for name in variants})

    monkeypatch.setattr(training, "measure", measure)
    for repetitions, few in ((5, 3), (2, 2)):
        asked.clear()
        training.run(training.Sizes(**SIZES["train"]), replace(CONDITIONS, repetitions=repetitions))
        assert asked == [("training", repetitions), ("scaling", few)]


def test_what_halting_saves_in_the_slowest_repetition_is_the_least() -> None:
    assert _saved(Ratio(0.75, 0.5, 1.25), 0.5) == (0.5, -0.5, 1.0)
