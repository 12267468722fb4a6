"""Files of experiments: what is refused, how settings are merged, what ours say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from fairseq import options

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import reading
from sut_fairseq.experiments.commands import Machine, Training, plan, read_words, words
from sut_fairseq.experiments.formulas import evaluate
from sut_fairseq.experiments.published import published
from sut_fairseq.experiments.records import Data
from sut_fairseq.experiments.schema import (
    Ablation,
    Document,
    Evaluation,
    Experiment,
    Published,
    Size,
    Stage,
)
from sut_fairseq.experiments.settings import Choice, compose, stages

SMALLEST: dict[str, Any] = {
    "shows": "nothing",
    "models": {"a": "", "b": ""},
    "sizes": {"one": {}},
    "metric": "exact_match",
}


def write(folder: Path, name: str = "mine", **keys: Any) -> Path:
    """A file of an experiment that has what it must have, and these keys."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**SMALLEST, **keys}, sort_keys=False))
    return path


def options_of(path: Path, model: str = "a", size: str = "one", **more: Any) -> dict[str, Any]:
    """Options of the last training, as the file gives them."""
    composed = compose(reading.read(str(path)), Choice(model, size, **more))
    return {name: origin.value for name, origin in composed.items()}


def trainings(
    name: str, model: str, size: str, gpus: int = 1, updates: int | None = None, **more: Any
) -> list[Training]:
    choice = Choice(model, size, updates=updates, **more)
    return plan(reading.read(name), choice, 3, Path("data"), Path("run"), Machine(gpus))


def mapping(training: Training) -> dict[str, str | bool]:
    """Options of a command with their values, as its last words have them."""
    found: dict[str, str | bool] = {}
    name = ""
    for word in training.command()[2:]:
        if word.startswith("--"):
            name = word[2:]
            found[name] = True
        else:
            found[name] = word
    return found


def test_merge_rules(tmp_path: Path) -> None:
    """Specific levels win; on one level a file wins over those that it extends."""
    (tmp_path / "base.yaml").write_text(
        yaml.safe_dump(
            {
                "settings": {"x": "base", "y": "base", "z": "base", "kept": True},
                "model_settings": {"a": {"y": "base of a"}, "elsewhere": {"x": "not ours"}},
                "sizes": {"one": {"settings": {"z": "base of size"}}},
            }
        )
    )
    path = write(
        tmp_path,
        extends="base",
        settings={"x": "own", "y": "own", "z": "own", "gone": 1},
        sizes={
            "one": {
                "settings": {"gone": None, "w": "size"},
                "model_settings": {"a b": {"w": "rows"}, "*": {"v": 0}},
                "stages": [{"name": "first", "settings": {"max-update": "= updates // 2"}}],
            }
        },
        ablations={"part": {"settings": {"w": "ablation"}, "models": ["a"]}},
    )
    common = {"x": "own", "z": "base of size", "kept": True, "v": 0}
    assert options_of(path) == {**common, "y": "base of a", "w": "rows"}
    assert options_of(path, "b") == {**common, "y": "own", "w": "rows"}
    assert options_of(path, without="part")["w"] == "ablation"
    own = (("w", "mine"), ("kept", False))
    changed = options_of(path, updates=7, own=own)
    assert changed["w"] == "mine" and "kept" not in changed and changed["max-update"] == 7
    origin = compose(reading.read(str(path)), Choice("a", "one"))["y"]
    assert origin.place == "base: model_settings.a"


def test_stages_and_formulas(tmp_path: Path) -> None:
    """`updates` are those of the training at hand, but in max-update of a stage."""
    path = write(
        tmp_path,
        settings={"max-update": 9, "total": "= updates", "every": "= min(1000, updates - 1)"},
        sizes={
            "one": {"stages": [{"name": "s", "settings": {"max-update": "=ceil(updates / 2)"}}]}
        },
    )
    experiment = reading.read(str(path))
    for updates, lengths in ((None, (5, 9)), (100, (50, 100))):
        choice = Choice("a", "one", updates=updates)
        for stage, length in zip(stages(experiment, choice), lengths):
            found = compose(experiment, choice, stage)
            assert found["max-update"].value == found["total"].value == length
            assert found["every"].value == length - 1


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("= updates +", "is not a formula"),
        ("= updates / 2", "is 3.5, not a whole number; round it with // or ceil()"),
        ("= __import__('os')", "cannot stand in a formula: use numbers, updates, devices"),
        ("= updates // 0", "is not a formula"),
        ("= nothing", "`nothing` cannot stand in a formula"),
        ("= max()", "is not a formula"),
    ],
)
def test_bad_formulas(formula: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(formula, {"updates": 7, "devices": 1})
    assert sentence in str(caught.value)


def test_a_length_that_nobody_gave(tmp_path: Path) -> None:
    path = write(tmp_path, settings={"total": "= updates"})
    with pytest.raises(InputError, match=r"mine: settings: total: .* set max-update"):
        options_of(path)
    assert options_of(path, updates=5)["total"] == 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("setings: {}", "line 1: setings is an unknown key (did you mean `settings`?); there are"),
        (
            "sizes:\n  one:\n    model_setings: {}",
            "line 3: sizes.one.model_setings is an unknown key (did you mean `model_settings`?)",
        ),
        ("settings: {lr: [1]}", "line 1: settings.lr must be text, a whole number, a number, true"),
        ("models: some", "line 1: models must be a mapping, but is 'some' instead."),
        (
            "evaluation: {beam: many}",
            "line 1: evaluation.beam must be a whole number, but is 'many' instead.",
        ),
        ("shows: [1]", "line 1: shows must be text, but is [1] instead."),
        ("metric: a\nshows: b\nmetric: c", "line 3: the key `metric` is there twice (first in li"),
        ("a: b: c", "cannot be read as a YAML file"),
        ("- a", "must be a mapping, but is ['a'] instead."),
        ("published: [{split: x, numbers: {}}]", "published.0 needs the key `table`."),
        (
            "published: [{table: x, numbers: {sut: {yes: 1}}}]",
            "YAML reads this key as True; put it into quotes.",
        ),
        ("extends: _comon", "there is no file _comon.yaml (did you mean `_common`?)"),
        ("extends: mine", "extends itself: mine -> mine."),
        ("shows: x\nmetric: y\nsizes: {one: {}}", "needs the key `models`."),
    ],
)
def test_bad_files(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        reading.read(str(path))
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "choice", "sentence"),
    [
        ({}, Choice("c", "one"), "mine has the models a, b, not `c`."),
        ({}, Choice("a", "two"), "mine has the sizes one, not `two`."),
        ({"sizes": {"one": {"models": ["b"]}}}, Choice("a", "one"), "size one has the models b, n"),
        ({}, Choice("a", "one", "halting"), "mine has no parts that --without could leave out."),
        (
            {"ablations": {"halting": {}}},
            Choice("a", "one", "haltin"),
            "--without takes halting, not `haltin` (did you mean `halting`?).",
        ),
        (
            {"model_settings": {"a": {"x": 1}, "a b": {"x": 2}}},
            Choice("a", "one"),
            "the rows `a` and `a b` give a different values of x, 1 and 2: let only one of them.",
        ),
        (
            {"model_settings": {"aa": {"x": 1}}},
            Choice("a", "one"),
            "model_settings: there is no model `aa` (did you mean `a`?).",
        ),
        ({"settings": {"max_update": 1}}, Choice("a", "one"), "spelt like `max-update`, not `max_"),
    ],
)
def test_bad_choices(keys: Any, choice: Choice, sentence: str, tmp_path: Path) -> None:
    experiment = reading.read(str(write(tmp_path, **keys)))
    with pytest.raises(InputError) as caught:
        compose(experiment, choice)
    assert sentence in str(caught.value)


def test_names_of_experiments() -> None:
    with pytest.raises(InputError, match=r"no experiment `sacn` \(did you mean `scan`\?\)"):
        reading.read("sacn")
    assert not {"example", "_common"} & set(reading.known())


def test_a_users_own_options() -> None:
    line = ["--lr", "0.5", "--fp16", "--max-tokens=9", "--", "--adam-betas", "(0.9, 0.98)"]
    own = read_words(line)
    assert dict(own) == {
        "lr": "0.5",
        "fp16": True,
        "max-tokens": "9",
        "adam-betas": "(0.9, 0.98)",
    }
    assert words(dict(own)) == [
        *("--lr", "0.5", "--fp16", "--max-tokens", "9"),
        *("--adam-betas", "(0.9, 0.98)"),
    ]
    for bad, sentence in ((["5"], "`5` belongs to no option"), (["--lr", "1", "2"], "one value")):
        with pytest.raises(InputError, match=sentence):
            read_words(bad)


def test_the_example_has_every_key(repository: Path) -> None:
    """It is what users learn the keys from; the page of the experiments shows it as it is."""
    text = (reading.FOLDER / "example.yaml").read_text()
    content = yaml.safe_load(text)
    for kind, part in (
        (Document, content),
        (Size, {**content["sizes"]["small"], **content["sizes"]["tiny"]}),
        (Stage, content["sizes"]["tiny"]["stages"][0]),
        (Ablation, content["ablations"]["halting"]),
        (Evaluation, content["evaluation"]),
        (Published, content["published"][0] | content["published"][1]),
    ):
        assert {one.name for one in fields(kind)} == part.keys()
    assert text in (repository / "docs" / "experiments.md").read_text()


EVERY = [
    (name, model, size)
    for name in [*reading.known(), "example"]
    for one in [reading.read(name)]
    for size in one.sizes
    for model in one.sizes[size].models or one.models
]


@pytest.mark.parametrize("name", [*reading.known(), "example"])
def test_every_model_and_size(name: str) -> None:
    """Each is a command that fairseq understands, with a model of the promised kind."""
    experiment: Experiment = reading.read(name)
    assert list(experiment.sizes)[0] == ("small" if name == "example" else "paper")
    for _, model, size in [one for one in EVERY if one[0] == name]:
        for training in trainings(name, model, size):
            parsed = options.parse_args_and_arch(
                options.get_training_parser(), training.command()[1:]
            )
            assert ("transformer" in parsed.arch) == model.startswith("transformer")
            assert (parsed.task, parsed.seed) == (experiment.task, 3)
            assert parsed.best_checkpoint_metric == experiment.metric
            assert parsed.maximize_best_checkpoint_metric == (experiment.metric != "nll_loss")


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
            {**ROUTER, "arch": "ndr_ctl_geometric", "encoder-halting": "act-ut", "lr": "1.5e-4"}
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
    first, second, last = trainings("listops_dependency", "ndr", "small", updates=9)
    for training, folder, limit, longest in (
        (first, "run/up-to-7", "15", "9"),
        (second, "run/up-to-14", "30", "16"),
    ):
        found = mapping(training)
        assert found["save-dir"] == f"{folder}/checkpoints"
        assert found["max-update"] == found["hold-steps"] == limit
        assert (found["max-source-positions"], found["valid-subset"]) == (longest, "valid")
        assert found["decay-steps"] == "1" and found["balance-lengths"] is True
    assert "finetune-from-model" not in mapping(first)
    assert mapping(second)["finetune-from-model"] == "run/up-to-7/checkpoints/checkpoint_last.pt"
    found = mapping(last)
    assert found["finetune-from-model"] == "run/up-to-14/checkpoints/checkpoint_last.pt"
    assert (found["max-update"], found["valid-subset"]) == ("9", "valid_deep,valid")
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
    """Only beside the same data, split and model."""
    experiment = reading.read(dataset)
    data = Data(folder="", dataset=dataset, split=split)
    assert published(experiment, data, "test", model, by) == expected
    limited = Data(folder="", dataset=dataset, split=split, limited=True)
    assert published(experiment, limited, "test", model, by) == {}
    assert published(reading.read("cogs"), data, "test", model, by) == {}


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
    from sut_fairseq.analysis import untrained
    from sut_fairseq.analysis.complexity import count

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
