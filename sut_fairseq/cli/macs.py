"""`sut-macs`: parameters and MACs of an architecture or a checkpoint."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from fairseq import checkpoint_utils, models, options, tasks
from fairseq.data import Dictionary
from tqdm import tqdm

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq import losses
from sut_fairseq.analysis.complexity import (
    PRODUCTS,
    REPEATED,
    Complexity,
    count,
    without_padding,
)
from sut_fairseq.cli._command import load_checkpoint, print_json, run_command
from sut_fairseq.modules.errors import InputError, check
from sut_fairseq.modules.halting import StickBreakingHalting


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    logger = logging.getLogger("sut_fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        return run_command("sut-macs", lambda: _main(argv))
    finally:
        logger.setLevel(level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sut-macs",
        usage="sut-macs (--arch NAME | --path CHECKPOINT [--data DATA-BIN]) [options]",
        description="Count parameters and multiply-accumulate operations (MACs) with ptflops: in "
        "the convention of the published figures, and with the attention products included. "
        "Figures are per sentence pair, teacher-forced.",
        epilog="After --arch NAME every flag of that architecture is understood too, for example "
        "--encoder-layers 12.",
        allow_abbrev=False,  # an abbreviation might be another flag of the architecture
    )
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--arch", metavar="NAME", help="an architecture of this package or fairseq's own, untrained"
    )
    model.add_argument("--path", metavar="CHECKPOINT", help="a trained model")
    lengths = parser.add_argument_group("what to count (default: one pair of random tokens)")
    for side, name in (("src", "source"), ("tgt", "target")):
        lengths.add_argument(
            f"--{side}-len",
            type=int,
            default=10,
            metavar="N",
            help=f"{name} tokens, the end of the sentence included (default: %(default)s)",
        )
    lengths.add_argument(
        "--vocab-size",
        type=int,
        default=37000,
        metavar="V",
        help="size of the one dictionary of --arch (default: %(default)s)",
    )
    lengths.add_argument(
        "--data", metavar="DATA-BIN", help="count the sentence pairs of this binarised folder"
    )
    lengths.add_argument(
        "--gen-subset", default="test", metavar="SPLIT", help="which of them (default: %(default)s)"
    )
    lengths.add_argument(
        "--max-sentences", type=int, metavar="N", help="only the first N (default: all)"
    )
    for side in ("source", "target"):
        lengths.add_argument(
            f"--{side}-lang", metavar="LANG", help=f"{side} language (default: as in training)"
        )
    parser.add_argument(
        "--alpha-threshold",
        type=float,
        metavar="A",
        help="halting threshold (default: the checkpoint's; with --arch nothing halts, because an "
        "untrained halting unit says nothing)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of random tokens and weights (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments, model_flags = _parser().parse_known_args(argv)
    if model_flags and arguments.path:
        raise InputError(f"unknown arguments: {' '.join(model_flags)}; see `sut-macs --help`.")
    if arguments.data and not arguments.path:
        raise InputError("--data needs a trained model: give --path CHECKPOINT, not --arch.")
    torch.manual_seed(arguments.seed)
    if arguments.arch:
        model, task = _from_architecture(arguments, model_flags)
    else:
        model, task = _from_checkpoint(arguments)
    if arguments.data:
        batches = list(without_padding(_pairs(task, arguments), task.target_dictionary.eos()))
    else:
        batches = [_random_batch(model, task, arguments)]
    progress = tqdm(batches, desc="counting", unit="batch", disable=None)
    try:
        result = report(count(model, progress))
    except RuntimeError as error:
        raise InputError(str(error)) from error
    if arguments.json:
        print_json(result)
    else:
        print_table(result)


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
        run_steps = sum(float(h.steps_run) for h in complexity.halting.values())
        possible = sum(float(h.steps_possible) for h in complexity.halting.values())
        result["skipped"] = 1 - run_steps / possible
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
    """Print a report for people."""
    notes = {PRODUCTS: " (second figure only)", REPEATED: " (first figure only)"}
    rows = [
        ("parameters", _millions(result["params"])),
        ("MACs, convention of the paper", _millions(result["macs"])),
        *((f"  {part}", _millions(macs)) for part, macs in result["by_part"].items()),
        ("MACs with attention products", _millions(result["macs_full"])),
        ("MACs by kind of work", ""),
        *(
            (f"  {kind}{notes.get(kind, '')}", _millions(macs))
            for kind, macs in result["by_kind"].items()
        ),
        ("sentence pairs", str(result["sentences"])),
        ("source tokens per pair", f"{result['source_tokens'] / result['sentences']:.1f}"),
        ("target tokens per pair", f"{result['target_tokens'] / result['sentences']:.1f}"),
    ]
    for stack, halting in result.get("halting", {}).items():
        rows.append((f"{stack} steps per token", f"{halting['depth']:.2f}"))
        rows.append((f"{stack} steps skipped", f"{100 * halting['skipped']:.1f} %"))
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{width}}  {value:>12}".rstrip())


def _millions(number: int) -> str:
    return f"{number / 1e6:.2f} M"


def _from_architecture(
    arguments: argparse.Namespace, model_flags: list[str]
) -> tuple[Any, SimpleNamespace]:
    """An untrained model, and as much of a task as building it needs."""
    check(
        arguments.arch in models.ARCH_MODEL_REGISTRY,
        "--arch",
        "an architecture that fairseq-train knows (e.g. sut_base, ut_base, transformer_wmt_en_de)",
        arguments.arch,
    )
    dictionary = Dictionary()
    check(
        arguments.vocab_size > len(dictionary),
        "--vocab-size",
        f"greater than the number of special symbols ({len(dictionary)})",
        arguments.vocab_size,
    )
    for word in range(arguments.vocab_size - len(dictionary)):
        dictionary.add_symbol(str(word))
    if arguments.alpha_threshold is not None:
        model_flags = [*model_flags, "--alpha-threshold", str(arguments.alpha_threshold)]
    parser = options.get_training_parser()
    parser.error = _refuse  # its own prints 200 lines of usage
    parsed = options.parse_args_and_arch(parser, ["unused", "--arch", arguments.arch, *model_flags])
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    name = models.ARCH_MODEL_NAME_REGISTRY[arguments.arch]
    dataclass = models.MODEL_DATACLASS_REGISTRY.get(name)
    config = parsed if dataclass is None else dataclass.from_namespace(parsed)
    model = models.ARCH_MODEL_REGISTRY[arguments.arch].build_model(config, task)
    if arguments.alpha_threshold is None:
        for module in model.modules():
            if isinstance(module, StickBreakingHalting):
                module.alpha_threshold = math.inf
    return model, task


def _refuse(message: str) -> NoReturn:
    raise InputError(f"{message}; see `sut-macs --help`.")


def _from_checkpoint(arguments: argparse.Namespace) -> tuple[Any, tasks.FairseqTask]:
    load_checkpoint(arguments.path)  # refuses what is no checkpoint with one clear sentence
    overrides = {} if arguments.data is None else {"data": arguments.data}
    for key in ("source_lang", "target_lang", "alpha_threshold"):
        if getattr(arguments, key) is not None:
            overrides[key] = getattr(arguments, key)
    try:
        found = checkpoint_utils.load_model_ensemble_and_task([arguments.path], overrides)
    except FileNotFoundError as error:
        raise InputError(
            f"the model's dictionaries are not where they should be (`{error.filename}`): name the "
            "folder that holds them with --data."
        ) from error
    except RuntimeError as error:
        if "size mismatch" not in str(error):
            raise
        raise InputError(
            f"the model in `{arguments.path}` does not fit the dictionaries of its data folder: "
            "give --data a folder that was prepared with the dictionaries of the training data."
        ) from error
    ensemble, _, task = found
    return ensemble[0], task


def _pairs(
    task: tasks.FairseqTask, arguments: argparse.Namespace
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    task.load_dataset(arguments.gen_subset)
    dataset = task.dataset(arguments.gen_subset)
    size = len(dataset)
    check(size > 0, "--data", "a folder whose split has sentence pairs", "empty")
    if arguments.max_sentences is not None:
        size = min(size, arguments.max_sentences)
        check(size > 0, "--max-sentences", "at least 1", arguments.max_sentences)
    return [(dataset[i]["source"], dataset[i]["target"]) for i in range(size)]


def _random_batch(model: Any, task: Any, arguments: argparse.Namespace) -> dict[str, torch.Tensor]:
    tokens = {}
    for side, dictionary, length, most in zip(
        ("--src-len", "--tgt-len"),
        (task.source_dictionary, task.target_dictionary),
        (arguments.src_len, arguments.tgt_len),
        model.max_positions(),
    ):
        check(1 <= length <= most, side, f"between 1 and the model's maximum ({most})", length)
        tokens[side] = torch.randint(dictionary.nspecial, len(dictionary), (1, length))
    return {
        "src_tokens": tokens["--src-len"],
        "src_lengths": torch.tensor([arguments.src_len]),
        "prev_output_tokens": tokens["--tgt-len"],
    }


if __name__ == "__main__":
    sys.exit(main())
