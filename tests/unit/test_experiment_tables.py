"""Tables made of the records of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import records, report, results
from sut_fairseq.experiments.evaluating import Asked, read_evaluations, write
from sut_fairseq.experiments.provenance import Data
from tests.experiment_runs import FORWARD, evaluate, run


def lines(rows: list[dict[str, str]]) -> list[str]:
    return [" ".join(" ".join(row.values()).split()) for row in rows]


def test_seeds_of_the_same_settings_are_put_together(tmp_path: Path) -> None:
    """Neither other models, nor other lengths, nor other data are mixed in."""
    other = Data(folder="elsewhere", dataset="ctl", split="backward", digest="d2")
    runs = [
        run(tmp_path, "ndr", 2, {"9": 96, "all": 98}),
        run(tmp_path, "rel", 1, {"9": 10, "all": 20}),
        run(tmp_path, "ndr", 1, {"9": 100, "all": 100}),
        run(tmp_path, "ndr", 1, {"9": 90, "all": 97}, updates=9),
        run(tmp_path, "ndr", 3, {"9": 1, "all": 2}, data=other),
    ]
    # Results of other settings, which are not asked for.
    evaluate(runs[0], FORWARD, {"all": 7}, Asked(by="depth", steps=6))
    groups = results.collect(runs)
    assert lines(results.table(groups, [], by_group=False)) == [
        "ctl forward ndr small 5 updates test all percent ndr-1-5 1 2 100.00 98.00 99.00 1.41 100",
        "ctl forward rel small 5 updates test all percent rel-1-5 1 20.00 20.00 23",
        "ctl forward ndr small 9 updates test all percent ndr-1-9 1 97.00 97.00 100",
        "ctl backward ndr small 5 updates test all percent ndr-3-5 3 2.00 2.00 100",
    ]
    assert lines(results.table(groups[:1], [], by_group=True)) == [
        "ctl forward ndr small 5 updates test 9 percent ndr-1-5 1 2 100.00 96.00 98.00 2.83",
        "ctl forward ndr small 5 updates test all percent ndr-1-5 1 2 100.00 98.00 99.00 1.41 100",
    ]


def test_two_runs_of_one_seed_are_refused(tmp_path: Path) -> None:
    """The same folder may be named twice."""
    one = run(tmp_path, "ndr", 1, {"all": 98})
    assert [*results.collect([one, one])[0].runs] == [one]
    (tmp_path / "again").mkdir()
    two = run(tmp_path / "again", "ndr", 1, {"all": 12})
    with pytest.raises(InputError, match=f"^{one} and {two} are runs of the same settings and"):
        results.collect([one, two])


def test_the_papers_numbers_are_of_whole_models(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    for without, paper in ((None, "100"), ("geometric", "")):
        records.write_record(path, replace(record, without=without))
        assert results.table(results.collect([path]), [], False)[0]["paper"] == paper


def test_sets_like_training(tmp_path: Path) -> None:
    one = run(tmp_path, "geometric", 1, {"all": 16})
    evaluate(one, FORWARD, {"all": 90}, Asked(subset="valid", by="depth"))
    rows = results.table(results.collect([one]), ["test", "valid"], by_group=False)
    assert [(row["subset"], row["mean"], row["paper"]) for row in rows] == [
        ("test", "16.00", "16"),
        ("valid", "90.00", "96"),
    ]
    with pytest.raises(InputError, match=r"no result on `gen`: run `sut-experiment evaluate"):
        results.table(results.collect([one]), ["gen"], by_group=False)


def test_report(tmp_path: Path) -> None:
    """What made each run, and a table for each way in which some of them were evaluated."""
    runs = [run(tmp_path, "ndr", seed, {"9": 90 + seed, "all": 95}) for seed in (1, 2)]
    for one in runs:
        evaluate(one, FORWARD, {"all": 50}, Asked(by="depth", steps=6))
    evaluate(runs[1], FORWARD, {"all": 1}, Asked(by="depth", alpha_threshold=0.5))
    groups = results.collect(runs)
    page = report.markdown(groups)
    assert page.startswith(
        "## ctl (forward), ndr, size small, 5 updates\n\n"
        "`sut-experiment train ctl --split forward --models ndr --size small --updates 5 "
        "--seeds 1 2`\n"
    )
    assert (
        "| ndr-1-5 | 1 | 5 updates | 5 s | 0.1.0, 0123456789 with changes | d1 "
        "| CPU, 1 of 2 cores, torch 2 | 2026-11-22 |"
    ) in page
    assert (
        "Set `test`, in per cent:\n\n"
        "| depth | sentences | seed 1 | seed 2 | mean | deviation | paper |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| 9 | 10 | 91.00 | 92.00 | 91.50 | 0.71 |  |\n"
        "| all | 10 | 95.00 | 95.00 | 95.00 | 0.00 | 100 |\n"
    ) in page
    assert "Set `test`, 6 steps, in per cent:" in page
    assert (
        "Set `test`, halting threshold 0.5, in per cent:\n\n| depth | sentences | seed 2 |\n"
    ) in page
    assert [(row["subset"], row["seeds"]) for row in report.rows(groups)] == [
        *[("test-by-depth", "1 2")] * 2,
        ("test-by-depth-6-steps", "1 2"),
        ("test-by-depth-0.5", "2"),
    ]


def test_a_measure_that_one_of_the_runs_lacks(tmp_path: Path) -> None:
    """There is no table of it."""
    runs = [run(tmp_path, "ndr", seed, {"all": 95}) for seed in (1, 2)]
    (evaluated,) = read_evaluations(runs[0], records.read_record(runs[0]))
    more = replace(evaluated, rows=[{**evaluated.rows[0], "before_eos": "97"}])
    write(runs[0], more.asked.name(), more)
    page = report.markdown(results.collect(runs))
    assert "Set `test`, in per cent:" in page and "before" not in page


def test_seeds_that_were_evaluated_in_other_ways_are_not_put_together(tmp_path: Path) -> None:
    """Other groups, and other folders whose names end alike."""
    runs = [run(tmp_path, "ndr", seed, {"9": 90.0, "all": 95.0}) for seed in (1, 2)]
    (runs[0] / "test-by-depth.evaluation.json").unlink()
    evaluate(runs[0], FORWARD, {"9": 10.0, "all": 95.0}, Asked(by="source_length"))
    (group,) = results.collect(runs)
    sentence = f"on the same `test` in the same groups: run .* {runs[0]} {runs[1]}` first"
    with pytest.raises(InputError, match=sentence):
        results.table([group], [], by_group=True)
    for path, digest in zip(runs, ("d7", "d8")):
        there = replace(FORWARD, folder=f"{path}/extra", digest=digest)
        evaluate(path, there, {"all": 50.0}, Asked(by="depth", data=there.folder))
    assert all(len(one.each) == 1 for one in group.evaluations())


def test_the_usual_evaluation_comes_first(tmp_path: Path) -> None:
    """Then others of the model as it was trained: by other groups, of other sets; then the rest."""
    path = run(tmp_path, "ndr", 1, {"all": 95.0})
    expected = [
        Asked(by="depth"),
        Asked(by="depth", search=True),
        Asked(by="source_length"),
        Asked(by="depth", subset="valid"),
        Asked(by="depth", steps=9),
    ]
    for asked in expected[1:]:
        evaluate(path, FORWARD, {"all": 95.0}, asked)
    (group,) = results.collect([path])
    assert [one.asked for one in group.evaluations()] == expected


def test_seeds_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    runs = [run(tmp_path, "ndr", seed, {"all": 95.0}) for seed in (10, 9, 100)]
    (group,) = results.collect(runs)
    assert [record.seed for record in group.runs.values()] == [9, 10, 100]
