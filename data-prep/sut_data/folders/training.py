"""Commands that train on a prepared folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from sut_data.folders.choosing import Plan, choose
from sut_data.folders.raw_files import checkout
from sut_data.text.treatment import Counts

FAIRSEQ_DEFAULT_MAX_POSITIONS = 1024
# Environment variable of `sut-experiment prepare`, which says itself how to train on the folder.
OF_EXPERIMENT = "SUT_DATA_OF_EXPERIMENT"
DEFAULT_TASK = "translation"
LABELS_TASK = "sequence_classification"
# Tasks whose targets are labels. At the rates for translation, words soon halt after one step.
CLASSIFYING = (LABELS_TASK, "classification_as_translation")
CLASSIFIER = "sut_classifier_tiny"  # the encoder of sut_tiny
CLASSIFIER_RATE = "1e-3"
# Prefixes of our architectures; fairseq's own do not have --separate-embeddings.
OURS = (
    "sut_", "ut_", "ndr_", "compositional_", "location", "contextual_", "universal_transformer",
    "recurrent_", "encoder_classifier",
)  # fmt: skip
# Those of ours that share no embeddings: recurrent classifiers and models without words.
WITHOUT_SHARING = re.compile(r"(recurrent_classifier|contextual_).*|ndr_\w+_(lstm|bilstm|dnc)")
# Experiments whose only size is the paper's; it trains in minutes on a CPU.
ONE_SIZE = ("long_lookup_tables",)
# Options that start a new line of the printed command.
_FIRST = (
    "arch",
    "criterion",
    "mutual-information-weight",
    "optimizer",
    "lr",
    "max-update",
    "validate-interval",
    "save-interval",
    "keep-interval-updates",
    "maximize-best-checkpoint-metric",
)


def gpus_here() -> int:
    """Count the GPUs that a training on this machine would find.

    torch knows, but importing it takes seconds. `CUDA_VISIBLE_DEVICES` counts as for torch.
    """
    try:
        found = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    number = sum(line.startswith("GPU ") for line in found.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return number
    named = [one.strip() for one in visible.split(",") if one.strip()]
    return min(number, named.index("-1") if "-1" in named else len(named))


def user_dir() -> str:
    """Return the folder of the plugin: that of the checkout, or where pip put it."""
    repository = checkout()
    if repository is not None:
        return str(repository / "sut_fairseq")
    plugin = find_spec("sut_fairseq")  # which does not import it
    places = plugin.submodule_search_locations if plugin is not None else None
    return places[0] if places else "sut_fairseq"


def training_words(
    out: Path,
    counts: Mapping[str, Counts],
    plan: Plan,
    *,
    joined: bool,
    arch: str | None = None,
    task: str = DEFAULT_TASK,
) -> list[list[str]]:
    """Return a `fairseq-train` command as words, in groups that belong on one line.

    Args:
        out: the prepared folder.
        counts: of its sets.
        plan: the result of `choose`.
        joined: whether both sides share their dictionary.
        arch: another architecture, which does not get the plan's options of the model.
        task: of fairseq.
    """
    installed = Path(sys.executable).with_name("fairseq-train")
    on_path = shutil.which("fairseq-train")
    program = str(installed) if on_path is None and installed.exists() else "fairseq-train"
    options = plan.options()
    if task in CLASSIFYING:
        options["lr"] = min(str(options["lr"]), CLASSIFIER_RATE, key=float)
        options["best-checkpoint-metric"] = "accuracy"
        options["maximize-best-checkpoint-metric"] = True
    if task == LABELS_TASK:
        options["criterion"] = "classification"
        options.pop("decoder-layers", None)
        options["arch"] = CLASSIFIER
    if arch is not None:
        own = {name: value for name, value in options.items() if name not in plan.size.model}
        options = {"arch": arch, **own}
    first = [program, str(out)]
    if task != DEFAULT_TASK:
        first += ["--task", task]
    # An architecture may share embeddings despite two dictionaries, or none despite a joint one.
    sharing = []
    if not WITHOUT_SHARING.fullmatch(arch or ""):
        if joined:
            sharing = ["--share-all-embeddings"]
        elif arch is None or arch.startswith(OURS):
            sharing = ["--separate-embeddings"]
    lines = [first, ["--user-dir", user_dir(), *sharing]]
    for name, value in options.items():
        if name in _FIRST:
            lines.append([])
        lines[-1] += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    lines.append(["--save-dir", f"checkpoints/{out.name}", *position_options(counts, task)])
    return lines


def in_lines(words: list[list[str]]) -> str:
    """Return a command over several lines, as a shell reads it."""
    return " \\\n    ".join(shlex.join(line) for line in words)


def experiment_command(out: Path, counts: Mapping[str, Counts], plan: Plan, *, joined: bool) -> str:
    """Return the command for the same training by the experiment `parallel_text`."""
    line = ["sut-experiment", "train", "parallel_text", "--size", plan.size.name]
    line += ["--updates", str(plan.updates), "--data", str(out), "--out", f"runs/{out.name}"]
    own = [] if joined else ["--separate-embeddings"]
    if plan.tokens != plan.size.share(plan.gpus)[0]:
        own += ["--max-tokens", str(plan.tokens)]
    own += position_options(counts)
    return shlex.join([*line, *(["--", *own] if own else [])])


def script_command(name: str, out: Path, counts: Mapping[str, Counts], gpus: int) -> str:
    """Return a line and the command that runs the experiment of a data set on the folder.

    Args:
        name: of the experiment.
        out: the prepared folder.
        counts: of its sets.
        gpus: on this machine. Without any the size is `small`, if the experiment has it.
    """
    small = gpus == 0 and name not in ONE_SIZE
    more = position_options(counts)
    command = ["sut-experiment", "train", name, *(["--size", "small"] if small else [])]
    command += ["--data", str(out), *(["--"] if more else []), *more]
    why = " (no GPU was found; with one, leave out --size small for the paper's size)"
    return f"Train on it with{why if small else ''}:\n  {shlex.join(command)}"


def longest_sides(counts: Mapping[str, Counts], task: str = DEFAULT_TASK) -> dict[str, int]:
    """Return how many symbols the longest source and target of any set have for a task."""
    # A begin symbol, too, where a label is predicted from the whole sentence.
    boundaries = 2 if task == LABELS_TASK else 1
    return {
        "source": max(row.longest_src for row in counts.values()) + boundaries,
        "target": max(row.longest_tgt for row in counts.values()) + 1,
    }


def plan_for(
    counts: Mapping[str, Counts], symbols: int, gpus: int, task: str = DEFAULT_TASK
) -> Plan:
    """`choose` for a prepared folder.

    Args:
        counts: of its sets.
        symbols: on the longer side of train, with an end symbol for each sentence.
        gpus: number of GPUs used together.
        task: of fairseq.
    """
    longest = max(longest_sides(counts, task).values())
    return choose(counts["train"].pairs, symbols, longest, gpus)


def position_options(counts: Mapping[str, Counts], task: str = DEFAULT_TASK) -> list[str]:
    """Return the options without which fairseq would leave the longest pairs out."""
    options = []
    for side, longest in longest_sides(counts, task).items():
        if longest > FAIRSEQ_DEFAULT_MAX_POSITIONS:
            options += [f"--max-{side}-positions", str(longest)]
    return options
