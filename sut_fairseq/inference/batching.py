"""Lines in batches, as a model reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from fairseq import utils

from sut_fairseq.analysis import trained
from sut_fairseq.inference.results import Search, Translation


def encoded_batches(
    task: Any, results: Sequence[Translation], search: Search, device: torch.device
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Batches of lines of similar lengths, on the device, with the numbers of the lines.

    Args:
        task: fairseq's task.
        results: the lines; those without source tokens are left out.
        search: its limits of a batch, and of the answers' lengths.
        device: where the model is.
    """
    tokens = {
        number: result.source_tokens
        for number, result in enumerate(results)
        if result.source_tokens is not None
    }
    numbers = list(tokens)
    lengths = [len(encoded) for encoded in tokens.values()]
    dataset = task.build_dataset_for_inference(list(tokens.values()), lengths)
    for members in _limited_alike(lengths, search):
        for batch in trained.batches_of(dataset, members, search.max_tokens, search.batch_size):
            batch = utils.apply_to_sample(lambda tensor: tensor.to(device), batch)
            yield [numbers[index] for index in batch["id"].tolist()], batch


def _limited_alike(lengths: Sequence[int], search: Search) -> Iterable[Sequence[int]]:
    """Numbers of the sources that may share a batch, by the sources' lengths.

    fairseq limits all answers of a batch by the width of their batch, as if each source had as many
    tokens as the longest.
    """
    if not search.max_len_a:
        return [range(len(lengths))]
    alike: dict[int, list[int]] = defaultdict(list)
    for number, length in enumerate(lengths):
        alike[length].append(number)
    return alike.values()
