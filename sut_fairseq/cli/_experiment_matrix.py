"""`sut-experiment matrix`: every model on every task, and one table of all of them."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import threading
from pathlib import Path

from sut_data.command_line import refuse
from sut_data.files import write_whole
from sut_fairseq.analysis import trained
from sut_fairseq.analysis.complexity import count, without_padding
from sut_fairseq.cli import _experiment_evaluation, _experiment_figures
from sut_fairseq.cli._experiment_training import clock, listed, train
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import costs, evaluating, grid_results, records, results
from sut_fairseq.experiments.commands import Machine
from sut_fairseq.experiments.costs import Costs
from sut_fairseq.experiments.evaluating import Asked
from sut_fairseq.experiments.grid import Grid, read_grid, runs
from sut_fairseq.experiments.reading import MATRIX
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.running import FailedTrainingsError
from sut_fairseq.experiments.runs import Run, check_same

logger = logging.getLogger(__name__)
_COUNTED = 64  # training examples whose costs are counted


def matrix(arguments: argparse.Namespace) -> None:
    """Run the missing cells of the matrix, and draw it."""
    if arguments.draw:
        refuse(arguments, ("dry_run", "updates", "gpus"), "--draw trains nothing")
    grid = read_grid().only(arguments.rows, arguments.columns)
    size = arguments.size
    cells = runs(
        grid,
        size=size,
        seeds=arguments.seeds,
        updates=arguments.updates,
        out=arguments.out,
        only_listed=arguments.dry_run or arguments.draw,
    )
    if arguments.dry_run:
        for run in cells:
            print(f"# {_name(run)}: {_state(run)}\n{listed(run, arguments)}")
        return
    failure = None
    if not arguments.draw:
        try:
            _run(cells, arguments)
        except FailedTrainingsError as error:  # the other cells are drawn anyway
            failure = error
    _draw(grid, size, arguments.out)
    if failure is not None:
        raise failure


def _name(run: Run) -> str:
    return f"{run.folder.parent.name}, {run.choice.model}, seed {run.seed}"


def _state(run: Run) -> str:
    if not run.data.digest:
        return f"to be trained, once there is {run.data.folder}"
    if not (run.folder / records.RECORD).is_file():
        return "to be trained"
    record = records.read_record(run.folder)
    try:
        check_same(run, record, Machine(0))
    except InputError:
        return "cannot be run: its folder holds a run of other settings or data"
    if not record.finished():
        return "goes on" if record.sessions else "to be trained"
    return "finished" if _is_measured(run, _usual(run)) else "to be evaluated"


def _usual(run: Run) -> Asked:
    """The evaluation that the table shows."""
    usual = run.experiment.evaluation
    return Asked(subset=usual.subset, by=usual.by)


def _is_measured(run: Run, asked: Asked) -> bool:
    evaluations = evaluating.read_evaluations(run.folder, records.read_record(run.folder))
    evaluated = any(one.asked == asked for one in evaluations)
    return evaluated and costs.read_costs(run.folder) is not None


def _run(cells: list[Run], arguments: argparse.Namespace) -> None:
    """Train, evaluate and count the costs of what is missing, cell by cell."""
    say, one_at_a_time, done = clock(), threading.Lock(), 0

    def finish(run: Run) -> None:
        nonlocal done
        with one_at_a_time:
            if not _is_measured(run, _usual(run)):
                say(f"evaluating {_name(run)}")
                try:
                    _measure(run)
                except InputError:
                    raise
                except Exception as error:  # the other cells are run anyway
                    logger.exception("%s could not be evaluated", _name(run))
                    what = f"{type(error).__name__}: {error}"
                    raise InputError(f"{_name(run)} could not be evaluated: {what}") from error
            done += 1
            say(f"{done} of {len(cells)} runs are finished")

    train(cells, arguments, say, finish)


def _measure(run: Run) -> None:
    """Evaluate a trained model and count its costs."""
    record = records.read_record(run.folder)
    with contextlib.redirect_stdout(io.StringIO()):
        _experiment_evaluation.by_groups(run.folder, record, run.experiment, _usual(run))
        costs.write_costs(run.folder, _costs(run, record))


def _costs(run: Run, record: Record) -> Costs:
    """Costs of the trained model on examples spread over the training set."""
    checkpoint = evaluating.checkpoint_of(run.folder, record, run.experiment)
    model, task = trained.load(str(checkpoint), {"data": record.data.folder})
    pairs = trained.sentence_pairs(task, "train", _COUNTED, spread=True)
    batches = without_padding(pairs, task.target_dictionary.eos())
    found = count(model, batches, training=True)
    return Costs(
        params=found.params,
        macs=round(found.macs_full / found.sentences),
        examples=found.sentences,
    )


def _draw(grid: Grid, size: str, out: Path) -> None:
    """Write the table as Markdown, CSV and picture into the folder of the runs.

    It has the rows and columns asked for and all others with runs, because it replaces the table
    of earlier calls.
    """
    if not records.holds_runs(out):
        raise InputError(
            f"there are no runs in {out} to draw: run them without --draw, or name their folder "
            "with --out."
        )
    groups = results.collect(records.find_runs([out]))
    cells = [(one.first.model, one.experiment.name) for one in groups if one.first.size == size]
    grid = grid.with_those_of(cells, read_grid())
    table = grid_results.table(grid, groups, size)
    files = [out / f"{MATRIX}{ending}" for ending in (".md", ".csv", ".png")]
    text = f"# The matrix, size {size}\n\n![scores]({files[2].name})\n\n"
    text += grid_results.markdown(table)
    write_whole(files[0], text)
    grid_results.write_rows(table, files[1])
    _experiment_figures.draw_matrix(table, files[2])
    print(f"table: {files[0]}, rows: {files[1]}, picture: {files[2]}")
