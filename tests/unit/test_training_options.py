"""What the start of a training checks, whichever command begins it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.criterions import CRITERION_REGISTRY

from sut_fairseq._training_options import _warn_once, check_training
from sut_fairseq.errors import InputError

PLAIN = ["cross_entropy", "label_smoothed_cross_entropy_with_rdrop", "adaptive_loss"]


def begin(
    criterion: str = "cross_entropy_with_auxiliary",
    experts: int = 1,
    common: dict[str, Any] | None = None,
    length: dict[str, int] | None = None,
    updates: Sequence[int] = (1,),
    betas: str = "(0.9, 0.98)",
    **options: Any,
) -> None:
    """Begin a training on a CPU, whose options fairseq keeps by group."""
    cfg = SimpleNamespace(
        distributed_training=SimpleNamespace(ddp_backend="pytorch_ddp"),
        checkpoint=SimpleNamespace(
            no_save_optimizer_state=False, write_checkpoints_asynchronously=False
        ),
        common=SimpleNamespace(**{"cpu": True, "quantization_config_path": None, **(common or {})}),
        criterion=SimpleNamespace(_name=criterion, **options),
        model=SimpleNamespace(attention_experts=1, ffn_experts=experts),
        optimization=SimpleNamespace(
            **{"max_update": 0, "max_epoch": 0, "update_freq": updates, **(length or {})}
        ),
        optimizer=SimpleNamespace(adam_betas=betas),
    )
    kind = CRITERION_REGISTRY[criterion]
    check_training(cfg, kind.__new__(kind))


@pytest.mark.parametrize(
    ("common", "options", "sentence"),
    [
        ({"fp16": True}, {}, "--fp16 needs a GPU, but there is none or --cpu is given: drop"),
        ({}, {"cuda_graphs": 8}, "--cuda-graphs needs a GPU, but there is none or --cpu is given"),
        ({"bf16": True}, {"autocast": "bfloat16"}, "--bf16 and --autocast are different ways"),
        ({"quantization_config_path": "a.yaml"}, {}, "fairseq can load no checkpoint with such"),
    ],
)
def test_what_cannot_be(common: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    begin(common={"bf16": True}, autocast="none", cuda_graphs=0)
    begin(autocast="bfloat16")
    with pytest.raises(InputError, match=sentence):
        begin(common=common, **options)


@pytest.mark.parametrize("option", ["max_update", "max_epoch"])
def test_a_negative_length(option: str) -> None:
    """Such a training would end before its first update, as if all were well."""
    begin(length={option: 3})
    flag = option.replace("_", "-")
    with pytest.raises(InputError, match=f"`--{flag}` must be at least 1, or 0 for no limit, but"):
        begin(length={option: -1})


def test_updates_of_no_batches() -> None:
    begin(updates=[4, 1])
    with pytest.raises(InputError, match="`--update-freq` must be at least 1, but is 0 instead"):
        begin(updates=[4, 0])


@pytest.mark.parametrize("betas", ["0.9", "(0.9,", "(0.9, 1)", "(-0.1, 0.9)", "(0.9, 'a')", "a"])
def test_betas_that_adam_cannot_take(betas: str) -> None:
    begin(betas="[0, .5]")
    with pytest.raises(InputError, match="`--adam-betas` must be two numbers from 0 to less than"):
        begin(betas=betas)


def test_amp_without_a_gpu_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_once.cache_clear()
    for _ in range(2):
        begin(common={"amp": True})
    assert [record.getMessage() for record in caplog.records] == [
        "--amp has no effect on a CPU: the model computes in float32; drop it, or give "
        "--autocast bfloat16 instead."
    ]


@pytest.mark.parametrize("theirs", PLAIN)
def test_experts_without_auxiliary_losses_are_warned_of(
    theirs: str, caplog: pytest.LogCaptureFixture
) -> None:
    begin(experts=4)
    begin(theirs)
    assert not caplog.records
    begin(theirs, experts=4)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"--criterion {theirs} has no auxiliary losses")
