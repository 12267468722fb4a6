"""Whether the papers' numbers are reached: the first table of the results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sut_fairseq.experiments.commands import words as option_words
from sut_fairseq.experiments.evaluating import usual_column
from sut_fairseq.experiments.published import ALL, is_usual
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.results import Group, Row, mean_of
from sut_fairseq.experiments.schema import Claim, Experiment, less_is_better


class Verdict(Enum):
    """The outcome of a claim; the value is the text that readers see."""

    AT_SIZE = "🟢 met at the paper's size"
    REDUCED = "🟡 met at a reduced size"
    NOT_MET = "🔴 not met"
    NOT_RUN = "⚪ no run on record"


@dataclass(frozen=True)
class Found:
    """A claim with the runs that are the best evidence for it.

    Attributes:
        experiment: of the claim.
        claim: what is claimed.
        groups: runs that differ in nothing but the seed, for each split of the claim; empty if
            there are none.
        row: their results, the mean over the splits.
    """

    experiment: Experiment
    claim: Claim
    groups: Sequence[Group] = ()
    row: Row | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the mean over seeds reaches the bar, and at which size."""
        if self.row is None:
            return Verdict.NOT_RUN
        less = less_is_better(self.claim.measure)
        met = self.row.mean <= self.claim.bar if less else self.row.mean >= self.claim.bar
        if not met:
            return Verdict.NOT_MET
        record = self.groups[0].first
        at_size = record.size == "paper" and not (record.own_length or record.options)
        return Verdict.AT_SIZE if at_size else Verdict.REDUCED


def check_claims(experiments: Sequence[Experiment], groups: Sequence[Group]) -> list[Found]:
    """Every claim of these experiments, with the finished runs that say most about it.

    Runs at the paper's size are preferred to all others, then several seeds to one, then trainings
    on more tokens or sentences. The result decides only between runs of the same length.
    """
    groups = [done for group in groups if (done := group.finished())]
    found = []
    for experiment in experiments:
        for claim in experiment.claims:
            fitting = list(_fitting(experiment, claim, groups))
            best = max(fitting, key=lambda one: rank(one[0][0].first, one[1]), default=None)
            found.append(Found(experiment, claim, *(best or ())))
    return found


def _fitting(
    experiment: Experiment, claim: Claim, groups: Sequence[Group]
) -> Iterator[tuple[list[Group], Row]]:
    """Runs of every split of the claim that differ only in split and seed."""
    alike: defaultdict[object, dict[str, tuple[Group, Row]]] = defaultdict(dict)
    for finished in groups:
        found = _row(experiment, claim, finished)
        if found is None:
            continue
        group, row = found
        record = group.first
        if not claim.splits:
            yield [group], row
            continue
        lengths = record.updates, *record.planned_before
        of_split = alike[record.size, lengths, tuple(option_words(record.options))]
        known = of_split.get(record.data.split)
        if known is None or rank(record, row) > rank(known[0].first, known[1]):
            of_split[record.data.split] = group, row
    for of_split in alike.values():
        if all(split in of_split for split in claim.splits):
            chosen = [of_split[split] for split in claim.splits]
            # Only seeds that all splits have are counted.
            for row in mean_of([[row] for _, row in chosen]):
                yield [group for group, _ in chosen], row


def _row(experiment: Experiment, claim: Claim, group: Group) -> tuple[Group, Row] | None:
    """The evaluated runs of a group and their result for a claim; None if there is none."""
    record, data = group.first, group.first.data
    # Compare files: a user's experiment may have the name of one of ours.
    if (group.experiment.path, record.model) != (experiment.path, claim.model) or record.without:
        return None
    if not is_usual(experiment, data):
        return None
    if claim.splits and data.split not in claim.splits:
        return None
    steps = claim.steps if record.size == "paper" else None
    for one in group.evaluations():
        asked = one.asked
        if asked.steps != steps or not replace(asked, steps=None).plain:
            continue
        if asked.subset != experiment.evaluation.subset:
            continue
        if claim.measure not in one.measures():
            continue
        # Another column may have a group of that name, too.
        if claim.group != ALL and asked.by != usual_column(experiment):
            continue
        rows = {row.group: row for row in one.rows_of(claim.measure)}
        if claim.group in rows:
            return one.group, rows[claim.group]
    return None


def rank(record: Record, row: Row) -> tuple[bool, bool, int, float]:
    """What sorts runs by how much they say about a model, the least first.

    Args:
        record: of one of them.
        row: their result.
    """
    sign = -1 if less_is_better(row.measure) else 1
    return record.size == "paper", len(row.results) > 1, record.amount or 0, sign * row.mean
