"""`sut-average`: average the parameters of several checkpoints into one."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import realpath  # unlike `Path.resolve`, it accepts circular links
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sut_data.command_line import Parser, whole_number
from sut_data.files import check_writable
from sut_data.tables import table
from sut_data.waiting import waiting
from sut_fairseq.checkpoints import writing
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli._averaging import average_checkpoints
from sut_fairseq.cli._command import check_apart, print_json, run_command
from sut_fairseq.cli._selection import (
    CheckpointInfo,
    choose_best,
    describe,
    drop_copies,
    find_checkpoints,
    with_metric,
)
from sut_fairseq.errors import InputError
from sut_fairseq.modules.trained_words import split_words


@dataclass
class Report:
    """What `sut-average` did: which files went in, what was passed over, what came out."""

    output: Path
    checkpoints: list[CheckpointInfo]
    heading: str
    notes: list[str] = field(default_factory=list)
    tensors: int = 0
    values: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "output": str(self.output),
            "checkpoints": [
                {
                    "file": str(info.path),
                    "epoch": info.epoch,
                    "updates": info.updates,
                    "metric": info.metric,
                    "value": info.value,
                }
                for info in self.checkpoints
            ],
            "notes": self.notes,
            "tensors": self.tensors,
            "values": self.values,
        }

    def __str__(self) -> str:
        metrics = {info.metric for info in self.checkpoints}
        one_metric = len(metrics) == 1
        rows = [("file", "epoch", "updates", metrics.pop() if one_metric else "value")]
        for info in self.checkpoints:
            epoch = "-" if info.epoch is None else str(info.epoch)
            value = "-" if info.value is None else f"{info.value:g}"
            value = value if one_metric else f"{info.metric} {value}"
            rows.append((info.path.name, epoch, str(info.updates), value))
        checkpoints = textwrap.indent(table(rows), "  ")
        wrote = f"wrote {self.output}: {self.tensors} tensors with {self.values:,} values"
        return "\n".join([self.heading, checkpoints, *(f"note: {n}" for n in self.notes), wrote])


def average(arguments: argparse.Namespace) -> Report:
    """Select checkpoints, average them and write the result, as the command line says.

    Raises:
        InputError: bad input; nothing is written then.
    """
    output, chooses = Path(arguments.output), arguments.folder is not None
    check_writable(output, "--output")
    check_apart({"--log": arguments.log, "--output": output})
    paths = find_checkpoints(Path(arguments.folder)) if chooses else arguments.checkpoints
    found = _scan(list(map(Path, paths)))
    # Averages of earlier calls are not candidates, whatever a log says of their updates.
    averages = [info for info in found if chooses and info.averaged]
    candidates = [info for info in found if info not in averages]
    if realpath(output) in (realpath(info.path) for info in candidates):
        raise InputError(f"--output `{output}` is one of the checkpoints; give another name.")
    infos, copies = drop_copies(candidates)
    if not chooses:
        report = Report(output, infos, f"averaged {len(infos)} checkpoints:")
        report.notes += [
            f"{copy} is a copy of {original} and counts once" for copy, original in copies.items()
        ]
        trainings = sorted({info.save_dir for info in infos if info.save_dir})
        if len(trainings) > 1:
            report.notes.append(
                f"they come from several trainings ({', '.join(trainings)}): such an average is "
                "often worse than each of them"
            )
    else:
        report = _choose(arguments, infos, output)
        # An average under the output's name is replaced, so no note says that it is left out.
        left_out = [one.path for one in averages if realpath(one.path) != realpath(output)]
        report.notes += [f"{path.name} is an average and is left out" for path in left_out]
    state, differing = average_checkpoints(report.checkpoints)
    if differing:
        report.notes.append(
            f"integer tensors that differ are those of the longest trained checkpoint: "
            f"{', '.join(differing)}"
        )
    with waiting("writing"):
        writing.save(state, output)
    parameters, _ = split_words(state["model"])
    # Tied tensors are one object in the result and count once.
    tensors = {id(tensor): tensor for tensor in parameters.values()}.values()
    report.tensors = len(tensors)
    report.values = sum(tensor.numel() for tensor in tensors)
    return report


def _choose(arguments: argparse.Namespace, infos: list[CheckpointInfo], output: Path) -> Report:
    """Pick the best checkpoints of a folder."""
    if not infos:
        raise InputError(f"`{arguments.folder}` holds no checkpoint that is not an average.")
    stored = infos[0].metric
    log = None if arguments.log is None else Path(arguments.log)
    infos = with_metric(infos, arguments.metric, log)
    maximize = arguments.maximize
    if maximize is None:
        if infos[0].metric != stored:
            raise InputError(
                f"It is not recorded whether more or less `{infos[0].metric}` is better; add "
                f"--maximize or --minimize."
            )
        maximize = infos[0].maximize
    best, unusable = choose_best(infos, arguments.best, maximize, arguments.or_fewer)
    direction = "highest" if maximize else "lowest"
    report = Report(
        output,
        best,
        f"averaged {len(best)} of {len(infos)} different checkpoints in {arguments.folder}, those "
        f"with the {direction} {best[0].metric}:",
    )
    if len(best) < arguments.best:
        report.notes.append(f"there are fewer than the {arguments.best} asked for")
    if unusable:
        names = ", ".join(path.name for path in unusable)
        report.notes.append(f"passed over, without a value of {best[0].metric}: {names}")
    return report


def _scan(paths: Sequence[Path]) -> list[CheckpointInfo]:
    """Facts of every checkpoint, without reading its tensors."""
    return [
        describe(path, load_checkpoint(path, lazy=True))
        for path in tqdm(paths, desc="looking", unit="file", disable=None)
    ]


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-average",
        description="Average the parameters of checkpoints into one that fairseq-generate loads: "
        "files that you list, or the best ones of a training run by a validation metric. A "
        "checkpoint that is there under several names counts once. The optimizer state is dropped.",
        usage="%(prog)s CKPT [CKPT ...] --output OUT [--json]\n"
        "       %(prog)s --from DIR --best N [--or-fewer] [--metric NAME] "
        "[--maximize | --minimize] [--log FILE] --output OUT [--json]",
        examples=[
            "sut-average --from checkpoints/mine --best 5 --output average.pt",
            "sut-average checkpoint8.pt checkpoint9.pt checkpoint10.pt --output average.pt",
        ],
    )
    parser.add_argument("checkpoints", nargs="*", metavar="CKPT", help="checkpoints to average")
    best = parser.add_argument_group("the best checkpoints of a run")
    best.add_argument(
        "--from",
        dest="folder",
        metavar="DIR",
        help="--save-dir of a training run, to choose from instead of listing checkpoints",
    )
    best.add_argument("--best", type=whole_number, metavar="N", help="how many to average")
    best.add_argument(
        "--or-fewer", action="store_true", help="take what there is if DIR has fewer than N"
    )
    best.add_argument(
        "--metric",
        metavar="NAME",
        help="validation metric to choose by (default: the run's --best-checkpoint-metric, whose "
        "value is stored in the checkpoints; any other needs --log)",
    )
    direction = best.add_mutually_exclusive_group()
    direction.add_argument(
        "--maximize",
        action="store_const",
        const=True,
        help="larger values are better (default: as the run was told with "
        "--maximize-best-checkpoint-metric)",
    )
    direction.add_argument(
        "--minimize",
        dest="maximize",
        action="store_const",
        const=False,
        help="smaller values are better",
    )
    best.add_argument(
        "--log",
        metavar="FILE",
        help="output or --log-file of the training run, to take the metric from",
    )
    parser.add_argument(
        "--output", required=True, metavar="OUT", help="file to write; replaced if it exists"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; a bad one ends the program with status 2."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if bool(arguments.checkpoints) == (arguments.folder is not None):
        parser.error("give either checkpoint files or --from DIR")
    if arguments.folder is not None and arguments.best is None:
        parser.error("--from needs --best N, the number of checkpoints to choose")
    if arguments.folder is None:
        choosing = (arguments.best, arguments.metric, arguments.maximize, arguments.log)
        if arguments.or_fewer or any(option is not None for option in choosing):
            parser.error(
                "--best, --or-fewer, --metric, --maximize, --minimize and --log need --from DIR"
            )
    return arguments


def _main(argv: Sequence[str] | None) -> None:
    arguments = parse(argv)
    report = average(arguments)
    if arguments.json:
        print_json(report.as_dict())
    else:
        print(report)


def main(argv: Sequence[str] | None = None) -> int:
    """Average checkpoints and print what was averaged; returns the exit code."""
    return run_command("sut-average", lambda: _main(argv))


if __name__ == "__main__":
    sys.exit(main())
