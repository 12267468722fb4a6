"""Output of `sut-evaluate`: a table to read, rows for programs, and a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sut_data.files import check_writable
from sut_data.tables import table
from sut_fairseq.cli._glyphs import missing_glyphs_named
from sut_fairseq.errors import InputError

COLUMNS = (
    *("mode", "alpha_threshold", "group", "sentences", "right", "percent", "published"),
    *("before_eos", "attention_loss"),
    *("encoder_depth", "decoder_depth", "skipped", "seconds", "same_conjuncts", "bleu"),
    "macs",
)


def check_files(table: Path | None, picture: Path | None) -> None:
    """Before hours of work, refuse files that could not be written at the end.

    Raises:
        InputError: as `check_writable` does, or for a picture of an unknown format.
    """
    for option, path in (("--csv", table), ("--plot", picture)):
        if path is not None:
            check_writable(path, option)
    if picture is not None:
        from sut_fairseq.analysis import drawing  # only here: matplotlib is an extra

        if picture.suffix[1:].lower() not in drawing.FORMATS:
            known = ", ".join(sorted(drawing.FORMATS))
            raise InputError(f"--plot {picture}: its ending must be one of {known}.")


@missing_glyphs_named("sut-evaluate")
def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the rows (`evaluation_plots.draw`), and report modes that are not in the picture."""
    from sut_fairseq.analysis import evaluation_plots

    evaluation_plots.draw(result, path)
    shown = evaluation_plots.modes_shown(result)
    for mode in dict.fromkeys(row["mode"] for row in result["rows"] if row["mode"] not in shown):
        print(
            f"sut-evaluate: the picture shows only the mode `{shown[0]}`; for one of `{mode}` "
            "evaluate that mode alone.",
            file=sys.stderr,
        )


_TWO, _PER_CENT = "{:.2f}".format, "{:.2f} %".format
# Key of a value in a row, heading and format of its column; empty columns are left out.
_SHOWN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("mode", "mode", str),
    ("alpha_threshold", "threshold", str),
    ("group", "group", str),
    ("sentences", "sentences", "{:,}".format),
    ("percent", "", _PER_CENT),
    ("published", "published", "{:g} %".format),
    ("before_eos", "before <eos>", _PER_CENT),
    ("attention_loss", "attention loss", "{:.3f}".format),
    ("encoder_depth", "encoder depth", _TWO),
    ("decoder_depth", "decoder depth", _TWO),
    ("skipped", "skipped", lambda share: f"{100 * share:.1f} %"),
    ("seconds", "seconds", _TWO),
    ("macs", "MACs per pair", lambda macs: f"{macs / 1e6:.2f} M"),
    ("same_conjuncts", "same conjuncts", _PER_CENT),
    ("bleu", "BLEU on tokens", _TWO),
)


def print_table(result: dict[str, Any]) -> None:
    """Print the rows as a table, then the confusion table; a single mode needs no column."""
    rows = result["rows"]
    shown = [one for one in _SHOWN if any(row.get(one[0]) is not None for row in rows)]
    if len({row["mode"] for row in rows}) == 1:
        shown = [one for one in shown if one[0] != "mode"]
    named = {"group": result["by"], "percent": result["measure"]}
    lines = [[named.get(key) or heading for key, heading, _ in shown]]
    for row in rows:
        cells = ((row.get(key), form) for key, _, form in shown)
        lines.append(["" if cell is None else form(cell) for cell, form in cells])
    print(table(lines, ">"))
    if "confusion" in result:
        labels = list(result["confusion"])
        print(f"\nmacro-F1 {result['macro_f1']:.2f} %\n\nlabel (rows) taken for label (columns)")
        counts = [[label, *map(str, result["confusion"][label].values())] for label in labels]
        print(table([["", *labels], *counts], ">"))
