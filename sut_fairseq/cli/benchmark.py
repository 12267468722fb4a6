"""`sut-benchmark`: measure time and memory against other ways to compute the same."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from sut_data.command_line import Parser, seed, whole_number
from sut_data.tables import table
from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq.analysis.benchmark import (
    attention,
    decoding,
    experts,
    functions,
    halting,
    memory,
    training,
)
from sut_fairseq.analysis.benchmark.timing import Conditions
from sut_fairseq.cli import _plan
from sut_fairseq.cli._command import add_user_dir, number_up_to, print_json, run_command
from sut_fairseq.errors import InputError
from sut_fairseq.inference.files import find_checkpoint

_SUBJECTS: dict[str, Any] = {
    "experts": experts,
    "attention": attention,
    "halting": halting,
    "train": training,
    "decode": decoding,
    "memory": memory,
    "functions": functions,
}

_DEVICES = ("cpu", "cuda")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-benchmark", lambda: _main(argv))


def make_parser(preset: str | None = None) -> Parser:
    """Return the command line, with the defaults of a preset."""
    parser = Parser(
        "sut-benchmark",
        description="Measure time and memory against other ways to compute the same. All variants "
        "run in turn in one process, and a ratio is the median of the quotients of paired times, "
        "so that a machine whose speed drifts still compares them fairly.",
        epilog="`sut-benchmark SUBJECT --help` lists the sizes of a subject.",
        examples=[
            "sut-benchmark train --repetitions 5",
            "sut-benchmark halting --path checkpoint_best.pt --data data-bin/mine --json",
        ],
    )
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    for name, subject in _SUBJECTS.items():
        about = subject.__doc__ or ""
        line = about.partition("\n")[0].removesuffix(".")
        one = subjects.add_parser(
            name,
            help=line[:1].lower() + line[1:],
            description=about,
            examples=[
                f"sut-benchmark {name} --threads 2",
                f"sut-benchmark {name} --repetitions 5 --json",
            ],
        )
        _add_sizes(one, subject.Sizes)
        presets = getattr(subject, "PRESETS", {})
        if presets:
            text = "; ".join(f"{key}: {value.about}" for key, value in presets.items())
            one.add_argument("--preset", choices=presets, help=f"other defaults; {text}")
        if preset in presets:
            one.set_defaults(**presets[preset].sizes)
        _add_conditions(one, subject.REPETITIONS)
    text = (
        "what a training on many GPUs costs, from measured speed and stated assumptions: time, "
        "memory by part, bytes sent"
    )
    planned = subjects.add_parser(
        "plan",
        help=text,
        description=f"Compute {text}.",
        epilog="Every flag of the architecture is understood too, for example --ffn-experts 96 or "
        "--checkpoint-activations. docs/scale.md says what is measured and what is assumed.",
        examples=[
            "sut-benchmark plan --tokens 4.5e9 --gpus 8",
            "sut-benchmark plan --tokens 4.5e9 --gpus 64 --arch sut_big --dtype bfloat16 --json",
        ],
    )
    _plan.add_arguments(planned)
    add_user_dir(planned)
    return parser


def _add_sizes(parser: argparse.ArgumentParser, kind: Any) -> None:
    """A flag for each size of a subject."""
    group = parser.add_argument_group("what to measure")
    for one in fields(kind):
        flag, text = "--" + one.name.replace("_", "-"), one.metadata["help"]
        default: Any = one.default
        if isinstance(default, bool):
            group.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=default, help=text
            )
            continue
        several = isinstance(default, tuple)
        shown = " ".join(map(str, default)) if several else default
        group.add_argument(
            flag,
            type=whole_number if one.metadata["kind"] is int else one.metadata["kind"],
            default=default,
            nargs="+" if several else None,
            metavar={int: "N", float: "X"}.get(one.metadata["kind"], "NAME"),
            help=text if default is None else f"{text} (default: {shown})",
        )


def _add_conditions(parser: argparse.ArgumentParser, repetitions: int) -> None:
    """The flags that all subjects share."""
    group = parser.add_argument_group("how to measure")
    group.add_argument("--device", default="cpu", choices=_DEVICES, help="default: %(default)s")
    group.add_argument(
        "--dtype",
        default="float32",
        choices=_DTYPES,
        help="bfloat16 and float16: under autocast (default: %(default)s)",
    )
    group.add_argument(
        "--threads",
        type=number_up_to(4096),
        metavar="N",
        help="threads on the CPU (default: torch's own choice)",
    )
    group.add_argument(
        "--repetitions",
        type=whole_number,
        default=repetitions,
        metavar="N",
        help="how often each variant is measured (default: %(default)s)",
    )
    group.add_argument(
        "--seed", type=seed, default=1, metavar="N", help="seed of weights and inputs (default: 1)"
    )
    group.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_user_dir(group)


def _main(argv: Sequence[str] | None) -> None:
    arguments, others = make_parser().parse_known_args(argv)
    if arguments.subject == "plan":
        _plan.run(arguments, others)
        return
    arguments = make_parser(getattr(arguments, "preset", None)).parse_args(argv)
    subject = _SUBJECTS[arguments.subject]
    sizes = _sizes(subject.Sizes, arguments)
    conditions = _conditions(arguments)
    if conditions.device.type == "cpu":
        keep_freed_memory()  # for every variant, as in training, not only from our first one on
    threads = torch.get_num_threads()
    torch.set_num_threads(arguments.threads or threads)
    try:
        report = subject.run(sizes, conditions)
    except (MemoryError, RuntimeError) as error:
        of_gpu = isinstance(error, torch.OutOfMemoryError)
        if not (of_gpu or isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)):
            raise
        raise InputError(
            "these sizes need more memory than there is: choose smaller ones."
        ) from error
    finally:
        torch.set_num_threads(threads)
    if arguments.json:
        print_json(report.document())
    else:
        print(text_of(report.document()))


def _sizes(kind: Any, arguments: argparse.Namespace) -> Any:
    """The subject's sizes, after the checks that do not depend on the subject."""
    values = {one.name: getattr(arguments, one.name) for one in fields(kind)}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    path, data = values.get("path"), values.get("data")
    if data is not None and path is None:
        raise InputError("--data needs a trained model: give --path CHECKPOINT.")
    if path is not None:
        if data is None:
            raise InputError("--path needs sentences to run the model on: give --data DATA-BIN.")
        values["path"] = str(find_checkpoint(Path(path)))
    return kind(**values)


def _conditions(arguments: argparse.Namespace) -> Conditions:
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda needs a GPU, but torch finds none: use --device cpu.")
    return Conditions(
        device=torch.device(arguments.device),
        dtype=_DTYPES[arguments.dtype],
        repetitions=arguments.repetitions,
        seed=arguments.seed,
    )


# Heading of a column, the value that it shows, and its format; empty columns are left out.
_COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("median", "median", lambda seconds: f"{1e3 * seconds:,.2f} ms"),
    ("least", "min", lambda seconds: f"{1e3 * seconds:,.2f} ms"),
    ("greatest", "max", lambda seconds: f"{1e3 * seconds:,.2f} ms"),
    ("GMAC/s", "gmacs_per_second", lambda rate: f"{rate:,.2f}"),
    ("tokens/s", "tokens_per_second", lambda rate: f"{rate:,.0f}"),
    ("peak memory", "peak_bytes", lambda num_bytes: f"{num_bytes / 2**20:,.1f} MiB"),
    ("parameters", "params", lambda number: f"{number / 1e6:,.2f} M"),
    ("skipped", "skipped", lambda share: f"{100 * share:.1f} %"),
    ("encoder skips", "encoder_skipped", lambda share: f"{100 * share:.1f} %"),
    ("decoder skips", "decoder_skipped", lambda share: f"{100 * share:.1f} %"),
]


def text_of(document: Mapping[str, Any]) -> str:
    """A report as text.

    Args:
        document: the result of `Report.document`, or what `--json` wrote.
    """
    lines = []
    for part in ("machine", "settings"):
        values = {key: value for key, value in document[part].items() if value is not None}
        shown = ", ".join(f"{key} {_plain(value)}" for key, value in values.items())
        lines.append(f"{part}: {shown}")
    variants, ratios = document["variants"], document["ratios"]
    used = [column for column in _COLUMNS if any(column[1] in one for one in variants.values())]
    rows = [[document["subject"], *(heading for heading, _, _ in used)]]
    for name, entry in variants.items():
        cells = [show(entry[key]) if key in entry else "" for _, key, show in used]
        rows.append([name, *cells])
    lines += ["", table(rows)]
    if ratios:
        shown_ratios = []
        for name, median in ratios.items():
            least, greatest = document["spread"][name]
            spread = f"({least:.2f} to {greatest:.2f})" if least != greatest else ""
            shown_ratios.append((name, f"{median:.2f}", spread, document["meanings"][name]))
        lines += ["", table(shown_ratios, "<><")]
    return "\n".join(lines)


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


if __name__ == "__main__":
    sys.exit(main())
