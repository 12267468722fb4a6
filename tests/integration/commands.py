"""Runs console commands as a user does.

`run_installed` starts the installed script, which spends five seconds on importing torch and
fairseq. `run` has the same command run by a fork of a process that has imported them already: the
entry point, the exit status and both outputs are the real ones, and no run can leave anything
behind for the next.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

Argument = object  # anything whose `str` is what the user would have typed


def words(text: str) -> list[str]:
    """Arguments without spaces inside, as one would type them."""
    return text.split()


SIZES = {"train": 40, "valid": 8, "test": 11}  # of the tiny data set in conftest.py

USER_DIR = Path(__file__).resolve().parents[2] / "sut_fairseq"

# Ordinary flags that make an architecture small and leave its kinds and expert counts alone.
SMALL = words(
    "--encoder-embed-dim 32 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--attention-head-dim 8 --encoder-layers 2 --decoder-layers 3"
)
TINY = ["--arch", "sut_tiny", *SMALL]
TINY += words("--dropout 0.1 --attention-dropout 0.1 --router-dropout 0.1 --halting-dropout 0.1")

# What the commands import, not the commands themselves, which set up logging when imported. torch
# imports its compiler when the first optimizer is built, which takes longer than a tiny training.
_PRELOADED = ["fairseq.trainer", "fairseq.checkpoint_utils", "fairseq.options", "torch._dynamo"]
_PRELOADED += ["matplotlib.figure", "ptflops", "sacrebleu", "sacremoses"]

_TRAINING = words(
    "--batch-size 8 --optimizer adam --lr 0.001 --max-update 2 --seed 1 --log-format json "
    "--log-interval 1 --criterion cross_entropy_with_auxiliary"
)
_GENERATION = words("--batch-size 8 --beam 2 --max-len-a 0 --max-len-b 8")


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The last line of standard error, where the reason of a failure stands."""
        return self.stderr.rstrip().rpartition("\n")[2]

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The metrics that the logger `name` ("train_inner", "valid", ...) wrote as JSON lines."""
        lines = (line.partition(f" | INFO | {name} | ")[2] for line in self.stdout.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{")]


def on_cpu(command: str, data: Path, *arguments: Argument, **options: Any) -> Finished:
    """Run a fairseq command with the plugin on the CPU, on all sentences of the data."""
    fixed = ("--cpu", "--num-workers", 0, "--required-batch-size-multiple", 1)
    return run(command, data, "--user-dir", USER_DIR, *fixed, *arguments, **options)


def train(data: Path, save_dir: Path, *arguments: Argument, **options: Any) -> Finished:
    """Train, with a line of metrics for each update; two updates unless told otherwise."""
    fixed = (*_TRAINING, "--save-dir", save_dir)
    return on_cpu("fairseq-train", data, *fixed, *arguments, **options)


def generate(data: Path, checkpoint: Path, *arguments: Argument, **options: Any) -> Finished:
    """Generate the test set, at most 8 words for each sentence."""
    fixed = (*_GENERATION, "--path", checkpoint)
    return on_cpu("fairseq-generate", data, *fixed, *arguments, **options)


def run(
    command: str,
    *arguments: Argument,
    cwd: Path | None = None,
    stdin: str = "",
    ok: bool = True,
    kill_when: Path | None = None,
) -> Finished:
    """Run a console command in a fork.

    Args:
        command: name of the command, or "python" with `-c PROGRAM`.
        arguments: the rest of the command line.
        cwd: where to run it.
        stdin: what it can read.
        ok: whether it must succeed.
        kill_when: kill it, leaving it no time for anything, once this file exists.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        paths[0].write_text(stdin)
        line = [command, *map(str, arguments)]
        process = context.Process(target=_be_the_command, args=(line, paths, cwd or Path.cwd()))
        process.start()
        while kill_when is not None and process.is_alive():
            if kill_when.exists():
                process.kill()
            time.sleep(0.01)
        process.join()
        assert process.exitcode is not None
        output, errors = (path.read_text() for path in paths[1:])
    return _checked(Finished(process.exitcode, output, errors), ok)


def run_installed(
    command: str, *arguments: Argument, cwd: Path | None = None, ok: bool = True
) -> Finished:
    """Run the script that the installation put beside the interpreter."""
    process = subprocess.run(
        [Path(sysconfig.get_path("scripts"), command), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return _checked(Finished(process.returncode, process.stdout, process.stderr), ok)


def _checked(finished: Finished, ok: bool) -> Finished:
    assert not ok or finished.status == 0, finished.stderr[-3000:]
    return finished


def _be_the_command(line: list[str], paths: list[Path], cwd: Path) -> None:
    """Turn this process into a run of the command, with `line` as its `sys.argv`."""
    import torch

    torch.set_num_threads(1)
    for number, path in enumerate(paths):
        os.dup2(os.open(path, os.O_CREAT | (os.O_WRONLY if number else os.O_RDONLY)), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    sys.argv = line
    status: object = 1
    try:
        if line[0] == "python":
            status = exec(line[2], {"__name__": "__main__"})
        else:
            status = _entry_point(line[0])()
    except SystemExit as ending:
        status = ending.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    sys.exit(status if isinstance(status, int) else int(status is not None))


def _entry_point(command: str) -> Callable[[], object]:
    """Import a command with the same logging as if everything were imported only now.

    Most of fairseq's commands set up logging before they import the rest of fairseq, parts of which
    set it up too; only the first to do so has an effect.
    """
    (entry,) = entry_points(group="console_scripts", name=command)
    by_imports = logging.root.handlers.copy()
    logging.root.handlers.clear()
    main: Callable[[], object] = entry.load()
    if not logging.root.handlers:
        logging.root.handlers.extend(by_imports)
    return main
