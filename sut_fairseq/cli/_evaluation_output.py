"""Output of `sut-evaluate`: a table to read, rows for programs, and a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sut_data.files import check_writable, written_whole
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

        if picture.suffix[1:] not in drawing.FORMATS:
            known = ", ".join(sorted(drawing.FORMATS))
            raise InputError(f"--plot {picture}: its ending must be one of {known}.")


@missing_glyphs_named("sut-evaluate")
def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the rows (`evaluation_plots.draw`), and report modes that are not in the picture."""
    from sut_fairseq.analysis import evaluation_plots

    with written_whole(path) as partial:
        evaluation_plots.draw(result, partial)
    shown = evaluation_plots.modes_shown(result)
    for mode in dict.fromkeys(row["mode"] for row in result["rows"] if row["mode"] not in shown):
        print(
            f"sut-evaluate: the picture shows only the mode `{shown[0]}`; for one of `{mode}` "
            "evaluate that mode alone.",
            file=sys.stderr,
        )


def print_table(result: dict[str, Any]) -> None:
    """Print the rows as a table, then the confusion table."""
    rows = result["rows"]
    header = {
        "mode": "mode",
        "alpha_threshold": "threshold",
        "group": result["by"] or "group",
        "sentences": "sentences",
        "percent": result["measure"],
        "published": "published",
        "before_eos": "before <eos>",
        "attention_loss": "attention loss",
        "encoder_depth": "encoder depth",
        "decoder_depth": "decoder depth",
        "skipped": "skipped",
        "seconds": "seconds",
        "macs": "MACs per pair",
        "same_conjuncts": "same conjuncts",
        "bleu": "BLEU on tokens",
    }
    shown = [key for key in header if any(row.get(key) is not None for row in rows)]
    form = {
        "sentences": "{:,}".format,
        "percent": "{:.2f} %".format,
        "published": "{:g} %".format,
        "same_conjuncts": "{:.2f} %".format,
        "before_eos": "{:.2f} %".format,
        "attention_loss": "{:.3f}".format,
        "encoder_depth": "{:.2f}".format,
        "decoder_depth": "{:.2f}".format,
        "bleu": "{:.2f}".format,
        "seconds": "{:.2f}".format,
        "macs": lambda macs: f"{macs / 1e6:.2f} M",
        "skipped": lambda share: f"{100 * share:.1f} %",
    }
    lines = [[header[key] for key in shown]]
    lines += [
        [form.get(key, str)(row[key]) if row.get(key) is not None else "" for key in shown]
        for row in rows
    ]
    print(table(lines, ">"))
    if "confusion" in result:
        labels = list(result["confusion"])
        print(f"\nmacro-F1 {result['macro_f1']:.2f} %\n\nlabel (rows) taken for label (columns)")
        counts = [[label, *map(str, result["confusion"][label].values())] for label in labels]
        print(table([["", *labels], *counts], ">"))
