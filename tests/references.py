"""The papers' equations as slow, plain loops to compare the package with.

Nothing here uses the package: one sentence, token, head, expert and key at a time, probabilities
rather than their logarithms, and every token computed at every step (a halted one is computed too,
but keeps its old state). Weights come as named tensors; a linear layer's are `(out, in)`, those
of a stack of experts `(num_experts, in, out)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Options:
    """What the weights themselves do not determine."""

    num_heads: int = 2
    attention_top_k: int = 1
    ffn_top_k: int = 1
    positions: str = "none"  # or "window", "buckets", "direction", "transformer-xl", ...
    distribution: str = "softmax"  # or "others", "geometric"
    max_distance: int = 8
    causal: bool = False
    pre_norm: bool = False
    block: str = "transformer"  # or "data-router", "data-router-tanh"
    num_steps: int = 1
    alpha_threshold: float | None = None  # None: no stick-breaking
    act: str | None = None  # or "graves", "dehghani"
    epsilon: float = 0.01  # of ACT
    num_retrievals: int | None = None  # None: head i retrieves value i
    own_values: bool = False  # of each search, not shared by all

    @property
    def across(self) -> Options:
        """The options of cross-attention, which has no relative positions across two sentences."""
        own_values, several = self.own_values, self.num_retrievals
        heads = Options(self.num_heads, self.attention_top_k)
        return replace(heads, num_retrievals=several, own_values=own_values)


@dataclass
class Call:
    """One call of one router.

    Attributes:
        probabilities: g(e|h) for each expert.
        gates: renormalised weight of each chosen expert.
        log_partition: log of the sum of exponentiated scores.
        weight: that of the call in the losses.
    """

    probabilities: list[Tensor]
    gates: dict[int, Tensor]
    log_partition: Tensor
    weight: Tensor | float = 1.0


@dataclass
class Result:
    """What a stack computes.

    Attributes:
        states: `(batch, length, embed_dim)`, 0 at padding.
        calls: the calls of each router.
        depths: expected depth of each token.
        steps: number of steps that each token ran.
        remainders: for each token, the remaining probability, which its last state gets.
    """

    states: Tensor
    calls: dict[str, list[Call]] = field(default_factory=dict)
    depths: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    remainders: list[Tensor] = field(default_factory=list)


def part(weights: Weights, name: str) -> dict[str, Tensor]:
    """The weights of the submodule `name`."""
    return {k[len(name) + 1 :]: w for k, w in weights.items() if k.startswith(name + ".")}


def linear(weights: Weights, state: Tensor) -> Tensor:
    result = weights["weight"] @ state
    return result + weights["bias"] if "bias" in weights else result


def softmax(scores: Sequence[Tensor]) -> list[Tensor]:
    largest = max(float(score.detach()) for score in scores)
    powers = [torch.exp(score - largest) for score in scores]
    return [power / sum(powers) for power in powers]


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016)."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def layer_norm(weights: Weights, state: Tensor) -> Tensor:
    centred = state - state.mean()
    return centred / torch.sqrt((centred**2).mean() + 1e-5) * weights["weight"] + weights["bias"]


def route(weights: Weights, state: Tensor, top_k: int) -> Call:
    """Gating network, the k most probable experts, renormalised (SUT 3.1)."""
    hidden = torch.tanh(linear(part(weights, "input"), state))
    scores = [row @ hidden for row in weights["output.weight"]]
    probabilities = softmax(scores)
    by_probability = sorted(range(len(scores)), key=lambda e: -float(probabilities[e].detach()))
    chosen = by_probability[:top_k]
    kept = sum(probabilities[expert] for expert in chosen)
    gates = {expert: probabilities[expert] / kept for expert in chosen}
    return Call(probabilities, gates, torch.log(sum(torch.exp(score) for score in scores)))


def relu(x: Tensor) -> Tensor:
    """max(x, 0) (NDR Eq. 5)."""
    return torch.where(x > 0, x, 0)


def feed_forward(
    weights: Weights, state: Tensor, top_k: int, activation: Callable[[Tensor], Tensor] = gelu
) -> tuple[Tensor, Call | None]:
    """Feed-forward layer, or sum over the chosen experts of g_e f_e(h) (SUT 3.1)."""
    if not part(weights, "router"):
        hidden = activation(linear(part(weights, "input"), state))
        return linear(part(weights, "output"), hidden), None
    call = route(part(weights, "router"), state, top_k)
    result = torch.zeros_like(state)
    for expert, gate in call.gates.items():
        inputs = state @ weights["input.weight"][expert] + weights["input.bias"][expert]
        hidden = activation(inputs)
        value = hidden @ weights["output.weight"][expert] + weights["output.bias"][expert]
        result = result + gate * value
    return result, call


def bucket(offset: int, num_buckets: int, max_distance: int, causal: bool) -> int:
    """T5's bucket of an offset (key minus query), in exact integers (Raffel et al. 2020, 2.1).

    Of one direction's n buckets the first n / 2 hold one distance each; bucket n / 2 + j starts at
    distance n/2 (max_distance / (n/2)) ^ (j / (n - n/2)); the last takes everything beyond.
    """
    size = num_buckets if causal else num_buckets // 2
    first = size if not causal and offset > 0 else 0
    distance = max(-offset, 0) if causal else abs(offset)
    exact = size // 2
    if distance < exact:
        return first + distance
    wide = size - exact

    def reaches(j: int) -> bool:
        return distance**wide * exact**j >= max_distance**j * exact**wide

    return first + exact + max(j for j in range(wide) if reaches(j))


def sinusoid(place: int, size: int) -> Tensor:
    """[sin(p f_0), ..., cos(p f_0), ...], frequencies from 1 to 1/10,000."""
    half = size // 2
    angles = [place / 10000 ** (n / max(half - 1, 1)) for n in range(half)]
    values = [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (size % 2)
    return torch.tensor(values, dtype=torch.float64)


def pair_scores(
    weights: Weights, options: Options
) -> Callable[[Tensor, Tensor, Tensor, int, int, int], Tensor]:
    """A function of query, key, the query's state h_i, head, i and j that gives their score."""
    own = part(weights, "core.positions")
    kind = options.positions

    def content(query: Tensor, key: Tensor) -> Tensor:
        return query @ key / math.sqrt(len(query))

    def score(query: Tensor, key: Tensor, state: Tensor, head: int, i: int, j: int) -> Tensor:
        if kind == "window":
            window = own["embedding"].shape[1] // 2
            offset = max(-window, min(window, j - i))
            return content(query, key + own["embedding"][head, offset + window])
        if kind == "buckets":
            bias = own["bias"]
            place = bucket(j - i, bias.shape[1], options.max_distance, options.causal)
            return content(query, key) + bias[head, place]
        if kind == "direction":  # NDR Eq. 9-10
            matched = (query + own["content_bias"][head]) @ key
            direction = linear(part(own, "direction"), state)[2 * head + (0 if i <= j else 1)]
            return own["alpha"] * matched + own["beta"] * direction + own["gamma"]
        if kind in ("transformer-xl", "absolute-relative"):  # NDR Eq. 16-17
            position = sinusoid(i - j, len(state))
            if kind == "absolute-relative":
                r = torch.sigmoid(linear(part(own, "relative"), state)[head])
                position = r * position + (1 - r) * sinusoid(j, len(state))
            rows = slice(head * len(query), (head + 1) * len(query))
            position_key = own["position_key.weight"][rows] @ position
            matched = content(query + own["content_bias"][head], key)
            return matched + content(query + own["position_bias"][head], position_key)
        return content(query, key)

    return score


def geometric(scores: Mapping[int, Tensor], i: int) -> list[Tensor]:
    """Weights of the keys by position, those that may match (NDR Eq. 6-8, taken literally)."""
    matches = {j: torch.sigmoid(score) for j, score in scores.items()}
    result = []
    for j, match in matches.items():
        if j == i:
            result.append(torch.zeros_like(match))
            continue
        for k, closer in matches.items():
            distance, own = abs(i - k), abs(i - j)
            if k not in (i, j) and (distance < own if i < j else distance <= own):
                match = match * (1 - closer)
        result.append(match)
    return result


def choose(weights: Weights, state: Tensor, search: int, retrieved: list[Tensor]) -> Tensor:
    """What one search selects from all that it has retrieved (COMP Eq. 11-13)."""
    if len(retrieved) == 1:
        return retrieved[0]
    weights = part(weights, "value_scores")
    size = weights["key.weight"].shape[0]
    query = linear(part(weights, "query"), state)[search * size : (search + 1) * size]
    keys = [weights["key.weight"] @ one for one in retrieved]
    if "linear.weight" in weights:
        scores = [weights["linear.weight"][0] @ torch.cat([query, key]) for key in keys]
    else:
        scores = [query @ key / math.sqrt(size) for key in keys]
    return sum(p * one for p, one in zip(softmax(scores), retrieved))


def attention(
    weights: Weights, options: Options, state: Tensor, position: int, sources: Mapping[int, Tensor]
) -> tuple[Tensor, Call | None]:
    """Attention of one token over the visible `sources` (states by position), dense or MoMHA."""
    if part(weights, "router"):
        call = route(part(weights, "router"), state, options.attention_top_k)
        experts = [
            (
                gate,
                {"weight": weights["query.weight"][e].T},
                {"weight": weights["output.weight"][e].T},
            )
            for e, gate in call.gates.items()
        ]
    else:
        call = None
        experts = [(1.0, part(weights, "query"), part(weights, "output"))]
    score = pair_scores(weights, options)
    keys = {o: linear(part(weights, "key"), source) for o, source in sources.items()}
    values = {o: linear(part(weights, "value"), source) for o, source in sources.items()}
    head_dim = weights["key.weight"].shape[0] // options.num_heads
    chosen = values_of_heads(options)
    value_dim = weights["value.weight"].shape[0] // len({j for own in chosen for j in own})
    result = torch.zeros_like(state)
    for gate, query_weights, output_weights in experts:
        contexts = []
        for head in range(options.num_heads):
            rows = slice(head * head_dim, (head + 1) * head_dim)
            query = linear(query_weights, state)[rows]
            scores = {
                other: score(query, key[rows], state, head, position, other)
                for other, key in keys.items()
            }
            matches = distribute(options, scores, position)
            retrieved = [
                sum(
                    p * values[other][j * value_dim : (j + 1) * value_dim]
                    for other, p in matches.items()
                )
                for j in chosen[head]
            ]
            contexts.append(choose(weights, state, head, retrieved))
        result = result + gate * linear(output_weights, torch.cat(contexts))
    return result, call


def values_of_heads(options: Options) -> list[list[int]]:
    """Which values each head retrieves (COMP Eq. 9-10)."""
    heads, several = range(options.num_heads), options.num_retrievals
    if several is None:
        return [[head] for head in heads]
    if options.own_values:
        return [[head * several + j for j in range(several)] for head in heads]
    return [list(range(several)) for _ in heads]


def distribute(options: Options, scores: Mapping[int, Tensor], position: int) -> dict[int, Tensor]:
    """Weights of the keys from their scores, by position."""
    if options.distribution == "geometric":
        return dict(zip(scores, geometric(scores, position)))
    if options.distribution == "others":  # COMP C.1
        others = {o: s for o, s in scores.items() if o != position}
        weights = dict(zip(others, softmax(list(others.values())) if others else []))
        return {o: weights.get(o, torch.zeros_like(s)) for o, s in scores.items()}
    return dict(zip(scores, softmax(list(scores.values()))))


def halt_prediction(weights: Weights, state: Tensor) -> Tensor:
    """a^: probability of halting after the step that gave `state` (SUT 3.2)."""
    hidden = gelu(linear(part(weights, "input"), state))
    return softmax([row @ hidden for row in weights["output.weight"]])[0]


def halt_probabilities(predictions: Sequence[Tensor]) -> list[Tensor]:
    """a_l = a^_l prod over l' < l of (1 - a^_l') (SUT Eq. 2)."""
    result = []
    for step, prediction in enumerate(predictions):
        for earlier in predictions[:step]:
            prediction = prediction * (1 - earlier)
        result.append(prediction)
    return result


def expected_state(halts: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """s_l from a_1 .. a_{l-1} and h_1 .. h_l (SUT Eq. 3)."""
    result = (1 - sum(halts)) * states[-1]
    for halt, state in zip(halts, states):
        result = result + halt * state
    return result


def expected_depth(halts: Sequence[Tensor], num_steps: int) -> Tensor | float:
    """Expected number of steps (SUT Eq. 4); the remaining mass falls on the last step."""
    return sum(a * step for step, a in enumerate(halts, start=1)) + (1 - sum(halts)) * num_steps


def block(
    weights: Weights,
    options: Options,
    hidden: Tensor,
    position: int,
    sources: Mapping[int, Tensor],
    cross_sources: Mapping[int, Tensor],
) -> tuple[Tensor, dict[str, Call]]:
    """One step for one token: self-attention, cross-attention (if it has one), feed-forward."""
    calls: dict[str, Call] = {}
    before = hidden
    if options.pre_norm:
        norm = part(weights, "self_attention_norm")
        sources = {key: layer_norm(norm, source) for key, source in sources.items()}
    for name in ("self_attention", "cross_attention", "feed_forward"):
        own, norm = part(weights, name), part(weights, f"{name}_norm")
        if not own:
            continue
        inputs = layer_norm(norm, hidden) if options.pre_norm else hidden
        if name == "feed_forward":
            change, call = feed_forward(own, inputs, options.ffn_top_k)
        elif name == "self_attention":
            change, call = attention(own, options, inputs, position, sources)
        else:
            change, call = attention(own, options.across, inputs, position, cross_sources)
        if call is not None:
            calls[name] = call
        if name == "feed_forward" and part(weights, "copy_gate"):
            return route_data(weights, before, hidden, change), calls
        hidden = hidden + change if options.pre_norm else layer_norm(norm, hidden + change)
    return hidden, calls


def route_data(weights: Weights, before: Tensor, attended: Tensor, change: Tensor) -> Tensor:
    """The next state of a data router from the state before and after attention (NDR Eq. 2-5)."""
    norm, gate = part(weights, "update_norm"), part(weights, "copy_gate")
    update = layer_norm(norm, change) if norm else torch.tanh(change)
    hidden = linear(part(gate, "input"), attended)
    opened = linear(part(gate, "output"), torch.where(hidden > 0, hidden, torch.zeros_like(hidden)))
    opened = 1 / (1 + torch.exp(-opened))
    return opened * update + (1 - opened) * before


def stack_sentence(
    weights: Weights, options: Options, states: Sequence[Tensor], cross: Sequence[Tensor]
) -> Result:
    """SUT Algorithm 1 for one sentence without padding; `cross`: the encoder's states."""
    result = Result(torch.empty(0))
    expected = list(states)
    history: list[list[Tensor]] = [[] for _ in states]  # h_1, h_2, ...
    predictions: list[list[Tensor]] = [[] for _ in states]  # a^_1, a^_2, ...
    halted = [False for _ in states]
    result.steps = [0 for _ in states]
    for step in range(1, options.num_steps + 1):
        sources = dict(enumerate(expected))
        for t in range(len(states)):
            if options.alpha_threshold is not None and step > 1 and not halted[t]:
                predictions[t].append(halt_prediction(part(weights, "halting"), history[t][-1]))
            halts = halt_probabilities(predictions[t])
            if options.alpha_threshold is not None and step > 1:
                halted[t] = float(sum(halts).detach()) >= options.alpha_threshold
            visible = {o: s for o, s in sources.items() if o <= t or not options.causal}
            hidden = history[t][-1] if history[t] else states[t]
            proposal, calls = block(
                part(weights, "block"), options, hidden, t, visible, dict(enumerate(cross))
            )
            for name, call in calls.items():
                # The weight is no road for gradients: balancing must not decide when to halt.
                call.weight = 0.0 if halted[t] else 1 - sum(float(halt.detach()) for halt in halts)
                result.calls.setdefault(name, []).append(call)
            history[t].append(hidden if halted[t] else proposal)
            if not halted[t]:
                result.steps[t] += 1
                expected[t] = expected_state(halts, history[t])
    halts_of = [halt_probabilities(own) for own in predictions]
    result.depths = [expected_depth(halts, options.num_steps) for halts in halts_of]
    result.remainders = [1 - torch.as_tensor(sum(halts)).double() for halts in halts_of]
    if part(weights, "final_norm"):
        expected = [layer_norm(part(weights, "final_norm"), state) for state in expected]
    result.states = torch.stack(expected)
    return result


def act_prediction(weights: Weights, state: Tensor) -> Tensor:
    """p^ of a state (NDR Eq. 11)."""
    return 1 / (1 + torch.exp(-linear(weights, state)[0]))


def graves(
    predictions: Sequence[Tensor], states: Sequence[Tensor], epsilon: float
) -> tuple[Tensor, list[Tensor], Tensor]:
    """ACT "A": o, p(1) .. p(T) and R from p^(1) .. and h(1) .. of all steps (NDR Eq. 12-15)."""
    last = len(predictions)
    for step in range(last, 0, -1):
        if float(sum(predictions[:step]).detach()) >= 1 - epsilon:
            last = step
    remainder = 1 - torch.as_tensor(sum(predictions[: last - 1])).double()
    shares = [*predictions[: last - 1], remainder]
    return sum(p * state for p, state in zip(shares, states)), shares, remainder


def dehghani(
    predictions: Sequence[Tensor], states: Sequence[Tensor], epsilon: float
) -> tuple[Tensor, list[Tensor], Tensor]:
    """ACT "U": o, w(1) .. w(T) and R from p^(1) .. and h(1) .. (Dehghani et al. 2019, listings)."""
    halting_probability = remainder = torch.zeros((), dtype=states[0].dtype)
    result = torch.zeros_like(states[0])
    shares = []
    for prediction, state in zip(predictions, states):
        if float(halting_probability.detach()) >= 1:
            break  # the listing goes on with an update weight of 0
        if float((halting_probability + prediction).detach()) > 1 - epsilon:
            remainder = weight = 1 - halting_probability
            halting_probability = torch.ones_like(halting_probability)
        else:
            weight = prediction
            halting_probability = halting_probability + prediction
        result = state * weight + result * (1 - weight)
        shares.append(weight)
    return result, shares, remainder


def act_sentence(
    weights: Weights, options: Options, states: Sequence[Tensor], cross: Sequence[Tensor]
) -> Result:
    """ACT for one sentence: all columns compute all steps, and are then read out (NDR App. A)."""
    history = [[state] for state in states]  # h(0), h(1), ...
    made: list[dict[str, Call]] = []
    for step in range(options.num_steps):
        sources = {t: own[step] for t, own in enumerate(history)}
        for t, own in enumerate(history):
            visible = {o: s for o, s in sources.items() if o <= t or not options.causal}
            hidden, calls = block(
                part(weights, "block"), options, own[step], t, visible, dict(enumerate(cross))
            )
            own.append(hidden)
            made.append(calls)
    result = Result(torch.empty(0))
    outputs, depth = [], 0
    for own in history:
        all_predictions = [act_prediction(part(weights, "halting.output"), h) for h in own]
        if options.act == "graves":
            read_out = graves(all_predictions[1:], own[1:], options.epsilon)
        else:
            read_out = dehghani(all_predictions[:-1], own[1:], options.epsilon)
        output, shares, remainder = read_out
        outputs.append(output)
        result.depths.append(expected_depth(shares, options.num_steps))
        result.remainders.append(remainder)
        depth = max(depth, len(shares))
    # Nothing depends on what comes after the last read-out.
    result.steps = [depth for _ in states]
    for calls in made[: depth * len(states)]:
        for name, call in calls.items():
            result.calls.setdefault(name, []).append(call)
    if part(weights, "final_norm"):
        outputs = [layer_norm(part(weights, "final_norm"), output) for output in outputs]
    result.states = torch.stack(outputs)
    return result


def stack(
    weights: Weights,
    options: Options,
    states: Tensor,
    padding_mask: Tensor,
    cross: Tensor | None = None,
    cross_padding_mask: Tensor | None = None,
) -> Result:
    """`stack_sentence` or `act_sentence` for each sentence of a padded batch by itself."""
    of_sentence = stack_sentence if options.act is None else act_sentence
    result = Result(torch.zeros_like(states))
    for sentence, padding in enumerate(padding_mask):
        encoded = [] if cross is None else list(cross[sentence][~cross_padding_mask[sentence]])
        own = of_sentence(weights, options, list(states[sentence][~padding]), encoded)
        result.states[sentence, ~padding] = own.states
        result.depths += own.depths
        result.steps += own.steps
        result.remainders += own.remainders
        for name, calls in own.calls.items():
            result.calls.setdefault(name, []).extend(calls)
    return result
