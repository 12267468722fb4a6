"""`sut-evaluate`: evaluate accuracy or exact match, and depth, by group and halting threshold."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks
from fairseq.models import FairseqLanguageModel
from tqdm import tqdm

from sut_data.command_line import Parser, whole_number
from sut_data.sets.cfq.sparql import conjuncts
from sut_data.text.tokenization import load_tokenization
from sut_data.waiting import waiting
from sut_fairseq.analysis import evaluation, trained
from sut_fairseq.analysis.depth import set_threshold, units_with_threshold
from sut_fairseq.analysis.evaluation import Outcome
from sut_fairseq.cli import _evaluation_output
from sut_fairseq.cli._command import load_checkpoint, print_json, run_command
from sut_fairseq.cli._overrides import check_overrides, parse_overrides
from sut_fairseq.cli.bleu import tokenized_bleu
from sut_fairseq.errors import InputError, check
from sut_fairseq.inference.files import find_checkpoint
from sut_fairseq.tasks.gold_attention import GoldAttentionTask
from sut_fairseq.tasks.labels import LabelTask

MODES = ("reference", "search")
LENGTH_BINS = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-evaluate", lambda: run(argv))


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-evaluate",
        description="Accuracy (classification) or exact match (sequences) of a trained model on a "
        "split, and how many steps its tokens run, for each group of sentences and each halting "
        "threshold. Every sentence counts: one that is too long for the model is an error.",
        examples=[
            "sut-evaluate --path runs/mine/checkpoints/checkpoint_best.pt --by source_length",
            "sut-evaluate --path checkpoint_best.pt --thresholds 0.3 0.6 0.9 --plot thresholds.png",
        ],
    )
    parser.add_argument("--path", required=True, metavar="CHECKPOINT", help="a trained model")
    what = parser.add_argument_group("which sentences")
    how = parser.add_argument_group("how the model runs")
    shown = parser.add_argument_group("what is shown")
    what.add_argument("--data", metavar="DATA-BIN", help="prepared folder (default: training's)")
    what.add_argument(
        "--gen-subset",
        default="test",
        metavar="SPLIT",
        help="which split to evaluate (default: %(default)s)",
    )
    what.add_argument(
        "--by",
        metavar="COLUMN",
        help="a row for each value of source_length, target_length, or a column of the folder "
        "(its file text/<split>.<column>: operators, type, ...)",
    )
    what.add_argument(
        "--bins",
        type=_bins,
        metavar="N",
        help="with --by: at most N rows; neighbouring values share one, so that all rows have "
        "about equally many sentences; `all`: a row for each value (default: "
        f"{LENGTH_BINS} for lengths, all for columns of the folder and with --published)",
    )
    how.add_argument(
        "--thresholds",
        nargs="+",
        type=float,
        metavar="A",
        help="halting thresholds (default: the checkpoint's own)",
    )
    how.add_argument(
        "--model-overrides",
        type=parse_overrides,
        default={},
        metavar="DICT",
        help="options of the model to replace, as in fairseq-generate: \"{'encoder_layers': 24}\"",
    )
    how.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        help="reference: teacher forcing, as in the paper; right is what greedy search would find "
        "(default). search: really generate (default where gold attention is known, "
        "for its measures)",
    )
    how.add_argument(
        "--beam", type=whole_number, default=1, metavar="N", help="beam size of search (default: 1)"
    )
    how.add_argument(
        "--max-len",
        type=whole_number,
        metavar="N",
        help="longest output of search, in words (default: the split's longest target plus 10)",
    )
    shown.add_argument(
        "--conjuncts",
        action="store_true",
        help="for CFQ, with --modes search: also the share of queries with the right set of "
        "conditions in any order",
    )
    shown.add_argument(
        "--bleu",
        action="store_true",
        help="for translations, with --modes search: also BLEU on tokens (all scores: sut-bleu)",
    )
    shown.add_argument(
        "--confusion",
        action="store_true",
        help="for classification: also macro-F1 and the confusion table",
    )
    shown.add_argument(
        "--published",
        nargs="+",
        type=_published,
        default=[],
        metavar="GROUP=NUMBER",
        help="numbers to print beside ours, in per cent; `all` is the row of all sentences",
    )
    what.add_argument("--max-sentences", type=whole_number, metavar="N", help="only the first N")
    how.add_argument(
        "--max-tokens",
        type=whole_number,
        default=4096,
        metavar="N",
        help="tokens in a batch (default: 4096)",
    )
    how.add_argument(
        "--device", metavar="NAME", help="cpu or cuda (default: cuda where there is a GPU)"
    )
    shown.add_argument("--csv", type=Path, metavar="FILE", help="write the rows into a CSV file")
    shown.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw score against skipped steps (several thresholds), or score and depth by group",
    )
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _bins(text: str) -> int:
    """Number of rows; 0 stands for `all`."""
    return 0 if text == "all" else whole_number(text)


def _rows(arguments: argparse.Namespace) -> int:
    """At most how many rows the user wants; 0: one for each value."""
    if arguments.bins is not None:
        return int(arguments.bins)
    by_value = arguments.by not in evaluation.LENGTHS or arguments.published
    return 0 if by_value else LENGTH_BINS


def _published(text: str) -> tuple[str, float]:
    group, _, number = text.rpartition("=")
    try:
        return group, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be GROUP=NUMBER, but is {text!r}") from None


def run(argv: Sequence[str] | None) -> None:
    """Do what the command line says, for other commands: errors are raised.

    Raises:
        InputError: for bad input.
    """
    arguments = make_parser().parse_args(argv)
    for threshold in arguments.thresholds or ():
        check(0 < threshold <= 1, "--thresholds", "greater than 0, at most 1", threshold)
    for option in ("conjuncts", "bleu"):
        if getattr(arguments, option) and "search" not in (arguments.modes or ()):
            raise InputError(
                f"--{option} compares what was generated: give --modes search with it."
            )
    if arguments.confusion and len(arguments.modes or [0]) * len(arguments.thresholds or [0]) > 1:
        raise InputError("--confusion makes one table: give one mode and one threshold with it.")
    _evaluation_output.check_files(arguments.csv, arguments.plot)
    arguments.path = str(find_checkpoint(Path(arguments.path)))
    check_overrides(
        arguments.model_overrides, load_checkpoint(arguments.path, lazy=True).get("cfg")
    )
    overrides = {**arguments.model_overrides, "group_column": None}
    if arguments.data:
        overrides["data"] = arguments.data
    with waiting("loading the model"):
        model, task = trained.load(arguments.path, overrides)
    if isinstance(model, FairseqLanguageModel):
        raise InputError("language models have no sentences to get right: use fairseq-eval-lm.")
    if arguments.thresholds and not units_with_threshold(model):
        raise InputError(
            "--thresholds needs a model that halts by stick-breaking, and this one does not."
        )
    if arguments.confusion and not isinstance(task, LabelTask):
        raise InputError(
            "--confusion needs a model trained for sequence_classification or "
            "classification_as_translation."
        )
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device} cannot be used here: {error}.") from error
    result = _evaluate(arguments, model, task)
    if arguments.json:
        print_json(result)
    else:
        _evaluation_output.print_table(result)
    if arguments.csv:
        _evaluation_output.write_csv(result, arguments.csv)
    if arguments.plot:
        _evaluation_output.draw(result, arguments.plot)


def _evaluate(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> dict[str, Any]:
    """All rows: modes by thresholds by groups, the last row of each being that of all groups."""
    split = arguments.gen_subset
    try:
        with waiting("loading the split"):
            numbers = trained.load_split(task, split, arguments.max_sentences)
    except FileNotFoundError as error:
        raise InputError(
            f"`{task.cfg.data}` has no split `{split}`: check --gen-subset."
        ) from error
    evaluation.check_lengths(task, model, split, numbers)
    groups = list(evaluation.groups_of(task, task.cfg.data, split, arguments.by, numbers))
    if most := _rows(arguments):
        groups = evaluation.in_ranges(groups, most)
    names = dict.fromkeys([*(name for name, _ in groups), "all"])
    for group, number in arguments.published:
        if group not in names:
            print(f"no group {group} here, so {number:g} is shown nowhere", file=sys.stderr)
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
        "measure": "accuracy" if isinstance(task, LabelTask) else "exact match",
        "rows": [],
    }
    usual = "search" if isinstance(task, GoldAttentionTask) else "reference"
    for mode in arguments.modes or [usual]:
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
    if mode == "search" and (arguments.conjuncts or arguments.bleu):
        pairs = list(_references(task, arguments.gen_subset, outcome))
        if arguments.conjuncts:
            same = sum(conjuncts(reference) == conjuncts(found) for reference, found in pairs)
            row["same_conjuncts"] = 100 * same / len(pairs)
        if arguments.bleu:
            join = load_tokenization(Path(task.cfg.data))["tgt"].join
            references, found = zip(*((join(reference), join(one)) for reference, one in pairs))
            row["bleu"] = tokenized_bleu(found, references)
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


if __name__ == "__main__":
    sys.exit(main())
