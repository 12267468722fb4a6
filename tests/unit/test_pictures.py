"""Pictures of results: what users wrote is drawn as it is, and every group has its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sut_fairseq.analysis import (
    curve_plots,
    drawing,
    evaluation_plots,
    expert_plots,
    heat_map,
    summary_plots,
    trace_plots,
    trade_off_plots,
)
from sut_fairseq.analysis.expert_use import Use
from sut_fairseq.cli import _evaluation_output, _experiment_figures, _report_pictures
from sut_fairseq.errors import InputError
from sut_fairseq.inference.trace import Figures
from sut_fairseq.tasks.columns import order_of

PRICE, FORMULA = "$5-$10", "$x_$"  # math text that is drawn otherwise, and that is none


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written, in order."""
    figures: list[Figure] = []
    save = Figure.savefig

    def saved(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", saved)
    return figures


def evaluated(*groups: str, **more: Any) -> dict[str, Any]:
    """What `sut-evaluate` found for groups of sentences."""
    rows = [
        {
            "mode": "reference",
            "alpha_threshold": None,
            "group": group,
            "percent": 50.0,
            "encoder_depth": 2.0,
        }
        for group in (*groups, "all")
    ]
    found = {"data": "/data/mine", "split": "test", "by": "kind", "measure": "exact match"}
    return {**found, "rows": rows, **more}


def used(*words: str) -> Use:
    """Words that all go to the first of two experts, three times each."""
    use = Use(list(words), 2)
    for _ in range(3):
        tokens = torch.arange(len(words))
        use.see(tokens)
        use.add(tokens, torch.zeros(len(words), 1, dtype=torch.long), torch.ones(len(words), 1))
    return use


def draw_groups(text: str, path: Path) -> None:
    evaluation_plots.draw(evaluated(text, "b", data=f"/data/{text}", by=text), path)


def draw_thresholds(text: str, path: Path) -> None:
    result = evaluated(split=text)
    (row,) = result["rows"]
    swept = [{**row, "alpha_threshold": at, "skipped": 0.1, "seconds": 1.0} for at in (0.3, 0.9)]
    evaluation_plots.draw({**result, "rows": swept}, path)


def draw_experts(text: str, path: Path) -> None:
    drawing.save(expert_plots.affinity_figure(used(text, "b"), title=text), path)


def draw_steps(text: str, path: Path) -> None:
    rows = [{"group": group, "encoder_steps": 2.0} for group in (text, "b")]
    figure = trace_plots.average_steps_figure(rows, text, {"encoder": 3}, title=text)
    drawing.save(figure, path)


def draw_summary(text: str, path: Path) -> None:
    series = summary_plots.Series(text, text, [summary_plots.Point(text, 50.0, 1.0, None)])
    summary_plots.draw([series], [text], text, text, path)


def draw_curves(text: str, path: Path) -> None:
    points = [(1, 3.0), (2, 2.0)]
    curve_plots.draw([curve_plots.Curve(text, text, text, [points])], [text], text, path)


def draw_scores(text: str, path: Path) -> None:
    heat_map.draw([text], [text], [[50.0]], [[text]], text, path)


@pytest.mark.parametrize("text", [PRICE, FORMULA])
@pytest.mark.parametrize(
    "draw",
    [
        *(draw_groups, draw_thresholds, draw_experts, draw_steps),
        *(draw_summary, draw_curves, draw_scores),
    ],
)
def test_a_dollar_sign_is_one(
    draw: Callable[[str, Path], None], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the user wrote, none of it is set as a formula."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("set as a formula")

    monkeypatch.setattr("matplotlib.mathtext.MathTextParser.parse", refuse)
    draw(text, tmp_path / "picture.svg")
    assert f"{text} -->" in (tmp_path / "picture.svg").read_text()


@pytest.mark.parametrize("depth", [True, False])
@pytest.mark.parametrize("loss", [True, False])
def test_each_measure_of_groups_has_its_own_axis(
    depth: bool, loss: bool, tmp_path: Path, drawn: list[Figure]
) -> None:
    result = evaluated("3", "4")
    for row in result["rows"]:
        row |= {"decoder_depth": 5.0} if depth else {}
        row |= {"attention_loss": 0.5} if loss else {}
        if not depth:
            del row["encoder_depth"]
    evaluation_plots.draw(result, tmp_path / "picture.svg")
    lines = {axes.get_ylabel(): len(axes.lines) for axes in drawn[0].axes}
    expected = {"exact match, %": 1}
    expected |= {"steps run per token": 2} if depth else {}
    expected |= {"attention loss, words²": 1} if loss else {}
    assert lines == expected
    assert drawn[0].axes[-1].get_xlabel() == "kind"


def test_a_summary_names_every_model(tmp_path: Path, drawn: list[Figure]) -> None:
    """Also one without runs on the data of the last panel."""
    point = summary_plots.Point("3", 50.0, 1.0, None)
    published = point._replace(paper=60.0)
    listed = [
        summary_plots.Series("one", "a", [point]),
        summary_plots.Series("one", "b", [published]),
        summary_plots.Series("two", "b", [point]),
    ]
    summary_plots.draw(listed, ["3"], "title", "measure", tmp_path / "picture.svg")
    (figure,) = drawn
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    (legend,) = figure.legends
    entries = zip(legend.get_texts(), legend.legend_handles, strict=True)
    shown = {text.get_text(): handle.get_color() for text, handle in entries}
    assert shown == {"a": "C0", "b": "C1", "the paper": "black"}
    colors = [{line.get_color() for line in axes.lines} for axes in figure.axes]
    assert colors == [{"C0", "C1"}, {"C1"}]


def test_models_beside_each_other_stay_in_their_group(tmp_path: Path, drawn: list[Figure]) -> None:
    """However many there are; connected ones are not moved."""
    points = [summary_plots.Point(group, 50.0, None, 60.0) for group in ("a", "b")]
    listed = [summary_plots.Series("one", str(number), points) for number in range(12)]
    for connected in (False, True):
        path = tmp_path / "picture.svg"
        summary_plots.draw(listed, ["a", "b"], "title", "measure", path, connected=connected)
    apart, together = (
        [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"]
        for figure in drawn
    )
    assert max(places[0] for places in apart) < 0.5 < min(places[1] for places in apart)
    assert len({places[0] for places in apart}) == 12
    assert {tuple(places) for places in together} == {(0, 1)}
    crosses = [line for line in drawn[1].axes[0].lines if line.get_marker() == "x"]
    assert len(crosses) == 1, "models with the same numbers in the paper share them"


def test_many_groups_are_not_all_named(tmp_path: Path, drawn: list[Figure]) -> None:
    """A panel has only the groups of its own models."""
    groups = [str(number) for number in range(50)]
    many, few = (
        [summary_plots.Point(group, 50.0, None, None) for group in part]
        for part in (groups, groups[:3])
    )
    listed = [summary_plots.Series("many", "a", many), summary_plots.Series("few", "a", few)]
    summary_plots.draw(listed, groups, "title", "measure", tmp_path / "picture.svg")
    named = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in drawn[0].axes]
    assert named == [groups[::4], groups[:3]]


def test_fifteen_models_have_as_many_colors(tmp_path: Path, drawn: list[Figure]) -> None:
    names = [str(number) for number in range(15)]
    point = summary_plots.Point("3", 50.0, 1.0, None)
    series = [summary_plots.Series("one", name, [point]) for name in names]
    summary_plots.draw(series, ["3"], "title", "measure", tmp_path / "picture.svg")
    curves = [curve_plots.Curve("one", name, "valid", [[(1, 2.0), (2, 3.0)]]) for name in names]
    curve_plots.draw(curves, names, "measure", tmp_path / "picture.svg")
    for figure in drawn:
        handles = figure.legends[0].legend_handles
        assert len({to_hex(handle.get_color()) for handle in handles[:15]}) == 15


def test_seeds_of_a_training_are_one_curve(tmp_path: Path, drawn: list[Figure]) -> None:
    """Their mean and a band; where a seed has no value, the others alone."""
    seeds = [[(1, 2.0), (2, 4.0)], [(1, 3.0), (2, 8.0), (3, 9.0)]]
    alone = curve_plots.Curve("one", "ndr, long", "valid", seeds[:1])
    curves = [curve_plots.Curve("one", "ndr, small", "valid", seeds), alone]
    curve_plots.draw(curves, ["ndr, long", "ndr, small"], "measure", tmp_path / "picture.svg")
    (axes,) = drawn[0].axes
    assert [line.get_color() for line in axes.lines] == ["C1", "C0"]
    assert axes.lines[0].get_xydata().tolist() == [[1, 2.5], [2, 6.0], [3, 9.0]]
    (band,) = axes.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(1, 2), (1, 3), (2, 4), (2, 8), (3, 9)}
    named = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert named == ["ndr, small", "ndr, long", "lowest to highest seed"]  # as they end


def test_a_long_legend_is_shown_whole(tmp_path: Path, drawn: list[Figure]) -> None:
    names = [
        f"model {number}, --an-option of-many-words {'and another ' * 9}" for number in range(9)
    ]
    curves = [curve_plots.Curve("one", name, "valid", [[(1, 2.0), (2, 3.0)]] * 2) for name in names]
    curves.append(curves[0]._replace(subset="valid_deep"))
    curve_plots.draw(curves, names, "measure", tmp_path / "picture.svg")
    legend, page = drawn[0].legends[0].get_window_extent(), drawn[0].bbox
    assert page.y0 <= legend.y0 and legend.y1 <= page.y1 and legend.x1 <= page.x1


def test_a_long_legend_of_a_trade_off_is_shown_whole(tmp_path: Path, drawn: list[Figure]) -> None:
    points = [trade_off_plots.Point(0.9, 50, 0.1, 1), trade_off_plots.Point(0.5, 40, 0.3, 1)]
    label = "ut, " + " ".join(f"--encoder-option-{number} 0.1" for number in range(9))
    curves = [trade_off_plots.Curve(f"{number} {label}", points) for number in range(6)]
    trade_off_plots.draw(curves, "accuracy", "many", tmp_path / "many.png")
    (legend,), page = drawn[0].legends, drawn[0].bbox
    shown = legend.get_window_extent()
    assert page.x0 <= shown.x0 and shown.x1 <= page.x1 and page.y0 <= shown.y0
    for text in legend.get_texts():
        assert not any(line.startswith("0.1") for line in text.get_text().split("\n"))


@pytest.mark.parametrize(
    ("lengths", "scale"), [((1000, 5000), "linear"), ((1000, 5001), "log"), ((0, 9), "linear")]
)
def test_short_curves_beside_long_ones(
    lengths: tuple[int, ...], scale: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    """Each panel has the scale of updates that shows all of its curves."""
    curves = [
        curve_plots.Curve("one", str(length), "valid", [[(length // 2, 1.0), (length, 2.0)]])
        for length in lengths
    ]
    other = curve_plots.Curve("two", "0", "valid", [[(1, 1.0), (2, 2.0)]])
    names = [*map(str, lengths), "0"]
    curve_plots.draw([*curves, other], names, "measure", tmp_path / "picture.svg")
    one, two = drawn[0].axes
    assert (one.get_xscale(), two.get_xscale()) == (scale, "linear")
    texts = [text.get_text() for text in one.get_xticklabels()]
    assert ("5,000" in texts) == (max(lengths) >= 5000)


def test_only_finite_numbers_are_numbers(tmp_path: Path, drawn: list[Figure]) -> None:
    groups = ["nan", "7", "inf", "none", "-1e999", "1e1"]
    groups.sort(key=order_of)
    assert groups == ["7", "1e1", "-1e999", "inf", "nan", "none"]
    evaluation_plots.draw(evaluated(*groups), tmp_path / "picture.svg")
    (figure,) = drawn
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == groups


def write_experts(folder: Path) -> str:
    use = used("\u4e2d\u6587", "\u6587", "b")
    figures = {name: expert_plots.affinity_figure(use, title=name) for name in ("one", "two")}
    assert _report_pictures.write(folder, figures, ["png", "svg"]) == 4
    return "sut-report"


def write_steps(folder: Path) -> str:
    """A word is measured before it is drawn, too."""
    figure = trace_plots.steps_figure(
        torch.ones(1, 1), ["\u4e2d\u6587"], title="title", measure="measure", most=1.0
    )
    _report_pictures.write(folder, {"one": figure}, ["png"])
    return "sut-report"


def write_evaluation(folder: Path) -> str:
    _evaluation_output.draw(evaluated("\u4e2d", "\u6587"), folder / "picture.png")
    return "sut-evaluate"


def write_summary(folder: Path) -> str:
    row = SimpleNamespace(group="\u4e2d", mean=50.0, deviation=None, paper=None)
    table: Any = SimpleNamespace(
        experiment="\u6587",
        summary=SimpleNamespace(title="title", by_split=False),
        measure="`accuracy`",
        groups=["\u4e2d"],
        lines=[SimpleNamespace(split="test", model="model", rows=[row])],
    )
    _experiment_figures.draw_table(table, folder / "picture.png")
    return "sut-experiment"


@pytest.mark.parametrize("write", [write_experts, write_steps, write_evaluation, write_summary])
def test_what_the_font_lacks_is_told_once(
    write: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        command = write(tmp_path)
    (sentence,) = (line for line in capsys.readouterr().err.splitlines() if "font" in line)
    assert sentence.startswith(f"{command}: the font of the pictures lacks ")
    assert {"\u4e2d", "\u6587"} <= set(sentence)


def evaluated_in_both_modes(*thresholds: float, **of_search: float) -> dict[str, Any]:
    result = evaluated("a", "b")
    rows = [
        {**row, **more, "alpha_threshold": threshold, "skipped": 0.1, "seconds": 1.0}
        for more in ({"mode": "reference"}, {"mode": "search", "percent": 20.0, **of_search})
        for threshold in thresholds
        for row in result["rows"]
    ]
    return {**result, "rows": rows}


@pytest.mark.parametrize(
    ("thresholds", "of_search", "shown", "only"),
    [
        ((0.3, 0.9), {"bleu": 70.0}, [[70.0, 70.0]], "search"),
        ((0.3, 0.9), {}, [[50.0, 50.0], [20.0, 20.0]], None),
        ((0.3,), {}, [[50.0, 50.0]], "reference"),
        ((0.3,), {"bleu": 70.0}, [[50.0, 50.0]], "reference"),
    ],
)
def test_a_picture_tells_which_mode_it_leaves_out(
    thresholds: tuple[float, ...],
    of_search: dict[str, float],
    shown: list[list[float]],
    only: str | None,
    tmp_path: Path,
    drawn: list[Figure],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = evaluated_in_both_modes(*thresholds, **of_search)
    _evaluation_output.draw(result, tmp_path / "picture.svg")
    lines = drawn[0].axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == shown
    said = capsys.readouterr().err
    expected = f"the picture shows only the mode `{only}`; for one of " if only else ""
    assert expected in said and bool(said) == bool(only)


@pytest.mark.parametrize("groups", [["5"], ["5", "6"], ["1", "3", "12"], ["0.25", "0.5"]])
def test_an_axis_of_whole_numbers_has_no_others(
    groups: list[str], tmp_path: Path, drawn: list[Figure]
) -> None:
    evaluation_plots.draw(evaluated(*groups), tmp_path / "picture.svg")
    rows = [{"group": group, "encoder_steps": 2.0} for group in groups]
    steps = trace_plots.average_steps_figure(rows, "length", {"encoder": 3}, title="title")
    drawing.save(steps, tmp_path / "steps.svg")
    for figure in drawn:
        ticks = [float(tick) for tick in figure.axes[-1].get_xticks()]
        assert len(ticks) >= len(groups)
        assert all(tick.is_integer() for tick in ticks) == ("0.5" not in groups)


@pytest.mark.parametrize("words", ["b", "bc", "bcd", "bcdefghijk"])
def test_a_picture_of_experts_has_room_for_its_labels(words: str) -> None:
    canvas = FigureCanvasAgg(expert_plots.affinity_figure(used(*words), title="title"))
    canvas.draw()
    page = canvas.figure.bbox
    for axes in canvas.figure.axes:
        box = axes.get_tightbbox(canvas.get_renderer())
        assert page.x0 <= box.x0 and page.y0 <= box.y0 and box.x1 <= page.x1 and box.y1 <= page.y1


def test_a_picture_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a new one fails, the old one stays, also of `SentenceTrace.plot().save`."""
    (tmp_path / "one.png").write_text("old")

    def fail(figure: Figure, path: Path, **options: Any) -> None:
        path.write_text("half")
        raise OSError("no room")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no room"):
        Figures(one=Figure(figsize=(1, 1))).save(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_endings_in_capitals(tmp_path: Path) -> None:
    picture = tmp_path / "picture.PNG"
    _evaluation_output.check_files(None, picture)
    _evaluation_output.draw(evaluated("a"), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="its ending must be one of"):
        _evaluation_output.check_files(None, tmp_path / "picture.XYZ")


def test_a_folder_with_a_text_of_somebody_else(tmp_path: Path) -> None:
    """It is not that of a sentence, in whatever encoding its text is."""
    (tmp_path / "turn").mkdir()
    (tmp_path / "turn" / "sentence.txt").write_bytes(b"b\xfcnf\n")
    assert _report_pictures._folder(tmp_path, "turn", "turn") == tmp_path / "turn_2"
