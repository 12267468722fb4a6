"""`sut-macs` on checkpoints, on binarised data, and on wrong input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.analysis.trained import load as load_model
from tests.integration.commands import SIZES, TINY, Finished, run, run_installed, words

# MACs of each test pair counted alone, at the threshold 0.6.
ONE_BY_ONE = """
import json, sys
from fairseq import checkpoint_utils
import sut_fairseq
from sut_fairseq.analysis.complexity import count, without_padding
(model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
    [{path!r}], {{"alpha_threshold": 0.6}}
)
task.load_dataset("test")
alone = []
for item in task.dataset("test"):
    pair = (item["source"], item["target"])
    result = count(model, without_padding([pair], task.target_dictionary.eos()))
    steps = [[float(h.steps_run), float(h.steps_possible)] for h in result.halting.values()]
    alone.append([result.macs, result.macs_full, steps])
print("RESULT", json.dumps(alone))
"""


@pytest.fixture(scope="module")
def halting(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose tokens halt at different steps."""
    state = torch.load(trained, weights_only=True)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in state["model"].items():
        if name.endswith("halting.output.weight"):
            tensor.normal_(generator=generator)
    path = tmp_path_factory.mktemp("halting") / "checkpoint.pt"
    torch.save(state, path)
    return path


def test_real_data_is_the_sum_of_its_pairs(data: Path, halting: Path) -> None:
    options = ("--path", halting, "--data", data, "--alpha-threshold", 0.6, "--json")
    found = json.loads(run("sut-macs", *options).stdout)
    output = run("python", "-c", ONE_BY_ONE.format(path=str(halting))).stdout
    alone = json.loads(output.partition("RESULT ")[2])

    assert found["sentences"] == len(alone) == SIZES["test"]
    assert found["macs"] == round(sum(macs for macs, _, _ in alone) / len(alone))
    assert found["macs_full"] == round(sum(full for _, full, _ in alone) / len(alone))
    ran, possible = (sum(s[i] for *_, steps in alone for s in steps) for i in (0, 1))
    assert found["skipped"] == pytest.approx(1 - ran / possible)
    assert 0 < found["skipped"] < 1
    for stack in ("encoder", "decoder"):
        steps = {"encoder": 2, "decoder": 3}[stack]
        halted = found["halting"][stack]
        assert halted["depth"] == pytest.approx(steps * (1 - halted["skipped"]))


def test_constant_shapes_are_for_training(data: Path, halting: Path, tmp_path: Path) -> None:
    """A model of the masked layout is counted, as it computes here, in the compact one."""
    state = torch.load(halting, weights_only=True)
    state["cfg"]["model"]["token_layout"] = "masked"
    masked = tmp_path / "masked.pt"
    torch.save(state, masked)
    options = ("--data", data, "--alpha-threshold", 0.6, "--max-sentences", 5, "--json")
    counted = [run("sut-macs", "--path", path, *options).stdout for path in (halting, masked)]
    assert counted[0] == counted[1]
    model, _ = load_model(str(masked), {"data": str(data), "token_layout": "masked"})
    assert {stack.layout for stack in stacks(model).values()} == {"masked"}


@pytest.mark.parametrize("options", ["", "--alpha-threshold 0.5"])
def test_weights_of_other_settings(trained: Path, data: Path, tmp_path: Path, options: str) -> None:
    """An override that changes no weights is not blamed for them."""
    state = torch.load(trained, weights_only=True)
    state["model"] = {
        name.replace("halting.output", "halting.linear"): tensor
        for name, tensor in state["model"].items()
    }
    torch.save(state, tmp_path / "odd.pt")
    refused = run(
        "sut-macs", "--path", tmp_path / "odd.pt", "--data", data, *words(options), ok=False
    )
    assert "odd.pt` are not those of its settings: it was written by" in refused.last_line


def test_sizes_of_other_dictionaries_or_settings(trained: Path, data: Path, tmp_path: Path) -> None:
    """Dictionaries decide on nothing but numbers of rows."""
    for change, sentence in (
        (lambda matrix: matrix[:-1], "odd.pt` does not fit the dictionaries of its data folder"),
        (lambda matrix: matrix[:, :-1], "odd.pt` are not those of its settings: it was written by"),
    ):
        state = torch.load(trained, weights_only=True)
        for name, tensor in state["model"].items():
            if name.endswith("embedding.tokens.weight"):
                state["model"][name] = change(tensor).clone()
        torch.save(state, tmp_path / "odd.pt")
        refused = run("sut-macs", "--path", tmp_path / "odd.pt", "--data", data, ok=False)
        assert sentence in refused.last_line


def test_a_lower_threshold_costs_less(data: Path, halting: Path) -> None:
    costs = []
    for threshold in (1.0, 0.6, 0.2):
        options = ("--path", halting, "--data", data, "--max-sentences", 5, "--json")
        found = json.loads(run("sut-macs", *options, "--alpha-threshold", threshold).stdout)
        assert found["sentences"] == 5
        costs.append(found["macs"])
    assert costs[0] > costs[1] > costs[2]


def test_checkpoint_on_lengths(trained: Path) -> None:
    """Its dictionaries differ in size; without --data their place at training is used."""
    found = json.loads(run("sut-macs", "--path", trained, "--src-len", 4, "--json").stdout)
    assert (found["source_tokens"], found["target_tokens"]) == (4, 10)
    vocabulary = json.loads(
        run("sut-macs", *TINY, "--vocab-size", 100, "--src-len", 4, "--json").stdout
    )
    for part in ("encoder", "decoder"):
        assert found["by_part"][part] == vocabulary["by_part"][part]


def test_installed_command_prints_a_table_and_nothing_else(tmp_path: Path) -> None:
    finished = run_installed("sut-macs", *TINY, "--vocab-size", 24, cwd=tmp_path)
    assert finished.stderr == ""
    lines = finished.stdout.splitlines()
    assert lines[0].startswith("parameters ")
    assert any(line.startswith("MACs, convention of the paper") for line in lines)
    assert len({len(line) for line in lines if line.endswith((" k", " %"))}) == 1, "not aligned"
    assert not [line for line in lines if line.endswith(" M")], "one unit for all numbers"


def test_help(tmp_path: Path) -> None:
    text = run("sut-macs", "--help").stdout
    for word in ("--arch NAME", "--path CHECKPOINT", "--data DATA-BIN", "--alpha-threshold"):
        assert word in text


def assert_refused(finished: Finished, sentence: str) -> None:
    assert finished.status == 2
    assert finished.stdout == ""
    assert finished.last_line.startswith("sut-macs: error: ")
    assert sentence in finished.last_line


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "one of the arguments --arch --path is required"),
        ("--arch sut_huge", "`--arch` must be an architecture that fairseq-train knows"),
        ("--arch sut_tiny --data somewhere", "--data needs a trained model: give --path"),
        ("--arch sut_tiny --vocab-size 3", "`--vocab-size` must be greater than"),
        (
            "--arch transformer --encoder-attention-heads 7",
            "--arch transformer cannot be built with these flags (AssertionError: embed_dim must "
            "be divisible by num_heads); `sut-options transformer` lists those that it has.",
        ),
        (f"--arch sut_tiny --vocab-size {10**25}", "(4) and at most 10,000,000"),
        ("--arch sut_tiny --src-len 0", "`--src-len` must be between 1 and the model's maximum"),
        ("--arch ut_lm --tgt-len 9", "--tgt-len is for models with a decoder: leave it out."),
        ("--arch ndr_ctl --tgt-len 9", "--tgt-len is for models with a decoder: leave it out."),
        ("--arch sut_tiny --tgt-len 9999", "`--tgt-len` must be between 1 and the model's maximum"),
        (f"--arch sut_tiny --seed {10**20}", "--seed: must be a whole number between -9223372036"),
        ("--arch sut_tiny --experts 3", "unrecognized arguments: --experts 3"),
        ("--arch sut_tiny --alpha-threshold 2", "`alpha_threshold` must be greater than 0"),
        ("--arch transformer --alpha-threshold 1", "unrecognized arguments: --alpha-threshold 1.0"),
        (
            "--arch sut_tiny --alpha-threshold 0.5 --encoder-halting none --decoder-halting none",
            "--alpha-threshold needs a model that halts by a threshold, and this one does not.",
        ),
        (
            "--arch transformer_lm --vocab-size 999 --adaptive-softmax-cutoff 100,300 "
            "--criterion adaptive_loss",
            "an adaptive softmax is not counted: what it computes depends on the words predicted.",
        ),
        ("--path absent.pt", "There is no checkpoint `absent.pt`"),
        ("--path a.pt --vocab-size 9", "a trained model has words of its own: leave --vocab-size"),
        ("--arch sut_tiny --source-lang de", "no languages: leave --source-lang out."),
        ("--path a.pt --max-sentences 3", "random tokens is counted: leave --max-sentences out."),
        ("--arch sut_tiny --gen-subset test", "random tokens is counted: leave --gen-subset out."),
        (
            "--path a.pt --data bin --src-len 0 --tgt-len 5",
            "lengths of their own: leave --src-len and --tgt-len out, or --data.",
        ),
    ],
)
def test_refused(arguments: str, sentence: str, tmp_path: Path) -> None:
    finished = run("sut-macs", *words(arguments), cwd=tmp_path, ok=False)
    assert_refused(finished, sentence)
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--gen-subset later", "has no split `later`: check --gen-subset"),
        ("--max-sentences 0", "`--max-sentences` must be at least 1, but is 0 instead."),
        ("--encoder-layers 2", "unknown arguments: --encoder-layers 2"),
        ("--alpha-threshold 0", "`alpha_threshold` must be greater than 0"),
    ],
)
def test_refused_with_a_checkpoint(
    arguments: str, sentence: str, data: Path, trained: Path
) -> None:
    finished = run("sut-macs", "--path", trained, "--data", data, *words(arguments), ok=False)
    assert_refused(finished, sentence)


def test_data_that_is_gone(trained: Path, data: Path, tmp_path: Path) -> None:
    """A checkpoint needs dictionaries, which lie beside the data it was trained on."""
    state = torch.load(trained, weights_only=True)
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "checkpoint.pt")
    finished = run("sut-macs", "--path", tmp_path / "checkpoint.pt", ok=False)
    assert_refused(
        finished, "gone`, where the model's dictionaries should be: name the folder of the prepared"
    )
    shutil.copytree(data, tmp_path / "moved")
    moved = ("--data", tmp_path / "moved")
    assert run("sut-macs", "--path", tmp_path / "checkpoint.pt", *moved).stdout


def test_data_with_other_dictionaries(trained: Path, joined_data: Path) -> None:
    finished = run("sut-macs", "--path", trained, "--data", joined_data, ok=False)
    assert finished.status == 2
    assert (
        "the source words of the data are others than those that the model was trained with"
        in finished.last_line
    )
    assert "Traceback" not in finished.stderr
