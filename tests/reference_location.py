"""Attenders and their recurrent encoder-decoder as plain loops over words and components.

Location Attention (LOC) sections 4 and 5, for one sentence without padding, in Python's numbers of
torch; parameters by their names in `sut_fairseq.modules.recurrent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]
Vector = list  # of numbers that torch can differentiate
Rows = Sequence[Sequence[Tensor]]


def part(parameters: Parameters, prefix: str) -> dict[str, Tensor]:
    """The parameters of one part of a module."""
    return {
        name.removeprefix(f"{prefix}."): values
        for name, values in parameters.items()
        if name.startswith(f"{prefix}.")
    }


def linear(parameters: Parameters, name: str, x: Sequence[Tensor]) -> Vector:
    weight, bias = parameters[f"{name}.weight"], parameters.get(f"{name}.bias")
    return [
        sum(weight[row, column] * value for column, value in enumerate(x))
        + (0 if bias is None else bias[row])
        for row in range(len(weight))
    ]


def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return sum(x * y for x, y in zip(a, b))


def softmax(values: Sequence[Tensor]) -> Vector:
    total = sum(torch.exp(value) for value in values)
    return [torch.exp(value) / total for value in values]


def gru_step(parameters: Parameters, suffix: str, x: Vector, hidden: Vector) -> Vector:
    """torch's order of gates: reset, update, new."""
    size = len(hidden)

    def way(kind: str, values: Vector) -> list[Vector]:
        weight, bias = (parameters[f"{name}_{kind}{suffix}"] for name in ("weight", "bias"))
        total = linear({"w.weight": weight, "w.bias": bias}, "w", values)
        return [total[size * k : size * (k + 1)] for k in range(3)]

    result = []
    for ri, zi, ni, rh, zh, nh, h in zip(*way("ih", x), *way("hh", hidden), hidden):
        reset, update = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
        new = torch.tanh(ni + reset * nh)
        result.append((1 - update) * new + update * h)
    return result


def gru(parameters: Parameters, inputs: Rows, hidden: Vector) -> list[Vector]:
    """States after each input."""
    states = []
    for x in inputs:
        hidden = gru_step(parameters, "_l0", list(x), hidden)
        states.append(hidden)
    return states


def sinusoid(place: int, dim: int) -> list[float]:
    """Vaswani et al. 2017, all sines before all cosines."""
    half = dim // 2
    angles = [place / 10000 ** (k / max(half - 1, 1)) for k in range(half)]
    return [*map(math.sin, angles), *map(math.cos, angles), *[0.0] * (dim % 2)]


# Scores of query t and key s (LOC Eq. 3 and 4).


def additive(parameters: Parameters, key: Vector, query: Vector, s: int, t: int) -> Tensor:
    both = zip(linear(parameters, "key", key), linear(parameters, "query", query))
    return linear(parameters, "score", [torch.tanh(k + q) for k, q in both])[0]


def multiplicative(parameters: Parameters, key: Vector, query: Vector, s: int, t: int) -> Tensor:
    return dot(key, linear(parameters, "query", query))


def scaled_dot(parameters: Parameters, key: Vector, query: Vector, s: int, t: int) -> Tensor:
    return dot(key, query) / math.sqrt(len(key))


def transformer(parameters: Parameters, key: Vector, query: Vector, s: int, t: int) -> Tensor:
    key = [k + p for k, p in zip(key, sinusoid(s, len(key)))]
    query = [q + p for q, p in zip(query, sinusoid(t, len(query)))]
    return dot(key, query) / math.sqrt(len(key))


def transformer_xl(parameters: Parameters, key: Vector, query: Vector, s: int, t: int) -> Tensor:
    place = torch.tensor(sinusoid(s - t, len(key)), dtype=torch.float64)
    keys = zip(linear(parameters, "key", key), linear(parameters, "position", list(place)))
    return dot([k + p for k, p in keys], linear(parameters, "query", query)) / math.sqrt(len(key))


SCORES: dict[str, Callable[[Parameters, Vector, Vector, int, int], Tensor]] = {
    "additive": additive,
    "multiplicative": multiplicative,
    "scaled-dot": scaled_dot,
    "transformer": transformer,
    "transformer-xl": transformer_xl,
}


def content_attention(name: str, parameters: Parameters, queries: Rows, keys: Rows) -> list[Vector]:
    """gamma of each query (LOC Eq. 2)."""
    return [
        softmax([SCORES[name](parameters, list(k), list(q), s, t) for s, k in enumerate(keys)])
        for t, q in enumerate(queries)
    ]


def location_attention(
    parameters: Parameters,
    queries: Rows,
    num_words: int,
    content: Sequence[Vector] | None = None,
    shares: Sequence[Tensor] | None = None,
) -> list[Vector]:
    """lambda of each query, or alpha where there is content to mix it with (LOC 5.1 and 5.2)."""
    n = num_words
    step = 1 / (n - 1) if n > 1 else 1.0
    places = [s * step for s in range(n)]
    zero = torch.zeros((), dtype=torch.float64)
    mean, omega, attention = -step, [zero] * len(parameters["gru.weight_hh_l0"][0]), []
    for t, query in enumerate(queries):
        resized = [torch.relu(x) for x in linear(parameters, "resize", list(query))]
        omega = gru_step(part(parameters, "gru"), "_l0", resized, omega)
        sigma = (torch.relu(linear(parameters, "spread", omega)[0]) + 0.27) / n
        of_mean, of_step, of_one = linear(parameters, "blocks", omega)
        whole = math.floor(of_step.item())
        stairs = whole + torch.sigmoid(20 * (of_step - 0.5 - whole))
        mu = torch.sigmoid(of_mean) * mean + stairs * step + torch.sigmoid(of_one) * 1
        mu = 0.01 * mu if mu < 0 else 1 + 0.01 * (mu - 1) if mu > 1 else mu
        # exp of the largest exponent is taken out, as it would underflow far from the words.
        exponents = [-((place - mu) ** 2) / (2 * sigma**2) for place in places]
        most = max(exponents)
        density = [torch.exp(e - most) / torch.sqrt(2 * math.pi * sigma**2) for e in exponents]
        weights = [value / sum(density) for value in density]
        if content is not None and shares is not None:
            weights = [
                shares[t] * by_place + (1 - shares[t]) * by_content
                for by_place, by_content in zip(weights, content[t])
            ]
        mean = dot(weights, places)
        attention.append(weights)
    return attention


def attention(name: str, parameters: Parameters, queries: Rows, keys: Rows) -> list[Vector]:
    """Weights of each query by the attender of this name; "mix" mixes with scaled dot."""
    if name in SCORES:
        return content_attention(name, parameters, queries, keys)
    if name == "location":
        return location_attention(part(parameters, "weighter"), queries, len(keys))
    if name != "mix":
        raise KeyError(f"no plain loop here computes {name}")
    content = content_attention("scaled-dot", part(parameters, "content"), queries, keys)
    shares = [torch.sigmoid(linear(parameters, "location_share", list(q))[0]) for q in queries]
    weighter = part(parameters, "location.weighter")
    return location_attention(weighter, queries, len(keys), content, shares)


def encode(parameters: Parameters, words: Rows, hidden_dim: int) -> tuple[list[Vector], Vector]:
    """States e of the words, and the GRU's last one."""
    zeros = [torch.zeros((), dtype=torch.float64)] * hidden_dim
    states = gru(part(parameters, "gru"), words, zeros)
    joined = [
        [h + r for h, r in zip(state, linear(parameters, "residual", list(word)))]
        for state, word in zip(states, words)
    ]
    return joined, states[-1]


def decode_after(
    name: str, parameters: Parameters, tokens: Rows, source: Rows, final: Vector
) -> list[Vector]:
    """Outputs of `AttendAfter`."""
    queries = gru(part(parameters, "gru"), tokens, final)
    weights = attention(name, part(parameters, "attender"), queries, source)
    outputs = []
    for query, row in zip(queries, weights):
        found = [dot(row, column) for column in zip(*source)]
        joined = linear(parameters, "join", [*found, *query])
        outputs.append([torch.tanh(x) for x in joined])
    return outputs


def decode_before(
    name: str, parameters: Parameters, tokens: Rows, source: Rows, final: Vector
) -> list[Vector]:
    """Outputs of `AttendBefore`: its attention is recomputed from all queries so far."""
    queries, outputs = [final], []
    for token in tokens:
        row = attention(name, part(parameters, "attender"), queries, source)[-1]
        found = [dot(row, column) for column in zip(*source)]
        hidden = gru_step(part(parameters, "cell"), "", [*found, *token], queries[-1])
        outputs.append(hidden)
        queries.append(hidden)
    return outputs
