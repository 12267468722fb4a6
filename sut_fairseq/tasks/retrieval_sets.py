"""Sets of objects that look each other up: the data of the contextual retrieval task (COMP 4.1).

Object i has S search scalars z, R retrieval scalars z~, all normal with variance 1, and for each
search s a preference r_is among the R. Its target is y_i = sum_s alpha_s z~_js[r_is], where j_s is
the other object whose s-th search scalar is closest to its own.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy
import torch
import torch.nn.functional as F
from fairseq.data import FairseqDataset
from torch import Tensor

from sut_fairseq.errors import check


class Sets(NamedTuple):
    """Many sets of objects.

    Attributes:
        scalars: z and z~ of each object, `(num_sets, num_objects, S + R)`.
        preferences: r of each object, from 0, `(num_sets, num_objects, S)`.
    """

    scalars: Tensor
    preferences: Tensor

    def select(self, chosen: list[int]) -> Sets:
        """The sets with these numbers."""
        return Sets(self.scalars[chosen], self.preferences[chosen])


@dataclass(frozen=True)
class Rule:
    """How objects search and retrieve.

    Attributes:
        num_retrievals: R.
        weights: alpha of each of the S searches.
    """

    num_retrievals: int
    weights: tuple[float, ...]

    @property
    def num_searches(self) -> int:
        """S."""
        return len(self.weights)

    @property
    def num_features(self) -> int:
        """Number of features of an object: its scalars, and its preferences as one-hot vectors."""
        return self.num_searches + self.num_retrievals + self.num_searches * self.num_retrievals

    def combinations(self, held_out: float) -> tuple[Tensor, Tensor]:
        """Combinations of preferences that training shows, and those that it does not.

        They are numbered in base R, the first search's preference in front. The last of those with
        odd numbers are held out, as in Table 5 of the paper: (2, 1), (2, 3), (3, 1), (3, 3).

        Args:
            held_out: share of all combinations, rounded up, that training does not show.

        Returns:
            two tensors, `(num_combinations, S)`.

        Raises:
            InputError: if that is more than the combinations with odd numbers.
        """
        check(0 <= held_out <= 0.5, "held_out", "at least 0 and at most 0.5", held_out)
        all_ = torch.tensor(list(product(range(self.num_retrievals), repeat=self.num_searches)))
        odd = torch.arange(1, len(all_), 2)
        count = math.ceil(round(len(all_) * held_out, 9))  # 100 * 0.07 is 7.000000000000001
        requirement = f"a share of at most {len(odd)} of the {len(all_)} combinations"
        check(count <= len(odd), "held_out", requirement, held_out)
        hidden = torch.zeros(len(all_), dtype=torch.bool)
        hidden[odd[len(odd) - count :]] = True
        return all_[~hidden], all_[hidden]

    def draw(
        self, num_sets: int, num_objects: int, combinations: Tensor, generator: torch.Generator
    ) -> Sets:
        """Draw sets whose objects' preferences are among these combinations, all equally likely."""
        size = (num_sets, num_objects, self.num_searches + self.num_retrievals)
        scalars = torch.randn(size, generator=generator)
        chosen = torch.randint(len(combinations), size[:2], generator=generator)
        return Sets(scalars, combinations[chosen])

    def features(self, sets: Sets) -> Tensor:
        """What a model reads of each object, `(num_sets, num_objects, num_features)`."""
        one_hot = F.one_hot(sets.preferences, self.num_retrievals).to(sets.scalars.dtype)
        return torch.cat([sets.scalars, one_hot.flatten(-2)], dim=-1)

    def winners(self, sets: Sets) -> Tensor:
        """Which object each one finds, j_s, from 0, `(num_sets, num_objects, S)` (COMP Eq. 17)."""
        search = sets.scalars[..., : self.num_searches].transpose(1, 2).contiguous()
        distances = (search.unsqueeze(3) - search.unsqueeze(2)).abs()
        distances.diagonal(dim1=2, dim2=3).fill_(torch.inf)  # the *other* object
        return distances.argmin(dim=3).transpose(1, 2)

    def targets(self, sets: Sets) -> Tensor:
        """The target y of each object, `(num_sets, num_objects)` (COMP Eq. 15, 18)."""
        retrieve = sets.scalars[..., self.num_searches :]
        wanted = self.winners(sets) * self.num_retrievals + sets.preferences
        found = retrieve.flatten(1).gather(1, wanted.flatten(1)).view(wanted.shape)
        return found @ found.new_tensor(self.weights)


class RetrievalSets(FairseqDataset):
    """Batches of sets; those of an epoch are drawn when the first of them is needed.

    Args:
        rule: draws them, and computes their features and targets.
        combinations: of preferences that their objects may have, `(num_combinations, S)`.
        seed: any text, with `{epoch}` in it if each epoch is to have other sets.
        num_sets: how many there are in each epoch.
        num_objects: in each set; what fairseq counts as tokens.
    """

    def __init__(
        self, rule: Rule, combinations: Tensor, seed: str, *, num_sets: int, num_objects: int
    ) -> None:
        self.rule = rule
        self._combinations = combinations
        self._seed = seed
        self._num_sets = num_sets
        self._num_objects = num_objects
        self._epoch = 1
        self._sets: Sets | None = None

    @property
    def sets(self) -> Sets:
        """The sets of the epoch."""
        if self._sets is None:
            number = zlib.crc32(self._seed.format(epoch=self._epoch).encode())
            self._sets = self.rule.draw(
                self._num_sets,
                self._num_objects,
                self._combinations,
                torch.Generator().manual_seed(number),
            )
        return self._sets

    def set_epoch(self, epoch: int) -> None:
        """Switch to another epoch, which has its own sets."""
        if epoch != self._epoch:
            self._epoch, self._sets = epoch, None

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """No: data workers have a copy of the sets, and `set_epoch` does not reach them.

        fairseq keeps the workers of an iterator that it reuses. A new one has workers of its own,
        which start with the sets of its epoch.
        """
        return False

    def __len__(self) -> int:
        return self._num_sets

    def __getitem__(self, index: int) -> int:
        return index  # `collater` looks up a batch of sets at once

    def collater(self, samples: list[int]) -> dict[str, Any]:
        """A batch: "objects" to read and "target"; empty if there are no samples.

        fairseq passes none for a worker that has no batch left, and recognises the empty batch.
        """
        if not samples:
            return {}
        chosen = self.sets.select(samples)
        target = self.rule.targets(chosen)
        return {
            "id": torch.tensor(samples),
            "nsentences": len(samples),
            "ntokens": target.numel(),
            "net_input": {"objects": self.rule.features(chosen)},
            # fairseq rounds each float32 tensor of a batch under --fp16 and --bf16: a float64 one
            # stays exact.
            "target": target.double(),
        }

    def num_tokens(self, index: int) -> int:
        return self._num_objects

    def num_tokens_vec(self, indices: Any) -> Any:
        return numpy.full(len(indices), self._num_objects)

    def size(self, index: int) -> int:
        return self._num_objects
