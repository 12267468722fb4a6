"""Folders of runs as trainings and evaluations leave them, made without either."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sut_fairseq.experiments import pages, records
from sut_fairseq.experiments.evaluating import Asked, Evaluated, write
from sut_fairseq.experiments.provenance import Code, Computer, Data
from sut_fairseq.experiments.records import Record, Session

CODE = Code(version="0.1.0", commit="0123456789abcdef", changed=True)
FORWARD = Data(folder="data-bin/ctl-forward", dataset="ctl", split="forward", digest="d1")
COMPUTER = Computer(processor="CPU", cores=2, threads="1", gpus=[], python="3", torch="2")
SESSION = Session(
    stage="",
    command=["fairseq-train"],
    code=CODE,
    computer=COMPUTER,
    started="2026-11-22T10:00:00+00:00",
    ended="2026-11-22T10:00:05+00:00",
    seconds=5.0,
    outcome="finished",
)
EVALUATED = "2026-11-22T10:01:00+00:00"
DRAW_NOTHING = pages.Draw(
    curves=lambda groups, picture: False,
    trade_offs=lambda groups, picture: False,
    table=lambda table, picture: None,
    matrix=lambda table, picture: None,
    claims=lambda found, picture: False,
)


def run(
    folder: Path,
    model: str,
    seed: int,
    groups: Mapping[str, float],
    updates: int = 5,
    data: Data = FORWARD,
    subset: str = "test",
) -> Path:
    """The folder of a run that has been trained and evaluated."""
    record = Record(
        experiment="ctl",
        model=model,
        size="small",
        seed=seed,
        updates=updates,
        data=data,
        trainings={"": {"max-update": updates, "seed": seed}},
        sessions=[SESSION],
    )
    path = folder / f"{model}-{seed}-{updates}"
    path.mkdir(exist_ok=True)
    records.write_record(path, record)
    evaluate(path, data, groups, Asked(subset=subset, by="depth"))
    return path


def evaluate(run: Path, data: Data, groups: Mapping[str, float], asked: Asked) -> None:
    rows = [
        {"mode": "reference", "group": name, "sentences": "10", "percent": str(percent)}
        for name, percent in groups.items()
    ]
    evaluated = Evaluated(
        asked=asked, data=data, measure="accuracy", rows=rows, code=CODE, when=EVALUATED
    )
    write(run, asked.name(), evaluated)
