"""`sut-evaluate` on sequences: groups, thresholds, both ways of asking, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.cli._evaluate_options import make_parser, num_rows
from tests.integration.commands import SIZES, generate, run, train, words


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt some of the training pairs and halts early."""
    folder = tmp_path_factory.mktemp("half")
    train(
        data, folder, *words("--arch sut_tiny --encoder-embed-dim 32 --encoder-ffn-embed-dim 32"),
        *words("--max-update 60 --lr 0.004 --batch-size 20 --expected-depth-weight 0.02"),
        *words("--disable-validation --save-interval 100 --log-interval 100"),
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def evaluate(checkpoint: Path, data: Path, *arguments: object) -> dict[str, Any]:
    fixed = ("--path", checkpoint, "--data", data, "--device", "cpu", "--json")
    result: dict[str, Any] = json.loads(run("sut-evaluate", *fixed, *arguments).stdout)
    return result


def test_reference_and_search_agree(checkpoint: Path, data: Path) -> None:
    """What greedy search finds is known without searching, at each threshold."""
    options = words("--gen-subset train --modes reference search --thresholds 0.999 0.6 0.2")
    rows = evaluate(checkpoint, data, *options)["rows"]
    reference, search = rows[:3], rows[3:]
    assert [row["right"] for row in reference] == [row["right"] for row in search]
    assert 0 < reference[0]["right"] < SIZES["train"]
    assert reference[0]["skipped"] < reference[1]["skipped"] <= reference[2]["skipped"]
    assert all(row["sentences"] == SIZES["train"] for row in rows)


def test_the_same_as_generating_and_scoring(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    generated = tmp_path / "generated.txt"
    subset = ("--gen-subset", "train")
    generated.write_text(
        generate(data, checkpoint, *subset, *words("--beam 1 --max-len-b 20")).stdout
    )
    scored = run("sut-exact-match", generated, "--data", data, *subset, "--json")
    (row,) = evaluate(checkpoint, data, *subset, "--max-tokens", 40)["rows"]
    assert row["right"] == json.loads(scored.stdout)["correct"]


@pytest.mark.parametrize("by", ["source_length", "target_length"])
def test_groups_add_up(checkpoint: Path, data: Path, by: str) -> None:
    fixed = words("--gen-subset train --bins all --by")
    *groups, total = evaluate(checkpoint, data, *fixed, by)["rows"]
    assert len(groups) > 2
    sizes = [int(row["group"]) for row in groups]
    assert sizes == sorted(sizes)
    for key in ("sentences", "right"):
        assert sum(row[key] for row in groups) == total[key]


def test_lengths_share_rows(checkpoint: Path, data: Path) -> None:
    fixed = words("--gen-subset train --by target_length --bins")
    *ranges, total = evaluate(checkpoint, data, *fixed, 2)["rows"]
    first, second = ([int(end) for end in row["group"].split(" to ")] for row in ranges)
    assert first[-1] < second[0]
    assert sum(row["sentences"] for row in ranges) == total["sentences"] == SIZES["train"]


@pytest.mark.parametrize(
    ("options", "most"),
    [("--by source_length", 10), ("--by target_length --bins all", 0), ("--by operators", 0)],
)
def test_only_lengths_share_rows_by_default(options: str, most: int) -> None:
    fixed = ["--path", "a.pt", "--data", "data-bin/a"]
    assert num_rows(make_parser().parse_args([*fixed, *words(options)])) == most


def test_published_numbers_stand_beside_ours(checkpoint: Path, data: Path) -> None:
    fixed = ("sut-evaluate", "--path", checkpoint, "--data", data, "--published", "all=12.5", "7=9")
    finished = run(*fixed)
    assert "12.5 %" in finished.stdout
    assert finished.last_line == "no group 7 here, so 9 is shown nowhere"


def test_macs_are_those_of_sut_macs(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    sentences = words("--max-sentences 9")
    options = words("--thresholds 0.9 0.3 --macs --modes reference search")
    rows = evaluate(checkpoint, data, *sentences, *options)["rows"]
    counted = {}
    for threshold in (0.9, 0.3):
        line = ("--path", checkpoint, "--data", data, *sentences, "--json")
        finished = run("sut-macs", *line, "--alpha-threshold", threshold)
        counted[threshold] = json.loads(finished.stdout)["macs_full"]
    assert len(rows) == 4
    assert all(row["macs"] == counted[row["alpha_threshold"]] for row in rows)
    shown = run("sut-evaluate", "--path", checkpoint, "--data", data, *sentences, "--macs").stdout
    assert "MACs per pair" in shown and " M\n" in shown


def test_bleu_of_search(checkpoint: Path, data: Path) -> None:
    (row,) = evaluate(checkpoint, data, *words("--gen-subset train --modes search --bleu"))["rows"]
    assert row["percent"] < row["bleu"] < 100


def test_a_picture_of_thresholds(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    rows = evaluate(checkpoint, data, *words("--thresholds 0.9 0.3 --plot"), picture)["rows"]
    assert all(row["seconds"] > 0 for row in rows)
    assert "<svg" in picture.read_text()


def test_seconds_are_shown_where_they_can_be_compared(checkpoint: Path, data: Path) -> None:
    shown = [
        run("sut-evaluate", "--path", checkpoint, "--data", data, *words(thresholds)).stdout
        for thresholds in ("", "--thresholds 0.9 0.3")
    ]
    assert ["seconds" in table for table in shown] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--thresholds 0", "`--thresholds` must be greater than 0, at most 1, but is 0.0 instead."),
        ("--published all=nan", "must be GROUP=NUMBER, but is 'all=nan'"),
        ("--by source_length --bins few", "must be a whole number of at least 1, but is `few`"),
        (
            "--by operators",
            "has no column `operators`; its columns are: none; source_length and target_length "
            "need none.",
        ),
        ("--gen-subset nix", "has no split `nix`: check --gen-subset."),
        ("--confusion", "--confusion needs a model trained for sequence_classification or"),
        ("--conjuncts", "--conjuncts compares what was generated: give --modes search with it."),
        ("--bleu", "--bleu compares what was generated: give --modes search with it."),
        ("--bins 3", "--bins is for groups: give --by with it, or leave it out."),
        ("--bins all", "--bins is for groups: give --by with it, or leave it out."),
        ("--beam 1", "--beam is for what is generated: give --modes search with it, or leave it"),
        ("--max-len 9 --modes reference", "--max-len is for what is generated: give --modes sear"),
        ("--csv nix/rows.csv", "--csv nix/rows.csv: there is no folder nix; make it first."),
        ("--plot .", "--plot . is a folder: give the name of a file."),
        ("--device nix", "The device nix cannot be used here"),
        ("--plot picture.nix", "--plot picture.nix: its ending must be one of"),
    ],
)
def test_bad_input(checkpoint: Path, data: Path, arguments: str, sentence: str) -> None:
    fixed = ("--path", checkpoint, "--data", data)
    finished = run("sut-evaluate", *fixed, *words(arguments), ok=False)
    assert finished.status == 2
    assert finished.last_line.startswith("sut-evaluate: error: ") and sentence in finished.last_line
    assert "Traceback" not in finished.stderr


def test_a_group_cannot_have_the_name_of_the_whole_set(
    checkpoint: Path, data: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    (copy / "text").mkdir(exist_ok=True)
    (copy / "text" / "test.kind").write_text("all\n" * SIZES["test"])
    line = ("--path", checkpoint, "--data", copy, "--by", "kind")
    finished = run("sut-evaluate", *line, ok=False)
    assert finished.status == 2
    assert "the column `kind` has the value `all`, which stands for" in finished.last_line


def test_a_sentence_that_is_too_long(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    train(
        data, tmp_path, *words("--arch sut_tiny --encoder-embed-dim 32 --max-source-positions 4"),
        *words("--skip-invalid-size-inputs-valid-test --disable-validation"),
    )  # fmt: skip
    path = tmp_path / "checkpoint_last.pt"
    finished = run("sut-evaluate", "--path", path, "--data", data, ok=False)
    assert finished.status == 2
    assert "have more than 4 tokens, the most that the model takes" in finished.last_line
