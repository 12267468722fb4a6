"""How many steps the tokens of a trained model take, by group of sentences (NDR Figure 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq import tasks

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.evaluation import by_reference, groups_of
from sut_fairseq.analysis.traces import evaluating, looked_at, recorders
from sut_fairseq.errors import InputError
from sut_fairseq.tasks.columns import order_of

LENGTH = "length"  # of the source as the model reads it: begin and end tokens count


class Depth(NamedTuple):
    """Steps until tokens were read out, summed over tokens."""

    steps: int
    tokens: int


def halting_stacks(model: Any) -> dict[str, int]:
    """The greatest number of steps of each depth loop that halts, by "encoder" and "decoder".

    Raises:
        InputError: if no loop halts.
    """
    loops = looked_at(model)
    found = {name: loop.num_steps for name, loop in loops.items() if loop.halts}
    if not found:
        raise InputError(
            "all tokens of this model take all its steps, because it does not halt: --steps-by "
            "needs a model trained with --encoder-halting or --decoder-halting."
        )
    return found


def depth_of_sentences(
    model: Any,
    task: tasks.FairseqTask,
    split: str,
    numbers: Sequence[int],
    *,
    max_tokens: int = 4096,
    progress: Callable[[int], object] = lambda sentences: None,
) -> dict[int, dict[str, Depth]]:
    """Run a model as `evaluation.by_reference` does, and count the steps of each sentence.

    Args:
        model, task: a trained model that halts, on the CPU, and its task with the split loaded.
        split: name of the split.
        numbers: of the sentences.
        max_tokens: greatest number of source or target tokens in a batch, padding included.
        progress: called with the number of sentences of each batch that is done.

    Returns:
        for each sentence the depth in each loop that halts (`StackTrace.depth`, all its tokens).
    """
    dataset, ask = task.dataset(split), by_reference(model, task)
    names = halting_stacks(model)
    found: dict[int, dict[str, Depth]] = {}
    for group in trained.similar_lengths(dataset, numbers, max_tokens):
        batch = dataset.collater([dataset[number] for number in group])
        observers = batch["net_input"]["observers"] = recorders(model, maps=False)
        with evaluating(model):
            ask(batch)
        depths = {name: observers[name].result().depth for name in names}
        for row, number in enumerate(batch["id"].tolist()):
            found[number] = {
                name: Depth(int(depth[row].sum()), int((depth[row] > 0).sum()))
                for name, depth in depths.items()
            }
        progress(len(group))
    return found


def by_group(
    model: Any,
    task: tasks.FairseqTask,
    splits: Mapping[str, Sequence[int]],
    by: str,
    **options: Any,
) -> list[dict[str, Any]]:
    """Average steps by group, over the sentences of several splits together.

    Args:
        model, task: as for `depth_of_sentences`.
        splits: the numbers of the sentences of each split, by its name.
        by: what to group by, as for `groups`.
        options: `max_tokens` and `progress` of `depth_of_sentences`.

    Returns:
        for each group, in order, its name as `group`, how many `sentences` it has and, for each
        loop that halts, `<name>_steps`, the mean over the tokens of its sentences.

    Raises:
        InputError: if there is no such column, before anything is computed.
    """
    parts = {split: list(groups(task, split, by, own)) for split, own in splits.items()}
    found: defaultdict[str, list[Mapping[str, Depth]]] = defaultdict(list)
    for split, numbers in splits.items():
        depths = depth_of_sentences(model, task, split, numbers, **options)
        for group, members in parts[split]:
            found[group] += [depths[number] for number in members]
    return [{"group": group, **_average(found[group])} for group in sorted(found, key=order_of)]


def groups(
    task: tasks.FairseqTask, split: str, by: str, numbers: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """Group sentences by `LENGTH`, or by anything that `evaluation.groups_of` knows, in order.

    Raises:
        InputError: if there is no such column.
    """
    if by != LENGTH:
        yield from groups_of(task, split, by, numbers)
        return
    sizes = task.dataset(split).src_sizes
    for size in sorted({int(sizes[number]) for number in numbers}):
        yield str(size), [number for number in numbers if sizes[number] == size]


def _average(sentences: Sequence[Mapping[str, Depth]]) -> dict[str, float]:
    row: dict[str, float] = {"sentences": len(sentences)}
    for name in sentences[0]:
        own = [depths[name] for depths in sentences]
        row[f"{name}_steps"] = sum(one.steps for one in own) / sum(one.tokens for one in own)
    return row
