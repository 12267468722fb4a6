"""What a trained model costs, in the folder of its run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from sut_fairseq.experiments.json_files import read_as, write_json

COSTS = "costs.json"


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Counts of `sut-macs` for a model in training mode, without the backward pass.

    Attributes:
        params: number of parameters.
        macs: MACs for each example, attention products included.
        examples: number of training examples in the mean.
    """

    params: int
    macs: int
    examples: int


def read_costs(run: Path) -> Costs | None:
    """The costs of a run; None if they have not been counted.

    Raises:
        InputError: if the file is damaged.
    """
    path = run / COSTS
    return read_as(Costs, path) if path.is_file() else None


def write_costs(run: Path, costs: Costs) -> None:
    """Write costs into the folder of a run."""
    write_json(run / COSTS, dataclasses.asdict(costs))
