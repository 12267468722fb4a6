"""Kinds of a plugin whose modules return something of another size than they must."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sut_fairseq.errors import InputError
from sut_fairseq.models import _kinds
from sut_fairseq.models.kinds import AXES, register_kind
from sut_fairseq.modules.attention.distributions.softmax import Softmax
from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, scaled_products
from sut_fairseq.modules.block import Block, BlockOutput
from sut_fairseq.modules.feedforward import FeedForward
from tests.models import batch, small_model


@pytest.fixture(autouse=True)
def same_kinds_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering adds kinds, and changes the helps of options."""
    monkeypatch.setattr("sut_fairseq.models.kinds.MODEL_DATACLASS_REGISTRY", {})
    for axis in AXES.values():
        monkeypatch.setattr(axis, "kinds", dict(axis.kinds))


class Narrow(FeedForward):
    """Answers with something else than states."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, states: Tensor, *others: Any) -> Any:
        return self.answer(states)


class FewerScores(Scores):
    """One score for all keys, which the mask would broadcast."""

    def forward(self, pairing: Pairing) -> Tensor:
        return scaled_products(pairing.queries, pairing.keys)[..., :1]


class FewerWeights(Softmax):
    """The weights of one head for all of them, which the values would broadcast."""

    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor | None) -> Tensor:
        return super().forward(scores, visible, positions)[:, :1]


class FewerTokens(Block):
    """Leaves out a token."""

    def forward(self, hidden: Tensor, *others: Any) -> BlockOutput:
        return BlockOutput(hidden[1:], {})


def refused(**options: Any) -> str:
    """What a call of a model with these kinds says."""
    with pytest.raises(InputError) as caught:
        small_model(**options)(**batch())
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        # A residual connection would broadcast this one.
        (lambda states: (states[:, :1], None), r"\(a tensor of the size \(\d+, 1\), None\)"),
        (lambda states: (states[:, 1:], "calls"), r"\(a tensor of the size \(\d+, 15\), a str\)"),
        (lambda states: states, r"a tensor of the size \(\d+, 16\)"),
        (lambda states: (None, None), r"\(None, None\)"),
        (lambda states: None, "None"),
    ],
)
def test_feed_forward(answer: Callable[[Tensor], Any], shown: str) -> None:
    register_kind("feed-forward", "narrow", "too narrow", lambda *given: Narrow(answer))
    pair = r"a pair of a tensor of the size \(\d+, 16\) and the calls of its routers or None"
    sentence = f"the feed-forward kind `narrow` must return {pair}, but returns {shown}."
    assert re.fullmatch(sentence, refused(feed_forward_kind="narrow"))


def test_scores() -> None:
    register_kind("attention-positions", "fewer", "fewer", lambda *given: FewerScores())
    size = r"a tensor of the size \((\d+, 2, \d+, 1), "
    sentence = (
        rf"the attention-positions kind `fewer` must return {size}\d+\), but returns {size}1\)."
    )
    found = re.fullmatch(sentence, refused(attention_positions="fewer"))
    assert found and found[1] == found[2]


def test_weights() -> None:
    register_kind("attention-distribution", "fewer", "fewer", lambda *given: FewerWeights())
    size = r"a tensor of the size \((\d+), {}, (\d+, 1, \d+)\)"
    returned = f"must return {size.format(2)}, but returns {size.format(1)}."
    sentence = f"the attention-distribution kind `fewer` {returned}"
    found = re.fullmatch(sentence, refused(attention_distribution="fewer"))
    assert found and found.groups()[:2] == found.groups()[2:]


def test_a_block() -> None:
    def build(config: Any, side: Any, *parts: Any) -> Block:
        return FewerTokens(*parts)

    register_kind("block", "fewer", "fewer", build)
    assert refused(encoder_block="fewer").startswith(
        "the block kind `fewer` must return a pair of a tensor"
    )


def test_a_copy_checks_too() -> None:
    def build(*given: Any) -> FeedForward:
        return Narrow(lambda states: (states[:, :1], None))

    register_kind("feed-forward", "narrow", "too narrow", build)
    model = copy.deepcopy(small_model(feed_forward_kind="narrow"))
    with pytest.raises(InputError, match="^the feed-forward kind `narrow` must return a pair"):
        model(**batch())


def test_right_sizes() -> None:
    """Also of our own kinds under another name, compiled."""
    dense = _kinds.FEED_FORWARD.kinds["dense"].build
    register_kind("feed-forward", "own", "dense", lambda *given: dense(*given))
    model = small_model(feed_forward_kind="own").eval()
    with torch.no_grad():
        expected = model(**batch())[0]
        block = model.encoder.stack.block
        block.feed_forward = torch.compile(block.feed_forward, backend="eager")
        torch.testing.assert_close(model(**batch())[0], expected)
