"""`sut-evaluate`: evaluate accuracy or exact match, and depth, by group and halting threshold."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fairseq import tasks
from fairseq.models import FairseqLanguageModel
from fairseq.utils import apply_to_sample, split_paths
from tqdm import tqdm

from sut_data.command_line import Parser
from sut_data.sets.cfq.sparql import conjuncts
from sut_data.text.tokenization import load_direction
from sut_data.waiting import waiting
from sut_fairseq.analysis import evaluation, trained
from sut_fairseq.analysis.complexity import count, without_padding
from sut_fairseq.analysis.countable import check_model
from sut_fairseq.analysis.depth import check_thresholds, check_uses_threshold, set_threshold
from sut_fairseq.analysis.evaluation import Outcome
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli import _evaluation_output
from sut_fairseq.cli._command import check_apart, print_json, run_command
from sut_fairseq.cli._evaluate_options import make_parser, num_rows
from sut_fairseq.cli._overrides import check_overrides
from sut_fairseq.cli.bleu import tokenized_bleu
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.csv_files import write_csv
from sut_fairseq.inference.device import usable_device
from sut_fairseq.inference.files import find_checkpoint
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel
from sut_fairseq.tasks.gold_attention import GoldAttentionTask
from sut_fairseq.tasks.labels import LabelTask


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-evaluate", lambda: run(argv))


def run(argv: Sequence[str] | None, parser: Parser | None = None) -> None:
    """Run a command line on behalf of another command: errors are raised.

    Args:
        argv: the command line.
        parser: reads it; None: that of the command, which exits at an option that it lacks.

    Raises:
        InputError: for bad input.
    """
    arguments = (parser or make_parser()).parse_args(argv)
    _check_options(arguments)
    arguments.path = str(find_checkpoint(Path(arguments.path)))
    check_apart({"--path": arguments.path, "--csv": arguments.csv, "--plot": arguments.plot})
    check_overrides(arguments.model_overrides, load_checkpoint(arguments.path, lazy=True))
    overrides = {**arguments.model_overrides, "group_column": None}
    if arguments.data:
        overrides["data"] = arguments.data
    with waiting("loading the model"):
        model, task = trained.load(arguments.path, overrides)
    if arguments.modes is None:
        arguments.modes = ["search" if isinstance(task, GoldAttentionTask) else "reference"]
    _check_model(arguments, model, task)
    result = _evaluate(arguments, model.to(usable_device(arguments.device)), task)
    # Files first: the reader of the output (`head`, say) may close it before its end.
    if arguments.csv:
        write_csv(arguments.csv, _evaluation_output.COLUMNS, result["rows"])
    if arguments.plot:
        _evaluation_output.draw(result, arguments.plot)
    if arguments.json:
        print_json(result)
    else:
        _evaluation_output.print_table(result)


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse incompatible options before anything is loaded."""
    check_thresholds("--thresholds", arguments.thresholds or ())
    for option in ("conjuncts", "bleu"):
        if getattr(arguments, option) and "search" not in (arguments.modes or ()):
            raise InputError(
                f"--{option} compares what was generated: give --modes search with it."
            )
    if arguments.bins is not None and not arguments.by:
        raise InputError("--bins is for groups: give --by with it, or leave it out.")
    if arguments.confusion and len(arguments.modes or [0]) * len(arguments.thresholds or [0]) > 1:
        raise InputError("--confusion makes one table: give one mode and one threshold with it.")
    _evaluation_output.check_files(arguments.csv, arguments.plot)


def _check_model(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> None:
    """Refuse a model that cannot be evaluated, and options that mean nothing for it."""
    if isinstance(model, FairseqLanguageModel):
        raise InputError("language models have no sentences to get right: use fairseq-eval-lm.")
    if isinstance(model, ContextualRetrievalModel):
        raise InputError(
            "contextual_retrieval predicts numbers, of which none is right or wrong: "
            "`sut-experiment evaluate` measures the error of its runs, `sut-report` draws what a "
            "model retrieves."
        )
    if arguments.macs:
        check_model(model)
    if arguments.thresholds:
        check_uses_threshold("--thresholds", model)
    if arguments.confusion and not isinstance(task, LabelTask):
        raise InputError(
            "--confusion needs a model trained for sequence_classification or "
            "classification_as_translation."
        )
    for option in ("beam", "max_len"):
        if getattr(arguments, option) is not None and "search" not in arguments.modes:
            raise InputError(
                f"--{option.replace('_', '-')} is for what is generated: give --modes search with "
                "it, or leave it out."
            )


def _evaluate(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> dict[str, Any]:
    """All rows by mode, threshold and group; the last row of each threshold is for all groups."""
    split = arguments.gen_subset
    with waiting("loading the split"):
        numbers = trained.load_split(task, split, arguments.max_sentences)
    evaluation.check_lengths(task, model, split, numbers)
    groups = list(evaluation.groups_of(task, split, arguments.by, numbers))
    if most := num_rows(arguments):
        groups = evaluation.in_ranges(groups, most)
    names = {"all", *(name for name, _ in groups)}
    for group, number in arguments.published:
        if group not in names:
            print(f"no group {group} here, so {number:g} is shown nowhere", file=sys.stderr)
    longest = max(int(task.dataset(split).size(number)[1]) for number in numbers)
    asked = {
        "reference": evaluation.by_reference(model, task),
        "search": evaluation.by_search(
            model, task, beam=arguments.beam or 1, max_len=arguments.max_len or longest + 10
        ),
    }
    result: dict[str, Any] = {
        "data": task.cfg.data,
        "split": split,
        "by": arguments.by,
        "measure": "accuracy" if isinstance(task, LabelTask) else "exact match",
        "rows": [],
    }
    macs: dict[float | None, int] = {}
    if _is_sweep(arguments):  # warm-up: no row's seconds include one-time costs
        evaluation.evaluate(model, task, split, groups[0][1][:1], asked[arguments.modes[0]])
    for mode, threshold in product(arguments.modes, arguments.thresholds or [None]):
        if threshold is not None:
            set_threshold(model, threshold)
        shown = mode if threshold is None else f"{mode} {threshold}"
        with tqdm(total=len(numbers), desc=shown, unit="sentence", disable=None) as bar:
            options = {"max_tokens": arguments.max_tokens, "progress": bar.update}
            outcomes = [
                (name, evaluation.evaluate(model, task, split, members, asked[mode], **options))
                for name, members in groups
            ]
        total = sum((outcome for _, outcome in outcomes), Outcome())
        for name, outcome in [*(outcomes if arguments.by else ()), ("all", total)]:
            result["rows"].append(_row(arguments, task, mode, threshold, name, outcome))
        if arguments.macs:
            if threshold not in macs:  # the same in each mode
                macs[threshold] = _macs(model, task, split, len(numbers))
            result["rows"][-1]["macs"] = macs[threshold]
        if arguments.confusion:
            pairs = list(_references(task, split, total))
            result["macro_f1"] = evaluation.macro_f1(pairs)
            result["confusion"] = _confusion(pairs)
    return result


def _macs(model: Any, task: tasks.FairseqTask, split: str, number: int) -> int:
    """MACs of the first pairs of a split, on average, with the model's present threshold."""
    pairs = trained.sentence_pairs(task, split, number)
    device = next(model.parameters()).device
    batches = [
        apply_to_sample(lambda tensor: tensor.to(device), batch)
        for batch in without_padding(pairs, task.target_dictionary.eos())
    ]
    counted = count(model, tqdm(batches, desc="MACs", unit="batch", disable=None))
    return round(counted.macs_full / counted.sentences)


def _row(
    arguments: argparse.Namespace,
    task: tasks.FairseqTask,
    mode: str,
    threshold: float | None,
    group: str,
    outcome: Outcome,
) -> dict[str, Any]:
    row = {"mode": mode, "alpha_threshold": threshold, "group": group, **outcome.figures()}
    if _is_sweep(arguments):  # without a sweep, the same command prints the same
        row["seconds"] = outcome.seconds
    published = dict(arguments.published)
    if group in published:
        row["published"] = published[group]
    if mode == "search" and (arguments.conjuncts or arguments.bleu):
        pairs = list(_references(task, arguments.gen_subset, outcome))
        if arguments.conjuncts:
            same = sum(conjuncts(reference) == conjuncts(found) for reference, found in pairs)
            row["same_conjuncts"] = 100 * same / len(pairs)
        if arguments.bleu:
            folder = Path(split_paths(task.cfg.data)[0])
            _, target = load_direction(folder, task.cfg.source_lang, task.cfg.target_lang)
            references, found = zip(*(map(target.join, pair) for pair in pairs))
            row["bleu"] = tokenized_bleu(found, references)
    return row


def _is_sweep(arguments: argparse.Namespace) -> bool:
    """Whether there are thresholds to compare."""
    return len(set(arguments.thresholds or ())) > 1


def _references(task: tasks.FairseqTask, split: str, outcome: Outcome) -> Iterable[tuple[str, str]]:
    """(reference, prediction) of all sentences, in words.

    A reference word that the dictionary lacks is `<<unk>>`, which never equals a prediction.
    """
    dataset, words = task.dataset(split), task.target_dictionary
    for number, answer in outcome.answers.items():
        assert answer.words is not None
        yield words.string(dataset[number]["target"], escape_unk=True), answer.words


def _confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts by reference, then by prediction."""
    counts = Counter(pairs)
    labels = sorted({label for pair in counts for label in pair})
    return {
        reference: {predicted: counts[reference, predicted] for predicted in labels}
        for reference in labels
    }


if __name__ == "__main__":
    sys.exit(main())
