"""Pictures of an evaluation: score against skipped computation, and score and depth by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sut_fairseq.analysis import trade_off_plots
from sut_fairseq.analysis.drawing import Figure, literal_text, place_groups, save

Rows = Sequence[Mapping[str, Any]]


@literal_text
def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw what `sut-evaluate` found, in the format given by the file's suffix.

    With several thresholds: the score (SUT Figures 5 and 6) and the seconds that the model needed,
    against the share of skipped steps. With one: score and steps run per token for each group (SUT
    Figure 4), or the measures of gold attention. Only the modes of `modes_shown` are drawn.
    """
    modes = modes_shown(result)
    rows: Rows = [row for row in result["rows"] if row["mode"] in modes]
    everything = [row for row in rows if row["group"] == "all"]
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    if _is_sweep(rows):
        _sweep(figure, everything, result["measure"])
    else:
        groups = [row for row in rows if row["group"] != "all"]
        _by_group(figure, groups or everything, result)
    figure.suptitle(f"{Path(result['data']).name}, {result['split']}", fontsize="medium")
    save(figure, path)


def modes_shown(result: Mapping[str, Any]) -> list[str]:
    """The modes that fit into one picture.

    With several thresholds, those that have BLEU, or all if none has; with one, the first.
    """
    rows: Rows = result["rows"]
    modes = dict.fromkeys(row["mode"] for row in rows)
    translated = dict.fromkeys(row["mode"] for row in rows if "bleu" in row)
    return list(translated or modes) if _is_sweep(rows) else list(modes)[:1]


def _is_sweep(rows: Rows) -> bool:
    return len({row["alpha_threshold"] for row in rows}) > 1


def _sweep(figure: Figure, rows: Rows, measure: str) -> None:
    curves = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        points = [
            trade_off_plots.Point(
                row["alpha_threshold"],
                row.get("bleu", row["percent"]),
                row["skipped"],
                row["seconds"],
            )
            for row in rows
            if row["mode"] == mode
        ]
        label = {"reference": "on the reference", "search": "in search"}[mode]
        curves.append(trade_off_plots.Curve(label, points))
    score = "BLEU on tokens" if "bleu" in rows[0] else f"{measure}, %"
    trade_off_plots.draw_into(figure, curves, score)


def _by_group(figure: Figure, rows: Rows, result: Mapping[str, Any]) -> None:
    depths = [stack for stack in ("encoder", "decoder") if f"{stack}_depth" in rows[0]]
    has_loss = "attention_loss" in rows[0]
    panels = figure.subplots(1 + bool(depths) + has_loss, 1, sharex=True, squeeze=False)[:, 0]
    above, below = panels[0], panels[-1]
    places = place_groups(below, [row["group"] for row in rows])
    above.plot(
        places, [row["percent"] for row in rows], marker="o", color="black", label=result["measure"]
    )
    above.set_ylabel(f"{result['measure']}, %")
    if "before_eos" in rows[0]:
        right = [row["before_eos"] for row in rows]
        above.plot(places, right, marker="s", color="gray", label="the same before <eos>")
        above.legend()
    for stack in depths:
        steps = [row[f"{stack}_depth"] for row in rows]
        panels[1].plot(places, steps, marker="o", label=stack)
        panels[1].set_ylabel("steps run per token")
        panels[1].legend()
    if has_loss:
        below.plot(places, [row["attention_loss"] for row in rows], marker="o", color="black")
        below.set_ylabel("attention loss, words²")
    below.set_xlabel(result["by"] or "")
    for axes in panels:
        axes.grid(alpha=0.3)
