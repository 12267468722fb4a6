"""Long lookup tables from data to a report, and gold attention that is missing or wrong."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from sut_fairseq.analysis import trained
from sut_fairseq.errors import InputError
from tests.integration.commands import Finished, on_cpu, run, words

SETS = ["interpolation", *(f"long_{more}" for more in range(1, 6))]
PREPARE = "sut-experiment prepare long_lookup_tables --split noisy --out data -- --limit 90"
TRAIN = "sut-experiment train long_lookup_tables --data data --models mix --out run -- --max-epoch"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two epochs on a few pairs of the noisy variant."""
    folder = tmp_path_factory.mktemp("long")
    run(*words(PREPARE), cwd=folder)
    run(*words(TRAIN), 2, cwd=folder)
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_validation_reports_the_measures(place: Path) -> None:
    log = Finished(0, (place / "run" / "train.log").read_text(), "").logged("valid")
    assert len(log) == 2
    for line in log:
        assert 0 <= float(line["valid_exact_match"]) <= float(line["valid_before_eos"]) <= 100
        assert float(line["valid_attention_loss"]) > 0


def test_evaluation_and_report(place: Path) -> None:
    """Every set has its row and every measure its table, whatever the batches are."""
    shown = run(*words("sut-experiment evaluate run"), cwd=place).stdout
    assert all(name in shown for name in ("exact match", "before <eos>", "attention loss"))
    rows = rows_of(place / "run" / "test-by-set.csv")
    assert {row["group"] for row in rows} <= {*SETS, "all"} and rows[-1]["group"] == "all"
    assert {row["mode"] for row in rows} == {"search"}
    assert sum(int(row["sentences"]) for row in rows[:-1]) == int(rows[-1]["sentences"]) == 90
    for row in rows:
        assert float(row["percent"]) <= float(row["before_eos"])
        assert float(row["attention_loss"]) > 0
    assert (place / "run" / "test-by-set.png").stat().st_size > 0
    checkpoint = place / "run" / "checkpoints" / "checkpoint_best.pt"
    evaluate = ("sut-evaluate", "--path", checkpoint, "--data", place / "data")
    again = place / "again.csv"
    run(*evaluate, *words("--by set --max-tokens 50 --csv"), again)
    same = ("group", "sentences", "percent", "before_eos")
    for row, other in zip(rows, rows_of(again), strict=True):
        assert [row[name] for name in same] == [other[name] for name in same]
        losses = [float(one["attention_loss"]) for one in (row, other)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    # On the references exact match is the same; only greedy search has the other measures.
    run(*evaluate, *words("--modes search reference --max-sentences 40 --csv"), again)
    greedy, reference = rows_of(again)
    assert greedy["percent"] == reference["percent"] and reference["attention_loss"] == ""
    run(*evaluate, *words("--modes search --beam 2 --bleu --max-sentences 40 --csv"), again)
    (beam,) = rows_of(again)
    assert beam["attention_loss"] == "" and float(beam["bleu"]) >= 0
    # Searching is usual here.
    run(*evaluate, *words("--beam 2 --max-len 5 --max-sentences 4"))
    report = run(*words("sut-experiment report run --figures figures"), cwd=place)
    assert "attention loss, in squared source words:" in report.stdout
    assert "--figures: nothing to draw." in report.stderr  # another number of epochs


def test_gold_attention_is_wanted(place: Path, tmp_path: Path) -> None:
    """Before anything is computed, a sentence says what is missing or does not fit."""
    data = shutil.copytree(place / "data", tmp_path / "data")
    column = data / "text" / "valid.attention"
    lines = column.read_text().splitlines()
    checkpoint = place / "run" / "checkpoints" / "checkpoint_best.pt"
    column.write_text("\n".join([lines[0], "0 1", *lines[2:]]) + "\n")
    options = words(
        "--task translation_with_gold_attention --arch location_mix --lr 1 --max-epoch 1"
    )
    options += ("--optimizer", "adam", "--batch-size", 9, "--save-dir", tmp_path / "save")
    train = ("fairseq-train", data, *options)
    for command in (
        train,
        ("sut-evaluate", "--path", checkpoint, "--data", data, "--gen-subset", "valid"),
    ):
        refused = (on_cpu if command is train else run)(*command, ok=False)
        assert "valid.attention`, line 2: the gold attention of this pair must be" in refused.stderr
        assert "but is `0 1`" in refused.last_line and "Traceback" not in refused.stderr
    column.write_text("\n".join(lines[1:]) + "\n")
    assert "prepare the data again" in on_cpu(*train, ok=False).last_line
    column.unlink()
    assert "has no column `attention`" in on_cpu(*train, ok=False).last_line


def test_training_pairs_may_lack_gold_attention(place: Path, tmp_path: Path) -> None:
    data = shutil.copytree(place / "data", tmp_path / "data")
    checkpoint = place / "run" / "checkpoints" / "checkpoint_best.pt"
    evaluate = ("sut-evaluate", "--path", checkpoint, "--data", data, "--gen-subset", "train")
    run(*evaluate, *words("--max-sentences 20 --csv"), tmp_path / "rows.csv")
    (row,) = rows_of(tmp_path / "rows.csv")
    assert row["before_eos"] and row["attention_loss"] == ""
    # Where there is some, it is read.
    targets = (data / "text" / "train.tgt").read_text().splitlines()
    gold = "".join("0 " * (len(line.split()) + 1) + "\n" for line in targets)
    (data / "text" / "train.attention").write_text(gold)
    run(*evaluate, *words("--max-sentences 20 --csv"), tmp_path / "rows.csv")
    (row,) = rows_of(tmp_path / "rows.csv")
    assert float(row["attention_loss"]) > 0


def test_cut_sources_are_refused(place: Path) -> None:
    checkpoint = place / "run" / "checkpoints" / "checkpoint_best.pt"
    _, task = trained.load(str(checkpoint), {"truncate_source": True})
    with pytest.raises(InputError, match="^--truncate-source cuts .* of valid .*: leave it out"):
        task.load_dataset("valid")


def test_each_epoch_has_the_gold_attention_of_its_folder(place: Path, tmp_path: Path) -> None:
    """fairseq trains on one of several folders after the other."""
    folders = [shutil.copytree(place / "data", tmp_path / name) for name in ("a", "b")]
    targets = (folders[1] / "text" / "train.tgt").read_text().splitlines()
    gold = "".join("0 " * (len(line.split()) + 1) + "\n" for line in targets)
    (folders[0] / "text" / "train.attention").write_text("0\n")
    (folders[1] / "text" / "train.attention").write_text(gold)
    checkpoint = place / "run" / "checkpoints" / "checkpoint_best.pt"
    _, task = trained.load(str(checkpoint), {"data": ":".join(map(str, folders))})
    with pytest.raises(InputError, match=f"{folders[0]}.*has 1 values, but the split has"):
        task.load_dataset("train", epoch=1)
    task.load_dataset("train", epoch=2)
    assert len(task.dataset("train")) == len(targets)


def test_a_model_of_fairseqs_keeps_its_words(place: Path, tmp_path: Path) -> None:
    """Dictionaries of the same size with other words would make nonsense of a checkpoint."""
    data = shutil.copytree(place / "data", tmp_path / "data")
    model = words(
        "--task translation_with_gold_attention --arch transformer --encoder-layers 1 "
        "--decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8 --lr 1 --optimizer adam"
    )
    train = ("fairseq-train", data, *model, "--batch-size", 9, "--save-dir", tmp_path / "save")
    on_cpu(*train, "--max-update", 1)
    checkpoint = tmp_path / "save" / "checkpoint_last.pt"
    without_task = on_cpu("fairseq-generate", data, "--path", checkpoint, ok=False)
    assert without_task.last_line.endswith("a task of this package: name it with --task here too.")
    assert without_task.status == 1 and "Traceback" not in without_task.stderr
    dictionary = data / "dict.tgt.txt"
    dictionary.write_text("".join(reversed(dictionary.read_text().splitlines(keepends=True))))
    for command in (
        (*train, "--max-update", 2),
        ("fairseq-generate", data, *model[:2], "--path", checkpoint),
    ):
        refused = on_cpu(*command, ok=False)
        assert refused.status == 1 and "Traceback" not in refused.stderr
        assert "the target words of the data are others than those that" in refused.last_line
