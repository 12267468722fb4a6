"""`sut-macs`: count the parameters and MACs of an architecture or a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks
from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel
from tqdm import tqdm

from sut_data.command_line import Parser, refuse, seed
from sut_data.tables import table
from sut_data.waiting import waiting
from sut_fairseq import losses
from sut_fairseq.analysis import trained, untrained
from sut_fairseq.analysis.complexity import Complexity, count, without_padding
from sut_fairseq.analysis.counting import PRODUCTS, REPEATED
from sut_fairseq.analysis.depth import check_uses_threshold, skipped
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import name_of
from sut_fairseq.cli._command import add_languages, add_user_dir, print_json, run_command
from sut_fairseq.errors import InputError
from sut_fairseq.inference.files import find_checkpoint
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel

# Defaults where the command line does not say what to count.
_LENGTH, _VOCAB_SIZE, _SPLIT = 10, 37000, "test"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-macs", lambda: _main(argv))


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-macs",
        usage="sut-macs (--arch NAME | --path CHECKPOINT [--data DATA-BIN]) [options]",
        description="Count parameters and multiply-accumulate operations (MACs) with ptflops: in "
        "the convention of the published figures, and with the attention products included. "
        "Figures are per sentence pair, under teacher forcing.",
        epilog="After --arch NAME every option of that architecture is understood too, for example "
        "--encoder-layers 12.",
        examples=[
            "sut-macs --arch sut_base --src-len 10 --tgt-len 10 --vocab-size 37000",
            "sut-macs --path checkpoints/mine/checkpoint_best.pt --data data-bin/mine",
        ],
    )
    group = parser.add_argument_group("which model")
    model = group.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--arch", metavar="NAME", help="an architecture of this package or fairseq's own, untrained"
    )
    model.add_argument("--path", metavar="CHECKPOINT", help="a trained model")
    add_user_dir(group)
    lengths = parser.add_argument_group("what to count (default: one pair of random tokens)")
    for side, name in (("src", "source"), ("tgt", "target")):
        lengths.add_argument(
            f"--{side}-len",
            type=int,
            metavar="N",
            help=f"{name} tokens, the end of the sentence included (default: {_LENGTH})",
        )
    lengths.add_argument(
        "--vocab-size",
        type=int,
        metavar="V",
        help=f"size of the one dictionary of --arch (default: {_VOCAB_SIZE})",
    )
    lengths.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="count the sentence pairs of this binarised folder, with all target tokens as in "
        "training (of a classification the label and its end; of a language model only the "
        "dictionary is read, and --src-len says how long its sentence is)",
    )
    lengths.add_argument(
        "--gen-subset", metavar="SPLIT", help=f"which split of it (default: {_SPLIT})"
    )
    lengths.add_argument(
        "--max-sentences", type=int, metavar="N", help="only the first N (default: all)"
    )
    add_languages(lengths)
    parser.add_argument(
        "--alpha-threshold",
        type=float,
        metavar="A",
        help="halting threshold (default: the checkpoint's; with --arch nothing halts, because an "
        "untrained halting unit says nothing)",
    )
    parser.add_argument(
        "--seed",
        type=seed,
        default=1,
        metavar="N",
        help="seed of random tokens and weights (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments, model_flags = make_parser().parse_known_args(argv)
    if model_flags and arguments.path:
        raise InputError(f"unknown arguments: {' '.join(model_flags)}; see `sut-macs --help`.")
    result = measured(arguments, model_flags)
    if arguments.json:
        print_json(result)
    else:
        print_table(result)


def measured(arguments: argparse.Namespace, model_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Build or load the model that a command line names, and count; see `report`.

    Raises:
        InputError: for bad input.
    """
    _check_options(arguments)
    torch.manual_seed(arguments.seed)
    with waiting("building the model" if arguments.arch else "loading the model"):
        if arguments.arch:
            model, task = untrained.build(
                arguments.arch,
                _VOCAB_SIZE if arguments.vocab_size is None else arguments.vocab_size,
                model_flags,
                alpha_threshold=arguments.alpha_threshold,
            )
        else:
            model, task = _from_checkpoint(arguments)
    if isinstance(model, ContextualRetrievalModel):
        raise InputError(untrained.READS_NUMBERS)
    if arguments.alpha_threshold is not None:
        check_uses_threshold("--alpha-threshold", model)
    if arguments.tgt_len is not None and not isinstance(model, FairseqEncoderDecoderModel):
        raise InputError("--tgt-len is for models with a decoder: leave it out.")
    if arguments.data and not isinstance(model, FairseqLanguageModel):
        with waiting("loading the sentence pairs"):
            split = arguments.gen_subset or _SPLIT
            pairs = trained.sentence_pairs(task, split, arguments.max_sentences)
            batches = list(without_padding(pairs, task.target_dictionary.eos()))
    else:
        lengths = {
            side: _LENGTH if getattr(arguments, side) is None else getattr(arguments, side)
            for side in ("src_len", "tgt_len")
        }
        if not isinstance(model, FairseqEncoderDecoderModel):
            lengths["tgt_len"] = 1  # a label
        batches = [untrained.random_batch(model, task, **lengths)]
    progress = tqdm(batches, desc="counting", unit="batch", disable=None)
    return report(count(model, progress))


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse incompatible options before anything is loaded."""
    if arguments.data and not arguments.path:
        raise InputError("--data needs a trained model: give --path CHECKPOINT, not --arch.")
    if arguments.path:
        refuse(arguments, ("vocab_size",), "a trained model has words of its own")
    else:
        reason = "an untrained model has no languages"
        refuse(arguments, ("source_lang", "target_lang"), reason)
    if arguments.path and _is_language_model(Path(arguments.path)):
        reason = "of a language model random tokens are counted"
        refuse(arguments, ("gen_subset", "max_sentences"), reason)
    elif arguments.data:
        reason = "--data counts sentence pairs, which have lengths of their own"
        refuse(arguments, ("src_len", "tgt_len"), reason, instead="--data")
    else:
        reason = "without --data a pair of random tokens is counted"
        refuse(arguments, ("gen_subset", "max_sentences"), reason)


def report(complexity: Complexity) -> dict[str, Any]:
    """Figures per sentence pair, ready for JSON."""
    n = complexity.sentences
    result: dict[str, Any] = {
        "params": complexity.params,
        "macs": round(complexity.macs / n),
        "macs_full": round(complexity.macs_full / n),
        "by_part": {part: round(macs / n) for part, macs in complexity.by_part.items()},
        "by_kind": {kind: round(macs / n) for kind, macs in complexity.by_kind.items()},
        "sentences": n,
        "source_tokens": complexity.source_tokens,
        "target_tokens": complexity.target_tokens,
    }
    if complexity.halting:
        result["skipped"] = skipped(complexity.halting.values())
        result["halting"] = {
            stack: {
                "depth": float(h.depth),
                "expected_depth": float(losses.expected_depth(h)),
                "skipped": float(h.skipped),
            }
            for stack, h in complexity.halting.items()
        }
    return result


def print_table(result: dict[str, Any]) -> None:
    """Print a report as text."""
    shown = _in_units(min(result["params"], result["macs"], result["macs_full"]))
    notes = {PRODUCTS: " (second figure only)", REPEATED: " (first figure only)"}
    rows = [
        ("parameters", shown(result["params"])),
        ("MACs, convention of the paper", shown(result["macs"])),
        *((f"  {part}", shown(macs)) for part, macs in result["by_part"].items()),
        ("MACs with attention products", shown(result["macs_full"])),
        ("MACs by kind of work", ""),
        *(
            (f"  {kind}{notes.get(kind, '')}", shown(macs))
            for kind, macs in result["by_kind"].items()
        ),
        ("sentence pairs", str(result["sentences"])),
        ("source tokens per pair", f"{result['source_tokens'] / result['sentences']:.1f}"),
        ("target tokens per pair", f"{result['target_tokens'] / result['sentences']:.1f}"),
    ]
    for stack, halting in result.get("halting", {}).items():
        rows.append((f"{stack} steps per token", f"{halting['depth']:.2f}"))
        rows.append((f"{stack} steps skipped", f"{100 * halting['skipped']:.1f} %"))
    print(table(rows))


def _in_units(total: int) -> Callable[[int], str]:
    """How to show all numbers, to compare them: in thousands, or in millions if `total` has ten."""
    unit, name = (1e3, "k") if total < 1e7 else (1e6, "M")
    return lambda number: f"{number / unit:,.2f} {name}"


def _is_language_model(path: Path) -> bool:
    """Whether a checkpoint is a language model; a path without one is refused on loading."""
    if not path.exists():
        return False
    state = load_checkpoint(find_checkpoint(path), lazy=True)
    return bool(name_of(state, "task") == "language_modeling")


def _from_checkpoint(arguments: argparse.Namespace) -> tuple[Any, tasks.FairseqTask]:
    checkpoint = find_checkpoint(Path(arguments.path))
    keys = ("data", "source_lang", "target_lang", "alpha_threshold")
    given = {key: getattr(arguments, key) for key in keys}
    if arguments.data is None and any(checkpoint.parent.glob("dict.*txt")):
        given["data"] = str(checkpoint.parent)  # an exported model comes with its dictionaries
    return trained.load(
        str(checkpoint), {key: value for key, value in given.items() if value is not None}
    )


if __name__ == "__main__":
    sys.exit(main())
