"""The report of a subject: variants, ratios between them, and the machine they ran on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from typing import Any

import torch

import sut_fairseq
from sut_data.command_line import leave_out
from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq._machine import processor
from sut_fairseq.analysis.benchmark.timing import Conditions, Ratio, Timings


def size(default: Any, text: str, kind: type = str) -> Any:
    """A field of a subject's `Sizes`, from which a command-line flag is made.

    Args:
        default: a number, text, a switch, or a tuple of several values.
        text: help of the flag.
        kind: type of a value whose default is None.
    """
    example = default[0] if isinstance(default, tuple) else default
    kind = kind if example is None else type(example)
    return field(default=default, metadata={"help": text, "kind": kind})


def refuse_changed(sizes: Any, names: Iterable[str], reason: str) -> None:
    """Refuse sizes of these names that differ from their defaults but would have no effect.

    Raises:
        InputError: `REASON: leave --length and --shares out.`
    """
    usual = type(sizes)()
    if changed := [name for name in names if getattr(sizes, name) != getattr(usual, name)]:
        leave_out(changed, reason)


NO_PATH = "without --path an untrained model and random words are measured"


class Report:
    """Filled in by a subject, for the sizes and under the conditions that it was measured at.

    Attributes:
        settings: all sizes and conditions.
        variants: by name: times in seconds and, where they make sense, `macs` of what was timed,
            `gmacs_per_second`, `tokens_per_second`, `peak_bytes`, ...
        ratios: by name: median, least and greatest over the repetitions.
        meanings: by the name of a ratio, what it says, in one line.
    """

    def __init__(self, subject: str, sizes: Any, conditions: Conditions) -> None:
        self.subject = subject
        self._sizes = sizes
        self.conditions = conditions
        self.settings: dict[str, Any] = {
            **asdict(sizes),
            "device": conditions.device.type,
            "dtype": str(conditions.dtype).rpartition(".")[2],
            "threads": torch.get_num_threads(),
            "seed": conditions.seed,
            "repetitions": conditions.repetitions,
        }
        self.variants: dict[str, dict[str, Any]] = {}
        self.ratios: dict[str, Ratio] = {}
        self.meanings: dict[str, str] = {}

    def leave_out(self, *names: str, reason: str) -> None:
        """Drop settings that have no effect, for this reason.

        Raises:
            InputError: if one of them was changed, see `refuse_changed`.
        """
        refuse_changed(self._sizes, names, reason)
        for name in names:
            del self.settings[name]

    def add_times(
        self,
        timings: Timings,
        *,
        macs: Mapping[str, int] | None = None,
        tokens: Mapping[str, int] | None = None,
        peaks: Mapping[str, int] | None = None,
        suffix: str = "",
    ) -> None:
        """Add the variants of one measurement.

        Args:
            timings: their times.
            macs: MACs of one run of each variant.
            tokens: number of tokens that one run of each variant handles.
            peaks: peak memory of each variant, in bytes.
            suffix: put after their names.
        """
        for name in timings.seconds:
            entry: dict[str, Any] = self.variant(f"{name}{suffix}")
            entry.update(timings.summary(name))
            if macs is not None:
                entry["macs"] = macs[name]
                entry["gmacs_per_second"] = macs[name] / timings.median(name) / 1e9
            if tokens is not None:
                entry["tokens_per_second"] = tokens[name] / timings.median(name)
            if peaks is not None:
                entry["peak_bytes"] = peaks[name]

    def variant(self, name: str) -> dict[str, Any]:
        """The entry of a variant, to be added to."""
        return self.variants.setdefault(name, {})

    def add_ratio(self, name: str, ratio: Ratio | float, meaning: str) -> None:
        """Add a ratio; a plain number stands for one that is the same in all repetitions."""
        if not isinstance(ratio, Ratio):
            ratio = Ratio(ratio, ratio, ratio)
        self.ratios[name] = ratio
        self.meanings[name] = meaning

    def document(self) -> dict[str, Any]:
        """The whole report, ready for JSON."""
        return {
            "subject": self.subject,
            "settings": self.settings,
            "machine": machine(self.conditions.device),
            "variants": self.variants,
            "ratios": {name: ratio.median for name, ratio in self.ratios.items()},
            "spread": {name: [r.least, r.greatest] for name, r in self.ratios.items()},
            "meanings": self.meanings,
        }


def machine(device: torch.device) -> dict[str, Any]:
    """The machine and the software that the times were measured with."""
    result: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "sut_fairseq": sut_fairseq.__version__,
        "freed_memory_kept": device.type == "cpu" and keep_freed_memory(),
    }
    if device.type == "cuda":
        result["gpu"] = torch.cuda.get_device_name(device)
    return result
