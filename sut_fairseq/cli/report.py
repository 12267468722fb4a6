"""`sut-report`: pictures of what a trained model does at each step."""

from __future__ import annotations

import argparse
import csv
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor
from tqdm import tqdm

from sut_data.command_line import Parser, whole_number
from sut_data.files import written_whole
from sut_fairseq.analysis import average_steps, evaluation, trained
from sut_fairseq.analysis.traces import depth_loops, trace
from sut_fairseq.cli._command import load_checkpoint, run_command
from sut_fairseq.cli._overrides import check_overrides, parse_overrides
from sut_fairseq.errors import InputError, check
from sut_fairseq.tasks.labels import LabelTask

# The drawing is imported where it begins: matplotlib is an extra.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-report", lambda: _main(argv))


def _parser() -> Parser:
    parser = Parser(
        "sut-report",
        description="Draw what a trained model does with one sentence at each step: attention "
        "maps, how far copy gates open, and the probability of having halted; or, with "
        "--steps-by, how many steps it takes on average for sentences of each length.",
    )
    parser.add_argument("--path", required=True, metavar="CHECKPOINT", help="a trained model")
    parser.add_argument("--data", metavar="DATA-BIN", help="prepared folder (default: training's)")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FOLDER", help="where to write the pictures"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--sentence", metavar="WORDS", help='words as in the data, with spaces: "101 d a b"'
    )
    what.add_argument(
        "--number",
        type=whole_number,
        default=1,
        metavar="N",
        help="without --sentence: the N-th of the split (default: the first)",
    )
    what.add_argument(
        "--steps-by",
        metavar="COLUMN",
        help="average number of steps for each length (of the source, begin and end tokens "
        "included), source_length or target_length (in words), or value of a column of the folder "
        "(its file text/<split>.<column>)",
    )
    parser.add_argument(
        "--target",
        metavar="WORDS",
        help="what the decoder of a translation model reads (default: what it generates greedily)",
    )
    parser.add_argument(
        "--max-len",
        type=whole_number,
        default=200,
        metavar="N",
        help="most words that it may generate (default: %(default)s)",
    )
    parser.add_argument(
        "--gen-subset",
        default="test",
        metavar="SPLIT",
        help="which split (default: %(default)s); with --steps-by also several, with commas",
    )
    heads = parser.add_mutually_exclusive_group()
    heads.add_argument(
        "--head", type=whole_number, metavar="N", help="attention of the N-th head, from 1"
    )
    heads.add_argument(
        "--maximum", action="store_true", help="greatest attention of all heads (default)"
    )
    parser.add_argument(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=["png", "pdf"],
        help="of the pictures (default: png pdf)",
    )
    parser.add_argument(
        "--model-overrides",
        type=parse_overrides,
        default={},
        metavar="DICT",
        help="options of the model to replace, as in fairseq-generate: \"{'encoder_layers': 24}\"",
    )
    parser.add_argument(
        "--max-sentences",
        type=whole_number,
        metavar="N",
        help="with --steps-by: only the first N of each",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole_number,
        default=4096,
        metavar="N",
        help="with --steps-by: of a batch (default: %(default)s)",
    )
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments = _parser().parse_args(argv)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise InputError(f"--out {arguments.out} is a file: name a folder.")
    check_overrides(arguments.model_overrides, load_checkpoint(arguments.path).get("cfg"))
    overrides = {**arguments.model_overrides, "group_column": None}
    if arguments.data:
        overrides["data"] = arguments.data
    model, task = trained.load(arguments.path, overrides)
    model.eval()
    if arguments.steps_by:
        if arguments.target is not None or arguments.head or arguments.maximum:
            raise InputError(
                "--steps-by draws no sentence: leave --target, --head and --maximum out."
            )
        _report_steps(arguments, model, task)
    else:
        _report_sentence(arguments, model, task)


def _report_steps(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> None:
    """Write the average number of steps by group as a table and a picture."""
    from sut_fairseq.analysis import trace_plots

    greatest = average_steps.halting_stacks(model)
    by = arguments.steps_by
    splits = {}
    for split in arguments.gen_subset.split(","):
        splits[split] = _load_split(task, split, arguments.max_sentences)
        evaluation.check_lengths(task, model, split, splits[split])
    total = sum(map(len, splits.values()))
    with tqdm(total=total, desc="counting steps", unit="sentence", disable=None) as bar:
        rows = average_steps.by_group(
            model, task, splits, by, max_tokens=arguments.max_tokens, progress=bar.update
        )
    title = f"{Path(task.cfg.data).name}, {', '.join(splits)}"
    figure = trace_plots.average_steps_figure(rows, by, greatest, title=title)
    for row in rows:
        shown = ", ".join(
            f"{name} {row[f'{name}_steps']:.2f} of {greatest[name]}" for name in greatest
        )
        print(f"{by} {row['group']}: {row['sentences']:,} sentences, steps per token: {shown}")
        row.update({f"{name}_greatest": steps for name, steps in greatest.items()})
    name = f"steps_by_{by}"
    _write(arguments, {name: figure})
    csv_file = arguments.out / f"{name}.csv"
    with written_whole(csv_file) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(csv_file)


def _report_sentence(arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask) -> None:
    """Write pictures of all steps for one sentence."""
    from sut_fairseq.analysis import trace_plots

    loops = depth_loops(model)
    for name, loop in loops.items():
        _check_head(arguments.head, name, loop.block)
    sample = _sample(arguments, task)
    source = sample["net_input"]["src_tokens"]
    _check_length("source", source.shape[1], model.max_positions()[0])
    words = {"encoder": _words(source[0], task.source_dictionary)}
    print("source:", " ".join(words["encoder"]))
    answer = _answer(arguments, model, task, sample)
    print("answer:", task.target_dictionary.string(answer))
    if "decoder" in loops:
        # What is shown of a classification is the one step that the label is read from.
        read = answer[:0] if isinstance(task, LabelTask) else answer[:-1]
        previous = torch.cat([read.new_tensor([task.target_dictionary.eos()]), read])
        _check_length("target", len(previous), model.max_positions()[1])
        sample["net_input"]["prev_output_tokens"] = previous.unsqueeze(0)
        words["decoder"] = _words(previous, task.target_dictionary)
    figures: dict[str, Figure] = {}
    for name, steps in trace(model, sample).stacks.items():
        figures.update(trace_plots.stack_figures(name, steps, words, arguments.head))
    _write(arguments, figures)


def _check_length(side: str, length: int, most: int) -> None:
    """Refuse a sentence that is longer than the model takes."""
    check(length <= most, f"{side} sentence", f"at most {most} tokens long", length)


def _check_head(head: int | None, name: str, block: Any) -> None:
    most = block.self_attention.num_heads
    if head is not None:
        check(head <= most, "--head", f"between 1 and {most}, the heads of the {name}", head)


def _load_split(task: tasks.FairseqTask, split: str, max_sentences: int | None) -> range:
    try:
        return trained.load_split(task, split, max_sentences)
    except FileNotFoundError as error:
        raise InputError(
            f"`{task.cfg.data}` has no split `{split}`: check --gen-subset."
        ) from error


def _sample(arguments: argparse.Namespace, task: tasks.FairseqTask) -> dict[str, Any]:
    """The sentence to look at as a batch."""
    if arguments.sentence is None:
        numbers = _load_split(task, arguments.gen_subset, None)
        requirement = f"between 1 and the {len(numbers)} sentences of `{arguments.gen_subset}`"
        check(arguments.number <= len(numbers), "--number", requirement, arguments.number)
        dataset = task.dataset(arguments.gen_subset)
        return dataset.collater([dataset[arguments.number - 1]])
    tokens = _encode("--sentence", arguments.sentence, task.source_dictionary)
    dataset = task.build_dataset_for_inference([tokens], [len(tokens)])
    return dataset.collater([dataset[0]])


def _encode(option: str, sentence: str, dictionary: Dictionary) -> Tensor:
    """Words and the end token, `(length,)`."""
    words = sentence.split()
    check(bool(words), option, "at least one word", repr(sentence))
    for word in words:
        if dictionary.index(word) == dictionary.unk():
            known = dictionary.symbols[dictionary.nspecial :]
            similar = ", ".join(get_close_matches(word, known, n=5, cutoff=0))
            raise InputError(
                f"{option}: the model does not know the word `{word}`; similar ones that it knows "
                f"are {similar}."
            )
    return torch.tensor([*map(dictionary.index, words), dictionary.eos()])


def _words(tokens: Tensor, dictionary: Dictionary) -> list[str]:
    """Labels of tokens; fairseq's decoders begin with the end token, shown as the begin token."""
    words = [dictionary[int(token)] for token in tokens]
    if tokens[0] == dictionary.eos():
        words[0] = dictionary.bos_word
    return words


def _answer(
    arguments: argparse.Namespace, model: Any, task: tasks.FairseqTask, sample: dict[str, Any]
) -> Tensor:
    """`--target`, or what the model makes of the sentence, with the end token, `(length,)`."""
    if arguments.target is not None:
        if isinstance(task, LabelTask):
            raise InputError("--target is for translation models; a label is not read, but told.")
        return _encode("--target", arguments.target, task.target_dictionary)
    longest = min(arguments.max_len, model.max_positions()[1] - 1)
    options = {"beam": 1, "max_len_a": 0, "max_len_b": longest}
    search = task.build_generator([model], Namespace(**{**asdict(GenerationConfig()), **options}))
    answer: Tensor = task.inference_step(search, [model], sample)[0][0]["tokens"]
    return answer


def _write(arguments: argparse.Namespace, figures: Mapping[str, Figure]) -> None:
    """Write all figures in all formats; a file is replaced only by a whole one."""
    from sut_fairseq.analysis import trace_plots

    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        for ending in dict.fromkeys(arguments.format):
            path = arguments.out / f"{name}.{ending}"
            with written_whole(path) as partial:
                trace_plots.save(figure, partial)
            print(path)


if __name__ == "__main__":
    sys.exit(main())
