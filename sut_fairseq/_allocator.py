"""Keeps the C library from returning memory to the system between training steps on a CPU."""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache

# Options of glibc's mallopt, from malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

logger = logging.getLogger(__name__)


@cache
def keep_freed_memory() -> bool:
    """Let this process reuse large freed blocks; returns whether the C library agreed.

    glibc returns every block above 32 MB to the system when it is freed and gets it back page by
    page, zeroed, at the next step: on two cores that took 4 to 25 % of a step of `sut_base`
    and most of the time of a loss over 32,768 words. The price is that the process stays at its
    peak size. A user's own `MALLOC_*` settings win; other C libraries are left alone.

    Only the first call in a process does anything; it writes a line to the log if it has changed
    something.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False  # not glibc
    # An old glibc refuses the first setting. The others alone would make matters worse: they switch
    # off its dynamic thresholds, and every block above 128 kB would go back to the system.
    if mallopt(_MMAP_THRESHOLD, 1 << 30) != 1:
        return False
    agreed = [mallopt(*setting) == 1 for setting in ((_TRIM_THRESHOLD, -1), (_TOP_PAD, 64 << 20))]
    logger.info(
        "training on a CPU: the C library keeps freed memory in this process, which is faster "
        "(set a MALLOC_* variable of your own to switch that off)"
    )
    return all(agreed)
