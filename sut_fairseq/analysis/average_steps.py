"""How many steps the tokens of a trained model take, by group of sentences (NDR Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq import tasks

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.evaluation import by_reference, groups_of
from sut_fairseq.analysis.traces import depth_loops, recording
from sut_fairseq.modules.errors import InputError

LENGTH = "length"  # of the source as the model reads it: begin and end tokens count


class Depth(NamedTuple):
    """Steps until tokens were read out, summed over tokens."""

    steps: int
    tokens: int


def halting_stacks(model: Any) -> dict[str, int]:
    """The greatest number of steps of each depth loop that halts, by "encoder" and "decoder".

    Raises:
        InputError: if there is none.
    """
    loops = depth_loops(model)
    found = {name: loop.num_steps for name, loop in loops.items() if loop.halting is not None}
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
        with recording(model, maps=False) as recorders:
            ask(batch)
        depths = {name: recorders[name].result().depth for name in names}
        for row, number in enumerate(batch["id"].tolist()):
            found[number] = {
                name: Depth(int(depth[row].sum()), int((depth[row] > 0).sum()))
                for name, depth in depths.items()
            }
        progress(len(group))
    return found


def groups(
    task: tasks.FairseqTask, split: str, by: str, numbers: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """Sentences by `LENGTH`, or by whatever `evaluation.groups_of` knows, in order.

    Raises:
        InputError: if there is no such column.
    """
    if by != LENGTH:
        yield from groups_of(task, task.cfg.data, split, by, numbers)
        return
    sizes = task.dataset(split).src_sizes
    for size in sorted({int(sizes[number]) for number in numbers}):
        yield str(size), [number for number in numbers if sizes[number] == size]


def average(depths: Mapping[int, Mapping[str, Depth]], members: Sequence[int]) -> dict[str, float]:
    """`sentences`, and for each loop `<name>_steps`: the mean over the tokens of all members."""
    row: dict[str, float] = {"sentences": len(members)}
    for name in depths[members[0]]:
        own = [depths[number][name] for number in members]
        row[f"{name}_steps"] = sum(one.steps for one in own) / sum(one.tokens for one in own)
    return row
