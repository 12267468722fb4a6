"""Beam search against a Transformer of the same MACs, and at several halting thresholds.

With --path: beam search with a trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.benchmark.peers import equal_transformer, own_model
from sut_fairseq.analysis.benchmark.report import NO_PATH, Report, size
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.analysis.depth import (
    check_thresholds,
    count_depth,
    set_threshold,
    skipped,
    units_with_threshold,
)
from sut_fairseq.analysis.untrained import random_batch
from sut_fairseq.errors import check
from sut_fairseq.tasks.labels import LabelTask

REPETITIONS = 3


@dataclass(frozen=True)
class Sizes:
    """An untrained model and its sizes, or a trained model and its data."""

    arch: str = size("sut_base", "architecture")
    beam: int = size(5, "beam size")
    sentences: int = size(128, "sentences in a batch")
    src_len: int = size(32, "tokens of each source sentence")
    tgt_len: int = size(32, "tokens to generate for each sentence, and the end of the sentence")
    vocab_size: int = size(32768, "size of the one dictionary")
    thresholds: tuple[float, ...] = size(
        (0.999, 0.9, 0.7, 0.5), "halting thresholds; the others are compared with the first"
    )
    path: str | None = size(None, "a trained model: decode real sentences with it instead")
    data: str | None = size(None, "binarised folder with them, for --path")
    gen_subset: str = size("test", "which of them, for --path")
    max_sentences: int | None = size(None, "only the first N, for --path (default: all)", int)


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure beam search; an untrained model generates sentences of one length.

    Raises:
        InputError: for an unknown architecture, a model that does not generate, thresholds outside
            (0, 1] or for a model that does not halt, or sizes that are not allowed.
    """
    check_thresholds("--thresholds", sizes.thresholds)
    report = Report("decode", sizes, conditions)
    torch.manual_seed(conditions.seed)
    if sizes.path is None:
        _untrained(report, sizes)
    else:
        _trained(report, sizes)
    return report


def _untrained(report: Report, sizes: Sizes) -> None:
    conditions = report.conditions
    report.leave_out("path", "data", "gen_subset", "max_sentences", reason=NO_PATH)
    model, task = own_model(sizes.arch, sizes.vocab_size)
    lengths = dict(src_len=sizes.src_len, tgt_len=sizes.tgt_len)
    transformer, hidden_dim = equal_transformer(model, task, **lengths)
    report.settings["transformer_ffn_dim"] = hidden_dim
    # One token more, because the search itself adds the end of the sentence.
    batch = random_batch(
        model,
        task,
        src_len=sizes.src_len,
        tgt_len=sizes.tgt_len + 1,
        sentences=sizes.sentences,
    )
    batches = [_on_device({"net_input": batch}, conditions.device)]
    options = dict(
        beam_size=sizes.beam, max_len_b=sizes.tgt_len, min_len=sizes.tgt_len, max_len_a=0
    )

    def generator(decoded: Any) -> SequenceGenerator:
        decoded = decoded.to(conditions.device)
        return SequenceGenerator([decoded], task.target_dictionary, **options)

    variants = _at_thresholds(report, model, generator(model), batches, sizes)
    variants["transformer"] = _search(generator(transformer), batches, conditions)
    _measure(report, model, variants, sizes)


def _trained(report: Report, sizes: Sizes) -> None:
    device = report.conditions.device
    names = ("arch", "src_len", "tgt_len", "vocab_size")
    report.leave_out(*names, reason="--path and --data have sizes of their own")
    model, task = trained.load(str(sizes.path), {"data": sizes.data})
    generates = hasattr(model, "decoder") and not isinstance(task, LabelTask)
    check(generates, "--path", "a model that generates sentences", f"a {type(model).__name__}")
    numbers = trained.load_split(task, sizes.gen_subset, sizes.max_sentences)
    dataset = task.dataset(sizes.gen_subset)
    ordered = sorted(numbers, key=lambda number: len(dataset[number]["source"]))
    batches = []
    for start in range(0, len(ordered), sizes.sentences):
        items = [dataset[number] for number in ordered[start : start + sizes.sentences]]
        batches.append(_on_device(dataset.collater(items), device))
    search = SequenceGenerator([model.to(device)], task.target_dictionary, beam_size=sizes.beam)
    _measure(report, model, _at_thresholds(report, model, search, batches, sizes), sizes)


def _at_thresholds(
    report: Report,
    model: Any,
    search: SequenceGenerator,
    batches: Sequence[Mapping[str, Any]],
    sizes: Sizes,
) -> dict[str, Callable[[], int]]:
    """Beam search with one model at each threshold; the first variant is named after the model.

    A model that does not halt is measured once.
    """
    conditions = report.conditions
    if not units_with_threshold(model):
        report.leave_out("thresholds", reason="the model does not halt by stick-breaking")
        return {_own_name(sizes): _search(search, batches, conditions)}
    variants: dict[str, Callable[[], int]] = {}
    for number, threshold in enumerate(sizes.thresholds):

        def decode(threshold: float = threshold) -> int:
            set_threshold(model, threshold)
            return _search(search, batches, conditions)()

        variants[_own_name(sizes) if number == 0 else f"threshold_{threshold:g}"] = decode
    return variants


def _own_name(sizes: Sizes) -> str:
    return sizes.arch if sizes.path is None else "model"


def _search(
    search: SequenceGenerator, batches: Sequence[Mapping[str, Any]], conditions: Conditions
) -> Callable[[], int]:
    """A function that decodes all batches and returns the token count of the best hypotheses."""

    def decode() -> int:
        tokens = 0
        with torch.no_grad(), conditions.autocast():
            for batch in batches:
                best = [hypotheses[0] for hypotheses in search.generate([], batch)]
                tokens += sum(len(hypothesis["tokens"]) for hypothesis in best)
        return tokens

    return decode


def _measure(
    report: Report, model: Any, variants: Mapping[str, Callable[[], int]], sizes: Sizes
) -> None:
    tokens = {}
    for name, decode in variants.items():
        with count_depth(model) as statistics:
            tokens[name] = decode()
        entry = report.variant(name)
        for side, sums in statistics.items():
            entry[f"{side}_skipped"] = skipped([sums])
    timings = measure(variants, report.conditions, description="decoding")
    report.add_times(timings, tokens=tokens)
    own = _own_name(sizes)
    if "transformer" in variants:
        ratio = timings.ratio("transformer", own)
        report.add_ratio(
            "to_transformer", ratio, "target tokens per second / a Transformer's, equal MACs"
        )
    for threshold in sizes.thresholds[1:]:
        name = f"threshold_{threshold:g}"
        if name in variants:
            meaning = f"time at threshold {threshold:g} / at {sizes.thresholds[0]:g}"
            report.add_ratio(f"time_at_{threshold:g}", timings.ratio(name, own), meaning)


def _on_device(sample: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A fairseq batch without the decoder's input, on the device."""
    inputs = {
        name: tensor.to(device)
        for name, tensor in sample["net_input"].items()
        if name != "prev_output_tokens"
    }
    return {"net_input": inputs}
