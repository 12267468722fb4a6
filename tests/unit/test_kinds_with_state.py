"""A block with a state that training updates: the biases of a router that balances its experts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sut_fairseq.errors import InputError
from sut_fairseq.models import _kinds
from sut_fairseq.models._axis import Kind
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router, Routing
from tests.models import batch, small_model


class CountingRouter(Router):
    """Counts its calls in training."""

    calls: Tensor

    def __init__(self, embed_dim: int, num_experts: int, top_k: int) -> None:
        super().__init__(embed_dim, num_experts, top_k)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, states: Tensor, call_weights: Tensor | None = None) -> Routing:
        if self.training:
            self.calls += 1
        return super().forward(states, call_weights)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(config, side, activation):  # type: ignore[no-untyped-def]
        router = CountingRouter(side.embed_dim, config.ffn_experts, config.ffn_top_k)
        sizes = dict(embed_dim=side.embed_dim, hidden_dim=side.hidden_dim)
        return MixtureFeedForward(router, activation=activation, **sizes)

    monkeypatch.setitem(_kinds.FEED_FORWARD.kinds, "counting", Kind("counts", build))


OPTIONS = dict(feed_forward_kind="counting", ffn_experts=3, ffn_top_k=2)


def test_each_step_of_training_updates_it_once() -> None:
    model = small_model(**OPTIONS).train()
    model(**batch())[0].sum().backward()
    stack = model.encoder.stack
    assert float(stack.block.feed_forward.router.calls) == stack.num_steps


def test_it_is_refused_where_steps_are_computed_twice() -> None:
    model = small_model(**OPTIONS, checkpoint_activations=True)
    model.eval()(**batch())
    sentence = "^`checkpoint_activations` must be off with a block that updates buffers of its own"
    with pytest.raises(InputError, match=sentence):
        model.train()(**batch())
