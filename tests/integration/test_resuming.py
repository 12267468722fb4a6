"""A training that ends before its time goes on as if it had not."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.damage import flip, largest_record
from tests.integration.commands import TINY, Finished, run, start, train, training, words

UPDATES = 12  # five make an epoch: they end in the third one
LENGTH = ("--max-update", UPDATES, "--no-epoch-checkpoints")
EACH = (*LENGTH, "--save-interval-updates", 1)
ENDLESS = ("--max-update", 10000, "--no-epoch-checkpoints", "--save-interval-updates", 1)
UNFINISHED = 75


def load(checkpoint: Path) -> dict[str, Any]:
    return torch.load(checkpoint, weights_only=True)


def curve(finished: Finished, name: str = "train_inner") -> list[dict[str, Any]]:
    """What was logged, but for what the clock says."""
    clock = {"wps", "ups", "wall"}
    return [
        {key: value for key, value in line.items() if not clock & set(key.split("_"))}
        for line in finished.logged(name)
    ]


def assert_same_end(first: Path, second: Path) -> None:
    """Parameters and state of the optimizer are equal bit for bit."""
    ends = [load(folder / "checkpoint_last.pt") for folder in (first, second)]
    for part in ("model", "last_optimizer_state"):
        torch.testing.assert_close(ends[0][part], ends[1][part], rtol=0, atol=0)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """A training without a break, saved only at its end, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return train(data, folder, *TINY, *LENGTH), folder


@pytest.fixture(scope="module")
def each(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """The same, saved at each update."""
    folder = tmp_path_factory.mktemp("each")
    return train(data, folder, *TINY, *EACH), folder


@pytest.mark.parametrize("survivor", ["checkpoint_1_3.pt", "checkpoint_2_8.pt"])
def test_a_kill_changes_nothing(
    survivor: str, data: Path, each: tuple[Finished, Path], tmp_path: Path
) -> None:
    """In the middle of the first epoch and of a later one."""
    uninterrupted, folder = each
    with start("fairseq-train", *training(data, tmp_path, *TINY, *ENDLESS)) as running:
        assert running.wait_for((tmp_path / survivor).exists)
        running.kill()
        assert running.finished(ok=False).status == -signal.SIGKILL
    resumed = train(data, tmp_path, *TINY, *EACH, "--restore-file", tmp_path / survivor)
    done = int(survivor.rpartition("_")[2][:-3])
    assert len(curve(uninterrupted)) == UPDATES
    assert curve(resumed) == curve(uninterrupted)[done:]
    assert curve(resumed, "valid") == curve(uninterrupted, "valid")[done:]
    assert_same_end(tmp_path, folder)


# Killed where it would delete the first file of such a name.
KILLED_AT = """
import os, signal, sys
from fairseq_cli.train import cli_main
deletes = os.remove
def remove(path, *arguments, **options):
    if os.path.basename(path).startswith({name!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    deletes(path, *arguments, **options)
os.remove = remove
sys.argv[1:3] = []
cli_main()
"""


# Files of either length are deleted when the last one is saved.
SEVEN = ("--max-update", 7, "--save-interval-updates", 1)
TWO_EPOCHS = ("--max-update", 10)


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("checkpoint_1_4.pt", (*SEVEN, "--keep-interval-updates", 2)),
        # The unit tests of surplus checkpoints have the rules.
        pytest.param(
            "checkpoint_2_6.pt",
            (*SEVEN, "--keep-interval-updates", 1, "--keep-interval-updates-pattern", 4),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "checkpoint1.pt", (*TWO_EPOCHS, "--keep-last-epochs", 1), marks=pytest.mark.slow
        ),
        ("checkpoint.best_loss_", (*TWO_EPOCHS, "--keep-best-checkpoints", 1)),
    ],
)
def test_a_kill_before_a_checkpoint_is_deleted(
    name: str, keep: tuple[object, ...], data: Path, tmp_path: Path
) -> None:
    """The same files, though no save is left of the training that would delete them."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = (*TINY, *keep)
    train(data, whole, *options)
    program = KILLED_AT.format(name=name)
    command = training(data, killed, *options)
    assert run("python", "-c", program, *command, ok=False).status == -signal.SIGKILL
    names = {path.name for path in killed.iterdir()}
    assert names - {path.name for path in whole.iterdir()}
    resumed = train(data, killed, *options)
    assert f"deleted what the options --keep-* do not keep: {name}" in resumed.stdout
    assert_same_end(whole, killed)
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize(
    "number",
    # The unit tests of interruption send all three.
    [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow), signal.SIGINT],
)
def test_a_signal_ends_it_after_an_update(
    number: signal.Signals, data: Path, whole: tuple[Finished, Path], tmp_path: Path
) -> None:
    """It is saved without validating, so that even the best score is what it would have been."""
    uninterrupted, folder = whole
    with start("fairseq-train", *training(data, tmp_path, *TINY, *LENGTH)) as running:
        assert running.wait_for(lambda: '"num_updates": "2"' in running.stdout)
        os.kill(running.pid, number)
        interrupted = running.finished(ok=False)
    assert interrupted.status == UNFINISHED
    assert f"{number.name}: when the update is finished and saved" in interrupted.stderr
    assert "Traceback" not in interrupted.stderr
    done = len(curve(interrupted))
    assert 2 <= done < UPDATES
    assert f"interrupted after update {done}: it is saved in {tmp_path}" in interrupted.stdout
    resumed = train(data, tmp_path, *TINY, *LENGTH)
    assert curve(interrupted) + curve(resumed) == curve(uninterrupted)
    assert curve(resumed, "valid")[-1] == curve(uninterrupted, "valid")[-1]
    assert_same_end(tmp_path, folder)


@pytest.fixture(scope="module")
def falling(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """Five epochs; the loss never falls enough, so that after two of them the rate is halved."""
    folder = tmp_path_factory.mktemp("falling")
    return train(data, folder, *TINY, *PLATEAU, "--max-epoch", 5), folder


PLATEAU = words(
    "--batch-size 20 --max-update 0 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 "
    "--lr-threshold 0.9 --lr-patience 1"
)  # two batches make an epoch


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_learning_rate_that_waits_for_losses(
    epoch: int, data: Path, falling: tuple[Finished, Path], tmp_path: Path
) -> None:
    """fairseq saves before it tells it the loss of an epoch, and not for how long it has waited."""
    uninterrupted, folder = falling
    rates = [line["train_lr"] for line in uninterrupted.logged("train")]
    assert rates == ["0.001"] * 3 + ["0.0005"] * 2
    start = folder / f"checkpoint{epoch}.pt"
    options = (*PLATEAU, "--max-epoch", 5, "--restore-file", start)
    resumed = train(data, tmp_path, *TINY, *options)
    assert curve(resumed) == curve(uninterrupted)[2 * epoch :]
    assert_same_end(tmp_path, folder)


def test_patience(data: Path, tmp_path: Path) -> None:
    """It counts on where it was, and a training that it has ended stays ended."""
    patient = (*TINY, *words("--batch-size 20 --max-update 0 --lr 1e-9 --patience 2 --max-epoch 6"))
    folders = tmp_path / "whole", tmp_path / "resumed"
    uninterrupted = train(data, folders[0], *patient)
    assert [line["epoch"] for line in uninterrupted.logged("valid")] == [1, 2, 3]
    start = ("--restore-file", folders[0] / "checkpoint2.pt")
    resumed = train(data, folders[1], *patient, *start)
    assert curve(resumed, "valid") == curve(uninterrupted, "valid")[2:]
    assert_same_end(*folders)
    again = train(data, folders[0], *patient)
    assert "finished: it has had 2 validations without a better result, of --pat" in again.stdout
    assert curve(again) == []
    forgetful = train(data, folders[0], *patient, *start, "--reset-meters")
    assert [line["epoch"] for line in forgetful.logged("valid")] == [3, 4, 5]


@pytest.mark.slow  # two trainings each
@pytest.mark.parametrize(
    "moment", ["begin validation", "begin training epoch 2", '"num_updates": "2"']
)
@pytest.mark.parametrize("buffer", [0, 10])
def test_a_signal_to_all_processes(
    moment: str, buffer: int, data: Path, whole: tuple[Finished, Path], tmp_path: Path
) -> None:
    """As Slurm sends it: while it validates, waits for the first batch, and in an update."""
    uninterrupted, folder = whole
    options = (*LENGTH, "--num-workers", 2, "--data-buffer-size", buffer)
    options += ("--validate-interval-updates", 1) if moment == "begin validation" else ()
    with start("fairseq-train", *training(data, tmp_path, *TINY, *options)) as running:
        times = 2 if moment == "begin validation" else 1
        assert running.wait_for(
            lambda: running.stdout.count(moment) >= times and len(children(running.pid)) >= 2
        )
        workers = children(running.pid)
        for process in (running.pid, *workers):
            os.kill(process, signal.SIGTERM)
        interrupted = running.finished(ok=False)
    assert interrupted.status == UNFINISHED, interrupted.stderr[-2000:]
    assert interrupted.stderr.count("SIGTERM: when") == 1
    assert "Traceback" not in interrupted.stderr
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    resumed = train(data, tmp_path, *TINY, *LENGTH)
    assert curve(interrupted) + curve(resumed) == curve(uninterrupted)
    assert_same_end(tmp_path, folder)


def children(process: int) -> list[int]:
    """The processes that were started by the threads of this one."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for one in threads for child in (one / "children").read_text().split()]


def test_a_finished_training_stays_as_it_is(
    data: Path, whole: tuple[Finished, Path], tmp_path: Path
) -> None:
    shutil.copytree(whole[1], tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    again = train(data, tmp_path, *TINY, *LENGTH)
    assert "this training is finished: it has had 12 updates of --max-update 12" in again.stdout
    assert curve(again) == []
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    longer = train(data, tmp_path, *TINY, "--max-update", 13)
    assert [line["num_updates"] for line in curve(longer)] == ["13"]


def test_an_unknown_metric_of_checkpoints_loses_nothing(data: Path, tmp_path: Path) -> None:
    """fairseq looks it up after the first validation, before it saves."""
    metric = ("--best-checkpoint-metric", "bleu")
    failed = train(
        data, tmp_path, *TINY, *LENGTH, "--validate-interval-updates", 2, *metric, ok=False
    )
    assert failed.last_line == (
        "error: --best-checkpoint-metric bleu: validation computes no `bleu`; give "
        "a number that its line in the log shows (bleu needs --eval-bleu, for example). Training "
        f"stopped after update 2: it is saved in {tmp_path}, where the same command goes on."
    )
    resumed = train(data, tmp_path, *TINY, *LENGTH)
    assert [line["num_updates"] for line in curve(resumed)][0] == "3"


DAMAGES = ["missing", "empty", "cut off", "bytes flipped"]


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "bytes flipped":
        flip(path, largest_record(path)[:2000])
    else:
        path.write_bytes(path.read_bytes()[: 0 if how == "empty" else -5000])


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_last_checkpoint(
    how: str, data: Path, each: tuple[Finished, Path], tmp_path: Path
) -> None:
    uninterrupted, folder = each
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for update in (10, 11, 12):
        (tmp_path / f"checkpoint_3_{update}.pt").unlink(missing_ok=True)
    (tmp_path / "checkpoint_2_10.pt").unlink(missing_ok=True)
    (tmp_path / "checkpoint_best.pt").unlink()
    last = tmp_path / "checkpoint_last.pt"
    damage(last, how)
    damage(tmp_path / "checkpoint_2_9.pt", "bytes flipped")
    (tmp_path / ".123456789-checkpoint_last.pt.tmp").write_text("half")
    (tmp_path / "checkpoint_3_13.pt.tmp").write_text("half")
    resumed = train(data, tmp_path, *TINY, *EACH)
    lost = "4 updates are lost" if how in ("cut off", "bytes flipped") else "at least 1 updates"
    state = "missing" if how == "missing" else "damaged"
    start = tmp_path / "checkpoint_2_8.pt"
    assert (
        f"{last.name} is {state}: going on from {start}, the newest intact checkpoint, at update "
        f"8; {lost}" in resumed.stdout
    )
    kept = {path.name for path in tmp_path.glob("*.damaged*")}
    assert kept == {"checkpoint_2_9.pt.damaged"} | (
        set() if how == "missing" else {"checkpoint_last.pt.damaged"}
    )
    assert not [*tmp_path.glob(".*"), *tmp_path.glob("*.tmp")]
    assert curve(resumed) == curve(uninterrupted)[8:]
    assert_same_end(tmp_path, folder)
    assert load(last)["cfg"]["checkpoint"]["restore_file"] == "checkpoint_last.pt"


def test_a_checkpoint_given_by_hand_is_not_replaced(
    data: Path, each: tuple[Finished, Path], tmp_path: Path
) -> None:
    shutil.copytree(each[1], tmp_path, dirs_exist_ok=True)
    given = tmp_path / "checkpoint_2_7.pt"
    damage(given, "bytes flipped")
    for option in ("--restore-file", "--finetune-from-model"):
        folder = tmp_path if option == "--restore-file" else tmp_path / "new"
        refused = train(data, folder, *TINY, *EACH, option, given, ok=False)
        assert refused.status == 1
        assert refused.last_line.startswith(f"error: The checkpoint `{given}` is damaged: ")
        assert "Traceback" not in refused.stderr
        assert given.exists()


def test_a_mistyped_checkpoint_begins_nothing_anew(
    data: Path, each: tuple[Finished, Path], tmp_path: Path
) -> None:
    """fairseq would train from the beginning, over the checkpoints that are there."""
    shutil.copytree(each[1], tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    given = tmp_path / "checkpoint_typo.pt"
    refused = train(data, tmp_path, *TINY, *EACH, "--restore-file", given, ok=False)
    sentence = f"error: --restore-file {given}: there is no such file; name one that there is, or "
    assert refused.status == 1 and refused.last_line.startswith(sentence)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


def test_nothing_whole_is_left(data: Path, whole: tuple[Finished, Path], tmp_path: Path) -> None:
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes((whole[1] / last.name).read_bytes()[:-5000])
    damaged = last.read_bytes()
    anew = train(data, tmp_path, *TINY)
    assert (
        f"no checkpoint in {tmp_path} is intact: the training begins anew; 12 updates are lost"
        in (anew.stdout)
    )
    assert [line["num_updates"] for line in curve(anew)] == ["1", "2"]
    assert (tmp_path / "checkpoint_last.pt.damaged").read_bytes() == damaged


DISK_FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv = ["fairseq-train", *{arguments!r}]
from fairseq_cli.train import cli_main
cli_main()
"""


def test_a_full_disk_leaves_the_old_checkpoints(
    data: Path, each: tuple[Finished, Path], tmp_path: Path
) -> None:
    """A file must not become as large as a checkpoint, which fails as a full disk does."""
    uninterrupted, folder = each
    train(data, tmp_path, *TINY, "--max-update", 3, "--no-epoch-checkpoints")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limit = len(before["checkpoint_last.pt"]) - 100
    arguments = [str(one) for one in training(data, tmp_path, *TINY, *EACH)]
    program = DISK_FULL.format(limit=limit, arguments=arguments)
    full = run("python", "-c", program, ok=False)
    assert full.status == 1
    place = tmp_path / "checkpoint_1_4.pt"
    assert full.last_line == (
        f"error: `{place}` could not be written (File too large): what was there before is as it "
        "was; make room and give the same command again."
    )
    assert "Traceback" not in full.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    resumed = train(data, tmp_path, *TINY, *EACH)
    assert curve(resumed) == curve(uninterrupted)[3:]
    assert_same_end(tmp_path, folder)
