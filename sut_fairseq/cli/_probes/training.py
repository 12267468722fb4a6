"""In a folder, trains a tiny model on random words and generates, with fairseq's commands."""

from __future__ import annotations

import io
import json
import math
import random
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from fairseq_cli import generate, preprocess, train

USER_DIR = str(Path(__file__).resolve().parents[2])
UPDATES = 20
SIZES = {"train": 64, "valid": 8, "test": 8}
_LANGUAGES = ("--source-lang", "src", "--target-lang", "tgt")
_PLUGIN = ("--user-dir", USER_DIR, "--num-workers", "0", "--required-batch-size-multiple", "1")
_MODEL = (
    "--arch sut_tiny --encoder-embed-dim 32 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--attention-head-dim 8 --encoder-layers 2 --decoder-layers 2 "
    "--criterion cross_entropy_with_auxiliary --optimizer adam --lr 0.005 --batch-size 16 "
    f"--max-update {UPDATES} --no-epoch-checkpoints --no-progress-bar --seed 1 "
    "--distributed-world-size 1"
).split()
_SEARCH = ["--batch-size", "8", "--beam", "2", "--max-len-a", "0", "--max-len-b", "8"]


def main(folder: Path) -> None:
    """Print one JSON document."""
    start = time.monotonic()
    _write_text(folder)
    data, run = str(folder / "data"), folder / "run"
    prefixes = [word for name in SIZES for word in (f"--{name}pref", str(folder / name))]
    _call(preprocess, *_LANGUAGES, *prefixes, "--destdir", data, "--workers", "1")
    _call(train, data, *_PLUGIN, *_MODEL, "--save-dir", str(run))
    path = str(run / "checkpoint_last.pt")
    printed = _call(generate, data, *_PLUGIN, *_SEARCH, "--path", path)
    scores = [float(line.split("\t")[1]) for line in printed.splitlines() if line[:2] == "H-"]
    if len(scores) != SIZES["test"] or not all(map(math.isfinite, scores)):
        sys.exit(f"{len(scores)} of {SIZES['test']} sentences were generated, scores {scores}")
    document = {
        "updates": UPDATES,
        "sentences": len(scores),
        "seconds": time.monotonic() - start,
        "device": "GPU" if torch.cuda.is_available() else "CPU",
    }
    print(json.dumps(document))


def _write_text(folder: Path) -> None:
    """Write sentences of random words, to be copied by the model."""
    draw = random.Random(1)
    for name, size in SIZES.items():
        lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(size)]
        for side in ("src", "tgt"):
            (folder / f"{name}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _call(command: Any, *arguments: str) -> str:
    """Run a command of fairseq in this process, under its own name; returns what it printed."""
    sys.argv = [f"fairseq-{command.__name__.rpartition('.')[2]}", *arguments]
    printed = io.StringIO()
    with redirect_stdout(printed):
        command.cli_main()
    return printed.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
