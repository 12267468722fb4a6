"""The data that `sut-experiment train` trains on."""

from __future__ import annotations

import argparse
from pathlib import Path

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import preparing, provenance, reading
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.schema import Experiment


def data_of(experiment: Experiment, arguments: argparse.Namespace) -> Data:
    """The prepared folder to train on, or the data that the task draws.

    Raises:
        InputError: if there is no such folder, except in a dry run.
    """
    if experiment.generate:
        if arguments.data is not None:
            raise InputError(
                f"{experiment.name} draws its data as it trains: leave --data {arguments.data} out."
            )
        split = preparing.split_of(experiment, arguments.split)
        dataset = experiment.dataset or experiment.name
        return provenance.describe_drawn(dataset, split, experiment.generate[split])
    folder: Path = arguments.data or preparing.folder_of(experiment, arguments.split)
    if arguments.data is None and not folder.is_dir():
        if arguments.dry_run:
            return Data(folder=str(folder.resolve()))
        split = f" --split {arguments.split}" if arguments.split else ""
        raise InputError(
            f"there is no folder {folder}: make it with `{PROGRAM_NAME} prepare "
            f"{arguments.name}{split}`, or name another one with --data."
        )
    data = provenance.describe_data(folder.resolve())
    if arguments.data is None:
        _check_data(experiment, preparing.split_of(experiment, arguments.split), data)
    return data


def _check_data(experiment: Experiment, split: str, data: Data) -> None:
    """Refuse a folder with the usual name that holds other data."""
    other_set = "" not in (data.dataset, experiment.dataset) and data.dataset != experiment.dataset
    # With only one split, or in a user's own file, the name need not be that of sut-prepare.
    named = len(experiment.splits) > 1 and reading.is_ours(experiment.path)
    there = data.split.replace("-", "_")  # a stamp of Multi30k has had `de-en`
    # sut-prepare stamps no split where a set has only one; ours may have others by its options.
    if not there and named and data.dataset == experiment.dataset:
        there = preparing.DEFAULT if preparing.DEFAULT in experiment.splits else ""
    other_split = there not in ("", split) and (named or there in experiment.splits)
    if other_set or other_split:
        raise InputError(
            f"{data.folder} holds {f'{data.dataset} {there}'.strip()}, not {experiment.dataset} "
            f"{split}: move it away and prepare the data again, or name the right folder with "
            "--data."
        )
