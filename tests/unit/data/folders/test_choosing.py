"""The training that suits a folder: the rule, and the commands that follow from it."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sut_data.folders import training
from sut_data.folders.choosing import KEPT, SIZES, choose, rounded_up
from sut_data.folders.training import (
    experiment_command,
    gpus_here,
    in_lines,
    training_words,
    user_dir,
)
from sut_data.text.treatment import Counts

MULTI30K = 455_190  # symbols of its German side after 8,000 merges, with an end for each sentence


def command(pairs: int, symbols: int, gpus: int) -> str:
    """What is printed, from --arch on and without the lines that are the same for all."""
    counts = {"train": Counts(pairs, 60, 60, 0, 0)}
    plan = choose(pairs, symbols, 61, gpus)
    printed = in_lines(training_words(Path("/data/mine"), counts, plan, joined=True))
    lines = printed.split(" \\\n    ")
    assert lines.pop(0).endswith("fairseq-train /data/mine")
    assert lines.pop(0) == shlex.join(["--user-dir", user_dir(), "--share-all-embeddings"])
    assert lines.pop() == "--save-dir checkpoints/mine"
    assert " ".join(lines[1:4]) == (
        "--criterion cross_entropy_with_auxiliary --label-smoothing 0.1 "
        "--mutual-information-weight 0.001 --expected-depth-weight 0.0001 --optimizer adam "
        "--adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 1.0"
    )
    return "\n".join([lines[0], *lines[4:]])


def kept(interval: int, gpus: int) -> str:
    """The lines on validation and checkpoints."""
    return (
        f"--validate-interval 100000 --validate-interval-updates {interval}\n"
        f"--save-interval 100000 --save-interval-updates {interval} --no-epoch-checkpoints\n"
        "--keep-interval-updates 1 --keep-best-checkpoints 5 --best-checkpoint-metric nll_loss"
        + ("" if gpus else " --cpu")
    )


SMALL = "--arch sut_tiny --attention-experts 8 --ffn-experts 8 --dropout 0.1\n"
MEDIUM = (
    "--arch sut_tiny --encoder-embed-dim 256 --encoder-ffn-embed-dim 256 --attention-head-dim 32 "
    "--encoder-layers 6 --decoder-layers 6 --dropout 0.3 --attention-dropout 0.1\n"
)
DECAYING = "--lr 5e-3 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update"


@pytest.mark.parametrize("gpus", [0, 1])
def test_379_pairs(gpus: int) -> None:
    assert command(379, 11_000, gpus) == (
        "--arch sut_tiny --dropout 0.3\n"
        f"{DECAYING} 650\n"
        "--max-update 650 --max-tokens 1024 --required-batch-size-multiple 1\n" + kept(65, gpus)
    )


@pytest.mark.parametrize("gpus", [0, 1])
def test_multi30k(gpus: int) -> None:
    assert command(29_000, MULTI30K, gpus) == (
        f"{SMALL}{DECAYING} 2500\n"
        "--max-update 2500 --max-tokens 2048 --required-batch-size-multiple 1\n" + kept(250, gpus)
    )


def test_iwslt() -> None:
    """160,000 pairs of 25 symbols."""
    assert command(160_000, 4_000_000, 1) == (
        f"{MEDIUM}--lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 2000\n"
        "--max-update 20000 --max-tokens 8192 --required-batch-size-multiple 1\n" + kept(1000, 1)
    )
    assert command(160_000, 4_000_000, 0) == (
        f"{SMALL}{DECAYING} 22000\n"
        "--max-update 22000 --max-tokens 2048 --required-batch-size-multiple 1\n" + kept(2200, 0)
    )


def test_wmt14() -> None:
    """4,500,000 pairs of 30 symbols."""
    for gpus, together, tokens in ((1, 32, 8_192), (8, 4, 8_192), (5, 7, 7_490)):
        assert command(4_500_000, 135_000_000, gpus) == (
            "--arch sut_base\n--lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000\n"
            f"--max-update 52000 --max-tokens {tokens} --update-freq {together} "
            "--required-batch-size-multiple 1\n" + kept(52_000 // 50, gpus)
        )
    assert "--max-update 30000 --max-tokens 2048 " in command(4_500_000, 135_000_000, 0)


def test_the_borders_of_the_rule() -> None:
    assert [choose(pairs, 1, 1, 1).size.name for pairs in (5_000, 5_001, 10**5, 10**6, 10**7)] == [
        "tiny", "small", "small", "medium", "large"
    ]  # fmt: skip
    for size in SIZES:
        fewest, most = size.updates
        assert choose(size.pairs or 10**7, 1, 1, 1).updates == fewest
        assert choose(size.pairs or 10**7, 10**12, 1, 1).updates == most
        # All of the schedule is gone through, and enough checkpoints are made for their mean.
        assert int(str(size.schedule["warmup-updates"])) < fewest and size.validations >= KEPT
    longest = choose(100, 10_000, 3_000, 0)
    assert longest.tokens == 3_000  # fairseq refuses a sentence that no batch can hold
    assert longest.passes == pytest.approx(600 * 3_000 / 10_000)


def test_several_gpus_share_a_batch() -> None:
    """An update is the same on any number of them, and so is the number of updates."""
    for gpus, tokens in ((1, 2_048), (2, 1_024), (3, 683)):
        plan = choose(29_000, MULTI30K, 61, gpus)
        assert (plan.tokens, plan.updates) == (tokens, 2_500)
        assert plan.symbols in (2_048, 2_049)
        assert plan.passes == pytest.approx(2_500 * 2_048 / MULTI30K, rel=1e-3)


def test_rounding() -> None:
    numbers = (0.1, 99, 99.1, 100, 2_445, 2_500, 51_498)
    assert [*map(rounded_up, numbers)] == [1, 99, 100, 100, 2_500, 2_500, 52_000]


def test_the_experiment() -> None:
    counts = {"train": Counts(1, 60, 60, 0, 0), "test": Counts(1, 9, 2_000, 0, 0)}
    plan = choose(29_000, MULTI30K, 61, 0)
    line = "sut-experiment train parallel_text --size small --updates 2500 --data a/b --out runs/b"
    short = {"train": counts["train"]}
    assert experiment_command(Path("a/b"), short, plan, joined=True) == line
    assert experiment_command(Path("a/b"), short, plan, joined=False) == (
        f"{line} -- --separate-embeddings"
    )
    longer = replace(plan, tokens=2_100)
    assert experiment_command(Path("a/b"), counts, longer, joined=True) == (
        f"{line} -- --max-tokens 2100 --max-target-positions 2001"
    )


@pytest.mark.parametrize(
    ("visible", "number"), [(None, 2), ("", 0), ("1", 1), ("0,1,2", 2), ("-1", 0), ("1,-1,0", 1)]
)
def test_gpus(visible: str | None, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "GPU 0: A (UUID: GPU-1)\n  MIG 1g: (UUID: MIG-1)\nGPU 1: A (UUID: GPU-2)\n"
    done = subprocess.CompletedProcess([], 0, told)
    monkeypatch.setattr(training.subprocess, "run", lambda *_, **__: done)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_here() == number


def test_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus_here() == 0
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert gpus_here() == 0
