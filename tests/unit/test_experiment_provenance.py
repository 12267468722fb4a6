"""What a record says of code, data and computer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sut_fairseq.cli._experiment_data import _check_data
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import provenance, reading
from sut_fairseq.experiments.provenance import Computer, Data


def test_digest_of_data(tmp_path: Path) -> None:
    """It changes with a dictionary and with what the preparation says, not with the program."""
    digests = []
    for word, split in (("x 1", "s"), ("x 1", "s"), ("y 1", "s"), ("x 1", "t")):
        folder = tmp_path / str(len(digests))
        folder.mkdir()
        (folder / "dict.src.txt").write_text(word)
        (folder / "prepared.json").write_text(
            json.dumps({"dataset": "d", "split": split, "recipe": folder.name})
        )
        digests.append(provenance.describe_data(folder).digest)
    assert digests[0] == digests[1] and len(set(digests)) == 3
    # The last number, of the pairs that training has too, is new and follows from the others.
    counted = []
    for row in ([9] * 9, [*[9] * 9, 3], [8] * 9):
        folder = tmp_path / f"counted {len(counted)}"
        folder.mkdir()
        (folder / "dict.src.txt").write_text("x 1")
        (folder / "prepared.json").write_text(json.dumps({"counts": {"test": row}}))
        counted.append(provenance.describe_data(folder).digest)
    assert counted[0] == counted[1] != counted[2]
    # Nor does it matter how many processes fairseq-preprocess had, and what else is installed.
    logged = []
    for log in (
        "INFO:fairseq.tasks.text_to_speech:Please install tensorboardX: pip install tensorboardX\n"
        "INFO:fairseq_cli.preprocess:Namespace(seed=1, workers=1)\n",
        "INFO:fairseq_cli.preprocess:Namespace(seed=1, workers=16)\n",
        "INFO:fairseq_cli.preprocess:Namespace(seed=12, workers=1)\n",
    ):
        folder = tmp_path / f"logged {len(logged)}"
        folder.mkdir()
        (folder / "dict.src.txt").write_text("x 1")
        (folder / "fairseq-preprocess.log").write_text(log)
        files = {"dict.src.txt": 3, "fairseq-preprocess.log": len(log)}
        (folder / "prepared.json").write_text(json.dumps({"files": files}))
        logged.append(provenance.describe_data(folder).digest)
    assert logged[0] == logged[1] != logged[2]
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(InputError, match="has no dict.src.txt"):
        provenance.describe_data(own)
    (own / "dict.src.txt").write_text("x 1")
    before = provenance.describe_data(own).digest
    (own / "train.src-tgt.src.bin").write_bytes(b"1234")
    digests = {before, provenance.describe_data(own).digest}
    (own / "train.src-tgt.src.bin").write_bytes(b"4321")  # other lines, as many bytes
    assert len({*digests, provenance.describe_data(own).digest}) == 3


@pytest.mark.parametrize("content", [b"123", b"12345", None])
def test_data_that_are_not_whole(content: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "dict.src.txt").write_text("x 1")
    (tmp_path / "prepared.json").write_text(json.dumps({"files": {"a.bin": 4, "text/a.src": 9}}))
    (tmp_path / "a.bin").write_bytes(b"1234")
    provenance.describe_data(tmp_path)  # nobody but people reads the text
    if content is None:
        (tmp_path / "a.bin").unlink()
    else:
        (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.bin is not what `sut-prepare` put there"):
        provenance.describe_data(tmp_path)


def test_a_computer_with_gpus() -> None:
    gpu = Computer(
        processor="CPU", cores=16, threads="1", gpus=["NVIDIA H100"], python="3", torch="2"
    )
    assert str(gpu) == "1 x NVIDIA H100, torch 2"
    assert str(replace(gpu, tf32=True)) == "1 x NVIDIA H100, torch 2, TF32"


@pytest.mark.parametrize(("precision", "tf32"), [("highest", False), ("high", True)])
def test_tf32_is_recorded(precision: str, tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "GPU")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    assert provenance.describe_computer("1", 1).tf32 is tf32
    assert not provenance.describe_computer("1", 0).tf32


def test_code_of_a_checkout(repository: Path) -> None:
    code = provenance.describe_code()
    assert code.version
    assert (code.commit is not None) == (repository / ".git").exists()


def test_a_folder_with_the_usual_name_of_an_experiment_with_one_split() -> None:
    """Another data set is refused, a split of any name is not, nor is text of a user's own."""
    one, data = reading.read("arithmetic"), Data(folder="data-bin/arithmetic", digest="d")
    sentence = "data-bin/arithmetic holds listops lra, not arithmetic default: move it away"
    with pytest.raises(InputError, match=sentence):
        _check_data(one, "default", replace(data, dataset="listops", split="lra"))
    _check_data(one, "default", replace(data, dataset="arithmetic", split="mine"))
    _check_data(one, "default", data)


def test_a_stamp_of_multi30k_with_a_hyphen() -> None:
    """As folders of earlier versions have it."""
    data = Data(folder="data-bin/multi30k-de_en", dataset="multi30k", split="de-en", digest="d")
    _check_data(reading.read("multi30k"), "de_en", data)
    with pytest.raises(InputError, match="holds multi30k de_en, not multi30k en_de"):
        _check_data(reading.read("multi30k"), "en_de", data)


def test_options_that_gave_the_same_text(tmp_path: Path) -> None:
    """Trainings on both folders are of the same data."""
    (tmp_path / "dict.src.txt").write_text("x 1")
    digests = []
    for options in ([], ["--bpe 9000"]):
        stamp = {"dataset": "scan", "options": options, "files": {}}
        (tmp_path / "prepared.json").write_text(json.dumps(stamp))
        digests.append(provenance.describe_data(tmp_path).digest)
    assert digests[0] == digests[1]
