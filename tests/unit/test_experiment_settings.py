"""What our experiments ask of fairseq-train, and the papers' numbers beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_data.folders import choosing
from sut_fairseq.analysis import untrained
from sut_fairseq.analysis.complexity import count
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import preparing, reading
from sut_fairseq.experiments.commands import Machine, Training, plan
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.published import is_usual, published
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.settings import Choice


def trainings(
    name: str, model: str, size: str, gpus: int = 1, updates: int | None = None, **more: Any
) -> list[Training]:
    choice = Choice(model, size, updates=updates, **more)
    experiment = reading.read(name)
    drawn = next(iter(experiment.generate), "")
    data = Data(folder="" if drawn else "data", split=drawn)
    return plan(experiment, choice, 3, data, Path("run"), Machine(gpus))


def mapping(training: Training) -> dict[str, str | bool]:
    """Options of a command with their values, as its last words have them."""
    found: dict[str, str | bool] = {}
    name = ""
    for word in training.command()[1 if training.data is None else 2 :]:
        if word.startswith("--"):
            name = word[2:]
            found[name] = True
        else:
            found[name] = word
    return found


EVERY = [
    (name, model, size)
    for name in [*reading.known(), "example"]
    for one in [reading.read(name)]
    for size in one.sizes
    for model in one.sizes[size].models or one.models
]


@pytest.mark.parametrize("name", [*reading.known(), "example"])
def test_every_model_and_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a command that fairseq understands, with a model of the promised kind."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # for --cuda-graphs
    experiment: Experiment = reading.read(name)
    without_paper = ("example", "parallel_text")
    assert list(experiment.sizes)[0] == ("small" if name in without_paper else "paper")
    for _, model, size in [one for one in EVERY if one[0] == name]:
        for training in trainings(name, model, size):
            parsed = options.parse_args_and_arch(
                options.get_training_parser(), training.command()[1:]
            )
            assert ("transformer" in parsed.arch) == model.startswith("transformer")
            assert (parsed.task, parsed.seed) == (experiment.task, 3)
            # The recurrent models of one experiment are selected as their paper does.
            by = "loss" if name == "long_lookup_tables" else experiment.metric
            assert parsed.best_checkpoint_metric == by
            lowest = by in ("loss", "nll_loss")
            assert parsed.maximize_best_checkpoint_metric != lowest


@pytest.mark.parametrize(
    ("metric", "highest"),
    [
        *(("loss", False), ("attention_loss", False), ("ppl", False), ("macs", False)),
        ("exact_match", True),
    ],
)
def test_losses_are_minimized_and_scores_maximized(metric: str, highest: bool) -> None:
    (training,) = trainings("scan", "sut", "small", own=(("best-checkpoint-metric", metric),))
    chosen = training.command()
    assert chosen[chosen.index("--best-checkpoint-metric") + 1] == metric
    assert ("--maximize-best-checkpoint-metric" in chosen) is highest


@pytest.mark.parametrize(
    ("name", "model", "size"), [one for one in EVERY if one[2] in ("paper", "long")]
)
def test_gpus_share_the_batch_of_an_update(name: str, model: str, size: str) -> None:
    def batches(gpus: int) -> tuple[int, int]:
        given = mapping(trainings(name, model, size, gpus)[-1])
        (each,) = (int(given[one]) for one in ("batch-size", "max-tokens") if one in given)
        return each, int(given["update-freq"]) * gpus

    counts_tokens = size == "long" and name in ("scan", "logical_inference")  # those of `small`
    alone = math.prod(batches(1))
    for gpus in (3, 8):
        expected = alone * (gpus if counts_tokens else 1)
        each, number = batches(gpus)
        assert each == math.ceil(expected / number)


@pytest.mark.parametrize("size", [size.name for size in choosing.SIZES])
@pytest.mark.parametrize("gpus", [0, 1, 3, 4])
def test_the_experiment_is_the_training_that_is_printed(size: str, gpus: int) -> None:
    """`sut-prepare parallel_text` prints both commands."""
    (row,) = [one for one in choosing.SIZES if one.name == size]
    printed = choosing.Plan(row, row.share(gpus)[0], gpus, 1, updates=1234).options()
    (training,) = trainings("parallel_text", "sut", size, gpus, updates=1234)
    ours = {"user-dir", "source-lang", "target-lang", "save-dir", "num-workers", "seed", "task"}
    ours |= {"log-format", "log-interval", "share-all-embeddings"}
    options = {name: value for name, value in mapping(training).items() if name not in ours}
    assert options.pop("update-freq") == printed.pop("update-freq", "1")
    # fairseq-train takes all GPUs unless told how many; an experiment tells it.
    assert options.pop("distributed-world-size", "0") == str(gpus)
    assert options == printed


ROUTER = {
    "task": "sequence_classification",
    "criterion": "classification",
    "best-checkpoint-metric": "accuracy",
    "valid-subset": "valid_deep,valid",
    "mutual-information-weight": "0",
    "expected-depth-weight": "0",
}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            ("scan", "sut", "paper"),
            {"arch": "sut_logical_inference", "encoder-layers": "8", "lr": "7e-4"}
            | {"update-freq": "4", "max-epoch": "450", "max-tokens": "16384"}
            | {"validate-interval-updates": "1000", "clip-norm": None, "max-update": None},
        ),
        (
            ("scan", "ut", "small"),
            {"arch": "ut_tiny", "max-update": "2500", "total-num-update": "2500"}
            | {"no-token-positional-embeddings": True, "save-interval-updates": "250"}
            | {"update-freq": "1", "label-smoothing": None},
        ),
        (
            ("cfq", "ut_fixed", "paper"),
            {"arch": "ut_cfq", "encoder-halting": "none", "decoder-halting": "none"},
        ),
        (
            ("listops", "transformer", "small"),
            {"arch": "transformer", "encoder-layers": "6", "decoder-layers": "1"}
            | {"max-source-positions": "2100", "task": "classification_as_translation"},
        ),
        (
            ("logical_inference", "sut", "small"),
            {"lr": "2e-3", "dropout": "0", "encoder-ffn-embed-dim": "64", "max-update": "5000"}
            | {"expected-depth-weight": "0", "decoder-halting": "none", "train-subset": None},
        ),
        (
            ("ctl", "geometric_act_ut", "paper"),
            {**ROUTER, "arch": "ndr_ctl_geometric", "encoder-halting": "act-ut", "lr": "0.00015"}
            | {"weight-decay": "0.0025", "max-update": "60000", "encoder-layers": "14"}
            | {"clip-norm": "5", "lr-scheduler": "fixed", "remainder-weight": "0.03"},
        ),
        (
            ("ctl", "rel_gate", "small"),
            {**ROUTER, "arch": "ndr_ctl_rel_gate", "training-steps-beyond-length": "1"}
            | {"hold-steps": "2467", "decay-steps": "1334", "lr": "1e-3", "batch-size": "256"},
        ),
        (
            ("arithmetic", "lstm", "small"),
            {**ROUTER, "lr": "3e-3", "encoder-layers": None, "hold-steps": "5800"},
        ),
        (
            ("multi30k", "sut", "paper"),
            {"arch": "sut_tiny", "encoder-ffn-embed-dim": "256", "attention-head-dim": "32"}
            | {"max-update": "20000", "maximize-best-checkpoint-metric": None},
        ),
        (
            ("wmt14", "sut_base", "small"),
            {"arch": "sut_base", "max-tokens": "2048", "max-update": "100"}
            | {"validate-interval-updates": "100", "keep-best-checkpoints": "5"},
        ),
    ],
)
def test_settings_of_some(command: Any, expected: dict[str, Any]) -> None:
    """What the papers and our measured trainings have, so that nobody changes it unawares."""
    found = mapping(trainings(*command)[-1])
    assert {name: found.get(name) for name in expected} == expected


def test_stages_of_some() -> None:
    *stages, last = trainings("listops_dependency", "ndr", "small", updates=3500)
    earlier = None
    limits = {"first": "4375", "up-to-14": "7000"}
    for training, (name, limit) in zip(stages, limits.items(), strict=True):
        found = mapping(training)
        assert found["save-dir"] == f"run/{name}/checkpoints"
        assert found["max-update"] == found["hold-steps"] == limit
        assert (found["max-source-positions"], found["valid-subset"]) == ("16", "valid")
        assert found["decay-steps"] == "1" and found["balance-lengths"] is True
        assert found.get("train-subset") == (None if earlier else "first")
        assert found.get("finetune-from-model") == earlier
        earlier = f"run/{name}/checkpoints/checkpoint_last.pt"
    found = mapping(last)
    assert found["finetune-from-model"] == earlier
    assert (found["max-update"], found["valid-subset"]) == ("3500", "valid_deep,valid")
    assert "balance-lengths" not in found and "max-source-positions" not in found


def test_ablations() -> None:
    """Table 2: one part is left out, and everything else stays."""
    (training,) = trainings("wmt14", "sut_base", "paper")
    whole = mapping(training)
    changed = {}
    for part in ("mim", "momha", "act", "halting"):
        own = mapping(trainings("wmt14", "sut_base", "paper", without=part)[0])
        changed[part] = {name for name in {**own, **whole} if own.get(name) != whole.get(name)}
    assert changed == {
        "mim": {"mutual-information-weight", "load-balance-weight"},
        "momha": {"encoder-attention-heads", "attention-experts", "attention-top-k"},
        "act": {"expected-depth-weight"},
        "halting": {"encoder-halting", "decoder-halting"},
    }
    (big,) = trainings("wmt14", "sut_big", "paper", without="momha")
    assert mapping(big)["attention-experts"] == "192"
    with pytest.raises(InputError, match="--without mim is for the models sut_base, sut_big, not"):
        trainings("wmt14", "ut_base", "paper", without="mim")


def test_machines() -> None:
    """The batches of an update are divided among the GPUs; a run may move to other machines."""
    on = {gpus: trainings("wmt14", "sut_base", "paper", gpus)[0] for gpus in (0, 1, 5, 16)}
    assert {gpus: mapping(one)["update-freq"] for gpus, one in on.items()} == {
        0: "32",
        1: "32",
        5: "7",
        16: "2",
    }
    assert mapping(on[0])["cpu"] is True and mapping(on[0])["num-workers"] == "0"
    assert "cpu" not in mapping(on[1]) and mapping(on[1])["num-workers"] == "2"
    assert all(one.settings == on[1].settings for one in on.values())
    own = (("distributed-port", "5"), ("num-workers", "7"), ("update-freq", "3"))
    (moved,) = trainings("wmt14", "sut_base", "paper", 16, own=own)
    assert mapping(moved).items() >= dict(own).items()
    assert moved.settings == {**on[1].settings, "update-freq": "3"}


def test_cuda_graphs_are_for_one_gpu() -> None:
    """A run whose experiment asks for them goes on without, and yours are left to fairseq-train."""
    ndr = {gpus: trainings("ctl", "ndr", "paper", gpus)[-1] for gpus in (0, 1, 2)}
    assert [mapping(one)["cuda-graphs"] for one in ndr.values()] == ["0", "1", "0"]
    on = {gpus: trainings("logical_inference", "sut", "gpu", gpus)[-1] for gpus in (0, 1, 2)}
    assert mapping(on[1])["cuda-graphs"] == "8"
    assert all(mapping(on[gpus])["cuda-graphs"] == "0" for gpus in (0, 2))
    assert all(one.settings == on[1].settings for one in on.values())
    yours = trainings("logical_inference", "sut", "gpu", 0, own=(("cuda-graphs", "4"),))[-1]
    assert mapping(yours)["cuda-graphs"] == "4" and yours.settings == on[1].settings


@pytest.mark.parametrize(
    ("dataset", "split", "model", "by", "expected"),
    [
        ("scan", "addprim_jump", "ut", "target_length", {"all": 0}),
        ("scan", "simple", "ut", "target_length", {}),
        ("cfq", "mcd1", "ut_fixed", "query_length", {"all": 71}),
        ("cfq", "mcd1", "sut", "query_length", {}),
        ("ctl", "backward", "geometric_act_ut", "depth", {"all": 44}),
        (
            *("logical_inference", "full", "sut", "operators"),
            {"7": 98, "8": 97, "9": 94, "10": 90, "11": 88, "12": 81},
        ),
        ("logical_inference", "full", "sut", "A", {}),
        ("logical_inference", "A", "transformer", "A", {"yes": 53}),
        ("wmt14", "full", "sut_big", "score", {"compound-split BLEU": 29.4}),
    ],
)
def test_published_numbers(
    dataset: str, split: str, model: str, by: str, expected: dict[str, float]
) -> None:
    """Only beside the same data, split and whole model."""
    experiment = reading.read(dataset)
    data = Data(folder="", dataset=dataset, split=split)
    assert published(experiment, data, "test", model, by) == expected
    assert published(experiment, data, "test", model, by, without="mim") == {}
    limited = Data(folder="", dataset=dataset, split=split, limited=True)
    assert published(experiment, limited, "test", model, by) == {}
    others = replace(data, options=["--sizes 9 9 9 9"])
    assert published(experiment, others, "test", model, by) == {}
    usual = {split: f"{dataset} --sizes 9 9 9 9 --seed 2"}  # as the experiment has them
    assert published(replace(experiment, prepare=usual), others, "test", model, by) == expected
    assert published(reading.read("cogs"), data, "test", model, by) == {}


@pytest.mark.parametrize(
    ("name", "split", "folder"),
    [
        ("arithmetic", None, "arithmetic"),
        ("cogs", None, "cogs"),
        ("cogs", "exposures_30", "cogs-exposures_30"),
        ("matrix/cogs-exposures_30", None, "cogs-exposures_30"),
        ("scan", None, "scan-simple"),
    ],
)
def test_the_folder_of_a_split(name: str, split: str | None, folder: str) -> None:
    assert preparing.folder_of(reading.read(name), split) == Path("data-bin", folder)


@pytest.mark.parametrize(
    ("split", "options", "usual"),
    [
        ("lists", ["--sizes 9 9 9"], True),
        ("lists", [], False),  # the usual options are not those of the file
        ("lists", ["--sizes 9 9 9", "--min-length 3"], False),  # which is of another split
        ("short", ["--sizes 9 9 9", "--min-length 3"], True),
        ("short", ["--sizes 9 9"], False),
        ("generated", ["--min-length 3", "--sizes 9 9 9"], True),  # a name that the file has not
        ("generated", ["--min-length 3"], False),
    ],
)
def test_data_are_prepared_as_the_file_says(split: str, options: list[str], usual: bool) -> None:
    prepare = {
        "lists": "listops --sizes 9 9 9 --seed 2",
        "short": "listops --min-length=3 --sizes 9 9 9 --processes 2",
    }
    experiment = replace(reading.read("listops"), prepare=prepare)
    data = Data(folder="", dataset="listops", split=split, options=options)
    assert is_usual(experiment, data) is usual


def test_text_of_ones_own_has_no_options_in_its_stamp() -> None:
    prepare = {"mine": "parallel_text --train a.src a.tgt --bpe 9 --joined"}
    experiment = replace(reading.read("parallel_text"), prepare=prepare)
    assert is_usual(experiment, Data(folder="data-bin/mine"))


def test_published_numbers_like_training() -> None:
    """Some papers have numbers for sequences like those of training, which `valid` holds."""
    data = Data(folder="", dataset="ctl", split="backward")
    found = {
        subset: published(reading.read("ctl"), data, subset, "lstm", "depth")
        for subset in ("valid", "test", "valid_deep")
    }
    assert found == {"valid": {"all": 59}, "test": {"all": 22}, "valid_deep": {}}


def test_equal_macs() -> None:
    """The Transformer that translation is compared with does the same number of multiplications."""
    sizes = [
        f"{side}-{name}"
        for side in ("encoder", "decoder")
        for name in ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")
    ]
    kept = {*sizes, "attention-head-dim", "attention-experts", "ffn-experts"}
    for size in ("paper", "small"):
        macs = []
        for model in ("sut", "transformer"):
            found = mapping(trainings("multi30k", model, size)[0])
            flags = [f"--{name}={found[name]}" for name in found if name in kept]
            built, task = untrained.build(
                str(found["arch"]), 8000, [*flags, "--share-all-embeddings"], alpha_threshold=None
            )
            batch = untrained.random_batch(built, task, src_len=16, tgt_len=16)
            macs.append(count(built, [batch]).macs)
        assert macs[0] / macs[1] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        (["--out", "x"], "--out"),
        (["--split=length"], "--split"),
        (["--limit", "9", "--cutoff", "24", "--out=x"], "--cutoff and --out"),
    ],
)
def test_what_chooses_the_data_is_refused_after_the_dashes(
    more: list[str], flags: str, tmp_path: Path
) -> None:
    """The command that is printed at the end would name another folder than the one made."""
    cutoffs = reading.read("scan_cutoffs")
    with pytest.raises(InputError, match=f"^after --: scan_cutoffs.yaml .*: leave {flags} out.$"):
        preparing.prepare(cutoffs, None, tmp_path / "out", more, ("false",))
    # It is on the line of the other split.
    with pytest.raises(InputError, match="leave --reverse out"):
        preparing.prepare(reading.read("multi30k"), "en_de", tmp_path, ["--reverse"], ("false",))
    with pytest.raises(InputError, match="failed: it says why above"):
        preparing.prepare(cutoffs, None, tmp_path / "out", ["--limit", "9"], ("false",))


def test_a_quotation_without_an_end(tmp_path: Path) -> None:
    scan = replace(reading.read("scan"), prepare={"mine": "parallel_text --train it's.src a.tgt"})
    with pytest.raises(InputError, match="prepare.mine: parallel_text .*: no closing quotation"):
        preparing.prepare(scan, None, tmp_path / "out", [])
