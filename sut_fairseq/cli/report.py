"""`sut-report`: pictures, or a page, of what a trained model does at each step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fairseq import tasks

from sut_data.command_line import printable, refuse
from sut_data.files import check_writable, write_whole
from sut_data.tables import counted
from sut_data.waiting import Stopwatch, waiting
from sut_fairseq.analysis import average_steps, evaluation, trained
from sut_fairseq.analysis.depth import check_uses_threshold
from sut_fairseq.analysis.page.document import thresholds_of
from sut_fairseq.analysis.sentences import Reader, Sentence
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import name_of
from sut_fairseq.cli import _page, _report_pictures, _retrieval_report
from sut_fairseq.cli._command import check_apart, run_command
from sut_fairseq.cli._overrides import check_overrides
from sut_fairseq.cli._report_document import make_document
from sut_fairseq.cli._report_options import SPLIT, check_options, fill_in_defaults, make_parser
from sut_fairseq.cli._report_server import Server, limits
from sut_fairseq.errors import InputError, check
from sut_fairseq.inference.files import find_checkpoint, find_model
from sut_fairseq.inference.model import Model

_NAME = "sut-report"
_SENTENCES_OF_A_PAGE = 3
_AVERAGED_BY_A_PAGE = 200


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command(_NAME, lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> None:
    arguments = make_parser().parse_args(argv)
    check_options(arguments)
    watch = Stopwatch()
    state = load_checkpoint(find_checkpoint(Path(arguments.path)), lazy=True)
    task = name_of(state, "task")
    if task == "contextual_retrieval":
        reason = "this model reads no words"
        refuse(arguments, _retrieval_report.OF_SENTENCES, reason, parser=make_parser())
        fill_in_defaults(arguments)
        drawn = counted(_retrieval_report.draw(arguments), "file")
        _say(f"{drawn} in {arguments.out}, {watch}.")
        return
    if task == "language_modeling":
        raise InputError(
            "--path is a language model, which answers nothing: this is for models of translation, "
            "classification and contextual retrieval."
        )
    fill_in_defaults(arguments)
    with waiting("loading the model"):
        reader, checkpoint = _load(arguments)
    if arguments.html is not None:
        _write_page(arguments, reader, checkpoint, watch)
    elif arguments.serve is not None:
        _serve(arguments, reader, checkpoint)
    else:
        _say(f"{_draw(arguments, reader)} in {arguments.out}, {watch}.")


def _draw(arguments: argparse.Namespace, reader: Reader) -> str:
    """Draw what the options name; returns how many files or pictures that made, in words."""
    split = arguments.gen_subset
    if arguments.steps_by:
        loaded = {name: _split(arguments, reader, name) for name in split.split(",")}
        return counted(_report_pictures.draw_steps(arguments, reader, loaded), "file")
    if arguments.experts:
        numbers = _split(arguments, reader, split)
        return counted(_report_pictures.draw_experts(arguments, reader, split, numbers), "file")
    sentences = _sentences(arguments, reader, 1)
    pictures = _report_pictures.draw_sentences(arguments, reader, sentences)
    return f"{counted(pictures, 'picture')} of {counted(len(sentences), 'sentence')}"


def _load(arguments: argparse.Namespace) -> tuple[Reader, Path]:
    """The reader of the model, and its checkpoint."""
    files = find_model(arguments.path, arguments.data)
    check_overrides(arguments.model_overrides, load_checkpoint(files.checkpoint, lazy=True))
    overrides = {**arguments.model_overrides, "data": arguments.data or str(files.folder)}
    model = Model(files, device="cpu", overrides=overrides)
    return model.reader(beam=arguments.beam, max_len=arguments.max_len), files.checkpoint


def _write_page(
    arguments: argparse.Namespace, reader: Reader, checkpoint: Path, watch: Stopwatch
) -> None:
    path: Path = arguments.html
    if arguments.out is not None:
        path = arguments.out / path
    if path.parent != arguments.out or path.parent.is_dir():  # --out itself is made later
        check_writable(path, "--html")
    check_apart({"--path": checkpoint, "--log": arguments.log, "--html": path})
    document = _document(arguments, reader, checkpoint)
    page = _page.render(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    print(path)
    sentences = counted(len(document["sentences"]), "sentence")
    thresholds = counted(len(document["thresholds"]), "threshold")
    _say(f"{sentences} at {thresholds}, {len(page) / 1e6:.1f} MB, {watch}.")


def _serve(arguments: argparse.Namespace, reader: Reader, checkpoint: Path) -> None:
    with Server(arguments.serve, reader) as server:
        server.page = _page.render(_document(arguments, reader, checkpoint, limits(reader)))
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        _say("the page is there for this machine alone; Ctrl-C ends.")
        server.serve_forever()


def _document(
    arguments: argparse.Namespace,
    reader: Reader,
    checkpoint: Path,
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the page shows; a page that is served (`live`) may begin without a sentence."""
    if arguments.thresholds is not None:
        check_uses_threshold("--thresholds", reader.model)
    thresholds = thresholds_of(reader, arguments.thresholds)
    some = live is None or arguments.sentence or arguments.number
    sentences = _sentences(arguments, reader, _SENTENCES_OF_A_PAGE) if some else {}
    numbers = _averaged(arguments, reader)
    return make_document(arguments, reader, checkpoint, sentences, thresholds, numbers, live)


def _sentences(arguments: argparse.Namespace, reader: Reader, usual: int) -> Mapping[str, Sentence]:
    """The sentences to show, by name; the first `usual` ones of the split if none is given."""
    if arguments.sentence:
        found = [reader.sentence(text) for text in arguments.sentence]
        for sentence in found:
            _tell_unknown(reader.task, sentence)
        return {sentence.text: sentence for sentence in found}
    split = arguments.gen_subset
    available = _load_split(reader.task, split, None)
    numbers = arguments.number or range(1, min(usual, len(available)) + 1)
    requirement = f"between 1 and the {len(available)} sentences of `{split}`"
    for number in numbers:
        check(number <= len(available), "--number", requirement, number)
    return {f"{split} {number}": reader.of_split(split, number - 1) for number in numbers}


def _tell_unknown(task: tasks.FairseqTask, sentence: Sentence) -> None:
    """Name the words that the model does not know, and similar ones that it does."""
    dictionary = task.source_dictionary
    known = dictionary.symbols[dictionary.nspecial :]
    for word in dict.fromkeys(word.text for word in sentence.words if word.unknown):
        similar = ", ".join(get_close_matches(word, known, n=5, cutoff=0.3))
        hint = f"; similar ones that it knows: {similar}" if similar else ""
        _say(f"the model does not know `{word}` and reads it as {dictionary.unk_word}{hint}.")


def _averaged(arguments: argparse.Namespace, reader: Reader) -> Sequence[int]:
    """Sentences of the split to average over; none if there is no split and no option needs one.

    Raises:
        InputError: if an option needs a split that does not exist.
    """
    if arguments.steps_by:
        average_steps.halting_stacks(reader.model)  # refuses a model without halting
    try:
        most = arguments.max_sentences or _AVERAGED_BY_A_PAGE
        numbers = _load_split(reader.task, arguments.gen_subset, most)
    except InputError:
        asked = arguments.steps_by or arguments.max_sentences or arguments.gen_subset != SPLIT
        if asked:
            raise
        return []
    evaluation.check_lengths(reader.task, reader.model, arguments.gen_subset, numbers)
    return numbers


def _split(arguments: argparse.Namespace, reader: Reader, split: str) -> range:
    numbers = _load_split(reader.task, split, arguments.max_sentences)
    evaluation.check_lengths(reader.task, reader.model, split, numbers)
    return numbers


def _load_split(task: tasks.FairseqTask, split: str, max_sentences: int | None) -> range:
    with waiting("loading the split"):
        return trained.load_split(task, split, max_sentences)


def _say(sentence: str) -> None:
    print(f"{_NAME}: {printable(sentence)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
