"""`sut-experiment` from data to tables: real data, trainings, kills and evaluations, all tiny."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sut_fairseq.checkpoints.interruption import UNFINISHED
from sut_fairseq.cli import experiment
from sut_fairseq.experiments.records import read_record
from tests.integration.commands import Argument, Finished, run, start, words
from tests.integration.preparing import WRITE_INDICES, fake_fairseq

NAME = "sut-experiment"

# A data set that somebody adds, and its experiment: two files.
_TOY_SET = '''"""Sums of two digits."""

from sut_data.kit.examples import Example, make_parser, prepare


def main(program, argv):
    arguments = make_parser(program, "Prepare sums.", "not read").parse_args(argv)
    sums = [Example(f"{i} + {j}", str(i + j), (str(i),)) for i in range(9) for j in range(9)]
    parts = {"train": sums[:60], "valid": sums[60:70], "test": sums[70:]}
    prepare(arguments, [], lambda: parts, ["first"], name="toy_sums")
'''
_TOY_EXPERIMENT = {
    "extends": "_formal_languages",
    "shows": "sums of two digits",
    "dataset": "toy_sums",
    "prepare": {"all": "toy_sums"},
    "models": {"sut": "with halting"},
    "evaluation": {"by": "first"},
}


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.chdir(folder)
    return folder


def prepare(*arguments: Argument) -> None:
    """Run `sut-experiment prepare` in this process."""
    assert experiment.main(["prepare", *map(str, arguments)]) == 0


def call(place: Path, line: str, *more: Argument, ok: bool = True) -> Finished:
    return run(NAME, *words(line), *more, cwd=place, ok=ok)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_seeds_side_by_side(place: Path) -> None:
    """Exact match: prepare, train two seeds, evaluate, compare, report, sweep."""
    prepare("scan", "--", "--limit", 24)
    train = "train scan --size small --updates 3 --seeds 1 2 --jobs 2"
    first = call(place, train)
    assert "Traceback" not in first.stdout + first.stderr and '"num_updates"' not in first.stdout
    runs = [place / "runs" / "scan" / f"scan-simple-sut-small-seed-{seed}" for seed in (1, 2)]
    for seed, one in enumerate(runs, start=1):
        assert f"trained sut, seed {seed} in " in first.stdout
        assert f"{NAME} evaluate {one}" in first.stdout
        record = read_record(one)
        (session,) = record.sessions
        assert (record.seed, record.updates, session.outcome) == (seed, 3, "finished")
        assert session.command[:2] == ["fairseq-train", str(place / "data-bin" / "scan-simple")]
        assert session.seconds and session.code.version and session.computer.torch
        assert (record.data.dataset, record.data.split, record.data.limited) == (
            "scan",
            "simple",
            True,
        )
    again = call(place, train).stdout
    assert again.count("already trained: sut, seed") == 2 and "training sut" not in again
    refused = call(place, "train scan --size small --updates 4", "--out", runs[0], ok=False)
    assert "holds a run of other settings: " in refused.last_line
    assert "max-update (3, now 4)" in refused.last_line

    shown = call(place, "evaluate runs/scan").stdout
    assert shown.count("target_length") == 6  # in the tables and in the names of their files
    for one in runs:
        *groups, total = rows_of(one / "test-by-target_length.csv")
        assert total["group"] == "all"
        assert sum(int(row["sentences"]) for row in groups) == int(total["sentences"]) == 24
        assert (one / "test-by-target_length.png").stat().st_size > 0
    table = call(place, "compare runs/scan --csv rows.csv").stdout.splitlines()
    assert len(table) == 2
    assert table[1].split()[:7] == words("scan simple sut small 3 updates test")
    (row,) = rows_of(place / "rows.csv")
    assert row["seeds"] == "1 2" and row["deviation"] != ""
    call(place, "evaluate runs/scan --macs")
    _, percent, macs = call(place, "compare runs/scan").stdout.splitlines()
    assert percent.split() == table[1].split() and " macs " in macs
    call(place, "report runs --out page.md")
    page = (place / "page.md").read_text()
    assert page.startswith(
        "## scan (simple), sut, size small, 3 updates\n\n`sut-experiment train scan --split simpl"
    )
    assert f"| {read_record(runs[1]).data.digest} |" in page

    refused = call(place, "evaluate", runs[0], "--alpha-threshold", 3, ok=False).last_line
    assert "`--alpha-threshold` must be greater than 0, at most 1" in refused
    call(place, "evaluate", runs[0], "--sweep", "--max-sentences", 3)
    rows = rows_of(runs[0] / "test-thresholds-first-3.csv")
    assert [row["alpha_threshold"] for row in rows] == [
        *(f"0.{tenth}" for tenth in range(1, 10)),
        "0.999",
    ]
    skipped = [float(row["skipped"]) for row in rows]
    assert skipped == sorted(skipped, reverse=True)


@pytest.mark.slow
def test_a_finished_run_is_made_longer(place: Path) -> None:
    """It goes on after its last update, and is finished again."""
    prepare("scan", "--", "--limit", 24)
    train, more = "train scan --size small --out run --updates", ("--", "--log-interval", 1)
    call(place, f"{train} 3", *more)
    refused = call(place, f"{train} 6", *more, ok=False).last_line
    assert "max-update (3, now 6)" in refused and "with --change-length." in refused
    call(place, f"{train} 6 --change-length", *more)
    entries = [
        json.loads(line[line.index("{") :])
        for line in (place / "run" / "train.log").read_text().splitlines()
        if "| train_inner |" in line
    ]
    assert [int(entry["num_updates"]) for entry in entries] == [1, 2, 3, 4, 5, 6]
    record = read_record(place / "run")
    assert record.length == "6 updates, planned for 3 updates before" and record.finished()
    assert [session.outcome for session in record.sessions] == ["prolonged", "finished"]
    assert "already trained" in call(place, f"{train} 6", *more).stdout
    too_few = call(place, f"{train} 5 --change-length", *more, ok=False).last_line
    assert "has been trained for 6 updates: give --updates more" in too_few


@pytest.mark.slow
def test_short_sources_first_killed_and_resumed(place: Path) -> None:
    """A router: a stage on short expressions, then one that is killed and goes on."""
    prepare("arithmetic", "--", "--sizes", 400, 40, 10, 10)
    train = "train arithmetic --size small --models lstm --updates 18 --out run"
    more = ("--", "--save-interval-updates", 3, "--validate-interval-updates", 1000)
    with start(NAME, *words(train), *more, cwd=place) as running:
        assert running.wait_for((place / "run" / "checkpoints" / "checkpoint_last.pt").exists)
        running.kill()
    _stop_what_it_left(place / "run")
    done = call(place, train, *more).stdout
    assert "already trained: lstm, seed 1, stage up-to-13" in done
    assert done.count(f"{NAME} evaluate ") == 1
    stage, *sessions = read_record(place / "run").sessions
    assert (stage.stage, stage.outcome) == ("up-to-13", "finished")
    assert [one.outcome for one in sessions] == ["killed", "finished"]
    assert all(one.seconds is not None for one in sessions)

    first, second = ((place / "run" / name / "train.log").read_text() for name in ("up-to-13", ""))
    for log, updates in ((first, 6), (second, 18)):
        assert f'"train_num_updates": "{updates}"' in log
    text = place / "data-bin" / "arithmetic" / "text" / "train.src"
    lengths = Counter(len(line.split()) for line in text.open())
    # As many of each length as of the most frequent one.
    left_out = max(lengths.values()) * sum(length > 13 for length in lengths)
    assert left_out and f"{left_out} samples have invalid sizes" in first.replace(",", "")
    assert "invalid sizes" not in second
    parameters = place / "run" / "up-to-13" / "checkpoints" / "checkpoint_last.pt"
    own = place / "run" / "checkpoints" / "checkpoint_last.pt"
    assert f"Loaded checkpoint {parameters} " in second and f"Loaded checkpoint {own} " in second

    call(place, "evaluate run")
    table = call(place, "compare run --groups").stdout.splitlines()
    shown = [re.split(" {2,}", line) for line in table[1:]]
    changes = "18 updates, --save-interval-updates 3 --validate-interval-updates 1000"
    assert [line[:6] for line in shown] == [
        ["arithmetic", "lstm", "small", changes, "test", group] for group in ("7", "8", "all")
    ]
    assert "74" not in shown[2]  # the paper's is of other sets


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_told_to_stop(number: signal.Signals, place: Path) -> None:
    """Both trainings save before the command ends, and the same command goes on."""
    prepare("scan", "--", "--limit", 24)
    train = "train scan --size small --updates 60 --seeds 1 2 --jobs 2 --out runs"
    runs = [place / "runs" / f"sut-seed-{seed}" for seed in (1, 2)]
    with start(NAME, *words(train), "--", "--log-interval", 1, cwd=place) as running:
        logs = [run / "train.log" for run in runs]
        assert running.wait_for(
            lambda: any('"num_updates": "1"' in log.read_text() for log in logs if log.exists())
        )
        os.kill(running.pid, number)
        stopped = running.finished(ok=False)
    assert stopped.status == (130 if number == signal.SIGINT else UNFINISHED)
    assert "interrupted" in stopped.last_line and "the same command" in stopped.last_line
    assert "Traceback" not in stopped.stderr
    # One that had not begun yet ends at once: it has nothing to save.
    outcomes = {session.outcome for run in runs for session in read_record(run).sessions}
    assert outcomes <= {"interrupted", "killed", "finished"} and outcomes != {"killed"}
    if number != signal.SIGTERM:
        return
    finished = call(place, train, "--", "--log-interval", 1)
    assert "interrupted" not in finished.stdout + finished.stderr
    assert [read_record(run).finished() for run in runs] == [True, True]


def _stop_what_it_left(run: Path) -> None:
    """A training outlives the command that was killed, and keeps its folder to itself."""
    command = json.loads((run / "run.json").read_text())["sessions"][-1]["command"]
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if line[-len(command) : -1] == command[1:]:
            os.kill(int(process.name), 9)
            while process.exists():
                time.sleep(0.05)


@pytest.mark.slow
def test_a_users_own_experiment(place: Path) -> None:
    """Classification, by the path of a file that extends one of ours."""
    prepare("listops", "--", *words("--sizes 60 10 10 --min-length 3 --max-length 30"))
    content = {
        "extends": "listops",
        "sizes": {
            "tiny": {
                "settings": {"max-update": 2, "batch-size": 8, "optimizer": "adam", "lr": 0.01},
                "model_settings": {"sut": {"arch": "sut_tiny", "encoder-layers": 2}},
            }
        },
        "evaluation": {"by": "source_length"},
        "published": [
            {"table": "mine", "split": "lra", "by": "source_length", "numbers": {"sut": 50}}
        ],
    }
    (place / "mine.yaml").write_text(yaml.safe_dump(content))
    call(place, "train mine.yaml --size tiny --data data-bin/listops --out run")
    assert read_record(place / "run").experiment == str(place / "mine.yaml")
    shown = call(place, "evaluate run").stdout
    assert "accuracy" in shown
    page = call(place, "report run").stdout
    assert "sut-experiment train mine.yaml --data listops --models sut --size tiny" in page
    other = call(place, "evaluate run --steps 3 --by depth --data data-bin/listops").stdout
    assert "test-by-depth-3-steps.csv" in other  # the data of the training: no name of their own


@pytest.mark.slow
def test_a_new_data_set_and_its_experiment_are_two_files(
    place: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = place / "packages"
    shutil.copytree(repository / "data-prep" / "sut_data", packages / "sut_data")
    (packages / "sut_data" / "sets" / "toy_sums.py").write_text(_TOY_SET)
    (place / "toy_sums.yaml").write_text(yaml.safe_dump(_TOY_EXPERIMENT))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    prepare("toy_sums.yaml")
    call(place, "train toy_sums.yaml --size small --updates 2 --out run")
    shown = call(place, "evaluate run").stdout
    assert "exact match" in shown
    (table,) = (place / "run").glob("test*.csv")
    found = rows_of(table)
    assert {row["group"]: row["sentences"] for row in found} == {"all": "11", "7": "2", "8": "9"}


def test_prepared_data_are_trained_on_by_their_own_experiment(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named once: `sut-prepare`, which knows the data set only, leaves it to us."""
    fake = fake_fairseq(place, WRITE_INDICES)["PYTHONPATH"]
    path = filter(None, [fake, os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    prepare("matrix/scan-length", "--out", "out", "--", "--limit", 12)
    named = [line for line in capfd.readouterr().out.splitlines() if NAME in line]
    assert named == [f"train on it: {NAME} train matrix/scan-length --data out"]
    prepare("matrix/scan-length", "--out", "none", "--", "--help")
    shown = capfd.readouterr().out
    assert "usage:" in shown and "train on it" not in shown


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "train scan",
            "there is no folder data-bin/scan-simple: make it with `sut-exper",
        ),
        ("train scan --split nosuch", "scan has the splits simple, length, addprim_jump"),
        ("train scan --data .", " has no dict.src.txt: make the folder with `sut-prepare` first."),
        ("train contextual_retrieval --gpus -1", "must be a whole number of at least 1, but is"),
        ("train contextual_retrieval --gpus 99", "--gpus 99: this machine has "),
        (
            "train contextual_retrieval --out run --seeds 1 2",
            "run, the folder of a run, where no c",
        ),
        (
            "train contextual_retrieval --out run/inside",
            "run, the folder of a run, where no c",
        ),
        ("train contextual_retrieval --out runs", "runs is a folder of several runs: name one in"),
        (
            "train contextual_retrieval --dry-run --launcher 'srun",
            "--launcher 'srun: no closing quotation.",
        ),
        (
            "train contextual_retrieval -- --adam-epsilon 1e-9",
            "fairseq-train has no option --adam-epsilon (did you mean `--adam-eps`?) with --ar",
        ),
        (
            "train contextual_retrieval --dry-run -- --optimizer adm",
            "--optimizer cannot be adm (did you mean `adam`?): correct the options after --, or",
        ),
        (
            "train contextual_retrieval -- --lr-scheduler x",
            "--lr-scheduler cannot be x (there are cosine, fixed, ",
        ),
        (
            "train contextual_retrieval -- --max-update 1e5",
            "--max-update must be a whole number, not '1e5': ",
        ),
        (
            "train contextual_retrieval -- --cpu 3",
            "3 belongs to no option of fairseq-train (a switch takes no value): ",
        ),
        (
            "train contextual_retrieval -- --clip-norm",
            "fairseq-train refuses its options (argument --clip-norm: expected one argument): ",
        ),
        ("train scan --updates 0", "must be a whole number of at least 1, but is `0`"),
        ("train sacn", "there is no experiment `sacn` (did you mean `scan`?)"),
        ("train mine.yaml", "there is no file mine.yaml."),
        ("show scan --size smal", "smal"),
        (
            "train scan --splt length",
            "--splt length (did you mean `--split`?); see `sut-experiment train --help`.",
        ),
        ("train scan --fast", "unrecognized arguments: --fast; see `sut-experiment train --help`."),
        ("prepare scan --split nosuch", "not `nosuch`"),
        ("show scan --file --size x", "--file prints all of it: leave --size out."),
        ("list -- --lr 1", "list takes no options after --."),
        ("evaluate", "no run is given: name folders that `sut-experiment train` made, or --data"),
        ("evaluate nothing", "nothing is not the folder of a run, nor are there any in it"),
        ("evaluate --checkpoints .", "--checkpoints needs --data"),
        (
            "evaluate --checkpoints . --data . --by x",
            "this means nothing for --checkpoints: leave --by out.",
        ),
        ("compare nothing", "nothing is not the folder of a run, nor are there any in it"),
        ("compare . --csv no/table.csv", "there is no folder no; make it first."),
        ("compare . --csv .", "--csv . is a folder: give the name of a file."),
        ("report . --out .", "--out . is a folder: give the name of a file."),
    ],
)
def test_bad_options(
    line: str, sentence: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("run", "runs/one"):
        (place / folder).mkdir(parents=True)
        (place / folder / "run.json").touch()
    try:
        status: object = experiment.main(words(line))
    except SystemExit as ending:  # argparse
        status = ending.code
    shown = capsys.readouterr()
    assert status == 2 and shown.out == ""
    last = shown.err.rstrip().rpartition("\n")[2]
    assert last.startswith(NAME) and ": error: " in last and sentence in last


def test_help_and_listing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment.main(["list"]) == 0
    assert "logical_inference" in capsys.readouterr().out
    assert experiment.main(words("show logical_inference --size small")) == 0
    shown = capsys.readouterr().out
    assert "Table 5, full, test" in shown and "7: 98, 8: 97" in shown
    assert "logical_inference: sizes.small.settings" in shown
    assert experiment.main(words("show example --file")) == 0
    assert capsys.readouterr().out.startswith("# Every key that the file of an experiment can have")
    for command in words("list show prepare train evaluate compare report"):
        with pytest.raises(SystemExit) as ending:
            experiment.main([command, "--help"])
        assert ending.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: {NAME} {command} ")


def test_dry_run_with_a_launcher(
    data: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "wmt14", "--data", str(data), *words("--dry-run --gpus 16 --launcher")]
    line.append("srun -n 16")
    assert experiment.main([*line, "--", "--distributed-port", "5"]) == 0
    (shown,) = capsys.readouterr().out.splitlines()
    assert shown.startswith(f"srun -n 16 fairseq-train {data} --user-dir ")
    assert "--update-freq 2 " in shown and "--distributed-port 5 " in shown
    assert "--distributed-world-size" not in shown
    assert not (place / "runs").exists()


def test_options_of_a_plugin_are_left_to_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = words("train contextual_retrieval --dry-run -- --user-dir mine --arch own --width 3")
    assert experiment.main(line) == 0
    assert "--user-dir mine " in capsys.readouterr().out


def test_the_next_command_names_the_plugin_of_a_training(
    data: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiment, "train", lambda *arguments, **more: None)
    line = ["train", "scan", "--data", str(data), *words("--size small --out run")]
    for own in ([], ["--user-dir", "mine"]):
        assert experiment.main([*line, *(["--", *own] if own else [])]) == 0
        expected = f"evaluate it: {NAME} evaluate {' '.join([str(place / 'run'), *own])}"
        assert capsys.readouterr().out.splitlines()[-1] == expected


def test_dry_run_of_jobs_that_share_gpus(
    data: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "scan", "--data", str(data), *words("--size paper --gpus 4 --dry-run")]
    for jobs, options in ((1, ("size 4 ", "freq 1 ")), (2, ("size 1 ", "freq 4 "))):
        assert experiment.main([*line, "--jobs", str(jobs)]) == 0
        shown = capsys.readouterr().out
        assert f"--distributed-world-{options[0]}" in shown and f"--update-{options[1]}" in shown


def test_a_folder_with_the_name_of_other_data(
    data: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "data-bin").mkdir()
    other = shutil.copytree(data, place / "data-bin" / "scan-simple")
    reverse = shutil.copytree(data, place / "data-bin" / "multi30k-de_en")
    for stamp, holds in (
        ({"dataset": "scan", "split": "length"}, "scan length"),
        ({"dataset": "scan", "split": "cutoff_24"}, "scan cutoff_24"),
        ({"dataset": "ctl", "split": "forward"}, "ctl forward"),
    ):
        (other / "prepared.json").write_text(json.dumps(stamp))
        assert experiment.main(words("train scan --split simple --dry-run")) == 2
        error = capsys.readouterr().err
        assert f"scan-simple holds {holds}, not scan simple: move it away" in error
    for split, status in (("en_de", 2), ("de_en", 0)):
        stamp = {"dataset": "multi30k", "split": split}
        (reverse / "prepared.json").write_text(json.dumps(stamp))
        assert experiment.main(words("train multi30k --split de_en --dry-run")) == status
    plain = shutil.copytree(data, place / "data-bin" / "cogs-exposures_30")
    (plain / "prepared.json").write_text(json.dumps({"dataset": "cogs"}))
    assert experiment.main(words("train cogs --split exposures_30 --dry-run")) == 2
    assert "exposures_30 holds cogs default, not cogs exposures_30: " in capsys.readouterr().err
    plain.rename(place / "data-bin" / "cogs")
    assert experiment.main(words("train cogs --dry-run")) == 0
    # The names in a user's own file need not be those of sut-prepare.
    splits = {"simple": "scan --cutoff 24", "other": "scan"}
    own = {**_TOY_EXPERIMENT, "dataset": "scan", "prepare": splits}
    (place / "mine.yaml").write_text(yaml.safe_dump(own))
    mine = other.rename(place / "data-bin" / "mine-simple")
    (mine / "prepared.json").write_text(json.dumps({"dataset": "scan", "split": "cutoff_24"}))
    assert experiment.main(words("train mine.yaml --dry-run")) == 0
    own = {**own, "dataset": "cogs", "prepare": {"default": "cogs", "other": "cogs --limit 9"}}
    (place / "mine.yaml").write_text(yaml.safe_dump(own))
    mine = mine.rename(place / "data-bin" / "mine-other")
    (mine / "prepared.json").write_text(json.dumps({"dataset": "cogs", "limited": True}))
    assert experiment.main(words("train mine.yaml --split other --dry-run")) == 0
