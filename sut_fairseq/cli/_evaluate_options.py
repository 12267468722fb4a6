"""The command line of `sut-evaluate`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from sut_data.command_line import Parser, whole_number
from sut_fairseq.analysis import evaluation
from sut_fairseq.cli._command import add_user_dir
from sut_fairseq.cli._overrides import add_model_overrides

MODES = ("reference", "search")
_LENGTH_BINS = 10


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-evaluate",
        description="Accuracy (classification) or exact match (sequences) of a trained model on a "
        "split, and how many steps its tokens run, for each group of sentences and each halting "
        "threshold. Every sentence counts: one that is too long for the model is an error.",
        examples=[
            "sut-evaluate --path runs/mine/checkpoints/checkpoint_best.pt --by source_length",
            "sut-evaluate --path checkpoint_best.pt --thresholds 0.3 0.6 0.9 --plot thresholds.png",
        ],
    )
    parser.add_argument("--path", required=True, metavar="CHECKPOINT", help="a trained model")
    what = parser.add_argument_group("which sentences")
    how = parser.add_argument_group("how the model runs")
    add_user_dir(how)
    shown = parser.add_argument_group("what is shown")
    what.add_argument("--data", metavar="DATA-BIN", help="prepared folder (default: training's)")
    what.add_argument(
        "--gen-subset",
        default="test",
        metavar="SPLIT",
        help="which split to evaluate (default: %(default)s)",
    )
    what.add_argument(
        "--by",
        metavar="COLUMN",
        help="a row for each value of source_length, target_length, or a column of the folder "
        "(its file text/<split>.<column>: operators, type, ...)",
    )
    what.add_argument(
        "--bins",
        type=_bins,
        metavar="N",
        help="with --by: at most N rows; neighbouring values share one, so that all rows have "
        "about equally many sentences; `all`: a row for each value (default: "
        f"{_LENGTH_BINS} for lengths, all for columns of the folder and with --published)",
    )
    how.add_argument(
        "--thresholds",
        nargs="+",
        type=float,
        metavar="A",
        help="halting thresholds (default: the checkpoint's own)",
    )
    add_model_overrides(how)
    how.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        help="reference: teacher forcing, as in the paper; right is what greedy search would find "
        "(default). search: really generate (default where gold attention is known, "
        "for its measures)",
    )
    how.add_argument(
        "--beam", type=whole_number, metavar="N", help="beam size of search (default: 1)"
    )
    how.add_argument(
        "--max-len",
        type=whole_number,
        metavar="N",
        help="longest output of search, in words (default: the split's longest target plus 10)",
    )
    shown.add_argument(
        "--conjuncts",
        action="store_true",
        help="for CFQ, with --modes search: also the share of queries with the right set of "
        "conditions in any order",
    )
    shown.add_argument(
        "--bleu",
        action="store_true",
        help="for translations, with --modes search: also BLEU on tokens (all scores: sut-bleu)",
    )
    shown.add_argument(
        "--macs",
        action="store_true",
        help="also multiply-accumulates per sentence pair under teacher forcing, attention "
        "products included (of a classification of a label and its end); runs the model once more "
        "on each pair (by part: sut-macs)",
    )
    shown.add_argument(
        "--confusion",
        action="store_true",
        help="for classification: also macro-F1 and the confusion table",
    )
    shown.add_argument(
        "--published",
        nargs="+",
        type=_published,
        default=[],
        metavar="GROUP=NUMBER",
        help="numbers to print beside ours, in per cent; `all` is the row of all sentences",
    )
    what.add_argument("--max-sentences", type=whole_number, metavar="N", help="only the first N")
    how.add_argument(
        "--max-tokens",
        type=whole_number,
        default=4096,
        metavar="N",
        help="tokens in a batch (default: 4096)",
    )
    how.add_argument(
        "--device", metavar="NAME", help="cpu or cuda (default: cuda where there is a GPU)"
    )
    shown.add_argument("--csv", type=Path, metavar="FILE", help="write the rows into a CSV file")
    shown.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw score against skipped steps (several thresholds), or score and depth by group",
    )
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _bins(text: str) -> int:
    """Number of rows; 0 stands for `all`."""
    return 0 if text == "all" else whole_number(text)


def num_rows(arguments: argparse.Namespace) -> int:
    """Maximum number of rows that the user wants; 0: one for each value."""
    if arguments.bins is not None:
        return int(arguments.bins)
    by_value = arguments.by not in evaluation.LENGTHS or arguments.published
    return 0 if by_value else _LENGTH_BINS


def _published(text: str) -> tuple[str, float]:
    group, _, number = text.rpartition("=")
    try:
        published = float(number)
    except ValueError:
        published = math.nan
    if not math.isfinite(published):
        raise argparse.ArgumentTypeError(f"must be GROUP=NUMBER, but is {text!r}")
    return group, published
