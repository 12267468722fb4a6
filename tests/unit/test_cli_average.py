"""Averaging checkpoints: known values, tied tensors, which are the best, and bad input."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from torch import Tensor

from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli._averaging import _SETTINGS, ParameterAverage
from sut_fairseq.cli._selection import read_validation_log
from sut_fairseq.cli.average import main


def _save(
    path: Path,
    model: dict[str, Tensor],
    *,
    updates: int = 1,
    value: float | None = 1.0,
    arch: str = "tiny",
    maximize: bool = False,
    end_of_epoch: bool = True,
    settings: dict[str, Any] | None = None,
    save_dir: str = "run",
) -> Path:
    """A checkpoint with the parts of fairseq's own that matter here, saved at epoch `updates`."""
    state = {
        "args": None,
        "cfg": {
            "model": {"_name": arch, **(settings or {})},
            "checkpoint": {
                "best_checkpoint_metric": "loss",
                "maximize_best_checkpoint_metric": maximize,
                "save_dir": save_dir,
            },
            "dataset": {"valid_subset": "valid"},
        },
        "model": model,
        "criterion": None,
        "optimizer_history": [{"num_updates": updates}],
        "last_optimizer_state": {"state": {0: torch.ones(3)}},
        "task_state": {"seen": updates},
        "extra_state": {
            "val_loss": value,
            "previous_training_time": 0.1 + updates,
            "train_iterator": {
                "epoch": updates + 1 if end_of_epoch else updates,
                "iterations_in_epoch": 0 if end_of_epoch else 5,
            },
        },
    }
    torch.save(state, path)
    return path


def _one(value: float) -> dict[str, Tensor]:
    return {"weight": torch.tensor([float(value)])}


def _run(directory: Path, values: list[float | None], **options: Any) -> Path:
    """A run with one checkpoint per value; the parameter of checkpoint n is n."""
    directory.mkdir()
    for number, value in enumerate(values, start=1):
        path = directory / f"checkpoint{number}.pt"
        _save(path, _one(float(number)), updates=number, value=value, **options)
    (directory / "checkpoint_last.pt").write_bytes(path.read_bytes())
    return directory


def _averaged(path: Path) -> list[float]:
    weight: list[float] = load_checkpoint(path)["model"]["weight"].tolist()
    return weight


def _mean(*models: dict[str, Tensor]) -> dict[str, Tensor]:
    average = ParameterAverage()
    for number, model in enumerate(models):
        average.add(Path(f"{number}.pt"), model)
    return average.result()


def _error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which must refuse its input, and return its one line."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sut-average: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


# --- the mean ---


def test_known_values() -> None:
    first = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[4.0]])}
    second = {"b": torch.tensor([[-4.0]]), "a": torch.tensor([3.0, 6.0])}
    mean = _mean(first, second)
    assert list(mean) == ["a", "b"]
    assert mean["a"].tolist() == [2.0, 4.0]
    assert mean["b"].tolist() == [[0.0]]
    assert first["a"].tolist() == [1.0, 2.0], "the input must not change"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    # In float16 the sum overflows; in bfloat16 adding 1 to 256 changes nothing.
    largest = torch.finfo(torch.float16).max if dtype == torch.float16 else 256.0
    values = [largest] * 4 if dtype == torch.float16 else [256.0, 1.0, 1.0, 2.0]
    mean = _mean(*({"w": torch.tensor([value], dtype=dtype)} for value in values))
    assert mean["w"].dtype == dtype
    assert mean["w"].item() == sum(values) / 4


def test_float64_stays_float64() -> None:
    small = 2.0**-40  # lost beside 1 in float32
    one = torch.tensor([1.0], dtype=torch.float64)
    other = torch.tensor([1.0], dtype=torch.float64) + 2 * small
    mean = _mean({"w": one}, {"w": other})
    assert mean["w"].dtype == torch.float64
    assert mean["w"].item() == 1 + small


def test_tied_tensors_are_averaged_once_and_stay_tied(tmp_path: Path) -> None:
    paths = []
    for number in (1.0, 3.0):
        shared = torch.full((2, 2), number)
        model = {"embed": shared, "other": torch.full((2, 2), number), "output": shared}
        paths.append(str(_save(tmp_path / f"{number}.pt", model, updates=int(number))))
    assert main([*paths, "--output", str(tmp_path / "mean.pt")]) == 0
    mean = load_checkpoint(tmp_path / "mean.pt")["model"]
    assert mean["embed"].data_ptr() == mean["output"].data_ptr()
    assert mean["embed"].data_ptr() != mean["other"].data_ptr()
    assert mean["embed"].tolist() == mean["other"].tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_parts_of_one_buffer_are_not_tied() -> None:
    def model(start: float) -> dict[str, Tensor]:
        flat = torch.arange(4.0) + start
        return {"a": flat[:2], "b": flat[2:], "none": flat[:0], "nothing": torch.zeros(0)}

    mean = _mean(model(0), model(2))
    assert mean["a"].tolist() == [1.0, 2.0]
    assert mean["b"].tolist() == [3.0, 4.0]


def test_integers_are_those_of_the_longest_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for updates in (7, 5):
        model = {"steps": torch.tensor([updates]), "same": torch.tensor([True])}
        paths.append(str(_save(tmp_path / f"{updates}.pt", model, updates=updates)))
    assert main([*paths, "--output", str(tmp_path / "mean.pt")]) == 0
    assert (
        "note: integer tensors that differ are those of the longest trained checkpoint: steps"
        in (capsys.readouterr().out)
    )
    model = load_checkpoint(tmp_path / "mean.pt")["model"]
    assert model["steps"].tolist() == [7]
    assert model["same"].tolist() == [True]


# --- what is written ---


def test_what_the_new_checkpoint_keeps(tmp_path: Path) -> None:
    paths = [str(_save(tmp_path / f"{n}.pt", _one(n), updates=n)) for n in (4, 2)]
    assert main([*paths, "--output", str(tmp_path / "mean.pt")]) == 0
    state = load_checkpoint(tmp_path / "mean.pt")
    assert state["model"]["weight"].tolist() == [3.0]
    assert "last_optimizer_state" not in state
    assert state["cfg"]["model"] == {"_name": "tiny"}
    assert state["task_state"] == {"seen": 4}
    assert state["optimizer_history"] == [{"num_updates": 4}]
    extra = state["extra_state"]
    assert extra["val_loss"] is None, "nobody has validated the mean"
    assert [source["file"] for source in extra["averaged_from"]] == ["2.pt", "4.pt"]


def test_a_refused_input_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = _save(tmp_path / "a.pt", _one(1))
    (tmp_path / "b.pt").write_bytes(good.read_bytes()[:-100])
    output = tmp_path / "mean.pt"
    line = _error([str(good), str(tmp_path / "b.pt"), "--output", str(output)], capsys)
    assert "b.pt` is truncated" in line
    assert not output.exists()


# --- which checkpoints ---


def test_a_checkpoint_of_the_run_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0])
    before = (run / "checkpoint2.pt").read_bytes()
    options = ["--from", str(run), "--best", "1", "--output", str(run / "checkpoint2.pt")]
    assert "checkpoint2.pt` is one of the checkpoints" in _error(options, capsys)
    assert (run / "checkpoint2.pt").read_bytes() == before


def test_the_best_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0, 2.0, 4.0])
    output = tmp_path / "mean.pt"
    assert main(["--from", str(run), "--best", "2", "--output", str(output)]) == 0
    assert _averaged(output) == [2.5]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("averaged 2 of 4 different checkpoints")
    assert printed[0].endswith("those with the lowest loss:")
    assert [line.split() for line in printed[1:4]] == [
        ["file", "epoch", "updates", "loss"],
        ["checkpoint2.pt", "2", "2", "1"],
        ["checkpoint3.pt", "3", "3", "2"],
    ]
    assert printed[4] == f"wrote {output}: 1 tensors with 1 values"


def test_copies_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0])
    for name in ("checkpoint_best.pt", "checkpoint.best_loss_1.0000.pt", "checkpoint_3_9.pt"):
        (run / name).write_bytes((run / "checkpoint2.pt").read_bytes())
    output = tmp_path / "mean.pt"
    assert main(["--from", str(run), "--best", "2", "--output", str(output)]) == 0
    assert _averaged(output) == [1.5]
    capsys.readouterr()
    listed = [
        str(run / name) for name in ("checkpoint1.pt", "checkpoint2.pt", "checkpoint_best.pt")
    ]
    assert main([*listed, "--output", str(output)]) == 0
    assert _averaged(output) == [1.5]
    assert f"note: {listed[2]} is a copy of {listed[1]} and counts once" in capsys.readouterr().out


def test_checkpoints_without_a_time_are_no_copies(tmp_path: Path) -> None:
    """Even after as many updates; one file under two names is one, however."""
    paths = [_save(tmp_path / f"{number}.pt", _one(number)) for number in (1, 2)]
    for path in paths:
        state = load_checkpoint(path)
        del state["extra_state"]["previous_training_time"]
        torch.save(state, path)
    (tmp_path / "link.pt").symlink_to(paths[0])
    output = tmp_path / "mean.pt"
    listed = [*map(str, paths), str(tmp_path / "link.pt")]
    assert main([*listed, "--output", str(output)]) == 0
    assert _averaged(output) == [1.5]


def test_several_trainings_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        _save(tmp_path / f"{number}.pt", _one(number), updates=number, save_dir=save_dir)
        for number, save_dir in enumerate(("one", "one", "two"))
    ]
    note = "note: they come from several trainings (one, two): such an average is often worse"
    for some, noted in ((paths[:2], False), (paths, True)):
        assert main([*map(str, some), "--output", str(tmp_path / "mean.pt")]) == 0
        assert (note in capsys.readouterr().out) == noted


def test_more_than_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "run", [3.0, None, math.nan])
    output = str(tmp_path / "mean.pt")
    line = _error(["--from", str(run), "--best", "2", "--output", output], capsys)
    assert "--best 2 asks for more than there are: 1 of 3 different checkpoints" in line
    assert main(["--from", str(run), "--best", "1", "--output", output]) == 0
    assert "note: passed over, without a value of loss: checkpoint2.pt, checkpoint3.pt" in (
        capsys.readouterr().out
    )


def test_or_fewer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0, None])
    output = tmp_path / "mean.pt"
    select = ["--from", str(run), "--best", "5", "--or-fewer", "--output", str(output)]
    assert main(select) == 0
    assert _averaged(output) == [1.5]
    assert "note: there are fewer than the 5 asked for" in capsys.readouterr().out
    nothing = _run(tmp_path / "nothing", [None, math.nan])
    line = _error(["--from", str(nothing), *select[2:]], capsys)
    assert line.endswith(
        "no checkpoint has a finite value of `loss` to choose by: name a log of their training "
        "with --log.\n"
    )


def test_the_run_knows_its_direction(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0, 2.0], maximize=True)
    output = tmp_path / "mean.pt"
    select = ["--from", str(run), "--best", "1", "--output", str(output)]
    assert main(select) == 0
    assert _averaged(output) == [1.0]
    assert main([*select, "--minimize"]) == 0
    assert _averaged(output) == [2.0]
    assert main([*select, "--maximize"]) == 0
    assert _averaged(output) == [1.0]


def test_of_equally_good_ones_the_longer_trained(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0, 1.0, 1.0])
    output = tmp_path / "mean.pt"
    assert main(["--from", str(run), "--best", "2", "--output", str(output)]) == 0
    assert _averaged(output) == [2.5]


def test_the_output_may_lie_in_the_run(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0, 2.0])
    output = run / "checkpoint_best.pt"
    for _ in range(2):  # the second time it is there already, and is no candidate
        assert main(["--from", str(run), "--best", "2", "--output", str(output)]) == 0
        assert _averaged(output) == [1.5]


def test_an_earlier_average_is_no_candidate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log has a value for its number of updates, but nobody has validated it."""
    run = _run(tmp_path / "run", [1.0, 2.0])
    log = tmp_path / "train.log"
    log.write_text("".join(LOGS["plain"].format(n=n, value=n) for n in (1, 2)))
    assert main(["--from", str(run), "--best", "2", "--output", str(run / "checkpoint9.pt")]) == 0
    select = ["--from", str(run), "--best", "2", "--metric", "bleu", "--maximize", "--log"]
    capsys.readouterr()
    assert main([*select, str(log), "--output", str(tmp_path / "mean.pt")]) == 0
    shown = capsys.readouterr().out
    assert "averaged 2 of 2 different checkpoints" in shown
    assert "note: checkpoint9.pt is an average and is left out" in shown


LOGS = {
    "plain": "2026-01-01 00:00:00 | INFO | valid | epoch 00{n} | valid on 'valid' subset "
    "| loss 9.9 | bleu {value} | wps 0 | num_updates {n}\n",
    "json": '2026-01-01 00:00:00 | INFO | valid | {{"epoch": {n}, "valid_loss": "9.9", '
    '"valid_bleu": "{value}", "valid_num_updates": "{n}"}}\n',
}


@pytest.mark.parametrize("form", LOGS)
def test_another_metric_from_the_log(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path / "run", [3.0, 1.0, 2.0])
    log = tmp_path / "train.log"
    lines = [
        LOGS[form].format(n=n, value=value) for n, value in ((1, 20), (2, 10), (3, 5), (3, 30))
    ]
    train = (
        '{"epoch": 1, "train_bleu": "99", "train_num_updates": "1"}\n{"valid_num_updates" broken'
    )
    log.write_text("".join(lines) + train)
    assert read_validation_log(log, "bleu") == {1: 20.0, 2: 10.0, 3: 30.0}
    output = tmp_path / "mean.pt"
    select = ["--from", str(run), "--best", "2", "--metric", "bleu", "--output", str(output)]
    assert "stores its `loss` only" in _error([*select, "--maximize"], capsys)
    assert "It is not recorded whether more or less `bleu` is better" in _error(
        [*select, "--log", str(log)], capsys
    )
    assert main([*select, "--maximize", "--log", str(log)]) == 0
    assert _averaged(output) == [2.0]
    assert "with the highest bleu" in capsys.readouterr().out
    select[select.index("bleu")] = "chrf"
    assert "no validation lines with `chrf`" in _error(
        [*select, "--maximize", "--log", str(log)], capsys
    )


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _save(tmp_path / "a.pt", _one(1), updates=3, value=None, end_of_epoch=False)
    output = tmp_path / "mean.pt"
    assert main([str(path), "--output", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "output": str(output),
        "checkpoints": [
            {"file": str(path), "epoch": 3, "updates": 3, "metric": "loss", "value": None}
        ],
        "notes": [],
        "tensors": 1,
        "values": 1,
    }


# --- bad input ---


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"weight": torch.ones(1), "b": torch.ones(1)}, "has the parameter `b`, which `.*` lacks"),
        ({"other": torch.ones(1)}, "has the parameter `weight`, which `.*` lacks"),
        (
            {"weight": torch.ones(2)},
            r"is float32 of shape \(1,\) in `.*`, but float32 of shape \(2,",
        ),
        ({"weight": torch.ones(1).half()}, r"but float16 of shape \(1,\) in"),
        ({"weight": torch.tensor([math.nan])}, "b.pt` has NaN or infinite numbers in `weight`"),
        ({"weight": torch.tensor([-math.inf])}, "b.pt` has NaN or infinite numbers in `weight`"),
    ],
)
def test_checkpoints_that_do_not_fit(
    tmp_path: Path,
    model: dict[str, Tensor],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = _save(tmp_path / "a.pt", _one(1))
    second = _save(tmp_path / "b.pt", model, updates=2)
    line = _error([str(first), str(second), "--output", str(tmp_path / "mean.pt")], capsys)
    assert re.search(message, line)


def test_another_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _save(tmp_path / "a.pt", _one(1))
    second = _save(tmp_path / "b.pt", _one(1), updates=2, arch="huge")
    line = _error([str(first), str(second), "--output", str(tmp_path / "mean.pt")], capsys)
    assert "is of the architecture `tiny`" in line
    assert "is of `huge`" in line


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("encoder_layers", (2, 3)),
        ("alpha_threshold", (0.999, 0.5)),
        ("ffn_top_k", (1, 2)),
        ("feed_forward_kind", ("auto", "own")),
        ("encoder_attention_heads", (2, 4)),
        ("stop_gate", (False, True)),
    ],
)
def test_models_that_compute_different_functions(
    tmp_path: Path, name: str, values: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """No tensor shows it."""
    paths = [
        str(_save(tmp_path / f"{n}.pt", _one(1), updates=n, settings={name: value}))
        for n, value in enumerate(values)
    ]
    output = tmp_path / "mean.pt"
    line = _error([*paths, "--output", str(output)], capsys)
    sentence = (
        f"`{paths[0]}` has the setting `{name}` {values[0]}, but `{paths[1]}` has {values[1]}"
    )
    assert sentence in line and not output.exists()


def test_models_of_one_function(tmp_path: Path) -> None:
    """What a training may be resumed with, and what an older version did not record."""
    settings: list[dict[str, Any]] = [
        {"dropout": 0.1, "token_layout": "auto", "encoder_layers": 2, "attention_head_dim": None},
        {"dropout": 0.2, "token_layout": "masked", "encoder_layers": 2, "attention_head_dim": 8},
        {"max_source_positions": 60, "expert_backend": "loop"},
    ]
    paths = [
        str(_save(tmp_path / f"{n}.pt", _one(n), updates=n, settings=one))
        for n, one in enumerate(settings)
    ]
    assert main([*paths, "--output", str(tmp_path / "mean.pt")]) == 0
    assert _averaged(tmp_path / "mean.pt") == [1.0]


def test_compared_settings_are_settings() -> None:
    """Of our models; whoever renames one finds it here."""
    known = {name for one in MODEL_DATACLASS_REGISTRY.values() for name in one.__dataclass_fields__}
    assert set(_SETTINGS) <= known


def test_memory_shared_in_one_only() -> None:
    shared = torch.ones(1)
    average = ParameterAverage()
    average.add(Path("a.pt"), {"x": shared, "y": shared})
    with pytest.raises(ValueError, match="do not share memory between the same parameters"):
        average.add(Path("b.pt"), {"x": torch.ones(1), "y": torch.ones(1)})


def test_paths_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(_save(tmp_path / "a.pt", _one(1)))
    empty = tmp_path / "empty"
    empty.mkdir()
    output = str(tmp_path / "mean.pt")
    assert "is a folder" in _error([path, "--output", str(empty)], capsys)
    assert "there is no folder" in _error([path, "--output", str(empty / "no" / "mean.pt")], capsys)
    assert "one of the checkpoints" in _error([path, "--output", path], capsys)
    assert "There is no folder" in _error(
        ["--from", str(tmp_path / "no"), "--best", "1", "--output", output], capsys
    )
    assert "has no checkpoint" in _error(
        ["--from", str(empty), "--best", "1", "--output", output], capsys
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either checkpoint files or --from"),
        (["a.pt", "--from", "run", "--best", "1"], "either checkpoint files or --from"),
        (["--from", "run"], "--from needs --best"),
        (["--from", "run", "--best", "0"], "at least 1, but is `0`"),
        (["a.pt", "--best", "1"], "need --from"),
        (["a.pt", "--maximize"], "need --from"),
    ],
)
def test_options_that_do_not_fit(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main([*arguments, "--output", "mean.pt"])
    assert exit_code.value.code == 2
    assert message in capsys.readouterr().err
