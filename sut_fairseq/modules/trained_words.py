"""Keeps dictionary words in a checkpoint, whose embeddings mean nothing without them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sut_fairseq.errors import InputError

NAME = "words"  # the attribute of a model


class OtherWordsError(InputError):
    """The dictionaries are not those that a model was trained with.

    Args:
        difference: what differs, as a clause; the advice that follows suits training and
            evaluation.

    Attributes:
        difference: the same.
    """

    def __init__(self, difference: str) -> None:
        super().__init__(
            f"{difference}: give the data folder of its training, or prepare this one with the "
            "dictionaries of that."
        )
        self.difference = difference


class TrainedWords(nn.Module):
    """Keeps the words of a dictionary in a `state_dict`, and compares them on loading.

    Otherwise a dictionary of the same size with other words would pass for the one of training. A
    word is kept as its CRC-32, enough to tell words apart. State dicts without words, such as those
    of earlier versions, load as they are.

    Args:
        words: of the data at hand, in the order of the dictionary.
        side: `source` or `target`, for the message.
    """

    def __init__(self, words: Sequence[str], side: str) -> None:
        super().__init__()
        self._words = words
        self._side = side

    def get_extra_state(self) -> Tensor:
        """CRC-32 of each word, `(num_words,)`.

        In 64 bits, which tools that average checkpoints by sums and integer division preserve.
        """
        return torch.tensor([zlib.crc32(word.encode(errors="replace")) for word in self._words])

    def set_extra_state(self, state: Tensor) -> None:
        """Compare the words of a state dict with ours.

        Raises:
            OtherWordsError: if their number or any word differs.
        """
        ours = self.get_extra_state()
        if state.shape != ours.shape:
            how = f"there are {len(ours):,}, not {state.numel():,}"
        else:
            differing = (state.cpu() != ours).nonzero().flatten().tolist()
            if not differing:
                return
            first = differing[0]
            how = f"{len(differing):,} of {len(ours):,}, the first is `{self._words[first]}`"
        raise OtherWordsError(
            f"the {self._side} words of the data are others than those that the model was trained "
            f"with ({how})"
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *more: Any, **options: Any
    ) -> None:
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *more, **options)


def keep_words(model: nn.Module, source: Sequence[str], target: Sequence[str]) -> None:
    """Have the checkpoints of a model keep its words, unless they do already.

    Args:
        model: it gets an attribute `words`, without parameters.
        source, target: the words of both dictionaries in their order.
    """
    if not hasattr(model, NAME):
        sides = {"source": source, "target": target}
        kept = {side: TrainedWords(words, side) for side, words in sides.items()}
        setattr(model, NAME, nn.ModuleDict(kept))


def split_words(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Separate the parameters of a state dict from the words that it keeps."""
    entry = re.compile(rf"{NAME}\.\w+\._extra_state")
    words = {key: state[key] for key in state if entry.fullmatch(key)}
    return {key: state[key] for key in state if key not in words}, words
