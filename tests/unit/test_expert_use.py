"""Which words belong to which expert, on sums that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from sut_fairseq.analysis import expert_plots
from sut_fairseq.analysis.expert_use import Use, _Watch
from sut_fairseq.errors import InputError
from sut_fairseq.modules.tokens import ActiveTokens

WORDS = ["a", "b", "rare"]


@pytest.fixture
def use() -> Use:
    """`a` goes to expert 1 and, with a quarter of its weight, to 2; `b` to 2 alone; 3 is idle."""
    use = Use(WORDS, 3)
    tokens = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2])
    use.see(tokens)
    indices = torch.tensor([[0, 1]] * 4 + [[1, 0]] * 4 + [[1, 0]])
    weights = torch.tensor([[0.75, 0.25]] * 4 + [[1.0, 0.0]] * 4 + [[1.0, 0.0]])
    use.add(tokens, indices, weights)
    return use


def test_affinity_is_pointwise_mutual_information(use: Use) -> None:
    joint = torch.tensor([[3.0, 1.0, 0.0], [0.0, 4.0, 0.0], [0.0, 1.0, 0.0]]).double() / 9
    affinity = use.affinity()
    for word in range(3):
        for expert in range(3):
            both = float(joint[word, expert])
            alone = float(joint[word].sum() * joint[:, expert].sum())
            expected = math.log(both / alone) if both else -math.inf
            assert float(affinity[word, expert]) == pytest.approx(expected, abs=1e-6)
    # Its mean is the mutual information of word and expert, which is not negative.
    assert float((joint * affinity.clamp(min=-99)).sum()) > 0


def test_words_of_an_expert(use: Use) -> None:
    first, second, third = use.words(5)
    assert [(word.text, word.seen, word.share) for word in first] == [("a", 4, 0.75)]
    assert [(word.text, word.share) for word in second] == [("b", 1.0)]  # `a` gave too little
    assert third == []
    assert [word.text for word in use.words()[1]] == ["b", "a"]  # `rare` was seen once
    assert use.loads() == [0.5, 0.5, 0.0]


def test_tokens_with_fewer_experts_than_others() -> None:
    use = Use(WORDS, 2)
    use.add(torch.tensor([0, 1]), torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0.5] * 2, [1, 0]]))
    assert use.weight.tolist() == [[0.5, 0.5], [0, 1], [0, 0]]
    assert use.load.tolist() == [1, 2]


def test_a_layer_that_chooses_without_a_router_is_left_out() -> None:
    """It is no `Router` of the model, but may show what it chooses all the same."""
    use, tokens = Use(WORDS, 2), torch.tensor([[0, 1]])
    watch = _Watch(tokens, {"feed_forward": use})
    watch.step(0, ActiveTokens.from_mask(tokens >= 0))
    for layer in ("self_attention", "feed_forward"):
        watch.saw(f"{layer}.expert_indices", torch.tensor([[0], [1]]))
        watch.saw(f"{layer}.expert_weights", torch.ones(2, 1))
    assert use.load.tolist() == [1, 1]


def test_frequent_words_come_first() -> None:
    """Among words of equal shares, too; an even share is not more than one."""
    use = Use(list("abcde"), 2)
    assert use.loads() == [0.0, 0.0]
    tokens = torch.tensor([0] * 3 + [1] * 5 + [2] * 2 + [3] * 5 + [4] * 4)
    use.see(tokens)
    assert use.often().tolist() == [1, 3, 4, 0]  # `c` is too rare
    use.add(tokens, torch.tensor([[0, 1]] * 19), torch.full((19, 2), 0.5))
    assert [[word.text for word in own] for own in use.words()] == [list("bdea")] * 2
    assert use.words(5) == [[], []]
    use.add(tokens, torch.zeros(19, 1, dtype=torch.long), torch.ones(19, 1))
    assert [[word.text for word in own] for own in use.words(3)] == [list("bde"), []]


def test_a_frequent_word_is_counted_on(use: Use) -> None:
    """Beyond 2 ** 24, where adding 1 changes no float32."""
    use.weight[0, 0] = 2.0**24
    use.add(torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[1.0]]))
    assert float(use.weight[0, 0]) == 2**24 + 1


def test_picture(use: Use) -> None:
    figure = expert_plots.affinity_figure(use, title="title")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts[0, 0] == "0.8" and (2, 0) not in texts  # log(0.75 / (1 / 3)); nobody asks expert 3
    assert set(texts) == {(0, 0), (1, 0), (1, 1)}


def test_picture_of_no_words() -> None:
    with pytest.raises(InputError, match="count more sentences"):
        expert_plots.affinity_figure(Use(WORDS, 2), title="title")
