"""Evaluation sets added to a prepared folder, by the real commands: binarised and scored."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sut_data.folders.prepared import is_whole, read_stamp
from sut_fairseq.experiments.provenance import describe_data
from tests.integration.commands import TINY, generate, run, train, words


def prepare(text: Path, out: Path, *options: object) -> None:
    sides = [[f"--{name}", *(text / f"{name}.{side}" for side in ("src", "tgt"))]
             for name in ("train", "valid", "test")]  # fmt: skip
    given = [word for side in sides for word in side]
    run("sut-prepare", "parallel_text", *given, "--out", out, *options)


def test_an_added_set_is_scored_like_any_other(text: Path, tmp_path: Path) -> None:
    """Its files are those that preparation from the start makes; all commands find it."""
    more = [text / f"valid.{side}" for side in ("src", "tgt")]
    options = words("--bpe 30 --joined")
    data, whole = tmp_path / "data", tmp_path / "whole"
    prepare(text, data, *options)
    prepare(text, whole, *options, "--also", "more", *more)
    train(data, tmp_path / "model", *TINY)
    before = describe_data(data)

    said = run("sut-prepare", "also", data, "more", *more)
    assert said.stderr == "" and re.search(
        r"data now has `more` \(\S+ s\): evaluate with --gen-subset more\.", said.stdout
    )
    for path in whole.rglob("*more*"):
        assert (data / path.relative_to(whole)).read_bytes() == path.read_bytes(), path
    assert len([*whole.rglob("*more*")]) == len([*data.rglob("*more*")]) == 8
    assert read_stamp(data) and is_whole(data, read_stamp(data) or {})
    # A run that was begun before goes on: it is trained on the same.
    assert describe_data(data) == before

    checkpoint, subset = tmp_path / "model" / "checkpoint_last.pt", ("--gen-subset", "more")
    generated = generate(data, checkpoint, *subset).stdout
    assert len(re.findall(r"^H-\d", generated, re.MULTILINE)) == 8
    (tmp_path / "generated").write_text(generated)
    bleu = run("sut-bleu", tmp_path / "generated", "--data", data, *subset, "--json")
    assert json.loads(bleu.stdout)["sentences"] == 8
    table = run("sut-evaluate", "--path", checkpoint, "--data", data, *subset).stdout
    assert re.search(r"\b8\b", table)
