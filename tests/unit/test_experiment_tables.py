"""Records of runs, and tables made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sut_fairseq.analysis import trade_off_plots
from sut_fairseq.analysis.drawing import Figure
from sut_fairseq.cli import _experiment_evaluation, _experiment_figures, experiment
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import (
    evaluating,
    pages,
    provenance,
    reading,
    records,
    report,
    results,
)
from sut_fairseq.experiments.evaluating import Asked, Evaluated, read_evaluations, write
from sut_fairseq.experiments.provenance import Code, Computer, Data
from sut_fairseq.experiments.records import Record, Session
from sut_fairseq.experiments.schema import Settings

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


def lines(rows: list[dict[str, str]]) -> list[str]:
    return [" ".join(" ".join(row.values()).split()) for row in rows]


def test_seeds_of_the_same_settings_are_put_together(tmp_path: Path) -> None:
    """Neither other models, nor other lengths, nor other data are mixed in."""
    other = Data(folder="elsewhere", dataset="ctl", split="backward", digest="d2")
    runs = [
        run(tmp_path, "ndr", 2, {"9": 96, "all": 98}),
        run(tmp_path, "rel", 1, {"9": 10, "all": 20}),
        run(tmp_path, "ndr", 1, {"9": 100, "all": 100}),
        run(tmp_path, "ndr", 1, {"9": 90, "all": 97}, updates=9),
        run(tmp_path, "ndr", 3, {"9": 1, "all": 2}, data=other),
    ]
    # Results of other settings, which are not asked for.
    evaluate(runs[0], FORWARD, {"all": 7}, Asked(by="depth", steps=6))
    groups = results.collect(runs)
    assert lines(results.table(groups, [], by_group=False)) == [
        "ctl forward ndr small 5 updates test all percent ndr-1-5 1 2 100.00 98.00 99.00 1.41 100",
        "ctl forward rel small 5 updates test all percent rel-1-5 1 20.00 20.00 23",
        "ctl forward ndr small 9 updates test all percent ndr-1-9 1 97.00 97.00 100",
        "ctl backward ndr small 5 updates test all percent ndr-3-5 3 2.00 2.00 100",
    ]
    assert lines(results.table(groups[:1], [], by_group=True)) == [
        "ctl forward ndr small 5 updates test 9 percent ndr-1-5 1 2 100.00 96.00 98.00 2.83",
        "ctl forward ndr small 5 updates test all percent ndr-1-5 1 2 100.00 98.00 99.00 1.41 100",
    ]


def test_two_runs_of_one_seed_are_refused(tmp_path: Path) -> None:
    """The same folder may be named twice."""
    one = run(tmp_path, "ndr", 1, {"all": 98})
    assert [*results.collect([one, one])[0].runs] == [one]
    (tmp_path / "again").mkdir()
    two = run(tmp_path / "again", "ndr", 1, {"all": 12})
    with pytest.raises(InputError, match=f"^{one} and {two} are runs of the same settings and"):
        results.collect([one, two])


def test_the_papers_numbers_are_of_whole_models(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    for without, paper in ((None, "100"), ("geometric", "")):
        records.write_record(path, replace(record, without=without))
        assert results.table(results.collect([path]), [], False)[0]["paper"] == paper


def test_sets_like_training(tmp_path: Path) -> None:
    one = run(tmp_path, "geometric", 1, {"all": 16})
    evaluate(one, FORWARD, {"all": 90}, Asked(subset="valid", by="depth"))
    rows = results.table(results.collect([one]), ["test", "valid"], by_group=False)
    assert [(row["subset"], row["mean"], row["paper"]) for row in rows] == [
        ("test", "16.00", "16"),
        ("valid", "90.00", "96"),
    ]
    with pytest.raises(InputError, match=r"no result on `gen`: run `sut-experiment evaluate"):
        results.table(results.collect([one]), ["gen"], by_group=False)


def test_report(tmp_path: Path) -> None:
    """What made each run, and a table for each way in which some of them were evaluated."""
    runs = [run(tmp_path, "ndr", seed, {"9": 90 + seed, "all": 95}) for seed in (1, 2)]
    for one in runs:
        evaluate(one, FORWARD, {"all": 50}, Asked(by="depth", steps=6))
    evaluate(runs[1], FORWARD, {"all": 1}, Asked(by="depth", alpha_threshold=0.5))
    groups = results.collect(runs)
    page = report.markdown(groups)
    assert page.startswith(
        "## ctl (forward), ndr, small, 5 updates\n\n"
        "`sut-experiment train ctl --split forward --models ndr --size small --updates 5 "
        "--seeds 1 2`\n"
    )
    assert (
        "| ndr-1-5 | 1 | 5 updates | 5 s | 0.1.0, 0123456789 with changes | d1 "
        "| CPU, 1 of 2 cores, torch 2 | 2026-11-22 |"
    ) in page
    assert (
        "Set `test`, in per cent:\n\n"
        "| depth | sentences | seed 1 | seed 2 | mean | deviation | paper |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| 9 | 10 | 91.00 | 92.00 | 91.50 | 0.71 |  |\n"
        "| all | 10 | 95.00 | 95.00 | 95.00 | 0.00 | 100 |\n"
    ) in page
    assert "Set `test`, 6 steps, in per cent:" in page
    assert (
        "Set `test`, halting threshold 0.5, in per cent:\n\n| depth | sentences | seed 2 |\n"
    ) in page
    assert [(row["subset"], row["seeds"]) for row in report.rows(groups)] == [
        *[("test-by-depth", "1 2")] * 2,
        ("test-by-depth-6-steps", "1 2"),
        ("test-by-depth-0.5", "2"),
    ]


def test_sweeps_have_a_row_for_each_threshold(tmp_path: Path) -> None:
    one = run(tmp_path, "ndr", 1, {"all": 95})
    asked = Asked(thresholds=[0.5, 0.9], search=True)
    rows = [
        {"mode": mode, "alpha_threshold": threshold, "group": "all", "percent": percent}
        for mode, threshold, percent in (
            ("reference", "0.5", "10"),
            ("reference", "0.9", "20"),
            ("search", "0.5", "30"),
        )
    ]
    evaluated = Evaluated(
        asked=asked, data=FORWARD, measure="accuracy", rows=rows, code=CODE, when=EVALUATED
    )
    write(one, asked.name(), evaluated)
    plain, sweep = read_evaluations(one, records.read_record(one))
    assert plain.asked.plain and sweep.values() == {
        "reference 0.5": 10,
        "reference 0.9": 20,
        "search 0.5": 30,
    }
    assert "| alpha_threshold | seed 1 |\n" in report.markdown(results.collect([one]))
    # What search alone measures has no rows in the other mode.
    searched = [{**rows[0], "before_eos": ""}, {**rows[2], "before_eos": "35"}]
    write(one, asked.name(), replace(evaluated, rows=searched))
    assert read_evaluations(one, records.read_record(one))[1].values("before_eos") == {
        "search 0.5": 35
    }
    assert "| search 0.5 | 35.00 |" in report.markdown(results.collect([one]))


def test_sweeps_show_what_they_skip_and_take(tmp_path: Path) -> None:
    """Beside the scores stand skipped steps, depth and seconds, the mean over the seeds."""
    paths = [run(tmp_path, "ndr", seed, {"all": 95}) for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        rows = [
            {
                "mode": "reference",
                "alpha_threshold": f"{threshold}",
                "group": "all",
                "percent": f"{90 + seed}",
                "encoder_depth": f"{2 * seed}",
                "skipped": f"{threshold / 2}",
                "seconds": f"{10 * threshold + seed}",
            }
            for threshold in (0.4, 0.8)
        ]
        sweep(path, rows)
    page = report.markdown(results.collect(paths))
    header = "alpha_threshold | seed 1 | seed 2 | mean | deviation | skipped | encoder depth"
    assert (
        f"| {header} | seconds |\n{'| --- ' * 8}|\n"
        "| 0.4 | 91.00 | 92.00 | 91.50 | 0.71 | 20.0% | 3.00 | 5.5 |\n"
        "| 0.8 | 91.00 | 92.00 | 91.50 | 0.71 | 40.0% | 3.00 | 9.5 |\n"
    ) in page
    # On the page of the results they are drawn, the scores of either run as their mean.
    figures = []
    picture = tmp_path / "trade-off.png"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trade_off_plots, "draw", lambda *drawn: figures.append(drawn[:3]))
        patch.setattr(_experiment_figures, "written_whole", nullcontext)
        assert _experiment_figures.draw_trade_offs(results.collect(paths), picture)
    points = [(0.4, 91.5, 0.2, 5.5), (0.8, 91.5, 0.4, 9.5)]
    label = "forward ndr on test"
    assert figures == [([(label, points)], "accuracy, %", "ctl")]
    assert _experiment_figures.draw_trade_offs(results.collect(paths), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    draw = replace(DRAW_NOTHING, trade_offs=lambda groups, picture: True)
    pages.write(results.collect(paths), tmp_path, draw)
    assert "(pictures/ctl-trade-off.png)" in (tmp_path / "ctl.md").read_text()


def test_labels_that_would_cover_one_another_are_left_out() -> None:
    figure = Figure()
    places = [(0.9, 0.3), (0.8, 0.301), (0.4, 0.6), (0.1, 0.9)]
    points = [trade_off_plots.Point(threshold, 90, skipped, 1) for threshold, skipped in places]
    trade_off_plots.draw_into(figure, [trade_off_plots.Curve("ndr", points)], "accuracy")
    assert [label.get_text() for label in figure.axes[0].texts] == ["0.9", "0.4", "0.1"]
    assert not figure.legends


def test_a_sweep_without_costs_is_not_drawn(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 95})
    picture = tmp_path / "trade-off.png"
    assert not _experiment_figures.draw_trade_offs(results.collect([path]), picture)
    sweep(path, [{"mode": "search", "alpha_threshold": "0.5", "group": "all", "percent": "10"}])
    assert not _experiment_figures.draw_trade_offs(results.collect([path]), picture)
    assert not picture.exists()


def sweep(path: Path, rows: list[dict[str, str]]) -> None:
    """Write the rows of a run's evaluation at thresholds."""
    asked = Asked(thresholds=[float(row["alpha_threshold"]) for row in rows])
    evaluated = Evaluated(
        asked=asked, data=FORWARD, measure="accuracy", rows=rows, code=CODE, when=EVALUATED
    )
    write(path, asked.name(), evaluated)


def test_a_measure_that_one_of_the_runs_lacks(tmp_path: Path) -> None:
    """There is no table of it."""
    runs = [run(tmp_path, "ndr", seed, {"all": 95}) for seed in (1, 2)]
    (evaluated,) = read_evaluations(runs[0], records.read_record(runs[0]))
    more = replace(evaluated, rows=[{**evaluated.rows[0], "before_eos": "97"}])
    write(runs[0], more.asked.name(), more)
    page = report.markdown(results.collect(runs))
    assert "Set `test`, in per cent:" in page and "before" not in page


def test_folders_without_runs(tmp_path: Path) -> None:
    one = run(tmp_path, "ndr", 1, {"all": 95})
    assert records.find_runs([tmp_path, one]) == [one]
    with pytest.raises(InputError, match="is not the folder of a run, nor are there any in it"):
        records.find_runs([tmp_path / "nothing"])
    (one / records.RECORD).write_text("{")
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        records.read_record(one)


def test_runs_behind_links(tmp_path: Path) -> None:
    """Each is found once, though a link leads in a circle."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "elsewhere").symlink_to(path)
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs")
    found = records.find_runs([tmp_path / "runs"])
    assert [one.resolve() for one in found] == [path]
    assert records.holds_runs(tmp_path / "runs")


def test_seeds_that_were_evaluated_in_other_ways_are_not_put_together(tmp_path: Path) -> None:
    """Other groups, and other folders whose names end alike."""
    runs = [run(tmp_path, "ndr", seed, {"9": 90.0, "all": 95.0}) for seed in (1, 2)]
    (runs[0] / "test-by-depth.evaluation.json").unlink()
    evaluate(runs[0], FORWARD, {"9": 10.0, "all": 95.0}, Asked(by="source_length"))
    (group,) = results.collect(runs)
    sentence = f"on the same `test` in the same groups: run .* {runs[0]} {runs[1]}` first"
    with pytest.raises(InputError, match=sentence):
        results.table([group], [], by_group=True)
    for path, digest in zip(runs, ("d7", "d8")):
        there = replace(FORWARD, folder=f"{path}/extra", digest=digest)
        evaluate(path, there, {"all": 50.0}, Asked(by="depth", data=there.folder))
    assert all(len(one.each) == 1 for one in group.evaluations())


def test_the_runs_own_data_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result on them is the usual one; on others it is one on other data."""
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        _experiment_evaluation,
        "by_groups",
        lambda run, record, experiment, wanted: asked.append((record.data.folder, wanted.data)),
    )
    for name, word in (("moved", "x 1"), ("other", "y 1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dict.src.txt").write_text(word)
    moved = str(tmp_path / "moved")
    data = replace(provenance.describe_data(Path(moved)), folder=str(tmp_path / "gone"))
    path = run(tmp_path, "ndr", 1, {"all": 90.0}, data=data)
    for folder in (moved, str(tmp_path / "other")):
        assert experiment.main(["evaluate", str(path), "--data", folder]) == 0
    assert asked == [(moved, None), (data.folder, str(tmp_path / "other"))]


def test_sets_that_were_added_to_copies_of_the_data(tmp_path: Path) -> None:
    """The same data for a training, but results on different sets are not put together."""
    folders, both = [], []
    for name, text in (("data", "1"), ("copy", "2")):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "dict.src.txt").write_text("x 1")
        stamp = {"dataset": "ctl", "also": {"news.src": text, "news.tgt": text}}
        (folders[-1] / "prepared.json").write_text(json.dumps(stamp))
        both.append(provenance.describe_data(folders[-1]))
    assert both[0].digest == both[1].digest
    ctl, asked = reading.read("ctl"), Asked(subset="news", by="depth")
    runs = [run(tmp_path, "ndr", seed, {"all": 9.0}, data=both[0]) for seed in (1, 2)]
    for path, data in zip(runs, both):
        (path / "news-by-depth.csv").write_text("group,sentences,percent\nall,5,50\n")
        record = replace(records.read_record(path), data=data)
        evaluating.keep(path, record, ctl, asked, EVALUATED)
    record = records.read_record(runs[0])
    assert [evaluating.is_its_own(record, one, "news") for one in both] == [True, False]
    assert evaluating.is_its_own(record, both[1], "test")
    (group,) = results.collect(runs)
    with pytest.raises(InputError, match="no results on the same `news`"):
        group.on_subset("news")
    evaluating.check_name(runs[0], asked, both[0])
    with pytest.raises(InputError, match="would have the same name"):
        evaluating.check_name(runs[0], asked, both[1])


@pytest.mark.parametrize(
    ("row", "damage"),
    [
        ({"percent": "64,88"}, "'64,88'"),
        ({"sentences": "336.0"}, "'336.0'"),
        ({"group": None}, "group"),
        ({"percent": ""}, "no results"),
    ],
)
def test_rows_that_were_edited(row: dict[str, str | None], damage: str, tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    file = path / "test-by-depth.evaluation.json"
    document = json.loads(file.read_text())
    document["rows"][0] |= row
    document["rows"][0] = {
        key: cell for key, cell in document["rows"][0].items() if cell is not None
    }
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"{file} is damaged .*{damage}.*evaluate the run again"):
        results.table(results.collect([path]), [], True)


def test_a_record_without_a_training(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    records.write_record(path, replace(records.read_record(path), trainings={}))
    with pytest.raises(InputError, match=f"{path / 'run.json'} is damaged .* make the run again"):
        results.collect([path])


def test_a_length_that_fairseq_refused_hides_no_other_run(tmp_path: Path) -> None:
    run(tmp_path, "ndr", 1, {"all": 90.0})
    path = run(tmp_path, "ndr", 2, {"all": 90.0})
    record = records.read_record(path)
    settings = {**record.trainings[""], "max-update": "1e3"}
    records.write_record(path, replace(record, trainings={"": settings}))
    assert records.read_record(path).all_updates is None
    page = report.markdown(results.collect(records.find_runs([tmp_path])))
    assert "1e3 updates" in page and "5 updates" in page


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
    assert provenance.describe_data(own).digest != before


@pytest.mark.parametrize("content", [b"123", None])
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


def test_options_of_the_machine_are_no_settings(tmp_path: Path) -> None:
    """Of older records, in which they stand, neither."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    more: Settings = {"cuda-graphs": 8}
    older = replace(record, options=more, trainings={"": {**record.trainings[""], **more}})
    records.write_record(path, older)
    assert older.key() != record.key() and records.read_record(path) == record


@pytest.mark.parametrize(("precision", "tf32"), [("highest", False), ("high", True)])
def test_tf32_is_recorded(precision: str, tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "GPU")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    assert provenance.describe_computer("1", 1).tf32 is tf32
    assert not provenance.describe_computer("1", 0).tf32


def test_a_run_that_moved_to_another_machine(tmp_path: Path) -> None:
    gpu = replace(COMPUTER, gpus=["NVIDIA H100"])
    later = replace(CODE, commit="fedcba9876543210", changed=False)
    moved = [replace(SESSION, computer=gpu), SESSION, replace(SESSION, code=later)]
    record = records.read_record(run(tmp_path, "ndr", 1, {"all": 90.0}))
    record = replace(record, sessions=moved)
    assert record.computers == f"{gpu}; then {COMPUTER}"
    assert record.codes == f"{CODE}; then {later}"
    cells = report.run_cells(Path("run"), record)
    assert cells[4] == record.codes and cells[6] == record.computers


def test_code_of_a_checkout(repository: Path) -> None:
    code = provenance.describe_code()
    assert code.version
    assert (code.commit is not None) == (repository / ".git").exists()


@pytest.mark.parametrize(("experiment", "checkpoint"), [("ctl", "best"), ("scan_cutoffs", "last")])
def test_the_checkpoint_that_is_evaluated(
    experiment: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "describe_data", lambda _: FORWARD)
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record, file = records.read_record(path), path / f"checkpoints/checkpoint_{checkpoint}.pt"
    for one, remedy in (
        (replace(record, sessions=[]), "train first"),
        (record, "it is trained, so put the file back, or train again with another --out"),
    ):
        with pytest.raises(InputError, match=f"has no checkpoints/{file.name}: {remedy}."):
            evaluating.command(path, one, reading.read(experiment), Asked())
    file.parent.mkdir()
    file.touch()
    line = evaluating.command(path, record, reading.read(experiment), Asked())
    assert line[:2] == ["--path", str(file)]


def test_data_that_changed_since_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused, unless they are asked for as other data; older results do not count."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    (path / "test-by-depth.csv").touch()
    record, ctl = records.read_record(path), reading.read("ctl")
    now = replace(FORWARD, digest="d2")
    monkeypatch.setattr(provenance, "describe_data", lambda _: now)
    sentence = r"data-bin/ctl-forward holds other data than at the time of the training: .* --data"
    with pytest.raises(InputError, match=sentence):
        evaluating.command(path, record, ctl, Asked(by="depth"))
    with pytest.raises(InputError, match=sentence):
        evaluating.keep(path, record, ctl, Asked(by="depth"), EVALUATED)
    elsewhere = Asked(data=FORWARD.folder)
    assert "--data" in evaluating.command(path, record, ctl, elsewhere)
    evaluate(path, now, {"all": 99.0}, Asked(by="depth"))
    assert read_evaluations(path, record) == []
    evaluate(path, now, {"all": 99.0}, elsewhere)
    assert [one.asked.plain for one in read_evaluations(path, record)] == [False]


def test_results_on_a_folder_of_the_same_name_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    record, ctl = records.read_record(path), reading.read("ctl")
    first, other = Asked(by="depth", data="a/bin"), Asked(by="depth", data="b/bin")
    folders = {"a/bin": replace(FORWARD, folder="a/bin", digest="d2")}
    folders["b/bin"] = replace(FORWARD, folder="b/bin", digest="d3")
    monkeypatch.setattr(provenance, "describe_data", lambda folder: folders[str(folder)])
    evaluate(path, folders["a/bin"], {"all": 99.0}, first)
    assert evaluating.command(path, record, ctl, first)
    sentence = "on a/bin, and those on b/bin would have the same name: rename one"
    with pytest.raises(InputError, match=sentence):
        evaluating.command(path, record, ctl, other)
    folders["b/bin"] = replace(folders["a/bin"], folder="b/bin")  # a copy: the same results
    assert evaluating.command(path, record, ctl, other)
