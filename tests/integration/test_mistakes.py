"""Mistakes that fairseq itself reports: without this package, by a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import TINY, Finished, generate, on_cpu, words


def assert_refused(finished: Finished, sentence: str) -> None:
    """It ends in the sentence alone."""
    assert finished.status == 1
    assert finished.last_line == f"error: {sentence}"
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            "--optimizer adam",
            "batches have no size: give --max-tokens (tokens of a batch, padding included) or "
            "--batch-size (sentences).",
        ),
        ("--batch-size 8", "--optimizer is missing: give adam, for example."),
        (
            "--batch-size 8 --optimizer adam --max-source-positions 1",
            "no sentence of the training set is left: those longer than --max-source-positions, "
            "--max-target-positions or --max-tokens are left out. Raise the one that is too small.",
        ),
        (
            "--batch-size 8 --optimizer adam --lr-scheduler polynomial_decay",
            "--total-num-update is missing: the chosen --lr-scheduler needs it.",
        ),
        (
            "--batch-size 8 --optimizer adam --lr-scheduler tri_stage",
            "please specify steps or phase_ratio.",
        ),
        ("--batch-size 8 --optimizer lamb", "Please install apex to use LAMB optimizer."),
        (
            "--batch-size 8 --optimizer adam --adam-betas 0.9",
            "`--adam-betas` must be two numbers from 0 to less than 1, such as '(0.9, 0.98)', but "
            "is 0.9 instead.",
        ),
    ],
)
def test_training(options: str, sentence: str, data: Path, tmp_path: Path) -> None:
    given = (*TINY, *words(options), "--save-dir", tmp_path)
    assert_refused(on_cpu("fairseq-train", data, *given, ok=False), sentence)


def test_generation(data: Path, trained: Path) -> None:
    finished = generate(data, trained, "--temperature", 0, ok=False)
    assert_refused(finished, "--temperature must be greater than 0.")
