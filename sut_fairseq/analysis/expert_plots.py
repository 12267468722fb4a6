"""Pictures of the affinity between words and experts (SUT Figure 8)."""

from __future__ import annotations

from matplotlib.colors import TwoSlopeNorm

from sut_fairseq.analysis.drawing import Figure, draw_cells, literal_text
from sut_fairseq.analysis.expert_use import Use
from sut_fairseq.analysis.map_layout import TITLE
from sut_fairseq.errors import InputError

_MOST_WORDS = 40
_CELL = 0.42, 0.24  # inches
_LEAST_HEIGHT = 2.8  # inches, for the label beside the colour bar
_STRONG = 0.6  # of the greatest value; above it colours are dark


@literal_text
def affinity_figure(use: Use, *, title: str) -> Figure:
    """Pointwise mutual information of the most frequent words (rows) and the experts (columns).

    Above 0 (orange) a word goes to an expert more often than words do on average, below (purple)
    more rarely; grey: never.

    Raises:
        InputError: if no word was seen often enough to be shown.
    """
    chosen = use.often()[:_MOST_WORDS]
    if not len(chosen):
        raise InputError("no word was seen three times: count more sentences.")
    values = use.affinity()[chosen]
    values = values.masked_fill(~values.isfinite(), float("nan"))
    num_words, num_experts = values.shape
    greatest = float(values.nan_to_num().abs().max().clamp(min=0.1))
    size = (2.6 + _CELL[0] * num_experts, max(1.4 + _CELL[1] * num_words, _LEAST_HEIGHT))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    texts = [["" if one != one else f"{one:.1f}" for one in line] for line in values.tolist()]
    dark = (values.abs() > _STRONG * greatest).numpy()
    norm = TwoSlopeNorm(0.0, -greatest, greatest)
    image = draw_cells(axes, values.numpy(), texts, dark, fontsize=6.5, cmap="PuOr_r", norm=norm)
    axes.set_xticks(range(num_experts), [str(one) for one in range(1, num_experts + 1)])
    axes.set_yticks(range(num_words), [use.symbols[word] for word in chosen.tolist()])
    axes.set_xlabel("expert")
    figure.colorbar(image, ax=axes, label="pointwise mutual information, nats")
    figure.suptitle(title, fontsize=TITLE)
    return figure
