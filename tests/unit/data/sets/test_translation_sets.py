"""Which files the sets of translations are made of, and what their stamps call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sut_data.sets import multi30k, wmt14_en_de
from sut_fairseq.experiments import reading


def test_both_directions_of_multi30k_are_splits_of_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits: list[str] = []
    monkeypatch.setattr(multi30k, "obtain", lambda raw, name, urls: {})
    monkeypatch.setattr(
        multi30k, "prepare", lambda *arguments, name, split: splits.append(f"{name} {split}")
    )
    for line in reading.read("multi30k").prepare.values():
        multi30k.main("p", [*line.split()[1:], "--out", str(tmp_path)])
    assert splits == [f"multi30k {split}" for split in reading.read("multi30k").splits]


@pytest.mark.parametrize("name", ["train10k.en", "train10k.en.gz", "inside/train10k.en"])
def test_the_sample_of_wmt14_is_known_wherever_its_files_are_found(
    name: str, tmp_path: Path
) -> None:
    assert not wmt14_en_de.is_sample(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert wmt14_en_de.is_sample(tmp_path)
