"""What is evaluated, on which data, and under which name the result is kept."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.cli import _experiment_evaluation, _translation_evaluation, experiment
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import evaluating, provenance, reading, records, results
from sut_fairseq.experiments.evaluating import Asked, read_evaluations
from tests.experiment_runs import EVALUATED, FORWARD, evaluate, run


def test_the_runs_own_data_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result on them is the usual one; on others it is one on other data."""
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        _experiment_evaluation,
        "by_groups",
        lambda run, record, experiment, wanted, macs: asked.append(
            (record.data.folder, wanted.data)
        ),
    )
    for name, word in (("moved", "x 1"), ("other", "y 1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dict.src.txt").write_text(word)
    moved = str(tmp_path / "moved")
    data = replace(provenance.describe_data(Path(moved)), folder=str(tmp_path / "gone"))
    path = run(tmp_path, "ndr", 1, {"all": 90.0}, data=data)
    for folder in (moved, str(tmp_path / "other")):
        assert experiment.main(["evaluate", str(path), "--data", folder]) == 0
    assert asked == [(moved, None), (data.folder, str(tmp_path / "other"))]


def test_sets_that_were_added_to_copies_of_the_data(tmp_path: Path) -> None:
    """The same data for a training, but results on different sets are not put together."""
    folders, both = [], []
    for name, text in (("data", "1"), ("copy", "2")):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "dict.src.txt").write_text("x 1")
        stamp = {"dataset": "ctl", "also": {"news.src": text, "news.tgt": text}}
        (folders[-1] / "prepared.json").write_text(json.dumps(stamp))
        both.append(provenance.describe_data(folders[-1]))
    assert both[0].digest == both[1].digest
    ctl, asked = reading.read("ctl"), Asked(subset="news", by="depth")
    runs = [run(tmp_path, "ndr", seed, {"all": 9.0}, data=both[0]) for seed in (1, 2)]
    for path, data in zip(runs, both):
        (path / "news-by-depth.csv").write_text("group,sentences,percent\nall,5,50\n")
        record = replace(records.read_record(path), data=data)
        evaluating.keep(path, record, ctl, asked, EVALUATED)
    record = records.read_record(runs[0])
    assert [evaluating.is_its_own(record, one, "news") for one in both] == [True, False]
    assert evaluating.is_its_own(record, both[1], "test")
    (group,) = results.collect(runs)
    with pytest.raises(InputError, match="no results on the same `news`"):
        group.on_subset("news")
    evaluating.check_name(runs[0], asked, both[0])
    with pytest.raises(InputError, match="would have the same name"):
        evaluating.check_name(runs[0], asked, both[1])


@pytest.mark.parametrize(("experiment", "checkpoint"), [("ctl", "best"), ("scan_cutoffs", "last")])
def test_the_checkpoint_that_is_evaluated(
    experiment: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "describe_data", lambda _: FORWARD)
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record, file = records.read_record(path), path / f"checkpoints/checkpoint_{checkpoint}.pt"
    for one, remedy in (
        (replace(record, sessions=[]), "train first"),
        (record, "it is trained, so put the file back, or train again with another --out"),
    ):
        with pytest.raises(InputError, match=f"has no checkpoints/{file.name}: {remedy}."):
            evaluating.command(path, one, reading.read(experiment), Asked())
    file.parent.mkdir()
    file.touch()
    line = evaluating.command(path, record, reading.read(experiment), Asked())
    assert line[:2] == ["--path", str(file)] and "--macs" not in line
    assert "--macs" in evaluating.command(path, record, reading.read(experiment), Asked(), True)


@pytest.mark.parametrize("search", [True, False])
def test_an_option_that_sut_evaluate_lacks(
    search: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error of this run alone, and names the file that has it."""
    monkeypatch.setattr(evaluating, "command", lambda *_: ["--path", "x", "--beem", "3"])
    path, ctl = run(tmp_path, "ndr", 1, {"all": 90.0}), reading.read("ctl")
    mine = replace(ctl, evaluation=replace(ctl.evaluation, search_options=["--beem", "3"]))
    where = f"{ctl.path}: evaluation.search_options: " if search else ""
    said = f"{where}unrecognized arguments: --beem 3 (did you mean `--beam`?); see"
    with pytest.raises(InputError, match=f"^{re.escape(said)}"):
        _experiment_evaluation.by_groups(
            path, records.read_record(path), mine, Asked(search=search)
        )


def test_data_that_changed_since_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused, unless they are asked for as other data; older results do not count."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    (path / "test-by-depth.csv").touch()
    record, ctl = records.read_record(path), reading.read("ctl")
    now = replace(FORWARD, digest="d2")
    monkeypatch.setattr(provenance, "describe_data", lambda _: now)
    sentence = r"data-bin/ctl-forward holds other data than at the time of the training: .* --data"
    with pytest.raises(InputError, match=sentence):
        evaluating.command(path, record, ctl, Asked(by="depth"))
    with pytest.raises(InputError, match=sentence):
        evaluating.keep(path, record, ctl, Asked(by="depth"), EVALUATED)
    elsewhere = Asked(data=FORWARD.folder)
    assert "--data" in evaluating.command(path, record, ctl, elsewhere)
    evaluate(path, now, {"all": 99.0}, Asked(by="depth"))
    assert read_evaluations(path, record) == []
    evaluate(path, now, {"all": 99.0}, elsewhere)
    assert [one.asked.plain for one in read_evaluations(path, record)] == [False]


def test_results_on_a_folder_of_the_same_name_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    record, ctl = records.read_record(path), reading.read("ctl")
    first, other = Asked(by="depth", data="a/bin"), Asked(by="depth", data="b/bin")
    folders = {"a/bin": replace(FORWARD, folder="a/bin", digest="d2")}
    folders["b/bin"] = replace(FORWARD, folder="b/bin", digest="d3")
    monkeypatch.setattr(provenance, "describe_data", lambda folder: folders[str(folder)])
    evaluate(path, folders["a/bin"], {"all": 99.0}, first)
    assert evaluating.command(path, record, ctl, first)
    sentence = "on a/bin, and those on b/bin would have the same name: rename one"
    with pytest.raises(InputError, match=sentence):
        evaluating.command(path, record, ctl, other)
    folders["b/bin"] = replace(folders["a/bin"], folder="b/bin")  # a copy: the same results
    assert evaluating.command(path, record, ctl, other)


def test_a_folder_whose_name_is_a_word_of_other_results(tmp_path: Path) -> None:
    """Those on the data of a folder `search` are not replaced by those of --search."""
    path, own = run(tmp_path, "ndr", 1, {"all": 90.0}), Asked(by="depth", search=True)
    on_other = Asked(by="depth", data="a/search")
    assert own.name() == on_other.name()
    evaluate(path, replace(FORWARD, folder="a/search", digest="d2"), {"all": 9.0}, on_other)
    with pytest.raises(InputError, match="would have the same name: rename one of the folders"):
        evaluating.check_name(path, own, FORWARD)


@pytest.mark.parametrize("content", ["[]", '{"data": "x"}', '{"data": [1]}', "null"])
def test_damaged_results_of_translations(content: str, tmp_path: Path) -> None:
    """They may be on other data, so nothing replaces them."""
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(InputError, match="results.json is damaged .*: remove it."):
        _translation_evaluation._check_out(tmp_path, Path("data-bin"), {"digest": "d"})
    path.write_text('{"data": null}')  # of a version that did not note them
    _translation_evaluation._check_out(tmp_path, Path("data-bin"), {"digest": "d"})


def test_translations_are_in_utf_8_whatever_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = "H-0\t-0.5\tžluťoučký\u2028\rkůň\n"
    line = [sys.executable, "-c", f"print({printed!r}, end='')"]
    monkeypatch.setattr(_translation_evaluation, "program", lambda name: line)
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")  # as in a locale that lacks these letters
    options = _translation_evaluation.Options(
        subset="test", best=1, log=None, beam=1, lenpen=0.0, alpha_threshold=None, max_tokens=9,
        cpu=True,
    )  # fmt: skip
    generated = tmp_path / "generated.txt"
    _translation_evaluation._generate(
        tmp_path, tmp_path / "average.pt", generated, tmp_path / "log", options, 1
    )
    assert generated.read_bytes().decode() == printed


@pytest.fixture
def translations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, Any]]:
    """Folder and options of every call that would translate; all scores are 30."""
    asked: list[tuple[Path | None, Any]] = []

    def translate(data: Path, checkpoints: Path, out: Path | None, options: Any, say: Any) -> Any:
        asked.append((out, options))
        return {"scores": dict.fromkeys(_translation_evaluation.SCORES.values(), 30.0)}

    monkeypatch.setattr(_translation_evaluation, "evaluate", translate)
    return asked


def of_translation(folder: Path) -> Path:
    """The folder of a run of Multi30k that was not evaluated."""
    path = run(folder, "sut", 1, {})
    (path / "test-by-depth.evaluation.json").unlink()
    records.write_record(path, replace(records.read_record(path), experiment="multi30k"))
    return path


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("", (5, 8, 0.4, 4096)),
        ("--max-tokens 99", (5, 8, 0.4, 99)),
        ("--best 2", (2, 8, 0.4, 4096)),
        ("--beam 3", (5, 3, 0.4, 4096)),
        ("--lenpen 0", (5, 8, 0.0, 4096)),
    ],
)
def test_how_a_run_translates(
    words: str,
    made: tuple[float, ...],
    translations: list[tuple[Path | None, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As its experiment says; the scores of another search are not those of the run."""
    monkeypatch.setattr(provenance, "describe_data", lambda _: FORWARD)
    path = of_translation(tmp_path)
    assert experiment.main(["evaluate", str(path), *words.split()]) == 0
    ((out, options),) = translations
    assert out is None
    assert (options.best, options.beam, options.lenpen, options.max_tokens) == made
    kept = [one.values() for one in read_evaluations(path, records.read_record(path))]
    scores = dict.fromkeys(_translation_evaluation.SCORES, 30.0)
    assert kept == ([scores] if made[:3] == (5, 8, 0.4) else [])


def test_translations_of_other_data_are_beside_those_of_the_runs_own(
    translations: list[tuple[Path | None, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(FORWARD, folder=str(tmp_path / "news"), digest="d2")
    monkeypatch.setattr(provenance, "describe_data", lambda _: other)
    path = of_translation(tmp_path)
    assert experiment.main(["evaluate", str(path), "--data", other.folder]) == 0
    ((out, options),) = translations
    assert out == path / "checkpoints" / f"evaluation-{options.name()}-news"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (Asked(by="depth"), "test-by-depth"),
        (Asked(thresholds=list(evaluating.THRESHOLDS)), "test-thresholds"),
        (Asked(thresholds=[0.5, 0.12345678]), "test-thresholds-0.5-0.12345678"),
        (Asked(subset="valid", alpha_threshold=0.8, search=True), "valid-0.8-search"),
        (Asked(steps=8, max_sentences=9, data="x/other"), "test-8-steps-first-9-other"),
    ],
)
def test_names_of_evaluations(asked: Asked, name: str) -> None:
    """Each has files of its own, so none replaces another."""
    assert asked.name() == name


@pytest.mark.parametrize(
    ("experiment", "asked", "options"),
    [
        ("ctl", Asked(by="depth"), "--by depth --bins all --published all=100"),
        ("ctl", Asked(alpha_threshold=0.12345678), "--thresholds 0.12345678 --published all=100"),
        ("ctl", Asked(thresholds=[0.5], search=True), "--thresholds 0.5 --modes reference search"),
        ("ctl", Asked(steps=9), "--model-overrides {'encoder_layers': 9}"),
        ("ctl", Asked(max_sentences=9), "--max-sentences 9"),
        (
            "multi30k",
            Asked(thresholds=[0.5], search=True),
            "--thresholds 0.5 --modes search --bleu",
        ),
    ],
)
def test_options_of_an_evaluation(
    experiment: str, asked: Asked, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's number is given unless other steps, fewer sentences or a sweep are asked for."""
    monkeypatch.setattr(provenance, "describe_data", lambda _: FORWARD)
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    line = evaluating.command(path, records.read_record(path), reading.read(experiment), asked)
    after_data = line.index("--data") + 2
    assert " ".join(line[after_data : line.index("--csv")]) == options
    assert line[line.index("--csv") :] == [
        *("--csv", str(path / f"{asked.name()}.csv")),
        *("--plot", str(path / f"{asked.name()}.png")),
    ]


@pytest.mark.parametrize("modes", [["reference"], ["reference", "search"]])
def test_values_of_a_sweep(modes: list[str], tmp_path: Path) -> None:
    """Those of the whole set; the mode is named if there are several."""
    (found,) = read_evaluations(
        path := run(tmp_path, "ndr", 1, {"all": 90.0}), records.read_record(path)
    )
    rows = [
        dict(mode=mode, alpha_threshold=threshold, group=group, percent=percent)
        for mode in modes
        for threshold, group, percent in (("0.5", "all", "2"), ("0.5", "7", "1"))
    ]
    sweep = replace(found, asked=Asked(thresholds=[0.5]), rows=rows)
    keys = ["0.5"] if len(modes) == 1 else ["reference 0.5", "search 0.5"]
    assert sweep.values() == dict.fromkeys(keys, 2.0)


def test_an_evaluation_at_the_end_of_training_counts(tmp_path: Path) -> None:
    """Times have seconds; one that began in the second in which training ended is of its end."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    ends = {EVALUATED: 1, EVALUATED.replace("10:01:00", "10:01:01"): 0}
    for end, number in ends.items():
        ended = replace(record, sessions=[replace(record.sessions[0], ended=end)])
        assert len(read_evaluations(path, ended)) == number
