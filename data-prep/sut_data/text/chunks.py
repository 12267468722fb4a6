"""Parallel text in chunks, processed in order on all cores, with few chunks in memory."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import Pipe, Process, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from sut_data.errors import InputError
from sut_data.interrupts import uninterrupted

CHUNK = 1000  # pairs

Pairs = list[tuple[str, str]]
Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use, within the limit of its container."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return min(allowed, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return allowed


def in_chunks(pairs: Iterable[tuple[str, str]], what: str, total: int) -> Iterator[Pairs]:
    """Yield lists of pairs, and show the progress on a terminal.

    Args:
        pairs: the pairs, of which few are in memory at a time.
        what: what is being done.
        total: how many pairs there are.
    """
    from tqdm import tqdm

    iterator = iter(pairs)
    with tqdm(total=total, desc=what, unit=" pairs", disable=None, leave=False) as bar:
        for chunk in iter(lambda: list(islice(iterator, CHUNK)), []):
            yield chunk
            bar.update(len(chunk))


def write_pairs(prefix: Path, pairs: Pairs) -> None:
    """Append pairs to `<prefix>.src` and `<prefix>.tgt`."""
    for side, name in enumerate(("src", "tgt")):
        with open(f"{prefix}.{name}", "a", encoding="utf-8", newline="\n") as stream:
            stream.writelines(pair[side] + "\n" for pair in pairs)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield `function(item)` for each item in order, computed by `workers` processes.

    Each process has one item at a time, so that neither items nor results pile up however slow
    the consumer is. With one worker no process is started.

    Raises:
        InputError: if a process was killed. Exceptions of `function` are raised here.
    """
    if workers == 1:
        yield from map(function, items)
        return
    remaining = iter(items)
    processes: list[Process] = []
    busy: deque[Connection] = deque()
    try:
        for item in islice(remaining, workers):
            connection, its_end = Pipe()
            with uninterrupted():
                processes.append(Process(target=_work, args=(function, its_end)))
                processes[-1].start()
            its_end.close()
            connection.send(item)
            busy.append(connection)
        while busy:
            connection = busy.popleft()
            succeeded, result = connection.recv()
            if not succeeded:
                raise result
            for item in islice(remaining, 1):
                connection.send(item)
                busy.append(connection)
            yield result
    except (EOFError, ConnectionError) as error:
        raise InputError(
            "a process of this program was killed, most likely because memory ran out: free some, "
            "or let the program use fewer cores (`taskset -c 0-3`)."
        ) from error
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work(function: Callable[[Any], Any], connection: Connection) -> None:
    """Answer items with results until killed, or until the parent is gone."""
    # Ctrl-C and a kill of the whole group are for the parent to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the parent has gone
        while True:
            item = connection.recv()
            try:
                answer = (True, function(item))
            except Exception as error:
                answer = (False, error)
            connection.send(answer)
