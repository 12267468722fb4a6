"""MACs of a model, derived from the equations and the published sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """A model in the paper's notation (SUT Table 6); `experts` 1 means dense, without a router."""

    embed_dim: int
    heads: int
    head_dim: int
    hidden: int
    steps: int = 6
    experts: tuple[int, int] = (1, 1)  # of attention and feed-forward
    top_k: tuple[int, int] = (1, 1)
    window: int | None = 64
    halting: bool = True
    pre_norm: bool = False

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


SUT_BASE = Sizes(512, 4, 64, 512, experts=(24, 24), top_k=(4, 4))
UT_BASE = Sizes(960, 15, 64, 3840)
CFQ_T5 = Sizes(512, 8, 64, 1024, steps=8, window=None, halting=False, pre_norm=True)


@dataclass(frozen=True)
class Formula:
    """MACs of one sentence pair, derived from the equations.

    Attributes:
        sizes: the model.
        source, target: for each step, how many tokens it runs for; without halting all tokens.
        vocabulary: number of target words.
    """

    sizes: Sizes
    source: list[int]
    target: list[int]
    vocabulary: int

    @classmethod
    def without_halting(cls, sizes: Sizes, n: int, m: int, vocabulary: int) -> Formula:
        return cls(sizes, [n] * sizes.steps, [m] * sizes.steps, vocabulary)

    def router(self, experts: int) -> int:
        d = self.sizes.embed_dim
        return 0 if experts == 1 else d * d + d + d * experts

    def queries_and_output(self) -> int:
        """Attention for one token at one step, without keys, values and products."""
        (experts, _), (k, _), s = self.sizes.experts, self.sizes.top_k, self.sizes
        return self.router(experts) + k * 2 * s.embed_dim * s.inner

    def feed_forward(self) -> int:
        (_, experts), (_, k), s = self.sizes.experts, self.sizes.top_k, self.sizes
        one = s.embed_dim * s.hidden + s.hidden + s.hidden * s.embed_dim + s.embed_dim
        return self.router(experts) + k * one

    def stack(self, runs: list[int], attentions: int) -> int:
        """All but cross-attention's keys and values; `runs` as `source` and `target` above."""
        s = self.sizes
        per_token = attentions * self.queries_and_output() + self.feed_forward()
        per_token += (attentions + 1) * s.embed_dim  # a norm for each sublayer
        # Before every step but the first: the unit of what has just run; while the sentence goes
        # on, its keys and values.
        again = sum(runs[:-1])
        updated = sum(ran for ran, next_run in zip(runs, runs[1:]) if next_run)
        keys_values = 2 * s.embed_dim * s.inner + s.pre_norm * s.embed_dim
        unit = s.embed_dim * s.embed_dim + s.embed_dim + 2 * s.embed_dim
        final_norm = runs[0] * s.embed_dim if s.pre_norm else 0
        own = sum(runs) * per_token + (runs[0] + updated) * keys_values
        return own + s.halting * again * unit + final_norm

    def cross_keys_values(self) -> int:
        return self.source[0] * 2 * self.sizes.embed_dim * self.sizes.inner

    def projection(self) -> int:
        return self.target[0] * self.sizes.embed_dim * self.vocabulary

    def paper(self) -> int:
        own = self.stack(self.source, 1) + self.stack(self.target, 2)
        return own + self.sizes.steps * self.cross_keys_values() + self.projection()

    def full(self) -> int:
        """Cross-attention's keys and values once; the products of queries, keys and values."""
        once = self.paper() - (self.sizes.steps - 1) * self.cross_keys_values()
        s, n, m = self.sizes, self.source[0], self.target[0]

        def self_attention(length: int, directions: int) -> int:
            offsets = 0 if s.window is None else directions * min(s.window, length - 1) + 1
            return 2 * length + offsets

        products = sum(self.source) * self_attention(n, 2)
        products += sum(self.target) * self_attention(m, 1)
        products += sum(self.target) * 2 * n
        return once + products * s.top_k[0] * s.inner
