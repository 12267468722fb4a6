"""Train a stock fairseq model, average its best checkpoints, and generate with the result."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli.exact_match import main as exact_match
from tests.integration.commands import on_cpu, run, words

TEST_SENTENCES = 11  # no multiple of fairseq's default batch multiple of 8

MODEL = (
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 "
    "--decoder-embed-dim 8 --encoder-ffn-embed-dim 8 --decoder-ffn-embed-dim 8 "
    "--encoder-attention-heads 1 --decoder-attention-heads 1 --share-all-embeddings"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised set of sentences to copy."""
    text = tmp_path_factory.mktemp("text")
    generator = random.Random(1)
    for subset, count in (("train", 60), ("valid", 8), ("test", TEST_SENTENCES)):
        lines = [
            " ".join(generator.choices("abcd", k=generator.randint(1, 4))) for _ in range(count)
        ]
        for language in ("src", "tgt"):
            (text / f"{subset}.{language}").write_text("\n".join(lines) + "\n")
    prefixes = [f"--{subset}pref={text / subset}" for subset in ("train", "valid", "test")]
    binarised = text / "data-bin"
    options = f"--source-lang src --target-lang tgt --joined-dictionary --destdir {binarised}"
    run("fairseq-preprocess", *words(options), *prefixes)
    return binarised


@pytest.fixture(scope="module")
def save_dir(data: Path) -> Path:
    """Three epochs, with fairseq's names for the checkpoints and its copies of the best ones."""
    folder = data.parent / "run"
    options = (
        f"--save-dir {folder} {MODEL} --optimizer adam --lr 0.01 --max-epoch 3 --batch-size 20 "
        "--keep-best-checkpoints 2 --seed 1"
    )
    on_cpu("fairseq-train", data, *words(options))
    return folder


def test_average_the_best_and_generate(
    data: Path, save_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(save_dir.glob("*.pt"))) == 7, "3 epochs, 2 copies of the best, best and last"
    mean_path = data.parent / "mean.pt"
    arguments = ("--from", save_dir, "--best", 2, "--output", mean_path, "--json")
    report = json.loads(run("sut-average", *arguments).stdout)

    epochs = {n: load_checkpoint(save_dir / f"checkpoint{n}.pt") for n in (1, 2, 3)}
    losses = {n: state["extra_state"]["val_loss"] for n, state in epochs.items()}
    best = sorted(losses, key=lambda n: losses[n])[:2]
    chosen = [(c["epoch"], c["value"]) for c in report["checkpoints"]]
    assert chosen == [(n, losses[n]) for n in best]

    mean = load_checkpoint(mean_path)["model"]
    for key, tensor in mean.items():
        expected = (epochs[best[0]]["model"][key] + epochs[best[1]]["model"][key]) / 2
        torch.testing.assert_close(tensor, expected)
    tied = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert mean[tied[0]].data_ptr() == mean[tied[1]].data_ptr()

    options = ("--path", mean_path, *words("--beam 1 --max-len-b 8 --batch-size 8"))
    generated = data.parent / "generated.txt"

    generated.write_text(on_cpu("fairseq-generate", data, *options).stdout)
    assert exact_match([str(generated), "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored"] == TEST_SENTENCES

    # fairseq's default leaves sentences out, and the command must notice.
    default = ("--required-batch-size-multiple", 8)
    generated.write_text(on_cpu("fairseq-generate", data, *options, *default).stdout)
    assert exact_match([str(generated), "--data", str(data)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"3 of {TEST_SENTENCES} sentences are missing" in captured.err
