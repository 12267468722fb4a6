"""Console commands that a script or another command starts, run by forks.

The script finds and starts the installed command, whose interpreter then hands its command line,
environment and streams over, as `forked/sitecustomize.py` says, and ends as the fork does. That
saves the seconds that each would spend on importing torch and fairseq.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path

from tests.integration.commands import be_the_command, forks

Line = tuple[int, list[str], str, dict[str, str]]  # process, words, folder, environment


@contextmanager
def forked_commands() -> Iterator[dict[str, str]]:
    """Yield the variables that have the commands under a process with them run by forks."""
    paths = [str(Path(__file__).with_name("forked")), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        address = f"{folder}/forks"
        with Listener(address, "AF_UNIX") as listener:
            pool.submit(_accept, listener, pool)
            try:
                yield {"SUT_TESTS_FORKS": address, "PYTHONPATH": ":".join(filter(None, paths))}
            finally:
                Client(address, "AF_UNIX").close()  # the end of `_accept`


def _accept(listener: Listener, pool: ThreadPoolExecutor) -> None:
    while True:
        connection = listener.accept()
        try:
            asked = connection.recv()
        except EOFError:
            return
        pool.submit(_serve, connection, asked)


def _serve(connection: Connection, asked: Line) -> None:
    """Run the command, and kill it when the process that asked for it ends before."""
    with connection:
        process = forks().Process(target=_be_in_its_place, args=asked)
        process.start()
        if process.sentinel not in wait([process.sentinel, connection]):
            process.kill()
        process.join()
        connection.send(process.exitcode)


def _be_in_its_place(process: int, line: list[str], cwd: str, environment: dict[str, str]) -> None:
    os.environ.clear()
    streams = [Path(f"/proc/{process}/fd/{number}") for number in range(3)]
    be_the_command(line, streams, Path(cwd), environment, False)
