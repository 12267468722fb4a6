"""Two processes that train together, kept for many cases; and one process, to compare them with."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, distributed, nn

from tests.integration.commands import forks
from tests.models import dictionary, small_classifier, small_model, small_retriever

WORKERS = 2
_PATIENCE = 120  # seconds; a case takes one or two

Sample = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        updates: for each update, for each worker, its batches; None where it has none left.
        model: options of the model.
        classifies: whether the model is a classifier of whole sentences.
        retrieves: whether it predicts numbers, those of contextual retrieval.
        weights: of the auxiliary losses.
        over_workers: see the criterion.
        flags: what one would type after fairseq-train.
        prepare: changes the model before it is trained.
    """

    updates: list[list[list[Sample | None]]]
    model: dict[str, Any] = field(default_factory=dict)
    classifies: bool = False
    retrieves: bool = False
    weights: dict[str, float] = field(default_factory=dict)
    over_workers: bool = False
    flags: str = ""
    prepare: Callable[[nn.Module], None] | None = None


@dataclass
class Trained:
    """The outcome: parameters by name, before and after, and fairseq's log of each update."""

    before: dict[str, Tensor]
    after: dict[str, Tensor]
    logs: list[dict[str, float]]


def configuration(case: Case) -> Any:
    """The options of a training, as fairseq-train has them; all processes can use the same."""
    labelled = "unused --arch sut_tiny --label-smoothing 0.1"
    typed = f"{labelled} --task translation --criterion cross_entropy_with_auxiliary"
    if case.classifies:
        typed = f"{labelled} --task sequence_classification --criterion classification"
    elif case.retrieves:
        typed = "--arch contextual_retrieval_multihead --task contextual_retrieval"
        typed += " --criterion absolute_error"
    typed += "".join(f" --{loss.replace('_', '-')}-weight {w}" for loss, w in case.weights.items())
    typed += " --auxiliary-over-workers" if case.over_workers else ""
    return _config(f"{typed} {case.flags}")


def train(case: Case, configured: Any, rank: int = 0, workers: int = 1) -> Trained:
    """Train with fairseq's own trainer: as one of several workers, or alone with all batches.

    `configured` is the `configuration` of the case.
    """
    from fairseq import tasks  # only here: importing it takes as long as many tests
    from fairseq.trainer import Trainer

    cfg = copy.deepcopy(configured)
    cfg.distributed_training.distributed_rank = rank
    cfg.distributed_training.distributed_world_size = workers  # on a CPU typing it is not enough
    build: Callable[..., nn.Module] = small_model
    dictionaries = [dictionary(), dictionary(5 if case.classifies else 7, "v")]
    if case.classifies:
        build = small_classifier
    elif case.retrieves:
        build, dictionaries = small_retriever, []
    task = tasks.TASK_REGISTRY[cfg.task._name](cfg.task, *dictionaries)
    model = build(**case.model, dtype=torch.float32)
    if case.prepare is not None:
        case.prepare(model)
    before = _parameters(model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.reset_dummy_batch(case.updates[0][0][0])
    logs = []
    for update in case.updates:
        if workers == 1:
            batches = [batch for worker in update for batch in worker if batch is not None]
        else:
            batches = [{} if batch is None else batch for batch in update[rank]]
        logs.append(trainer.train_step(batches))
    return Trained(before, _parameters(model), logs)


def train_alone(case: Case) -> Trained:
    """One process that computes all batches."""
    return train(case, configuration(case))


@cache
def _config(typed: str) -> Any:
    """The configuration fairseq-train makes of a command line."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    # Not Adam, which makes a step of a rounding error where a parameter has no gradient.
    line = f"{typed} --cpu --optimizer nag --momentum 0.9 --lr 0.1 --clip-norm 1".split()
    arguments = options.parse_args_and_arch(options.get_training_parser(), line)
    return convert_namespace_to_omegaconf(arguments)


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


class Pair:
    """Two workers, in a context that ends them.

    A call runs a function in both of them, with their rank and number as its last arguments.
    """

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        meeting_point = Path(self._folder.name, "meeting_point").as_uri()
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(WORKERS):
            here, there = multiprocessing.Pipe()
            process = forks().Process(target=_work, args=(there, meeting_point, rank), daemon=True)
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()  # which ends a worker that waits for work
        for process in self._processes:
            process.join(timeout=5)
            process.kill()
        self._folder.cleanup()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What the function returned in each worker; a worker that is late or dead fails."""
        for connection in self._connections:
            # Not `send`, for which torch would move tensors into memory shared by both.
            connection.send_bytes(pickle.dumps((function, arguments)))
        results = []
        for rank, connection in enumerate(self._connections):
            if not connection.poll(_PATIENCE):
                raise TimeoutError(f"worker {rank} has not answered for {_PATIENCE} seconds")
            failed, result = pickle.loads(connection.recv_bytes())
            if failed:
                raise AssertionError(f"worker {rank}:\n{result}")
            results.append(result)
        return results


def _work(connection: Connection, meeting_point: str, rank: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=meeting_point,
        rank=rank,
        world_size=WORKERS,
        timeout=timedelta(seconds=_PATIENCE / 2),
    )
    while True:
        try:
            function, arguments = pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            return
        try:
            answer = (False, function(*arguments, rank, WORKERS))
        except BaseException:
            answer = (True, traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))
