"""What a trained model gets right, and how deep it computes, by group of sentences."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, groupby
from operator import itemgetter
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from fairseq import tasks
from fairseq.dataclass.configs import GenerationConfig
from fairseq.utils import move_to_cuda, split_paths, strip_pad
from torch import Tensor, nn

from sut_fairseq import metrics
from sut_fairseq.analysis import trained
from sut_fairseq.analysis.depth import add_halting, count_depth, skipped
from sut_fairseq.errors import InputError
from sut_fairseq.metrics import GreedyOutcome
from sut_fairseq.statistics import HaltingStatistics
from sut_fairseq.tasks.columns import order_of, read_column
from sut_fairseq.tasks.gold_attention import GoldAttentionTask
from sut_fairseq.tasks.labels import LabelTask
from sut_fairseq.tasks.sequence_classification import SequenceClassificationTask

LENGTHS = ("source_length", "target_length")


class Answer(NamedTuple):
    """The answer to one sentence: whether it is right, and further measures of it.

    Attributes:
        right: whether it equals the reference, or is the right label.
        words: the text of the answer; None if there is none.
        measures: further figures by name; their means are reported.
    """

    right: bool
    words: str | None
    measures: Mapping[str, float] = MappingProxyType({})


Ask = Callable[[dict[str, Any]], Sequence[Answer]]


@dataclass
class Outcome:
    """What a model did on a group of sentences.

    Attributes:
        answers: by the number of the sentence in its split.
        halting: statistics of all that the model computed, by "encoder" and "decoder".
        seconds: time that asking took, without the collation of batches.
    """

    answers: dict[int, Answer] = field(default_factory=dict)
    halting: dict[str, HaltingStatistics] = field(default_factory=dict)
    seconds: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        sums = dict(self.halting)
        add_halting(sums, other.halting)
        return Outcome({**self.answers, **other.answers}, sums, self.seconds + other.seconds)

    def figures(self) -> dict[str, float]:
        """Numbers of sentences and of right ones, per cent, means of further measures, depth.

        Depth is steps run per token and the share of steps skipped.
        """
        right = sum(answer.right for answer in self.answers.values())
        figures = {
            "sentences": len(self.answers),
            "right": right,
            "percent": 100 * right / len(self.answers),
        }
        for name in next(iter(self.answers.values())).measures:
            figures[name] = fmean(answer.measures[name] for answer in self.answers.values())
        for stack, statistics in self.halting.items():
            figures[f"{stack}_depth"] = float(statistics.depth)
        if self.halting:
            figures["skipped"] = skipped(self.halting.values())
        return figures


def evaluate(
    model: nn.Module,
    task: tasks.FairseqTask,
    split: str,
    numbers: Iterable[int],
    ask: Ask,
    *,
    max_tokens: int = 4096,
    progress: Callable[[int], object] = lambda sentences: None,
) -> Outcome:
    """Ask a model about sentences of a loaded split.

    Args:
        model: on the device where it is to run.
        task: with its split loaded.
        split: name of the split.
        numbers: of the sentences.
        ask: how to ask about a batch: `by_reference`, `by_search`.
        max_tokens: greatest number of source or target tokens in a batch, padding included.
        progress: called with the number of sentences of each batch that is done.
    """
    model.eval()
    device = next(model.parameters()).device
    answers: dict[int, Answer] = {}
    seconds = 0.0
    with torch.no_grad(), count_depth(model) as halting:
        for batch in trained.batches_of(task.dataset(split), numbers, max_tokens):
            if device.type == "cuda":
                batch = move_to_cuda(batch, device)
            start = time.perf_counter()
            # Answers are on the CPU, so the device has finished when they arrive.
            answers |= zip(batch["id"].tolist(), ask(batch))
            seconds += time.perf_counter() - start
            progress(len(batch["id"]))
    return Outcome(answers, dict(halting), seconds)


def by_reference(model: Any, task: tasks.FairseqTask) -> Ask:
    """Run the model on the reference targets, as the paper does for Figures 5 and 6.

    An answer is right if greedy search would find it (`metrics.found_by_greedy_search`); depth is
    that on the reference. In a classification task the model is asked for the label.
    """
    words = task.target_dictionary

    def ask(batch: dict[str, Any]) -> list[Answer]:
        if isinstance(task, LabelTask):
            best = task.label_scores([model], batch).argmax(dim=1).cpu()
            names = [words[label] for label in task.labels[best].tolist()]
            targets = [words[label] for label in batch["target"][:, 0].tolist()]
            return [Answer(name == target, name) for name, target in zip(names, targets)]
        scores = metrics.word_scores(model, model(**batch["net_input"]))
        right = metrics.found_by_greedy_search(scores, batch["target"], words)
        return [Answer(found, None) for found in right.tolist()]

    return ask


def by_search(model: Any, task: tasks.FairseqTask, *, beam: int, max_len: int) -> Ask:
    """Let the model generate; an answer is right if it equals the reference word by word.

    No answer equals a reference with an unknown word. Depth counts all hypotheses of the beam. With
    gold attention, greedy search reports its measures too.

    Args:
        model, task: a trained model and its task.
        beam: hypotheses in beam search; 1: greedy search.
        max_len: greatest number of generated tokens.
    """
    words = task.target_dictionary
    if isinstance(task, GoldAttentionTask) and beam == 1:
        return lambda batch: _with_measures(task.search(model, batch, max_len), words)
    options = GenerationConfig(beam=beam, max_len_a=0, max_len_b=max_len)
    search = task.build_generator([model], options)

    def ask(batch: dict[str, Any]) -> list[Answer]:
        found = task.inference_step(search, [model], batch)
        return [
            _compare(best[0]["tokens"], strip_pad(target, words.pad()), words)
            for best, target in zip(found, batch["target"])
        ]

    return ask


def _with_measures(outcome: GreedyOutcome, words: Any) -> list[Answer]:
    """Answers of greedy search where gold attention is known; `before_eos` in per cent."""
    measures = {"before_eos": 100.0 * outcome.before_eos}
    if outcome.attention_loss is not None:
        measures["attention_loss"] = outcome.attention_loss
    rows = zip(*(column.tolist() for column in measures.values()))
    return [
        Answer(right, words.string(strip_pad(tokens, words.pad())), dict(zip(measures, row)))
        for right, tokens, row in zip(outcome.right.tolist(), outcome.tokens.cpu(), rows)
    ]


def _compare(tokens: Tensor, target: Tensor, words: Any) -> Answer:
    known = words.unk() not in target
    return Answer(known and tokens.tolist() == target.tolist(), words.string(tokens))


def groups_of(
    task: tasks.FairseqTask, split: str, by: str | None, numbers: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """Group sentences by a column, in the order of its values; without one, all in one group.

    Args:
        task: with its split loaded; its data folder holds the columns (of several, the first).
        split: name of the split.
        by: `source_length`, `target_length` (in tokens, without those that mark begin and end), or
            a column of the folder.
        numbers: which sentences.

    Raises:
        InputError: if there is no such column, or a value of it is `all`.
    """
    dataset = task.dataset(split)
    if by is None:
        yield "all", list(numbers)
        return
    if by in LENGTHS:
        sizes, marks = dataset.tgt_sizes, 1
        if by == "source_length":
            sizes = dataset.src_sizes
            if isinstance(task, SequenceClassificationTask):
                marks = task.BOUNDARY_TOKENS
        values = [str(int(size) - marks) for size in sizes]
    else:
        values = read_column(split_paths(task.cfg.data)[0], split, by, len(dataset), LENGTHS)
        if "all" in values:
            raise InputError(
                f"the column `{by}` has the value `all`, which stands for the whole set here: give "
                "that group another name."
            )
    yield from grouped(values, numbers)


def grouped(values: Sequence[str], numbers: Iterable[int]) -> list[tuple[str, list[int]]]:
    """Group sentences by their values, in the order of these.

    Args:
        values: of all sentences of a split.
        numbers: which of them to group.
    """
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for number in numbers:
        groups[values[number]].append(number)
    return sorted(groups.items(), key=lambda group: order_of(group[0]))


def in_ranges(groups: Sequence[tuple[str, list[int]]], most: int) -> list[tuple[str, list[int]]]:
    """Join neighbouring groups into at most `most` ranges of about equally many sentences.

    Args:
        groups: name and sentences of each, in the order of the names.
        most: how many ranges there may be.

    Returns:
        the ranges, named "3" or "3 to 7".
    """
    if len(groups) <= most:
        return list(groups)
    sizes = [len(members) for _, members in groups]
    # A group goes into the range where the middle of its sentences falls.
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes)]
    places = [int(middle * most / sum(sizes)) for middle in middles]
    ranges = []
    for _, joined in groupby(zip(places, groups), key=itemgetter(0)):
        names, members = zip(*(group for _, group in joined))
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        ranges.append((name, list(chain.from_iterable(members))))
    return ranges


def check_lengths(task: tasks.FairseqTask, model: Any, split: str, numbers: Iterable[int]) -> None:
    """Refuse sentences that are longer than the model takes, rather than leave them out.

    Raises:
        InputError: saying how many there are and which option would take them.
    """
    dataset = task.dataset(split)
    # `size`, since the dataset of a plugin's task may wrap the one with `src_sizes`
    sizes = zip(*(dataset.size(number) for number in numbers))
    for side, lengths, most in zip(("source", "target"), sizes, model.max_positions()):
        longer = [int(length) for length in lengths if length > most]
        if longer:
            raise InputError(
                f"{len(longer)} {side} sentences of the split `{split}` have more than {most} "
                f"tokens, the most that the model takes (the longest has {max(longer)}): train "
                f"with --max-{side}-positions {max(longer)}."
            )


def macro_f1(pairs: Iterable[tuple[str, str]]) -> float:
    """Mean over labels of the harmonic mean of precision and recall, in per cent.

    Args:
        pairs: (reference, prediction); a label counts if it occurs as either.
    """
    listed = list(pairs)
    hits = Counter(reference for reference, predicted in listed if reference == predicted)
    named = Counter(label for pair in listed for label in pair)
    return 100 * fmean(2 * hits[label] / number for label, number in named.items())
