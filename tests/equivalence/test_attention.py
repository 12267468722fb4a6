"""Dense and mixture attention and their position scores against plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sut_fairseq.errors import InputError
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.softmax import softmax
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.attention.positions.buckets import RelativeBuckets
from sut_fairseq.modules.attention.retrieve import EveryValue
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import route_statistics
from tests import reference_losses, references
from tests.builders import EMBED_DIM, HEAD_DIM, SOURCE_DIM, build_attention, memory_of
from tests.combinations import every_pair
from tests.comparison import assert_agree, normal, randomise
from tests.references import Options

LENGTH = 4
RIGHT = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]]).bool()
LEFT = RIGHT.flip(1)
PADDING = {"right": RIGHT, "left": LEFT}
KINDS = [
    *((kind, "softmax") for kind in ("none", "window", "buckets")),
    *((kind, "softmax") for kind in ("transformer-xl", "absolute-relative", "direction")),
    *((kind, "geometric") for kind in ("none", "window", "direction", "transformer-xl")),
    *((kind, "others") for kind in ("none", "window")),
]


def by_loops(
    weights: references.Weights,
    options: Options,
    states: Tensor,
    active: Tensor,
    sources: Tensor,
    source_padding: Tensor,
    offset: int = 0,
) -> tuple[Tensor, list[references.Call]]:
    """The active tokens' results in row-major order, and their router calls."""
    results, calls = [], []
    for sentence, column in active.nonzero().tolist():
        # A sentence counts from its first token.
        first = int(source_padding[sentence].int().argmin())
        position = column + offset - first
        visible = {
            other - first: sources[sentence, other]
            for other in range(sources.shape[1])
            if not source_padding[sentence, other]
            and (other - first <= position or not options.causal)
        }
        state = states[sentence, column]
        result, call = references.attention(weights, options, state, position, visible)
        results.append(result)
        calls += [] if call is None else [call]
    return torch.stack(results), calls


def assert_agrees(
    layer: nn.Module,
    options: Options,
    states: Tensor,
    active: Tensor,
    sources: Tensor,
    source_padding: Tensor,
    without_gradient: tuple[str, ...] = (),
) -> None:
    tokens = ActiveTokens.from_mask(active)
    memory = memory_of(layer, sources, source_padding)
    result, routed = layer(tokens.take(states), tokens, memory)
    weights = dict(layer.named_parameters())
    expected, calls = by_loops(weights, options, states, active, sources, source_padding)
    ours, theirs = {"result": result}, {"result": expected}
    if calls:
        ours["partition"] = route_statistics([routed]).squared_log_partition
        theirs["partition"] = reference_losses.router_z(calls) * len(calls)
    else:
        assert routed is None
    variables = {**weights, "states": states, "sources": sources}
    assert_agree(ours, theirs, variables, without_gradient=without_gradient)


@every_pair(
    experts={"dense": (1, 1), "mixture": (3, 2)},
    kind={" ".join(kind): kind for kind in KINDS},
    causal=[False, True],
    side=["left", "right"],
)
def test_self_attention(
    experts: tuple[int, int], kind: tuple[str, str], causal: bool, side: str
) -> None:
    (num_experts, top_k), (positions, distribution) = experts, kind
    options = Options(
        attention_top_k=top_k,
        positions=positions,
        distribution=distribution,
        causal=causal,
        max_distance=3,
    )
    layer = randomise(build_attention(options, num_experts).double())
    padding = PADDING[side]
    active = ~padding
    active[0, 1] = False  # a halted token: it asks nothing, but is still attended to
    # Queries and keys come from different states once tokens halt.
    states, sources = normal(3, LENGTH, EMBED_DIM), normal(3, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, active, sources, padding)


@every_pair(
    num_retrievals=[1, 3],
    own=[False, True],
    kind={" ".join(kind): kind for kind in KINDS},
    causal=[False, True],
)
def test_compositional(num_retrievals: int, own: bool, kind: tuple[str, str], causal: bool) -> None:
    positions, distribution = kind
    options = Options(
        num_retrievals=num_retrievals,
        own_values=own,
        positions=positions,
        distribution=distribution,
        causal=causal,
        max_distance=3,
    )
    layer = randomise(build_attention(options, 1, value_dim=2).double())
    states, sources = normal(3, LENGTH, EMBED_DIM), normal(3, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, ~LEFT, sources, LEFT)


@pytest.mark.parametrize("num_retrievals", [None, 1, 2])
def test_biases(num_retrievals: int | None) -> None:
    """Geometric weights: in softmax the bias of the keys adds the same to all scores of a query."""
    options = Options(num_heads=3, num_retrievals=num_retrievals, distribution="geometric")
    layer = build_attention(options, 1, value_dim=2, score_bias=True, bias=True).double()
    biases = {name for name, _ in randomise(layer).named_parameters() if name.endswith("bias")}
    expected = {f"{part}.bias" for part in ("query", "key", "value", "output")}
    assert biases == expected | ({"value_scores.query.bias"} if num_retrievals == 2 else set())
    states, sources = normal(3, LENGTH, EMBED_DIM), normal(3, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, ~LEFT, sources, LEFT)


def test_a_bias_of_retrieval_queries_alone() -> None:
    """A search's preference, whatever the state."""
    options = Options(num_heads=3, num_retrievals=2)
    layer = build_attention(options, 1, score_bias=True).double()
    biases = [name for name, _ in randomise(layer).named_parameters() if name.endswith("bias")]
    assert biases == ["value_scores.query.bias"]
    states, sources = normal(3, LENGTH, EMBED_DIM), normal(3, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, ~LEFT, sources, LEFT)


def test_compositional_cross_attention() -> None:
    """Its own length, size and padding on the side of the source."""
    options = Options(num_heads=3, num_retrievals=2)
    layer = randomise(build_attention(options, 1, source_dim=SOURCE_DIM).double())
    states, sources = normal(3, 3, EMBED_DIM), normal(3, LENGTH, SOURCE_DIM, seed=1)
    assert_agrees(layer, options, states, ~RIGHT[:, :3], sources, LEFT)


def test_linear_value_scores() -> None:
    options = Options(num_heads=3, num_retrievals=2)
    layer = randomise(build_attention(options, 1, value_scores="linear").double())
    states, active = normal(3, LENGTH, EMBED_DIM), ~LEFT
    tokens = ActiveTokens.from_mask(active)
    result, _ = layer(tokens.take(states), tokens, memory_of(layer, states, LEFT))
    weights = dict(layer.named_parameters())
    expected, _ = by_loops(weights, options, states, active, states, LEFT)
    # What the query adds is the same for all retrievals: its gradient is 0 but for rounding.
    del weights["value_scores.query.weight"]
    assert_agree({"result": result}, {"result": expected}, {**weights, "states": states})


def outputs_and_variables(
    layers: Sequence[nn.Module],
) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """What layers with the same parameters make of the same states."""
    states = normal(2, LENGTH, EMBED_DIM)
    tokens = ActiveTokens.from_mask(~LEFT[:2])
    outputs = [
        {"result": layer(tokens.take(states), tokens, memory_of(layer, states, LEFT[:2]))[0]}
        for layer in layers
    ]
    return outputs, {**dict(layers[0].named_parameters()), "states": states}


class Identity(nn.Module):
    """Scores by which search i takes retrieval i."""

    def forward(self, states: Tensor, retrieved: Tensor) -> Tensor:
        return torch.eye(retrieved.shape[1]).to(retrieved).expand(retrieved.shape[:3])


def test_searches_that_each_choose_their_own_value_are_heads() -> None:
    """S = R and identity scores: multi-head attention, gradients included."""
    options = Options(num_heads=3, positions="window")
    dense = randomise(build_attention(options, 1).double())
    searches = build_attention(replace(options, num_retrievals=3), 1).double()
    for name in ("query", "key", "value", "output", "core"):
        setattr(searches, name, getattr(dense, name))
    searches.core = AttentionCore(positions=dense.core.positions, retrieve=EveryValue())
    searches.value_scores = Identity()
    (theirs, ours), variables = outputs_and_variables((dense, searches))
    assert_agree(ours, theirs, variables)


@pytest.mark.parametrize("positions", ["none", "window"], ids=["fused", "not fused"])
def test_searches_with_one_value_of_their_own_are_heads(positions: str) -> None:
    """R = 1 and own values: multi-head attention, whose very parameters it has."""
    options = Options(num_heads=3, positions=positions)
    dense = randomise(build_attention(options, 1).double())
    searches = build_attention(replace(options, num_retrievals=1, own_values=True), 1).double()
    assert searches.state_dict().keys() == dense.state_dict().keys()
    for name in ("query", "key", "value", "output", "core"):
        setattr(searches, name, getattr(dense, name))
    (theirs, ours), variables = outputs_and_variables((dense, searches))
    assert_agree(ours, theirs, variables)


def test_own_values_that_are_equal_are_shared_ones() -> None:
    options = Options(num_heads=3, num_retrievals=2, positions="window")
    shared = randomise(build_attention(options, 1).double())
    own = build_attention(replace(options, own_values=True), 1).double()
    repeated = shared.value.weight.detach().repeat(3, 1)
    own.load_state_dict({**shared.state_dict(), "value.weight": repeated})
    (theirs, ours), _ = outputs_and_variables((shared, own))
    torch.testing.assert_close(ours["result"], theirs["result"], rtol=1e-12, atol=1e-12)


def test_one_shared_value_is_fused_attention_with_copies_of_it() -> None:
    """R = 1: what torch's fused attention computes is what the weights and the value give."""
    options = Options(num_heads=3, num_retrievals=1)
    layer = randomise(build_attention(options, 1).double())
    states = normal(2, LENGTH, EMBED_DIM)
    tokens = ActiveTokens.from_mask(~LEFT[:2])
    inputs = tokens.take(states), tokens, memory_of(layer, states, LEFT[:2])
    fused, _ = layer(*inputs)
    seen: list[str] = []
    looked_at, _ = layer(*inputs, look=lambda name, values: seen.append(name))
    assert seen == ["weights"], "with one retrieval there are no scores to choose it by"
    torch.testing.assert_close(fused, looked_at, rtol=1e-12, atol=1e-12)


class Largest(TorchDispatchMode):
    """Notes how many elements the largest tensor has that anything computes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            self.numel = max(self.numel, one.numel() if isinstance(one, Tensor) else 0)
        return result


@pytest.mark.parametrize("own", [False, True])
def test_weights_are_held_for_each_search_only(own: bool) -> None:
    """S N^2 elements, forward and backward, not S R N^2."""
    length, searches = 32, 2
    options = Options(num_heads=searches, num_retrievals=8, own_values=own, positions="window")
    layer = randomise(build_attention(options, 1, value_dim=2).double())
    states = normal(1, length, EMBED_DIM)
    tokens = ActiveTokens.from_mask(torch.ones(1, length, dtype=torch.bool))
    with Largest() as largest:
        memory = memory_of(layer, states, None)
        layer(tokens.take(states), tokens, memory)[0].sum().backward()
    assert largest.numel == searches * length**2


@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("num_experts, top_k", [(2, 1), (4, 3), (3, 3)])
def test_experts_and_heads(num_experts: int, top_k: int, num_heads: int) -> None:
    """One head per expert is the mixture of attention heads, MoA."""
    options = Options(num_heads, attention_top_k=top_k, positions="window")
    layer = randomise(build_attention(options, num_experts).double())
    states, sources = normal(2, LENGTH, EMBED_DIM), normal(2, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, ~RIGHT[:2], sources, RIGHT[:2])


@pytest.mark.parametrize("num_experts, top_k", [(1, 1), (3, 2)])
def test_cross_attention(num_experts: int, top_k: int) -> None:
    """Its own length, size and padding on the side of the source."""
    options = Options(attention_top_k=top_k)
    layer = randomise(build_attention(options, num_experts, source_dim=SOURCE_DIM).double())
    states, sources = normal(3, 3, EMBED_DIM), normal(3, LENGTH, SOURCE_DIM, seed=1)
    assert_agrees(layer, options, states, ~RIGHT[:, :3], sources, LEFT)


@pytest.mark.parametrize("positions, distribution", KINDS)
@pytest.mark.parametrize("num_new", [1, 2])
def test_new_positions_after_cached_ones(num_new: int, positions: str, distribution: str) -> None:
    options = Options(
        attention_top_k=2,
        positions=positions,
        distribution=distribution,
        causal=True,
        max_distance=3,
    )
    layer = randomise(build_attention(options, 3).double())
    sources = normal(2, 5, EMBED_DIM)
    states = normal(2, num_new, EMBED_DIM, seed=1)
    active = torch.ones(2, num_new, dtype=torch.bool)
    tokens = ActiveTokens.from_mask(active)
    keys, values, *_ = memory_of(layer, sources, None)
    memory = Memory(keys, values, query_offset=5 - num_new)
    result, _ = layer(tokens.take(states), tokens, memory)
    weights = dict(layer.named_parameters())
    nothing = torch.zeros(2, 5, dtype=torch.bool)
    expected, _ = by_loops(weights, options, states, active, sources, nothing, 5 - num_new)
    variables = {**weights, "states": states, "sources": sources}
    assert_agree({"result": result}, {"result": expected}, variables)


@pytest.mark.parametrize("window", [0, 1, 2, 3, 9])
def test_window(window: int) -> None:
    options = Options(positions="window")
    layer = randomise(build_attention(options, 1, window=window).double())
    states, sources = normal(2, LENGTH, EMBED_DIM), normal(2, LENGTH, EMBED_DIM, seed=1)
    assert_agrees(layer, options, states, ~LEFT[:2], sources, LEFT[:2])


def test_a_wide_window_clips_nothing() -> None:
    """Offsets that cannot occur change nothing: the embeddings of -3 .. 3 are all that is read."""
    narrow, wide = (
        build_attention(Options(positions="window"), 1, window=window).double()
        for window in (LENGTH - 1, LENGTH + 20)
    )
    weights = dict(randomise(wide).named_parameters())
    middle = weights["core.positions.embedding"][:, 21 : 21 + 2 * LENGTH - 1]
    narrow.load_state_dict({**weights, "core.positions.embedding": middle})
    states = normal(2, LENGTH, EMBED_DIM)
    tokens = ActiveTokens.from_mask(~LEFT[:2])
    results = [
        layer(tokens.take(states), tokens, memory_of(layer, states, LEFT[:2]))[0]
        for layer in (narrow, wide)
    ]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "num_buckets, max_distance", [(32, 128), (4, 3), (6, 50), (10, 9), (8, 64), (32, 16)]
)
def test_buckets(num_buckets: int, max_distance: int, causal: bool) -> None:
    if causal and max_distance <= num_buckets // 2:
        sentence = "must be greater than 16, .* with `attention_buckets` 32, but is 16 instead"
        with pytest.raises(InputError, match=sentence):
            RelativeBuckets(1, num_buckets=num_buckets, max_distance=max_distance, causal=True)
        return
    positions = RelativeBuckets(
        1, num_buckets=num_buckets, max_distance=max_distance, causal=causal
    )
    offsets = range(-2 * max_distance, 2 * max_distance + 1)
    expected = [references.bucket(o, num_buckets, max_distance, causal) for o in offsets]
    assert positions.bucket(torch.tensor(list(offsets))).tolist() == expected
    assert len(set(expected)) == num_buckets if causal else len(set(expected)) >= num_buckets - 1


def test_too_few_buckets() -> None:
    """With 3, one direction would have a single bucket, and none for an offset of its own."""
    with pytest.raises(InputError, match="`attention_buckets` must be at least 4, but is 3 inste"):
        RelativeBuckets(1, num_buckets=3, max_distance=9, causal=False)
    assert RelativeBuckets(1, num_buckets=4, max_distance=9, causal=False).per_direction == 2


def test_known_buckets() -> None:
    """The values that Raffel et al.'s own code gives for 32 buckets up to distance 128."""
    known = {0: 0, -1: 1, -7: 7, -8: 8, -12: 9, -16: 10, -127: 15, -128: 15, 1: 17, 8: 24, 500: 31}
    offsets = torch.tensor(list(known))
    both_ways = RelativeBuckets(1, num_buckets=32, max_distance=128, causal=False)
    assert both_ways.bucket(offsets).tolist() == list(known.values())
    causal = RelativeBuckets(1, num_buckets=32, max_distance=128, causal=True)
    assert causal.bucket(torch.tensor([3, 0, -15, -16, -32, -113, -999])).tolist() == [
        *(0, 0, 15, 16),
        *(21, 31, 31),
    ]


def test_all_experts_chosen_is_the_softmax_mixture() -> None:
    """top_k = num_experts: every expert's dense attention, weighed with the full softmax."""
    options = Options(attention_top_k=3, positions="window", causal=True)
    layer = randomise(build_attention(options, 3).double())
    dense = build_attention(replace(options, attention_top_k=1), 1).double()
    states = normal(2, LENGTH, EMBED_DIM)
    tokens = ActiveTokens.from_mask(~RIGHT[:2])
    memory = memory_of(layer, states, RIGHT[:2])
    inputs = tokens.take(states)
    gates = layer.router.output(torch.tanh(layer.router.input(inputs))).softmax(-1)
    expected = 0
    for expert in range(3):
        dense.query.weight.data = layer.query.weight[expert].T
        dense.output.weight.data = layer.output.weight[expert].T
        dense.core.positions.embedding.data = layer.core.positions.embedding.data
        expected = expected + gates[:, expert : expert + 1] * dense(inputs, tokens, memory)[0]
    torch.testing.assert_close(layer(inputs, tokens, memory)[0], expected, rtol=1e-10, atol=1e-10)


def test_a_mixture_of_one_is_the_dense_layer() -> None:
    options = Options(positions="buckets")
    dense = randomise(build_attention(options, 1).double())
    mixture = MixtureAttention(
        AttentionCore(positions=dense.core.positions),
        Router(EMBED_DIM, 1, 1),
        embed_dim=EMBED_DIM,
        source_dim=EMBED_DIM,
        num_heads=2,
        head_dim=HEAD_DIM,
    ).double()
    for name in ("query", "output"):
        getattr(mixture, name).weight.data[0] = getattr(dense, name).weight.data.T
    mixture.key, mixture.value = dense.key, dense.value
    states = normal(2, LENGTH, EMBED_DIM)
    tokens = ActiveTokens.from_mask(~LEFT[:2])
    outputs = [
        layer(tokens.take(states), tokens, memory_of(layer, states, LEFT[:2]))[0]
        for layer in (mixture, dense)
    ]
    shared = {"states": states, "key": dense.key.weight, "value": dense.value.weight}
    assert_agree({"result": outputs[0]}, {"result": outputs[1]}, shared)


def test_scores_are_scaled_and_weights_sum_to_one() -> None:
    """Known values: one head of size 4, score q.k / 2, softmax over two keys."""
    layer = build_attention(Options(num_heads=1), 1)
    head_dim = layer.head_dim
    states = normal(2, EMBED_DIM).float()
    keys, values = layer.keys_values(states)
    query = layer.query(states[:1])
    tokens = ActiveTokens.from_mask(torch.ones(1, 1, dtype=torch.bool))
    memory = Memory(keys.view(1, 1, 2, head_dim), values.view(1, 1, 2, head_dim))
    queries = query.view(1, 1, 1, head_dim)
    context = layer.core(queries, tokens, memory, states[:1]).flatten()
    scores = layer.key(states) @ query[0] / math.sqrt(head_dim)
    first = 1 / (1 + torch.exp(scores[1] - scores[0]))
    expected = first * layer.value(states[0]) + (1 - first) * layer.value(states[1])
    torch.testing.assert_close(context, expected)


def test_an_empty_source_stays_finite() -> None:
    layer = randomise(build_attention(Options(), 1, source_dim=SOURCE_DIM).double())
    states = normal(2, 2, EMBED_DIM)
    tokens = ActiveTokens.from_mask(torch.ones(2, 2, dtype=torch.bool))
    padding = torch.tensor([[False, False], [True, True]])
    memory = memory_of(layer, normal(2, 2, SOURCE_DIM), padding)
    result, _ = layer(tokens.take(states), tokens, memory)
    assert result.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("score", [-100.0, 100.0])
def test_hidden_keys_in_any_precision(score: float, dtype: torch.dtype) -> None:
    """They have a weight of exactly 0, and a row without any other key stays finite."""
    visible = torch.tensor([[[True, False, True], [False, False, False]]])
    scores = torch.full((1, 1, 2, 1, 3), score, dtype=dtype)
    weights = softmax(scores, visible)[0, 0, :, 0]
    assert weights[0].tolist() == [0.5, 0.0, 0.5]
    assert weights[1].isfinite().all() and float(weights[1].sum()) == pytest.approx(1, abs=1e-2)
