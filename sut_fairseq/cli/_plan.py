"""`sut-benchmark plan`: what a training would cost, as text or JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sut_data.command_line import whole_number
from sut_data.tables import counted, table
from sut_fairseq.analysis.benchmark.peers import own_model
from sut_fairseq.analysis.depth import stacks
from sut_fairseq.analysis.plan.run import Machines, Training, plan
from sut_fairseq.analysis.plan.speed import MEASURED, Speed, from_report
from sut_fairseq.cli._command import print_json
from sut_fairseq.errors import InputError, check, check_choice

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_GPUS_OF_A_MACHINE = 8
_MOST_AT_ONCE = 10**9  # tokens; the sizes of tensors must not overflow
_MOST = 1e30  # of anything; products of far greater numbers would become infinite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the subject; flags of the architecture are accepted, too."""
    run = parser.add_argument_group("what to train")
    run.add_argument(
        "--tokens", type=float, required=True, metavar="N", help="target tokens in all, e.g. 4.5e9"
    )
    run.add_argument("--arch", default="sut_base", metavar="NAME", help="default: %(default)s")
    for flag, default, text in (
        ("--vocab-size", 32768, "size of the one dictionary"),
        ("--max-tokens", 8192, "tokens that a GPU computes at once"),
        ("--src-len", 32, "tokens of each source sentence"),
        ("--tgt-len", 32, "tokens of each target sentence"),
        ("--update-freq", 1, "batches of a GPU between two updates"),
    ):
        shown = f"{text} (default: %(default)s)"
        run.add_argument(flag, type=whole_number, default=default, metavar="N", help=shown)
    run.add_argument(
        "--dtype",
        default="float32",
        metavar="NAME",
        help="float32, or bfloat16 for --bf16; memory of --autocast bfloat16 is between the two "
        "(default: %(default)s)",
    )
    on = parser.add_argument_group("what to train it on")
    on.add_argument("--gpus", type=whole_number, default=1, metavar="N", help="number of GPUs")
    on.add_argument(
        "--machines",
        type=whole_number,
        metavar="M",
        help=f"number of machines (default: one for every {_GPUS_OF_A_MACHINE} GPUs)",
    )
    for flag, assumed, text in (
        ("--gpu-memory", 80, "GB of a GPU"),
        ("--link", 300, "GB/s from GPU to GPU in a machine, in one direction"),
        ("--network", 50, "GB/s of a machine to the others"),
    ):
        shown = f"{text} (assumed: %(default)s)"
        on.add_argument(flag, type=float, default=assumed, metavar="X", help=shown)
    on.add_argument(
        "--speed",
        default="h100",
        metavar="NAME",
        help=f"{' or '.join(MEASURED)}, as measured in docs/benchmarks.md, or a file that "
        "`sut-benchmark train --json` printed on your machine (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace, flags: Sequence[str]) -> None:
    """Print the plan; `flags` are those of the architecture.

    Raises:
        InputError: if something is unknown or not allowed.
    """
    check_choice("--dtype", arguments.dtype, _DTYPES)
    for name in ("tokens", "gpu_memory", "link", "network"):
        value = getattr(arguments, name)
        flag = "--" + name.replace("_", "-")
        check(0 < value <= _MOST, flag, f"greater than 0 and at most {_MOST:g}", value)
    most = f"at most {_MOST_AT_ONCE:,}"
    check(arguments.max_tokens <= _MOST_AT_ONCE, "--max-tokens", most, arguments.max_tokens)
    gpus = arguments.gpus
    on = Machines(
        gpus=gpus,
        machines=arguments.machines or -(-gpus // _GPUS_OF_A_MACHINE),
        memory=1e9 * arguments.gpu_memory,
        link=1e9 * arguments.link,
        network=1e9 * arguments.network,
    )
    training = Training(
        arch=arguments.arch,
        vocab_size=arguments.vocab_size,
        flags=flags,
        tokens=arguments.tokens,
        max_tokens=arguments.max_tokens,
        src_len=arguments.src_len,
        tgt_len=arguments.tgt_len,
        update_freq=arguments.update_freq,
        dtype=_DTYPES[arguments.dtype],
    )
    document = plan(training, on, _speed(arguments.speed))
    if arguments.json:
        print_json(document)
    else:
        print_plan(document)
        if (arguments.speed, arguments.dtype) == ("h100", "float32"):
            print("\nThe H100 was measured with bfloat16 under autocast; float32 takes longer.")
        if document["speed"]["device"] == "cpu":
            print("\nTimes are of this CPU in place of each GPU; memory is that of a GPU.")


def _speed(name: str) -> Speed:
    if name in MEASURED:
        return MEASURED[name]
    if not Path(name).is_file():
        raise InputError(
            f"`--speed` must be {', '.join(MEASURED)} or a file that `sut-benchmark train --json` "
            f"printed, but is {name} instead."
        )
    document: Any = None
    with contextlib.suppress(ValueError):  # not JSON: refused below
        document = json.loads(Path(name).read_text(encoding="utf-8"))
    steps = 0
    match document:
        case {"settings": {"arch": str(arch), **others}}:
            model, _ = own_model(arch, 1000, str(others.get("flags", "")).split())
            steps = sum(stack.num_steps for stack in stacks(model).values())
    return from_report(document, steps, name)  # refuses any other document


def print_plan(found: dict[str, Any]) -> None:
    """Print a plan as text."""
    on, speed, model = found["machines"], found["speed"], found["model"]
    print(
        f"{counted(on['gpus'], 'GPU')} in {counted(on['machines'], 'machine')}; assumed: "
        f"{on['link'] / 1e9:g} GB/s from GPU to GPU, "
        f"{on['network'] / 1e9:g} GB/s from machine to machine"
    )
    print(
        f"measured ({speed['source']}): {1e3 * speed['seconds_per_step']:.1f} ms for each step of "
        f"depth, {speed['macs_per_second'] / 1e9:,.0f} GMAC/s\n"
    )
    memory, update, run = found["memory"], found["update"], found["run"]
    sizes = {name: _size(value) for part in (memory, update) for name, value in part.items()}
    steps = f"{sizes['activations_of_a_step']} for each of {model['steps']} steps"
    sent = f"{sizes['gradients']}, of which each GPU sends {sizes['sent_by_each_gpu']}"
    rows = [
        ("memory of a GPU", sizes["total"], ""),
        ("  parameters", sizes["parameters"], f"{sizes['experts']} of experts"),
        ("  gradients", _size(memory["gradients"]), ""),
        ("  gradients to add up", sizes["buckets"], ""),
        ("  optimizer", sizes["optimizer"], "Adam"),
        ("  activations", sizes["activations"], steps),
        ("an update", f"{update['seconds']:.3f} s", f"{update['tokens']:,} target tokens"),
        ("  computing", f"{update['seconds_computing']:.3f} s", ""),
        ("  adding up", f"{update['seconds_adding_up']:.3f} s", sent),
        ("the training", f"{_hours(run['hours'])} hours", f"{_hours(run['gpu_hours'])} GPU hours"),
        ("  updates", f"{run['updates']:,}", ""),
        ("  tokens/s", f"{run['tokens_per_second']:,.0f}", ""),
    ]
    print(table(rows, "<><"))
    if not memory["fits"]:
        advice = "lower --max-tokens"
        if not memory["recomputes"]:
            advice += ", or add --checkpoint-activations"
        print(f"\nThis is more than the {on['memory'] / 1e9:g} GB of a GPU: {advice}.")
    other = found["expert_parallelism"]
    if other is not None:
        experts = " or ".join(map(str, other["experts"]))
        room = f", and a GPU has memory for about {other['experts_for_full_memory']:,}"
        print(
            f"\nWith its experts on different GPUs, each GPU would send "
            f"{_size(other['sent_by_each_gpu'])} of tokens for an update, and not the "
            f"{_size(other['gradients_saved'])} of their gradients.\nOnly with "
            f"{other['experts_for_less_traffic']:,} or more experts in each layer would that be "
            f"less; this model has {experts}{room if memory['fits'] else ''}."
        )


def _hours(number: float) -> str:
    """A number of hours: with one decimal, but two digits of a short time."""
    return f"{number:,.1f}" if number >= 0.1 else f"{number:.2g}"


def _size(num_bytes: float) -> str:
    """A number of bytes in a suitable unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.2f} {unit}"
    return f"{num_bytes / 1e3:,.2f} kB"
