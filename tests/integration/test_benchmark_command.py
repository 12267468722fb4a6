"""`sut-benchmark`: every subject at tiny size, what it promises to report, and wrong input.

Nothing here depends on how fast anything is.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.analysis.benchmark.compositional import Shape
from sut_fairseq.analysis.benchmark.functions import FUNCTIONS
from sut_fairseq.analysis.benchmark.peers import equal_transformer
from sut_fairseq.analysis.plan import run
from sut_fairseq.analysis.plan.memory import Memory as PlannedMemory
from sut_fairseq.analysis.plan.memory import memory_of
from sut_fairseq.cli._plan import print_plan
from sut_fairseq.cli.benchmark import main
from sut_fairseq.modules.attention.compositional import CompositionalAttention
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.stack import Stack, StackOutput
from sut_fairseq.modules.tokens import ActiveTokens
from tests.integration.commands import words
from tests.models import small_model, task

PAIRS = "--arch sut_tiny --sentences 2 --src-len 4 --tgt-len 5 --vocab-size 40"
PLANNED = "--arch sut_tiny --src-len 4 --tgt-len 5 --vocab-size 40 --max-tokens 10 --ffn-experts 6 "
# The deeper one of the two depths that a plan compares: no third one is computed.
PLANNED += "--encoder-layers 4 --decoder-layers 4 --gpus 4 --machines 2"
SIZES = {
    "experts": "--embed-dim 16 --num-experts 4 --top-k 2 --hidden-dim 8 --tokens 32",
    "attention": "--embed-dim 16 --num-experts 4 --top-k 2 --num-heads 2 --head-dim 4 --window 3 "
    "--lengths 4 8 --tokens 16 --searches 2 --retrievals 1 3 --retrieval-dim 3",
    "halting": "--arch sut_tiny --sentences 3 --length 8 --shares 0.25 0.5",
    "train": f"{PAIRS} --dense-arch ut_scan --scaling-sentences 1",
    "decode": f"{PAIRS} --beam 2 --thresholds 0.999 0.6",
    "memory": f"{PAIRS} --steps 2 4 --attention-length 4 --attention-tokens 8",
    "functions": "--settings tiny",
}
VARIANTS = {
    "experts": "experts loop grouped dense dense_without_router gemm",
    "attention": "mixture_4 mixture_no_window_4 dense_4 dense_no_window_4 torch_4 "
    "mixture_8 mixture_no_window_8 dense_8 dense_no_window_8 torch_8 "
    "softmax_4 geometric_4 softmax_causal_4 geometric_causal_4 "
    "softmax_8 geometric_8 softmax_causal_8 geometric_causal_8 "
    "multihead_4 multihead_weights_4 multihead_values_4 compositional_1_4 compositional_3_4 "
    "multihead_8 multihead_weights_8 multihead_values_8 compositional_1_8 compositional_3_8",
    "halting": "share_0 share_0.25 share_0.5",
    "train": "sut_tiny ut_scan transformer tokens_1x tokens_2x tokens_4x steps_2x steps_4x",
    "decode": "sut_tiny threshold_0.6 transformer",
    "memory": "steps_2 steps_2_checkpointed steps_4 steps_4_checkpointed mixture dense",
    "functions": " ".join(f"{name}_tiny {name}_tiny_plain" for name in FUNCTIONS),
}
RATIOS = {
    "experts": "to_dense to_dense_without_router to_gemm to_loop to_grouped",
    "attention": " ".join(
        f"{name}_{length}"
        for length in (4, 8)
        for name in words(
            "mixture_to_dense mixture_to_torch dense_to_torch window_cost dense_window_cost "
            "memory_mixture_to_dense geometric_to_softmax memory_geometric_to_softmax "
            "geometric_causal_to_softmax memory_geometric_causal_to_softmax "
            "macs_1 time_1 time_to_bound_1 memory_1 memory_to_bound_1 "
            "macs_3 time_3 time_to_bound_3 memory_3 memory_to_bound_3"
        )
    ),
    "halting": "time_at_0.25 saved_per_skipped_0.25 time_at_0.5 saved_per_skipped_0.5",
    "train": "to_ut to_transformer cost_2x_tokens cost_4x_tokens cost_2x_steps cost_4x_steps",
    "decode": "to_transformer time_at_0.6",
    "memory": "memory_4_to_2_steps memory_4_to_2_steps_checkpointed memory_checkpointed_2 "
    "memory_checkpointed_4 memory_mixture_to_dense",
    "functions": " ".join(f"{name}_tiny memory_{name}_tiny" for name in FUNCTIONS),
}


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert main([*map(str, arguments), "--repetitions", "2", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    document: dict[str, Any] = json.loads(printed.out)
    return document


def complete(capsys: pytest.CaptureFixture[str], subject: str) -> dict[str, Any]:
    """The report of a whole subject, which is measured once for all tests that look at it."""
    if subject not in _COMPLETE:
        options = (*words(SIZES[subject]), "--threads", 1, "--seed", 2)
        _COMPLETE[subject] = report(capsys, subject, *options)
    return _COMPLETE[subject]


_COMPLETE: dict[str, dict[str, Any]] = {}


@pytest.fixture
def remembered_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a training is computed once, which takes most of the time of a plan."""

    def remembered(*given: Any, **options: Any) -> PlannedMemory:
        question = repr((given, options))
        if question not in _MEMORY:
            _MEMORY[question] = memory_of(*given, **options)
        return _MEMORY[question]

    monkeypatch.setattr(run, "memory_of", remembered)


_MEMORY: dict[str, PlannedMemory] = {}


def assert_complete(found: dict[str, Any], variants: list[str], ratios: list[str]) -> None:
    assert set(found["variants"]) == set(variants)
    for entry in found["variants"].values():
        low, high = entry["quartiles"]
        assert 0 < entry["min"] <= low <= entry["median"] <= high <= entry["max"]
        for key, value in entry.items():
            assert key == "quartiles" or math.isfinite(value)
    assert set(found["ratios"]) == set(found["spread"]) == set(ratios)
    for name, ratio in found["ratios"].items():
        least, greatest = found["spread"][name]
        assert least <= ratio <= greatest
        assert math.isfinite(greatest)
        assert least > 0 or name.startswith("saved_per_")


@pytest.mark.parametrize("subject", SIZES)
def test_reports_are_complete(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = complete(capsys, subject)
    assert found["subject"] == subject
    expected = dict(device="cpu", dtype="float32", threads=1, seed=2, repetitions=2)
    assert expected.items() <= found["settings"].items()
    assert words("processor cores torch python sut_fairseq") == list(found["machine"])[:5]
    assert_complete(found, words(VARIANTS[subject]), words(RATIOS[subject]))


@pytest.mark.parametrize(
    "subject",
    ["experts", "halting", "decode", "functions"]
    + [pytest.param("attention", marks=pytest.mark.slow)],
)
def test_bfloat16(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, subject, *words(SIZES[subject]), "--dtype", "bfloat16")
    assert found["settings"]["dtype"] == "bfloat16"
    assert_complete(found, words(VARIANTS[subject]), words(RATIOS[subject]))


def test_a_training_step_in_bfloat16_without_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    options = words(f"{PAIRS} --dense-arch ut_scan --dtype bfloat16 --no-scaling")
    found = report(capsys, "train", *options)
    variants, ratios = words("sut_tiny ut_scan transformer"), words("to_ut to_transformer")
    assert_complete(found, variants, ratios)


@pytest.mark.cuda
def test_recorded_steps_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    given = f"{PAIRS} --arch ut_tiny --dense-arch none --no-scaling --recorded --device cuda"
    found = report(capsys, "train", *words(given))
    variants = words("ut_tiny transformer loop recorded")
    assert_complete(found, variants, words("to_transformer to_loop to_recorded"))


def test_what_is_compared_has_equal_macs(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = words(f"{PAIRS} --dense-arch ut_scan --no-scaling --src-len 9 --tgt-len 7")
    found = report(capsys, "train", *pairs)["variants"]
    assert found["transformer"]["macs"] == pytest.approx(found["sut_tiny"]["macs"], rel=0.01)
    sizes = words("--embed-dim 64 --hidden-dim 96 --num-experts 6 --top-k 4 --tokens 8")
    found = report(capsys, "experts", *sizes)["variants"]
    assert found["experts"]["macs"] == 3 * 8 * (64 * (64 + 6) + 4 * 2 * 64 * 96)
    assert found["dense"]["macs"] == found["gemm"]["macs"]
    assert found["dense"]["macs"] == pytest.approx(found["experts"]["macs"], rel=0.01)


def test_macs_of_compositional_attention_are_those_of_its_modules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Projections, attention products, and the scores by which retrievals are chosen."""
    only = words(
        "--kinds compositional --embed-dim 16 --head-dim 4 --lengths 4 8 --tokens 16 --searches 2 "
        "--retrievals 1 3 --retrieval-dim 3"
    )
    found = report(capsys, "attention", *only)["variants"]
    assert {name.split("_")[0] for name in found} == {"multihead", "compositional"}
    tokens = ActiveTokens.from_mask(torch.ones(2, 8, dtype=torch.bool))
    for retrievals in (1, 3):
        core = AttentionCore()
        sizes = dict(embed_dim=16, source_dim=16, num_searches=2, head_dim=4, value_dim=4)
        layer = CompositionalAttention(core, num_retrievals=retrievals, retrieval_dim=3, **sizes)
        values = torch.empty(2, retrievals, 8, 4)
        memory = Memory(torch.empty(2, 2, 8, 4), values)
        projections = 16 * sum(
            part.weight.numel() for part in (layer.query, layer.key, layer.value, layer.output)
        )
        macs = projections + core.num_products(torch.empty(16, 1, 2, 4), tokens, memory)
        if layer.value_scores is not None:
            macs += 16 * layer.value_scores.query.weight.numel()
            macs += sum(layer.value_scores.num_products(torch.empty(16, 2, retrievals, 4)))
        assert found[f"compositional_{retrievals}_8"]["macs"] == 3 * macs


@pytest.mark.parametrize("length", [64, 256, 1024])
@pytest.mark.parametrize("retrievals", [1, 2, 4, 8])
def test_retrievals_cost_at_most_what_their_values_do(retrievals: int, length: int) -> None:
    """In MACs: those of multi-head attention, and for each retrieval those of its values."""
    shape = Shape(embed_dim=512, num_searches=8, head_dim=64, retrieval_dim=32)
    bound = shape.multihead_macs(length) + retrievals * shape.value_macs(length)
    assert shape.macs(retrievals, length) <= bound


def test_the_share_that_is_asked_for_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    found = complete(capsys, "halting")["variants"]
    assert [entry["skipped"] for entry in found.values()] == pytest.approx([0, 0.25, 0.5])


def test_shares_that_few_steps_do_not_allow_are_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of those that nobody asked for."""
    found = report(capsys, "halting", *words("--arch sut_tiny --sentences 2 --length 4"))
    assert found["settings"]["shares"] == [0.5] and list(found["variants"]) == words(
        "share_0 share_0.5"
    )


def test_decoding_produces_the_same_number_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    found = complete(capsys, "decode")["variants"]
    tokens = [entry["tokens_per_second"] * entry["median"] for entry in found.values()]
    assert tokens == pytest.approx([2 * (5 + 1)] * 3)
    # An untrained unit halts with a probability of 0.5 after each of the three steps.
    assert found["sut_tiny"]["decoder_skipped"] == 0
    assert found["threshold_0.6"]["decoder_skipped"] == pytest.approx(1 / 3)


def test_a_model_that_does_not_halt_decodes_once(capsys: pytest.CaptureFixture[str]) -> None:
    options = words(f"{PAIRS.replace('sut_tiny', 'ut_scan')} --beam 2")
    assert_complete(
        report(capsys, "decode", *options), ["ut_scan", "transformer"], ["to_transformer"]
    )


def test_a_classifier_decodes_nothing(
    router: Path, classes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", "--path", str(router), "--data", str(classes)]) == 2
    sentence = "`--path` must be a model that generates sentences, but is a "
    assert sentence in capsys.readouterr().err


def test_a_preset_gives_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    given = "--sentences 2 --preset small --repetitions 1"
    found = report(capsys, "train", *words(given))
    assert found["settings"]["sentences"] == 2 and found["settings"]["tgt_len"] == 2
    assert list(found["variants"]) == ["sut_tiny", "transformer"]
    own, other = (variant["macs"] for variant in found["variants"].values())
    assert own == pytest.approx(other, rel=0.01)
    assert list(found["ratios"]) == ["to_transformer"]


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


@pytest.mark.parametrize(
    "subject, sizes",
    [("experts", "--tokens 8"), ("attention", "--tokens 8 --lengths 4")],
)
def test_layers_of_an_architecture(
    subject: str, sizes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = report(capsys, subject, "--arch", "sut_tiny", *words(sizes))["settings"]
    expected = dict(arch="sut_tiny", embed_dim=128, num_experts=4, top_k=2, tokens=8)
    assert expected.items() <= settings.items()


def test_a_trained_model_on_its_data(
    halting: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--path", halting.parent, "--data", data, "--max-sentences", 5)
    found = report(capsys, "halting", *options, "--thresholds", 0.7, 0.3)
    variants = words("threshold_inf threshold_0.7 threshold_0.3")
    ratios = [
        f"{name}_threshold_{threshold}"
        for name in words("time_at saved_per_skipped saved_per_macs")
        for threshold in ("0.7", "0.3")
    ]
    assert_complete(found, variants, ratios)
    shares = [entry["skipped"] for entry in found["variants"].values()]
    assert 0 == shares[0] < shares[1] < shares[2] < 1

    options = (*options[:-1], 2, "--sentences", 2, "--beam", 2)
    found = report(capsys, "decode", *options, "--thresholds", 0.999, 0.3)
    assert_complete(found, ["model", "threshold_0.3"], ["time_at_0.3"])
    shares = [entry["decoder_skipped"] for entry in found["variants"].values()]
    assert shares[0] < shares[1]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experts", *words(SIZES["experts"]), "--repetitions", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("machine: processor ")
    assert lines[1].startswith("settings: embed_dim 16, num_experts 4, ")
    assert lines[3].split() == words("experts median least greatest GMAC/s tokens/s")
    assert [line.split()[0] for line in lines[4:10]] == words(VARIANTS["experts"])
    assert [line.split()[0] for line in lines[11:]] == words(RATIOS["experts"])


@pytest.mark.parametrize("arguments", ["--help", *(f"{subject} --help" for subject in SIZES)])
def test_help(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(words(arguments))
    text, _, _ = capsys.readouterr().out.partition("\nexamples:\n")
    for word in words("--device --dtype --threads --repetitions --seed --json"):
        assert (word in text) == (arguments != "--help")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "the following arguments are required: SUBJECT; see `sut-benchmark --help`."),
        ("speed", "invalid choice: 'speed'"),
        ("experts --tokens many", "--tokens: must be a whole number of at least 1, but is"),
        ("experts --tokens 0", "--tokens: must be a whole number of at least 1, but is `0`; see"),
        ("experts --arch ut_base", "`--arch` must be one of sut_base, sut_big, sut_logical_infer"),
        ("experts --top-k 25", "`top_k` must be between 1 and `num_experts` (24)"),
        ("experts --repetitions 0", "--repetitions: must be a whole number of at least 1, but is"),
        ("experts --threads 99999999999", "--threads: must be at most 4096, but is 99999999999;"),
        ("plan --tokens 1e6 --max-tokens 999999999999999", "`--max-tokens` must be at most 1,000,"),
        ("experts --threads 0", "--threads: must be a whole number of at least 1, but is `0`"),
        ("experts --device tpu", "--device: invalid choice: 'tpu' (choose from "),
        (
            "experts --dtype float8",
            "--dtype: invalid choice: 'float8' (choose from ",
        ),
        ("attention --kinds sparse", "`--kinds` must be one of mixture, geometric, compositional"),
        ("attention --lengths 64 100", "`--lengths` must be a divisor of `--tokens` (4096)"),
        ("halting --shares 0.9", "`--shares` must be greater than 0, at most 0.833"),
        ("halting --arch ut_cfq_t5", "`--arch` must be an architecture whose encoder halts"),
        ("halting --arch sut_huge", "`--arch` must be an architecture that fairseq-train knows"),
        ("halting --path x.pt", "--path needs sentences to run the model on: give --data DATA-BIN"),
        ("halting --data x", "--data needs a trained model: give --path CHECKPOINT."),
        ("halting --path absent.pt --data x", "There is no checkpoint `absent.pt`"),
        ("train --dense-arch sut_base", "`--dense-arch` must be other than sut_base"),
        ("train --recorded", "`--recorded` must be left out without --device cuda"),
        ("train --preset tiny", "invalid choice: 'tiny'"),
        (f"train {PAIRS} --transformer-heads 3", "`--transformer-heads` must be a divisor of the"),
        (f"train {PAIRS} --dense-arch ut_lm", "`--dense-arch` must be an encoder-decoder (e.g."),
        (
            "halting --arch sut_tiny --thresholds 0.7 --gen-subset valid",
            "random words are measured: leave --gen-subset and --thresholds out.",
        ),
        ("decode --max-sentences 3", "random words are measured: leave --max-sentences out."),
        ("attention --arch sut_tiny --embed-dim 8", "are those of --arch: leave --embed-dim out."),
        (
            "attention --kinds geometric --searches 2 --window 9",
            "only --kinds mixture has such sizes: leave --window out.",
        ),
        (
            "attention --kinds mixture geometric --searches 2 --retrieval-dim 9",
            "only --kinds compositional has such sizes: leave --searches and --retrieval-dim out.",
        ),
        (
            f"train {PAIRS} --no-scaling --scaling-sentences 2",
            "--no-scaling measures no such batches: leave --scaling-sentences out.",
        ),
        ("experts --arch sut_tiny --top-k 1", "are those of --arch: leave --top-k out."),
        ("plan --tokens 1e9 --bf16", "--bf16: this is about the training and not about the model"),
        (f"train {PAIRS} --dense-arch x", "`--dense-arch` must be an architecture that"),
        (f"train {PAIRS} --src-len 9999", "`--src-len` must be between 1 and the model's maximum"),
        ("decode --arch transformer --vocab-size 9", "`--arch` must be an encoder-decoder of this"),
        (f"decode {PAIRS} --vocab-size 3", "`--vocab-size` must be greater than the number of"),
        ("decode --thresholds 1.5", "`--thresholds` must be greater than 0, at most 1, but is 1.5"),
        (
            f"decode {PAIRS.replace('sut_tiny', 'ut_scan')} --thresholds 0.9 0.3",
            "the model does not halt by stick-breaking: leave --thresholds out.",
        ),
        (
            "functions --functions permute --settings base_256",
            "`--settings` must be among base, small, ",
        ),
        (f"experts --tokens {10**14}", "these sizes need more memory than there is: choose small"),
        ("functions --functions tanh", "`--functions` must be one of permute, sort_tokens,"),
        ("functions --settings huge", "`--settings` must be one of base, base_256, base_1024,"),
        (
            "train --preset small --repetition 3",
            "unrecognized arguments: --repetition 3 (did you mean `--repetitions`?); see",
        ),
        ("experts --ffn-experts 3", "--ffn-experts 3 (did you mean `--num-experts`?); see"),
        ("plan", "the following arguments are required: --tokens; see `sut-benchmark plan --help`"),
        ("plan --tokens 0", "`--tokens` must be greater than 0 and at most 1e+30, but is 0.0 i"),
        (
            "plan --tokens inf",
            "`--tokens` must be greater than 0 and at most 1e+30, but is inf ins",
        ),
        (
            "plan --tokens 1e6 --gpu-memory 1e308",
            "`--gpu-memory` must be greater than 0 and at most",
        ),
        (f"experts --seed {10**20}", "--seed: must be a whole number between -9223372036854775807"),
        (
            "plan --tokens 1e6 --link nan",
            "`--link` must be greater than 0 and at most 1e+30, but is",
        ),
        (
            "plan --tokens 1e6 --gpus 9 --machines 2",
            "`--gpus` must be a multiple of --machines (2)",
        ),
        ("plan --tokens 1e6 --dtype float16", "`--dtype` must be one of float32, bfloat16, but is"),
        ("plan --tokens 1e6 --speed a100", "`--speed` must be h100, cpu or a file that `sut-bench"),
        ("plan --tokens 1e6 --arch ndr_ctl", "`--arch` must be an encoder-decoder of this package"),
        (f"plan --tokens 1e6 {PLANNED} --tokens-a-day 3", "unrecognized arguments: --tokens-a-day"),
        ("memory --steps 6", "`--steps` must be at least two different numbers, but is [6]"),
        ("memory --attention-length 3", "`--attention-length` must be a divisor of"),
    ],
)
def test_refused(
    arguments: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(words(arguments))
    except SystemExit as ending:  # of the command line's parser
        status = ending.code
    assert status == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.match("sut-benchmark( experts| plan| train)?: error: ", printed.err)
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.usefixtures("remembered_memory")
def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From what was measured here, with a flag of the architecture; and as text."""
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(complete(capsys, "train")))
    options = [*words(f"plan --tokens 1e6 {PLANNED}"), "--speed", measured]
    assert main([*map(str, options), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["speed"]["device"] == "cpu"
    source = found["speed"]["source"]
    assert re.fullmatch(rf"{re.escape(str(measured))}: .+, \d+ threads?, float32", source)
    assert words("machines speed model memory update run expert_parallelism") == list(found)
    assert found["expert_parallelism"]["experts"] == [4, 6]
    assert found["memory"]["fits"] and found["update"]["tokens"] == 4 * 2 * 5
    print_plan(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 GPUs in 2 machines; assumed: 300 GB/s from GPU to GPU, 50 GB/s")
    assert lines[1].startswith(f"measured ({source}): ")
    assert [line.split("  ")[0] for line in lines if line.startswith(("memory", "an", "the"))] == [
        *("memory of a GPU", "an update", "the training"),
    ]
    (last,) = (line for line in lines if line.startswith("the training"))
    assert " 0.0 " not in last, "a short training takes some time, too"
    note = "Times are of this CPU in place of each GPU; memory is that of a GPU.\n"
    for speed in ("cpu", str(measured)):
        assert main([*words(f"plan --tokens 1e6 {PLANNED} --speed"), speed]) == 0
        assert capsys.readouterr().out.endswith(note)
    assert main(words(f"plan --tokens 1e6 {PLANNED} --dtype bfloat16")) == 0
    assert "in place of each GPU" not in capsys.readouterr().out


@pytest.mark.usefixtures("remembered_memory")
def test_a_plan_counts_the_steps_of_the_model_that_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its flags say how deep it is: times of 0.01 s for each of its five steps give that back."""
    times = {"sut_tiny": 2, **{f"tokens_{pairs}x": pairs for pairs in (1, 2, 4)}}
    settings = {"arch": "sut_tiny", "sentences": 2, "scaling_sentences": 1}
    document = {
        "settings": {**settings, "flags": "--encoder-layers 4 --decoder-layers 1"},
        "variants": {name: {"median": 5 * 0.01 + pairs / 1e3} for name, pairs in times.items()},
    }
    document["variants"]["sut_tiny"]["macs"] = 2e9
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(document))
    line = [*words(f"plan --tokens 1e6 {PLANNED} --json --speed"), str(measured)]
    assert main(line) == 0
    speed = json.loads(capsys.readouterr().out)["speed"]
    assert speed["seconds_per_step"] == pytest.approx(0.01)
    assert speed["macs_per_second"] == pytest.approx(1e12)
    # Earlier versions printed the rate of MACs alone.
    del document["variants"]["sut_tiny"]["macs"]
    document["variants"]["sut_tiny"]["gmacs_per_second"] = 2 / (5 * 0.01 + 2 / 1e3)
    measured.write_text(json.dumps(document))
    assert main(line) == 0
    again = json.loads(capsys.readouterr().out)["speed"]
    assert again["macs_per_second"] == pytest.approx(speed["macs_per_second"])
    for broken in ("[]", '{"settings": []}', '{"settings": {"arch": "sut_tiny"}}', "import json"):
        measured.write_text(broken)
        assert main(line) == 2
        assert "is not what `sut-benchmark train --json` prints" in capsys.readouterr().err


def test_each_loop_is_scaled_from_its_own_depth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []
    forward = Stack.forward

    def counted(stack: Stack, *arguments: Any, **options: Any) -> StackOutput:
        ran.append(stack.num_steps)
        return forward(stack, *arguments, **options)

    monkeypatch.setattr(Stack, "forward", counted)
    depths = ("--flags", "--encoder-layers 3 --decoder-layers 1", "--dense-arch", "none")
    report(capsys, "train", *words(PAIRS), *depths, "--scaling-sentences", 1)
    assert set(zip(ran[::2], ran[1::2])) == {(3, 1), (6, 2), (12, 4)}


def test_a_transformer_cannot_be_arbitrarily_small() -> None:
    model = small_model(joined=True, attention_head_dim=1, encoder_ffn_embed_dim=1)
    with pytest.raises(ValueError, match="`--arch` must have at least the .* MACs"):
        equal_transformer(model, task(joined=True), src_len=4, tgt_len=4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="concerns machines without a GPU")
def test_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experts", "--device", "cuda"]) == 2
    assert "--device cuda needs a GPU, but torch finds none" in capsys.readouterr().err
