"""Pictures of traces: attention maps, copy gates and halting by step (NDR Figures 2-4, 7-14)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sut_fairseq.analysis.drawing import Figure, literal_text, place_groups
from sut_fairseq.analysis.gaze_plots import gaze_figures
from sut_fairseq.analysis.map_layout import GAP, TITLE, WIDTH, Labels, Page, arrange
from sut_fairseq.analysis.sentences import Answered, Word
from sut_fairseq.analysis.traces import StackTrace

_GONE = "grey: halted, no longer computed"
_UNKNOWN = "?: unknown to the model"


def sentence_figures(answered: Answered, head: int | None = None) -> dict[str, Figure]:
    """All pictures of how a model computed an answer, by file name without suffix.

    Args:
        answered: the answer.
        head: as in `stack_figures`.
    """
    labels = {name: _labels(words) for name, words in answered.reads.items()}
    unknown = any(word.unknown for words in answered.reads.values() for word in words)
    note = _UNKNOWN if unknown else ""
    figures: dict[str, Figure] = {}
    for name, steps in answered.stacks.items():
        figures.update(stack_figures(name, steps, labels, head, note=note))
    return figures


def _labels(words: Sequence[Word]) -> list[str]:
    """Words beside a map; an unknown one is marked at its start, since its end may be cut."""
    return [f"? {word.text}" if word.unknown else word.text for word in words]


def stack_figures(
    name: str,
    steps: StackTrace,
    words: Mapping[str, Sequence[str]],
    head: int | None = None,
    *,
    note: str = "",
) -> Iterator[tuple[str, Figure]]:
    """All pictures of what a depth loop did with the first sentence of a batch.

    Args:
        name: "encoder" or "decoder".
        steps: what it did.
        words: the words of the sentence, by such names; a decoder also needs those of the encoder.
        head: the attention head to show, from 1; None: the maximum over heads.
        note: below each title.

    Yields:
        a name for the file, and the picture.
    """
    own, computed = words[name], steps.computed[:, 0]
    gone = "; ".join(filter(None, ["" if computed.all() else _GONE, note]))
    for kind, maps in steps.attention.items():
        num_heads, top_k = maps.shape[2], steps.top_k[kind]
        shown = "the only head" if num_heads == 1 else f"head {head} of {num_heads}"
        if head is None and num_heads > 1:
            shown = f"maximum of {num_heads} heads"
        experts = "" if top_k == 1 else f"; weighted mean of the {top_k} chosen experts"
        figure = attention_figure(
            # The maximum of several NaN is NaN.
            maps[:, 0].amax(dim=1) if head is None else maps[:, 0, head - 1],
            own,
            words["encoder"] if kind == "cross_attention" else own,
            title=f"{name} {kind.replace('_', '-')}, {shown}",
            note="; ".join(filter(None, ["rows: queries, columns: keys" + experts, gone])),
        )
        yield f"{name}_{kind}_{'maximum' if head is None else f'head_{head}'}", figure
    for kind, gazes in steps.gazes.items():
        for suffix, figure in gaze_figures(
            steps.attention[kind], gazes, own, words["encoder"], head, note=note
        ):
            yield f"{name}_gaze{suffix}", figure
    if steps.gates is not None:
        openness = steps.gates[:, 0].mean(dim=-1)
        figure = steps_figure(
            openness,
            own,
            title=f"{name} copy gates",
            measure="mean openness over channels",
            most=float(openness[computed].max()),
            note=gone,
        )
        yield f"{name}_gates", figure
    if steps.halted is not None:
        halted = steps.halted.new_full((steps.num_steps, len(own)), torch.nan)
        halted[: len(computed)] = steps.halted[:, 0].masked_fill(~computed, torch.nan)
        figure = steps_figure(
            halted,
            own,
            title=f"{name} halting",
            measure="probability of having halted",
            most=1.0,
            note="; ".join(filter(None, [_GONE if halted.isnan().any() else "", note])),
        )
        yield f"{name}_halting", figure


def attention_figure(
    maps: Tensor, queries: Sequence[str], keys: Sequence[str], *, title: str, note: str
) -> Figure:
    """A small map for each step: rows are queries, columns keys.

    Args:
        maps: weights in [0, 1], `(num_steps, num_queries, num_keys)`, NaN where there are none.
        queries, keys: the words.
        title, note: of the figure; the note is below the title.
    """
    room = max(3.0, WIDTH / math.sqrt(1.5 * len(maps)))
    # One scale for both sides.
    most = max(len(queries), len(keys))
    rows, columns = (Labels.of(words, room * len(words) / most) for words in (queries, keys))
    # Very few words are spread out, so that the title has room.
    width, height = max(columns.cell * len(keys), 0.7), max(rows.cell * len(queries), 0.3)
    left, below, above = rows.extent + GAP, columns.extent + GAP, 0.22
    across, down = arrange(len(maps), left + width, below + height + above)
    page = Page(across * (left + width), down * (below + height + above), title, note)
    for step, values in enumerate(maps):
        x = (step % across) * (left + width) + left
        y = (step // across) * (below + height + above) + above
        axes = page.map((x, y), (width, height), values, 1.0, rows, columns)
        axes.set_title(f"step {step + 1}", fontsize=9, pad=3)
    page.bar("attention weight")
    return page.figure


def steps_figure(
    values: Tensor, words: Sequence[str], *, title: str, measure: str, most: float, note: str = ""
) -> Figure:
    """One map whose rows are steps and whose columns are words.

    Args:
        values: at least 0, `(num_steps, length)`, NaN where there are none.
        words: the columns.
        measure: what the values are.
        most: the greatest value of the colour bar.
        title, note: as in `attention_figure`.
    """
    labels = Labels.of(words, WIDTH)
    steps = Labels.of([str(step + 1) for step in range(len(values))], WIDTH)
    width = max(labels.cell * len(words), 2.2)
    height = max(1.3 * steps.cell * len(values), 1.2)
    left, below = steps.extent + 2 * GAP, labels.extent + GAP
    page = Page(left + width, below + height, title, note)
    axes = page.map((left, 0), (width, height), values, most, steps, labels)
    axes.set_ylabel("step", fontsize=9)
    page.bar(measure)
    return page.figure


@literal_text
def average_steps_figure(
    rows: Sequence[Mapping[str, Any]], by: str, greatest: Mapping[str, int], *, title: str
) -> Figure:
    """Average number of steps by group, and the greatest possible (NDR Figure 4).

    Args:
        rows: `group`, and `<name>_steps` for each depth loop.
        by: what the sentences are grouped by.
        greatest: greatest number of steps of each loop, by name.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    places = place_groups(axes, [row["group"] for row in rows])
    colours = {}
    for name in greatest:
        steps = [row[f"{name}_steps"] for row in rows]
        (curve,) = axes.plot(places, steps, marker="o", markersize=4, label=name)
        colours[name] = curve.get_color()
    for most in sorted(set(greatest.values())):
        names = [name for name, own in greatest.items() if own == most]
        colour = colours[names[0]] if len(names) == 1 else "tab:red"
        of = " and ".join(names)
        axes.axhline(most, color=colour, linestyle="--", label=f"greatest number, {of}")
    axes.set_ylim(0, 1.08 * max(greatest.values()))
    axes.set_xlabel(by.replace("_", " "))
    axes.set_ylabel("average steps per token")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(title, fontsize=TITLE)
    return figure
