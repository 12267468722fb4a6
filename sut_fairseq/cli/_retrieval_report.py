"""`sut-report` for models of the contextual retrieval task."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sut_data.waiting import waiting
from sut_fairseq.analysis import retrieval, trained
from sut_fairseq.analysis.retrieval import COMBINATIONS, Choices
from sut_fairseq.cli import _report_pictures
from sut_fairseq.inference.files import find_checkpoint

# Plotting modules are imported where they are used: matplotlib is an extra.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("combinations", "search", "wanted", "retrieval", "value_score")
# Options for models of sentences.
OF_SENTENCES = (
    *("sentence", "number", "steps_by", "target", "head", "maximum", "data", "model_overrides"),
    *("html", "serve", "experts", "beam", "max_len"),
)


def draw(arguments: argparse.Namespace) -> int:
    """Write pictures and rows of what a model's searches retrieve; returns the number of files.

    Args:
        arguments: those of `sut-report`, none of `OF_SENTENCES`.

    Raises:
        InputError: if the model chooses no retrievals.
    """
    with waiting("loading the model"):
        model, task = trained.load(str(find_checkpoint(Path(arguments.path))), {})
    retrieval.check_task(model, task)
    found = {
        name: retrieval.choices(model, task, arguments.gen_subset + ending)
        for name, ending in COMBINATIONS.items()
        if len(task.combinations[ending])
    }
    for search, finder in enumerate(found["all"].finder):
        weight = found["all"].found[finder, search]
        print(
            f"search {search + 1} of the task: the model's search {finder + 1} gives {weight:.2f} "
            "of its weight to the object that it should find"
        )
    files = _report_pictures.write(arguments.out, _figures(found), arguments.format)
    table = arguments.out / "value_scores.csv"
    return files + _report_pictures.write_table(table, _COLUMNS, _rows(found))


def _figures(found: Mapping[str, Choices]) -> dict[str, Figure]:
    from sut_fairseq.analysis import retrieval_plots

    return {
        "value_scores_by_wanted": retrieval_plots.by_wanted_figure(
            found, title="what is retrieved, by what is wanted"
        ),
        "value_scores_by_search": retrieval_plots.by_search_figure(
            found, title="what each search retrieves on average"
        ),
    }


def _rows(found: Mapping[str, Choices]) -> Iterator[dict[str, object]]:
    for name, choices in found.items():
        for search, by_wanted in enumerate(choices.by_wanted.tolist(), start=1):
            for wanted, scores in enumerate(by_wanted, start=1):
                for chosen, score in enumerate(scores, start=1):
                    yield dict(zip(_COLUMNS, (name, search, wanted, chosen, f"{score:.4f}")))
