"""The pictures that `sut-report` writes: of sentences, of average steps by group, of experts."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq import tasks
from tqdm import tqdm

from sut_data.command_line import forget_output
from sut_data.files import write_whole
from sut_fairseq.analysis import average_steps
from sut_fairseq.analysis.expert_use import WordUse, expert_use, routers
from sut_fairseq.analysis.sentences import Reader, Sentence
from sut_fairseq.cli._glyphs import missing_glyphs_named
from sut_fairseq.errors import InputError, check
from sut_fairseq.experiments.csv_files import write_csv

# Plotting modules are imported where they are used: matplotlib is an extra.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_NAME = 40
_SPOKEN_WORDS = 5  # printed for each expert
_COLUMNS = ("loop", "layer", "expert", *WordUse._fields)  # of the table of experts


def draw_sentences(
    arguments: argparse.Namespace, reader: Reader, sentences: Mapping[str, Sentence]
) -> int:
    """Write pictures of all steps for each sentence, by name; returns the number of files."""
    from sut_fairseq.analysis import trace_plots

    for name, shape in reader.shapes.items():
        most = shape.num_heads
        if arguments.head is not None:
            requirement = f"between 1 and {most}, the heads of the {name}"
            check(arguments.head <= most, "--head", requirement, arguments.head)
    files = 0
    for name, sentence in sentences.items():
        answered = reader.ask(sentence, target=arguments.target, costs=False)
        _tell("source: " + " ".join(word.text for word in sentence.words))
        _tell(f"answer: {answered.text}")
        folder = _folder(arguments.out, name, sentence.text)
        figures = trace_plots.sentence_figures(answered, arguments.head)
        # First, so that the same command completes the folder after an interruption.
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _MARK, f"{sentence.text}\n{answered.text}\n")
        files += write(folder, figures, arguments.format)
    return files


def _tell(line: str) -> None:
    """Print a line without breaking the progress bar; a closed pipe does not stop the work."""
    try:
        tqdm.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()


# Says which sentence the pictures of a folder show: the sentence, and below it the answer.
_MARK = "sentence.txt"


def _folder(out: Path, name: str, text: str) -> Path:
    """The folder for the pictures of a sentence: the one that it already has, or a new one."""
    slug = "_".join(re.findall(r"\w+", name))[:_LONGEST_NAME].strip("_") or "sentence"
    for number in count(1):
        folder = out / (slug if number == 1 else f"{slug}_{number}")
        if not folder.exists():
            break
        mark = folder / _MARK
        shown = mark.read_text(encoding="utf-8", errors="replace") if mark.is_file() else ""
        if shown.splitlines()[:1] == [text]:
            break
    return folder


def draw_steps(
    arguments: argparse.Namespace,
    reader: Reader,
    splits: Mapping[str, Sequence[int]],
) -> int:
    """Write the average steps by group as a table and a picture; returns the number of files."""
    from sut_fairseq.analysis import trace_plots

    task: tasks.FairseqTask = reader.task
    greatest = average_steps.halting_stacks(reader.model)
    by = arguments.steps_by
    total = sum(map(len, splits.values()))
    with tqdm(total=total, desc="counting steps", unit="sentence", disable=None) as bar:
        rows = average_steps.by_group(
            reader.model, task, splits, by, max_tokens=arguments.max_tokens, progress=bar.update
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
    files = write(arguments.out, {name: figure}, arguments.format)
    return files + write_table(arguments.out / f"{name}.csv", list(rows[0]), rows)


def draw_experts(
    arguments: argparse.Namespace, reader: Reader, split: str, numbers: Sequence[int]
) -> int:
    """Write which words use which expert as a table and pictures; returns the number of files.

    Raises:
        InputError: if the model has no experts.
    """
    from sut_fairseq.analysis import expert_plots

    if not any(routers(reader.model).values()):
        raise InputError(
            "no layer of this model has experts: --experts needs one trained with "
            "--attention-experts or --ffn-experts."
        )
    task: tasks.FairseqTask = reader.task
    with tqdm(total=len(numbers), desc="counting experts", unit="sentence", disable=None) as bar:
        uses = expert_use(
            *(reader.model, task, split, numbers),
            max_tokens=arguments.max_tokens,
            progress=bar.update,
        )
    rows, figures = [], {}
    for loop, layers in uses.items():
        for layer, use in layers.items():
            what = f"{loop} {layer.replace('_', ' ')}"
            title = f"{Path(task.cfg.data).name}, {split}: {what}"
            figures[f"{loop}_{layer}_experts"] = expert_plots.affinity_figure(use, title=title)
            best = use.words(_SPOKEN_WORDS)
            for expert, (load, words) in enumerate(zip(use.loads(), best, strict=True), start=1):
                shown = ", ".join(f"{word.text} ({100 * word.share:.0f} %)" for word in words)
                shown = shown or "no word with more than an even share"
                print(f"{what}, expert {expert}: {100 * load:.1f} % of all choices; {shown}")
            rows += [
                dict(zip(_COLUMNS, (loop, layer, expert, *word), strict=True))
                for expert, words in enumerate(use.words(), start=1)
                for word in words
            ]
    files = write(arguments.out, figures, arguments.format)
    return files + write_table(arguments.out / "experts.csv", _COLUMNS, rows)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> int:
    """Write rows into a CSV file; returns the number of files."""
    write_csv(path, columns, rows)
    print(path)
    return 1


@missing_glyphs_named("sut-report")
def write(folder: Path, figures: Mapping[str, Figure], formats: Sequence[str]) -> int:
    """Write all figures in all formats; returns the number of files."""
    from sut_fairseq.analysis import drawing

    folder.mkdir(parents=True, exist_ok=True)
    endings = list(dict.fromkeys(formats))
    files = [(folder / f"{name}.{ending}", name) for name in figures for ending in endings]
    for path, name in tqdm(files, desc="drawing", unit="picture", disable=None, leave=False):
        drawing.save(figures[name], path)
        _tell(str(path))
    return len(files)
