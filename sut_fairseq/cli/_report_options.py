"""The options of `sut-report`, and which of them can be combined."""

from __future__ import annotations

import argparse
from pathlib import Path

from sut_data.command_line import Parser, flags, refuse, whole_number
from sut_data.files import check_can_make
from sut_fairseq.analysis.depth import check_thresholds
from sut_fairseq.cli._command import add_user_dir, number_up_to
from sut_fairseq.cli._overrides import add_model_overrides
from sut_fairseq.errors import InputError

FORMATS = ("png", "pdf", "svg")
PORT = 8517
SPLIT = "test"  # unless the user names another one
_HEADS = ("head", "maximum")
_SEARCH = ("beam", "max_len")
# Filled in after the checks, which have to see which options were given.
_DEFAULTS = {
    "beam": 1,
    "max_len": 200,
    "gen_subset": SPLIT,
    "max_tokens": 4096,
    "format": ["png", "pdf"],
}


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-report",
        description="Draw what a trained model does with sentences at each step: when tokens halt, "
        "where they look, how far copy gates open, which experts compute them. Pictures of a "
        "sentence, a page to look around in (--html), the same page with a field to type into "
        "(--serve), average steps by group (--steps-by), or the words of each expert (--experts). "
        "Of a model of the contextual retrieval task, what its searches retrieve.",
        examples=[
            'sut-report --path checkpoints/mine --sentence "Ein Hund rennt." --out pictures',
            'sut-report --path checkpoints/mine --sentence "Ein Hund rennt." --html',
            "sut-report --path checkpoints/mine --serve",
        ],
    )
    _model(parser.add_argument_group("model"))
    _subject(parser.add_argument_group("what to look at"))
    _pictures(parser.add_argument_group("pictures"))
    _page(parser.add_argument_group("page"))
    return parser


def _model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--path",
        required=True,
        metavar="CHECKPOINT",
        help="a trained model, or a folder with one (the best counts)",
    )
    add_user_dir(group)
    group.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="prepared folder (default: beside the checkpoint, else that of training)",
    )
    add_model_overrides(group)


def _subject(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sentence",
        action="append",
        metavar="TEXT",
        help="raw text, which is tokenised as in sut-translate; give the option once per sentence",
    )
    group.add_argument(
        "--number",
        type=whole_number,
        nargs="+",
        metavar="N",
        help="without --sentence: the N-th of the split (default: the first; a page: three)",
    )
    group.add_argument(
        "--steps-by",
        metavar="COLUMN",
        help="average number of steps for each length (of the source, begin and end tokens "
        "included), source_length or target_length (in words), or value of a column of the folder "
        "(its file text/<split>.<column>); a page always has this chart (default: length)",
    )
    group.add_argument(
        "--experts",
        action="store_true",
        help="which words of a split go to which expert: pointwise mutual information as pictures "
        "and a table, and the words that give the largest share of their weight to each",
    )
    group.add_argument(
        "--target",
        metavar="TEXT",
        help="what the decoder of a translation model reads (default: what it generates)",
    )
    group.add_argument(
        "--beam",
        type=whole_number,
        metavar="N",
        help="beam size while it generates (default: 1, greedy search)",
    )
    group.add_argument(
        "--max-len",
        type=whole_number,
        metavar="N",
        help=f"longest output that it may generate, in words (default: {_DEFAULTS['max_len']})",
    )
    group.add_argument(
        "--gen-subset",
        metavar="SPLIT",
        help=f"which split (default: {SPLIT}); with --steps-by, but for a page, also several, with "
        "commas",
    )
    group.add_argument(
        "--max-sentences",
        type=whole_number,
        metavar="N",
        help="for what is averaged over a split: only its first N (default: all; a page: 200)",
    )
    group.add_argument(
        "--max-tokens",
        type=whole_number,
        metavar="N",
        help="for what is averaged over a split: tokens of a batch (default: "
        f"{_DEFAULTS['max_tokens']})",
    )


def _pictures(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where to write; the pictures of each sentence get a folder of their own in it",
    )
    heads = group.add_mutually_exclusive_group()
    heads.add_argument(
        "--head", type=whole_number, metavar="N", help="attention of the N-th head, from 1"
    )
    heads.add_argument(
        "--maximum", action="store_true", help="maximum attention over all heads (default)"
    )
    group.add_argument(
        "--format",
        nargs="+",
        choices=FORMATS,
        help="of the pictures (default: png pdf)",
    )


def _page(group: argparse._ArgumentGroup) -> None:
    kinds = group.add_mutually_exclusive_group()
    kinds.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path("report.html"),
        metavar="FILE",
        help="write a page in one file that any browser opens without a network (default: "
        "report.html, in --out if that is given)",
    )
    kinds.add_argument(
        "--serve",
        nargs="?",
        type=number_up_to(65535),
        const=PORT,
        metavar="PORT",
        help="show the page at http://127.0.0.1:PORT, to this machine alone, with a field for "
        f"sentences (default: {PORT})",
    )
    group.add_argument(
        "--thresholds",
        nargs="+",
        type=float,
        metavar="A",
        help="halting thresholds of the slider (default: ten from 0.1 to 1); the model's own is "
        "always among them",
    )
    group.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="log of the training (default: train.log beside the checkpoint or one folder above)",
    )


def fill_in_defaults(arguments: argparse.Namespace) -> None:
    """Set options that were left out to their defaults, after those given have been checked."""
    for name, value in _DEFAULTS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse incompatible options before anything is loaded."""
    page = arguments.html is not None or arguments.serve is not None
    if arguments.sentence and arguments.number:
        raise InputError("--sentence and --number both name sentences: give one of them.")
    if page:
        _check_page(arguments)
    else:
        _check_pictures(arguments)
    if arguments.target is not None:
        named = len(arguments.sentence or arguments.number or ())
        # A page shows several sentences if none is named.
        if named > 1 or (page and named == 0):
            raise InputError(
                "--target is for one sentence: give one --sentence or --number with it."
            )
        refuse(arguments, _SEARCH, "with --target nothing is generated")
    if arguments.out is not None:
        check_can_make(arguments.out, f"--out {arguments.out}", inside=True)
    if arguments.log is not None and not arguments.log.is_file():
        raise InputError(f"There is no log `{arguments.log}`; check --log.")


def _check_page(arguments: argparse.Namespace) -> None:
    refuse(arguments, _HEADS, "a page shows all heads")
    refuse(arguments, ("experts",), "a page always shows the words of each expert")
    refuse(arguments, ("format",), "a page writes no pictures")
    check_thresholds("--thresholds", arguments.thresholds or ())
    if arguments.serve is not None:
        refuse(arguments, ("out", "target"), "a served page is not written")


def _check_pictures(arguments: argparse.Namespace) -> None:
    refuse(arguments, ("thresholds", "log"), "only a page has them: give --html or --serve")
    if arguments.out is None:
        raise InputError("name a folder for the pictures with --out, or give --html.")
    of_split = [name for name in ("steps_by", "experts") if getattr(arguments, name)]
    if len(of_split) > 1:
        raise InputError("--steps-by and --experts draw different things: give one of them.")
    if of_split:
        reason = f"{flags(of_split)} draws no sentence"
        refuse(arguments, ("sentence", "number", "target", *_HEADS, *_SEARCH), reason)
    else:
        reason = "only --steps-by, --experts and pages go through the sentences of a split"
        refuse(arguments, ("max_sentences", "max_tokens"), reason)
    if arguments.sentence:
        refuse(arguments, ("gen_subset",), "--sentence is of no split")
