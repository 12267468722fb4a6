"""What fairseq is made to do with checkpoints, without a training."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from omegaconf import OmegaConf
from torch.multiprocessing import start_processes
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from sut_fairseq.checkpoints import stopping, training, writing
from sut_fairseq.checkpoints.interruption import UNFINISHED, Interruption
from sut_fairseq.checkpoints.mismatch import explained
from sut_fairseq.checkpoints.stopping import Stop
from sut_fairseq.criterions.classification import ClassificationCriterion
from sut_fairseq.errors import InputError
from tests.integration.commands import forks, run


def trainer_of(*parts: object, workers: int = 1, rank: int = 0) -> Any:
    """What of fairseq's trainer is looked at."""
    model, task, criterion = (*parts, *[object()] * 3)[:3]
    return SimpleNamespace(
        get_model=lambda: model,
        get_criterion=lambda: criterion,
        task=task,
        data_parallel_world_size=workers,
        data_parallel_rank=rank,
        data_parallel_process_group=None if workers == 1 else torch.distributed.group.WORLD,
        device=torch.device("cpu"),
        get_num_updates=lambda: 5,
    )


class Derived(ClassificationCriterion):
    """Somebody's own class."""


def test_what_is_ours() -> None:
    assert not training._is_ours(trainer_of(torch.nn.Linear(1, 1)))
    assert training._is_ours(trainer_of(None, None, Derived.__new__(Derived)))


def test_other_trainings_are_fairseqs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked at or moved in their folders."""
    given: list[Any] = []
    monkeypatch.setattr(training, "_fairseq_load", lambda *all, **options: given.append(all))
    cfg, trainer = object(), trainer_of()
    training._load_checkpoint(cfg, trainer)
    assert given == [(cfg, trainer)]


def test_the_options_that_are_saved_stay_as_they_were() -> None:
    cfg = OmegaConf.structured(CheckpointConfig(finetune_from_model="other.pt"))
    before = copy.deepcopy(cfg)
    changed = training._restoring(cfg, Path("run/checkpoint_1_5-mine.pt"), "-mine")
    assert (changed.restore_file, changed.finetune_from_model) == ("run/checkpoint_1_5.pt", None)
    assert cfg == before
    assert training._restoring(cfg, Path("run/checkpoint_last-mine.pt"), "-mine") is cfg


def test_a_program_that_is_no_command_keeps_its_signals() -> None:
    program = (
        "import signal\n"
        "from sut_fairseq._process import prepare_process\n"
        "from fairseq.distributed import utils\n"
        "sys.argv = ['notebook.py']\n"
        "call_main = utils.call_main\n"
        "prepare_process()\n"
        "assert utils.call_main is call_main\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    )
    run("python", "-c", f"import sys\n{program}")


def test_the_status_of_the_processes_that_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "pass_on_signals", lambda: None)

    def fail(cfg: Any, main: Any) -> None:
        raise ProcessExitedException("", error_index=0, error_pid=1, exit_code=cfg)

    monkeypatch.setattr(stopping, "_fairseq_call_main", fail)
    with pytest.raises(SystemExit) as ended:
        stopping.call_main(UNFINISHED, print)
    assert ended.value.code == UNFINISHED
    with pytest.raises(ProcessExitedException):
        stopping.call_main(1, print)


def refuse(rank: int) -> None:
    """As a process that fairseq starts for a GPU."""
    raise InputError(f"`top_k` is 9:\ntake 2, process {rank}.")


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with several GPUs: fairseq starts processes, here those that have imported it already."""
    forks()
    monkeypatch.setattr(stopping, "pass_on_signals", lambda: None)
    monkeypatch.setattr(
        stopping,
        "_fairseq_call_main",
        lambda cfg, main: start_processes(main, start_method="forkserver"),
    )


@pytest.mark.usefixtures("spawned")
def test_the_sentence_of_the_processes_that_were_started() -> None:
    with pytest.raises(InputError) as error:
        stopping.call_main(None, refuse)
    assert str(error.value) == "`top_k` is 9:\ntake 2, process 0."


@pytest.mark.slow
@pytest.mark.usefixtures("spawned")
def test_other_ends_of_the_processes_that_were_started() -> None:
    with pytest.raises(InputError) as error:
        stopping.call_main(None, refuse_as_fairseq)
    assert str(error.value) == "other words"
    with pytest.raises(InputError, match=r"the training diverged \(gradients are Nan/Inf\): "):
        stopping.call_main(None, diverge)
    for other in (float_of_a_word, disagree):
        with pytest.raises(ProcessRaisedException):
            stopping.call_main(None, other)


def refuse_as_fairseq(rank: int) -> None:
    """Its trainer puts an exception of its own in the place of ours."""
    try:
        raise InputError("other words")
    except InputError:
        raise Exception("Cannot load model parameters from checkpoint x")  # noqa: B904


def diverge(rank: int) -> None:
    raise FloatingPointError("gradients are Nan/Inf")


def disagree(rank: int) -> None:
    raise FloatingPointError(
        "Fatal error: gradients are inconsistent between workers\nrank 0 = 0.2"
    )


def float_of_a_word(rank: int) -> None:
    """Its `InputError` was dealt with: what ends the process is something else."""
    try:
        raise InputError("dealt with")
    except InputError:
        float("word")


CHECKPOINTS = SimpleNamespace(
    no_save=False, no_last_checkpoints=False, save_dir="run", restore_file="checkpoint_last.pt"
)


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The scores with which checkpoints are saved."""
    scores: list[Any] = []

    def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> None:
        scores.append(val_loss)

    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", save_checkpoint)
    return scores


def after_update(validate_and_save: Callable[..., Any], asked: bool, trainer: Any) -> Any:
    """What happens after an update whose training was asked to stop, or was not."""
    interruption = Interruption()
    interruption.asked = signal.SIGTERM if asked else None
    stop = Stop(interruption)
    checkpoint_utils.save_checkpoint = stop._noting(checkpoint_utils.save_checkpoint)
    cfg = SimpleNamespace(checkpoint=CHECKPOINTS)
    return stop._after(validate_and_save)(cfg, trainer, None, None, [], False)


def saving(cfg: Any, trainer: Any, *rest: Any) -> tuple[list[float | None], bool]:
    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, None, 0.5)
    return [0.5], False


def test_it_ends_with_one_checkpoint(saves: list[Any]) -> None:
    with pytest.raises(SystemExit) as ended:
        after_update(lambda *_: ([None], False), True, trainer_of())
    assert (ended.value.code, saves) == (UNFINISHED, [None])
    saves.clear()
    with pytest.raises(SystemExit):
        after_update(saving, True, trainer_of())
    assert saves == [0.5], "saved twice"


def test_it_goes_on_or_has_come_to_its_end(saves: list[Any]) -> None:
    assert after_update(saving, False, trainer_of()) == ([0.5], False)
    assert after_update(lambda *_: ([0.7], True), True, trainer_of()) == ([0.7], True)


def test_data_workers_that_were_killed_by_the_same_signal(saves: list[Any]) -> None:
    def cut_off(*_: Any) -> Any:
        raise RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")

    with pytest.raises(SystemExit):
        after_update(cut_off, True, trainer_of())
    assert saves == [None]
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        after_update(cut_off, False, trainer_of())


def in_two_workers(body: Callable[[int, Path], Any], folder: Path) -> list[Any]:
    """What a function returns, or the message of its error, in each of two processes."""
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    workers = [
        context.Process(target=_be_worker, args=(rank, body, folder, answers)) for rank in (0, 1)
    ]
    for worker in workers:
        worker.start()
    answered = dict(answers.get() for _ in workers)
    for worker in workers:
        worker.join()
    return [answered[0], answered[1]]


def _be_worker(rank: int, body: Callable[[int, Path], Any], folder: Path, answers: Any) -> None:
    place = f"file://{folder / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    try:
        answers.put((rank, body(rank, folder)))
    except (InputError, SystemExit) as error:
        answers.put((rank, str(error)))
    except Exception as error:  # so that nobody waits for an answer
        answers.put((rank, repr(error)))
    torch.distributed.barrier()
    os._exit(0)


def _decide(rank: int, folder: Path) -> Any:
    def only_the_first() -> Path | None:
        assert rank == 0
        return folder / "checkpoint_1_5.pt"

    return training._as_the_first_says(trainer_of(workers=2, rank=rank), only_the_first)


def _refuse(rank: int, folder: Path) -> Any:
    def damaged() -> Path | None:
        raise InputError("damaged")

    return training._as_the_first_says(trainer_of(workers=2, rank=rank), damaged)


def _stop(rank: int, folder: Path) -> Any:
    """Only the second is told to."""
    checkpoint_utils.save_checkpoint = lambda *_: None
    return after_update(lambda *_: ([None], False), rank == 1, trainer_of(workers=2, rank=rank))


def test_several_processes_do_the_same(tmp_path: Path) -> None:
    for number, (body, answer) in enumerate(
        ((_decide, "checkpoint_1_5.pt"), (_refuse, "damaged"), (_stop, str(UNFINISHED)))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        expected: Any = folder / answer if body is _decide else answer
        assert in_two_workers(body, folder) == [expected, expected]


def test_copies_are_whole_and_remote_ones_fairseqs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pt").write_text("a")
    copied = training._WholeFiles.copy(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), True)
    assert copied and (tmp_path / "b.pt").read_text() == "a"
    monkeypatch.setattr(writing, "copy", lambda *_: pytest.fail("a remote file"))
    remote = SimpleNamespace(path_requires_pathmanager=lambda path: True, copy=lambda *_, **__: 1)
    monkeypatch.setattr(training, "PathManager", remote)
    assert training._WholeFiles.copy("a", "s3://b") is True


def test_a_sentence_of_ours_stays() -> None:
    """Also where fairseq's trainer has replaced it by its own error."""
    ours = InputError("the words of the data are others")
    theirs = Exception("Cannot load model parameters from checkpoint x.pt; please ensure that")
    theirs.__context__ = ours
    for error in (ours, theirs):
        assert explained(error, {}, fine_tunes=False) is None
