"""Dropout: what is dropped, what is kept, and how often."""

from __future__ import annotations

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from sut_fairseq.errors import InputError
from sut_fairseq.modules.dropout import Dropout
from tests.models import small_model, small_recurrent


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_drops_the_share_and_scales_the_rest(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(999, 1001, dtype=dtype, requires_grad=True)
    result = Dropout(p)(x)
    assert result.dtype == dtype
    kept = result != 0
    share = float(kept.double().mean())
    assert share == pytest.approx(1 - p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5)
    precision = max(1e-3, torch.finfo(dtype).eps)
    assert float(result.detach()[kept].double().mean()) == pytest.approx(1 / (1 - p), rel=precision)
    # Neighbours share a random word: neither along rows nor along columns may they agree.
    for pairs in (kept[1:] & kept[:-1], kept[:, 1:] & kept[:, :-1], kept[:, 2:] & kept[:, :-2]):
        assert float(pairs.double().mean()) == pytest.approx((1 - p) ** 2, abs=0.004)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_keeps_the_mean_where_the_scale_is_no_number_of_the_dtype(dtype: torch.dtype) -> None:
    """In bfloat16, 1 / 0.9 is 1.109 instead of 1.111: 0.2 % less at every layer."""
    torch.manual_seed(0)
    x = torch.rand(1000, 1000).to(dtype)
    result = Dropout(0.1)(x)
    kept = result != 0
    scale = float(result[kept].double().sum() / x[kept].double().sum())
    assert scale == pytest.approx(1 / 0.9, rel=2e-4)


def test_the_seed_decides() -> None:
    x, dropout = torch.ones(7, 3), Dropout(0.5)
    torch.manual_seed(1)
    first = dropout(x)
    second = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


def test_does_nothing_in_evaluation_or_at_zero() -> None:
    x = torch.ones(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("p", [2**-16, 1 - 2**-16])
def test_the_smallest_and_the_greatest_share(p: float) -> None:
    """One of the 65,536 numbers that decide is dropped, or kept."""
    torch.manual_seed(0)
    dropped = int((Dropout(p)(torch.ones(1 << 22)) == 0).sum())
    rare = min(dropped, (1 << 22) - dropped)
    assert rare == pytest.approx(64, abs=5 * 64**0.5)  # one too many or too few would be 128 or 0


@pytest.mark.parametrize("p", [1e-9, 1.0])
def test_probabilities_that_16_bits_do_not_hold(p: float) -> None:
    assert Dropout(p)(torch.ones(100)).unique().tolist() == [1.0 if p < 0.5 else 0.0]


def test_an_empty_input_stays_empty() -> None:
    assert Dropout(0.5)(torch.ones(0, 3)).shape == (0, 3)


def test_dropout_outside_training_is_refused() -> None:
    """fairseq's `--retain-dropout`, by models of all families, rather than left unheeded."""
    config = OmegaConf.structured(FairseqConfig())
    for model in (small_model(), small_recurrent()):
        model.prepare_for_inference_(config)
    config.generation.retain_dropout = True
    for model in (small_model(), small_recurrent()):
        with pytest.raises(InputError, match="--retain-dropout: .* leave the option out"):
            model.prepare_for_inference_(config)
