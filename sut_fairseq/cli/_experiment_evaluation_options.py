"""The options of `sut-experiment evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sut_data.command_line import whole_number
from sut_fairseq.cli._command import add_user_dir


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="folder of a run, or of several"
    )
    parser.add_argument(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="instead of a run: --save-dir of any training of translation, with --data",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="prepared folder (default: the training's)"
    )
    parser.add_argument(
        "--subset", metavar="NAME", help="which set (default: that of the experiment, or test)"
    )
    parser.add_argument(
        "--alpha-threshold",
        type=float,
        metavar="A",
        help="halting threshold (default: that of the training)",
    )
    parser.add_argument(
        "--sweep",
        nargs="*",
        type=float,
        metavar="A",
        help="score and skipped steps at many thresholds (default: 0.1 to 0.999)",
    )
    add_user_dir(parser)
    groups = parser.add_argument_group("by groups of sentences")
    groups.add_argument("--by", metavar="COLUMN", help="other groups than the usual ones")
    groups.add_argument(
        "--steps",
        type=whole_number,
        metavar="N",
        help="steps of the encoder (default: as many as in the training)",
    )
    groups.add_argument(
        "--search",
        action="store_true",
        help="really generate (greedy search), rather than run on the reference targets and count "
        "what greedy search would find, which gives the same score",
    )
    groups.add_argument("--max-sentences", type=whole_number, metavar="N", help="only the first N")
    groups.add_argument(
        "--macs",
        action="store_true",
        help="also count MACs per sentence pair, attention products included (for translations "
        "they are always counted)",
    )
    words = parser.add_argument_group("translations")
    words.add_argument(
        "--best",
        type=whole_number,
        metavar="N",
        help="number of best checkpoints to average (default: 5)",
    )
    words.add_argument(
        "--log",
        metavar="FILE",
        help="log of the training, from which to choose the checkpoints by their NLL on the "
        "validation set (default: by the metric that they store, that of "
        "--best-checkpoint-metric)",
    )
    words.add_argument("--beam", type=whole_number, metavar="N", help="beam size (default: 8)")
    words.add_argument("--lenpen", type=float, metavar="X", help="length penalty (default: 0.4)")
    words.add_argument(
        "--max-tokens",
        type=whole_number,
        metavar="N",
        help="most tokens in a batch, padding included (default: 4096)",
    )
    words.add_argument("--cpu", action="store_true", help="run on the CPU")
    words.add_argument("--out", type=Path, metavar="DIR", help="folder of the results")
