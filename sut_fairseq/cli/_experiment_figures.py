"""Pictures of experiments: their summaries, and the curves of their runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sut_data.files import written_whole
from sut_fairseq.cli._glyphs import missing_glyphs_named
from sut_fairseq.experiments import grid_results
from sut_fairseq.experiments.curves import TRAIN, read_curve
from sut_fairseq.experiments.results import Evaluations, Group
from sut_fairseq.experiments.summaries import Table

# Plotting modules are imported where they are used: matplotlib is an extra.
if TYPE_CHECKING:
    from sut_fairseq.analysis import trade_off_plots


@missing_glyphs_named("sut-experiment")
def draw_table(table: Table, path: Path) -> None:
    """Draw a summary: mean and deviation by group, beside the paper's."""
    from sut_fairseq.analysis import summary_plots

    lines = [
        summary_plots.Series(
            line.split,
            line.model,
            [
                summary_plots.Point(row.group, row.mean, row.deviation, row.paper)
                for row in line.rows
            ],
        )
        for line in table.lines
    ]
    title = f"{table.experiment}: {table.summary.title}"
    with written_whole(path) as partial:
        summary_plots.draw(lines, table.groups, title, table.measure.replace("`", ""), partial)


@missing_glyphs_named("sut-experiment")
def draw_matrix(table: grid_results.Table, path: Path) -> None:
    """Draw the scores of the matrix."""
    from sut_fairseq.analysis import heat_map

    with written_whole(path) as partial:
        heat_map.draw(
            list(table.grid.rows.values()),
            [column.title for column in table.grid.columns.values()],
            [[cell.mean for cell in line] for line in table.cells],
            [[str(cell) for cell in line] for line in table.cells],
            "Scores on what is beyond training",
            partial,
        )


@missing_glyphs_named("sut-experiment")
def draw_curves(groups: Sequence[Group], path: Path) -> bool:
    """Plot the metric that selects checkpoints against updates, on all held-out sets.

    Args:
        groups: runs of one experiment.
        path: picture to write.

    Returns:
        whether there was a curve to draw.
    """
    from sut_fairseq.analysis import curve_plots

    experiment = groups[0].experiment
    measure = experiment.metric
    curves = []
    for group in groups:
        data = group.first.data.split or group.first.data.dataset
        for run in group.runs:
            by_set: dict[str, list[tuple[int, float]]] = {}
            for point in read_curve(run):
                if point.measure == measure and point.subset != TRAIN:
                    by_set.setdefault(point.subset, []).append((point.update, point.value))
            for subset, points in by_set.items():
                curves.append(curve_plots.Curve(data, group.first.model, subset, points))
    if not curves:
        return False
    score = "" if measure.endswith("loss") else ", in per cent"
    with written_whole(path) as partial:
        words = measure.replace("_", " ") + score
        # In the experiment's order, as in the summaries, so that a model has one colour per page.
        curve_plots.draw(curves, list(experiment.models), words, partial)
    return True


@missing_glyphs_named("sut-experiment")
def draw_trade_offs(groups: Sequence[Group], path: Path) -> bool:
    """Plot threshold sweeps: score and seconds against skipped steps, mean over seeds.

    Args:
        groups: runs of one experiment.
        path: picture to write.

    Returns:
        whether there was a sweep to draw.
    """
    from sut_fairseq.analysis import trade_off_plots

    swept = [sweep for group in groups for sweep in group.sweeps()]
    lengths = {sweep.group.first.length for sweep in swept}
    curves = [
        trade_off_plots.Curve(" ".join(filter(None, (*_names(sweep, lengths), mode))), points)
        for sweep in swept
        for mode, points in _points(sweep).items()
    ]
    if not curves:
        return False
    measure = swept[0].each[0].measure
    with written_whole(path) as partial:
        trade_off_plots.draw(curves, f"{measure}, %", groups[0].experiment.name, partial)
    return True


def _names(sweep: Evaluations, lengths: Collection[str]) -> tuple[str, ...]:
    """What distinguishes a sweep: also the length, if trainings of several lengths are drawn."""
    record = sweep.group.first
    length = f"({record.planned})" if len(lengths) > 1 else ""
    return record.data.split, record.model, length, f"on {sweep.asked.subset}"


def _points(sweep: Evaluations) -> dict[str, list[trade_off_plots.Point]]:
    """The points of a sweep by mode; the mode is empty if there was only one."""
    from sut_fairseq.analysis import trade_off_plots

    scores, skipped, seconds = (
        {row.group: row.mean for row in sweep.rows_of(measure)}
        for measure in ("percent", "skipped", "seconds")
    )
    points: dict[str, list[trade_off_plots.Point]] = {}
    for name in scores:
        if name in skipped and name in seconds:
            *mode, threshold = name.split()
            point = (float(threshold), scores[name], skipped[name], seconds[name])
            points.setdefault(" ".join(mode), []).append(trade_off_plots.Point(*point))
    return points
