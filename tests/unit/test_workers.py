"""What a command line becomes in a process that a launcher has started."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from sut_fairseq import _workers
from sut_fairseq._workers import join_workers, prepare_workers
from sut_fairseq.errors import InputError
from sut_fairseq.models.architectures import _settle_precision
from tests.integration.commands import start

LAUNCHED = dict(WORLD_SIZE="4", RANK="3", MASTER_ADDR="here", MASTER_PORT="29500")


def typed(**options: Any) -> Namespace:
    """fairseq's defaults, on a machine without a GPU."""
    defaults = dict(
        cpu=False,
        distributed_world_size=1,
        distributed_rank=0,
        distributed_backend="nccl",
        distributed_init_method=None,
        distributed_no_spawn=False,
        device_id=0,
        ddp_backend="pytorch_ddp",
        load_checkpoint_on_all_dp_ranks=False,
        write_checkpoints_asynchronously=False,
        no_save_optimizer_state=False,
        no_save=False,
    )
    return Namespace(**{**defaults, **options})


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """fairseq-train without a launcher."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def have_gpus(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)


def joined(arguments: Namespace) -> dict[str, Any]:
    """What changed."""
    before = dict(vars(arguments))
    join_workers(arguments)
    return {name: value for name, value in vars(arguments).items() if value != before[name]}


@pytest.mark.parametrize("cpu, gpus", [(True, 2), (False, 0)])
def test_on_a_cpu(environment: pytest.MonkeyPatch, cpu: bool, gpus: int) -> None:
    have_gpus(environment, gpus)
    for name, value in LAUNCHED.items():
        environment.setenv(name, value)
    assert joined(typed(cpu=cpu)) == dict(
        distributed_world_size=4,
        distributed_rank=3,
        distributed_backend="gloo",
        distributed_init_method="env://",
        distributed_no_spawn=True,
        load_checkpoint_on_all_dp_ranks=True,
    )


def test_machines_with_a_gpu_each_join_too(environment: pytest.MonkeyPatch) -> None:
    """fairseq reads the environment itself, but only where it expects several processes."""
    have_gpus(environment, 1)
    for name, value in LAUNCHED.items():
        environment.setenv(name, value)
    changed = dict(distributed_world_size=4, load_checkpoint_on_all_dp_ranks=True)
    assert joined(typed()) == changed


def test_without_a_launcher_nothing_changes(environment: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        have_gpus(environment, number)
        assert joined(typed()) == {}
    environment.setenv("WORLD_SIZE", "1")
    assert joined(typed()) == {}
    assert joined_options() == {}


def test_our_own_commands_start_nothing(environment: pytest.MonkeyPatch) -> None:
    """They use the parser of fairseq-train to build a model, also where a launcher is at work."""
    environment.setattr(sys, "argv", ["/bin/sut-macs"])
    for number in ("2", "two"):
        environment.setenv("WORLD_SIZE", number)
        assert joined(typed()) == {}


def test_a_number_of_processes_that_is_none(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WORLD_SIZE", "two")
    with pytest.raises(InputError, match="`WORLD_SIZE` must be a number of processes, or not set"):
        joined(typed())


def test_a_launcher_that_says_too_little(environment: pytest.MonkeyPatch) -> None:
    """As if none had been at work, if it names no number at all."""
    environment.setenv("WORLD_SIZE", "")
    assert joined(typed()) == {}
    environment.setenv("WORLD_SIZE", "2")
    environment.setenv("RANK", "1")
    sentence = "WORLD_SIZE is 2, but a launcher would also set MASTER_ADDR, MASTER_PORT: start"
    with pytest.raises(InputError, match=sentence):
        joined(typed())


def joined_options() -> dict[str, Any]:
    """The options of a model alone, with which fairseq calls the same function."""
    options = Namespace(encoder_layers=3)
    join_workers(options)
    return {name: value for name, value in vars(options).items() if name != "encoder_layers"}


def test_fairseqs_own_processes_for_several_gpus(environment: pytest.MonkeyPatch) -> None:
    have_gpus(environment, 8)
    assert joined(typed(distributed_world_size=8)) == {"load_checkpoint_on_all_dp_ranks": True}
    # On the CPU of that machine there is one process, whatever fairseq's default is.
    assert joined(typed(distributed_world_size=8, cpu=True)) == {"distributed_world_size": 1}


@pytest.mark.parametrize("backend", ["fully_sharded", "slowmo"])
def test_other_kinds_of_data_parallelism(environment: pytest.MonkeyPatch, backend: str) -> None:
    with pytest.raises(InputError, match=f"pytorch_ddp or legacy_ddp, but is {backend} instead"):
        join_workers(typed(ddp_backend=backend))
    for known in ("legacy_ddp", "no_c10d", "c10d"):
        join_workers(typed(ddp_backend=known))


def test_checkpoints_that_nothing_could_resume_from(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="leaves out what a training resumes from: leave the opt"):
        join_workers(typed(no_save_optimizer_state=True))
    join_workers(typed(no_save_optimizer_state=True, no_save=True))


def test_processes_do_not_outlive_torchrun(tmp_path: Path) -> None:
    """They are told to stop when it dies of a signal that it does not pass on."""
    ended, ready = tmp_path / "ended", tmp_path / "ready"
    program = (
        "import os, pathlib, signal, time; from sut_fairseq import _workers\n"
        "if worker := os.fork(): os.waitpid(worker, 0)\n"  # torchrun waits for it
        f"note = lambda *_: (pathlib.Path({str(ended)!r}).touch(), os._exit(0))\n"
        "signal.signal(signal.SIGTERM, note); _workers._end_with_torchrun()\n"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60); os._exit(0)"
    )
    with start("python", "-c", program) as torchrun:
        assert _comes(ready)
        os.kill(torchrun.pid, signal.SIGUSR1)
        assert torchrun.finished(ok=False).status == -signal.SIGUSR1
    assert _comes(ended)


def _comes(file: Path) -> bool:
    for _ in range(600):
        if file.exists():
            return True
        time.sleep(0.1)
    return False


def test_sharding_that_no_command_line_showed(environment: pytest.MonkeyPatch) -> None:
    """Hydra's options are seen by no architecture, but fairscale has begun to wrap."""
    wrapping = SimpleNamespace(ConfigAutoWrap=SimpleNamespace(in_autowrap_context=True))
    environment.setitem(sys.modules, "fairscale.nn.wrap.auto_wrap", wrapping)
    with pytest.raises(InputError, match="pytorch_ddp or legacy_ddp, but is fully_sharded instead"):
        prepare_workers()
    wrapping.ConfigAutoWrap.in_autowrap_context = False
    prepare_workers()


def test_only_training_commands_are_refused(environment: pytest.MonkeyPatch) -> None:
    """Somebody's own program may build a model before it joins its processes."""
    for name, value in LAUNCHED.items():
        environment.setenv(name, value)
    for program, refused in (
        ("/bin/fairseq-train", True),
        ("fairseq_cli/train.py", True),
        ("fairseq-hydra-train", True),
        ("fairseq-generate", False),
        ("train.py", False),
    ):
        environment.setattr(_workers.sys, "argv", [program])
        if refused:
            with pytest.raises(InputError, match="a launcher started 4 processes"):
                prepare_workers()
        else:
            prepare_workers()


def test_bf16_needs_no_tpu(environment: pytest.MonkeyPatch) -> None:
    """fairseq's parser has set `tpu` by then."""
    arguments = Namespace(bf16=True, tpu=True, cpu=True)
    _settle_precision(arguments)
    assert (arguments.bf16, arguments.tpu) == (True, False)


@pytest.mark.parametrize(
    ("words", "options", "refused"),
    [
        ("--bf16", {"bf16": True, "tpu": True}, False),
        ("--bf16 --tpu", {"bf16": True, "tpu": True}, True),
        ("--tpu", {"tpu": True}, True),
    ],
)
def test_a_tpu_without_torch_xla(
    words: str, options: dict[str, bool], refused: bool, environment: pytest.MonkeyPatch
) -> None:
    """In fairseq's parser --bf16 alone implies --tpu."""
    environment.setattr(_workers.sys, "argv", ["fairseq-train", *words.split()])
    arguments = Namespace(cpu=True, **options)
    expected = pytest.raises(InputError, match="--tpu needs torch_xla, which is not installed")
    with expected if refused else nullcontext():
        _settle_precision(arguments)
    assert arguments.tpu == refused


def test_a_criterion_that_trains_attention() -> None:
    name = "label_smoothed_cross_entropy_with_alignment"
    with pytest.raises(InputError, match=f"--criterion {name} trains attention weights, which"):
        ARCH_CONFIG_REGISTRY["sut_tiny"](Namespace(criterion=name, cpu=True))
    ARCH_CONFIG_REGISTRY["location"](Namespace(criterion=name, cpu=True))
