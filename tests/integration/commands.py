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
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sut_data.interrupts import end_when_interrupted

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

# What the commands import, and those of ours; not fairseq's, which set up logging when imported.
# torch imports its compiler when the first optimizer is built, which takes longer than a tiny
# training.
_PRELOADED = ["fairseq.trainer", "fairseq.checkpoint_utils", "fairseq.options", "torch._dynamo"]
_PRELOADED += ["matplotlib.figure", "ptflops", "sacrebleu", "sacremoses"]
_PRELOADED += [f"sut_fairseq.cli.{name}" for name in ("evaluate", "experiment", "report")]
_PRELOADED += [f"sut_fairseq.cli.{name}" for name in ("macs", "translate")]

_ON_CPU = words("--cpu --num-workers 0 --required-batch-size-multiple 1")
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
    return run(command, data, "--user-dir", USER_DIR, *_ON_CPU, *arguments, **options)


def train(data: Path, save_dir: Path, *arguments: Argument, **options: Any) -> Finished:
    """Train, with a line of metrics for each update; two updates unless told otherwise."""
    return run("fairseq-train", *training(data, save_dir, *arguments), **options)


def training(data: Path, save_dir: Path, *arguments: Argument) -> list[Argument]:
    """The arguments of `train`'s command."""
    return [data, "--user-dir", USER_DIR, *_ON_CPU, *_TRAINING, "--save-dir", save_dir, *arguments]


def train_together(data: Path, save_dir: Path, *arguments: Argument, **options: Any) -> Finished:
    """The same with two processes; what the first one wrote."""
    fixed = ("--user-dir", USER_DIR, *_ON_CPU, *_TRAINING, "--save-dir", save_dir)
    return launch("fairseq-train", data, *fixed, *arguments, **options)[0]


def generate(data: Path, checkpoint: Path, *arguments: Argument, **options: Any) -> Finished:
    """Generate the test set, at most 8 words for each sentence."""
    fixed = (*_GENERATION, "--path", checkpoint)
    return on_cpu("fairseq-generate", data, *fixed, *arguments, **options)


def document_of(page: Path) -> dict[str, Any]:
    """What a page of `sut-report` shows, as it holds it."""
    _, _, rest = page.read_text(encoding="utf-8").partition('id="document">')
    document: dict[str, Any] = json.loads(rest.partition("</script>")[0])
    return document


def run(
    command: str,
    *arguments: Argument,
    ok: bool = True,
    interrupt_when: Callable[[int], bool] | None = None,
    with_group: bool = False,
    kill_when: Callable[[], bool] | None = None,
    **options: Any,
) -> Finished:
    """Run a console command in a fork, and commands that it starts, too.

    Args:
        command: name of the command, or "python" with `-c PROGRAM`.
        arguments: the rest of the command line.
        ok: whether it must succeed.
        interrupt_when: interrupt it, as Ctrl-C does, once this is true of its process number.
        with_group: interrupt the processes that it has started as well.
        kill_when: kill it, leaving it no time for anything, once this is true.
        options: as of `start`.
    """
    own_group = interrupt_when is not None
    if not own_group and kill_when is None:  # signals would reach the wrong process
        from tests.integration.forking import forking

        options["environment"] = {**forking(), **(options.get("environment") or {})}
    with start(command, *arguments, own_group=own_group, **options) as running:
        if interrupt_when is not None:
            if running.wait_for(lambda: interrupt_when(running.pid)) and running.alive:
                (os.killpg if with_group else os.kill)(running.pid, signal.SIGINT)
        elif kill_when is not None and running.wait_for(kill_when):
            running.kill()
        return running.finished(ok)


class Running:
    """A console command that was started in a fork; made by `start`."""

    def __init__(self, process: Any, paths: list[Path]) -> None:
        self._process = process
        self._paths = paths

    @property
    def pid(self) -> int:
        """Number of the process."""
        number: int = self._process.pid
        return number

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        alive: bool = self._process.is_alive()
        return alive

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self._written(1)

    @property
    def stderr(self) -> str:
        """Likewise on standard error."""
        return self._written(2)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 120) -> bool:
        """Wait until something holds; whether it does before the command ends."""
        end = time.monotonic() + seconds
        while not condition():
            if not self.alive or time.monotonic() > end:
                return condition()
            time.sleep(0.005)
        return True

    def kill(self, after: float = 0) -> None:
        """Kill it after so many seconds, unless it ends before, leaving it no time for anything."""
        self._process.join(after)
        self._process.kill()

    def finished(self, ok: bool = True) -> Finished:
        """Wait for its end; it must succeed if `ok`."""
        self._process.join()
        return _checked(Finished(self._process.exitcode, self.stdout, self.stderr), ok)

    def _written(self, number: int) -> str:
        path = self._paths[number]
        return path.read_text() if path.exists() else ""


@contextmanager
def start(
    command: str,
    *arguments: Argument,
    cwd: Path | None = None,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    own_group: bool = False,
) -> Iterator[Running]:
    """Start a console command in a fork; it is killed at the end if it still runs.

    Args:
        command, arguments: as of `run`.
        cwd: where to run it.
        stdin: what it can read.
        environment: variables to set.
        own_group: make it the leader of a process group.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        paths[0].write_text(stdin)
        line = [command, *map(str, arguments)]
        given = (line, paths, cwd or Path.cwd(), dict(environment or {}), own_group)
        process = forks().Process(target=be_the_command, args=given)
        process.start()
        try:
            yield Running(process, paths)
        finally:
            process.kill()
            process.join()


def launch(command: str, *arguments: Argument, workers: int = 2, ok: bool = True) -> list[Finished]:
    """Run a command in several processes that meet, as torchrun does; a list by rank.

    When one of them fails, the others are killed.
    """
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("localhost", 0)) as free:
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        over = Path(folder, "over")

        def worker(rank: int) -> Finished:
            environment = {**meeting, "WORLD_SIZE": str(workers), "RANK": str(rank)}
            finished = run(
                command, *arguments, environment=environment, kill_when=over.exists, ok=False
            )
            if finished.status:
                over.touch()
            return finished

        with ThreadPoolExecutor(workers) as pool:
            return [_checked(finished, ok) for finished in pool.map(worker, range(workers))]


def forks() -> multiprocessing.context.ForkServerContext:
    """Makes processes that have imported torch and fairseq already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


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


def be_the_command(
    line: list[str],
    paths: list[Path],
    cwd: Path,
    environment: Mapping[str, str],
    own_group: bool,
) -> None:
    """Turn this process into a run of the command, with `line` as its `sys.argv`."""
    import torch

    os.environ.update(environment)
    if own_group:
        os.setpgid(0, 0)
    torch.set_num_threads(1)
    multiprocessing.set_start_method(None, force=True)  # the platform's, for its own processes
    # No test cuts the power, and waiting for the disk at every save takes half of some tests' time.
    os.fsync = lambda file: None
    for number, path in enumerate(paths):
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(path, flags), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    sys.argv = line
    _be_imported_by(line)
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


def _be_imported_by(line: list[str]) -> None:
    """What the import of sut_fairseq does in a command alone, and did not do before the fork."""
    from sut_fairseq.checkpoints.reading import guard_fairseq

    if line[0].startswith("sut-"):
        end_when_interrupted()
    if line[0].startswith("sut-") or "--user-dir" in line:
        guard_fairseq()


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
