"""The scripts of the experiments: what they ask of fairseq-train, and one from data to table."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fairseq import options

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq.analysis import untrained
from sut_fairseq.analysis.complexity import count
from tests.integration.commands import USER_DIR

_ROUTER = "ndr transformer rel abs_rel_gate lstm bilstm"
MODELS = {
    "arithmetic": _ROUTER,
    "cfq": "ut ut_fixed ut_t5 sut transformer",
    "cogs": "sut ut ndr transformer",
    "ctl": f"{_ROUTER} rel_gate geometric transformer_act rel_act_ut geometric_act dnc",
    "listops": "sut transformer",
    "listops_dependency": _ROUTER,
    "logical_inference": "sut transformer",
    "multi30k": "sut ut transformer",
    "pcfg": "sut ut transformer",
    "scan": "sut ut ndr transformer",
    "wmt14": "sut_base sut_big ut_base ut_big transformer",
}
SCRIPTS = sorted(path.name for path in (USER_DIR.parent / "scripts").glob("*_*.sh"))
COMMANDS = [name for name in SCRIPTS if not name.startswith("_")]


_SIZES = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")


def bash(*words: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
    script, *arguments = map(str, words)
    process = subprocess.run(
        ["bash", str(USER_DIR.parent / "scripts" / script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert not ok or process.returncode == 0, process.stderr[-3000:]
    return process


def settings(experiment: str, data: Path, *arguments: object) -> Namespace:
    """What fairseq makes of the (last) command that a training script would run."""
    words = ("--data", data, "--dry-run", *arguments)
    for line in bash(f"train_{experiment}.sh", *words).stdout.splitlines():
        command = shlex.split(line)
        assert command[0] == "fairseq-train"
        parsed = options.parse_args_and_arch(options.get_training_parser(), command[1:])
    return parsed


@pytest.mark.parametrize("experiment", MODELS)
def test_every_model_and_size(experiment: str, data: Path) -> None:
    """Each is a command that fairseq understands, with a model of the promised kind."""
    for model in MODELS[experiment].split():
        small = () if model.startswith("ut_") else ("--small",)
        for size in {(), small}:
            parsed = settings(experiment, data, "--model", model, *size)
            assert ("transformer" in parsed.arch) == model.startswith("transformer")
            assert parsed.required_batch_size_multiple == 1
            if experiment in ("ctl", "arithmetic", "listops_dependency"):
                assert parsed.task == "sequence_classification"
                assert parsed.valid_subset == "valid_deep,valid"
            elif not size and experiment not in ("wmt14", "multi30k"):
                assert (parsed.lr, parsed.warmup_updates) == ([7e-4], 4000)
                assert (parsed.max_tokens, parsed.update_freq) == (16384, [4])
            if not size and model == "sut":
                steps = {"logical_inference": 12, "listops": 12, "multi30k": 6}.get(experiment, 8)
                assert parsed.encoder_layers == parsed.decoder_layers == steps


@pytest.mark.parametrize(
    ("stamp", "model", "by", "expected"),
    [
        (("scan", "addprim_jump"), "ut", "target_length", "all=0"),
        (("scan", "simple"), "ut", "target_length", ""),
        (("cfq", "mcd1"), "ut_fixed", "query_length", "all=71"),
        (("cfq", "mcd1"), "sut", "query_length", ""),
        (("logical_inference", "full"), "sut", "operators", "7=98 8=97 9=94 10=90 11=88 12=81"),
        (("logical_inference", "full"), "sut", "A", ""),
        (("logical_inference", "A"), "transformer", "A", "yes=53"),
    ],
)
def test_published_numbers(
    stamp: tuple[str, str], model: str, by: str, expected: str, tmp_path: Path
) -> None:
    """Only beside the same data, split and model."""
    about = dict(zip(("dataset", "split"), stamp))
    assert _published(tmp_path, about, model, "test", by) == expected
    assert _published(tmp_path, {**about, "limited": True}, model, "test", by) == ""


def test_published_numbers_like_training(tmp_path: Path) -> None:
    """Some papers have numbers for sequences like those of training, which `valid` holds."""
    about = {"dataset": "ctl", "split": "backward"}
    assert _published(tmp_path, about, "lstm", "valid", "depth") == "all=59"
    assert _published(tmp_path, about, "lstm", "test", "depth") == "all=22"
    assert _published(tmp_path, about, "lstm", "valid_deep", "depth") == ""
    assert _published(tmp_path, {"dataset": "cfq", "split": "mcd1"}, "ut", "valid", "") == ""


def _published(folder: Path, about: dict[str, Any], model: str, subset: str, by: str) -> str:
    (folder / "model").write_text(model)
    (folder / "prepared.json").write_text(json.dumps(about))
    program = USER_DIR.parent / "scripts" / "_published.py"
    command = [sys.executable, program, folder, folder, subset, by]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_compare_runs(tmp_path: Path) -> None:
    """Seeds of the same settings are put together; the paper's number stands beside them."""
    (tmp_path / "prepared.json").write_text('{"dataset": "ctl", "split": "forward"}')
    runs = []
    for model, seed, percent, updates in (
        ("ndr", 2, 98.0, 5),
        ("rel", 1, 20.0, 5),
        ("ndr", 1, 100.0, 5),
        ("ndr", 1, 97.0, 9),
    ):
        run = tmp_path / f"{model}-{seed}-{updates}"
        run.mkdir()
        (run / "model").write_text(f"{model}\n")
        (run / "data").write_text(f"{tmp_path}\n")
        (run / "command").write_text(
            f"fairseq-train {tmp_path} --seed {seed} --save-dir {run} --max-update {updates}"
        )
        (run / "test-by-depth.csv").write_text(f"group,percent\n9,1\nall,{percent}\n")
        # Results of other settings, which are not asked for.
        (run / "test-by-depth-6-steps.csv").write_text("group,percent\nall,7\n")
        runs.append(run)
    table = tmp_path / "table.csv"
    shown = bash("compare_runs.sh", "--csv", table, *runs).stdout.splitlines()
    assert [" ".join(line.split()) for line in shown[1:]] == [
        "ctl forward ndr ndr-2-5 1 2 100.00 98.00 99.00 1.41 100",
        "ctl forward rel rel-1-5 1 20.00 20.00 23",
        "ctl forward ndr ndr-1-9 1 97.00 97.00 100",
    ]
    with open(table, newline="") as file:
        assert [row["mean"] for row in csv.DictReader(file)] == ["99.00", "20.00", "97.00"]

    for arguments, expected in (
        ((), "no run is given: name folders"),
        ((tmp_path,), "is not the folder of a run"),
        (("--subset", "valid", runs[0]), "has no result on `valid`: run its evaluate_*.sh with"),
        (("--all",), "unknown option `--all`"),
        (("--csv", tmp_path / "no" / "table.csv", runs[0]), "there is no such folder"),
    ):
        refused = bash("compare_runs.sh", *arguments, ok=False)
        assert refused.returncode != 0 and expected in refused.stderr
        assert "Traceback" not in refused.stderr


def test_equal_macs(data: Path) -> None:
    """The Transformer that translation is compared with does the same number of multiplications."""
    for size in ((), ("--small",)):
        macs = []
        for model in ("sut", "transformer"):
            parsed = settings("multi30k", data, "--model", model, *size)
            built, task = untrained.build(
                parsed.arch, 8000, _architecture_flags(parsed), alpha_threshold=None
            )
            batch = untrained.random_batch(built, task, src_len=16, tgt_len=16)
            macs.append(count(built, [batch]).macs)
        assert macs[0] / macs[1] == pytest.approx(1, abs=0.05)


def _architecture_flags(parsed: Namespace) -> list[str]:
    names = [f"{side}_{name}" for side in ("encoder", "decoder") for name in _SIZES]
    if parsed.arch.startswith("sut"):
        names += ["attention_head_dim", "attention_experts", "ffn_experts"]
    values = {name: getattr(parsed, name, None) for name in names}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value]
    return [*flags, "--share-all-embeddings"]


def test_ablations(data: Path) -> None:
    """Table 2: one part is left out, and everything else stays."""
    whole = vars(settings("wmt14", data))
    assert whole["max_tokens"] * whole["update_freq"][0] == 8192 * 32
    changed = {}
    for part in ("mim", "momha", "act", "halting"):
        own = vars(settings("wmt14", data, "--without", part))
        changed[part] = {name for name in own if own[name] != whole[name]}
    assert changed == {
        "mim": {"mutual_information_weight", "load_balance_weight"},
        "momha": {"encoder_attention_heads", "attention_experts", "attention_top_k"},
        "act": {"expected_depth_weight"},
        "halting": {"encoder_halting", "decoder_halting"},
    }


def test_a_users_own_options_win(data: Path) -> None:
    parsed = settings("scan", data, "--small", "--seed", 7, "--", "--lr", 0.5, "--max-tokens", 9)
    assert (parsed.lr, parsed.max_tokens, parsed.seed) == ([0.5], 9, 7)


def test_from_data_to_table(text: Path, data: Path, tmp_path: Path) -> None:
    train = ("train_scan.sh", "--data", data, "--small", "--updates", 3, "--out", tmp_path)
    shown = bash(*train).stdout
    assert f"bash scripts/evaluate_scan.sh --run {tmp_path}" in shown
    assert "already trained" in bash(*train).stdout
    refused = bash(*train, "--seed", 2, ok=False)
    assert refused.returncode == 1 and "holds a run of other settings" in refused.stderr

    bash("evaluate_scan.sh", "--run", tmp_path)
    with open(tmp_path / "test-by-target_length.csv", newline="") as file:
        *groups, total = csv.DictReader(file)
    assert total["group"] == "all"
    assert sum(int(row["sentences"]) for row in groups) == int(total["sentences"]) == 11
    assert (tmp_path / "test-by-target_length.png").stat().st_size > 0

    bash("sweep_alpha_threshold.sh", "--run", tmp_path, "--max-sentences", 3)
    with open(tmp_path / "test-thresholds-first-3.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["alpha_threshold"]) for row in rows] == [
        *(tenth / 10 for tenth in range(1, 10)),
        0.999,
    ]
    skipped = [float(row["skipped"]) for row in rows]
    assert skipped == sorted(skipped, reverse=True)


def test_short_sources_first(tmp_path: Path) -> None:
    """Small trainings on expressions start from the parameters of one on short expressions."""
    data, out = tmp_path / "data", tmp_path / "run"
    sizes = ("--sizes", 400, 40, 10, 10)
    bash(USER_DIR.parent / "data-prep" / "arithmetic.sh", "--out", data, *sizes)
    train = ("train_arithmetic.sh", "--data", data, "--small", "--model", "lstm", "--updates", 4)
    assert bash(*train, "--out", out).stdout.count("evaluate it: ") == 1
    first, second = ((folder / "train.log").read_text() for folder in (out / "up-to-13", out))
    for log, updates in ((first, 2), (second, 4)):
        assert f'"train_num_updates": "{updates}"' in log
    lengths = Counter(len(line.split()) for line in (data / "text" / "train.src").open())
    # As many of each length as of the most frequent one.
    left_out = max(lengths.values()) * sum(length > 13 for length in lengths)
    assert left_out and f"{left_out} samples have invalid sizes" in first.replace(",", "")
    assert "invalid sizes" not in second
    assert f"Loaded checkpoint {out / 'up-to-13' / 'checkpoints' / 'checkpoint_last.pt'}" in second
    assert bash(*train, "--out", out).stdout.count("already trained") == 2


@pytest.mark.parametrize("script", COMMANDS)
def test_help(script: str) -> None:
    assert bash(script, "--help").stdout.startswith(f"usage: bash scripts/{script} ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train_scan.sh", "--data is missing: name the folder that data-prep/ made."),
        ("train_scan.sh --data /", "has no dict.src.txt: make the folder with data-prep/ first."),
        ("train_scan.sh --data", "--data needs a value; --help explains every option."),
        (
            "train_scan.sh --model rnn",
            "--model must be one of: sut ut ndr transformer, but is `rnn`",
        ),
        ("train_scan.sh --updates 0", "--seed and --updates take whole numbers from 1, not `0`."),
        ("train_scan.sh --fast", "unknown option `--fast`; --help lists the options there are."),
        ("evaluate_scan.sh", "--run is missing: name the folder that the training script made."),
        ("evaluate_scan.sh --run /", "has no checkpoints/checkpoint_best.pt: train first."),
        ("evaluate_scan.sh --fast", "unknown option `--fast`; --help lists the options there are."),
    ],
)
def test_bad_options(words: str, sentence: str) -> None:
    script, *arguments = words.split()
    process = bash(script, *arguments, ok=False)
    assert process.returncode == 1 and process.stderr.count("\n") == 1
    assert process.stderr.startswith(f"{script}: error: ") and sentence in process.stderr
