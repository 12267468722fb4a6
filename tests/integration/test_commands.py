"""Train, resume, validate and generate through fairseq's commands, for every architecture."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sysconfig
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.cli import average, exact_match
from sut_fairseq.models.architectures import ARCHITECTURES
from sut_fairseq.models.recurrent_architectures import RECURRENT
from tests.integration.commands import (
    SIZES,
    SMALL,
    TINY,
    Finished,
    generate,
    on_cpu,
    run,
    train,
    words,
)

TERMS = ("mutual_information_loss", "load_balance_loss", "load_variation_loss", "router_z_loss")
ROUTING_METRICS = {*TERMS, "load_cv", "load_entropy", "dead_experts"}
STACK_METRICS = ("expected_depth", "depth", "skipped")


def in_effect(finished: Finished) -> str:
    """What the one model that was built logged about itself."""
    lines = (finished.stdout + finished.stderr).splitlines()
    (line,) = (line for line in lines if "sut_fairseq.models" in line and "steps: " in line)
    return "steps: " + line.partition("steps: ")[2]


def logged_about_model(finished: Finished) -> set[str]:
    """The validation metrics that routing and halting account for."""
    line = finished.logged("valid")[-1]
    words = ("load_", "experts", "mutual", "router", "depth", "skipped")
    names = {name.replace("valid_", "", 1) for name in line}
    return {name for name in names if any(word in name for word in words)}


def halting_metrics(*stacks: str) -> set[str]:
    """The metrics to expect if these stacks halt."""
    own = {f"{stack}_{metric}" for stack in stacks for metric in STACK_METRICS}
    return own | {"expected_depth_loss"} if stacks else set()


def check_all_scored(finished: Finished, data: Path, folder: Path) -> None:
    """`sut-exact-match` accepts the output, and it has every sentence."""
    (folder / "generated.txt").write_text(finished.stdout)
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert exact_match.main([str(folder / "generated.txt"), "--data", str(data), "--json"]) == 0
    assert json.loads(printed.getvalue())["scored"] == SIZES["test"]


def assert_same(first: Any, second: Any) -> None:
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def load(checkpoint: Path) -> dict[str, Any]:
    return torch.load(checkpoint, weights_only=True)


# Those are built on the meta device for every test run, and their kinds train in other sizes here;
# sut_tiny is what the other tests train, and ut_tiny those of ACT.
OTHER_SIZES = ("sut_big", "ut_big", "sut_tiny", "sut_logical_inference", "ut_tiny", "ndr_seq2seq")


@pytest.mark.parametrize(
    "arch",
    [
        pytest.param(arch, marks=[pytest.mark.slow] if arch in OTHER_SIZES else [])
        for arch in ARCHITECTURES
    ],
)
def test_every_architecture_trains_and_generates(
    arch: str, data: Path, joined_data: Path, tmp_path: Path
) -> None:
    options = ARCHITECTURES[arch]
    used = joined_data if options.get("share_all_embeddings") else data
    finished = train(used, tmp_path, "--arch", arch, *SMALL)
    assert [line["num_updates"] for line in finished.logged("train_inner")] == ["1", "2"]
    expected = set(ROUTING_METRICS) if options.get("ffn_experts", 1) > 1 else set()
    if "encoder_halting" in options:
        expected |= halting_metrics("encoder", "decoder")
    assert logged_about_model(finished) == expected

    overrides = "{'alpha_threshold': 0.8, 'decoder_layers': 5}"  # and more steps than in training
    finished = generate(
        used, tmp_path / "checkpoint_last.pt", "--model-overrides", overrides, cwd=tmp_path
    )
    assert in_effect(finished).startswith("steps: encoder 2, decoder 5; halting: ")
    assert in_effect(finished).endswith("; alpha_threshold: 0.8")
    unused = "--alpha-threshold has no effect on this model" in finished.stdout + finished.stderr
    assert unused == ("encoder_halting" not in options)
    check_all_scored(finished, used, tmp_path)


def check_alignments(finished: Finished) -> None:
    """That of each word is a distribution over the words of its source."""
    rows = [line for line in finished.stdout.splitlines() if line.startswith("A-")]
    assert rows
    for line in rows:
        weights = [[*map(float, row.split(","))] for row in line.split("\t")[1].split()]
        assert all(sum(row) == pytest.approx(1, abs=0.01) for row in weights)


@pytest.mark.parametrize("arch", RECURRENT)
def test_every_recurrent_architecture_trains_and_generates(
    arch: str, data: Path, tmp_path: Path
) -> None:
    """Two updates, their mean, and beam search with what it looked at."""
    sizes = words("--encoder-embed-dim 8 --encoder-hidden-size 12 --location-hidden-size 6")
    each_update = words("--save-interval-updates 1")
    finished = train(data, tmp_path, "--arch", arch, *sizes, *each_update)
    assert [line["num_updates"] for line in finished.logged("train_inner")] == ["1", "2"]
    assert logged_about_model(finished) == set()
    both, mean = (tmp_path / f"checkpoint_1_{n}.pt" for n in (1, 2)), tmp_path / "mean.pt"
    assert average.main([*map(str, both), "--output", str(mean)]) == 0
    finished = generate(data, mean, "--print-alignment", "soft")
    check_alignments(finished)
    check_all_scored(finished, data, tmp_path)


def test_alignment(data: Path, trained: Path, tmp_path: Path) -> None:
    """Where the model looked, a distribution over the words of the source."""
    finished = generate(data, trained, "--print-alignment", "soft")
    check_alignments(finished)
    check_all_scored(finished, data, tmp_path)


@pytest.mark.parametrize("halting", ["encoder", "decoder"])
def test_halting_on_one_side(halting: str, data: Path, tmp_path: Path) -> None:
    other = {"encoder": "decoder", "decoder": "encoder"}[halting]
    sizes = ("--decoder-embed-dim", 24, "--decoder-ffn-embed-dim", 8)
    finished = train(data, tmp_path, *TINY, f"--{other}-halting", "none", *sizes)
    assert logged_about_model(finished) == {*ROUTING_METRICS, *halting_metrics(halting)}
    low = "{'alpha_threshold': 0.1}"
    finished = generate(data, tmp_path / "checkpoint_last.pt", "--model-overrides", low)
    assert f"{halting} stick-breaking" in in_effect(finished)
    assert f"{other} none" in in_effect(finished)
    check_all_scored(finished, data, tmp_path)


def test_activation_checkpointing_changes_nothing(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    train(data, tmp_path, *TINY, "--checkpoint-activations")
    assert_same(load(tmp_path / "checkpoint_last.pt")["model"], load(trained)["model"])


@pytest.fixture(scope="module")
def start(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The parameters that `trained` began with."""
    folder = tmp_path_factory.mktemp("start")
    train(data, folder, *TINY, "--lr", 0)
    found: dict[str, torch.Tensor] = load(folder / "checkpoint_last.pt")["model"]
    return found


@pytest.mark.parametrize(
    ("flags", "optimizer"),
    [
        ("--amp", "AMPOptimizer"),  # float16 on a GPU, and nothing on a CPU
        ("--autocast bfloat16", "FairseqAdam"),
        ("--bf16", "FP16Optimizer"),
    ],
)
def test_mixed_precision_on_the_cpu(
    flags: str,
    optimizer: str,
    data: Path,
    trained: Path,
    start: dict[str, torch.Tensor],
    tmp_path: Path,
) -> None:
    """The same as on a GPU, but for --amp; resumed, since not all of it is in a checkpoint."""
    train(data, tmp_path, *TINY, *words(flags))
    state, single = load(tmp_path / "checkpoint_last.pt"), load(trained)
    assert state["optimizer_history"][-1]["optimizer_name"] == optimizer
    changes = [
        torch.cat([(ended[n] - start[n]).float().flatten() for n in start if "_extra" not in n])
        for ended in (state["model"], single["model"])
    ]
    # Adam makes much of the sign of small gradients, which rounding changes.
    assert torch.cosine_similarity(*changes, dim=0) > 0.3, "two steps in the same direction"
    same = all(torch.equal(own, single["model"][n]) for n, own in state["model"].items())
    assert same == (flags == "--amp")
    finished = train(data, tmp_path, *TINY, *words(flags), "--max-update", 4)
    losses = [float(line["loss"]) for line in finished.logged("train_inner")]
    assert len(losses) == 2 and max(losses) < 10
    check_all_scored(generate(data, tmp_path / "checkpoint_last.pt"), data, tmp_path)


def test_a_moving_average_of_the_parameters(data: Path, tmp_path: Path) -> None:
    """Of fairseq: kept beside the parameters, and gone on with."""
    flags = words("--store-ema --ema-decay 0.5")
    train(data, tmp_path, *TINY, *flags)
    state = load(tmp_path / "checkpoint_last.pt")
    ema, model = state["extra_state"]["ema"], state["model"]
    assert ema.keys() == model.keys()
    names = [name for name in model if "words." in name]
    assert len(names) == 2 and all(torch.equal(ema[name], model[name]) for name in names)
    own = "encoder.embedding.tokens.weight"
    assert not torch.equal(ema[own], model[own])
    train(data, tmp_path, *TINY, *flags, "--max-update", 3)


def test_the_name_of_the_model_is_an_architecture(data: Path, tmp_path: Path) -> None:
    arch = ("--arch", "universal_transformer", *SMALL)
    train(data, tmp_path, *arch, "--bf16")
    refused = train(data, tmp_path, *arch, "--fp16", ok=False)
    assert refused.last_line.startswith("error: --fp16 needs a GPU")


def test_validate_with_overrides(data: Path, trained: Path, tmp_path: Path) -> None:
    """Also where the checkpoint was trained with --fp16, on a GPU of course."""
    state = load(trained)
    state["cfg"]["common"].update(fp16=True, cpu=False)
    torch.save(state, tmp_path / "half.pt")
    skipped = {}
    for threshold in (0.999, 0.3):
        finished = on_cpu(
            "fairseq-validate", data, "--task", "translation", "--path", tmp_path / "half.pt",
            *words("--batch-size 8 --log-format json"),
            "--model-overrides", f"{{'alpha_threshold': {threshold}}}",
        )  # fmt: skip
        assert in_effect(finished).endswith(f"; alpha_threshold: {threshold}")
        line = finished.logged("valid")[-1]
        skipped[threshold] = float(line["valid_decoder_skipped"])
    assert skipped == {0.999: 0, 0.3: 0.667}  # untrained, half of the probability at each step


def test_interactive_reads_standard_input(data: Path, trained: Path) -> None:
    finished = on_cpu(
        "fairseq-interactive", data, "--path", trained, "--max-len-b", 8, "--beam", 2,
        "--model-overrides", "{'alpha_threshold': 0.5}", stdin="run and jump\nlook twice\n",
    )  # fmt: skip
    assert in_effect(finished).endswith("; alpha_threshold: 0.5")
    starts = [line.split("\t")[0] for line in finished.stdout.splitlines()]
    assert [start for start in starts if start.startswith("H-")] == ["H-0", "H-1"]


def test_from_pretrained(data: Path, trained: Path) -> None:
    program = (
        "from sut_fairseq.models.universal_transformer import UniversalTransformerModel\n"
        f"hub = UniversalTransformerModel.from_pretrained({str(trained.parent)!r}, {trained.name!r}"
        f", {str(data)!r}, model_overrides={{'alpha_threshold': 0.5}}, max_len_b=8)\n"
        "print('answer:', hub.translate('run and jump'))\n"
    )
    finished = run("python", "-c", program)
    assert "answer: " in finished.stdout


def test_selecting_by_bleu_resumes_and_generates(data: Path, tmp_path: Path) -> None:
    options = words(
        "--eval-bleu --eval-bleu-detok space --best-checkpoint-metric bleu "
        "--maximize-best-checkpoint-metric"
    )
    options += ["--eval-bleu-args", '{"beam": 1, "max_len_a": 0, "max_len_b": 8}']
    for updates in (2, 4):
        finished = train(data, tmp_path, *TINY, *options, "--max-update", updates)
        line = finished.logged("valid")[-1]
        assert line["valid_num_updates"] == str(updates)
    assert float(line["valid_best_bleu"]) >= float(line["valid_bleu"])
    check_all_scored(generate(data, tmp_path / "checkpoint_best.pt"), data, tmp_path)


@pytest.mark.slow
def test_user_dir_of_the_checkout_and_of_the_installation(
    data: Path, trained: Path, repository: Path, tmp_path: Path
) -> None:
    """A relative path, and what the README's shell line makes of the installed package."""
    options = f"--cpu --batch-size 8 --beam 1 --max-len-b 8 --path {trained}"
    relative = ("--user-dir", "sut_fairseq", *words(options))
    assert in_effect(run("fairseq-generate", data, *relative, cwd=repository))

    scripts = sysconfig.get_path("scripts")
    line = f'fairseq-generate {data} --user-dir "$(sut-user-dir)" {options}'
    finished = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert "alpha_threshold: 0.999" in finished.stderr  # fairseq-generate's log is there


def test_hydra_example(data: Path, repository: Path, tmp_path: Path) -> None:
    finished = run(
        "fairseq-hydra-train", "--config-dir", repository / "docs",
        "--config-name", "hydra_example",
        f"task.data={data}", f"common.user_dir={repository / 'sut_fairseq'}",
        f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path / 'outputs'}",
        "common.cpu=true", "common.log_format=json", "dataset.num_workers=0",
        "dataset.max_tokens=80", "optimization.max_update=2", "model.encoder_layers=2",
    )  # fmt: skip
    assert "num_updates: 2 >= max_update: 2" in finished.stdout
    assert '"valid_encoder_skipped"' in finished.stdout
    finished = generate(
        data, tmp_path / "checkpoint_last.pt", "--model-overrides", "{'alpha_threshold': 0.8}"
    )
    assert in_effect(finished).startswith("steps: encoder 2, decoder 3; ")
    assert in_effect(finished).endswith("; alpha_threshold: 0.8")
    check_all_scored(finished, data, tmp_path)
