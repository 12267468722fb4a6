"""The training command that a preparation prints."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY

from sut_data.folders.training import (
    OURS,
    in_lines,
    plan_for,
    script_command,
    training_words,
)
from sut_data.sets.parallel_text import describe
from sut_data.text.treatment import Counts
from sut_fairseq.experiments import reading


def test_the_task_is_in_the_printed_command() -> None:
    counts = {"train": Counts(1, 5, 4, 0, 0)}
    plan = plan_for(counts, 6, gpus=0)
    printed = in_lines(training_words(Path("a"), counts, plan, joined=False, task="other_task"))
    assert printed.count("--task other_task") == printed.count("--task") == 1
    assert "--task" not in in_lines(training_words(Path("a"), counts, plan, joined=False))


def test_labels_of_whole_sentences_have_their_criterion_and_room() -> None:
    """The task puts a begin symbol before each source."""
    counts = {"train": Counts(1, 1023, 1, 0, 0)}
    task = "sequence_classification"
    plan = plan_for(counts, 6, gpus=0, task=task)
    words = training_words(Path("a"), counts, plan, joined=False, arch="ndr_ctl", task=task)
    printed = in_lines(words)
    assert "--criterion classification " in printed and "cross_entropy" not in printed
    assert "--max-tokens 1025 " in printed and "--max-source-positions 1025" in printed
    assert "--max-source-positions" not in in_lines(
        training_words(Path("a"), counts, plan_for(counts, 6, gpus=0), joined=False)
    )


@pytest.mark.parametrize("pairs", [5_000, 100_000, 1_000_000, 2_000_000])  # each size
def test_classifiers_have_a_model_a_rate_and_a_metric_of_their_own(pairs: int) -> None:
    counts = {"train": Counts(pairs, 5, 1, 0, 0)}
    plan = plan_for(counts, 6 * pairs, gpus=1)

    def options(task: str) -> dict[str, str]:
        (_, *words) = training_words(Path("a"), counts, plan, joined=False, task=task)
        return dict(" ".join([*line, ""]).split(" ", 1) for line in words)

    encoder, both = options("sequence_classification"), options("classification_as_translation")
    assert encoder["--arch"].split()[0] == "sut_classifier_tiny"
    assert "decoder" not in encoder["--arch"]
    assert both["--arch"] == options("translation")["--arch"]
    for chosen in (encoder, both):
        assert float(chosen["--lr"].split()[0]) <= 1e-3
        assert "--best-checkpoint-metric accuracy" in chosen["--keep-interval-updates"]
        assert "--maximize-best-checkpoint-metric" in chosen


def test_options_of_ours_are_printed_for_our_architectures() -> None:
    counts = {"train": Counts(1, 5, 4, 0, 0)}
    plan = plan_for(counts, 6, gpus=0)

    def has_it(arch: str | None) -> bool:
        words = training_words(Path("a"), counts, plan, joined=False, arch=arch)
        return "--separate-embeddings" in in_lines(words)

    assert has_it(None) and has_it("sut_base") and not has_it("lstm")
    for arch, model in ARCH_MODEL_REGISTRY.items():
        assert arch.startswith(OURS) == model.__module__.startswith("sut_fairseq."), arch
        if arch.startswith(OURS):
            parser = argparse.ArgumentParser()
            model.add_args(parser)
            for joined, option in (
                (False, "--separate-embeddings"),
                (True, "--share-all-embeddings"),
            ):
                words = training_words(Path("a"), counts, plan, joined=joined, arch=arch)
                assert (option in in_lines(words)) == (option in parser.format_help()), arch


@pytest.mark.parametrize(
    ("longest", "gpus", "hint"),
    [
        (1022, 0, ""),
        (1024, 0, "1,025 symbols instead of 1,024"),
        (1024, 2, "1,025 symbols instead of 512"),
    ],
)
def test_one_long_sentence_is_said_to_make_batches_large(
    longest: int, gpus: int, hint: str
) -> None:
    counts = {"train": Counts(100, longest, 5, 0, 0)}
    said = describe(plan_for(counts, 1_000, gpus=gpus), 100)
    assert ("--max-length drops longer training pairs" in said) == bool(hint)
    assert hint in said


def test_long_sentences_raise_the_limits() -> None:
    """The printed command must not make fairseq drop what was just prepared."""
    counts = {"train": Counts(1, 5, 1024, 0, 0), "test": Counts(1, 1023, 9, 0, 0)}
    plan = plan_for(counts, 9, gpus=0)
    printed = in_lines(training_words(Path("a b"), counts, plan, joined=False, arch="sut_base"))
    assert "--max-tokens 1025 " in printed  # a batch holds the longest sentence
    assert "--arch sut_base " in printed and "--dropout" not in printed
    assert "--max-target-positions 1025" in printed
    assert "--max-source-positions" not in printed
    assert "'a b'" in printed
    script = "Train on it with:\n  sut-experiment train scan --data 'a b'"
    longer = f"{script} -- --max-target-positions 1025"
    assert script_command("scan", Path("a b"), counts, gpus=1) == longer
    assert script_command("scan", Path("a b"), {"test": counts["test"]}, gpus=1) == script


def test_without_a_gpu_an_experiment_is_small_if_it_can_be() -> None:
    def offered(name: str) -> str:
        return script_command(name, Path("a"), {"train": Counts(1, 5, 4, 0, 0)}, gpus=0)

    hint, command = offered("cfq").splitlines()
    assert hint.startswith("Train on it with (no GPU was found; with one, leave out --size small")
    assert command == "  sut-experiment train cfq --size small --data a"
    # `sut-prepare parallel_text` prints a command that suits the text.
    for name in {*reading.known()} - {"parallel_text"}:
        experiment = reading.read(name)
        if experiment.prepare:
            small = f"train {name} --size small " in offered(name)
            assert small == ("small" in experiment.sizes), name
            assert next(iter(experiment.sizes)) != "small", name
