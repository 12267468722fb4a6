"""Functions whose gradient is written by hand are those that autograd makes of their plain form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from sut_fairseq.analysis.benchmark import plain
from sut_fairseq.analysis.benchmark.functions import FUNCTIONS, SETTINGS
from sut_fairseq.modules.attention.distributions.geometric import geometric, geometric_to_the_left
from sut_fairseq.modules.attention.distributions.geometric_reference import geometric_reference
from sut_fairseq.modules.attention.positions.by_key import by_key
from tests.comparison import assert_agree, normal

SIZES = {
    "tiny": SETTINGS["tiny"],
    "unused experts": replace(SETTINGS["tiny"], tokens=8, num_experts=24),
    "one expert for each": replace(SETTINGS["tiny"], top_k=1),
    "wide window": replace(SETTINGS["tiny"], window=9),
    "one long sentence": replace(SETTINGS["tiny"], tokens=17, keys=17),
    "decoding": replace(SETTINGS["tiny"], trains=False),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_and_gradients(function: str, sizes: str) -> None:
    """In float64, but for torch's grouped_mm, which knows no such thing."""
    torch.manual_seed(1)
    single = function == "grouped_product"
    new = partial(normal, dtype=torch.float32) if single else normal
    pair = FUNCTIONS[function](SIZES[sizes], new)
    variables = {str(number): tensor for number, tensor in enumerate(pair.inputs)}
    ours, theirs = ({"": call(*pair.inputs)} for call in (pair.ours, pair.plain))
    assert_agree(ours, theirs, variables, tolerance=1e-5 if single else 1e-10)


@pytest.mark.parametrize("window", [1, 4, 40])
@pytest.mark.parametrize("rows", [1, 30], ids=["one sentence", "many"])
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "each its own"])
def test_scores_by_key_wherever_the_queries_stand(alike: bool, rows: int, window: int) -> None:
    """Positions of all sentences, or of each."""
    positions = torch.randint(0, 50, (1 if alike else rows, 6))
    by_offset = normal(rows, 2, 6, 2, 2 * window + 1)
    ours, theirs = (
        {"scores": scores}
        for scores in (
            by_key(by_offset, positions - window, 50, may_clip=True),
            plain.by_key(by_offset, positions - window, 50),
        )
    )
    assert_agree(ours, theirs, {"by_offset": by_offset})


@pytest.mark.parametrize("positions", [range(7), range(4, 7), (1, 2, 5)], ids=str)
@pytest.mark.parametrize("function", [geometric, geometric_to_the_left])
def test_geometric_reference(function: Any, positions: Any) -> None:
    """With hidden keys, for queries anywhere among them."""
    scores = normal(2, 2, len(positions), 2, 7)
    visible = torch.ones(2, 1, 7, dtype=torch.bool)
    visible[1, 0, 3] = False
    places = torch.tensor([list(positions)])
    causal = function is geometric_to_the_left
    reference = geometric_reference(scores, visible, places, causal=causal)
    ours = {"weights": function(scores, visible, places)}
    assert_agree(ours, {"weights": reference}, {"scores": scores})


def test_geometric_reference_is_finite_without_a_match() -> None:
    """Keys that match for certain, or not at all; a query that sees no key."""
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0])
    scores = (1e4 * sign).expand(1, 1, 4, 1, 4).clone().requires_grad_()
    places = torch.arange(4).unsqueeze(0)
    weights = geometric_reference(scores, None, places, causal=True)
    weights.sum().backward()
    assert weights.view(4, 4).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert scores.grad is not None and scores.grad.isfinite().all()
