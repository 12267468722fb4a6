"""Files of experiments: what is refused, how settings are merged, what ours say."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq import experiments
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import reading
from sut_fairseq.experiments.commands import read_words, words
from sut_fairseq.experiments.formulas import evaluate
from sut_fairseq.experiments.schema import (
    Ablation,
    Claim,
    Document,
    Evaluation,
    Published,
    Settings,
    Size,
    Stage,
    Summary,
)
from sut_fairseq.experiments.settings import Choice, Origin, compose, described_size, stages

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


def test_a_file_of_the_same_name_as_ours(tmp_path: Path) -> None:
    """A copy can build on what it is named after, and two files of one name are told apart."""
    mine = tmp_path / "scan.yaml"
    mine.write_text("extends: scan\nsettings: {patience: 7}\n")
    (tmp_path / "other").mkdir()
    path = tmp_path / "other" / "scan.yaml"
    path.write_text(f"extends: {tmp_path / 'scan'}\nsettings: {{update-freq: 3}}\n")
    choice = Choice("ut", "small")
    one = compose(reading.read(str(mine)), choice)
    assert (one["patience"].value, one["patience"].place) == (7, f"{mine}: settings")
    assert one["max-update"].place == "scan: sizes.small.settings"
    two = compose(reading.read(str(path)), choice)
    assert two["patience"] == one["patience"]
    assert two["update-freq"].place == f"{path}: settings"


def test_a_size_like_another(tmp_path: Path) -> None:
    """It has the models, stages and both levels of settings of the other, unless it has its own."""
    (tmp_path / "base.yaml").write_text(
        yaml.safe_dump({"sizes": {"one": {"settings": {"u": "base", "v": "base"}}}})
    )
    stage = {"name": "first", "settings": {"max-update": 3}}
    path = write(
        tmp_path,
        extends="base",
        sizes={
            "one": {
                "models": ["a"],
                "settings": {"v": "one", "w": "one", "x": "one"},
                "model_settings": {"a": {"w": "one of a", "x": "one of a"}},
                "stages": [stage],
            },
            "two": {"like": "one", "settings": {"x": "two"}},
            "three": {"like": "two", "models": ["b"], "stages": []},
        },
    )
    found = options_of(path, size="two")
    assert found == {"u": "base", "v": "one", "w": "one of a", "x": "two"}
    assert options_of(path, "b", "three") == {"u": "base", "v": "one", "w": "one", "x": "two"}
    experiment = reading.read(str(path))
    assert [one and one.name for one in stages(experiment, Choice("a", "two"))] == ["first", None]
    assert stages(experiment, Choice("b", "three")) == [None]
    with pytest.raises(InputError, match="in size two has the models a, not `b`"):
        options_of(path, "b", "two")


def test_what_a_file_leaves_out_of_a_size(tmp_path: Path) -> None:
    """The file that it extends gives it; what it has itself is its own, an empty list too."""
    base = {
        "about": "base",
        "models": ["a"],
        "stages": [{"name": "first", "settings": {"max-update": 3}}],
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"sizes": {"one": base}}))
    path = write(tmp_path, extends="base")
    size = reading.read(str(path)).sizes["one"]
    assert (size.about, size.models) == ("base", ["a"])
    assert [stage.name for stage in size.stages or ()] == ["first"]
    own = {"one": {"about": "own", "models": ["b"], "stages": []}}
    size = reading.read(str(write(tmp_path, extends="base", sizes=own))).sizes["one"]
    assert (size.about, size.models, size.stages) == ("own", ["b"], [])


def test_a_file_beside_it_comes_before_ours(tmp_path: Path) -> None:
    (tmp_path / "_common.yaml").write_text("settings: {patience: 7}\n")
    assert options_of(write(tmp_path, extends="_common")) == {"patience": 7}


def test_a_size_tells_its_lengths(tmp_path: Path) -> None:
    """Those of the file, or of a run's trainings; a size limited by epochs has none to tell."""
    stage = {"name": "short", "settings": {"max-update": "= updates // 2"}}
    told = {"about": "{short}, then {updates} updates", "stages": [stage]}
    experiment = reading.read(
        str(write(tmp_path, settings={"max-update": 5000}, sizes={"one": told}))
    )
    assert described_size(experiment, "one") == "2,500, then 5,000 updates"
    size = experiment.sizes["one"]
    trained: dict[str, Settings] = {"short": {"max-update": "40"}, "": {"max-update": 80}}
    assert size.described(trained) == "40, then 80 updates"
    assert size.described({"": {"max-epoch": 3}}) == size.about


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"one": {"like": "two"}}, "sizes.one.like` must be one of one, but is two instead"),
        ({"one": {"like": "one"}}, "sizes: a size is like itself: one -> one."),
        (
            {"one": {"about": "{steps} updates"}},
            "sizes.one.about: a name in braces` must be one of updates, but is steps instead.",
        ),
        (
            {"one": {"like": "two"}, "two": {"like": "one"}},
            "sizes: a size is like itself: one -> two -> one.",
        ),
    ],
)
def test_sizes_that_cannot_be(sizes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        reading.read(str(write(tmp_path, sizes=sizes)))
    assert sentence in str(caught.value)


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


def test_a_length_that_is_a_formula(tmp_path: Path) -> None:
    """Other formulas use its value; a stage that leaves it alone is not its origin."""
    path = write(
        tmp_path,
        settings={"max-update": "= min(updates, 40) // devices", "total": "= updates"},
        sizes={"one": {"stages": [{"name": "s", "settings": {"half": "= updates // 2"}}]}},
    )
    experiment, choice = reading.read(str(path)), Choice("a", "one")
    stage, _ = stages(experiment, choice)
    for one, half in ((stage, 10), (None, None)):
        found = compose(experiment, choice, one, gpus=2)
        assert found["max-update"] == Origin(20, "mine: settings")
        assert found["total"].value == 20
        assert half is None or found["half"].value == half


def test_a_length_of_no_update_is_refused(tmp_path: Path) -> None:
    """fairseq-train takes 0 for no limit: such a training would never end."""
    stage = {"name": "s", "settings": {"max-update": "= updates // 2"}}
    path = write(tmp_path, settings={"max-update": 9}, sizes={"one": {"stages": [stage]}})
    experiment, choice = reading.read(str(path)), Choice("a", "one", updates=1)
    first, last = stages(experiment, choice)
    assert compose(experiment, choice, last)["max-update"].value == 1
    with pytest.raises(InputError, match="stage s: max-update: `= updates // 2` is 0, but a train"):
        compose(experiment, choice, first)
    unlimited = write(tmp_path, "unlimited", settings={"max-update": 0, "max-epoch": 3})
    assert options_of(unlimited) == {"max-update": 0, "max-epoch": 3}


@pytest.mark.parametrize("name", [*reading.known(), *reading.columns(), "example"])
def test_ours_can_be_tried_with_one_update(name: str) -> None:
    experiment = reading.read(name)
    for size, about in experiment.sizes.items():
        for model in about.models or experiment.models:
            choice = Choice(model, size, updates=1)
            for stage in stages(experiment, choice):
                assert compose(experiment, choice, stage)["max-update"].value in (1, 2)


@pytest.mark.parametrize("name", reading.known())
def test_each_model_has_the_size_that_ours_tell(name: str) -> None:
    """No model of `states of 128 and 12 steps` is left at the values of another size."""
    experiment = reading.read(name)
    for size, about in experiment.sizes.items():
        for phrase, option in (("states of {}", "embed-dim"), ("{} steps", "layers")):
            told = re.search(phrase.format(r"(\d+)"), about.about)
            for model in (about.models or experiment.models) if told else ():
                settings = compose(experiment, Choice(model, size))
                given = settings.get(f"encoder-{option}")
                assert given is None or given.value == int(told[1]), (size, model, option)


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("= updates +", "is not a formula"),
        ("= updates / 2", "is 3.5, not a whole number; round it with // or ceil()"),
        ("= __import__('os')", "cannot stand in a formula: use numbers, updates, devices"),
        ("= updates // 0", "is not a formula"),
        ("= " + 400 * "9", "is not a formula: int too large to convert to float."),
        ("= nothing", "`nothing` cannot stand in a formula"),
        ("= max()", "is not a formula"),
        ("= " + 5000 * "1 + " + "1", "1 + ...` is nested too deeply: shorten it"),
        ("= " + 2000 * "-" + "1", "is nested too deeply"),
        ("= " + 100_000 * "-" + "1", "is nested too deeply"),
        ("= limit // 3", "needs the number of updates: set max-update, or give --updates"),
        ("= ceil(limit / 3)", "needs the number of updates: set max-update, or give --updates"),
        ("= ceil(limit // 3)", "needs the number of updates: set max-update, or give --updates"),
    ],
)
def test_bad_formulas(formula: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(formula, {"updates": 7, "devices": 1, "limit": math.inf})
    assert sentence in str(caught.value)


def test_numbers_of_a_model_that_there_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, published=[{"table": "Table 1", "numbers": {"a": 1, "other": 2}}])
    with pytest.raises(InputError, match=r"published: Table 1: model` must be one of .* is other"):
        reading.read(str(path))


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
        ("time: 2026-02-30", "cannot be read as a YAML file: day is out of range for month."),
        ("- a", "must be a mapping, but is ['a'] instead."),
        ("published: [{split: x, numbers: {}}]", "published.0 needs the key `table`."),
        (
            "published: [{table: x, numbers: {sut: {yes: 1}}}]",
            "YAML reads this key as True; put it into quotes.",
        ),
        ("extends: _comon", "there is no file _comon.yaml (did you mean `_common`?)"),
        ("extends: mine", "extends itself: mine -> mine."),
        ("shows: x\nmetric: y\nsizes: {one: {}}", "needs the key `models`."),
        ("[" * 200_000, "is nested too deeply"),
        ("shows: &it [*it]", "an anchor (&) stands for a value that holds it."),
        ("shows: x\nmodels: {}\nsizes: {one: {}}", "needs the key `models`, with at least one"),
        *(
            (
                f"shows: x\nmodels: {{a: b}}\nsizes: {{one: {{stages: [{stages}]}}}}",
                "sizes.one.stages: a stage cannot be called",
            )
            for stages in ("{name: x}, {name: x}", "{name: ''}", "{name: ../x}")
        ),
        (
            "shows: x\nmetric: y\nmodels: {a: b}\nsizes: {one: {}}\nevaluation: {checkpoint: lats}",
            "evaluation.checkpoint` must be one of best, last, but is lats",
        ),
        (
            "shows: x\nmetric: y\nmodels: {a: b}\nsizes: {one: {}}\n"
            "evaluation: {kind: translation, checkpoint: last}",
            "evaluation.checkpoint must be best for `kind` translation, which averages the best",
        ),
        *(
            (
                "shows: x\nmetric: y\nmodels: {a: b}\nsizes: {one: {}}\n"
                f"evaluation: {{kind: translation, {key}: {value}}}",
                f"evaluation.{key}` must be {allowed}, but is {value} instead.",
            )
            for key, value, allowed in (
                ("best", "0", "at least 1"),
                ("beam", "-2", "at least 1"),
                ("lenpen", "10.5", "between -10 and 10"),
                ("lenpen", "-10.5", "between -10 and 10"),
            )
        ),
        (
            "shows: x\nmetric: y\nmodels: {a: b}\nsizes: {one: {}}\nevaluation: {lenpen: .nan}",
            "line 5: evaluation.lenpen must be a number, but is nan instead.",
        ),
        (
            "extends: contextual_retrieval\nevaluation: {checkpoint: last}",
            "evaluation.kind must be regression for data that `generate` draws, but is groups",
        ),
        (
            "extends: scan\nevaluation: {kind: regression}",
            "evaluation.kind must not be regression without `generate`: only drawn data have",
        ),
        (
            "shows: x\nmetric: y\nmodels: {a: b}\nsizes: {one: {}}\n"
            "summaries: [{title: t, splits: [s]}]",
            "summaries: t: the file does not say how to make any data: list its splits under",
        ),
        (
            "extends: scan\nclaims: [{shows: x, model: ut, bar: 1, steps: 0}]",
            "claims: x: steps` must be at least 1, but is 0 instead.",
        ),
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
        ({"settings": {"clip norm": 1}}, Choice("a", "one"), "spelt like `clip-norm`, not `clip "),
        ({"settings": {"größe": 1}}, Choice("a", "one"), "spelt like `max-update`, not `größe`"),
        (
            {"settings": {"seed": 5}},
            Choice("a", "one"),
            "settings: leave --seed out: --seeds",
        ),
        (
            {"settings": {"restore-file": "x.pt"}},
            Choice("a", "one"),
            "settings: leave --restore-file out: each call would start",
        ),
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
    for bad, sentence in (
        (["5"], "`5` belongs to no option"),
        (["--lr", "1", "2"], "one value"),
        (["--seed", "5"], "after --: leave --seed out: --seeds gives"),
        (["--seed=5"], "after --: leave --seed out: --seeds gives"),
        (["--save-dir=x"], "after --: leave --save-dir out: "),
        (["--restore-file", "x.pt"], "after --: leave --restore-file out: each call would start"),
        (["--reset-optimizer"], "after --: leave --reset-optimizer out: each call would count"),
        (["--reset-dataloader"], "after --: leave --reset-dataloader out: each call would begin"),
        (["--reset-meters"], "after --: leave --reset-meters out: each call would forget"),
    ):
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
        (Claim, content["claims"][0]),
        (Summary, content["summaries"][0]),
    ):
        assert {one.name for one in fields(kind)} == part.keys()
    assert text in (repository / "docs" / "experiments.md").read_text()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"models": ["c"]}, "summaries: Table 1: model` must be one of a, b, but is c instead"),
        ({"splits": ["z"]}, "summaries: Table 1: split` must be one of x, y, but is z instead"),
        ({"measure": "bleu"}, "must be one of percent, before_eos, attention_loss, "),
        ({"mean": True}, "unknown key"),
        ({"size": "huge"}, "summaries: Table 1: size` must be "),
        ({"splits": []}, "summaries: Table 1: splits` must be at least one"),
        ({"title": "Curves"}, "must be unlike those of other pictures and tables"),
        (
            {"by_split": True, "of_split": {"y": "all"}},
            "summaries: Table 1: of_split` must be one of x, but is y",
        ),
        ({"of_split": {"x": "all"}}, "of_split` must be left out without `by_split: true`"),
        (
            {"by_split": True, "mean_of_splits": True},
            "mean_of_splits` must be left out with `by_split: true`, but is given instead",
        ),
        (
            {"by_split": True, "numbers": {"a": {"x": 1}}},
            "numbers` must be left out with `by_split: true`, but is given instead",
        ),
        (
            {"numbers": {"c": {"9": 1}}},
            "summaries: Table 1: numbers` must be one of a, b, but is c",
        ),
        (
            {"splits": ["x", "y"], "numbers": {"a": {"9": 1}}},
            "numbers` must be one of a (x), a (y), b (x), b (y), but is a",
        ),
    ],
)
def test_a_summary_of_what_there_is_not_is_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    summary = {"title": "Table 1", "splits": ["x"]}
    keys = {"prepare": {"x": "scan", "y": "scan"}}
    assert reading.read(str(write(tmp_path, summaries=[summary], **keys))).summaries[0].splits == [
        "x"
    ]
    path = write(tmp_path, "bad", summaries=[{**summary, **changed}], **keys)
    with pytest.raises(InputError, match="^[^\n]*$") as caught:
        reading.read(str(path))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("key", "entry", "label"),
    [
        ("published", {"table": "Table 9", "numbers": {"a": 1}, "split": "lenght"}, "Table 9"),
        ("claims", {"shows": "reach", "model": "a", "bar": 1, "splits": ["lenght"]}, "reach"),
    ],
)
def test_papers_numbers_of_data_that_there_are_not(
    tmp_path: Path, key: str, entry: dict[str, Any], label: str
) -> None:
    path = write(tmp_path, **{key: [entry]}, prepare={"length": "scan", "simple": "scan"})
    sentence = f": {key}: {label}: split` must be one of length, simple, but is lenght"
    with pytest.raises(InputError, match=re.escape(sentence)):
        reading.read(str(path))
    # Without names of their own, data have those that `sut-prepare` gives them.
    unnamed = write(tmp_path, "unnamed", **{key: [entry]}, prepare={"default": "scan"})
    assert getattr(reading.read(str(unnamed)), key)


def test_two_summaries_with_one_file(tmp_path: Path) -> None:
    both = [{"title": title, "splits": ["x"]} for title in ("Table 1 (a)", "Table 1, a")]
    path = write(tmp_path, summaries=both, prepare={"x": "scan"})
    with pytest.raises(InputError, match="Table 1 \\(a\\): title` must be unlike those of other"):
        reading.read(str(path))


def test_the_map_of_the_package_names_every_module() -> None:
    modules = {path.stem for path in reading.FOLDER.glob("*.py")} - {"__init__"}
    assert modules == {*re.findall(r"`(\w+)`", experiments.__doc__ or "")} - {"matrix"}
