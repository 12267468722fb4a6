"""Parallel text in chunks, treated on all cores and in order, few chunks in memory at a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Tuple, TypeVar

CHUNK = 1000  # pairs

Pairs = List[Tuple[str, str]]
Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_chunks(pairs: Iterable[tuple[str, str]], what: str, total: int) -> Iterator[Pairs]:
    """Yield lists of pairs, and show on a terminal how many have gone by.

    Args:
        pairs: the pairs, of which few are held at a time.
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

    No more than a few items for each process are read ahead, so that a slow consumer does not let
    results pile up. With one worker nothing is started.
    """
    if workers == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(os.getpid(),)) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 3 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _begin(parent: int) -> None:
    """Leave Ctrl-C and kill to the parent, and end when it has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
