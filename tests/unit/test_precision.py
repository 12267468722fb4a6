"""Softmax in float32 or better: values, gradients and dtype, along short and long last axes."""

from __future__ import annotations

import pytest
import torch

from sut_fairseq.modules.precision import exact_softmax


@pytest.mark.parametrize("num", [1, 2, 9, 15, 16, 17])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_is_torchs_softmax(num: int, dtype: torch.dtype) -> None:
    torch.manual_seed(num)
    scores = torch.randn(3, 5, 2, num).mul(4).to(dtype)
    scores[0, 0, 0, -1] = torch.finfo(dtype).min / 2  # as a hidden key has
    scores[0, 0, 1] = torch.finfo(dtype).min / 2  # a row without visible keys
    wanted = scores.double().softmax(dim=-1)
    result = exact_softmax(scores)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-6, atol=1e-7)
    if num > 1:
        assert result[0, 0, 0, -1] == 0
    # Views: keys before queries, and every second row.
    turned = scores.transpose(1, 3).contiguous().transpose(1, 3)
    torch.testing.assert_close(exact_softmax(turned), result, rtol=1e-6, atol=0)
    torch.testing.assert_close(exact_softmax(scores[:, ::2]), result[:, ::2], rtol=1e-6, atol=0)


@pytest.mark.parametrize("num", [1, 3, 20])
def test_gradients(num: int) -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 3, num, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(exact_softmax, (scores,))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4), (2, 3, 0), (0, 0), (5,)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    scores = torch.randn(shape)
    result = exact_softmax(scores)
    assert result.shape == scores.shape
    torch.testing.assert_close(result, scores.softmax(dim=-1))
