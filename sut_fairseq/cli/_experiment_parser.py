"""The options of `sut-experiment`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sut_data.command_line import Parser, whole_number
from sut_fairseq.cli._experiment_evaluation import add_options

_DESCRIPTION = """Experiments are YAML files: ours by their names, yours by their paths. Prepare the
data of one, train its models, evaluate the runs, and put them into tables beside the papers'
numbers."""
_COMMANDS = {
    "list": "what experiments there are",
    "show": "what an experiment is, and the settings of its trainings",
    "prepare": "make the data of an experiment",
    "train": "train models of an experiment",
    "evaluate": "evaluate runs, or translate with any folder of checkpoints",
    "compare": "a table of evaluated runs: a row for all that differ in nothing but the seed",
    "report": "results of runs as Markdown, with what made them",
}
_AFTER = {
    "prepare": "Options after -- go to sut-prepare: --raw DIR, --limit N, ...",
    "train": "Options after -- go to fairseq-train and replace those of the experiment. Runs that "
    "were interrupted go on where they stopped, and finished ones are not repeated.",
}


def build(program: str) -> argparse.ArgumentParser:
    """The parser; which command was given stands in `command`."""
    parser = Parser(program, _DESCRIPTION)
    group = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parts = {
        name: group.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_AFTER.get(name, ""),
        )
        for name, text in _COMMANDS.items()
    }
    for name in ("show", "prepare", "train"):
        parts[name].add_argument(
            "name", metavar="NAME", help="of an experiment, or the path of a YAML file"
        )
    _show(parts["show"])
    _prepare(parts["prepare"])
    _train(parts["train"])
    add_options(parts["evaluate"])
    for name in ("compare", "report"):
        _runs(parts[name])
    _compare(parts["compare"])
    parts["report"].add_argument(
        "--out", type=Path, metavar="FILE", help="write the page into a file"
    )
    return parser


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="which model (default: the first one)")
    _size(parser)
    parser.add_argument("--file", action="store_true", help="print the file itself")


def _size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", metavar="NAME", help="of model and training (default: the first one)"
    )
    parser.add_argument("--without", metavar="PART", help="leave a part out, for an ablation")


def _prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", metavar="NAME", help="which data (default: the first split)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder (default: in data-bin)")


def _train(parser: argparse.ArgumentParser) -> None:
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--split", metavar="NAME", help="which data (default: the first split)")
    data.add_argument("--data", type=Path, metavar="DIR", help="any other prepared folder")
    parser.add_argument(
        "--models", nargs="+", metavar="NAME", help="which models (default: the first one)"
    )
    _size(parser)
    parser.add_argument(
        "--seeds", nargs="+", type=whole_number, default=[1], metavar="N", help="default: 1"
    )
    parser.add_argument(
        "--updates",
        type=whole_number,
        metavar="N",
        help="stop after N updates; schedules whose length depends on them follow",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the run; of several runs, the folder of MODEL-seed-N "
        "(default: runs/EXPERIMENT/DATA-MODEL[-SIZE]-seed-N)",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number,
        default=1,
        metavar="N",
        help="so many runs side by side, each with one thread unless OMP_NUM_THREADS is set, and "
        "with one GPU where there are any",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="how many GPUs compute together, on all machines (default: those of this machine; "
        "with --dry-run: 1); the batches of an update are divided among them",
    )
    parser.add_argument(
        "--launcher",
        default="",
        metavar="WORDS",
        help="what starts fairseq-train on several machines, such as srun or torchrun with their "
        "options (scripts/launch_slurm.sh and launch_torchrun.sh)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands of fairseq-train, and stop"
    )


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or of several"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows into a CSV file")


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subset",
        nargs="+",
        default=[],
        metavar="NAME",
        help="on which sets (default: that of the experiment)",
    )
    parser.add_argument("--groups", action="store_true", help="rows for groups of sentences too")
