"""Pictures of a moving gaze: attention, its components and its numbers (LOC Figure 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from sut_fairseq.analysis.drawing import Figure
from sut_fairseq.analysis.map_layout import GAP, WIDTH, Labels, Page

_MAPS = {"attention": "attention α", "location": "by location λ", "content": "by content γ"}
# Columns of the table: the mixing weight, the weights of the building blocks, centre and spread.
_SHARE, _BLOCKS, _PLACE = "share", ("ρ mean", "ρ step", "ρ one"), ("μ", "σ")
_NOTE = (
    "rows: queries, columns: keys; share: of location; ρ: building blocks; "
    "μ, σ: centre and spread in words"
)


def gaze_figures(
    attention: Tensor,
    gazes: Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    head: int | None,
    *,
    note: str,
) -> Iterator[tuple[str, Figure]]:
    """Pictures of the first sentence of a batch, one for each step and head.

    Args:
        attention: weights, `(num_steps, batch, num_heads, num_queries, num_keys)`.
        gazes: components of the weights, see `StackTrace.gazes`.
        queries, keys: the words.
        head: the head to show, from 1; None: each.
        note: below each title.

    Yields:
        a suffix that distinguishes its file name, and the picture.
    """
    num_steps, _, num_heads = attention.shape[:3]
    for step in range(num_steps):
        if attention[step, 0].isnan().all():
            continue  # the whole sentence has halted
        for number in range(num_heads) if head is None else (head - 1,):
            parts = {name: values[step, 0, number] for name, values in gazes.items()}
            only = num_steps == num_heads == 1
            suffix = "" if only else f"_step_{step + 1}_head_{number + 1}"
            title = "where the decoder looks"
            if not only:
                title += f", step {step + 1}, head {number + 1} of {num_heads}"
            maps = {"attention": attention[step, 0, number], **parts}
            yield suffix, gaze_figure(maps, queries, keys, title=title, note=note)


def gaze_figure(
    parts: Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str,
    note: str = "",
) -> Figure:
    """Attention and the table of numbers, and below them the components of attention.

    Args:
        parts: "attention", "location" and, if they are mixed, "content": `(num_queries, num_keys)`;
            "blocks" `(num_queries, 3)`, "centre", "spread" and, if mixed, "location_share"
            `(num_queries,)`; NaN where there is no query.
        queries, keys: the words.
    """
    mixed = "content" in parts
    names = [*([_SHARE] if mixed else []), *_BLOCKS, *_PLACE]
    numbers = [
        *([parts["location_share"]] if mixed else []),
        *parts["blocks"].unbind(-1),
        parts["centre"],
        parts["spread"],
    ]
    cells = [[_number(float(value)) for value in row] for row in zip(*numbers)]
    rows = Labels.of(queries, WIDTH / 3)
    columns, heads = Labels.of(keys, WIDTH / 2), Labels.of(names, WIDTH / 2)
    width = max(columns.cell * len(keys), 1.2)
    height = max(1.3 * rows.cell * len(queries), 0.4)
    of_table = (heads.extent + 0.05) * len(names)  # wide enough for its column titles side by side
    left, below, above = rows.extent + GAP, columns.extent + GAP, 0.25
    down = above + height + below
    page = Page(
        left + width + left + max(width, of_table),
        2 * down,
        title,
        "; ".join(filter(None, [_NOTE, note])),
    )

    def place(number: int) -> tuple[float, float]:
        return (number % 2) * (left + width) + left, (number // 2) * down + above

    axes = page.table(place(1), (of_table, height), cells, rows, heads)
    axes.set_title("numbers", fontsize=9, pad=3)
    shown = [name for name in _MAPS if name in parts]
    for name, number in zip(shown, (0, 2, 3)):
        axes = page.map(place(number), (width, height), parts[name], 1.0, rows, columns)
        axes.set_title(_MAPS[name], fontsize=9, pad=3)
    page.bar("attention weight")
    return page.figure


def _number(value: float) -> str:
    """Two decimals; empty for NaN."""
    return "" if value != value else f"{value + 0.0:.2f}"
