"""`sut-evaluate`: accuracy or exact match and depth, by group and by halting threshold."""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks
from tqdm import tqdm

from sut_fairseq.analysis import evaluation, trained
from sut_fairseq.analysis.depth import set_threshold, stacks
from sut_fairseq.analysis.evaluation import Outcome
from sut_fairseq.cli._command import load_checkpoint, print_json, run_command
from sut_fairseq.modules.errors import InputError, check
from sut_fairseq.sparql import conjuncts
from sut_fairseq.tasks.classification_as_translation import ClassificationAsTranslationTask

MODES = ("reference", "search")
COLUMNS = (
    *("mode", "alpha_threshold", "group", "sentences", "right", "percent", "published"),
    *("encoder_depth", "decoder_depth", "skipped", "same_conjuncts"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-evaluate", lambda: _main(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sut-evaluate",
        description="Accuracy (classification) or exact match (sequences) of a trained model on a "
        "split, and how many steps its tokens run, for each group of sentences and each halting "
        "threshold. Every sentence counts: one that is too long for the model is an error.",
        allow_abbrev=False,
    )
    parser.add_argument("--path", required=True, metavar="CHECKPOINT", help="a trained model")
    parser.add_argument("--data", metavar="DATA-BIN", help="prepared folder (default: training's)")
    parser.add_argument(
        "--gen-subset", default="test", metavar="SPLIT", help="which split (default: %(default)s)"
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN",
        help="a row for each value of source_length, target_length, or a column of the folder "
        "(its file text/<split>.<column>: operators, type, ...)",
    )
    parser.add_argument(
        "--thresholds",
        nargs="+",
        type=float,
        metavar="A",
        help="halting thresholds (default: the checkpoint's own)",
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        default=["reference"],
        help="reference: run on the reference target, as in the paper; what greedy search would "
        "find is right (default). search: really generate",
    )
    parser.add_argument("--beam", type=int, default=1, metavar="N", help="of search (default: 1)")
    parser.add_argument(
        "--max-len",
        type=int,
        metavar="N",
        help="most words that search may generate (default: the split's longest target and 10)",
    )
    parser.add_argument(
        "--conjuncts",
        action="store_true",
        help="for CFQ, with --modes search: also the share of queries with the right set of "
        "conditions, in whatever order",
    )
    parser.add_argument(
        "--confusion",
        action="store_true",
        help="for classification: also macro-F1 and how often each label is taken for each other",
    )
    parser.add_argument(
        "--published",
        nargs="+",
        type=_published,
        default=[],
        metavar="GROUP=NUMBER",
        help="numbers to print beside ours, in per cent; the group of all sentences is `all`",
    )
    parser.add_argument("--max-sentences", type=int, metavar="N", help="only the first N")
    parser.add_argument(
        "--max-tokens", type=int, default=4096, metavar="N", help="of a batch (default: 4096)"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="cpu or cuda (default: cuda where there is a GPU)"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows into a CSV file")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw score against skipped steps (several thresholds), or score and depth by group",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _published(text: str) -> tuple[str, float]:
    group, _, number = text.rpartition("=")
    try:
        return group, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be GROUP=NUMBER, but is {text!r}") from None


def _main(argv: Sequence[str] | None) -> None:
    arguments = _parser().parse_args(argv)
    for threshold in arguments.thresholds or ():
        check(0 < threshold <= 1, "--thresholds", "greater than 0, at most 1", threshold)
    check(arguments.beam >= 1, "--beam", "at least 1", arguments.beam)
    check(arguments.max_tokens >= 1, "--max-tokens", "at least 1", arguments.max_tokens)
    if arguments.conjuncts and arguments.modes != ["search"]:
        raise InputError("--conjuncts compares what was generated: give --modes search with it.")
    if arguments.plot:
        from sut_fairseq.analysis import evaluation_plots  # refuses at once without matplotlib

    load_checkpoint(arguments.path)  # refuses what is no checkpoint with one clear sentence
    overrides = {"group_column": None, **({"data": arguments.data} if arguments.data else {})}
    model, task = trained.load(arguments.path, overrides)
    if arguments.thresholds and not any(s.halting for s in stacks(model).values()):
        raise InputError("--thresholds needs a model that halts, and this one does not.")
    if arguments.confusion and not isinstance(task, ClassificationAsTranslationTask):
        raise InputError("--confusion needs a model trained for classification_as_translation.")
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device} cannot be used here: {error}.") from error
    result = _evaluate(arguments, model, task)
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="raise")
            writer.writeheader()
            writer.writerows(result["rows"])
    if arguments.plot:
        evaluation_plots.draw(result, arguments.plot)
    if arguments.json:
        print_json(result)
    else:
        _print_table(result)


def _evaluate(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> dict[str, Any]:
    """All rows: modes by thresholds by groups, the last row of each being that of all groups."""
    split = arguments.gen_subset
    try:
        numbers = trained.load_split(task, split, arguments.max_sentences)
    except FileNotFoundError as error:
        raise InputError(
            f"`{task.cfg.data}` has no split `{split}`: check --gen-subset."
        ) from error
    evaluation.check_lengths(task, model, split, numbers)
    groups = list(evaluation.groups_of(task, task.cfg.data, split, arguments.by, numbers))
    names = dict.fromkeys([*(name for name, _ in groups), "all"])
    for group, _ in arguments.published:
        check(group in names, "--published", f"for one of {', '.join(names)}", group)
    longest = max(int(task.dataset(split).tgt_sizes[number]) for number in numbers)
    asked = {
        "reference": evaluation.by_reference(model, task),
        "search": evaluation.by_search(
            model, task, beam=arguments.beam, max_len=arguments.max_len or longest + 10
        ),
    }
    result: dict[str, Any] = {
        "data": task.cfg.data,
        "split": split,
        "by": arguments.by,
        "measure": (
            "accuracy" if isinstance(task, ClassificationAsTranslationTask) else "exact match"
        ),
        "rows": [],
    }
    for mode in arguments.modes:
        for threshold in arguments.thresholds or [None]:
            if threshold is not None:
                set_threshold(model, threshold)
            shown = f"{mode} {threshold if threshold is not None else ''}".strip()
            total = Outcome()
            with tqdm(total=len(numbers), desc=shown, unit="sentence", disable=None) as bar:
                for name, members in groups:
                    outcome = evaluation.evaluate(
                        model,
                        task,
                        split,
                        members,
                        asked[mode],
                        max_tokens=arguments.max_tokens,
                        progress=bar.update,
                    )
                    total += outcome
                    if arguments.by:
                        result["rows"].append(_row(arguments, task, mode, threshold, name, outcome))
            result["rows"].append(_row(arguments, task, mode, threshold, "all", total))
            if arguments.confusion:
                pairs = list(_references(task, split, total))
                result["macro_f1"] = evaluation.macro_f1(pairs)
                result["confusion"] = _confusion(pairs)
    return result


def _row(
    arguments: argparse.Namespace,
    task: tasks.FairseqTask,
    mode: str,
    threshold: float | None,
    group: str,
    outcome: Outcome,
) -> dict[str, Any]:
    row = {"mode": mode, "alpha_threshold": threshold, "group": group, **outcome.figures()}
    published = dict(arguments.published)
    if group in published:
        row["published"] = published[group]
    if arguments.conjuncts:
        pairs = _references(task, arguments.gen_subset, outcome)
        same = sum(conjuncts(reference) == conjuncts(predicted) for reference, predicted in pairs)
        row["same_conjuncts"] = 100 * same / len(outcome.answers)
    return row


def _references(task: tasks.FairseqTask, split: str, outcome: Outcome) -> Iterable[tuple[str, str]]:
    """(reference, prediction) of all sentences, in words."""
    dataset = task.dataset(split)
    for number, answer in outcome.answers.items():
        assert answer.words is not None
        yield task.target_dictionary.string(dataset[number]["target"]), answer.words


def _confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts by reference, then by prediction."""
    counts = Counter(pairs)
    labels = sorted({label for pair in counts for label in pair})
    return {
        reference: {predicted: counts[reference, predicted] for predicted in labels}
        for reference in labels
    }


def _print_table(result: dict[str, Any]) -> None:
    """Print the rows for people, then the confusion table."""
    rows = result["rows"]
    header = {
        "mode": "mode",
        "alpha_threshold": "threshold",
        "group": result["by"] or "group",
        "sentences": "sentences",
        "percent": result["measure"],
        "published": "published",
        "encoder_depth": "encoder depth",
        "decoder_depth": "decoder depth",
        "skipped": "skipped",
        "same_conjuncts": "same conjuncts",
    }
    shown = [key for key in header if any(row.get(key) is not None for row in rows)]
    form = {
        "sentences": "{:,}".format,
        "percent": "{:.2f} %".format,
        "published": "{:g} %".format,
        "same_conjuncts": "{:.2f} %".format,
        "encoder_depth": "{:.2f}".format,
        "decoder_depth": "{:.2f}".format,
        "skipped": lambda share: f"{100 * share:.1f} %",
    }
    table = [[header[key] for key in shown]]
    table += [
        [form.get(key, str)(row[key]) if row.get(key) is not None else "" for key in shown]
        for row in rows
    ]
    _print_columns(table)
    if "confusion" in result:
        labels = list(result["confusion"])
        print(f"\nmacro-F1 {result['macro_f1']:.2f} %\n\nlabel (rows) taken for label (columns)")
        counts = [[label, *map(str, result["confusion"][label].values())] for label in labels]
        _print_columns([["", *labels], *counts])


def _print_columns(table: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
