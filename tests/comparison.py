"""Comparing a module with a reference: outputs and all gradients."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn


def randomise(module: nn.Module, seed: int = 0, scale: float = 0.6) -> nn.Module:
    """Give every parameter random values, including those that start at 0 or 1.

    They depend on the parameter's name, not on the order in which a module creates its parts.
    """
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        parameter.data.copy_(centre + scale * noise)
    return module


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random values that require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def gradients(
    outputs: Mapping[str, Tensor], variables: Mapping[str, Tensor], seed: int = 0
) -> dict[str, Tensor]:
    """Gradients of a random linear function of all outputs; zeros for unused variables."""
    generator = torch.Generator().manual_seed(seed)
    objective = torch.zeros(())
    for name in sorted(outputs):
        output = outputs[name]
        weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        objective = objective + (output * weights.to(output)).sum()
    found = torch.autograd.grad(objective, list(variables.values()), allow_unused=True)
    return {
        name: torch.zeros_like(variable) if gradient is None else gradient
        for (name, variable), gradient in zip(variables.items(), found)
    }


def assert_agree(
    actual: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    variables: Mapping[str, Tensor],
    *,
    tolerance: float = 1e-10,
    without_gradient: Collection[str] = (),
) -> None:
    """Assert equal outputs and equal gradients with respect to all variables.

    Args:
        actual, expected: outputs by name, computed from the same variables.
        variables: inputs and parameters by name.
        tolerance: absolute and relative.
        without_gradient: variables whose gradient must be 0; that of any other must not be, or
            nothing would have been compared.
    """
    assert actual.keys() == expected.keys()
    compared = [(actual, expected)]
    compared.append((gradients(actual, variables), gradients(expected, variables)))
    for ours, theirs in compared:
        for name in ours:
            torch.testing.assert_close(
                ours[name],
                theirs[name],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{name}: {text}",
            )
    for name, gradient in compared[1][1].items():
        has_gradient = bool(gradient.abs().max() > 0)
        assert has_gradient == (name not in without_gradient), name
