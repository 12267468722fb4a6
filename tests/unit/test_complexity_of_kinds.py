"""The MACs counter against formulas of kinds of attention, and of recurrent models."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sut_fairseq.analysis import untrained
from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.counting import PRODUCTS
from sut_fairseq.errors import InputError
from sut_fairseq.models import _kinds
from sut_fairseq.models._attenders import ATTENDERS
from sut_fairseq.models._axis import Kind
from sut_fairseq.modules.feedforward import FeedForward
from tests.models import small_model, small_recurrent


@pytest.mark.parametrize("scores", ["dot-product", "linear"])
@pytest.mark.parametrize("matrices", ["shared", "own"])
@pytest.mark.parametrize("retrievals", [1, 3])
def test_compositional_attention_meets_the_formula(
    retrievals: int, matrices: str, scores: str
) -> None:
    """Beside heads: R values, and the scores by which each of S searches chooses among them."""
    n, m, steps, d, head_dim, dim, searches = 5, 7, 4, 16, 8, 3, 2
    num_values = retrievals * (searches if matrices == "own" else 1)
    batch = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    options: dict[str, Any] = dict(attention_retrievals=retrievals, attention_retrieval_dim=dim)
    options |= dict(attention_value_matrices=matrices, attention_value_scores=scores)
    heads, composed = (
        count(small_model(attention_kind=kind, **options), [batch])
        for kind in ("multihead", "compositional")
    )
    chooses = retrievals > 1
    queries = steps * (n + 2 * m)  # of the encoder's and of the decoder's two attentions
    pairs = steps * (n * n + m * m + m * n)  # of queries and keys
    products = pairs * searches * (retrievals - 1) * head_dim
    products += chooses * queries * searches * retrievals * 2 * head_dim
    assert composed.by_kind[PRODUCTS] - heads.by_kind[PRODUCTS] == products
    values = d * head_dim * (num_values - searches) * (steps * (n + m) + steps * n)
    # Of a retrieval query with the keys' matrix; if linear, of w with both, with the latter once
    # for each of three attentions in a step.
    chosen = queries * searches * dim * (d + (head_dim if scores == "dot-product" else 1))
    chosen += 0 if scores == "dot-product" else 3 * steps * dim * head_dim
    assert composed.macs - heads.macs == values + chooses * chosen


@pytest.mark.parametrize("attend", ["after", "before"])
@pytest.mark.parametrize("attender", list(ATTENDERS))
def test_recurrent_models_meet_the_formula(attender: str, attend: str) -> None:
    n, m, e, d, w, vocabulary = 5, 7, 8, 12, 6, 11
    model = small_recurrent(attender=attender, attend=attend)
    pair = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    found = count(model, [pair])

    def gru(size: int, hidden: int) -> int:
        return 3 * hidden * (size + hidden + 2)

    # Keys are projected once; with "before" places are projected anew for each of m queries.
    keys = n * d * d
    offsets = n if attend == "before" else n + m - 1
    places = (m if attend == "before" else 1) * offsets * d * d
    location = m * (d * w + w + gru(w, w) + 3 * (w + 1) + w + 1)
    projections = {
        "additive": keys + m * d * d + m * n * d,
        "multiplicative": m * d * d,
        "scaled-dot": 0,
        "transformer": 0,
        "transformer-xl": keys + places + m * (d * d + d),
        "location": location,
        "mix": location + m * (d + 1),
    }[attender]
    searched = {"additive": 0, "location": 0, "transformer-xl": n + offsets}.get(attender, n)
    decoder = m * (gru(e + d, d) if attend == "before" else gru(e, d) + 2 * d * d + d)
    encoder = n * (gru(e, d) + e * d)
    assert found.by_part["encoder"] == encoder
    assert found.by_kind["attention projections"] == projections
    assert found.macs == encoder + decoder + projections + m * d * vocabulary
    assert found.macs_full - found.macs == m * d * (searched + n)


@pytest.mark.parametrize(
    ("positions", "source", "target"),
    [
        # Keys may stand 2 words away at most, on either side, in a decoder before a query only.
        ("window", 5, 3),
        # Offsets -4 to 4, in a decoder 0 to 6; every query may also choose absolute places.
        ("transformer-xl", 9, 7),
        ("absolute-relative", 9 + 5, 7 + 7),
    ],
)
def test_relative_positions_meet_the_formula(positions: str, source: int, target: int) -> None:
    """A product of each query with each offset, beside those with the keys."""
    n, m, steps, d = 5, 7, 4, 16
    pair = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    content, placed = (
        count(small_model(attention_positions=kind, attention_window=2), [pair])
        for kind in ("none", positions)
    )
    products = steps * d * (n * source + m * target)
    assert placed.by_kind[PRODUCTS] - content.by_kind[PRODUCTS] == products


@pytest.mark.parametrize("mixes", [False, True])
def test_a_gaze_that_moves_meets_the_formula(mixes: bool) -> None:
    """Instead of keys, or beside them, a weighter for each head."""
    n, m, steps, d, heads, head_dim, w = 5, 7, 4, 16, 2, 8, 6
    pair = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    kind = "mix" if mixes else "location"
    content, moving = (
        count(small_model(cross_attention=name, location_hidden_size=w), [pair])
        for name in ("content", kind)
    )
    gru = 3 * w * (w + w + 2)
    weighter = head_dim * w + w + gru + 3 * (w + 1) + w + 1 + mixes * (head_dim + 1)
    keys = 0 if mixes else steps * n * d * d
    assert moving.macs - content.macs == steps * m * heads * weighter - keys
    products = 0 if mixes else steps * m * n * d
    assert content.by_kind[PRODUCTS] - moving.by_kind[PRODUCTS] == products


@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
def test_lstm_readers_meet_the_formula(layers: int, both: bool) -> None:
    """Of the words between begin and end; every direction has a state of its own."""
    n, e, d, vocabulary = 5, 6, 8, 9
    flags = f"--encoder-layers {layers} --encoder-embed-dim {e} --encoder-hidden-size {d}".split()
    flags += ["--encoder-bidirectional"] if both else []
    model, task = untrained.build("ndr_ctl_lstm", vocabulary + 4, flags)
    batch = untrained.random_batch(model, task, src_len=n + 2, tgt_len=2)
    batch["src_tokens"][:, 0] = task.source_dictionary.bos()
    batch["src_tokens"][:, -1] = task.source_dictionary.eos()
    ways = 2 if both else 1
    widths = [e, *[ways * d] * (layers - 1)]
    recurrent = n * ways * sum(4 * d * (width + d + 2) for width in widths)
    found = count(model, [batch])
    assert found.by_kind["recurrent layers"] == recurrent
    assert found.macs == found.macs_full == recurrent + (ways * d + 1) * vocabulary


@pytest.mark.parametrize(
    "sharing", ["", "--share-decoder-input-output-embed", "--share-all-embeddings"]
)
def test_fairseqs_lstm_meets_the_formula(sharing: str) -> None:
    """With a matrix of embeddings for projection, too, which has no bias."""
    n, m, d, vocabulary = 5, 7, 8, 9
    e, bias = (d, 0) if sharing else (6, 1)
    flags = f"--encoder-embed-dim {e} --encoder-hidden-size {d} --encoder-layers 1".split()
    flags += f"--decoder-embed-dim {e} --decoder-hidden-size {d} --decoder-layers 1".split()
    flags += f"--decoder-out-embed-dim {d} --decoder-attention 1 {sharing}".split()
    model, task = untrained.build("lstm", vocabulary, flags)
    batch = untrained.random_batch(model, task, src_len=n, tgt_len=m)
    found = count(model, [batch])
    encoder = n * 4 * d * (e + d + 2)
    cell = 4 * d * (e + d + d + 2)  # the last context is an input, too
    attention = d * d + 2 * d * d
    assert found.by_part["encoder"] == encoder
    projection = m * (d + bias) * vocabulary
    assert found.by_part["projection"] == found.by_kind["output projection"] == projection
    assert found.by_kind["recurrent layers"] == encoder + m * cell
    assert not found.by_kind["other"]
    assert found.macs == encoder + m * (cell + attention) + projection
    assert found.macs_full - found.macs == m * 2 * n * d


def test_a_dnc_is_refused() -> None:
    model, task = untrained.build("ndr_ctl_dnc", 9)
    batch = untrained.random_batch(model, task, src_len=3, tgt_len=2)
    with pytest.raises(InputError, match="a DNC is not counted"):
        count(model, [batch])


class Matrices(FeedForward):
    """W h with a matrix that ptflops does not see, and a layer that it does."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.rand(embed_dim, embed_dim))
        self.layer = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, states: Tensor, *others: Any) -> tuple[Tensor, None]:
        return self.layer(states @ self.matrix), None


class CountedMatrices(Matrices):
    def macs(self, inputs: tuple[Tensor, ...], output: Any) -> int:
        return len(inputs[0]) * self.matrix.numel()


@pytest.mark.parametrize("kind", [Matrices, CountedMatrices])
def test_a_kind_of_a_plugin_says_what_it_multiplies(
    kind: type[Matrices], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its layers of torch are counted anyway; a warning names the rest, once."""
    built = Kind("of a plugin", lambda config, side, activation: kind(side.embed_dim))
    monkeypatch.setitem(_kinds.FEED_FORWARD.kinds, "matrices", built)
    model = small_model(feed_forward_kind="matrices")
    n, m = 5, 7
    pair = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    with caplog.at_level(logging.WARNING):
        counted = [count(model, [pair]).by_kind["feed-forward"] for _ in range(2)]
    stack = model.encoder.stack
    one = stack.num_steps * (n + m) * stack.block.feed_forward.matrix.numel()
    counts_itself = kind is CountedMatrices
    assert counted == [2 * one if counts_itself else one] * 2
    warned = [text for text in caplog.messages if "products of `Matrices`" in text]
    assert len(warned) == (not counts_itself)


class Convolution(FeedForward):
    """A layer that ptflops counts but no hook of ours."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.layer = nn.Conv1d(embed_dim, embed_dim, 1).double()

    def forward(self, states: Tensor, *others: Any) -> tuple[Tensor, None]:
        return self.layer(states.unsqueeze(-1)).squeeze(-1), None


def test_what_only_ptflops_counts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such work would be in the sum but in no part of it."""
    built = Kind("of a plugin", lambda config, side, activation: Convolution(side.embed_dim))
    monkeypatch.setitem(_kinds.FEED_FORWARD.kinds, "convolution", built)
    model = small_model(feed_forward_kind="convolution")
    pair = {"src_tokens": torch.full((1, 3), 5), "src_lengths": torch.tensor([3])}
    with pytest.raises(InputError, match="has layers that are not counted here"):
        count(model, [{**pair, "prev_output_tokens": torch.full((1, 2), 5)}])
