"""What is printed about a prepared folder: its counts and a command that trains on it."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from sut_data.files import read_lines
from sut_data.folders.raw_files import checkout
from sut_data.tables import table
from sut_data.text.pairs import SIDES
from sut_data.text.treatment import Counts

FAIRSEQ_DEFAULT_MAX_POSITIONS = 1024
DEFAULT_TASK = "translation"
WORTH_A_WARNING = 0.05  # of the references of a set


def vocabulary_size(dictionary: Path) -> int:
    """Count the entries of a fairseq dictionary, its four special symbols included."""
    return sum(1 for _ in read_lines(dictionary)) + 4


def report(out: Path, counts: dict[str, Counts], remedy: str = "") -> None:
    """Print the counts of every split and the vocabulary sizes.

    Args:
        out: the prepared folder.
        counts: of its splits.
        remedy: what would give more references a chance to match.
    """
    rows = [("split", "pairs", "longest src", "longest tgt", "unknown words")]
    for split, row in counts.items():
        unknown = f"{row.unknown_src} src, {row.unknown_tgt} tgt"
        rows.append((split, str(row.pairs), str(row.longest_src), str(row.longest_tgt), unknown))
    print(table(rows))
    for split, row in counts.items():
        drops = {"blank": row.blank, "too long": row.too_long, "too uneven": row.uneven}
        if any(drops.values()):
            total = sum(drops.values())
            reasons = ", ".join(f"{number} {reason}" for reason, number in drops.items() if number)
            print(f"dropped from {split}: {total} of {row.pairs + total} pairs ({reasons})")
    sizes = [vocabulary_size(out / f"dict.{side}.txt") for side in SIDES]
    print(f"vocabulary: {sizes[0]} src, {sizes[1]} tgt")
    warned = False
    for split, row in counts.items():
        if row.unreachable >= WORTH_A_WARNING * row.pairs and row.unreachable:
            warned = True
            print(
                f"warning: {row.unreachable:,} of {row.pairs:,} references of {split} have a word "
                "that the training text lacks; no output can match them exactly."
            )
    if warned and remedy:
        print(remedy)


def user_dir() -> str:
    """Return the folder of the plugin: that of the checkout, or where pip put it."""
    repository = checkout()
    if repository is not None:
        return str(repository / "sut_fairseq")
    plugin = find_spec("sut_fairseq")  # which does not import it
    places = plugin.submodule_search_locations if plugin is not None else None
    return places[0] if places else "sut_fairseq"


def training_command(
    out: Path, counts: dict[str, Counts], joined: bool, arch: str, task: str = DEFAULT_TASK
) -> str:
    """Return a `fairseq-train` command, over several lines, that suits the folder."""
    installed = Path(sys.executable).with_name("fairseq-train")
    on_path = shutil.which("fairseq-train")
    program = str(installed) if on_path is None and installed.exists() else "fairseq-train"
    lines = [
        [program, str(out)],
        ["--user-dir", user_dir(), "--arch", arch],
        ["--criterion", "cross_entropy_with_auxiliary"],
        ["--label-smoothing", "0.1", "--mutual-information-weight", "0.001"],
        ["--expected-depth-weight", "0.0001"],
        ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9"],
        ["--clip-norm", "1.0", "--lr", "0.0007"],
        ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000"],
        ["--max-tokens", "4096", "--max-update", "100000"],
        ["--required-batch-size-multiple", "1", "--best-checkpoint-metric", "nll_loss"],
        ["--save-dir", f"checkpoints/{out.name}"],
    ]
    if task != DEFAULT_TASK:
        lines[0] += ["--task", task]
    # An architecture may share what two dictionaries cannot, or not share what one could.
    lines[1].append("--share-all-embeddings" if joined else "--separate-embeddings")
    lines.append(position_options(counts))
    return " \\\n    ".join(" ".join(shlex.quote(word) for word in line) for line in lines if line)


def script_command(name: str, out: Path, counts: dict[str, Counts]) -> str:
    """Return the command that trains the experiment of a data set and suits the folder."""
    more = position_options(counts)
    command = ["sut-experiment", "train", name, "--data", str(out), *(["--"] if more else [])]
    return shlex.join([*command, *more])


def position_options(counts: dict[str, Counts]) -> list[str]:
    """Return the options without which fairseq would leave the longest pairs out."""
    options = []
    for side, longest in (
        ("source", max(row.longest_src for row in counts.values()) + 1),
        ("target", max(row.longest_tgt for row in counts.values()) + 1),
    ):
        if longest > FAIRSEQ_DEFAULT_MAX_POSITIONS:
            options += [f"--max-{side}-positions", str(longest)]
    return options
