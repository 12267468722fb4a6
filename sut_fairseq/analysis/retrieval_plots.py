"""Pictures of what searches retrieve in the contextual retrieval task (COMP Figures 4, 5, 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from sut_fairseq.analysis.drawing import Axes, Figure, draw_cells
from sut_fairseq.analysis.map_layout import TITLE
from sut_fairseq.analysis.retrieval import Choices

_TITLES = {"all": "all combinations", "shown": "shown in training", "held_out": "held out"}
_CELL = 0.62  # inches


def by_wanted_figure(choices: Mapping[str, Choices], *, title: str) -> Figure:
    """Mean value score by search and wanted retrieval (rows) and retrieval of the model (columns).

    A map for each set of combinations, of which `choices` are.
    """
    num_searches, num_wanted, _ = next(iter(choices.values())).by_wanted.shape
    rows = [
        f"search {search} wants {wanted}"
        for search in range(1, num_searches + 1)
        for wanted in range(1, num_wanted + 1)
    ]
    maps = {name: one.by_wanted.flatten(0, 1) for name, one in choices.items()}
    return _panels(maps, rows, title)


def by_search_figure(choices: Mapping[str, Choices], *, title: str) -> Figure:
    """The same by search (rows) and retrieval (columns) of the model."""
    maps = {name: one.by_search for name, one in choices.items()}
    num_searches = len(next(iter(maps.values())))
    rows = [f"search {search}" for search in range(1, num_searches + 1)]
    return _panels(maps, rows, title)


def _panels(maps: Mapping[str, Tensor], rows: Sequence[str], title: str) -> Figure:
    """One map for each set of combinations; grey where there is no value."""
    num_rows, num_columns = next(iter(maps.values())).shape
    size = (1.4 + len(maps) * (_CELL * num_columns + 0.3), 1.5 + 0.6 * _CELL * num_rows)
    figure = Figure(figsize=size, layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
    for axes, (name, values) in zip(panels, maps.items()):
        texts = [["" if one != one else f"{one:.2f}" for one in line] for line in values.tolist()]
        dark = (values > 0.6).numpy()
        image = draw_cells(axes, values.numpy(), texts, dark, vmin=0.0, vmax=1.0, cmap="Blues")
        axes.set_title(_TITLES[name], fontsize="medium")
        axes.set_xticks(range(num_columns), [str(one) for one in range(1, num_columns + 1)])
        axes.set_xlabel("retrieval")
    panels[0].set_yticks(range(num_rows), rows)
    figure.colorbar(image, ax=list(panels), label="mean value score")
    figure.suptitle(title, fontsize=TITLE)
    return figure
