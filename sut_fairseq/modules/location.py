"""Location attention: a Gaussian over relative positions, whose mean moves (LOC 5.1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact_linear, exact_softmax

MIN_WIDTH = 0.27  # the paper's min_sigma, in words
LEAK = 0.01  # slope of the leaky clamp outside [0, 1], as in torch's leaky ReLU
BUILDING_BLOCKS = ("previous mean", "step", "one")

# Initial weights of the building blocks: the gaze moves on by one word. At whole numbers the
# staircase has hardly any gradient, so a step that starts at 0 stays there.
_FIRST_BLOCKS = (6.0, 1.0, -6.0)  # sigmoid(6) = 0.998, a step of 1, sigmoid(-6) = 0.002

# Components of attention shown to an observer: lambda and gamma, `(..., num_keys)`; numbers.
MAPS = ("location", "content")
NUMBERS = ("blocks", "centre", "spread", "location_share")

# Padding is so far away that its density is exactly 0, while the squared distance is finite.
_OUT_OF_SIGHT = 1e6


def soft_staircase(x: Tensor) -> Tensor:
    """Nearly whole numbers with a gradient: floor(x) + sigmoid(20 (x - 0.5 - floor(x)))."""
    whole = x.detach().floor()
    return whole + torch.sigmoid(20 * (x - 0.5 - whole))


def leaky_clamp(x: Tensor) -> Tensor:
    """The identity on [0, 1], with a slope of `LEAK` outside."""
    return torch.lerp(x.clamp(0, 1), x, LEAK)


class Places(NamedTuple):
    """Where the words of each source sentence lie, from 0 (the first one) to 1 (the last one).

    A single word lies at 0.

    Attributes:
        lengths: number of words n, `(..., 1)`.
        step: from one word to the next, 1 / (n - 1), `(..., 1)`; 1 for a single word.
        relative: s / (n - 1) of word s, counted from 0, `(..., num_keys)`; 0 at padding.
        seen: the same, but with padding far outside [0, 1].
    """

    lengths: Tensor
    step: Tensor
    relative: Tensor
    seen: Tensor

    @property
    def outset(self) -> Tensor:
        """Position of the gaze before the first query: one step before the first word, `(...)`."""
        return -self.step.squeeze(-1)

    @classmethod
    def of(cls, lengths: Tensor, numbers: Tensor, padding_mask: Tensor | None) -> Places:
        """Places of the words.

        Args:
            lengths: number of words, `(rows,)`, in the dtype of the result; 0 is allowed.
            numbers: number of each word in its sentence, from 0, `(rows or 1, num_keys)`.
            padding_mask: True where the key is padding, `(rows, num_keys)`; None: no padding.
        """
        lengths = lengths.unsqueeze(-1)
        step = 1 / (lengths - 1).clamp(min=1)
        relative = seen = numbers * step
        if padding_mask is not None:
            seen = relative.masked_fill(padding_mask, _OUT_OF_SIGHT)
            relative = relative.masked_fill(padding_mask, 0)
        return cls(lengths, step, relative, seen)


class Gaze(NamedTuple):
    """How each query moves its gaze.

    Attributes:
        blocks: weights rho of the `BUILDING_BLOCKS`, `(..., width, 3)`.
        spread: the Gaussian's sigma in words, n times the paper's, `(..., width)`.
    """

    blocks: Tensor
    spread: Tensor


class Weighter(nn.Module):
    """Decides how to move the gaze, from the queries so far (LOC 5.1).

    omega = GRU(ReLU(W q)); n sigma = ReLU(W_sigma omega) + min_sigma; rho = a(W_rho omega), where a
    is a sigmoid for the gates of the previous mean and of one, and the soft staircase for the step.
    The linear layers have biases.

    Args:
        query_dim: size of a query.
        hidden_dim: size of omega and of the resized query.
    """

    def __init__(self, query_dim: int, hidden_dim: int) -> None:
        super().__init__()
        check(hidden_dim >= 1, "location_hidden_size", "at least 1", hidden_dim)
        self.resize = nn.Linear(query_dim, hidden_dim)
        self.gru = nn.GRU(hidden_dim, hidden_dim, batch_first=True)
        self.blocks = nn.Linear(hidden_dim, len(BUILDING_BLOCKS))
        self.spread = nn.Linear(hidden_dim, 1)
        with torch.no_grad():
            self.blocks.bias.copy_(torch.tensor(_FIRST_BLOCKS))

    def forward(self, queries: Tensor, hidden: Tensor) -> tuple[Gaze, Tensor]:
        """Weigh the building blocks.

        Args:
            queries: one target sentence per row, in order, `(rows, width, query_dim)`.
            hidden: the GRU's state before them, `(rows, hidden_dim)`.

        Returns:
            how to move the gaze, float32 or better; the GRU's state after each query,
            `(rows, width, hidden_dim)`.
        """
        omega, _ = self.gru(self.resize(queries).relu(), hidden.unsqueeze(0))
        # In half precision, positions would miss their word.
        blocks = exact_linear(self.blocks, omega)
        spread = exact_linear(self.spread, omega).squeeze(-1)
        gate_mean, step, gate_one = blocks.unbind(-1)
        blocks = torch.stack([gate_mean.sigmoid(), soft_staircase(step), gate_one.sigmoid()], -1)
        return Gaze(blocks, spread.relu() + MIN_WIDTH), omega


class Mixing(NamedTuple):
    """Content attention, and the share of location attention (LOC 5.2).

    Attributes:
        content: gamma, `(..., width, num_keys)`.
        location_share: the paper's %, `(..., width)`.
    """

    content: Tensor
    location_share: Tensor


class Looked(NamedTuple):
    """Where queries looked.

    Attributes:
        weights: alpha, each row sums to 1, `(..., width, num_keys)`.
        location: lambda, likewise; the weights themselves unless mixed.
        centre: mu, the mean of the Gaussian, `(..., width)`.
        mean: average position of alpha, `(..., width)`.
    """

    weights: Tensor
    location: Tensor
    centre: Tensor
    mean: Tensor


def look_along(gaze: Gaze, places: Places, mean: Tensor, mixing: Mixing | None = None) -> Looked:
    """Attend to words with the queries of a sentence, one query after the other.

    mu_t = clamp(rho_t . {mean_{t-1}, 1 / (n - 1), 1}); lambda_t is the Gaussian of mu_t and sigma_t
    at the words' places, normalised to sum to 1, since attention weights are a probability mass
    function; alpha_t is lambda_t or, mixed with content attention, % lambda_t + (1 - %) gamma_t;
    mean_t is the average place under alpha_t. Only this depends on earlier queries, so the loop is
    short.

    Args:
        gaze: `(..., width, ...)`.
        places: `(..., num_keys)`.
        mean: average place before the first query, `(...)`.
        mixing: content attention to mix with; None: location alone.
    """
    by_mean = gaze.blocks[..., 0].unbind(-1)
    offset = (gaze.blocks[..., 1] * places.step + gaze.blocks[..., 2]).unbind(-1)
    sharpness = (places.lengths / (gaze.spread * 2**0.5)).unsqueeze(-1).unbind(-2)
    others = [None] * len(offset) if mixing is None else _others(mixing)
    steps = []
    for rho, rest, sharp, other in zip(by_mean, offset, sharpness, others):
        centre = leaky_clamp(torch.addcmul(rest, rho, mean))
        distance = (places.seen - centre.unsqueeze(-1)) * sharp
        location = weights = exact_softmax(-distance.square())
        if other is not None:
            weights = torch.addcmul(other[0], other[1], location)
        mean = (weights * places.relative).sum(dim=-1)
        steps.append(Looked(weights, location, centre, mean))
    return Looked(
        torch.stack([step.weights for step in steps], -2),
        torch.stack([step.location for step in steps], -2),
        torch.stack([step.centre for step in steps], -1),
        torch.stack([step.mean for step in steps], -1),
    )


def show(
    look: Look, gaze: Gaze, places: Places, looked: Looked, mixing: Mixing | None = None
) -> None:
    """Show the components of attention, `NUMBERS` and `MAPS`; centre and spread in words."""
    look("blocks", gaze.blocks)
    look("centre", looked.centre / places.step)
    look("spread", gaze.spread)
    look("location", looked.location)
    if mixing is not None:
        look("content", mixing.content)
        look("location_share", mixing.location_share)


def _others(mixing: Mixing) -> list[tuple[Tensor, Tensor] | None]:
    """For each query: (1 - %) gamma, `(..., num_keys)`, and %, `(..., 1)`."""
    share = mixing.location_share.unsqueeze(-1)
    return list(zip(((1 - share) * mixing.content).unbind(-2), share.unbind(-2)))
