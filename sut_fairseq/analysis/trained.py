"""Trained models from fairseq's checkpoints, and the sentence pairs of a binarised folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import FairseqDataset
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from sut_fairseq.analysis.depth import stacks
from sut_fairseq.checkpoints.reading import first_not_finite, guard_fairseq, load_as_fairseq
from sut_fairseq.checkpoints.settings import name_of
from sut_fairseq.errors import InputError, check

# Overrides that ask for no other weights, unless the dictionaries in `data` have other sizes.
_SAME_WEIGHTS = (
    *("balance_lengths", "data", "group_column", "source_lang", "target_lang"),
    *("alpha_threshold", "token_layout"),
)

# How fairseq's messages about damaged dictionaries begin.
_BAD_DICTIONARY = (
    "Incorrect dictionary format",
    "Duplicate word found when loading Dictionary",
    "Incorrect encoding detected",
)

# What torch says of a parameter of another shape: all of it but the rows, in checkpoint and model.
_SIZES = r"torch\.Size\(\[\d*(.*?)\]\)"
_MISMATCH = re.compile(rf"size mismatch for .+?: .*? {_SIZES} from checkpoint, .*? {_SIZES}")


def load(path: str, overrides: Mapping[str, Any]) -> tuple[Any, tasks.FairseqTask]:
    """A trained model and its task.

    Args:
        path: a checkpoint; no code in it is executed.
        overrides: values that replace those of training: `data`, `alpha_threshold`, ... Without
            a `token_layout`, a model that was trained in the masked one gets the default.

    Raises:
        InputError: if the checkpoint is damaged, has no model, or one whose weights are not all
            finite, if its dictionaries are missing or of other sizes than in training, or if the
            overrides describe a model with other weights.
    """
    guard_fairseq()
    # Every sentence counts once, however often training saw it.
    overrides = {**overrides, "balance_lengths": False}
    state = load_as_fairseq(path, dict(overrides))
    try:
        # The state is there too, whatever torch's default device is.
        with torch.device("cpu"):
            found = checkpoint_utils.load_model_ensemble_and_task(
                [path], dict(overrides), state=state
            )
    except InputError:
        raise
    except Exception as error:
        raise InputError(_why(path, name_of(state, "model"), overrides, error)) from error
    ensemble, _, task = found
    model = ensemble[0]
    name = first_not_finite(dict(model.named_parameters()))
    if name is not None:
        raise InputError(
            f"the model in `{path}` cannot be used: its weights `{name}` are not all finite, so "
            "its training diverged; take an earlier checkpoint."
        )
    if "token_layout" not in overrides:
        for stack in stacks(model).values():
            if stack.layout == "masked":  # for training: here it would compute what halting saves
                stack.layout = "auto"
    return model, task


def _why(path: str, name: str | None, overrides: Mapping[str, Any], error: Exception) -> str:
    """Why fairseq cannot build a model from a checkpoint, in a sentence."""
    if name is not None and name not in {*ARCH_MODEL_REGISTRY, *MODEL_REGISTRY}:
        return (
            f"the architecture `{name}` of `{path}` is not registered: give the plugin's folder "
            "with --user-dir, or in Python import its module before."
        )
    if isinstance(error, FileNotFoundError):
        return (
            f"there is no `{error.filename}`, where the model's dictionaries should be: name the "
            "folder of the prepared data with --data."
        )
    if str(error).startswith(_BAD_DICTIONARY):
        reason = " ".join(str(error).split())
        return (
            f"a dictionary (dict.*.txt) of the model's data folder cannot be read ({reason}): copy "
            "it again, or name another folder with --data."
        )
    if "loading state_dict" not in str(error):
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        return (
            f"the settings in `{path}` make no model ({reason}): it was written by another program "
            "or version, or is damaged."
        )
    changed = ", ".join(f"`{key}`" for key in overrides if key not in _SAME_WEIGHTS)
    if not changed and _only_rows_differ(str(error)):
        return (
            f"the model in `{path}` does not fit the dictionaries of its data folder: "
            "give --data a folder that was prepared with the dictionaries of the training data."
        )
    if not changed:
        return (
            f"the weights in `{path}` are not those of its settings: it was written by another "
            "program or version, or is damaged."
        )
    return (
        f"`{path}` has other weights than the model that the overrides ({changed}) make of it: "
        "override only what changes no weights, like the number of steps."
    )


def _only_rows_differ(said: str) -> bool:
    """Whether parameters differ in nothing but rows, as those with a row for each word do."""
    shapes = _MISMATCH.findall(said)
    return (
        bool(shapes)
        and "key(s) in state_dict" not in said
        and all(theirs == ours for theirs, ours in shapes)
    )


def load_split(task: tasks.FairseqTask, split: str, max_sentences: int | None) -> range:
    """Load a split of the task's data folder and return the numbers of its first pairs.

    Args:
        task: a task with a data folder.
        split: `train`, `valid`, `test`, ...
        max_sentences: greatest number of pairs; None: all.

    Raises:
        InputError: if there are none, or no such split.
    """
    try:
        task.load_dataset(split)
    except FileNotFoundError as error:
        raise InputError(
            f"`{task.cfg.data}` has no split `{split}`: check --gen-subset."
        ) from error
    size = len(task.dataset(split))
    check(size > 0, "--data", "a folder whose split has sentence pairs", "empty")
    if max_sentences is not None:
        size = min(size, max_sentences)
        check(size > 0, "--max-sentences", "at least 1", max_sentences)
    return range(size)


def batches(
    task: tasks.FairseqTask,
    split: str,
    max_sentences: int | None = None,
    max_tokens: int = 4096,
) -> Iterator[dict[str, Any]]:
    """Batches as fairseq's commands make them: sentence pairs of similar lengths, padded.

    Args:
        task: with its dictionaries.
        split: name of the split.
        max_sentences: only the first ones, at most this many; None: all.
        max_tokens: greatest number of source or target tokens in a batch, padding included.
    """
    numbers = load_split(task, split, max_sentences)
    yield from batches_of(task.dataset(split), numbers, max_tokens)


def batches_of(
    dataset: FairseqDataset, numbers: Iterable[int], max_tokens: int, max_sentences: int = 0
) -> Iterator[dict[str, Any]]:
    """Batches of sentences of similar lengths, padded, as few as the limits allow.

    Args:
        dataset: the dataset of the sentences.
        numbers: which of them.
        max_tokens: greatest number of source or target tokens in a batch, padding included; a
            sentence that is longer is a batch of its own.
        max_sentences: greatest number of sentences in a batch; 0: no limit.
    """
    for group in _similar_lengths(dataset, numbers, max_tokens, max_sentences):
        yield dataset.collater([dataset[number] for number in group])


def _similar_lengths(
    dataset: FairseqDataset, numbers: Iterable[int], max_tokens: int, max_sentences: int
) -> Iterator[list[int]]:
    group: list[int] = []
    for number in sorted(numbers, key=dataset.num_tokens):
        too_many = dataset.num_tokens(number) * (len(group) + 1) > max_tokens
        if group and (too_many or len(group) == max_sentences):
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def sentence_pairs(
    task: tasks.FairseqTask, split: str, max_sentences: int | None, *, spread: bool = False
) -> list[tuple[Tensor, Tensor]]:
    """Source and target tokens of the first pairs of a split; arguments as in `load_split`.

    With `spread` they are taken at equal intervals from the whole split.
    """
    numbers = load_split(task, split, max_sentences)
    dataset = task.dataset(split)
    if spread:
        numbers = range(0, len(dataset), max(1, len(dataset) // len(numbers)))[: len(numbers)]
    return [(dataset[i]["source"], dataset[i]["target"]) for i in numbers]
