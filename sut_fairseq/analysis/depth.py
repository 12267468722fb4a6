"""How deep a model computes: its depth loops, their thresholds, and what they skip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn

from sut_fairseq.errors import InputError, check
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.stack import Stack, StackOutput
from sut_fairseq.statistics import HaltingStatistics


def stacks(model: nn.Module) -> dict[str, Stack]:
    """The depth loops of a model, by "encoder" and "decoder"; empty for other models."""
    modules = model.named_modules()
    return {name.split(".")[0]: module for name, module in modules if isinstance(module, Stack)}


def units_with_threshold(model: nn.Module) -> list[Halting[Any]]:
    """The halting units of a model that stop tokens at `alpha_threshold`."""
    units = (module for module in model.modules() if isinstance(module, Halting))
    return [unit for unit in units if unit.alpha_threshold is not None]


def threshold_of(model: nn.Module) -> float | None:
    """The halting threshold of a model; None if nothing halts by a threshold."""
    units = units_with_threshold(model)
    return units[0].alpha_threshold if units else None


def set_threshold(model: nn.Module, alpha_threshold: float) -> None:
    """Let the halting units of a built model stop tokens at `alpha_threshold`; inf: never."""
    for unit in units_with_threshold(model):
        unit.alpha_threshold = alpha_threshold


def check_thresholds(option: str, thresholds: Iterable[float]) -> None:
    """Refuse halting thresholds outside (0, 1] that were given with an option."""
    for threshold in thresholds:
        check(0 < threshold <= 1, option, "greater than 0, at most 1", threshold)


def check_uses_threshold(option: str, model: nn.Module) -> None:
    """Refuse a model in which nothing halts by a threshold, for which an option gives one."""
    if not units_with_threshold(model):
        raise InputError(
            f"{option} needs a model that halts by a threshold, and this one does not."
        )


def never_halt(model: nn.Module) -> None:
    """Let an untrained model run all steps, whatever its halting units would predict."""
    for module in model.modules():
        if isinstance(module, Halting):
            module.never_halt()


@contextmanager
def count_depth(model: nn.Module) -> Iterator[dict[str, HaltingStatistics]]:
    """Sum the halting statistics of all calls in the context, by "encoder" and "decoder"."""
    sums: dict[str, HaltingStatistics] = {}

    def note(name: str, stack: nn.Module, inputs: Any, output: StackOutput) -> None:
        if output.halting is not None:
            add_halting(sums, {name: output.halting})

    handles = [
        stack.register_forward_hook(partial(note, name)) for name, stack in stacks(model).items()
    ]
    try:
        yield sums
    finally:
        for handle in handles:
            handle.remove()


def add_halting(sums: dict[str, HaltingStatistics], more: Mapping[str, HaltingStatistics]) -> None:
    """Add statistics to sums, by "encoder" and "decoder"."""
    for stack, statistics in more.items():
        sums[stack] = sums[stack] + statistics if stack in sums else statistics


def skipped(statistics: Iterable[HaltingStatistics]) -> float:
    """Share of the (token, step) pairs of loops that halt that were skipped; 0 if none halts."""
    listed = list(statistics)
    possible = sum(float(one.steps_possible) for one in listed)
    return 1 - sum(float(one.steps_run) for one in listed) / possible if possible else 0.0
