"""The encoder's forward pass when halting skips a given share of all (token, step) pairs.

With --path: the passes of a trained model at several thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.benchmark.peers import own_model
from sut_fairseq.analysis.benchmark.report import NO_PATH, Report, size
from sut_fairseq.analysis.benchmark.timing import Conditions, Ratio, Timings, measure
from sut_fairseq.analysis.complexity import count, without_padding
from sut_fairseq.analysis.depth import (
    check_thresholds,
    count_depth,
    set_threshold,
    skipped,
    stacks,
    units_with_threshold,
)
from sut_fairseq.errors import check
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting, StickBreakingState
from sut_fairseq.modules.stack import StackOutput

REPETITIONS = 10


@dataclass(frozen=True)
class Sizes:
    """The encoder of an untrained model, or a trained model and its data."""

    arch: str = size("sut_base", "architecture whose encoder's depth loop is run")
    sentences: int = size(64, "sentences")
    length: int = size(32, "tokens of each sentence")
    shares: tuple[float, ...] = size((0.5, 0.8), "shares of all (token, step) pairs to skip")
    path: str | None = size(None, "a trained model: run all of it on real sentence pairs instead")
    data: str | None = size(None, "binarised folder with them, for --path")
    gen_subset: str = size("test", "which of them, for --path")
    max_sentences: int | None = size(None, "only the first N, for --path (default: all)", int)
    thresholds: tuple[float, ...] = size(
        (0.999, 0.9, 0.7, 0.5, 0.3), "halting thresholds, for --path"
    )


class ScheduledHalting(StickBreakingHalting):
    """Halts each token after a given number of steps, whatever the unit predicts.

    The work stays the same, because the unit still predicts. Unlike any module of a model, this one
    keeps something between calls: how many steps the listed tokens have left. Every forward pass of
    the depth loop starts afresh.

    Args:
        unit: the unit that predicts.
        depths: numbers of steps, at least 1, of the tokens in row-major order, `(num_tokens,)`.
    """

    def __init__(self, unit: StickBreakingHalting, depths: Tensor) -> None:
        super().__init__(unit.input.in_features, alpha_threshold=1.0, dropout=unit.dropout.p)
        self.load_state_dict(unit.state_dict())
        self.to(unit.input.weight.device)
        self.depths = depths
        self._left = depths

    def start(self, hidden: Tensor) -> StickBreakingState:
        self._left = self.depths
        return super().start(hidden)

    def halted(self, state: StickBreakingState) -> Tensor:
        if len(self._left) != len(state.log_remaining):
            # The depth loop has dropped those that halted the last time.
            self._left = self._left[self._left > 0]
        self._left = self._left - 1
        return self._left <= 0


def depths(num_tokens: int, num_steps: int, share: float, generator: torch.Generator) -> Tensor:
    """Numbers of steps for each token that skip a given share of all (token, step) pairs.

    Depths are uniform over the widest range that has the right mean and begins at 1 or ends at
    `num_steps`: for half of 6 steps from 1 to 5.

    Args:
        num_tokens: how many depths.
        num_steps: greatest depth.
        share: what to skip; of more than 1 - 1 / num_steps that, since every token runs one step.
        generator: decides which token gets which depth.

    Returns:
        `(num_tokens,)`, int64, whose sum is exact up to rounding.
    """
    total = max(num_tokens, round(num_tokens * num_steps * (1 - share)))
    mean = total / num_tokens
    if 2 * mean <= num_steps + 1:
        low, high = 1.0, 2 * mean - 1
    else:
        low, high = 2 * mean - num_steps, float(num_steps)
    spread = (torch.arange(num_tokens, dtype=torch.float64) + 0.5) / num_tokens
    result = (low - 0.5 + (high - low + 1) * spread).round().long().clamp(1, num_steps)
    result = result[torch.randperm(num_tokens, generator=generator)]
    while missing := total - int(result.sum()):
        change = 1 if missing > 0 else -1
        movable = ((result + change >= 1) & (result + change <= num_steps)).nonzero().squeeze(1)
        result[movable[: abs(missing)]] += change
    return result


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure forward passes in evaluation mode.

    Raises:
        InputError: for an architecture or a model without halting, for shares that cannot be
            skipped, or for thresholds outside (0, 1].
    """
    report = Report("halting", sizes, conditions)
    torch.manual_seed(conditions.seed)
    with torch.no_grad():
        if sizes.path is None:
            _untrained(report, sizes)
        else:
            _trained(report, sizes)
    return report


def _untrained(report: Report, sizes: Sizes) -> None:
    conditions = report.conditions
    report.leave_out("path", "data", "gen_subset", "max_sentences", "thresholds", reason=NO_PATH)
    model, task = own_model(sizes.arch, vocab_size=100)
    stack = model.encoder.stack
    unit = stack.halting
    kind = "an architecture whose encoder halts by stick-breaking"
    check(isinstance(unit, StickBreakingHalting), "--arch", kind, sizes.arch)
    most = 1 - 1 / stack.num_steps
    shares = sizes.shares
    if shares == Sizes().shares:  # drop defaults that few steps do not allow
        shares = tuple(share for share in shares if share <= most) or (most,)
        report.settings["shares"] = shares
    for share in shares:
        requirement = f"greater than 0, at most {most:.3f} (each token runs a step)"
        check(0 < share <= most + 1e-6, "--shares", requirement, share)
    model = model.to(conditions.device).eval()
    grid = (sizes.sentences, sizes.length)
    states = torch.randn(*grid, model.encoder.embedding.tokens.embedding_dim)
    states = states.to(conditions.device)
    padding_mask = torch.zeros(grid, dtype=torch.bool, device=conditions.device)
    generator = torch.Generator().manual_seed(conditions.seed)
    variants: dict[str, Callable[[], object]] = {}
    achieved = {}
    for share in (0.0, *shares):
        plan = depths(states[..., 0].numel(), stack.num_steps, share, generator)
        scheduled = ScheduledHalting(unit, plan.to(conditions.device)).eval()

        def forward(scheduled: ScheduledHalting = scheduled) -> StackOutput:
            stack.halting = scheduled
            with conditions.autocast():
                return stack(states, padding_mask)

        name = f"share_{share:g}"
        statistics = forward().halting
        assert statistics is not None
        achieved[name] = skipped([statistics])
        variants[name] = forward
    timings = measure(variants, conditions, description="halting")
    report.add_times(timings, tokens=dict.fromkeys(variants, padding_mask.numel()))
    _compare(report, timings, "share_0", achieved)


def _trained(report: Report, sizes: Sizes) -> None:
    conditions = report.conditions
    names = ("arch", "sentences", "length", "shares")
    report.leave_out(*names, reason="--path and --data have sizes of their own")
    check_thresholds("--thresholds", sizes.thresholds)
    model, task = trained.load(str(sizes.path), {"data": sizes.data})
    pairs = trained.sentence_pairs(task, sizes.gen_subset, sizes.max_sentences)
    counted = list(without_padding(pairs, task.target_dictionary.eos()))
    batches = [
        {name: tensor.to(conditions.device) for name, tensor in batch["net_input"].items()}
        for batch in trained.batches(task, sizes.gen_subset, sizes.max_sentences)
    ]
    halting = [stack.halting for stack in stacks(model).values() if stack.halting.halts]
    by_threshold = halting and len(halting) == len(units_with_threshold(model))
    check(bool(by_threshold), "--path", "a model that halts by stick-breaking only", sizes.path)
    variants: dict[str, Callable[[], object]] = {}
    achieved, macs = {}, {}
    for threshold in (math.inf, *sizes.thresholds):

        def forward(threshold: float = threshold) -> None:
            set_threshold(model, threshold)
            with conditions.autocast():
                for batch in batches:
                    model(**batch)

        name = f"threshold_{threshold:g}"
        set_threshold(model, threshold)
        macs[name] = count(model.cpu(), counted).macs_full
        model.to(conditions.device).eval()
        with count_depth(model) as statistics:
            forward()
        achieved[name] = skipped(statistics.values())
        variants[name] = forward
    timings = measure(variants, conditions, description="halting")
    tokens = sum(len(target) for _, target in pairs)
    report.add_times(timings, macs=macs, tokens=dict.fromkeys(variants, tokens))
    _compare(report, timings, "threshold_inf", achieved)
    for name, own in macs.items():
        spared = 1 - own / macs["threshold_inf"]
        if spared > 0:
            report.add_ratio(
                f"saved_per_macs_{name}",
                _saved(timings.ratio(name, "threshold_inf"), spared),
                f"share of the time that is saved / share of the MACs, {100 * spared:.1f} %",
            )


def _compare(
    report: Report, timings: Timings, reference: str, achieved: Mapping[str, float]
) -> None:
    """Add what each variant skips, and its time relative to the one that skips nothing."""
    for name, share in achieved.items():
        report.variant(name)["skipped"] = share
        if name == reference:
            continue
        shown = name.removeprefix("share_")
        time = timings.ratio(name, reference)
        report.add_ratio(
            f"time_at_{shown}",
            time,
            f"time with {100 * share:.1f} % of all (token, step) pairs skipped / with none skipped",
        )
        if share > 0:
            report.add_ratio(
                f"saved_per_skipped_{shown}",
                _saved(time, share),
                "share of the time that is saved / share of the (token, step) pairs skipped",
            )


def _saved(time: Ratio, share: float) -> Ratio:
    """Time saved relative to the share left out, from the time relative to that of all work."""
    return Ratio(*((1 - one) / share for one in (time.median, time.greatest, time.least)))
