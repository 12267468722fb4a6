"""Pictures of experiments: their summaries, and the curves of their runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sut_fairseq.cli._glyphs import missing_glyphs_named
from sut_fairseq.experiments import grid_results
from sut_fairseq.experiments.by_group import short_names
from sut_fairseq.experiments.claims import Found, Verdict
from sut_fairseq.experiments.curves import TRAIN, read_curve
from sut_fairseq.experiments.results import Evaluations, Group
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.schema import MEASURES
from sut_fairseq.experiments.summaries import Table

# Plotting modules are imported where they are used: matplotlib is an extra.
if TYPE_CHECKING:
    from sut_fairseq.analysis import trade_off_plots

# Of those that most colour-blind readers can tell apart (Okabe and Ito).
_COLORS = {
    Verdict.AT_SIZE: "#009e73",
    Verdict.REDUCED: "#e69f00",
    Verdict.NOT_MET: "#d55e00",
}


@missing_glyphs_named(PROGRAM_NAME)
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
    summary_plots.draw(
        lines,
        table.groups,
        title,
        table.measure.replace("`", ""),
        path,
        connected=not table.summary.by_split,
    )


@missing_glyphs_named(PROGRAM_NAME)
def draw_matrix(table: grid_results.Table, path: Path) -> None:
    """Draw the scores of the matrix."""
    from sut_fairseq.analysis import heat_map

    heat_map.draw(
        list(table.grid.rows.values()),
        [column.title for column in table.grid.columns.values()],
        [[cell.mean for cell in line] for line in table.cells],
        [[str(cell) for cell in line] for line in table.cells],
        "Scores on what is beyond training",
        path,
    )


@missing_glyphs_named(PROGRAM_NAME)
def draw_claims(found: Sequence[Found], path: Path) -> bool:
    """Draw the results in per cent of claims that have runs, beside the papers'.

    Returns whether there was a result to draw.
    """
    from sut_fairseq.analysis import claim_plots

    shown = [
        claim_plots.Result(
            one.experiment.citation,
            f"{one.experiment.name}: {one.claim.shows}",
            one.row.mean,
            one.row.deviation,
            one.claim.paper,
            _words(one.verdict),
        )
        for one in found
        if one.row is not None and MEASURES[one.claim.measure].endswith("in per cent")
    ]
    if not shown:
        return False
    color_of = {_words(verdict): color for verdict, color in _COLORS.items()}
    claim_plots.draw(shown, color_of, "per cent; lines: deviation over seeds", path)
    return True


def _words(verdict: Verdict) -> str:
    """A verdict without its mark."""
    return verdict.value.partition(" ")[2]


@missing_glyphs_named(PROGRAM_NAME)
def draw_curves(groups: Sequence[Group], path: Path) -> bool:
    """Plot the metric that selects checkpoints against updates, on all held-out sets.

    The runs are of one experiment, and take colours in their order. Returns whether there was a
    curve to draw.
    """
    from sut_fairseq.analysis import curve_plots

    experiment = groups[0].experiment
    measure = experiment.metric
    names = short_names(groups)
    curves = []
    for group, name in zip(groups, names):
        data = group.first.data.split or group.first.data.dataset
        by_set: defaultdict[str, defaultdict[Path, list[tuple[int, float]]]]
        by_set = defaultdict(lambda: defaultdict(list))
        for run in group.runs:
            for point in read_curve(run):
                if point.measure == measure and point.subset != TRAIN:
                    by_set[point.subset][run].append((point.update, point.value))
        for subset, by_run in by_set.items():
            curves.append(curve_plots.Curve(data, name, subset, list(by_run.values())))
    if not curves:
        return False
    place = {split: number for number, split in enumerate(experiment.splits)}
    curves.sort(key=lambda curve: place.get(curve.panel, len(place)))
    score = "" if measure.endswith("loss") else ", in per cent"
    words = measure.replace("_", " ") + score
    curve_plots.draw(curves, list(dict.fromkeys(names)), words, path)
    return True


@missing_glyphs_named(PROGRAM_NAME)
def draw_trade_offs(groups: Sequence[Group], path: Path) -> bool:
    """Plot threshold sweeps: score and seconds against skipped steps, mean over seeds.

    The runs are of one experiment. Of a run with sweeps of several sets, those of the set are drawn
    that most runs have. Returns whether there was a sweep to draw.
    """
    from sut_fairseq.analysis import trade_off_plots

    swept = list(_swept(groups))
    if not swept:
        return False
    names = short_names([sweep.group for sweep in swept])
    # What all have in common stands once, in the title and on the axis.
    split = _common(sweep.group.first.data.split for sweep in swept)
    subset = _common(f"on {sweep.asked.subset}" for sweep in swept)
    curves = []
    for sweep, name in zip(swept, names):
        own_split = "" if split else sweep.group.first.data.split
        own_subset = "" if subset else f"on {sweep.asked.subset}"
        for mode, points in _points(sweep).items():
            label = _joined(own_split, name, own_subset, mode)
            curves.append(trade_off_plots.Curve(label, points))
    if not curves:
        return False
    score = f"{_joined(swept[0].each[0].measure, subset)}, %"
    title = _joined(groups[0].experiment.name, f"({split})" if split else "")
    trade_off_plots.draw(curves, score, title, path)
    return True


def _swept(groups: Sequence[Group]) -> Iterator[Evaluations]:
    by_group = [[one for one in group.evaluations() if one.asked.thresholds] for group in groups]
    runs = Counter(one.asked.subset for sweeps in by_group for one in sweeps)
    for sweeps in by_group:
        most = max((runs[one.asked.subset] for one in sweeps), default=0)
        yield from (one for one in sweeps if runs[one.asked.subset] == most)


def _common(values: Iterable[str]) -> str:
    """The value that all of them are; empty if they differ."""
    first, *others = set(values)
    return "" if others else first


def _joined(*words: str) -> str:
    return " ".join(filter(None, words))


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
