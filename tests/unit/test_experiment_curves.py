"""Curves of trainings, read from their logs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import curves

LOG = """2026-11-22 13:00:00 | INFO | fairseq.trainer | begin training epoch 1
2026-11-22 13:00:01 | INFO | train_inner | {"epoch": 1, "nll_loss": "2", "num_updates": "20"}
2026-11-22 13:00:02 | INFO | train_inner | {"epoch": 1, "nll_loss": "9", "num_updates": "40"}
2026-11-22 13:00:03 | INFO | valid | {"epoch": 1, "valid_nll_loss": "1.5", "valid_ppl": "2.83", \
"valid_accuracy": "12.5", "valid_best_accuracy": "12.5", "valid_num_updates": "40"}
2026-11-22 13:00:04 | INFO | train | {"epoch": 1, "train_nll_loss": "1", "train_num_updates": "40"}
2026-11-22 13:01:02 | INFO | train_inner | {"epoch": 1, "nll_loss": "1", "num_updates": "40"}
2026-11-22 13:01:03 | INFO | train_inner | {"epoch": 1, "nll_
"""


LOGS_OF_ALL = {
    "json": (
        "2026-01-01 10:00:00 | INFO | fairseq_cli.train | {'_name': None}\n"
        '2026-01-01 10:00:01 | INFO | train_inner | {"epoch": 1, "update": 0.5, "nll_loss": "3.5", '
        '"wps": "9", "num_updates": "2", "lr": "0.1"}\n'
        '2026-01-01 10:00:02 | INFO | train_inner | {"epoch": 1, "update": 1, "nll_loss": "2.5", '
        '"num_updates": "4"}\n'
        '2026-01-01 10:00:03 | INFO | valid | {"epoch": 1, "valid_nll_loss": "2.75", '
        '"valid_num_updates": "4", "valid_best_loss": "1"}\n'
        '2026-01-01 10:00:04 | INFO | train | {"epoch": 1, "train_nll_loss": "3", '
        '"train_encoder_depth": "8", "train_num_updates": "4"}\n'
        "2026-01-01 10:00:05 | INFO | valid | {broken\n"
    ),
    "plain": (
        "2026-01-01 10:00:01 | INFO | train_inner | epoch 001:      2 / 4 nll_loss=3.5, wps=9, "
        "num_updates=2, lr=0.1\n"
        "2026-01-01 10:00:02 | INFO | train_inner | epoch 001:      4 / 4 nll_loss=2.5, "
        "num_updates=4\n"
        "2026-01-01 10:00:03 | INFO | valid | epoch 001 | valid on 'valid' subset | nll_loss 2.75 "
        "| num_updates 4 | best_loss 1\n"
        "2026-01-01 10:00:04 | INFO | train | epoch 001 | nll_loss 3 | encoder_depth 8 | "
        "num_updates 4\n"
    ),
}


@pytest.mark.parametrize("log_file", [False, True])
@pytest.mark.parametrize("kind", LOGS_OF_ALL)
def test_curves_with_all_of_training(kind: str, log_file: bool) -> None:
    """In both formats, printed or in a `--log-file`; epochs stand for what is never else logged."""
    lines = LOGS_OF_ALL[kind].splitlines()
    if log_file:
        lines = [line.split(" | ", 3)[-1] for line in lines]
    assert curves.read_log(lines, all_of_training=True) == [
        curves.Point(2, "train", "lr", 0.1),
        curves.Point(2, "train", "nll_loss", 3.5),
        curves.Point(4, "train", "encoder_depth", 8.0),
        curves.Point(4, "train", "nll_loss", 2.5),
        curves.Point(4, "valid", "nll_loss", 2.75),
    ]
    assert [point.value for point in curves.read_log(lines)] == [3.5, 2.5, 2.75]


@pytest.mark.parametrize("kind", LOGS_OF_ALL)
def test_curves_of_a_log_of_hydra(kind: str) -> None:
    """fairseq-hydra-train logs the same lines, with time and logger in brackets."""
    log = LOGS_OF_ALL[kind]
    hydras = re.sub(r"(?m)^(\S+ \S+) \| INFO \| (\S+) \| ", r"[\1,123][\2][INFO] - ", log)
    expected = curves.read_log(log.splitlines(), all_of_training=True)
    assert curves.read_log(hydras.splitlines(), all_of_training=True) == expected != []


def test_curves() -> None:
    """An update that a resumed training made again counts once; halves of lines do not count."""
    assert curves.read_log(LOG.splitlines()) == [
        curves.Point(20, "train", "nll_loss", 2.0),
        curves.Point(40, "train", "nll_loss", 1.0),
        curves.Point(40, "valid", "accuracy", 12.5),
        curves.Point(40, "valid", "nll_loss", 1.5),
    ]


@pytest.mark.parametrize("log_file", [False, True])
@pytest.mark.parametrize("kind", LOGS_OF_ALL)
def test_a_log_that_ends_anywhere(kind: str, log_file: bool) -> None:
    """A killed training leaves half a line; what stands before it counts."""
    lines = LOGS_OF_ALL[kind].splitlines(keepends=True)
    if log_file:
        lines = [line.split(" | ", 3)[-1] for line in lines]
    for whole, line in enumerate(lines):
        before = set(curves.read_log(lines[:whole]))
        for end in range(len(line)):
            assert before <= set(curves.read_log([*lines[:whole], line[:end]]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"update,subset,measure\n1,valid,accuracy\n", "KeyError: 'value'"),
        (b"update,subset,measure,value\n1,valid,accuracy\n", "TypeError: "),
        (b"update,subset,measure,value\n" + b"1,valid,accuracy,9\n" * 99 + b"\xff", "UnicodeDecod"),
        (b"update,subset,measure,value\n" + b"9" * 200_000, "Error: field larger than"),
    ],
)
def test_a_damaged_curve(content: bytes, reason: str, tmp_path: Path) -> None:
    """The message is short, whatever the file holds."""
    assert curves.read_curve(tmp_path) == []
    (tmp_path / "curve.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"curve.csv is damaged .*: remove it") as caught:
        curves.read_curve(tmp_path)
    assert f"({reason}" in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_an_epoch_that_ends_between_two_logged_updates() -> None:
    """Its mean of what is logged more often is left out there, too."""
    log = """\
| INFO | train_inner | {"nll_loss": "3.5", "num_updates": "2"}
| INFO | train | {"train_nll_loss": "3", "train_depth": "8", "train_num_updates": "3"}
"""
    points = curves.read_log(log.splitlines(), all_of_training=True)
    assert points == [(2, "train", "nll_loss", 3.5), (3, "train", "depth", 8.0)]


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_entries_without_a_number_of_updates_are_left_out(number: str) -> None:
    line = '| INFO | valid | {"valid_loss": "3.5", "valid_num_updates": "%s"}'
    assert curves.read_log([line % number]) == []
    assert curves.read_log([line % 4]) == [(4, "valid", "loss", 3.5)]
