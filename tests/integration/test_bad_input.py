"""What a user can get wrong: a status that is not 0, and the reason as the last line.

What the plugin refuses ends in the sentence alone; above fairseq's own refusals there is a
traceback. Wrong text files are in `test_data_prep`, wrong options of our own commands in the tests
of each.
"""

from __future__ import annotations

import fractions
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.damage import flip, largest_record
from tests.integration.commands import TINY, Finished, generate, run, train, words

STOCK = words(
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 "
    "--decoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 1 "
    "--decoder-attention-heads 1"
)
THRESHOLD = "`alpha_threshold` must be greater than 0, at most 1, but is {} instead."
EPSILON = "`halting_epsilon` must be greater than 0, less than 1, but is {} instead."
TOP_K = "`attention_top_k` must be between 1 and `attention_experts` (4), but is 9 instead."


def assert_refused(finished: Finished, sentence: str) -> None:
    """The last line is the sentence, behind "error: "."""
    assert finished.status != 0
    assert finished.last_line.partition(": ")[2] == sentence
    assert "Traceback" not in finished.stderr


def slow(*values: object) -> Any:
    """A case that the unit tests of the options have in every model."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--attention-top-k 9", TOP_K),
        ("--ffn-top-k 0", "`ffn_top_k` must be between 1 and `ffn_experts` (4), but is 0 instead."),
        ("--alpha-threshold 0", THRESHOLD.format("0.0")),
        ("--alpha-threshold 1.5", THRESHOLD.format("1.5")),
        ("--halting-epsilon 0", EPSILON.format("0.0")),
        ("--encoder-layers 0", "`encoder_layers` must be at least 1, but is 0 instead."),
        (
            "--arch universal_transformer --encoder-embed-dim 30 --encoder-attention-heads 4",
            "`encoder_embed_dim` must be a multiple of `encoder_attention_heads` (4) unless "
            "`attention_head_dim` is given, but is 30 instead.",
        ),
        (
            "--share-all-embeddings",
            "`share_all_embeddings` needs one dictionary for both languages, but the data has two: "
            "preprocess with --joined-dictionary (parallel_text.sh: --joined), or train with "
            "--separate-embeddings.",
        ),
        (
            "--cross-attention location",
            "`cross_attention` must be content with a mixture of attention experts, whose heads "
            "change by token, but is location instead.",
        ),
        (
            "--arch ut_tiny --cross-attention mix --location-hidden-size 0",
            "`location_hidden_size` must be at least 1, but is 0 instead.",
        ),
        slow(
            "--arch location_mix --location-hidden-size 0",
            "`location_hidden_size` must be at least 1, but is 0 instead.",
        ),
        slow(
            "--arch location --encoder-hidden-size 0",
            "`encoder_hidden_size` must be at least 1, but is 0 instead.",
        ),
        slow(
            "--arch location --dropout 1",
            "`dropout` must be at least 0 and less than 1, but is 1.0 instead.",
        ),
        (
            "--left-pad-target",
            "`--left-pad-target` must be False: labels and exact match are read from the first "
            "column of targets on, but is True instead.",
        ),
        (
            "--arch location --criterion cross_entropy --left-pad-target",
            "`--left-pad-target` must be False: the decoder reads targets from their first column "
            "on, but is True instead.",
        ),
        (
            "--task translation_lev",
            "this model predicts one target token after another: take a task that does, such as "
            "translation, not TranslationLevenshteinTask.",
        ),
        (
            "--task multilingual_translation --lang-pairs de-en",
            "--task multilingual_translation needs models of several parts: take --task "
            "translation_multi_simple_epoch, which trains one model for all pairs of languages.",
        ),
        (
            "--criterion adaptive_loss",
            "--criterion adaptive_loss is for other kinds of models: take "
            "cross_entropy_with_auxiliary, or for classifiers classification.",
        ),
        (
            "--num-batch-buckets 3",
            "--num-batch-buckets pads sentences for TPUs, on which these models do not run: leave "
            "it out.",
        ),
        (
            "--arch ut_lm",
            "--arch ut_lm is a language model: it needs --task language_modeling, not translation.",
        ),
        ("--fp16", "--fp16 needs a GPU, but there is none or --cpu is given: drop --fp16."),
        (
            "--cuda-graphs 8",
            "--cuda-graphs needs a GPU, but there is none or --cpu is given: drop --cuda-graphs.",
        ),
        (
            "--amp --bf16",
            "--bf16 and --amp are different ways to compute in half precision: give one of them "
            "(with a GPU for bfloat16: --autocast bfloat16).",
        ),
        (
            "--distributed-world-size 2",
            "--distributed-world-size 2 starts no processes on a CPU: start them with a launcher "
            "(torchrun --nproc-per-node 2 $(which fairseq-train) ... --cpu).",
        ),
    ],
)
def test_options_of_a_model(flags: str, sentence: str, data: Path, tmp_path: Path) -> None:
    arch = ["--arch", "sut_tiny"]
    assert_refused(train(data, tmp_path / "run", *arch, *words(flags), ok=False), sentence)


@pytest.mark.parametrize("arch", ["sut_tiny", "location"])
def test_divergence(arch: str, data: Path, tmp_path: Path) -> None:
    """fairseq looks for the module that makes the first NaN, and logs it, before it gives up."""
    options = words("--lr 1e38 --optimizer sgd --max-update 9")
    finished = train(data, tmp_path, "--arch", arch, *options, ok=False)
    assert re.search(r"(NaN|Inf) detected in output of \w+", finished.stdout)
    assert_refused(
        finished,
        "the training diverged (gradients are Nan/Inf): give --clip-norm 1 or a lower --lr, and go "
        "on from checkpoint_last.pt or an earlier checkpoint, not from crash.pt; or start again "
        "with more --warmup-updates.",
    )


def test_unknown_kind(data: Path, tmp_path: Path) -> None:
    kind = ("--attention-positions", "sideways")
    finished = train(data, tmp_path, "--arch", "sut_tiny", *kind, ok=False)
    assert_refused(
        finished,
        "`attention_positions` must be one of none, window, buckets, transformer-xl, "
        "absolute-relative, direction (or a kind of your own, with its --user-dir or, in Python, "
        "its import), but is sideways instead.",
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ({"alpha_threshold": 0}, THRESHOLD.format("0")),
        ({"alpha_threshold": 1.5}, THRESHOLD.format("1.5")),
        slow(
            {"alpha_threshold": "0.8"}, "`alpha_threshold` must be a number, but is '0.8' instead."
        ),
        slow(
            {"decoder_layers": 2.5},
            "`decoder_layers` must be a whole number, but is 2.5 instead.",
        ),
        ({"attention_top_k": 9}, TOP_K),
        (
            {"threshold": 0.5},
            "--model-overrides: there is no option `threshold` (did you mean `alpha_threshold`?).",
        ),
        (
            {"layers": 2},
            "--model-overrides: there is no option `layers` (did you mean `encoder_layers` or "
            "`decoder_layers`?).",
        ),
        (
            {"encoder_normalize_before": "False"},
            "`encoder_normalize_before` must be True or False, but is 'False' instead.",
        ),
        (
            {"activation_fn": "step"},
            "`activation_fn` must be one of relu, gelu, gelu_fast, gelu_accurate, tanh, linear, "
            "but is step instead.",
        ),
        (
            {"encoder_halting": "never"},
            "`encoder_halting` must be one of none, stick-breaking, act, act-ut (or a kind of your "
            "own, with its --user-dir or, in Python, its import), but is never instead.",
        ),
        ({"halting_epsilon": 1}, EPSILON.format("1")),
        slow({"halting_epsilon": "no"}, "`halting_epsilon` must be a number, but is 'no' instead."),
        (
            {"attention_positions": "sideways"},
            "`attention_positions` must be one of none, window, buckets, transformer-xl, "
            "absolute-relative, direction (or a kind of your own, with its --user-dir or, in "
            "Python, its import), but is sideways instead.",
        ),
    ],
    ids=str,
)
def test_overrides(override: dict[str, Any], sentence: str, data: Path, trained: Path) -> None:
    assert_refused(generate(data, trained, "--model-overrides", override, ok=False), sentence)


def test_half_precision_in_generation(data: Path, trained: Path) -> None:
    assert_refused(
        generate(data, trained, "--fp16", ok=False),
        "the model has torch.float16 parameters, which need a GPU, but it is on the CPU: drop "
        "--fp16, or call `model.float()`, and it runs in float32.",
    )


def test_too_long_sentence(data: Path, trained: Path) -> None:
    finished = generate(data, trained, "--model-overrides", "{'max_source_positions': 5}", ok=False)
    assert finished.status == 1
    assert finished.last_line.startswith("Exception: Size of sample #")
    assert "is invalid" in finished.last_line and "max_positions=(5, 1024)" in finished.last_line


def test_checkpoint_of_another_architecture(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, *STOCK)
    assert_refused(
        train(data, tmp_path, *TINY, "--max-update", 4, ok=False),
        f"the model in {tmp_path / 'checkpoint_last.pt'} is another one (its architecture is "
        "transformer, not sut_tiny, its encoder_embed_dim is 8, not 32, its encoder_layers is 1, "
        "not 2): repeat the options of its training, or choose another --save-dir.",
    )


def damaged(trained: Path, path: Path, damage: str) -> Path:
    """A file that is not a whole checkpoint."""
    if damage == "truncated":
        path.write_bytes(trained.read_bytes()[:-5000])
    elif damage == "text":
        path.write_text("no checkpoint\n")
    elif damage == "foreign class":
        state = torch.load(trained, weights_only=True)
        torch.save({**state, "extra_state": {"smuggled": fractions.Fraction(1, 2)}}, path)
    return path


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("absent", "There is no checkpoint "),
        ("truncated", "` is truncated ("),
        ("text", "` is not a fairseq checkpoint, or it is damaged; give a file"),
        ("foreign class", "the class `fractions.Fraction`, which is refused because loading"),
    ],
)
def test_damaged_checkpoint(
    damage: str, sentence: str, data: Path, trained: Path, tmp_path: Path
) -> None:
    """`test_malicious_checkpoints` has more; that one is absent, fairseq's commands say."""
    path = damaged(trained, tmp_path / "checkpoint.pt", damage)
    finished = generate(data, path, ok=False)
    assert finished.status == 1
    assert "H-0" not in finished.stdout
    if damage == "absent":
        assert "OSError: Model file not found: " in finished.last_line
    else:
        assert finished.last_line.startswith("error: ") and sentence in finished.last_line
        assert "Traceback" not in finished.stderr

    for command in (["sut-macs", "--path"], ["sut-average", "--output", tmp_path / "mean.pt"]):
        finished = run(*command, path, *([path] if command[0] == "sut-average" else []), ok=False)
        assert finished.status == 2
        assert finished.stdout == ""
        assert sentence in finished.stderr
        assert len(finished.stderr.splitlines()) == 1


def test_flipped_bytes_in_the_weights_are_seen(data: Path, trained: Path, tmp_path: Path) -> None:
    """torch loads them without a word, and the scores would be those of another model."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(trained.read_bytes())
    flip(path, largest_record(path)[:2000])
    torch.load(path, weights_only=True)
    for command in (
        ("sut-evaluate", "--data", data, "--path", path),
        ("sut-macs", "--path", path),
        ("sut-average", path, trained, "--output", tmp_path / "mean.pt"),
        ("sut-translate", path, "--data", data),
        ("sut-report", "--path", path, "--data", data, "--out", tmp_path / "report"),
    ):
        finished = run(*command, ok=False)
        assert finished.status == 2, command
        assert finished.stdout == ""
        assert "is not what was written, by its checksum" in finished.last_line
