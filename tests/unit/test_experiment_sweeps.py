"""Evaluations at several thresholds: in tables and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sut_fairseq.analysis import trade_off_plots
from sut_fairseq.analysis.drawing import Figure
from sut_fairseq.cli import _experiment_figures
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import pages, records, report, results
from sut_fairseq.experiments.evaluating import Asked, Evaluated, read_evaluations, write
from tests.experiment_runs import CODE, DRAW_NOTHING, EVALUATED, FORWARD, run


def test_sweeps_have_a_row_for_each_threshold(tmp_path: Path) -> None:
    one = run(tmp_path, "ndr", 1, {"all": 95})
    asked = Asked(thresholds=[0.5, 0.9], search=True)
    rows = [
        {"mode": mode, "alpha_threshold": threshold, "group": "all", "percent": percent}
        for mode, threshold, percent in (
            ("reference", "0.5", "10"),
            ("reference", "0.9", "20"),
            ("search", "0.5", "30"),
        )
    ]
    evaluated = Evaluated(
        asked=asked, data=FORWARD, measure="accuracy", rows=rows, code=CODE, when=EVALUATED
    )
    write(one, asked.name(), evaluated)
    plain, sweep = read_evaluations(one, records.read_record(one))
    assert plain.asked.plain and sweep.values() == {
        "reference 0.5": 10,
        "reference 0.9": 20,
        "search 0.5": 30,
    }
    assert "| alpha_threshold | seed 1 |\n" in report.markdown(results.collect([one]))
    # What search alone measures has no rows in the other mode.
    searched = [{**rows[0], "before_eos": ""}, {**rows[2], "before_eos": "35"}]
    write(one, asked.name(), replace(evaluated, rows=searched))
    assert read_evaluations(one, records.read_record(one))[1].values("before_eos") == {
        "search 0.5": 35
    }
    assert "| search 0.5 | 35.00 |" in report.markdown(results.collect([one]))


def test_sweeps_show_what_they_skip_and_take(tmp_path: Path) -> None:
    """Beside the scores stand skipped steps, depth and seconds, the mean over the seeds."""
    paths = [run(tmp_path, "ndr", seed, {"all": 95}) for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        rows = [
            {
                "mode": "reference",
                "alpha_threshold": f"{threshold}",
                "group": "all",
                "percent": f"{90 + seed}",
                "encoder_depth": f"{2 * seed}",
                "skipped": f"{threshold / 2}",
                "seconds": f"{10 * threshold + seed}",
            }
            for threshold in (0.4, 0.8)
        ]
        sweep(path, rows)
    page = report.markdown(results.collect(paths))
    header = "alpha_threshold | seed 1 | seed 2 | mean | deviation | skipped | encoder depth"
    assert (
        f"| {header} | seconds |\n{'| --- ' * 8}|\n"
        "| 0.4 | 91.00 | 92.00 | 91.50 | 0.71 | 20.0% | 3.00 | 5.5 |\n"
        "| 0.8 | 91.00 | 92.00 | 91.50 | 0.71 | 40.0% | 3.00 | 9.5 |\n"
    ) in page
    # On the page of the results they are drawn, the scores of either run as their mean.
    figures = []
    picture = tmp_path / "trade-off.png"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trade_off_plots, "draw", lambda *drawn: figures.append(drawn[:3]))
        assert _experiment_figures.draw_trade_offs(results.collect(paths), picture)
    points = [(0.4, 91.5, 0.2, 5.5), (0.8, 91.5, 0.4, 9.5)]
    assert figures == [([("ndr", points)], "accuracy on test, %", "ctl (forward)")]
    assert _experiment_figures.draw_trade_offs(results.collect(paths), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    draw = replace(DRAW_NOTHING, trade_offs=lambda groups, picture: True)
    pages.write(results.collect(paths), tmp_path, draw)
    assert "(pictures/ctl-trade-off.png)" in (tmp_path / "ctl.md").read_text()


def test_sweeps_of_one_set_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of most runs; if as many were swept on another set, those are drawn, too."""
    row = {"mode": "reference", "alpha_threshold": "0.4", "group": "all", "percent": "90"}
    row |= {"skipped": "0.2", "seconds": "5"}
    paths = [run(tmp_path, model, 1, {"all": 95}) for model in ("ndr", "transformer")]
    drawn: list[tuple[list[str], str]] = []

    def draw(curves: list[trade_off_plots.Curve], score: str, *rest: object) -> None:
        drawn.append((sorted(curve.label for curve in curves), score))

    monkeypatch.setattr(trade_off_plots, "draw", draw)
    for subset, path in [("test", paths[0]), ("valid", paths[0]), ("valid", paths[1])]:
        sweep(path, [row], subset)
        assert _experiment_figures.draw_trade_offs(results.collect(paths), tmp_path / "x.png")
    assert drawn == [
        (["ndr"], "accuracy on test, %"),
        (["ndr on test", "ndr on valid"], "accuracy, %"),
        (["ndr", "transformer"], "accuracy on valid, %"),
    ]


@pytest.mark.parametrize("value", ["x", "inf", "nan"])
@pytest.mark.parametrize(
    "column", ["percent", "skipped", "encoder_depth", "seconds", "alpha_threshold"]
)
def test_rows_that_are_no_numbers(column: str, value: str, tmp_path: Path) -> None:
    one, asked = run(tmp_path, "ndr", 1, {"all": 95}), Asked(thresholds=[0.5])
    row = {"mode": "reference", "alpha_threshold": "0.5", "group": "all", "percent": "10"}
    evaluated = Evaluated(
        asked=asked,
        data=FORWARD,
        measure="accuracy",
        rows=[{**row, column: value}],
        code=CODE,
        when=EVALUATED,
    )
    write(one, asked.name(), evaluated)
    with pytest.raises(InputError, match="thresholds-0.5.evaluation.json is damaged .its rows: "):
        report.markdown(results.collect([one]))


def test_labels_that_would_cover_one_another_are_left_out() -> None:
    figure = Figure()
    places = [(0.9, 0.3), (0.8, 0.301), (0.4, 0.6), (0.1, 0.9)]
    points = [trade_off_plots.Point(threshold, 90, skipped, 1) for threshold, skipped in places]
    trade_off_plots.draw_into(figure, [trade_off_plots.Curve("ndr", points)], "accuracy")
    assert [label.get_text() for label in figure.axes[0].texts] == ["0.9", "0.4", "0.1"]
    assert not figure.legends

    figure, other = Figure(), [points[0]._replace(score=90.1), points[2]._replace(score=10)]
    curves = [trade_off_plots.Curve("ndr", points), trade_off_plots.Curve("sut", other)]
    trade_off_plots.draw_into(figure, curves, "accuracy")
    labels = [(label.get_text(), label.get_color()) for label in figure.axes[0].texts]
    first, second = (line.get_color() for line in figure.axes[0].lines)
    assert labels == [("0.9", first), ("0.4", first), ("0.1", first), ("0.4", second)]


def test_a_sweep_without_costs_is_not_drawn(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 95})
    picture = tmp_path / "trade-off.png"
    assert not _experiment_figures.draw_trade_offs(results.collect([path]), picture)
    sweep(path, [{"mode": "search", "alpha_threshold": "0.5", "group": "all", "percent": "10"}])
    assert not _experiment_figures.draw_trade_offs(results.collect([path]), picture)
    assert not picture.exists()


def sweep(path: Path, rows: list[dict[str, str]], subset: str = "test") -> None:
    """Write the rows of a run's evaluation at thresholds."""
    asked = Asked(subset=subset, thresholds=[float(row["alpha_threshold"]) for row in rows])
    evaluated = Evaluated(
        asked=asked, data=FORWARD, measure="accuracy", rows=rows, code=CODE, when=EVALUATED
    )
    write(path, asked.name(), evaluated)
