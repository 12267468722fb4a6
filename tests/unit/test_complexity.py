"""The MACs counter against formulas, and against the figures in print."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from sut_fairseq.analysis import counting, untrained
from sut_fairseq.analysis.complexity import Complexity, count, without_padding
from sut_fairseq.analysis.counting import PRODUCTS, REPEATED
from sut_fairseq.cli.macs import main
from sut_fairseq.errors import InputError
from sut_fairseq.models._attenders import ATTENDERS
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from tests.models import (
    HALTING,
    MIXTURE,
    SMALL,
    lower_threshold,
    small_model,
    small_recurrent,
)


@dataclass(frozen=True)
class Sizes:
    """A model in the paper's notation (SUT Table 6); `experts` 1 means dense, without a router."""

    embed_dim: int
    heads: int
    head_dim: int
    hidden: int
    steps: int = 6
    experts: tuple[int, int] = (1, 1)  # of attention and feed-forward
    top_k: tuple[int, int] = (1, 1)
    window: int | None = 64
    halting: bool = True
    pre_norm: bool = False

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


SUT_BASE = Sizes(512, 4, 64, 512, experts=(24, 24), top_k=(4, 4))
UT_BASE = Sizes(960, 15, 64, 3840)
CFQ_T5 = Sizes(512, 8, 64, 1024, steps=8, window=None, halting=False, pre_norm=True)


@dataclass(frozen=True)
class Formula:
    """MACs of one sentence pair, written down from the equations.

    Attributes:
        sizes: the model.
        source, target: for each step, how many tokens it runs for; without halting all tokens.
        vocabulary: number of target words.
    """

    sizes: Sizes
    source: list[int]
    target: list[int]
    vocabulary: int

    @classmethod
    def without_halting(cls, sizes: Sizes, n: int, m: int, vocabulary: int) -> Formula:
        return cls(sizes, [n] * sizes.steps, [m] * sizes.steps, vocabulary)

    def router(self, experts: int) -> int:
        d = self.sizes.embed_dim
        return 0 if experts == 1 else d * d + d + d * experts

    def queries_and_output(self) -> int:
        """Attention, for one token at one step, but for keys, values and products."""
        (experts, _), (k, _), s = self.sizes.experts, self.sizes.top_k, self.sizes
        return self.router(experts) + k * 2 * s.embed_dim * s.inner

    def feed_forward(self) -> int:
        (_, experts), (_, k), s = self.sizes.experts, self.sizes.top_k, self.sizes
        one = s.embed_dim * s.hidden + s.hidden + s.hidden * s.embed_dim + s.embed_dim
        return self.router(experts) + k * one

    def stack(self, runs: list[int], attentions: int) -> int:
        """All but cross-attention's keys and values; `runs` as `source` and `target` above."""
        s = self.sizes
        per_token = attentions * self.queries_and_output() + self.feed_forward()
        per_token += (attentions + 1) * s.embed_dim  # a norm for each sublayer
        # Before every step but the first: the unit of what has just run; while the sentence goes
        # on, its keys and values.
        again = sum(runs[:-1])
        updated = sum(ran for ran, next_run in zip(runs, runs[1:]) if next_run)
        keys_values = 2 * s.embed_dim * s.inner + s.pre_norm * s.embed_dim
        unit = s.embed_dim * s.embed_dim + s.embed_dim + 2 * s.embed_dim
        final_norm = runs[0] * s.embed_dim if s.pre_norm else 0
        own = sum(runs) * per_token + (runs[0] + updated) * keys_values
        return own + s.halting * again * unit + final_norm

    def cross_keys_values(self) -> int:
        return self.source[0] * 2 * self.sizes.embed_dim * self.sizes.inner

    def projection(self) -> int:
        return self.target[0] * self.sizes.embed_dim * self.vocabulary

    def paper(self) -> int:
        own = self.stack(self.source, 1) + self.stack(self.target, 2)
        return own + self.sizes.steps * self.cross_keys_values() + self.projection()

    def full(self) -> int:
        """Cross-attention's keys and values once; the products of queries, keys and values."""
        once = self.paper() - (self.sizes.steps - 1) * self.cross_keys_values()
        s, n, m = self.sizes, self.source[0], self.target[0]

        def self_attention(length: int, directions: int) -> int:
            offsets = 0 if s.window is None else directions * min(s.window, length - 1) + 1
            return 2 * length + offsets

        products = sum(self.source) * self_attention(n, 2)
        products += sum(self.target) * self_attention(m, 1)
        products += sum(self.target) * 2 * n
        return once + products * s.top_k[0] * s.inner


Report = dict[str, Any]


@functools.cache
def macs(arch: str, n: int = 10, m: int | None = 10, vocabulary: int = 37000) -> Report:
    """What `sut-macs --json` says; big models are built once for all tests."""
    output = io.StringIO()
    lengths = ["--src-len", n, "--vocab-size", vocabulary]
    lengths += [] if m is None else ["--tgt-len", m]
    with contextlib.redirect_stdout(output):
        assert main(["--arch", arch, *map(str, lengths), "--json"]) == 0
    report: Report = json.loads(output.getvalue())
    return report


@pytest.mark.parametrize(
    ("arch", "sizes"),
    [("sut_base", SUT_BASE), ("ut_base", UT_BASE), ("ut_cfq_t5", CFQ_T5)],
)
def test_presets_meet_the_formula(arch: str, sizes: Sizes) -> None:
    n, m, vocabulary = (13, 6, 100) if arch == "ut_cfq_t5" else (10, 10, 37000)
    found = macs(arch) if n == 10 else macs(arch, n, m, vocabulary)
    formula = Formula.without_halting(sizes, n, m, vocabulary)
    assert found["macs"] == formula.paper()
    assert found["macs_full"] == formula.full()
    assert found["by_part"]["projection"] == formula.projection()
    assert found["by_part"]["encoder"] == formula.stack(formula.source, 1)
    assert found.get("skipped", 0) == 0


@pytest.mark.parametrize(
    ("arch", "d", "hidden", "steps", "positions", "offsets"),
    [
        # Direction: two numbers of each state. Relative ones: offsets -9 to 9, projected, and the
        # gate of absolute ones, and the places 0 to 9 as well.
        ("ndr_ctl", 256, 512, 14, lambda d: 10 * (2 * d + 2), 0),
        ("ndr_ctl_rel_gate", 256, 512, 14, lambda d: 19 * d * d, 19),
        ("ndr_ctl_abs_rel_gate", 256, 512, 14, lambda d: 29 * d * d + 10 * (d + 1), 29),
    ],
)
def test_data_routers_meet_the_formula(
    arch: str,
    d: int,
    hidden: int,
    steps: int,
    positions: Callable[[int], int],
    offsets: int,
) -> None:
    found = macs(arch, 10, None, 20)
    feed_forward = 2 * d * hidden + hidden + d
    norms = 2 * d if arch == "ndr_ctl" else d  # tanh bounds the updates of the others
    per_token = 4 * d * d + feed_forward + (2 * d * d + 2 * d) + norms
    labels = 20 - 4
    expected = steps * (10 * per_token + positions(d)) + d * labels + labels
    assert found["macs"] == expected
    assert found["macs_full"] == expected + steps * 10 * d * (2 * 10 + offsets)
    assert found["by_kind"]["copy gates"] == steps * 10 * (2 * d * d + 2 * d)


@pytest.mark.parametrize(
    ("arch", "printed_macs", "printed_parameters"),
    [
        ("sut_base", 787, 66),
        ("sut_big", 787, 110),
        ("ut_base", 1998, 64),
        ("ut_big", 3707, 105),
    ],
)
def test_presets_meet_the_paper(arch: str, printed_macs: int, printed_parameters: int) -> None:
    found = macs(arch)
    assert found["macs"] == pytest.approx(printed_macs * 1e6, rel=0.01)
    assert found["params"] == pytest.approx(printed_parameters * 1e6, rel=0.015)
    kinds = found["by_kind"]
    assert sum(kinds.values()) - kinds[PRODUCTS] == found["macs"]
    assert sum(kinds.values()) - kinds[REPEATED] == found["macs_full"]
    assert sum(found["by_part"].values()) == found["macs"]


def test_fairseq_transformer_meets_the_paper() -> None:
    """Counted by the same rules: 608M by the formula, 604M in print."""
    found = macs("transformer_wmt_en_de", vocabulary=32768)
    d, hidden, n = 512, 2048, 10
    attention = 4 * (d * d + d)
    feed_forward = 2 * d * hidden + hidden + d
    layers = 6 * n * (attention + feed_forward + 2 * d)
    layers += 6 * n * (2 * attention + feed_forward + 3 * d)
    assert found["macs"] == layers + n * d * 32768
    assert found["macs"] == pytest.approx(604e6, rel=0.01)
    assert found["macs_full"] - found["macs"] == 18 * 2 * n * n * d


def tokens_run(model: UniversalTransformerModel, pair: dict[str, torch.Tensor]) -> list[list[int]]:
    """Number of tokens in each step of encoder and decoder, seen from outside of the counter."""
    runs: list[list[int]] = [[], []]
    for seen, side in zip(runs, (model.encoder, model.decoder)):

        def note(_: nn.Module, inputs: Any, seen: list[int] = seen) -> None:
            seen.append(len(inputs[0]))

        side.stack.block.register_forward_pre_hook(note)
    with torch.no_grad():
        model(**pair)
    return [seen + [0] * (SMALL["encoder_layers"] - len(seen)) for seen in runs]


@pytest.mark.parametrize("alpha_threshold", [1.0, 0.6, 0.3])
@pytest.mark.parametrize("kind", ["mixture", "dense pre-norm"])
def test_halting_saves_what_it_skips(kind: str, alpha_threshold: float) -> None:
    pre_norm = dict(encoder_normalize_before=True, decoder_normalize_before=True)
    model = small_model(**(MIXTURE if kind == "mixture" else pre_norm), **HALTING)
    lower_threshold(model, alpha_threshold)
    (pair,) = without_padding([(torch.arange(4, 11), torch.arange(4, 9))], eos=2)
    counted = count(model, [pair])
    source, target = tokens_run(model, pair)
    if alpha_threshold < 1:
        assert 0 < source[-1] < 7 or 0 < target[-1] < 5, "some tokens halt and some do not"
    sizes = Sizes(
        embed_dim=16,
        heads=2,
        head_dim=8,
        hidden=12,
        steps=4,
        experts=(4, 3) if kind == "mixture" else (1, 1),
        top_k=(2, 2) if kind == "mixture" else (1, 1),
        window=2,
        pre_norm=kind != "mixture",
    )
    formula = Formula(sizes, source, target, vocabulary=len(model.decoder.dictionary))
    assert counted.macs == formula.paper()
    assert counted.macs_full == formula.full()
    assert float(counted.halting["encoder"].steps_run) == sum(source)
    assert float(counted.halting["decoder"].steps_run) == sum(target)


def test_batches_cost_what_their_sentences_cost_alone() -> None:
    model = small_model(**MIXTURE, **HALTING)
    lower_threshold(model, 0.5)
    torch.manual_seed(0)
    lengths = [(3, 4), (5, 2), (3, 4), (1, 1), (5, 2), (3, 4)]
    pairs = [(torch.randint(4, 11, (n,)), torch.randint(4, 11, (m,))) for n, m in lengths]
    together = count(model, without_padding(pairs, eos=2))
    alone = [count(model, without_padding([pair], eos=2)) for pair in pairs]

    def total(value: Callable[[Complexity], int]) -> int:
        return sum(value(one) for one in alone)

    assert together.sentences == total(lambda one: one.sentences) == 6
    assert together.source_tokens == sum(n for n, _ in lengths)
    assert together.macs == total(lambda one: one.macs)
    assert together.macs_full == total(lambda one: one.macs_full)
    for kind, found in together.by_kind.items():
        assert found == total(lambda one, kind=kind: one.by_kind[kind])
    skipped = [1 - float(h.steps_run / h.steps_possible) for h in together.halting.values()]
    assert all(0 < share < 1 for share in skipped)


def test_counting_leaves_the_model_as_it_was() -> None:
    model = small_model(**MIXTURE, **HALTING)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    (pair,) = without_padding([(torch.arange(4, 11), torch.arange(4, 9))], eos=2)
    first, second = count(model, [pair]), count(model, [pair])
    assert (first.macs, first.by_kind) == (second.macs, second.by_kind)
    assert not model.training
    assert not any(module._forward_hooks for module in model.modules())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_without_padding_groups_by_lengths() -> None:
    pairs = [(torch.full((n,), 5), torch.full((m,), 6)) for n, m in [(2, 3), (2, 2), (2, 3)] * 2]
    batches = list(without_padding(pairs, eos=2, max_tokens=6))
    assert [tuple(batch["prev_output_tokens"].shape) for batch in batches] == [
        (2, 2),
        (2, 3),
        (2, 3),
    ]
    assert all((batch["prev_output_tokens"][:, 0] == 2).all() for batch in batches)
    assert sum(batch["src_tokens"].numel() for batch in batches) == 12


def test_a_failure_inside_ptflops_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model()
    (pair,) = without_padding([(torch.arange(4, 11), torch.tensor([4, 999, 2]))], eos=2)
    with pytest.raises(RuntimeError, match="ptflops could not count this model: .*out of range"):
        count(model, [pair])
    assert capsys.readouterr() == ("", "")

    monkeypatch.setattr(counting, "get_model_complexity_info", lambda *_, **__: (None, None))
    assert main(["--arch", "sut_tiny", "--vocab-size", "24"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("sut-macs: error: ptflops could not count this model")
    assert len(errors.splitlines()) == 1


def test_tied_parameters_count_once() -> None:
    tied = small_model(joined=True, share_all_embeddings=True)
    (pair,) = without_padding([(torch.tensor([4, 2]), torch.tensor([4, 2]))], eos=2)
    assert count(tied, [pair]).params == sum(p.numel() for p in nn.Module.parameters(tied))
    untied = small_model(joined=True)
    words = 2 * len(untied.encoder.dictionary) * SMALL["encoder_embed_dim"]
    assert count(untied, [pair]).params - count(tied, [pair]).params == words


@pytest.mark.parametrize("matrices", ["shared", "own"])
@pytest.mark.parametrize("retrievals", [1, 3])
def test_compositional_attention_meets_the_formula(retrievals: int, matrices: str) -> None:
    """Beside heads: R values, and the scores by which each of S searches chooses among them."""
    n, m, steps, d, head_dim, dim, searches = 5, 7, 4, 16, 8, 3, 2
    num_values = retrievals * (searches if matrices == "own" else 1)
    batch = {
        "src_tokens": torch.full((1, n), 5),
        "src_lengths": torch.tensor([n]),
        "prev_output_tokens": torch.full((1, m), 5),
    }
    options = dict(attention_retrievals=retrievals, attention_retrieval_dim=dim)
    options["attention_value_matrices"] = matrices
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
    scores = chooses * queries * searches * dim * (d + head_dim)
    assert composed.macs - heads.macs == values + scores


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


def test_what_the_hooks_do_not_see_is_refused() -> None:
    """A count without convolutions, or without half of the keys, would look like a whole one."""
    for arch in ("lightconv", "fconv", "fconv_lm", "lstm_lm", "roberta_base", "s2t_transformer"):
        with pytest.raises(InputError, match="has layers that are not counted here; `sut-macs`"):
            untrained.build(arch, 9)
    flags = ["--cross-self-attention", "--no-cross-attention", "--encoder-layers", "1"]
    model, task = untrained.build("transformer", 9, flags)
    batch = untrained.random_batch(model, task, src_len=3, tgt_len=2)
    with pytest.raises(InputError, match="--cross-self-attention is not counted"):
        count(model, [batch])


def test_a_dnc_is_refused() -> None:
    model, task = untrained.build("ndr_ctl_dnc", 9)
    batch = untrained.random_batch(model, task, src_len=3, tgt_len=2)
    with pytest.raises(InputError, match="a DNC is not counted"):
        count(model, [batch])


def test_steps_of_training() -> None:
    """A model that runs fewer steps in training is counted with as many as asked."""
    flags = ["--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "8", "--encoder-layers", "9"]
    flags += ["--training-steps-beyond-length", "1"]
    model, task = untrained.build("ndr_ctl_transformer", 9, flags)
    batch = untrained.random_batch(model, task, src_len=4, tgt_len=2)
    projection = 5 * (8 + 1)
    ever, training = (
        count(model, [batch], training=one).macs - projection for one in (False, True)
    )
    assert ever * 5 == training * 9
