"""Runs console commands as a user does.

`run_installed` starts the installed script, which spends five seconds on importing torch and
fairseq. `run` has the same command run by a fork of a process that has imported them already: the
entry point, the exit status and both outputs are the real ones, and no run can leave anything
behind for the next.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

# What the commands import, not the commands themselves, which set up logging when imported.
_PRELOADED = ["fairseq.trainer", "fairseq.checkpoint_utils", "fairseq.options", "hydra", "sacrebleu"]

_REPOSITORY = Path(__file__).resolve().parents[2]

Argument = object  # anything whose `str` is what the user would have typed


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The last line of standard error, which is what a user reads first."""
        return self.stderr.rstrip().rpartition("\n")[2]

    def logged(self) -> list[dict[str, Any]]:
        """The metrics that fairseq logged with `--log-format json`, one dictionary a line."""
        lines = (line.rpartition(" | ")[2] for line in self.stdout.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def run(
    command: str, *arguments: Argument, cwd: Path | None = None, stdin: str = "", ok: bool = True
) -> Finished:
    """Run a console command in a fork; unless `ok` is false it must succeed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        paths[0].write_text(stdin)
        words = [command, *map(str, arguments)]
        process = context.Process(target=_be_the_command, args=(words, paths, cwd or Path.cwd()))
        process.start()
        process.join()
        assert process.exitcode is not None
        output, errors = (path.read_text() for path in paths[1:])
    finished = Finished(process.exitcode, output, errors)
    return _checked(finished, ok)


def run_installed(
    command: str, *arguments: Argument, cwd: Path | None = None, ok: bool = True
) -> Finished:
    """Run the script that the installation put beside the interpreter."""
    script = Path(sysconfig.get_path("scripts"), command)
    process = subprocess.run(
        [script, *map(str, arguments)],
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


def _be_the_command(words: list[str], paths: list[Path], cwd: Path) -> None:
    """Turn this process into a run of the command: `words` as its `sys.argv`."""
    for number, (path, flags) in enumerate(zip(paths, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
        os.dup2(os.open(path, flags | os.O_CREAT), number)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.chdir(cwd)
    # The test process's own import path must not stand in for --user-dir.
    sys.path[:] = [path for path in sys.path if path and Path(path).resolve() != _REPOSITORY]
    sys.argv = words
    (entry,) = entry_points(group="console_scripts", name=words[0])
    if entry.module.startswith("fairseq_cli."):
        logging.root.handlers.clear()  # made by imports; these commands make their own first
    status = 1
    try:
        result = getattr(importlib.import_module(entry.module), entry.attr)()
        status = result if isinstance(result, int) else 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
