"""Tables of evaluate_translation.sh from the JSON files in its folder of results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Tan et al. (2023), Table 1: BLEU on newstest2014, compounds split.
PUBLISHED = (
    "published: sut_base 29.2, sut_big 29.4, ut_base 29.3, ut_big 29.6, "
    "Transformer base 27.3, big 29.3"
)


def read(out: Path, name: str) -> dict[str, Any]:
    """One of the JSON files."""
    document: dict[str, Any] = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    return document


def print_chosen(out: Path) -> None:
    """Say which checkpoints were averaged, and what they were chosen by."""
    average = read(out, "average")
    for checkpoint in average["checkpoints"]:
        value = "-" if checkpoint["value"] is None else f"{checkpoint['value']:g}"
        name = Path(checkpoint["file"]).name
        print(f"  {name}: {checkpoint['metric']} {value}, {checkpoint['updates']:,} updates")
    for note in average["notes"]:
        print(f"  note: {note}")
    metric = average["checkpoints"][0]["metric"]
    if metric != "nll_loss":
        print(
            f"  note: chosen by {metric}, the run's --best-checkpoint-metric; --log gives the NLL"
        )


def results(out: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Everything that is known about an evaluation."""
    average = read(out, "average")
    stamp = Path(settings["data"], "prepared.json")
    about = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else {}
    return {
        "dataset": about.get("dataset"),
        "split": about.get("split"),
        "limited": about.get("limited", False),
        "subset": settings["subset"],
        "beam": int(settings["beam"]),
        "lenpen": float(settings["lenpen"]),
        # None: that of training.
        "alpha_threshold": float(settings["alpha_threshold"])
        if settings["alpha_threshold"]
        else None,
        "checkpoints": average["checkpoints"],
        "scores": read(out, "bleu"),
        "cost": read(out, "macs"),
    }


def rows(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and remark of each line of the table."""
    scores, cost = document["scores"], document["cost"]
    compared = f"against {scores['references']} references"
    data = [document[key] for key in ("dataset", "split", "limited", "subset")]
    beside = PUBLISHED if data == ["wmt14", "full", False, "test"] else ""
    table = [
        ("tokenised BLEU", f"{scores['tokenized_bleu']:.2f}", scores["tokens"]),
        ("  with compounds split", f"{scores['tokenized_bleu_compound_split']:.2f}", beside),
        ("sacreBLEU", f"{scores['sacrebleu']:.2f}", scores["sacrebleu_signature"]),
        ("", "", compared),
        ("chrF2", f"{scores['chrf']:.2f}", scores["chrf_signature"]),
        ("", "", compared),
        ("sentences", f"{scores['sentences']:,}", ""),
        ("parameters", f"{cost['params'] / 1e6:.2f} M", ""),
        ("MACs per sentence pair", f"{cost['macs_full'] / 1e6:.2f} M", "with attention products"),
    ]
    for stack, halting in cost.get("halting", {}).items():
        skipped = f"{100 * halting['skipped']:.1f} % skipped"
        table.append((f"{stack} steps per token", f"{halting['depth']:.2f}", skipped))
    return table


def main() -> None:
    what, out = sys.argv[1], Path(sys.argv[2])
    if what == "chosen":
        print_chosen(out)
        return
    document = results(out, dict(word.split("=", 1) for word in sys.argv[3:]))
    (out / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    table = rows(document)
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    for name, value, remark in table:
        print(f"{name:<{widths[0]}}  {value:>{widths[1]}}  {remark}".rstrip())
    print(f"MACs and steps are those of the model run on the references. JSON: {out}/results.json")


if __name__ == "__main__":
    main()
