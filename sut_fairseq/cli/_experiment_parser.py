"""The options of `sut-experiment`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sut_data.command_line import Parser, whole_number
from sut_fairseq.cli._command import number_up_to
from sut_fairseq.cli._experiment_evaluation_options import add_options

_seed = number_up_to(2**32 - 1)  # fairseq-train seeds NumPy, too
_DESCRIPTION = """Prepare the data of an experiment, train its models, evaluate the runs, and
compare them with the paper's numbers. An experiment is a YAML file: one of ours, by its name, or
your own, by its path."""
_COMMANDS = {
    "list": "list the experiments",
    "show": "show an experiment and the settings of its trainings",
    "prepare": "make the data of an experiment",
    "train": "train models of an experiment",
    "evaluate": "evaluate runs, or translate with any folder of checkpoints",
    "compare": "print a table of evaluated runs: one row for the runs that differ only in the seed",
    "report": "print results of runs as Markdown, with the settings, code and data of each",
    "keep": "copy records, results and curves of runs, without checkpoints and logs",
    "matrix": "run every model on every task with the same budget, and make a table of them",
}
_AFTER = {
    "prepare": "Options after -- go to sut-prepare: --raw DIR, --limit N, ...",
    "train": "Options after -- go to fairseq-train and replace those of the experiment. "
    "Interrupted runs continue where they stopped, and finished ones are not repeated.",
    "matrix": "A cell is a model (row) on a task (column); each is an experiment of its own, which "
    "`show matrix/COLUMN` shows and `prepare matrix/COLUMN` makes the data of. Finished cells are "
    "not repeated, interrupted ones continue. The table is written into --out as matrix.md, "
    "matrix.csv and matrix.png, of all cells that are there.",
    "evaluate": "The best checkpoint is evaluated, or for translations the mean of the best ones. "
    "Results go into the folder of the run: rows (CSV), a picture, and what compare and report "
    "read; those of translations into a folder beside the checkpoints. The paper's numbers for the "
    "same data and model stand beside ours.",
}
_EXAMPLES = {
    "": ["list", "train scan --split length --size small --models sut ut --seeds 1 2 3"],
    "list": ["list", "list > experiments.txt"],
    "show": ["show scan --size small", "show example --file"],
    "prepare": ["prepare scan --split length", "prepare multi30k -- --raw raw/multi30k"],
    "train": [
        "train scan --split length --size small --models sut ut --seeds 1 2 3 --jobs 2",
        "train parallel_text --data data-bin/mine --out runs/mine -- --dropout 0.3",
    ],
    "evaluate": ["evaluate runs/scan", "evaluate runs/scan --sweep 0.3 0.6 0.9 --subset valid"],
    "compare": ["compare runs/scan", "compare runs/scan --groups --csv rows.csv"],
    "report": ["report runs/scan", "report runs/scan --out report.md"],
    "matrix": [
        "matrix --out runs/matrix --seeds 1 2 3 --jobs 2",
        "matrix --rows sut ndr --columns ctl-backward --dry-run",
    ],
    "keep": ["keep runs/scan --into kept", "keep runs/scan/scan-simple-sut-seed-1 --into kept"],
}


def build(program: str) -> Parser:
    """Build the parser, which stores the chosen command in `command`."""
    examples = {name: [f"{program} {line}" for line in lines] for name, lines in _EXAMPLES.items()}
    parser = Parser(program, _DESCRIPTION, examples=examples[""])
    group = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parts = {
        name: group.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_AFTER.get(name, ""),
            examples=examples[name],
        )
        for name, text in _COMMANDS.items()
    }
    for name in ("show", "prepare", "train"):
        parts[name].add_argument(
            "name", metavar="NAME", help="name of an experiment, or path of a YAML file"
        )
    _show(parts["show"])
    _prepare(parts["prepare"])
    _train(parts["train"])
    _matrix(parts["matrix"])
    add_options(parts["evaluate"])
    for name in ("compare", "report", "keep"):
        _runs(parts[name])
    _compare(parts["compare"])
    for name in ("compare", "report"):
        parts[name].add_argument(
            "--csv", type=Path, metavar="FILE", help="write the rows into a CSV file"
        )
    parts["report"].add_argument(
        "--out", type=Path, metavar="FILE", help="write the page into a file"
    )
    parts["report"].add_argument(
        "--figures",
        type=Path,
        metavar="DIR",
        help="draw the paper's tables and figures that compare models or data, as PNG and CSV",
    )
    parts["report"].add_argument(
        "--pages",
        type=Path,
        metavar="DIR",
        help="write a folder of pages: whether the papers' numbers are reached, and a page with "
        "pictures (PNG and CSV) for each experiment; DIR/notes/EXPERIMENT.md is text that its page "
        "takes in",
    )
    parts["keep"].add_argument(
        "--into", type=Path, required=True, metavar="DIR",
        help="folder of what is kept; compare and report read it like the runs themselves",
    )  # fmt: skip
    return parser


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="which model (default: the first one)")
    _size(parser)
    parser.add_argument("--file", action="store_true", help="print the file itself")


def _size(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--size", metavar="NAME", help="size of model and training (default: the first one)"
    )
    parser.add_argument("--without", metavar="PART", help="leave a part out, for an ablation")


def _prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", metavar="NAME", help="which data (default: the first split)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder (default: in data-bin)")


def _train(parser: argparse.ArgumentParser) -> None:
    data = parser.add_mutually_exclusive_group()
    training = parser.add_argument_group("what is trained")
    machine = parser.add_argument_group("where it runs")
    data.add_argument("--split", metavar="NAME", help="which data (default: the first split)")
    data.add_argument("--data", type=Path, metavar="DIR", help="any other prepared folder")
    training.add_argument(
        "--models", nargs="+", metavar="NAME", help="which models (default: the first one)"
    )
    _size(training)
    training.add_argument(
        "--seeds", nargs="+", type=_seed, default=[1], metavar="N", help="default: 1"
    )
    training.add_argument(
        "--updates",
        type=whole_number,
        metavar="N",
        help="stop after N updates; schedules whose length depends on them follow",
    )
    training.add_argument(
        "--change-length",
        action="store_true",
        help="continue a run that was started for another number of updates to this one, whether "
        "it is finished or not; its record says so",
    )
    training.add_argument(
        "--change-settings",
        action="store_true",
        help="the same for a run with other options of fairseq-train, such as -- --dropout 0.3",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the run; of several runs, the folder of MODEL-seed-N "
        "(default: runs/EXPERIMENT/DATA-MODEL[-SIZE]-seed-N)",
    )
    _machine(machine)


def _machine(machine: argparse._ArgumentGroup) -> None:
    machine.add_argument(
        "--jobs",
        type=whole_number,
        default=1,
        metavar="N",
        help="runs at a time, each with one thread unless OMP_NUM_THREADS is set, and with one GPU "
        "where there are any (default: 1)",
    )
    machine.add_argument(
        "--gpus",
        type=_gpus,
        metavar="N",
        help="how many GPUs compute together, on all machines (default: those of this machine; "
        "with --dry-run: 1; 0: train on the CPU); the batches of an update are divided among them",
    )
    machine.add_argument(
        "--launcher",
        default="",
        metavar="WORDS",
        help="what starts fairseq-train on several machines, such as srun or torchrun with their "
        "options (scripts/launch_slurm.sh and launch_torchrun.sh)",
    )
    machine.add_argument(
        "--dry-run",
        action="store_true",
        help="print the commands of fairseq-train, those of finished trainings as comments, and "
        "stop",
    )


def _gpus(text: str) -> int:
    """Argparse type for a number of GPUs; 0: none."""
    return 0 if text == "0" else whole_number(text)


def _matrix(parser: argparse.ArgumentParser) -> None:
    cells = parser.add_argument_group("which cells")
    machine = parser.add_argument_group("where it runs")
    for option, what in (("--rows", "models"), ("--columns", "tasks")):
        cells.add_argument(option, nargs="+", metavar="NAME", help=f"which {what} (default: all)")
    cells.add_argument(
        "--seeds", nargs="+", type=_seed, default=[1], metavar="N", help="default: 1"
    )
    cells.add_argument(
        "--size",
        default="small",
        metavar="NAME",
        help="small: some 4 to 60 minutes of a CPU core for most cells; long: ten times as many "
        "updates (default: small)",
    )
    cells.add_argument(
        "--updates",
        type=whole_number,
        metavar="N",
        help="stop after N updates, to try it; the table marks such cells",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs", "matrix"),
        metavar="DIR",
        help="folder of COLUMN/ROW-seed-N and of the table (default: runs/matrix)",
    )
    parser.add_argument(
        "--draw", action="store_true", help="train nothing, only make the table of what is there"
    )
    _machine(machine)


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or of several"
    )


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subset",
        nargs="+",
        default=[],
        metavar="NAME",
        help="on which sets (default: that of the experiment)",
    )
    parser.add_argument("--groups", action="store_true", help="rows for groups of sentences too")
