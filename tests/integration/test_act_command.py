"""Adaptive computation time from the command line: training, generation, what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.commands import SIZES, SMALL, Finished, generate, run, train, words

ACT = words("--arch ut_tiny --encoder-halting act --decoder-halting act-ut")
STEPS = {"encoder": 2, "decoder": 3}


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """A model that has learnt some of the training pairs, and the run that left it."""
    folder = tmp_path_factory.mktemp("act")
    options = words("--remainder-weight 0.03 --halting-epsilon 0.02 --encoder-ffn-embed-dim 32")
    options += words("--max-update 60 --lr 0.004 --batch-size 20 --no-epoch-checkpoints")
    run_of_it = train(data, folder, *ACT, *SMALL, *options, "--validate-interval", 30)
    return folder / "checkpoint_last.pt", run_of_it


def test_training_logs_what_it_minimises(finished: tuple[Path, Finished]) -> None:
    updates = finished[1].logged("train_inner")
    assert [line["num_updates"] for line in updates] == [str(n) for n in range(1, 61)]
    assert all(0 < float(line["remainder_loss"]) < 2 for line in updates)
    (line,) = finished[1].logged("valid")
    for stack, num_steps in STEPS.items():
        depth = float(line[f"valid_{stack}_depth"])
        assert 1 <= float(line[f"valid_{stack}_expected_depth"]) <= depth <= num_steps
        assert float(line[f"valid_{stack}_skipped"]) == pytest.approx(
            1 - depth / num_steps, abs=1e-2
        )


def test_generates_what_a_full_pass_finds(
    finished: tuple[Path, Finished], data: Path, tmp_path: Path
) -> None:
    """Greedy search, which decodes incrementally, finds what teacher forcing says it finds."""
    path, subset = finished[0], ("--gen-subset", "train")
    output = generate(data, path, *subset, "--beam", 1, "--max-len-b", 20)
    (tmp_path / "generated.txt").write_text(output.stdout)
    scored = run("sut-exact-match", tmp_path / "generated.txt", "--data", data, *subset, "--json")
    right = json.loads(scored.stdout)["correct"]
    assert 0 < right < SIZES["train"]

    common = ("--path", path, "--data", data, *subset, "--json")
    answer = run("sut-evaluate", *common, "--modes", "reference", "search", "--by", "source_length")
    rows = json.loads(answer.stdout)["rows"]
    for mode in ("reference", "search"):
        *groups, total = (row for row in rows if row["mode"] == mode)
        assert sum(row["sentences"] for row in groups) == total["sentences"] == SIZES["train"]
        assert total["right"] == right
        assert all(1 <= row["encoder_depth"] <= 2 for row in groups)
        # A token that is generated runs all steps: those to come may need them.
        assert (total["decoder_depth"] == 3) == (mode == "search")


def test_costs(finished: tuple[Path, Finished], data: Path) -> None:
    """What is computed is counted; of an untrained architecture, all steps."""
    real = json.loads(run("sut-macs", "--path", finished[0], "--data", data, "--json").stdout)
    for stack, num_steps in STEPS.items():
        halting = real["halting"][stack]
        assert 1 <= halting["expected_depth"] <= halting["depth"] <= num_steps
    flags = (*ACT, *SMALL, "--vocab-size", 20)
    untrained = json.loads(run("sut-macs", *flags, "--json").stdout)
    for stack, num_steps in STEPS.items():
        halting = untrained["halting"][stack]
        assert (halting["depth"], halting["expected_depth"]) == (num_steps, num_steps)
    assert untrained["skipped"] == 0


def test_it_has_no_threshold(finished: tuple[Path, Finished], data: Path) -> None:
    common = ("--path", finished[0], "--data", data, "--thresholds", 0.5)
    refused = run("sut-evaluate", *common, ok=False)
    assert refused.last_line.endswith(
        "--thresholds needs a model that halts by a threshold, and this one does not."
    )
    refused = run("sut-benchmark", "halting", *common, ok=False)
    assert "`--path` must be a model that halts by stick-breaking only" in refused.last_line
