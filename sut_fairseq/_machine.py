"""The machine that this program runs on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Name of the processor; only Linux has it in a file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
