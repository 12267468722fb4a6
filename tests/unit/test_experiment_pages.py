"""The pages of results: verdicts on claims, the first table, pictures of curves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.analysis.drawing import Figure
from sut_fairseq.cli import _experiment_evaluation, experiment
from sut_fairseq.cli._experiment_figures import draw_claims, draw_curves
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import pages, provenance, reading, records, report, results
from sut_fairseq.experiments.claims import Found, Verdict, check_claims
from sut_fairseq.experiments.evaluating import Asked, read_evaluations
from sut_fairseq.experiments.records import Session
from sut_fairseq.experiments.schema import Claim
from tests.experiment_runs import DRAW_NOTHING, FORWARD, SESSION, evaluate, run
from tests.unit.test_experiment_curves import LOG

CLAIM = Claim(shows="forward, data router", model="ndr", splits=["forward"], paper=100, bar=98)


def test_a_row_names_options_of_the_users_own(tmp_path: Path) -> None:
    path = as_size(run(tmp_path, "ndr", 1, {"all": 98.5}), "small", updates=None)
    record = replace(records.read_record(path), options={"encoder-layers": "18"})
    record.trainings[""].update({"batch-size": 128, "update-freq": 2})
    records.write_record(path, record)
    pages.write(results.collect([path]), tmp_path / "pages", DRAW_NOTHING)
    index = (tmp_path / "pages" / "index.md").read_text()
    assert "| states of 128, 5 updates of 256, `--encoder-layers 18` |" in index
    text = "5 updates of 256 sources, for 2 CPU cores; but with `--encoder-layers 18`; 1 seed:"
    assert text in index


def test_a_row_tells_the_length_of_the_run(tmp_path: Path) -> None:
    """As its size says it, or after that where the size does not."""
    path = as_size(run(tmp_path, "ndr", 1, {"all": 98.5}), "small", updates=None)
    records.write_record(path, replace(records.read_record(path), planned_before=["800 updates"]))
    for size, text in (
        ("small", "5 updates of 256 sources, for 2 CPU cores; planned for 800 updates before (`"),
        ("paper", "Table 7 of the paper; but 5 updates, planned for 800 updates before (`"),
    ):
        pages.write(results.collect([as_size(path, size, updates=None)]), tmp_path, DRAW_NOTHING)
        assert f"{text}--change-length`); 1 seed:" in (tmp_path / "index.md").read_text()


def verdict(runs: list[Path], **changes: Any) -> Found:
    """What becomes of a claim beside these runs."""
    ctl = replace(reading.read("ctl"), claims=[replace(CLAIM, **changes)])
    return check_claims([ctl], results.collect(runs))[0]


def as_size(path: Path, size: str, updates: int | None = 5) -> Path:
    """The same run in another size."""
    records.write_record(path, replace(records.read_record(path), size=size, updates=updates))
    return path


def with_sessions(path: Path, *sessions: Session) -> None:
    records.write_record(path, replace(records.read_record(path), sessions=[*sessions]))


def test_a_note_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "index.md").write_bytes("café\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"notes/index.md is not UTF-8 text \(near line 1\): conv"):
        pages.write([], tmp_path, DRAW_NOTHING)


@pytest.mark.parametrize(("mean", "met"), [(98.0, True), (97.9, False)])
def test_the_mean_over_seeds_counts(mean: float, met: bool, tmp_path: Path) -> None:
    found = verdict([run(tmp_path, "ndr", seed, {"all": mean + seed - 2}) for seed in (1, 2, 3)])
    assert found.row is not None and found.row.mean == pytest.approx(mean)
    assert found.verdict is (Verdict.REDUCED if met else Verdict.NOT_MET)


def test_the_papers_size(tmp_path: Path) -> None:
    """A training that was cut short is no longer of the paper's size."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    assert verdict([as_size(path, "paper", updates=5)]).verdict is Verdict.REDUCED
    assert verdict([as_size(path, "paper", updates=None)]).verdict is Verdict.AT_SIZE
    before = replace(records.read_record(path), planned_before=["800 updates"])
    records.write_record(path, before)  # by --change-length without --updates
    found = verdict([path])
    assert found.verdict is Verdict.REDUCED
    assert found.groups[0].title.endswith("5 updates, planned for 800 updates before")
    assert report.called(found.groups[0]).endswith("--size paper --change-length --seeds 1")
    text = "800 updates with --dropout 0.1"
    changed = replace(before, planned_before=[text], settings_changed=True)
    records.write_record(path, changed)
    (group,) = verdict([path]).groups
    assert report.called(group).endswith("--size paper --change-settings --seeds 1")


def test_steps_of_the_papers_evaluation(tmp_path: Path) -> None:
    """Only at its size: other sizes are made for other numbers of steps."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    evaluate(path, FORWARD, {"all": 99.0}, Asked(by="length", steps=24))
    assert verdict([path], steps=24).verdict is Verdict.NOT_MET
    as_size(path, "paper", updates=None)
    assert verdict([path], steps=24).verdict is Verdict.AT_SIZE
    assert verdict([path]).verdict is Verdict.NOT_MET
    assert verdict([path], steps=20).verdict is Verdict.NOT_RUN


def test_a_file_of_the_users_with_the_name_of_ours(tmp_path: Path) -> None:
    """Its runs say nothing about our claims."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    own = tmp_path / "ctl.yaml"
    own.write_text(reading.read("ctl").path.read_text(encoding="utf-8"), encoding="utf-8")
    records.write_record(path, replace(records.read_record(path), experiment=str(own)))
    assert results.collect([path])[0].experiment.name == "ctl"
    assert verdict([path]).verdict is Verdict.NOT_RUN


def test_runs_that_do_not_count(tmp_path: Path) -> None:
    """Those of other models, data, or parts of data say nothing."""
    backward = replace(FORWARD, split="backward", digest="d2")
    part = replace(FORWARD, limited=True, digest="d3")
    fewer = replace(FORWARD, options=["--sizes 900 9 9 9"], digest="d4")
    others = [
        run(tmp_path, "lstm", 1, {"all": 99.0}),
        run(tmp_path, "ndr", 1, {"all": 99.0}, updates=1, data=backward),
        run(tmp_path, "ndr", 1, {"all": 99.0}, updates=2, data=part),
        run(tmp_path, "ndr", 1, {"all": 99.0}, updates=3, subset="valid"),
        run(tmp_path, "ndr", 1, {"all": 99.0}, updates=4, data=fewer),
    ]
    assert verdict(others).verdict is Verdict.NOT_RUN
    assert verdict(others, group="9").verdict is Verdict.NOT_RUN
    assert verdict(others, model="lstm").verdict is Verdict.REDUCED


def test_groups_are_those_of_the_usual_column(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    evaluate(path, FORWARD, {"9": 99.0, "all": 99.0}, Asked(by="source_length"))
    assert verdict([path], group="9").verdict is Verdict.NOT_RUN
    evaluate(path, FORWARD, {"9": 12.0, "all": 99.0}, Asked(by="depth"))
    assert verdict([path], group="9").verdict is Verdict.NOT_MET


def test_unfinished_trainings_do_not_count(tmp_path: Path) -> None:
    """The seeds that are finished do; of the others a page says that they are not."""
    runs = [as_size(run(tmp_path, "ndr", seed, {"all": 99.0}), "paper", None) for seed in (1, 2)]
    with_sessions(runs[1], replace(SESSION, outcome="interrupted"))
    found = verdict(runs)
    assert found.verdict is Verdict.AT_SIZE
    assert found.row is not None and [*found.row.results] == [1]
    assert verdict(runs[1:]).verdict is Verdict.NOT_RUN
    assert "| ndr-2-5 | 2 | 5 updates | not finished |" in report.markdown(results.collect(runs))


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_unfinished_trainings_are_named(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_experiment_evaluation, "by_groups", lambda *of_run, **how: None)
    runs = [run(tmp_path, "ndr", seed, {"all": 99.0}) for seed in (1, 2)]
    with_sessions(runs[1], replace(SESSION, outcome="interrupted"))
    (runs[1] / "checkpoints").mkdir()
    (runs[1] / "checkpoints" / "checkpoint_last.pt").touch()
    assert experiment.main([command, *map(str, runs)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{runs[1]} is not finished: its results are those of the training so far."


def test_a_run_that_saved_nothing_has_no_results_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path, "ndr", 1, {})
    with_sessions(path, replace(SESSION, outcome="interrupted"))
    assert experiment.main(["evaluate", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"error: {path} has no checkpoints/checkpoint_best.pt: train first.")


def test_an_evaluation_counts_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that ends while it is evaluated has other parameters then."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    monkeypatch.setattr(provenance, "describe_data", lambda folder: FORWARD)
    ended: list[str] = []

    def evaluate_slowly(line: list[str], parser: object) -> None:
        Path(line[line.index("--csv") + 1]).write_text("group,percent\nall,1\n")
        end = records.now() + timedelta(seconds=1)
        ended.append(records.stamp(end))

    monkeypatch.setattr(_experiment_evaluation.evaluate_command, "run", evaluate_slowly)
    record = records.read_record(path)
    ctl = reading.read("ctl")
    _experiment_evaluation.by_groups(path, record, ctl, Asked(by="depth"))
    with_sessions(path, replace(SESSION, ended=ended[0]))
    assert not read_evaluations(path, records.read_record(path))


def test_one_run_that_cannot_be_evaluated_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def by_groups(run: Path, *others: object, **how: object) -> None:
        seen.append(run)
        if len(seen) == 1:
            raise InputError(f"{run} has no checkpoint.")

    monkeypatch.setattr(_experiment_evaluation, "by_groups", by_groups)
    runs = [run(tmp_path, "ndr", seed, {"all": 99.0}) for seed in (1, 2)]
    assert experiment.main(["evaluate", *map(str, runs)]) == 2
    assert seen == runs
    assert capsys.readouterr().err.splitlines() == [
        f"{runs[0]} has no checkpoint.",
        "sut-experiment: error: 1 of 2 runs could not be evaluated, see above.",
    ]
    # One log, or one folder of results, would be used for all of them.
    for option in ("--log", "--out"):
        assert experiment.main(["evaluate", *map(str, runs), option, "x"]) == 2
        sentence = f"this means nothing for 2 runs at a time: leave {option} out."
        assert capsys.readouterr().err == f"sut-experiment: error: {sentence}\n"
    assert seen == runs


@pytest.mark.parametrize(("option", "value"), [("--beam", "4"), ("--cpu", ""), ("--out", "x")])
def test_a_sweep_takes_no_options_of_translations(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    records.write_record(path, replace(records.read_record(path), experiment="multi30k"))
    line = ["evaluate", str(path), "--sweep", option, *value.split()]
    assert experiment.main(line) == 2
    sentence = f"this means nothing for multi30k with --sweep: leave {option} out."
    assert capsys.readouterr().err == f"sut-experiment: error: {sentence}\n"


def test_evaluations_before_the_end_of_training_do_not_count(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    later = replace(SESSION, started="2026-11-22T11:00:00+00:00", ended="2026-11-22T12:00:00+00:00")
    with_sessions(path, replace(SESSION, outcome="interrupted"), later)
    assert verdict([path]).verdict is Verdict.NOT_RUN
    groups = results.collect([path])
    assert f"Not evaluated yet: {path.name}." in report.markdown(groups)
    with pytest.raises(InputError, match="has no result on `test`: run `sut-experiment evaluate"):
        results.table(groups, [], by_group=False)


def test_the_best_runs_speak(tmp_path: Path) -> None:
    """More than one seed before one, then longer trainings, then the better result."""
    one = run(tmp_path, "ndr", 1, {"all": 99.9}, updates=9)
    two = [run(tmp_path, "ndr", seed, {"all": 98.5}, updates=2) for seed in (1, 2)]
    assert verdict([one, *two]).row.mean == 98.5  # type: ignore[union-attr]
    longer = [run(tmp_path, "ndr", seed, {"all": 97.0}, updates=3) for seed in (1, 2, 3)]
    assert verdict([one, *two, *longer]).row.mean == 97.0  # type: ignore[union-attr]


def test_larger_batches_make_a_training_longer(tmp_path: Path) -> None:
    """How long a training is, its updates and its batch say together."""
    small = run(tmp_path, "ndr", 1, {"all": 99.0}, updates=6)
    large = run(tmp_path, "ndr", 1, {"all": 90.0}, updates=2)
    for path, more in ((small, {"batch-size": 2}), (large, {"batch-size": 4, "update-freq": 2})):
        record = records.read_record(path)
        settings = {**record.trainings[""], **more}
        records.write_record(path, replace(record, trainings={"": settings, "short": settings}))
    assert records.read_record(small).amount == 2 * 6 * 2
    assert records.read_record(large).amount == 2 * 2 * 4 * 2
    assert verdict([small, large]).row.mean == 90.0  # type: ignore[union-attr]
    epochs = replace(records.read_record(small), trainings={"": {"max-epoch": 2}})
    assert epochs.amount is None


def test_a_seed_that_was_not_evaluated_hides_no_other(tmp_path: Path) -> None:
    """Neither in the first table, nor in a summary, nor in the section of its runs."""
    one, two = (run(tmp_path, "ndr", seed, {"all": 99.5}) for seed in (1, 2))
    before = verdict([one])
    (two / "test-by-depth.evaluation.json").unlink()
    found = verdict([one, two])
    assert (found.verdict, found.row) == (before.verdict, before.row)
    assert [list(group.runs) for group in found.groups] == [[one]]
    page = report.markdown(results.collect([one, two]))
    assert "| all | 10 | 99.50 | 100 |" in page and f"Not evaluated yet: {two.name}." in page


def test_an_evaluation_with_a_search_comes_second(tmp_path: Path) -> None:
    """Its file comes first by the alphabet."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    evaluate(path, FORWARD, {"all": 12.0}, Asked(by="depth", search=True))
    (group,) = results.collect([path])
    assert [one.asked.search for one in group.evaluations()] == [False, True]
    assert verdict([path]).row.mean == 99.0  # type: ignore[union-attr]


def test_the_mean_over_splits(tmp_path: Path) -> None:
    """Of the seeds that all splits have; nothing while one of them has no runs."""
    backward = replace(FORWARD, split="backward", digest="d2")
    runs = [run(tmp_path, "ndr", seed, {"all": 100.0 - seed}) for seed in (1, 2)]
    both = {"splits": ["forward", "backward"]}
    assert verdict(runs, **both).verdict is Verdict.NOT_RUN
    (elsewhere := tmp_path / "backward").mkdir()
    runs.append(run(elsewhere, "ndr", 2, {"all": 97.0}, data=backward))
    found = verdict(runs, **both)
    assert found.row is not None and found.row.results == {2: 97.5}
    assert [group.first.data.split for group in found.groups] == ["forward", "backward"]
    for group in found.groups:
        assert report.called(group, found.row.results).endswith(" --seeds 2")
    assert found.verdict is Verdict.NOT_MET


def test_pages(tmp_path: Path) -> None:
    """Text of notes is taken in, every claim has a row, and curves are drawn."""
    path = run(tmp_path, "ndr", 1, {"9": 97.0, "all": 98.5})
    (path / "train.log").write_text(LOG)
    record = records.read_record(path)
    record.trainings[""]["valid-subset"] = "valid_deep,valid"
    records.write_record(path, record)
    folder = tmp_path / "results"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "ctl.md").write_text("It works.\n\nA longer training did not help.\n")
    (folder / "notes" / "index.md").write_text("Ours.\n")
    drawn = []

    def draw_curves(groups: Any, picture: Path) -> bool:
        drawn.append(picture.name)
        return True

    written = pages.write(
        results.collect([path]), folder, replace(DRAW_NOTHING, curves=draw_curves)
    )
    assert [one.name for one in written] == ["index.md", "ctl.md"]
    index = (folder / "index.md").read_text()
    claims = [claim for name in reading.known() for claim in reading.read(name).claims]
    text = f"🟡 met at a reduced size: 1; 🔴 not met: 0; ⚪ no run on record: {len(claims) - 1}."
    assert index.startswith(f"# Results\n\nOurs.\n\n🟢 met at the paper's size: 0; {text}\n\n## ")
    assert "## Notes" not in index
    rows = [line for line in index.splitlines() if line.startswith("| ")]
    row = next(line for line in rows if "forward, data router" in line)
    assert row == (
        "| [ctl](ctl.md): forward, data router | 100 | 98.50 | ≥\u00a098 | 🟡 | 1 | "
        "states of 128, 5 updates | 30,000 updates of 512 |"
    )
    papers = [line[3:] for line in index.splitlines() if line.startswith("## ")]
    assert papers == sorted(papers) and "Tan et al. (2023)" in papers
    assert len(rows) == 2 * len(papers) + len(claims)
    assert "| wmt14: compound-split BLEU, SUT base | 29.2 |  | ≥\u00a028.7 | ⚪ |  |  |" in index
    about = "5 updates of 256 sources, for 2 CPU cores; 1 seed:\n\n```sh\nsut-experiment train ctl"
    assert index.count("<details") == index.count(about) == 1
    page = (folder / "ctl.md").read_text()
    assert drawn == ["ctl-curves.png"] and "(pictures/ctl-curves.png)" in page
    lead, claim, picture, notes, runs = (
        page.index(text)
        for text in (
            "\nIt works.\n",
            "| forward, data router | 100 | 98.50 |",
            "![accuracy on validation sets",
            "## Notes\n\nA longer",
            "## Runs\n",
        )
    )
    assert "\n\n`valid` is like the training data, `valid_deep` longer" in page
    assert lead < claim < picture < notes < runs < page.index("| 9 | 10 | 97.00 |")
    title = "ctl (forward), ndr, size small, 5 updates: 98.50 (100)"
    assert f"<summary>{title}</summary>\n\n`sut-experiment train ctl " in page
    assert page.count("<details") == page.count("</details>") == 1


def test_the_first_page_of_runs_that_no_paper_has(tmp_path: Path) -> None:
    """It links to their pages, and has no table of claims nobody tried."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    own = tmp_path / "mine.yaml"
    own.write_text("extends: ctl\nclaims: []\n", encoding="utf-8")
    records.write_record(path, replace(records.read_record(path), experiment=str(own)))
    folder = tmp_path / "results"
    pages.write(results.collect([path]), folder, DRAW_NOTHING)
    assert (folder / "index.md").read_text() == "# Results\n\nPages: [mine](mine.md).\n"
    (folder / "notes").mkdir()
    (folder / "notes" / "index.md").write_text("See [mine](mine.md).\n\nMore.\n")
    pages.write(results.collect([path]), folder, DRAW_NOTHING)
    index = (folder / "index.md").read_text()
    assert index == "# Results\n\nSee [mine](mine.md).\n\n## Notes\n\nMore.\n"


def test_a_users_own_experiment_has_a_page(tmp_path: Path) -> None:
    """Unless one of ours has that name."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    for name in ("mine", "ctl", "index", "matrix"):
        own = tmp_path / f"{name}.yaml"
        own.write_text(reading.read("ctl").path.read_text(encoding="utf-8"), encoding="utf-8")
        records.write_record(path, replace(records.read_record(path), experiment=str(own)))
        groups, folder = results.collect([path]), tmp_path / name
        if name == "mine":
            written = pages.write(groups, folder, DRAW_NOTHING)
            assert [one.name for one in written] == ["index.md", "mine.md"]
            assert "| [mine](mine.md): forward, data router |" in written[0].read_text()
        else:
            reason = "would have the same page: give one of" if name == "ctl" else "is another page"
            with pytest.raises(InputError, match=reason):
                pages.write(groups, folder, DRAW_NOTHING)


def test_folded_sections(tmp_path: Path) -> None:
    """Titles are no markup, and say nothing of runs that have no result on the whole set."""
    path = run(tmp_path, "ndr", 1, {"9": 97.0})
    own = {"source-lang": "<b>"}
    records.write_record(path, replace(records.read_record(path), options=own))
    page = report.folded(results.collect([path]))
    title = "ctl (forward), ndr, size small, 5 updates, --source-lang '&lt;b&gt;'"
    assert f"<summary>{title}</summary>" in page


def test_curves_are_drawn(tmp_path: Path) -> None:
    path, without = (run(tmp_path, "ndr", seed, {"all": 98.5}) for seed in (1, 2))
    (path / "train.log").write_text(LOG)
    picture = tmp_path / "curves.png"
    assert draw_curves(results.collect([path, without]), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    assert not draw_curves(results.collect([without]), picture)
    assert not picture.exists()


def test_curves_have_the_data_in_the_experiments_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = replace(FORWARD, split="backward", digest="d2")
    paths = [
        run(tmp_path, "lstm", 1, {"all": 9}, data=backward),
        run(tmp_path, "ndr", 1, {"all": 9}),
    ]
    for path in paths:
        (path / "train.log").write_text(LOG)
    figures = kept_figures(monkeypatch)
    assert draw_curves(results.collect(paths), tmp_path / "curves.png")
    assert [axes.get_title() for axes in figures[0].axes] == ["forward", "backward"]


def test_claims_are_drawn_beside_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [run(tmp_path, "ndr", seed, {"all": mean}) for seed, mean in ((1, 97.0), (2, 99.0))]
    (met,) = check_claims([replace(reading.read("ctl"), claims=[CLAIM])], results.collect(paths))
    failed = replace(met, claim=replace(CLAIM, shows="higher", bar=99, paper=None))
    elsewhere = replace(met, experiment=replace(met.experiment, paper="Tan et al. (2023), Table 9"))
    other = replace(met, claim=replace(CLAIM, measure="absolute_error"))
    not_run = replace(met, groups=(), row=None)
    picture = tmp_path / "claims.png"
    assert not draw_claims([other, not_run], picture) and not picture.exists()
    figures = kept_figures(monkeypatch)
    assert draw_claims([met, other, not_run, failed, elsewhere], picture)
    axes, below = figures[0].axes
    titles = [one.get_title(loc="left") for one in (axes, below)]
    assert titles == ["Csordás et al. (2022)", "Tan et al. (2023)"]
    assert [label.get_text() for label in below.get_yticklabels()] == ["ctl: forward, data router"]
    named = [label.get_text() for label in axes.get_yticklabels()]
    assert named == ["ctl: forward, data router", "ctl: higher"]
    ours = [line for line in axes.lines if line.get_marker() == "o"]
    paper = [line for line in axes.lines if line.get_color() == "black"]
    assert [line.get_xydata().tolist() for line in ours] == [[[98, 0]], [[98, 1]]]
    assert ours[0].get_color() != ours[1].get_color()
    assert [line.get_xydata().tolist() for line in paper] == [[[100, 0]]]


def kept_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved from now on, of which only empty files are written."""
    figures: list[Figure] = []

    def keep(figure: Figure, path: Path, **options: Any) -> None:
        figures.append(figure)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def test_trainings_of_one_model_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a curve, named by what is not the same in all; the first of each model lead."""
    asked = [("ndr", 1, 5), ("lstm", 1, 5), ("ndr", 2, 5), ("ndr", 1, 8), ("ndr", 1, 9)]
    paths = [run(tmp_path, name, seed, {"all": 9}, updates) for name, seed, updates in asked]
    for path in paths:
        (path / "train.log").write_text(LOG)
    long = records.read_record(paths[-1])
    records.write_record(paths[-1], replace(long, updates=None, size="paper", options={"lr": 1}))
    names = [
        "ndr, size small, 5 updates",
        "lstm",
        "ndr, size small, 8 updates",
        "ndr, size paper, --lr 1",
    ]
    assert legend_of(paths, tmp_path, monkeypatch) == [*names, "lowest to highest seed"]


def legend_of(paths: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the legend of the runs' curves says."""
    figures = kept_figures(monkeypatch)
    assert draw_curves(results.collect(paths), folder / "curves.png")
    return [text.get_text() for text in figures[0].legends[0].get_texts()]


def test_the_length_of_training_stands_once(tmp_path: Path) -> None:
    """The size says it, unless the run was of another length."""
    path = as_size(run(tmp_path, "ndr", 1, {"all": 99.0}), "paper", updates=None)
    folder = tmp_path / "results"
    folder.mkdir()
    pages.write(results.collect([path]), folder, DRAW_NOTHING)
    index = (folder / "index.md").read_text()
    (row,) = [one for one in index.splitlines() if "99.00" in one]
    assert "| the paper's |" in row
    about = reading.read("ctl").sizes["paper"].about.strip()
    assert f"** {about}; 1 seed:" in index and "--updates" not in index
