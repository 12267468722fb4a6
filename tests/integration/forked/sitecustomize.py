"""Hands a command over to a process that has imported torch and fairseq; see ../forking.py.

Python imports this module before anything else where its folder is on PYTHONPATH.
"""

from __future__ import annotations

import os
import sys


def command_of(words: list[str]) -> list[str] | None:
    """The line as `run` takes it, if it is a console command or a program for one of fairseq's."""
    if not words or "SUT_TESTS_FORKS" not in os.environ:
        return None
    name = os.path.basename(words[0])
    if name.startswith(("fairseq-", "sut-")):
        return [name, *words[1:]]
    if words[0] == "-c" and "fairseq_cli" in words[1]:
        return ["python", "-c", f"import sys; sys.argv[:3] = ['-c']; {words[1]}", *words[2:]]
    return None


if line := command_of(sys.orig_argv[1:]):
    from multiprocessing.connection import Client

    with Client(os.environ["SUT_TESTS_FORKS"], "AF_UNIX") as connection:
        connection.send((os.getpid(), line, os.getcwd(), dict(os.environ)))
        status = connection.recv()
    os._exit(status if status >= 0 else 128 - status)
