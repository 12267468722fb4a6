"""Kinds of a plugin whose modules return something of another size than they must."""

from __future__ import annotations

import copy
import pickle
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
from sut_fairseq.modules.block import Block, BlockOutput, TransformerBlock
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.tokens import ActiveTokens
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


class OwnBlock(Block):
    """Answers with something else than its output."""

    def __init__(self, answer: Callable[[Tensor], Any], *parts: Any) -> None:
        super().__init__(*parts)
        self.answer = answer

    def forward(self, hidden: Tensor, *others: Any) -> Any:
        return self.answer(hidden)


class Named(TransformerBlock):
    """Calls its feed-forward layer with named arguments."""

    def forward(self, hidden: Tensor, tokens: ActiveTokens, *others: Any) -> BlockOutput:
        return BlockOutput(self.feed_forward(active=tokens.active, states=hidden)[0], {})


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
        (lambda states: (states, "calls"), r"\(a tensor of the size \(\d+, 16\), a str\)"),
        (lambda states: (states, None, None), r"\(a tensor of the size \(\d+, 16\), None, None\)"),
        (lambda states: states, r"a tensor of the size \(\d+, 16\)"),
        (lambda states: (None, None), r"\(None, None\)"),
        (lambda states: None, "None"),
    ],
)
def test_feed_forward(answer: Callable[[Tensor], Any], shown: str) -> None:
    register_kind("feed-forward", "narrow", "too narrow", lambda *given: Narrow(answer))
    pair = r"a pair of a tensor of the size \(\d+, 16\) and its router's `RouterCalls` or None"
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


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (lambda hidden: BlockOutput(hidden[1:], {}), "a `BlockOutput` of a tensor of the size"),
        (lambda hidden: BlockOutput(hidden, None), "a `BlockOutput` of a tensor of the size"),  # type: ignore[arg-type]
        (lambda hidden: (hidden, {}), "(a tensor of the size"),
    ],
)
def test_a_block(answer: Callable[[Tensor], Any], shown: str) -> None:
    def build(config: Any, side: Any, *parts: Any) -> Block:
        return OwnBlock(answer, *parts)

    register_kind("block", "fewer", "fewer", build)
    said = refused(encoder_block="fewer")
    assert said.startswith("the block kind `fewer` must return a `BlockOutput` of a tensor of the")
    assert f", but returns {shown}" in said


def test_named_arguments() -> None:
    """Of a call, in any order."""
    dense = _kinds.FEED_FORWARD.kinds["dense"].build
    register_kind("feed-forward", "own", "dense", lambda *given: dense(*given))
    register_kind("block", "named", "named", build_named)
    small_model(feed_forward_kind="own", encoder_block="named")(**batch())


def build_named(config: Any, side: Any, own: Any, cross: Any, feed_forward: Any) -> Block:
    return Named(self_attention=own, feed_forward=feed_forward, embed_dim=side.embed_dim)


def narrow(*given: Any) -> FeedForward:
    return Narrow(one_number)


def one_number(states: Tensor) -> Any:
    return states[:, :1], None


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_a_copy_checks_too(copied: Callable[[Any], Any]) -> None:
    register_kind("feed-forward", "narrow", "too narrow", narrow)
    block = copied(small_model(feed_forward_kind="narrow").encoder.stack.block)
    with pytest.raises(InputError, match="^the feed-forward kind `narrow` must return a pair"):
        block.feed_forward(torch.zeros(3, 16))


def test_a_shared_module_is_checked_once() -> None:
    layer = Narrow(one_number)
    register_kind("feed-forward", "narrow", "too narrow", lambda *given: layer)
    small_model(feed_forward_kind="narrow")
    assert len(layer._forward_hooks) == 1


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
