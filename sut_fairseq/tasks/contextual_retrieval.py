"""The contextual retrieval task (COMP 4.1, C.1): real numbers to predict, data drawn on the fly."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

import math
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II

from sut_fairseq._process import prepare_process
from sut_fairseq.errors import InputError, check
from sut_fairseq.tasks.retrieval_sets import RetrievalSets, Rule

# fairseq knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045

# alpha of the first searches, drawn from U(-1, 1), as in the published results.
_PUBLISHED_WEIGHTS = (-0.71347752, -0.6062312, 0.66062073, -0.61213017)
_SETS = ("train", "valid", "test")


@dataclass
class ContextualRetrievalConfig(FairseqDataclass):
    """The sets of objects, and their number."""

    num_searches: int = field(default=2, metadata={"help": "searches of each object"})
    num_retrievals: int = field(
        default=4, metadata={"help": "scalars that a search can retrieve one of"}
    )
    num_objects: int = field(default=10, metadata={"help": "objects in a set"})
    search_weights: Optional[str] = field(
        default=None,
        metadata={"help": "weight of each search in the target, with commas (default: published)"},
    )
    held_out: float = field(
        default=0.2,
        metadata={
            "help": "share of the combinations of preferences that training does not show, at most "
            "half of them; 0: it shows all"
        },
    )
    sets_per_epoch: int = field(
        default=256000, metadata={"help": "training sets in an epoch; each epoch has its own"}
    )
    evaluation_sets: int = field(
        default=25600, metadata={"help": "sets in each of the validation and test sets"}
    )
    data_seed: int = field(default=1, metadata={"help": "of the validation and test sets"})
    seed: int = II("common.seed")


@register_task("contextual_retrieval", dataclass=ContextualRetrievalConfig)
class ContextualRetrievalTask(FairseqTask):
    """Objects look each other up and retrieve numbers, by the rule of `retrieval_sets`.

    There is no data folder. Training draws new sets for each epoch, seeded by `--seed`, as in the
    paper; all other sets are seeded by `--data-seed`. `valid` and `test` have the combinations of
    preferences that training shows, `valid_held_out` and `test_held_out` those that it does not,
    `valid_all` and `test_all` all of them. Models read `objects` and predict a number for each; the
    criterion is `absolute_error`.
    """

    def __init__(self, cfg: ContextualRetrievalConfig) -> None:
        super().__init__(cfg)
        for name in ("num_searches", "num_retrievals", "sets_per_epoch", "evaluation_sets"):
            check(getattr(cfg, name) >= 1, name, "at least 1", getattr(cfg, name))
        check(cfg.num_objects >= 2, "num_objects", "at least 2", cfg.num_objects)
        self.rule = Rule(cfg.num_retrievals, _weights(cfg.search_weights, cfg.num_searches))
        shown, held_out = self.rule.combinations(cfg.held_out)
        self.combinations = {
            "": shown,
            "_held_out": held_out,
            "_all": torch.cat([shown, held_out]),
        }

    @classmethod
    def setup_task(cls, cfg: ContextualRetrievalConfig, **kwargs: Any) -> "ContextualRetrievalTask":
        """Make the task.

        Raises:
            InputError: if an option has a value that is not allowed.
        """
        prepare_process()
        return cls(cfg)

    @property
    def num_features(self) -> int:
        """Number of features that a model reads for each object."""
        return self.rule.num_features

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Make the sets of a split.

        Raises:
            InputError: if there is no such split.
        """
        cfg, combinations = self.cfg, self._combinations(split)
        if split == "train":
            num_sets, seed = cfg.sets_per_epoch, f"{cfg.seed} {{epoch}}"
        else:
            num_sets, seed = cfg.evaluation_sets, f"{cfg.data_seed} {split}"
        self.datasets[split] = RetrievalSets(
            self.rule, combinations, seed, num_sets=num_sets, num_objects=cfg.num_objects
        )

    def _combinations(self, split: str) -> torch.Tensor:
        there = {
            name + ending: combinations
            for name in _SETS
            for ending, combinations in self.combinations.items()
            if len(combinations) and not (name == "train" and ending)
        }
        if split not in there:
            raise InputError(f"there is no set `{split}`; there are {', '.join(there)}.")
        return there[split]

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion.

        Raises:
            InputError: for any criterion but `absolute_error`.
        """
        name = getattr(cfg, "_name", None)
        if name != "absolute_error":
            raise InputError(
                f"--task contextual_retrieval needs --criterion absolute_error, not {name}."
            )
        return super().build_criterion(cfg, from_checkpoint)

    @property
    def source_dictionary(self) -> None:
        """There are no words."""

    @property
    def target_dictionary(self) -> None:
        """There are no words."""


def _weights(given: Optional[str], num_searches: int) -> tuple[float, ...]:
    if given is None:
        most = len(_PUBLISHED_WEIGHTS)
        requirement = f"at most {most} unless `search_weights` are given"
        check(num_searches <= most, "num_searches", requirement, num_searches)
        return _PUBLISHED_WEIGHTS[:num_searches]
    try:
        weights = tuple(float(number) for number in given.split(","))
    except ValueError:
        weights = ()
    requirement = f"a number for each of the {num_searches} searches, with commas between them"
    fits = len(weights) == num_searches and all(map(math.isfinite, weights))
    check(fits, "search_weights", requirement, given)
    return weights
