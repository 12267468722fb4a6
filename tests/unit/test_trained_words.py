"""Checkpoints keep the words of their dictionaries, and say nothing where there are none."""

from __future__ import annotations

import zlib

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from sut_fairseq.analysis import untrained
from sut_fairseq.errors import InputError
from sut_fairseq.models._classifier import Classifier
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel
from sut_fairseq.modules.trained_words import TrainedWords, keep_words, split_words
from tests.models import small_model


def keeping(words: str) -> TrainedWords:
    return TrainedWords(words.split(), "source")


def test_the_same_words_load() -> None:
    ours = keeping("a b c")
    ours.load_state_dict(keeping("a b c").state_dict())
    kept = ours.state_dict()["_extra_state"]
    assert kept.dtype == torch.int64 and kept.tolist() == [
        zlib.crc32(c) for c in (b"a", b"b", b"c")
    ]


@pytest.mark.parametrize(
    ("theirs", "how"),
    [
        ("a x c", r"\(1 of 3, the first is `b`\)"),
        ("b a c", r"\(2 of 3, the first is `a`\)"),
        ("a b", r"\(there are 3, not 2\)"),
        ("a b c d", r"\(there are 3, not 4\)"),
    ],
)
def test_other_words_do_not(theirs: str, how: str) -> None:
    with pytest.raises(InputError, match=f"the source words of the data are others .*{how}"):
        keeping("a b c").load_state_dict(keeping(theirs).state_dict())


def test_earlier_state_dicts_load() -> None:
    """Strictly, and the caller's dictionary stays as it was."""
    model = small_model()
    old, words = split_words(model.state_dict())
    assert set(words) == {"words.source._extra_state", "words.target._extra_state"}
    names = list(old)
    model.load_state_dict(old, strict=True)
    assert list(old) == names


def test_words_live_in_any_precision_and_add_nothing() -> None:
    model = small_model()
    before = sum(parameter.numel() for parameter in model.parameters())
    state = model.half().state_dict()
    model.load_state_dict({key: tensor.clone() for key, tensor in state.items()})
    keep_words(model, ["other"], ["words"])
    assert model.words["source"].get_extra_state().numel() == 13, "they were there already"
    assert before == sum(parameter.numel() for parameter in model.parameters())
    assert not list(model.words.buffers())


def test_an_unencodable_word_is_no_error() -> None:
    keeping("a \ud800").load_state_dict(keeping("a \ud800").state_dict())


def test_sums_and_whole_quotients_keep_them() -> None:
    """As fairseq's own script averages checkpoints."""
    kept = keeping("a b c").state_dict()["_extra_state"]
    total = kept.clone()
    for _ in range(99):
        total += kept
    assert torch.equal(total // 100, kept)


def test_parameters_of_that_name_are_no_words() -> None:
    """Of somebody's model, which may have a part called `words`."""
    kept = keeping("a b").state_dict()["_extra_state"]
    state = {"words.source._extra_state": kept, "words.weight": torch.ones(2)}
    state |= {"words.source.bias": torch.ones(1), "decoder.words.target._extra_state": kept}
    parameters, words = split_words(state)
    assert list(words) == ["words.source._extra_state"]
    assert {**words, **parameters} == state


def our_models() -> dict[str, str]:
    """One architecture of each model of this package that reads words, by the name of its class."""
    found: dict[str, str] = {}
    for arch, model in ARCH_MODEL_REGISTRY.items():
        ours = model.__module__.startswith("sut_fairseq")
        if ours and model is not ContextualRetrievalModel:
            found.setdefault(model.__name__, arch)
    return found


@pytest.mark.parametrize("arch", our_models().values())
def test_every_model_keeps_its_words(arch: str) -> None:
    """Or is a classifier, whose task sees to it."""
    model, _ = untrained.build(arch, 10)
    names = {"words.source._extra_state", "words.target._extra_state"}
    assert isinstance(model, Classifier) or names <= set(model.state_dict())
