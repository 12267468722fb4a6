"""Trained models from fairseq's checkpoints, and the sentence pairs of a binarised folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairseq import checkpoint_utils, tasks
from torch import Tensor

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq.modules.errors import InputError, check


def load(path: str, overrides: Mapping[str, Any]) -> tuple[Any, tasks.FairseqTask]:
    """A trained model and its task.

    Args:
        path: a checkpoint whose content is known to be safe to load.
        overrides: values that replace those of training: `data`, `alpha_threshold`, ...

    Raises:
        InputError: if its dictionaries are missing or of other sizes than in training.
    """
    try:
        found = checkpoint_utils.load_model_ensemble_and_task([path], dict(overrides))
    except FileNotFoundError as error:
        raise InputError(
            f"the model's dictionaries are not where they should be (`{error.filename}`): name the "
            "folder that holds them with --data."
        ) from error
    except RuntimeError as error:
        if "size mismatch" not in str(error):
            raise
        raise InputError(
            f"the model in `{path}` does not fit the dictionaries of its data folder: "
            "give --data a folder that was prepared with the dictionaries of the training data."
        ) from error
    ensemble, _, task = found
    return ensemble[0], task


def load_split(task: tasks.FairseqTask, split: str, max_sentences: int | None = None) -> range:
    """Load a split of the task's data folder; the numbers of its first pairs.

    Args:
        task: a task with a data folder.
        split: `train`, `valid`, `test`, ...
        max_sentences: how many pairs at most; None: all.

    Raises:
        InputError: if there are none.
        FileNotFoundError: if there is no such split.
    """
    task.load_dataset(split)
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
        max_sentences: only the first so many; None: all.
        max_tokens: greatest number of source or target tokens in a batch, padding included.
    """
    numbers = load_split(task, split, max_sentences)
    dataset = task.dataset(split)
    longest = 0
    group: list[Any] = []
    for number in sorted(numbers, key=dataset.num_tokens):
        longest = max(longest, dataset.num_tokens(number))
        if group and longest * (len(group) + 1) > max_tokens:
            yield dataset.collater(group)
            group, longest = [], dataset.num_tokens(number)
        group.append(dataset[number])
    yield dataset.collater(group)


def sentence_pairs(
    task: tasks.FairseqTask, split: str, max_sentences: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Source and target tokens of the first pairs of a split; arguments as in `load_split`."""
    numbers = load_split(task, split, max_sentences)
    dataset = task.dataset(split)
    return [(dataset[i]["source"], dataset[i]["target"]) for i in numbers]
