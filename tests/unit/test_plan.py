"""What `sut-benchmark plan` computes, against what was measured and what can be counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from fairseq.optim.adam import Adam
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from sut_fairseq.analysis.benchmark.peak import peak_bytes
from sut_fairseq.analysis.benchmark.peers import own_criterion, own_model
from sut_fairseq.analysis.benchmark.steps import Step, sample_of, training_step
from sut_fairseq.analysis.benchmark.timing import Conditions
from sut_fairseq.analysis.plan.memory import (
    Batch,
    Memory,
    memory_of,
    parameters,
    parameters_of_experts,
)
from sut_fairseq.analysis.plan.run import Machines, Training, plan
from sut_fairseq.analysis.plan.speed import MEASURED, POINTS, Point, Speed, fit, from_report
from sut_fairseq.analysis.plan.traffic import exchanged, exchanged_bytes, ring_bytes
from sut_fairseq.analysis.untrained import random_batch
from sut_fairseq.errors import InputError
from tests.models import batch, small_model
from tests.workers import Pair

VOCAB = 200
DEPTH = ("--encoder-layers", "2", "--decoder-layers", "2")
FLAGS = (*DEPTH, "--token-layout", "masked", "--expert-backend", "grouped")
BATCH = Batch(sentences=4, src_len=9, tgt_len=7)
SPEED = Speed(0.01, 1e12, "made up")


@pytest.mark.parametrize("name, error", [("cpu", 0.1), ("h100", 0.35)])
def test_the_constants_say_what_was_measured(name: str, error: float) -> None:
    """On the H100 a step took the longer the fewer sentences it had: no two constants say that."""
    for point in POINTS[name]:
        predicted = MEASURED[name].seconds(point.steps, point.macs)
        assert predicted == pytest.approx(point.seconds, rel=error)


def test_a_fit_finds_the_constants_behind_exact_times() -> None:
    points = [Point(s, m, SPEED.seconds(s, m)) for s, m in ((12, 1e11), (12, 4e11), (24, 4e11))]
    found = fit(points, "")
    assert found.seconds_per_step == pytest.approx(0.01)
    assert found.macs_per_second == pytest.approx(1e12)
    assert fit(points, "", macs_per_second=1e12).seconds_per_step == pytest.approx(0.01)


def test_what_one_batch_size_cannot_tell_apart_is_arithmetic() -> None:
    found = fit([Point(12, 1e12, 2.0), Point(12, 1e12, 2.0)], "")
    assert (found.seconds_per_step, found.macs_per_second) == (0, pytest.approx(5e11))
    fewer_is_slower = fit([Point(12, 1e12, 2.0), Point(12, 2e12, 1.0)], "")
    assert fewer_is_slower.seconds_per_step == 0 and fewer_is_slower.macs_per_second > 0


def test_constants_from_a_report() -> None:
    """The numbers of docs/benchmarks.md, as the command would print them."""
    seconds = {
        "sut_base": 2.29187,
        "tokens_1x": 2.28223,
        "tokens_2x": 4.31718,
        "tokens_4x": 7.86912,
    }
    document: dict[str, Any] = {
        "settings": {"arch": "sut_base", "sentences": 16, "scaling_sentences": 16},
        "variants": {name: {"median": value} for name, value in seconds.items()},
    }
    document["variants"]["sut_base"]["macs"] = 16 * 7.386e9
    found = from_report(document, 12, "report.json")
    assert found.seconds(12, 64 * 7.386e9) == pytest.approx(7.86912, rel=0.05)
    damaged = [
        {**document, "variants": {**document["variants"], "tokens_2x": {"median": value}}}
        for value in (None, 0.0, "fast")
    ]
    empty = ({}, {"settings": {}, "variants": {}}, [], {**document, "variants": None})
    for broken in (*empty, *damaged):
        with pytest.raises(InputError, match="report.json` is not what `sut-benchmark train --js"):
            from_report(broken, 12, "report.json")  # type: ignore[arg-type]


def step_on_cpu(*flags: str) -> Step:
    torch.manual_seed(1)
    model, task = own_model("sut_tiny", VOCAB, (*FLAGS, *flags))
    lengths = dict(src_len=BATCH.src_len, tgt_len=BATCH.tgt_len)
    inputs = random_batch(model, task, **lengths, sentences=BATCH.sentences)
    cpu = torch.device("cpu")
    conditions = Conditions(cpu, torch.float32, repetitions=1, seed=1)
    return training_step(
        model,
        own_criterion(task),
        sample_of(inputs, cpu),
        conditions,
        checkpoint_activations="--checkpoint-activations" in flags,
    )


@cache
def memory(*flags: str, workers: int = 1, dtype: torch.dtype = torch.float32) -> Memory:
    return memory_of("sut_tiny", VOCAB, (*DEPTH, *flags), BATCH, dtype=dtype, workers=workers)


@pytest.mark.parametrize("flags", [(), ("--checkpoint-activations",)])
def test_memory_is_what_a_real_step_takes(flags: tuple[str, ...]) -> None:
    """All that is alive in a step with values, against the same without."""
    step = step_on_cpu(*flags)
    measured = peak_bytes(step, Conditions(torch.device("cpu"), torch.float32, 1, 1))
    found = memory(*flags)
    counted = found.parameters + found.gradients + found.activations
    assert counted == pytest.approx(measured, rel=0.01)
    assert found.gradients == 4 * sum(p.numel() for p in step.module.parameters())


@pytest.mark.slow
def test_each_step_of_depth_adds_its_activations() -> None:
    few, many = memory(), memory("--encoder-layers", "3", "--decoder-layers", "4")
    added = many.activations - few.activations
    assert added == pytest.approx(3 * few.activations_of_a_step, rel=0.1)
    recomputed = memory("--checkpoint-activations")
    assert recomputed.activations_of_a_step < 0.4 * few.activations_of_a_step
    assert memory(dtype=torch.bfloat16).activations < 0.8 * few.activations


def test_the_optimizers_part() -> None:
    step = step_on_cpu()
    step()
    adam = Adam(step.module.parameters(), lr=0.001)
    adam.step()
    state = [value for one in adam.state.values() for value in one.values()]
    held = sum(value.nbytes for value in state if isinstance(value, Tensor))
    assert memory().optimizer == held


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as workers:
        yield workers


def bytes_added_up(rank: int, workers: int) -> int:
    """What torch's wrapper hands to its all-reduce in one step."""
    torch.manual_seed(1)
    model = small_model(dtype=torch.float32).train()
    seen = []

    def reduce(state, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations
        seen.append(bucket.buffer().nbytes)
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, reduce)
    wrapped(**batch())[0].sum().backward()
    return sum(seen)


def test_gradients_that_are_added_up(pair: Pair) -> None:
    assert pair(bytes_added_up) == [4 * parameters(small_model())] * 2
    assert memory().buckets == 0


def test_a_ring_sends_nearly_twice_the_gradients() -> None:
    assert [ring_bytes(8, workers) for workers in (1, 2, 4)] == [0, 8, 12]


def test_what_experts_on_other_gpus_would_exchange() -> None:
    """Counted by hand for sut_tiny: 2 of 4 experts of 4 heads of 16, states of 128, 3 steps."""
    model, _ = own_model("sut_tiny", VOCAB)
    attention = 2 * ((128 + 64) + (64 + 128))
    feed_forward = 2 * (128 + 128)
    source = 3 * (attention + feed_forward)
    assert exchanged(model) == {"encoder": source, "decoder": 3 * (2 * attention + feed_forward)}
    tokens = {"encoder": 10, "decoder": 0}
    assert exchanged_bytes(model, tokens, 4, workers=2) == 2 * 10 * source * 4 / 2
    own = 4 * (128 * 64 + 64 * 128)
    hidden = 4 * (128 * 128 + 128 + 128 * 128 + 128)
    assert parameters_of_experts(model) == 3 * own + 2 * hidden
    dense, _ = own_model("ut_tiny", VOCAB)
    assert exchanged(dense) == {"encoder": 0, "decoder": 0} and parameters_of_experts(dense) == 0


@pytest.fixture
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory takes seconds and does not matter to the rest."""
    made_up = Memory(*[1000 * number for number in range(7)])
    monkeypatch.setattr("sut_fairseq.analysis.plan.run.memory_of", lambda *_, **__: made_up)


def training(**changes: Any) -> Training:
    settings: dict[str, Any] = dict(
        arch="sut_tiny",
        vocab_size=VOCAB,
        flags=(),
        tokens=1e6,
        max_tokens=100,
        src_len=9,
        tgt_len=7,
        update_freq=2,
        dtype=torch.float32,
    )
    return Training(**{**settings, **changes})


def machines(gpus: int, number: int = 1, **changes: float) -> Machines:
    return Machines(gpus, number, **{"memory": 80e9, "link": 4e9, "network": 1e9, **changes})


@pytest.mark.usefixtures("without_memory")
def test_a_plan_adds_up() -> None:
    alone, many = (plan(training(), machines(gpus, n), SPEED) for gpus, n in ((1, 1), (8, 2)))
    sentences = 100 // 9
    assert alone["update"]["tokens"] == 2 * sentences * 7
    assert many["update"]["tokens"] == 8 * alone["update"]["tokens"]
    batch = SPEED.seconds(6, alone["model"]["macs_of_batch"])
    for found in (alone, many):
        assert found["update"]["seconds_computing"] == pytest.approx(2 * batch)
    assert alone["update"]["seconds_adding_up"] == 0 and alone["expert_parallelism"] is None
    # The ring leaves each machine: the narrower of the two rates.
    gradients = many["update"]["gradients"]
    assert many["update"]["seconds_adding_up"] == pytest.approx(2 * 7 / 8 * gradients / 1e9)
    for found, gpus in ((alone, 1), (many, 8)):
        run, update = found["run"], found["update"]
        assert run["updates"] == -(-1_000_000 // update["tokens"])
        assert run["hours"] == pytest.approx(run["updates"] * update["seconds"] / 3600)
        assert run["gpu_hours"] == pytest.approx(gpus * run["hours"])
        assert run["tokens_per_second"] == pytest.approx(update["tokens"] / update["seconds"])


RECOMPUTED = ("--checkpoint-activations",)


@pytest.mark.usefixtures("without_memory")
@pytest.mark.parametrize("flags", [(), RECOMPUTED])
def test_the_arithmetic_is_that_of_a_real_step(flags: tuple[str, ...]) -> None:
    """Products as torch counts them: of both passes, and of what is computed again."""
    step = step_on_cpu(*flags, "--token-layout", "compact", "--expert-backend", "loop")
    with FlopCounterMode(display=False) as counted:
        step()
    size = dict(max_tokens=BATCH.sentences * BATCH.src_len, flags=(*DEPTH, *flags))
    found = plan(training(**size), machines(1), SPEED)["model"]["macs_of_batch"]
    assert found == pytest.approx(counted.get_total_flops() / 2, rel=0.05)


@pytest.mark.usefixtures("without_memory")
@pytest.mark.parametrize(
    ("speed", "times"), [(Speed(0.01, 1e20, ""), 1.9), (Speed(0.0, 1e9, ""), 1.31)]
)
def test_what_is_computed_again_takes_time(speed: Speed, times: float) -> None:
    """Whether steps are what takes time or arithmetic."""
    once, again = (plan(training(flags=f), machines(1), speed) for f in ((), RECOMPUTED))
    longer = again["update"]["seconds_computing"] / once["update"]["seconds_computing"]
    assert longer == pytest.approx(times, abs=0.01)
    assert once["run"]["hours"] * longer == pytest.approx(again["run"]["hours"])


@pytest.mark.usefixtures("without_memory")
def test_when_experts_on_other_gpus_would_send_less() -> None:
    """At the number of experts that the plan names, and not much before."""
    few = dict(max_tokens=180)
    found = plan(training(**few), machines(8), SPEED)["expert_parallelism"]
    pays_from = found["experts_for_less_traffic"]
    assert 4 < pays_from < 100
    for number, less in ((pays_from + 1, True), (pays_from // 2, False)):
        flags = ("--attention-experts", str(number), "--ffn-experts", str(number))
        found = plan(training(**few, flags=flags), machines(8), SPEED)["expert_parallelism"]
        assert found["experts"] == [number]
        assert (found["sent_by_each_gpu"] < found["gradients_saved"]) == less
        assert found["experts_for_less_traffic"] == pays_from
    # Tokens travel to as many experts as before, wherever there are more to choose from.
    found = plan(training(**few, flags=("--ffn-experts", "9")), machines(8), SPEED)
    assert found["expert_parallelism"]["experts"] == [4, 9]
    assert found["expert_parallelism"]["experts_for_less_traffic"] == pays_from


@pytest.mark.usefixtures("without_memory")
def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="`--gpus` must be a multiple of --machines"):
        machines(9, 2)
    with pytest.raises(InputError, match="--max-tokens 8 holds no sentence of --src-len 9 and"):
        plan(training(max_tokens=8), machines(1), SPEED)
    for memory, fits in ((1e6, True), (1e4, False)):
        tight = Machines(1, 1, memory=memory, link=1, network=1)
        assert plan(training(), tight, SPEED)["memory"]["fits"] == fits
