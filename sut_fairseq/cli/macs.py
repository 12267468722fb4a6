"""`sut-macs`: parameters and MACs of an architecture or a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import checkpoint_utils, models, options, tasks
from fairseq.data import Dictionary
from torch import nn
from tqdm import tqdm

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq import losses
from sut_fairseq.analysis.complexity import Complexity, count, without_padding
from sut_fairseq.cli._command import load_checkpoint, print_json, run_command
from sut_fairseq.modules.errors import check

_MODEL_FLAGS_NOTE = (
    "With --arch, any other flag of the architecture may follow, e.g. --encoder-layers 12."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-macs", lambda: _main(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sut-macs",
        description="Count parameters and multiply-accumulate operations (MACs) with ptflops, in "
        "the convention of the published figures and with the attention products included.",
        epilog=_MODEL_FLAGS_NOTE,
    )
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--arch", help="a fairseq architecture, of this package or fairseq's own")
    model.add_argument("--path", help="a checkpoint")
    parser.add_argument(
        "--src-len", type=int, default=10, help="number of source tokens, end of sentence included"
    )
    parser.add_argument(
        "--tgt-len", type=int, default=10, help="number of target tokens, end of sentence included"
    )
    parser.add_argument(
        "--vocab-size", type=int, default=37000, help="size of the dictionary (with --arch)"
    )
    parser.add_argument(
        "--data", help="a binarised data folder: count its sentence pairs (with --path)"
    )
    parser.add_argument("--gen-subset", default="test", help="split of --data to count")
    parser.add_argument("--source-lang", help="source language of --data (default: as in training)")
    parser.add_argument("--target-lang", help="target language of --data (default: as in training)")
    parser.add_argument("--max-sentences", type=int, help="count only the first N pairs of --data")
    parser.add_argument("--alpha-threshold", type=float, help="override the halting threshold")
    parser.add_argument("--seed", type=int, default=1, help="seed of random tokens and weights")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments, model_flags = _parser().parse_known_args(argv)
    if model_flags and arguments.path:
        raise ValueError(f"unknown arguments: {' '.join(model_flags)}.")
    if arguments.data and not arguments.path:
        raise ValueError("--data needs a trained model: give --path CHECKPOINT, not --arch.")
    torch.manual_seed(arguments.seed)
    if arguments.arch:
        model, dictionary = _from_architecture(arguments, model_flags)
        task = None
    else:
        model, task = _from_checkpoint(arguments)
        dictionary = task.target_dictionary
    if arguments.data:
        pairs = _pairs(task, arguments)
        batches = list(without_padding(pairs, dictionary.eos()))
    else:
        batches = [_random_batch(model, dictionary, arguments)]
    progress = tqdm(batches, desc="counting", unit="batch", disable=len(batches) == 1)
    result = report(count(model, progress))
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
                "depth": float(h.steps_run / h.tokens),
                "expected_depth": float(losses.expected_depth(h)),
                "skipped": float(losses.skipped_share(h)),
            }
            for stack, h in complexity.halting.items()
        }
    return result


def print_table(result: dict[str, Any]) -> None:
    """Print a report for people."""
    rows = [
        ("parameters", f"{result['params'] / 1e6:.2f} M"),
        ("MACs (paper convention)", f"{result['macs'] / 1e6:.2f} M"),
        *((f"  {part}", f"{macs / 1e6:.2f} M") for part, macs in result["by_part"].items()),
        ("MACs (with attention products)", f"{result['macs_full'] / 1e6:.2f} M"),
        *((f"  {kind}", f"{macs / 1e6:.2f} M") for kind, macs in result["by_kind"].items()),
        ("sentence pairs", str(result["sentences"])),
        (
            "tokens per pair (source, target)",
            f"{result['source_tokens'] / result['sentences']:.1f}, "
            f"{result['target_tokens'] / result['sentences']:.1f}",
        ),
    ]
    for stack, halting in result.get("halting", {}).items():
        rows.append((f"{stack} depth, steps per token", f"{halting['depth']:.2f}"))
        rows.append((f"{stack} steps skipped", f"{100 * halting['skipped']:.1f} %"))
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{width}}  {value:>12}")


def _from_architecture(
    arguments: argparse.Namespace, model_flags: list[str]
) -> tuple[nn.Module, Dictionary]:
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
    parsed = options.parse_args_and_arch(parser, ["unused", "--arch", arguments.arch, *model_flags])
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    name = models.ARCH_MODEL_NAME_REGISTRY[arguments.arch]
    dataclass = models.MODEL_DATACLASS_REGISTRY.get(name)
    config = parsed if dataclass is None else dataclass.from_namespace(parsed)
    return models.ARCH_MODEL_REGISTRY[arguments.arch].build_model(config, task), dictionary


def _from_checkpoint(arguments: argparse.Namespace) -> tuple[nn.Module, tasks.FairseqTask]:
    load_checkpoint(arguments.path)  # refuses what is no checkpoint with one clear sentence
    overrides = {} if arguments.data is None else {"data": arguments.data}
    for key in ("source_lang", "target_lang", "alpha_threshold"):
        if getattr(arguments, key) is not None:
            overrides[key] = getattr(arguments, key)
    ensemble, _, task = checkpoint_utils.load_model_ensemble_and_task([arguments.path], overrides)
    return ensemble[0], task


def _pairs(
    task: tasks.FairseqTask, arguments: argparse.Namespace
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    task.load_dataset(arguments.gen_subset)
    dataset = task.dataset(arguments.gen_subset)
    size = min(len(dataset), arguments.max_sentences or len(dataset))
    check(size > 0, "--data", "a folder whose split has sentence pairs", "empty")
    return [(dataset[i]["source"], dataset[i]["target"]) for i in range(size)]


def _random_batch(
    model: nn.Module, dictionary: Dictionary, arguments: argparse.Namespace
) -> dict[str, torch.Tensor]:
    for name, length, most in (
        ("--src-len", arguments.src_len, model.max_positions()[0]),
        ("--tgt-len", arguments.tgt_len, model.max_positions()[1]),
    ):
        check(1 <= length <= most, name, f"between 1 and the model's maximum ({most})", length)
    first = dictionary.nspecial

    def tokens(length: int) -> torch.Tensor:
        return torch.randint(first, len(dictionary), (1, length))

    return {
        "src_tokens": tokens(arguments.src_len),
        "src_lengths": torch.tensor([arguments.src_len]),
        "prev_output_tokens": tokens(arguments.tgt_len),
    }


if __name__ == "__main__":
    sys.exit(main())
