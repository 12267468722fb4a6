"""Console commands that a script or another command starts, run by forks.

The script finds and starts the installed command, whose interpreter then hands its command line,
environment and streams over, as `forked/sitecustomize.py` says, and ends as the fork does. That
saves the seconds that each would spend on importing torch and fairseq.
"""

from __future__ import annotations

import os
from functools import cache
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from threading import Thread

from tests.integration.commands import be_the_command, forks

Line = tuple[int, list[str], str, dict[str, str]]  # process, words, folder, environment


@cache
def forking() -> dict[str, str]:
    """The variables that have the commands under a process with them run by forks."""
    listener = Listener(family="AF_UNIX")
    Thread(target=_accept, args=(listener,), daemon=True).start()
    paths = [str(Path(__file__).with_name("forked")), os.environ.get("PYTHONPATH", "")]
    return {"SUT_TESTS_FORKS": str(listener.address), "PYTHONPATH": ":".join(filter(None, paths))}


def _accept(listener: Listener) -> None:
    while True:
        Thread(target=_serve, args=(listener.accept(),), daemon=True).start()


def _serve(connection: Connection) -> None:
    """Run a command, and kill it when the process that asked for it ends before."""
    with connection:
        asked: Line = connection.recv()
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
