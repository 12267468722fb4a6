"""Greedy search against references and gold attention, and the task that reports it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import LanguagePairDataset
from fairseq.logging import metrics as fairseq_metrics
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import strip_pad
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sut_fairseq import metrics
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.errors import InputError
from sut_fairseq.models.recurrent_translation import (
    RecurrentTranslationConfig,
    RecurrentTranslationModel,
)
from sut_fairseq.tasks.gold_attention import WithGold, read_gold
from sut_fairseq.tasks.searching import greedy_search
from tests.models import batch, dictionary, sample_of, small_model, task

WORDS = dictionary(9, "v")
EOS, PAD, UNK = WORDS.eos(), WORDS.pad(), WORDS.unk()
A, B, C = (WORDS.index(f"v{number}") for number in range(3))


Sentence = tuple[list[int], list[int], list[list[float]], list[int]]


def table(rows: Sequence[Sequence[int]], left: bool = False, extra: int = 0) -> Tensor:
    """Rows of symbols, padded."""
    width = max(map(len, rows)) + extra
    gaps = [[PAD] * (width - len(row)) for row in rows]
    return torch.tensor([gap + [*row] if left else [*row] + gap for gap, row in zip(gaps, rows)])


def compare(
    found: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    weights: Sequence[Sequence[Sequence[float]]] | None = None,
    gold: Sequence[Sequence[int]] | None = None,
    left: bool = False,
    extra: int = 0,
) -> metrics.GreedyOutcome:
    """`compare_greedy` of sentences that are given without padding."""
    lengths = [len(rows[0]) for rows in weights] if weights else [1] * len(found)
    source = table([[A] * length for length in lengths], left, extra)
    stacked = None
    if weights is not None:
        # What stands at padding must not count, whatever it is.
        stacked = torch.full((len(found), max(map(len, found)), source.size(1)), 7.0)
        for number, (rows, words) in enumerate(zip(weights, source != PAD)):
            for step, row in enumerate(rows):
                stacked[number, step, words] = torch.tensor(row)
    target = table(targets, extra=extra)
    positions = torch.zeros_like(target)
    for number, row in enumerate(gold or ()):
        positions[number, : len(row)] = torch.tensor(row)
    return metrics.compare_greedy(
        table(found),
        target,
        WORDS,
        weights=stacked,
        source_padding=source == PAD,
        gold=positions,
    )


@pytest.mark.parametrize(
    ("found", "target", "right", "before_eos"),
    [
        ([A, B, EOS], [A, B, EOS], True, True),
        ([A, EOS], [A, B, EOS], False, True),  # ends too early
        ([A, B, C], [A, B, EOS], False, False),  # does not end
        ([A, B, C, EOS], [A, B, EOS], False, False),  # ends too late
        ([A, C, EOS], [A, B, EOS], False, False),
        ([C, EOS], [A, B, EOS], False, False),
        ([A, UNK, EOS], [A, UNK, EOS], False, False),  # an unknown word is never found
        ([A, EOS], [A, UNK, EOS], False, True),
    ],
)
def test_words(found: list[int], target: list[int], right: bool, before_eos: bool) -> None:
    """Alone and beside a longer sentence."""
    longer = [A, B, A, B, EOS]
    for outcome in (compare([found], [target]), compare([found, longer], [target, longer])):
        assert outcome.right[0].item() == right
        assert outcome.before_eos[0].item() == before_eos
        assert outcome.attention_loss is None


def test_attention_loss() -> None:
    """Squared distance in source words of the mean position, until one of the sentences ends."""
    one_hot = torch.eye(4).tolist()
    target, gold = [A, B, C, EOS], [0, 2, 1, 3]
    exact = [one_hot[position] for position in gold]
    halves = [0.5, 0.0, 0.5, 0.0]  # mean position 1

    def loss(found: list[int], weights: list[list[float]]) -> float:
        outcome = compare([found], [target], [weights], [gold])
        assert outcome.attention_loss is not None
        return outcome.attention_loss.item()

    assert loss(target, exact) == 0
    assert loss(target, [*exact[:3], one_hot[0]]) == 0  # at the end nothing counts
    assert loss(target, [one_hot[3], *exact[1:]]) == pytest.approx(9 / 3)
    assert loss(target, [halves, halves, halves, halves]) == pytest.approx((1 + 1 + 0) / 3)
    assert loss([A, EOS], [halves, one_hot[0]]) == pytest.approx(1)  # of one step
    assert loss([A, B, C, A], [*exact[:3], one_hot[0]]) == 0  # past the reference's end
    assert loss([A, B, C, A, A], [*exact[:3], one_hot[0], one_hot[0]]) == 0
    # Densities need not add up to 1.
    assert loss(target, [[3.0 * weight for weight in row] for row in exact]) == 0
    assert loss(target, [[0.0] * 4] * 4) == pytest.approx((0 + 4 + 1) / 3)
    of_nothing = compare([[EOS]], [[EOS]], [[[1.0]]], [[0]]).attention_loss
    assert of_nothing is not None and of_nothing.tolist() == [0]


SYMBOLS = st.sampled_from([A, B, UNK])


@st.composite
def sentences(draw: Any) -> Sentence:
    """What was found, the reference, weights of each step and gold positions."""
    target = [*draw(st.lists(SYMBOLS, min_size=1, max_size=4)), EOS]
    kept = draw(st.integers(1, len(target)))
    changed = draw(st.one_of(st.none(), st.integers(0, kept - 1)))
    found = [(A if n == changed else word) for n, word in enumerate(target[:kept])]
    found = [word for word in found if word != EOS] or [A]
    if len(found) < len(target) and draw(st.booleans()):
        found.append(EOS)
    length = draw(st.integers(1, 5))
    weight = st.sampled_from([0.0, 0.125, 0.5, 1.0])
    rows = st.lists(weight, min_size=length, max_size=length)
    weights = draw(st.lists(rows, min_size=len(found), max_size=len(found)))
    position = st.integers(0, length - 1)
    gold = draw(st.lists(position, min_size=len(target), max_size=len(target)))
    return found, target, weights, gold


def by_loops(
    found: list[int], target: list[int], weights: list[list[float]], gold: list[int]
) -> tuple[bool, bool, float]:
    """The three measures of one sentence, word by word."""
    words = found[: found.index(EOS)] if EOS in found else found
    before_eos = all(
        step < len(target) - 1 and word == target[step] != UNK for step, word in enumerate(words)
    )
    right = before_eos and EOS in found and len(words) == len(target) - 1
    errors = []
    for step in range(min(len(words), len(target) - 1)):
        total = sum(weights[step])
        mean = sum(s * weight for s, weight in enumerate(weights[step])) / total if total else 0.0
        errors.append((mean - gold[step]) ** 2)
    return right, before_eos, sum(errors) / max(len(errors), 1)


@given(
    st.lists(sentences(), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_measures_are_those_of_plain_loops(
    listed: list[Sentence], left: bool, extra: int, beyond: int
) -> None:
    """Whatever the sentences are batched with, and wherever their sources are padded."""
    longest = max(len(target) for _, target, _, _ in listed)
    for found, _, weights, _ in listed:
        # A sentence that does not end goes on as long as the batch does, or longer.
        missing = 0 if EOS in found else longest + extra + beyond - len(found)
        found += [A] * missing
        weights += [weights[-1]] * missing
    outcome = compare(*zip(*listed), left=left, extra=extra)
    assert outcome.attention_loss is not None
    for row, one in enumerate(listed):
        right, before_eos, loss = by_loops(*one)
        assert outcome.right[row].item() == right
        assert outcome.before_eos[row].item() == before_eos
        assert outcome.attention_loss[row].item() == pytest.approx(loss, abs=1e-4)


def test_logged_values_are_ratios_of_sums() -> None:
    """Over all batches; a model without attention logs none."""
    first = compare(
        [[A, EOS], [B, EOS]], [[A, EOS], [A, EOS]], [[[1.0]], [[1.0]]], [[1, 0], [3, 0]]
    )
    second = compare([[A, EOS]], [[A, A, EOS]], [[[1.0]]], [[0, 0, 0]])
    logs = [metrics.greedy_sums(outcome) for outcome in (first, second)]
    with fairseq_metrics.aggregate(new_root=True) as logged:
        metrics.log_greedy(logs)
    assert logged.get_smoothed_values() == {"before_eos": 66.667, "attention_loss": 3.333}
    with fairseq_metrics.aggregate(new_root=True) as logged:
        for log in logs:  # in one update after the other
            metrics.log_greedy([log])
    assert logged.get_smoothed_values() == {"before_eos": 66.667, "attention_loss": 3.333}
    outcome = compare([[A, EOS]], [[A, EOS]])
    with fairseq_metrics.aggregate(new_root=True) as logged:
        metrics.log_greedy([{key: 0 * value for key, value in logs[0].items()}])
    assert logged.get_smoothed_values() == {"before_eos": 0.0, "attention_loss": 0.0}
    with fairseq_metrics.aggregate(new_root=True) as logged:
        metrics.log_greedy([metrics.greedy_sums(outcome)])
        metrics.log_greedy([{"nll_loss": 1.0}])
    assert logged.get_smoothed_values() == {"before_eos": 100.0}


def test_greedy_search_is_what_the_model_finds_on_its_own_words() -> None:
    """Each symbol is the most probable one after those before it; batch-mates change nothing."""
    model, words = small_model(), dictionary(7, "v")
    sample = sample_of(batch())
    with torch.no_grad():
        found, weights = greedy_search(model, sample, words)
        assert weights is None and found.size(1) <= sample["target"].size(1)
        inputs = {**sample["net_input"]}
        inputs["prev_output_tokens"] = torch.cat(
            [found.new_full((len(found), 1), words.eos()), found[:, :-1]], dim=1
        )
        scores = model(**inputs)[0]
        assert metrics.found_by_greedy_search(scores, found, words).all()
        for row, length in enumerate(sample["net_input"]["src_lengths"].tolist()):
            alone = sample_of({key: x[row : row + 1] for key, x in sample["net_input"].items()})
            alone["net_input"]["src_tokens"] = alone["net_input"]["src_tokens"][:, -length:]
            again = greedy_search(model, alone, words)[0][0]
            assert again.tolist() == found[row, : len(again)].tolist()


@torch.no_grad()
def test_greedy_search_is_that_of_fairseq() -> None:
    """With a greatest length, references make no difference, nor what is in the batch."""
    words, sample = dictionary(7, "v"), sample_of(batch())
    for max_len, most in ((2, 40), (9, 40), (9, 6)):  # 6 tokens are 5 words and the end
        model = small_model(max_target_positions=most)
        generator = SequenceGenerator([model], words, beam_size=1, max_len_b=max_len)
        expected = [one[0]["tokens"].tolist() for one in generator.generate([model], sample)]
        assert max(len(one) for one in expected) == min(max_len + 1, most)  # one that is ended
        found, _ = greedy_search(model, sample, words, max_len)
        assert [strip_pad(row, words.pad()).tolist() for row in found] == expected


@torch.no_grad()
def test_scores_of_an_adaptive_softmax() -> None:
    """Such a model returns features, and more columns than it has words."""
    torch.manual_seed(6)  # with it, no found sentence has an unknown word
    options = Namespace(encoder_embed_dim=32, encoder_layers=1, decoder_layers=1)
    options.adaptive_softmax_cutoff = [4, 8]
    base_architecture(options)
    model = TransformerModel.build_model(options, task()).eval()
    words, sample = task().target_dictionary, sample_of(batch())
    output = model(**sample["net_input"])
    scores = metrics.word_scores(model, output)
    size = len(words)
    assert output[0].size(-1) != size == scores.size(-1)
    torch.testing.assert_close(scores.exp().sum(dim=-1), torch.ones(scores.shape[:2]))

    found, _ = greedy_search(model, sample, words)
    sample["target"] = found.contiguous()
    sample["net_input"]["prev_output_tokens"] = found.roll(1, dims=1)
    sample["net_input"]["prev_output_tokens"][:, 0] = words.eos()
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1).eval()
    _, _, log = criterion(model, sample)
    assert log["exact_match_right"] == log["exact_match_sentences"] == 3


@torch.no_grad()
def test_greedy_search_neither_pads_nor_ends_at_once() -> None:
    """Whatever the model would like most."""
    model, words, sample = small_model(), task().target_dictionary, sample_of(batch())
    layer = model.decoder.output_layer

    def scores_of(features: Tensor) -> Tensor:
        scores = layer(features)
        scores[..., words.pad()], scores[..., words.eos()] = 1e3, 1e2
        return scores

    model.decoder.output_layer = scores_of
    found, _ = greedy_search(model, sample, words)
    assert (found[:, 0] >= words.nspecial).all() and (found[:, 1] == words.eos()).all()


@pytest.mark.parametrize("attender", ["additive", "location", "mix"])
def test_attention_of_greedy_search_is_that_of_the_words_it_finds(attender: str) -> None:
    torch.manual_seed(2)
    config = replace(RecurrentTranslationConfig(), attender=attender)
    model = RecurrentTranslationModel.build_model(config, task()).double().eval()
    words, sample = dictionary(7, "v"), sample_of(batch())
    with torch.no_grad():
        found, weights = greedy_search(model, sample, words)
        starts = found.new_full((len(found), 1), words.eos())
        inputs = {**sample["net_input"], "prev_output_tokens": torch.cat([starts, found], dim=1)}
        (full,) = model(**inputs)[1]["attn"]
    assert weights is not None
    torch.testing.assert_close(weights, full[:, :-1].float())


class _Texts:
    """As much of fairseq's pairs as gold attention is compared with: lengths with the ends."""

    src_sizes, tgt_sizes = [4, 5], [3, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "must be 2 whole numbers, one for each target word and one for the end, from 0 to 3"),
        ("1", "but is `1`"),
        ("1 2 3", "but is `1 2 3`"),
        ("1 4", "but is `1 4`"),
        ("-1 2", "but is `-1 2`"),
        ("0 x", "but is `0 x`"),
        ("0 1.5", "but is `0 1.5`"),
        ("0 ²", "but is `0 ²`"),
        ("0 " + "1" * 5000, "but is `0 111"),
    ],
)
def test_gold_attention_that_does_not_fit_is_refused(line: str, message: str) -> None:
    path = Path("data", "text", "valid.attention")
    assert [one.tolist() for one in read_gold(["0 2 1", "3 0"], _Texts(), path)] == [
        [0, 2, 1],
        [3, 0],
    ]
    with pytest.raises(InputError, match="^[^\n]*$") as caught:
        read_gold(["0 2 1", line], _Texts(), path)
    assert "`data/text/valid.attention`, line 2: " in str(caught.value)
    assert message in str(caught.value)


def test_a_source_without_words_can_have_no_gold_attention() -> None:
    class Empty(_Texts):
        src_sizes = (4, 1)

    with pytest.raises(InputError, match="line 2: this source has no words"):
        read_gold(["0 2 1", "0 0"], Empty(), Path("valid.attention"))


def test_batches_whose_targets_are_padded_to_a_multiple() -> None:
    """Gold attention is as wide as the target, of which greedy search may use every place."""
    words = dictionary()
    tokens = [words.encode_line(line).long() for line in ("w1 w2 w3", "w4 w5")]
    sizes = [len(line) for line in tokens]
    pairs = LanguagePairDataset(tokens, sizes, words, tokens, sizes, words, pad_to_multiple=8)
    gold = [torch.arange(size) for size in sizes]
    collated = WithGold(pairs, gold).collater([pairs[0], pairs[1]])
    assert collated["target"].shape == collated["gold_attention"].shape == (2, 8)
    assert collated["gold_attention"].tolist() == [[0, 1, 2, 3, 0, 0, 0, 0], [0, 1, 2, *[0] * 5]]
