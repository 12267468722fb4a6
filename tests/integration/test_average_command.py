"""Train a stock fairseq model, average its best checkpoints, and generate with the result."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sut_fairseq.cli._command import load_checkpoint
from sut_fairseq.cli.exact_match import main as exact_match

TEST_SENTENCES = 11  # no multiple of fairseq's default batch multiple of 8

MODEL = (
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 "
    "--decoder-embed-dim 8 --encoder-ffn-embed-dim 8 --decoder-ffn-embed-dim 8 "
    "--encoder-attention-heads 1 --decoder-attention-heads 1 --share-all-embeddings"
)


def _start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start what a console command runs: `main` of a module, or `cli_main` of fairseq's."""
    entry = "cli_main" if module.startswith("fairseq_cli") else "main"
    program = f"import sys; from {module} import {entry} as main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _output(process: subprocess.Popen[str]) -> str:
    """Standard output of a command that must succeed."""
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr[-2000:]
    return stdout


def _run(module: str, *arguments: object) -> str:
    return _output(_start(module, *arguments))


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
    _run("fairseq_cli.preprocess", *options.split(), *prefixes)
    return binarised


@pytest.fixture(scope="module")
def run(data: Path, repository: Path) -> Path:
    """Three epochs, with fairseq's names for the checkpoints and its copies of the best ones."""
    save_dir = data.parent / "run"
    options = (
        f"{data} --user-dir {repository / 'sut_fairseq'} --save-dir {save_dir} --cpu {MODEL} "
        "--optimizer adam --lr 0.01 --max-epoch 3 --batch-size 20 --num-workers 0 "
        "--required-batch-size-multiple 1 --keep-best-checkpoints 2 --seed 1"
    )
    _run("fairseq_cli.train", *options.split())
    return save_dir


def test_average_the_best_and_generate(
    data: Path, run: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(run.glob("*.pt"))) == 7, "3 epochs, 2 copies of the best, best and last"
    mean_path = data.parent / "mean.pt"
    arguments = ("--from", run, "--best", 2, "--output", mean_path, "--json")
    report = json.loads(_run("sut_fairseq.cli.average", *arguments))

    epochs = {n: load_checkpoint(run / f"checkpoint{n}.pt") for n in (1, 2, 3)}
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

    options = (
        f"{data} --user-dir {repository / 'sut_fairseq'} --path {mean_path} --cpu --beam 1 "
        "--max-len-b 8 --num-workers 0 --batch-size 8 --required-batch-size-multiple"
    ).split()
    # Both at once: most of the time is importing.
    all_of_them = _start("fairseq_cli.generate", *options, 1)
    by_default = _start("fairseq_cli.generate", *options, 8)
    generated = data.parent / "generated.txt"

    generated.write_text(_output(all_of_them))
    assert exact_match([str(generated), "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored"] == TEST_SENTENCES

    # fairseq's default leaves sentences out, and the command must notice.
    generated.write_text(_output(by_default))
    assert exact_match([str(generated), "--data", str(data)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"3 of {TEST_SENTENCES} sentences are missing" in captured.err
