"""`sut-import`: what it writes is read by every command, and agrees with the original's outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

import sut_fairseq
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.errors import InputError
from sut_fairseq.inference.importing import import_published
from tests import reference_published as reference
from tests.integration.commands import SIZES, generate, run, train, words
from tests.published import checkpoint

THRESHOLDS = (0.999, 0.7, 0.3)
LINES = ["run and jump", "look twice and walk"]


@pytest.fixture(scope="module")
def theirs(joined_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the published code with random weights, and its outputs beside it."""
    folder = tmp_path_factory.mktemp("published")
    size = len(Dictionary.load(str(joined_data / "dict.src.txt")))
    state = checkpoint(words=size, dtype=torch.float32)
    torch.save(state, folder / "theirs.pt")
    tokens = torch.randint(4, size, (2, 2, 9), generator=torch.Generator().manual_seed(1))
    tokens[0, 0, :4] = tokens[1, 0, 6:] = reference.PAD
    for threshold in THRESHOLDS:
        logits = reference.logits(state["model"], state["cfg"]["model"], *tokens, threshold)
        np.savez(
            folder / f"{threshold}.npz",
            src_tokens=tokens[0],
            prev_output_tokens=tokens[1],
            logits=logits,
            alpha_threshold=threshold,
        )
    return folder / "theirs.pt"


@pytest.fixture(scope="module")
def ours(theirs: Path, joined_data: Path) -> Path:
    out = theirs.with_name("ours.pt")
    outputs = [theirs.with_name(f"{threshold}.npz") for threshold in THRESHOLDS]
    finished = run("sut-import", theirs, "--data", joined_data, "--check", *outputs, "--out", out)
    lines = finished.stdout.splitlines()
    for path, threshold, line in zip(outputs, THRESHOLDS, lines):
        agreement, _, difference = line.rpartition(" ")
        assert agreement == (
            f"{path}: 15 target tokens agree at alpha_threshold {threshold}, greatest difference"
        )
        assert float(difference) < 1e-4
    assert lines[3].startswith(f"wrote {out}: ") and lines[3].endswith(
        " parameters, 4 experts of attention and 3 of feed-forward layers, 4-3 steps, "
        "alpha_threshold 0.999"
    )
    assert lines[4:] == [f"translate with `sut-translate {out}`"]
    assert finished.stderr == ""
    return out


def test_what_is_written(ours: Path, joined_data: Path) -> None:
    state = load_checkpoint(ours)
    assert state["cfg"]["model"]["_name"] == "universal_transformer"
    assert state["cfg"]["model"]["attention_dropout"] == 0.2
    assert state["cfg"]["task"]["data"] == str(joined_data)
    assert [entry["num_updates"] for entry in state["optimizer_history"]] == [7]
    assert state["extra_state"] == {
        "train_iterator": {"epoch": 2, "iterations_in_epoch": 5},
        "val_loss": 3.5,
        "imported_from": "theirs.pt",
    }
    assert "last_optimizer_state" not in state
    assert {"words.source._extra_state", "words.target._extra_state"} <= state["model"].keys()
    tied = {tensor.data_ptr() for key, tensor in state["model"].items() if "tokens.weight" in key}
    assert len(tied) == 1


def test_commands_read_it(ours: Path, joined_data: Path, tmp_path: Path) -> None:
    lines = generate(joined_data, ours).stdout.splitlines()
    assert len([line for line in lines if line.startswith("H-")]) == SIZES["test"]
    text = "".join(f"{line}\n" for line in LINES)
    beam = words("--beam 2 --max-len-b 8 --device cpu")
    translated = run("sut-translate", ours, *beam, stdin=text).stdout.splitlines()
    loaded = sut_fairseq.load(ours, device="cpu")
    found = loaded.translate(LINES, beam=2, max_len_b=8)
    assert translated == [one.text for one in found] and len(translated) == 2
    evaluated = run("sut-evaluate", "--path", ours, "--data", joined_data, "--device", "cpu").stdout
    assert f"{SIZES['test']}" in evaluated
    run("sut-export", ours, "--out", tmp_path / "exported")
    again = sut_fairseq.load(tmp_path / "exported", device="cpu")
    assert again.translate(LINES, beam=2, max_len_b=8) == found


def test_training_goes_on_from_it(ours: Path, joined_data: Path, tmp_path: Path) -> None:
    """With a fresh optimizer, and options that the settings of the checkpoint name."""
    cfg = load_checkpoint(ours)["cfg"]["model"]
    numbers = words(
        "encoder_embed_dim encoder_layers decoder_layers encoder_attention_heads "
        "attention_head_dim attention_experts attention_top_k attention_window "
        "encoder_ffn_embed_dim ffn_experts ffn_top_k encoder_halting decoder_halting"
    )
    flags = [word for name in numbers for word in (f"--{name.replace('_', '-')}", cfg[name])]
    train(
        joined_data, tmp_path, "--arch", "universal_transformer", "--share-all-embeddings", *flags,
        "--finetune-from-model", ours,
    )  # fmt: skip
    trained = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    start = load_checkpoint(ours)["model"]
    for key, tensor in start.items():
        assert trained[key].shape == tensor.shape
        assert (trained[key].double() - tensor.double()).abs().max() < 0.01


def test_a_threshold_and_no_dictionaries(theirs: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours.pt"
    finished = run("sut-import", theirs, "--alpha-threshold", "0.5", "--out", out)
    first, second = finished.stdout.splitlines()
    assert first.endswith("alpha_threshold 0.5")
    assert second.startswith("no dictionaries were found: name their folder with --data")
    state = load_checkpoint(out)
    assert state["cfg"]["model"]["alpha_threshold"] == 0.5
    assert not [key for key in state["model"] if key.startswith("words.")]


def test_dictionaries_beside_it_may_be_of_other_data(
    theirs: Path, data: Path, joined_data: Path, tmp_path: Path
) -> None:
    for path in (theirs, *data.glob("dict.*.txt")):
        shutil.copy(path, tmp_path)
    with pytest.raises(InputError, match="name the data folder that it was trained on with --data"):
        import_published(tmp_path / theirs.name)
    files = import_published(tmp_path / theirs.name, data=joined_data).files
    assert files is not None and files.folder == joined_data


def test_other_outputs_are_refused_and_nothing_is_written(theirs: Path, tmp_path: Path) -> None:
    content = dict(np.load(theirs.with_name("0.7.npz")))
    del content["alpha_threshold"]
    np.savez(tmp_path / "unnamed.npz", **content)
    out = tmp_path / "ours.pt"
    line = ("sut-import", theirs, "--check", tmp_path / "unnamed.npz", "--out", out)
    finished = run(*line, ok=False)
    assert finished.status == 2 and not out.exists()
    assert "of 15 target tokens, by up to" in finished.last_line
    assert "(alpha_threshold 0.999), so nothing was written" in finished.last_line
    assert "agree at alpha_threshold 0.7" in run(*line, "--alpha-threshold", "0.7").stdout
    assert out.exists()


def test_impossible_outputs_and_other_dictionaries(
    theirs: Path, data: Path, tmp_path: Path
) -> None:
    for out, said in (
        (tmp_path, "is a folder: give the name of a file"),
        (tmp_path / "no" / "ours.pt", "no; make it first"),
        (theirs, "is the checkpoint itself; give another name"),
    ):
        finished = run("sut-import", theirs, "--out", out, ok=False)
        assert finished.status == 2 and said in finished.last_line
    finished = run("sut-import", theirs, "--data", data, "--out", tmp_path / "o.pt", ok=False)
    assert "words with the special symbols, but the model has" in finished.last_line
    finished = run("sut-import", theirs, "--data", tmp_path, "--out", tmp_path / "o.pt", ok=False)
    assert finished.status == 2 and "There is no dict." in finished.last_line
    assert import_published(theirs).files is None
