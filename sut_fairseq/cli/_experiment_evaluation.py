"""`sut-experiment evaluate`: runs by groups of sentences, threshold sweeps, translations."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from sut_data.command_line import Parser, refuse
from sut_fairseq.analysis import retrieval, trained
from sut_fairseq.cli import _translation_evaluation as translation
from sut_fairseq.cli import evaluate as evaluate_command
from sut_fairseq.cli._command import each_of
from sut_fairseq.cli._evaluate_options import make_parser
from sut_fairseq.cli._experiment_training import clock
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import evaluating, provenance, reading, records, results
from sut_fairseq.experiments.commands import USER_DIR
from sut_fairseq.experiments.evaluating import SCORE, THRESHOLDS, Asked
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.published import published
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.schema import Evaluation, Experiment

# Options of one kind of evaluation that the other kind refuses.
_OF_GROUPS = ("by", "steps", "search", "max_sentences", "macs")
_OF_TRANSLATION = ("best", "log", "beam", "lenpen", "max_tokens", "cpu", "out")


def evaluate(arguments: argparse.Namespace) -> None:
    """Evaluate the runs or the checkpoints that the command line names."""
    if arguments.checkpoints is not None:
        if arguments.runs:
            raise InputError("give runs or --checkpoints, not both.")
        if arguments.data is None:
            raise InputError("--checkpoints needs --data: the folder that `sut-prepare` made.")
        refuse(arguments, (*_OF_GROUPS, "sweep"), "this means nothing for --checkpoints")
        _translate(arguments, arguments.data, arguments.checkpoints, Evaluation())
        return
    if not arguments.runs:
        raise InputError(
            "no run is given: name folders that `sut-experiment train` made, or --data and "
            "--checkpoints."
        )
    runs = records.find_runs(arguments.runs)
    if len(runs) > 1:
        refuse(arguments, ("log", "out"), f"this means nothing for {len(runs)} runs at a time")

    def evaluate_one(run: Path) -> None:
        if len(runs) > 1:
            print(f"\n{run}", flush=True)
        _evaluate_run(arguments, run)

    each_of(runs, evaluate_one, "evaluated")


def _evaluate_run(arguments: argparse.Namespace, run: Path) -> None:
    record = records.read_record(run)
    experiment = reading.read(record.experiment)
    usual = experiment.evaluation
    if arguments.data is not None and record.data.folder:
        given = provenance.describe_data(Path(arguments.data))
        if evaluating.is_its_own(record, given, arguments.subset or usual.subset):
            record = replace(record, data=replace(record.data, folder=given.folder))
            arguments = argparse.Namespace(**{**vars(arguments), "data": None})
    if not record.finished() and records.has_saved(run, record):
        print(results.unfinished(run), file=sys.stderr)
    if arguments.sweep is not None and arguments.alpha_threshold is not None:
        raise InputError("--alpha-threshold is what --sweep varies: leave one of them out.")
    if usual.kind == "translation" and arguments.sweep is None:
        reason = f"this means nothing for translations by {experiment.name}"
        refuse(arguments, _OF_GROUPS, reason)
        _translate_run(arguments, run, usual, evaluating.data_of(record, arguments.data))
        return
    swept = f"{experiment.name} with --sweep" if usual.kind == "translation" else experiment.name
    refuse(arguments, _OF_TRANSLATION, f"this means nothing for {swept}")
    if usual.kind == "regression":
        not_here = ("data", "alpha_threshold", "sweep", *_OF_GROUPS)
        refuse(arguments, not_here, f"this means nothing for {experiment.name}")
        _regress(run, record, experiment, arguments.subset or usual.subset)
        return
    by_groups(run, record, experiment, _asked(arguments, usual), macs=arguments.macs)


def _asked(arguments: argparse.Namespace, usual: Evaluation) -> Asked:
    """The evaluation by groups, or the sweep, that the command line asks for."""
    sweep = arguments.sweep is not None
    return Asked(
        data=None if arguments.data is None else os.path.abspath(arguments.data),
        subset=arguments.subset or usual.subset,
        by=arguments.by or (None if sweep else usual.by),
        alpha_threshold=arguments.alpha_threshold,
        thresholds=(arguments.sweep or list(THRESHOLDS)) if sweep else [],
        steps=arguments.steps,
        search=arguments.search,
        max_sentences=arguments.max_sentences,
    )


def by_groups(
    run: Path, record: Record, experiment: Experiment, asked: Asked, *, macs: bool = False
) -> None:
    """Evaluate a run by groups of sentences, print the results and keep them."""
    line = evaluating.command(run, record, experiment, asked, macs)
    begun = records.stamp()
    try:
        evaluate_command.run(line, _parser(experiment, asked))
    except InputError as error:
        # The message names options of `sut-evaluate`.
        threshold = "--sweep" if asked.alpha_threshold is None else "--alpha-threshold"
        sentence = str(error).replace("--gen-subset", "--subset")
        raise InputError(sentence.replace("--thresholds", threshold)) from error
    evaluating.keep(run, record, experiment, asked, begun)
    print(f"rows: {run / asked.name()}.csv, picture: {run / asked.name()}.png")


def _parser(experiment: Experiment, asked: Asked) -> Parser:
    """The parser of `sut-evaluate`, which raises for options that are not there."""
    own = asked.search and experiment.evaluation.search_options
    where = f"{experiment.path}: evaluation.search_options: " if own else ""

    def raised(message: str) -> NoReturn:
        raise InputError(f"{where}{message}; see `sut-evaluate --help`.")

    parser = make_parser()
    parser.error = raised  # type: ignore[method-assign]
    return parser


def _regress(run: Path, record: Record, experiment: Experiment, subset: str) -> None:
    """Mean absolute errors of a model of the contextual retrieval task."""
    checkpoint, begun = evaluating.checkpoint_of(run, record, experiment), records.stamp()
    model, task = trained.load(str(checkpoint), {})
    retrieval.check_task(model, task)
    sets = sum(len(found) > 0 for found in task.combinations.values()) * task.cfg.evaluation_sets
    with tqdm(total=sets, desc=subset, unit="set", disable=None) as bar:
        errors = retrieval.absolute_errors(model, task, subset, bar.update)
    asked = Asked(subset=subset, by=experiment.evaluation.by)
    paper = published(experiment, record.data, subset, record.model, asked.by, record.without)
    rows = [
        {"group": name, "sentences": str(count), "absolute_error": f"{error:.6f}"}
        for name, (count, error) in errors.items()
    ]
    for row in rows:
        number = f", published {paper[row['group']]:g}" if row["group"] in paper else ""
        print(f"{row['group']}: {row['sentences']} sets, {row['absolute_error']}{number}")
    evaluating.keep_rows(run, asked, record.data, "mean absolute error", rows, begun)


def _translate(
    arguments: argparse.Namespace,
    data: Path,
    checkpoints: Path,
    usual: Evaluation,
    *,
    other_data: bool = False,
) -> dict[str, Any]:
    options = translation.Options(
        subset=arguments.subset or usual.subset,
        best=arguments.best or usual.best,
        log=arguments.log,
        beam=arguments.beam or usual.beam,
        lenpen=usual.lenpen if arguments.lenpen is None else arguments.lenpen,
        alpha_threshold=arguments.alpha_threshold,
        max_tokens=arguments.max_tokens or 4096,
        cpu=arguments.cpu,
        user_dir=getattr(arguments, "user_dir", USER_DIR),
    )
    out: Path | None = arguments.out
    if out is None and other_data:  # beside the results on the run's own data
        out = checkpoints / f"evaluation-{options.name()}-{data.name}"
    return translation.evaluate(data, checkpoints, out, options, clock())


def _translate_run(arguments: argparse.Namespace, run: Path, usual: Evaluation, data: Data) -> None:
    """Translate with a run, and write the scores where compare and report look for them."""
    asked = replace(_asked(arguments, usual), by=SCORE)
    kept = all(getattr(arguments, name) is None for name in ("best", "beam", "lenpen"))
    if kept:
        evaluating.check_name(run, asked, data)
    begun = records.stamp()
    other = arguments.data is not None
    folder, checkpoints = Path(data.folder), run / "checkpoints"
    document = _translate(arguments, folder, checkpoints, usual, other_data=other)
    if not kept:
        return
    rows = [
        {"group": name, "percent": str(document["scores"][key])}
        for name, key in translation.SCORES.items()
    ]
    evaluating.keep_rows(run, asked, data, "BLEU and chrF", rows, begun)
