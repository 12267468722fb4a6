"""How many steps the tokens of a trained model take, by group of sentences (NDR Figure 4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairseq import tasks

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.evaluation import by_reference, grouped, groups_of
from sut_fairseq.analysis.traces import evaluating, looked_at, recorders
from sut_fairseq.errors import InputError
from sut_fairseq.tasks.columns import order_of

LENGTH = "length"  # of the source as the model reads it: begin and end tokens count


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


def by_group(
    model: Any,
    task: tasks.FairseqTask,
    splits: Mapping[str, Sequence[int]],
    by: str,
    *,
    max_tokens: int,
    progress: Callable[[int], object],
) -> list[dict[str, Any]]:
    """Average steps by group, over the sentences of several splits together.

    The model runs as in `evaluation.by_reference`; steps are those of `StackTrace.depth`.

    Args:
        model, task: a trained model that halts, on the CPU, and its task with the splits loaded.
        splits: the numbers of the sentences of each split, by its name.
        by: what to group by, as for `groups`.
        max_tokens: greatest number of source or target tokens in a batch, padding included.
        progress: called with the number of sentences of each batch that is done.

    Returns:
        for each group, in order, its name as `group`, how many `sentences` it has and, for each
        loop that halts, `<name>_steps`, the mean over the tokens of its sentences.

    Raises:
        InputError: if there is no such column, before anything is computed.
    """
    names, ask = halting_stacks(model), by_reference(model, task)
    group_of = {
        (split, number): group
        for split, numbers in splits.items()
        for group, members in groups(task, split, by, numbers)
        for number in members
    }
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for split, numbers in splits.items():
        for batch in trained.batches_of(task.dataset(split), numbers, max_tokens):
            observers = batch["net_input"]["observers"] = recorders(model, maps=False)
            with evaluating(model):
                ask(batch)
            own = [sums[group_of[split, number]] for number in batch["id"].tolist()]
            for one in own:
                one["sentences"] += 1
            for name in names:
                for one, depth in zip(own, observers[name].result().depth):
                    one[f"{name} steps"] += int(depth.sum())
                    one[f"{name} tokens"] += int((depth > 0).sum())
            progress(len(own))
    return [
        {
            "group": group,
            "sentences": sums[group]["sentences"],
            **{f"{n}_steps": sums[group][f"{n} steps"] / sums[group][f"{n} tokens"] for n in names},
        }
        for group in sorted(sums, key=order_of)
    ]


def groups(
    task: tasks.FairseqTask, split: str, by: str, numbers: Sequence[int]
) -> Iterable[tuple[str, list[int]]]:
    """Group sentences by `LENGTH`, or by anything that `evaluation.groups_of` knows, in order.

    Raises:
        InputError: if there is no such column.
    """
    if by != LENGTH:
        return groups_of(task, split, by, numbers)
    return grouped([str(int(size)) for size in task.dataset(split).src_sizes], numbers)
