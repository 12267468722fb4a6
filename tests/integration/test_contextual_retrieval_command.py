"""The contextual retrieval experiment by its commands: data that nobody prepares, real numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.integration.commands import USER_DIR, run, words

NAME = "sut-experiment"
TINY = words("-- --sets-per-epoch 64 --evaluation-sets 64")
TRAIN = words("train contextual_retrieval --size small --updates 2 --gpus 0")


def test_train_evaluate_compare_report(tmp_path: Path) -> None:
    seeds = words("--models compositional --seeds 1 2 --jobs 2")
    trained = run(NAME, *TRAIN, *seeds, *TINY, cwd=tmp_path)
    assert "trained compositional, seed 1 in " in trained.stdout
    runs = tmp_path / "runs" / "contextual_retrieval"
    ours = runs / "held_out-compositional-small-seed-1"
    record = json.loads((ours / "run.json").read_text())
    assert record["data"]["folder"] == "" and record["data"]["split"] == "held_out"
    command = record["sessions"][0]["command"]
    assert command[:2] == ["fairseq-train", "--user-dir"] and "--source-lang" not in command
    again = run(NAME, *TRAIN, *seeds, *TINY, cwd=tmp_path)
    assert again.stdout.count("already trained: ") == 2

    evaluated = run(NAME, "evaluate", runs, cwd=tmp_path).stdout
    assert evaluated.count("held_out: 64 sets, 0.") == 2 and ", published 0.28" in evaluated
    run(NAME, "compare", runs, "--groups", "--csv", tmp_path / "rows.csv", cwd=tmp_path)
    with open(tmp_path / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["group"] for row in rows] == ["shown", "held_out", "all"]
    assert {row["measure"] for row in rows} == {"absolute_error"}
    assert [row["paper"] for row in rows] == ["", "0.28", ""]
    assert all(0 < float(row["mean"]) < 3 and row["seeds"] == "1 2" for row in rows)
    page = run(NAME, "report", runs, cwd=tmp_path).stdout
    assert "--split held_out --models compositional" in page
    assert "Set `test`, mean absolute error:" in page

    checkpoint = ours / "checkpoints" / "checkpoint_last.pt"
    shown = run("sut-report", "--path", checkpoint, "--out", tmp_path / "pictures")
    assert shown.stdout.startswith("search 1 of the task: the model's search ")
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {
        *(f"value_scores_by_{by}.{end}" for by in ("wanted", "search") for end in ("png", "pdf")),
        "value_scores.csv",
    }
    with open(tmp_path / "pictures" / "value_scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 3 * 2 * 4 * 4
    for table in ("rows.csv", "pictures/value_scores.csv"):
        assert b"\r" not in (tmp_path / table).read_bytes()
    for line in ("--head 1", "--experts", "--beam 1", "--max-len 9"):
        asked = ("--path", checkpoint, *words(line), "--out", tmp_path)
        refused = run("sut-report", *asked, ok=False)
        sentence = f"this model reads no words: leave {line.split()[0]} out."
        assert refused.last_line == f"sut-report: error: {sentence}"
    asked = ("--path", checkpoint, *words("--max-sentences 5 --max-tokens 9"), "--out", tmp_path)
    refused = run("sut-report", *asked, ok=False)
    assert refused.last_line.endswith("leave --max-sentences and --max-tokens out.")
    for command, sentence in (
        ("sut-evaluate", "contextual_retrieval predicts numbers, of which none is right or wrong"),
        ("sut-macs", "a contextual_retrieval model reads objects made of numbers, not words"),
    ):
        refused = run(command, "--path", checkpoint, ok=False)
        assert refused.status == 2 and sentence in refused.last_line
    loaded = (
        "from sut_fairseq.models import ContextualRetrievalModel as Model\n"
        f"hub = Model.from_pretrained({str(checkpoint.parent)!r}, {checkpoint.name!r})\n"
        "print(type(hub.models[0]).__name__)\n"
    )
    assert run("python", "-c", loaded).stdout == "ContextualRetrievalModel\n"
    untrained = run("sut-macs", "--arch", "contextual_retrieval_compositional", ok=False)
    assert untrained.last_line == refused.last_line


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "prepare contextual_retrieval",
            "contextual_retrieval draws its data as it trains: there is nothing to prepare.",
        ),
        (
            "train contextual_retrieval --data x",
            "contextual_retrieval draws its data as it trains: leave --data x out.",
        ),
        (
            "train contextual_retrieval --split alll",
            "contextual_retrieval has the splits held_out, all, not `alll` (did you mean `all`?).",
        ),
    ],
)
def test_there_is_no_folder(line: str, sentence: str, tmp_path: Path) -> None:
    refused = run(NAME, *words(line), cwd=tmp_path, ok=False)
    assert refused.status == 2 and refused.last_line == f"{NAME}: error: {sentence}"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--criterion cross_entropy",
            "--task contextual_retrieval needs --criterion absolute_error, not cross_entropy.",
        ),
        (
            "--attention-retrievals 0",
            "`attention_retrievals` must be at least 1, but is 0 instead.",
        ),
        (
            "--attention-retrieval-dim 0",
            "`attention_retrieval_dim` must be at least 1, but is 0 instead.",
        ),
        ("--attention-value-dim 0", "`attention_value_dim` must be at least 1, but is 0 instead."),
        (
            "--encoder-attention-heads 5",
            "`encoder_embed_dim` must be a multiple of `encoder_attention_heads` (5) unless "
            "`attention_head_dim` is given, but is 64 instead.",
        ),
        (
            "--attention-experts 2",
            "`attention_experts` must be 1 for `attention_kind` compositional, but is 2 instead.",
        ),
        (
            "--attention-kind multihead --attention-biases value-scores",
            "`attention_biases` must be none or all for `attention_kind` multihead, but is "
            "value-scores instead.",
        ),
        ("--held-out 0.9", "`held_out` must be at least 0 and at most 0.5, but is 0.9 instead."),
        (
            "--num-retrievals 1",
            "`held_out` must be a share of at most 0 of the 1 combinations, but is 0.2 instead.",
        ),
        (
            "--search-weights 1,nan",
            "`search_weights` must be a number for each of the 2 searches, with commas between "
            "them, but is 1,nan instead.",
        ),
        (
            "--valid-subset dev",
            "there is no set `dev`; there are train, valid, valid_held_out, valid_all, test, "
            "test_held_out, test_all.",
        ),
    ],
)
def test_bad_options_end_in_a_sentence(flags: str, sentence: str, tmp_path: Path) -> None:
    fixed = words(
        "--task contextual_retrieval --arch contextual_retrieval_compositional --cpu "
        "--criterion absolute_error --optimizer adam --batch-size 8 --max-update 1"
    )
    line = (*fixed, *words(flags), "--user-dir", USER_DIR, "--save-dir", tmp_path)
    refused = run("fairseq-train", *line, ok=False)
    assert refused.status == 1 and refused.last_line == f"error: {sentence}"
    assert "Traceback" not in refused.stderr
