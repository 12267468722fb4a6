"""fairseq-train in several processes on a CPU: real data parallelism, or a sentence."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.commands import TINY, USER_DIR, launch, run, train, train_together, words

# Five batches of 8 make an epoch: the last update of each has one batch for two workers.
PLAIN = [*TINY, "--dropout", "0", "--attention-dropout", "0", "--router-dropout", "0"]
PLAIN += words("--halting-dropout 0 --mutual-information-weight 0.1 --expected-depth-weight 0.01")


def load(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


def assert_same_training(one: Path, other: Path) -> None:
    """Equal parameters and moments, after some updates."""
    first, second = load(one), load(other)
    assert first["optimizer_history"][-1]["num_updates"] == 5
    torch.testing.assert_close(first["model"], second["model"], rtol=0, atol=1e-5)
    states = (part["last_optimizer_state"]["state"] for part in (first, second))
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


def test_two_processes_are_one_with_twice_the_batches(data: Path, tmp_path: Path) -> None:
    """In one go, and resumed in the middle of the first epoch and of the second."""
    alone, pair, resumed = (tmp_path / name for name in ("alone", "pair", "resumed"))
    expected = train(data, alone, *PLAIN, "--update-freq", 2, "--max-update", 5)
    finished = train_together(data, pair, *PLAIN, "--max-update", 5)
    assert_same_training(alone, pair)
    timing = {"wps", "ups", "wall", "train_wall"}
    for name in ("train_inner", "valid"):
        for ours, theirs in zip(finished.logged(name), expected.logged(name), strict=True):
            assert {k: v for k, v in ours.items() if not k.endswith(tuple(timing))} == {
                k: v for k, v in theirs.items() if not k.endswith(tuple(timing))
            }
    for updates in (2, 4, 5):
        train_together(data, resumed, *PLAIN, "--max-update", updates)
    assert_same_training(pair, resumed)


def test_the_sums_of_all_workers(data: Path, tmp_path: Path) -> None:
    """With the flag the objective is another, and still the same in both processes."""
    flag = ("--auxiliary-over-workers", "--mutual-information-weight", 1)
    logged = [
        train_together(data, tmp_path / str(number), *PLAIN, *flag[number:]) for number in range(2)
    ]
    exact, averaged = (
        [float(line["mutual_information_loss"]) for line in finished.logged("train_inner")]
        for finished in logged
    )
    # Minus an entropy is convex: its mean over workers is above that of all their tokens.
    assert exact[0] < averaged[0]


@pytest.mark.slow
def test_the_same_with_torchrun(data: Path, tmp_path: Path) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    flags = words("--cpu --num-workers 0 --batch-size 8 --optimizer adam --lr 0.001 --seed 1")
    flags += words("--max-update 5 --criterion cross_entropy_with_auxiliary")
    flags += words("--required-batch-size-multiple 1")
    command = [scripts / "torchrun", "--standalone", "--nproc-per-node", 2]
    command += [scripts / "fairseq-train", data, "--user-dir", USER_DIR, *PLAIN, *flags]
    finished = subprocess.run(
        [*map(str, command), "--save-dir", str(tmp_path / "pair")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert finished.stdout.count("training on 2 devices") == 1  # rank 1 logs warnings alone
    train(data, tmp_path / "alone", *PLAIN, "--update-freq", 2, "--max-update", 5)
    assert_same_training(tmp_path / "alone", tmp_path / "pair")


@pytest.mark.parametrize(
    ("command", "arguments", "variables", "sentence"),
    [
        (
            "fairseq-train",
            "--arch sut_tiny --criterion cross_entropy_with_auxiliary",
            {"WORLD_SIZE": "2"},
            "WORLD_SIZE is 2, but a launcher would also set RANK, MASTER_ADDR, MASTER_PORT: start "
            "fairseq-train with one (torchrun --nproc-per-node 2 $(which fairseq-train) ... "
            "--cpu), or unset WORLD_SIZE.",
        ),
        (
            "fairseq-train",
            "--arch sut_tiny --criterion cross_entropy_with_auxiliary --ddp-backend fully_sharded",
            {},
            "`ddp_backend` must be pytorch_ddp or legacy_ddp, but is fully_sharded instead.",
        ),
        (
            "fairseq-train",
            "--arch sut_tiny --criterion cross_entropy_with_auxiliary "
            "--write-checkpoints-asynchronously",
            {},
            "--write-checkpoints-asynchronously keeps no checkpoint_last.pt, and a killed training "
            "can leave half a file: leave the option out.",
        ),
        (
            "fairseq-train",
            "--arch transformer --encoder-layers 1 --decoder-layers 1 --criterion "
            "cross_entropy_with_auxiliary",
            {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
            "a launcher started 2 processes, but fairseq would train a copy of the model in each: "
            "take fairseq-train and one of this package's architectures (--arch), or give "
            "fairseq-hydra-train distributed_training.distributed_world_size.",
        ),
    ],
    ids=["no rank", "fully sharded", "asynchronous", "another model"],
)
def test_never_copies(
    command: str,
    arguments: str,
    variables: dict[str, str],
    sentence: str,
    data: Path,
    tmp_path: Path,
) -> None:
    given = (data, "--user-dir", USER_DIR, "--cpu", "--batch-size", 8, "--save-dir", tmp_path)
    finished = run(command, *given, *words(arguments), environment=variables, ok=False)
    assert finished.status != 0
    assert finished.last_line == f"error: {sentence}"
    assert "Traceback" not in finished.stderr


def test_hydra_never_copies(data: Path, repository: Path, tmp_path: Path) -> None:
    launched = launch(*hydra(data, repository, tmp_path), ok=False)
    sentence = "a launcher started 2 processes, but fairseq would train a copy of the model in each"
    assert all(finished.status for finished in launched)
    assert all("Traceback" not in finished.stderr for finished in launched)
    assert any(finished.last_line.startswith(f"error: {sentence}") for finished in launched)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (
            "distributed_training.ddp_backend=slowmo",
            "`ddp_backend` must be pytorch_ddp or legacy_ddp, but is slowmo instead.",
        ),
        (
            "common.fp16=true",
            "--fp16 needs a GPU, but there is none or --cpu is given: drop --fp16.",
        ),
    ],
)
def test_hydra_refuses_what_fairseq_train_refuses(
    option: str, sentence: str, data: Path, repository: Path, tmp_path: Path
) -> None:
    finished = run(*hydra(data, repository, tmp_path), option, ok=False)
    assert finished.status == 1 and "Traceback" not in finished.stderr
    assert finished.last_line == f"error: {sentence}"


def test_hydra_refuses_architectures(data: Path, repository: Path, tmp_path: Path) -> None:
    """All options have values before an architecture could give them others."""
    finished = run(*hydra(data, repository, tmp_path), "model._name=sut_base", ok=False)
    assert finished.status == 1 and "Traceback" not in finished.stderr
    assert finished.last_line == (
        "error: model._name must be the name of a model, here universal_transformer, and is that "
        "of an architecture, sut_base: give the options that `sut-options sut_base` shows instead, "
        "as docs/hydra_example.yaml does."
    )


def hydra(data: Path, repository: Path, out: Path) -> tuple[object, ...]:
    return (
        "fairseq-hydra-train", "--config-dir", repository / "docs",
        "--config-name", "hydra_example", f"task.data={data}",
        f"common.user_dir={repository / 'sut_fairseq'}", f"checkpoint.save_dir={out}",
        f"hydra.run.dir={out / 'outputs'}", "common.cpu=true",
    )  # fmt: skip
