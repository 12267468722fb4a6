"""`sut-experiment`: prepare, train, evaluate, compare and report the experiments."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sut_data.command_line import STOPPED, Parser, refuse
from sut_data.files import check_writable, write_whole
from sut_data.folders.prepared import STAMP
from sut_data.interrupts import ended_when_interrupted
from sut_data.tables import table
from sut_fairseq import register
from sut_fairseq.cli import _experiment_figures, _experiment_parser
from sut_fairseq.cli._command import check_apart, each_of, run_command
from sut_fairseq.cli._experiment_data import data_of
from sut_fairseq.cli._experiment_texts import describe, listing, settings_table
from sut_fairseq.cli._experiment_training import check, clock, listed, stoppable, train
from sut_fairseq.cli._training_options import check_options, plugin_of
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import (
    commands,
    keeping,
    pages,
    preparing,
    reading,
    records,
    report,
    results,
    summaries,
)
from sut_fairseq.experiments.commands import Machine
from sut_fairseq.experiments.csv_files import write_csv
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.runs import Change, Run, name_of_run
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.settings import Choice, check_choice_of

_RUNS = Path("runs")
_SMALL = "small"  # the size for machines without a GPU, where an experiment has one


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    line = list(sys.argv[1:] if argv is None else argv)
    resumes = line[:1] in (["prepare"], ["train"], ["matrix"])
    interrupted = "interrupted; goes on with the same command." if resumes else STOPPED
    return run_command(PROGRAM_NAME, lambda: _main(line), interrupted)


def _main(line: list[str]) -> None:
    start = line.index("--") if "--" in line else len(line)
    arguments = make_parser().parse_args(line[:start])
    own = line[start + 1 :]
    if own and arguments.command not in ("prepare", "train"):
        raise InputError(f"{arguments.command} takes no options after --.")
    arguments.own = own
    _COMMANDS[arguments.command](arguments)


def make_parser() -> Parser:
    """Return the command line."""
    return _experiment_parser.build(PROGRAM_NAME)


def _list(arguments: argparse.Namespace) -> None:
    print(table(listing([reading.read(name) for name in reading.known()]), "<"))


def _show(arguments: argparse.Namespace) -> None:
    experiment = reading.read(arguments.name)
    if arguments.file:
        refuse(arguments, ("model", "size", "without"), "--file prints all of it")
        print(experiment.path.read_text(encoding="utf-8"), end="")
        return
    choice = Choice(
        model=arguments.model or next(iter(experiment.models)),
        size=arguments.size or next(iter(experiment.sizes)),
        without=arguments.without,
    )
    chosen = arguments.model or arguments.size or arguments.without
    if chosen:
        check_choice_of(experiment, choice)
    print(describe(experiment))
    if chosen:
        print()
        print(table(settings_table(experiment, choice), "<"))
    else:
        print("\nWith --model or --size: the settings, and where each comes from.")


def _prepare(arguments: argparse.Namespace) -> None:
    experiment = reading.read(arguments.name)
    with stoppable("the same command starts again"):
        folder = preparing.prepare(experiment, arguments.split, arguments.out, arguments.own)
    if not (folder / STAMP).is_file():
        return  # `-- --help` was all that was asked
    usual = _SMALL not in list(experiment.sizes)[1:] or _has_gpu()
    size = [] if usual else ["--size", _SMALL]
    named = shlex.join([arguments.name, *size, "--data", str(folder)])
    print(f"train on it: {PROGRAM_NAME} train {named}")


def _has_gpu() -> bool:
    with ended_when_interrupted():
        from torch import cuda  # only here, since it takes seconds

    return cuda.is_available()


def _train(arguments: argparse.Namespace) -> None:
    experiment = reading.read(arguments.name)
    own = commands.read_words(arguments.own)
    size = arguments.size or next(iter(experiment.sizes))
    models = dict.fromkeys(arguments.models or [next(iter(experiment.models))])
    choices = [Choice(model, size, arguments.without, arguments.updates, own) for model in models]
    for choice in choices:
        check_choice_of(experiment, choice)
    data = data_of(experiment, arguments)
    runs = []
    several = len(choices) * len(arguments.seeds) > 1
    _check_out(arguments.out, several)
    for choice in choices:
        for seed in dict.fromkeys(arguments.seeds):
            folder = _run_folder(experiment, choice, seed, data, arguments.out, several)
            runs.append(Run(experiment, choice, seed, data, folder.resolve()))
    change = Change.LENGTH if arguments.change_length else Change.NOTHING
    if arguments.change_settings:
        change = Change.SETTINGS
    for run in runs:
        check_options(run.trainings(Machine(0)))
    if arguments.dry_run:
        there = [run for run in runs if run.data.digest]  # data of the others are not prepared yet
        check(there, arguments, change=change)
        for run in runs:
            print(listed(run, arguments, change))
        return
    train(runs, arguments, clock(), change=change)
    for run in runs:
        line = [PROGRAM_NAME, "evaluate", str(run.folder), *plugin_of(run.trainings(Machine(0)))]
        print(f"evaluate it: {shlex.join(line)}")


def _check_out(out: Path | None, several: bool) -> None:
    """Refuse a single run above the folders of others: they would no longer be found."""
    if out is None or several or not out.is_dir():
        return
    if not (out / records.RECORD).is_file() and records.holds_runs(out):
        raise InputError(
            f"{out} is a folder of several runs: name one in it, or one that is new, with --out; "
            "or name all its models and seeds together (finished runs are skipped)."
        )


def _run_folder(
    experiment: Experiment, choice: Choice, seed: int, data: Data, out: Path | None, several: bool
) -> Path:
    if out is not None:
        return out / f"{choice.model}-seed-{seed}" if several else out
    return _RUNS / experiment.name / name_of_run(experiment, choice, seed, data)


def _evaluate(arguments: argparse.Namespace) -> None:
    register()
    from sut_fairseq.cli import _experiment_evaluation

    _experiment_evaluation.evaluate(arguments)


def _compare(arguments: argparse.Namespace) -> None:
    _check_files(csv=arguments.csv)
    groups = results.collect(records.find_runs(arguments.runs))
    for group in groups:
        for run, record in group.runs.items():
            if not record.finished():
                print(results.unfinished(run), file=sys.stderr)
    rows = results.table(groups, arguments.subset, arguments.groups)
    print(table([list(results.COLUMNS), *(list(row.values()) for row in rows)], "<"))
    if arguments.csv is not None:
        write_csv(arguments.csv, results.COLUMNS, rows)


def _report(arguments: argparse.Namespace) -> None:
    _check_files(out=arguments.out, csv=arguments.csv)
    groups = results.collect(records.find_runs(arguments.runs))
    page = report.markdown(groups)
    if arguments.out is None and arguments.pages is None:
        print(page, end="")
    elif arguments.out is not None:
        write_whole(arguments.out, page)
    if arguments.csv is not None:
        write_csv(arguments.csv, results.COLUMNS, report.rows(groups))
    if arguments.figures is not None:
        _figures(groups, arguments.figures)
    if arguments.pages is not None:
        draw = pages.Draw(
            curves=_experiment_figures.draw_curves,
            trade_offs=_experiment_figures.draw_trade_offs,
            table=_experiment_figures.draw_table,
            matrix=_experiment_figures.draw_matrix,
            claims=_experiment_figures.draw_claims,
        )
        for path in pages.write(groups, arguments.pages, draw):
            print(path)


def _figures(groups: Sequence[results.Group], folder: Path) -> None:
    """Write the summaries of the experiments as pictures and rows into a folder."""
    found = summaries.tables(groups)
    if not found:
        print(
            "--figures: nothing to draw. Tables and figures need whole data, and runs without "
            "options of their own, of an experiment that has `summaries`.",
            file=sys.stderr,
        )
        return
    names = [f"{one.experiment}-{one.summary.name}" for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two experiments would have the file {name}.png: give one of their files another "
                "name, and train under that."
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in zip(names, found):
        picture, rows = folder / f"{name}.png", folder / f"{name}.csv"
        summaries.write_cells(one, rows)
        _experiment_figures.draw_table(one, picture)
        print(f"{one.summary.title}: {picture}, {rows}", file=sys.stderr)


def _keep(arguments: argparse.Namespace) -> None:
    runs = records.find_runs(arguments.runs)
    each_of(runs, lambda run: print(keeping.keep(run, arguments.into)), "kept")


def _matrix(arguments: argparse.Namespace) -> None:
    register()
    from sut_fairseq.cli import _experiment_matrix

    _experiment_matrix.matrix(arguments)


def _check_files(**files: Path | None) -> None:
    """Refuse files that could not be written; each is given by its option."""
    for option, file in files.items():
        if file is not None:
            check_writable(file, f"--{option}")
    check_apart({f"--{option}": file for option, file in files.items()})


_COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "list": _list,
    "show": _show,
    "prepare": _prepare,
    "train": _train,
    "evaluate": _evaluate,
    "compare": _compare,
    "report": _report,
    "keep": _keep,
    "matrix": _matrix,
}

if __name__ == "__main__":
    sys.exit(main())
