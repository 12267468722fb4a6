"""The published SUT code's model as slow, plain loops, under that code's own names.

Written from what that code computes in evaluation mode, peculiarities included (the gates' 1e-6,
offsets clipped one short of the window, a strict comparison with the threshold); nothing here uses
the package. One sentence, token, head and expert at a time, in the precision of the tensors.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

PAD = 1
EPSILON = 1e-6  # that the sum of the chosen experts' probabilities is increased by
Tensors = Mapping[str, Tensor]


def part(tensors: Tensors, name: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `name`, without that prefix."""
    return {k[len(name) + 1 :]: t for k, t in tensors.items() if k.startswith(f"{name}.")}


def layer_norm(tensors: Tensors, x: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt() * tensors["weight"] + tensors["bias"]


def gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


def gates(tensors: Tensors, x: Tensor, k: int, *, skipped: bool) -> dict[int, Tensor]:
    """Weights of the k likeliest experts; a skipped token has none."""
    if skipped:
        return {}
    hidden = torch.tanh(tensors["w_gate.0.weight"] @ x + tensors["w_gate.0.bias"])
    probabilities = torch.softmax(tensors["w_gate.3.weight"] @ hidden, dim=0)
    chosen = sorted(range(len(probabilities)), key=lambda e: -float(probabilities[e]))[:k]
    total = sum(probabilities[e] for e in chosen) + EPSILON
    return {e: probabilities[e] / total for e in chosen}


def feed_forward(tensors: Tensors, x: Tensor, k: int, *, skipped: bool) -> Tensor:
    result = torch.zeros_like(x)
    for e, gate in gates(tensors, x, min(k, len(tensors["experts.w"])), skipped=skipped).items():
        hidden = gelu(x @ tensors["experts.w"][e] + tensors["experts.b"][e])
        result = result + gate * (
            hidden @ tensors["output_experts.w"][e] + tensors["output_experts.b"][e]
        )
    return result


def attention(
    tensors: Tensors, settings: Namespace, k: int, x: Tensor, place: int, sources: Sequence[Tensor],
    *, skipped: bool,
) -> Tensor:  # fmt: skip
    """Attention of the token at `place` over the tokens that it sees."""
    size = settings.head_dim
    keys = [tensors["k_proj.weight"] @ source for source in sources]
    values = [tensors["v_proj.weight"] @ source for source in sources]
    offsets = tensors.get("rel_pos_emb")
    result = torch.zeros_like(x)
    for e, gate in gates(part(tensors, "q_proj"), x, k, skipped=skipped).items():
        query = x @ tensors["q_proj.experts.w"][e] / math.sqrt(size)
        context = []
        for head in range(len(query) // size):
            rows = slice(head * size, (head + 1) * size)
            scores = []
            for other, key in enumerate(keys):
                score = query[rows] @ key[rows]
                if offsets is not None:
                    reach = offsets.shape[2] // 2
                    offset = max(1 - reach, min(reach - 1, other - place))
                    score = score + query[rows] @ offsets[head, :, reach + offset]
                scores.append(score)
            weights = torch.softmax(torch.stack(scores), dim=0)
            context.append(sum(w * value[rows] for w, value in zip(weights, values)))
        result = result + gate * (torch.cat(context) @ tensors["q_proj.output_experts.w"][e])
    return result


def layer(
    tensors: Tensors, settings: Namespace, side: str, x: Tensor, place: int,
    sources: Sequence[Tensor], encoded: Sequence[Tensor], *, skipped: bool,
) -> Tensor:  # fmt: skip
    """One step of one token."""
    before = getattr(settings, f"{side}_normalize_before", False)
    attention_k, ffn_k = (getattr(settings, f"{side}_{name}_k") for name in ("attn", "ff"))

    def residual(norm: str, change: Any, state: Tensor) -> Tensor:
        own = part(tensors, norm)
        if before:
            return state + change(layer_norm(own, state))
        return layer_norm(own, state + change(state))

    own = part(tensors, "self_attn_layer_norm")
    seen = [layer_norm(own, source) for source in sources] if before else sources
    x = residual(
        "self_attn_layer_norm",
        lambda state: attention(
            part(tensors, "self_attn"), settings, attention_k, state, place, seen, skipped=skipped
        ),
        x,
    )
    if side == "decoder":
        x = residual(
            "encoder_attn_layer_norm",
            lambda state: attention(
                part(tensors, "encoder_attn"), settings, attention_k, state, place, encoded,
                skipped=skipped,
            ),
            x,
        )  # fmt: skip
    return residual(
        "final_layer_norm",
        lambda state: feed_forward(part(tensors, "moe"), state, ffn_k, skipped=skipped),
        x,
    )


def run(
    tensors: Tensors, settings: Namespace, side: str, states: list[Tensor],
    encoded: Sequence[Tensor], threshold: float,
) -> list[Tensor]:  # fmt: skip
    """All steps of one side over one sentence."""
    block, unit = part(tensors, "universal_layer"), part(tensors, "halting_universal_layer._gate")
    halts = getattr(settings, f"{side}_halting", False)
    hidden, shown = list(states), list(states)
    log_left = [torch.zeros((), dtype=state.dtype) for state in states]
    gathered = [torch.zeros_like(state) for state in states]
    for step in range(getattr(settings, f"{side}_layers")):
        left = [torch.ones((), dtype=state.dtype) for state in states]
        for t, h in enumerate(hidden):
            if not halts or step == 0:
                continue
            scores = unit["3.weight"] @ gelu(unit["0.weight"] @ h + unit["0.bias"])
            log_go_on, log_halt = torch.log_softmax(scores, dim=0)
            gathered[t] = gathered[t] + torch.exp(log_left[t] + log_halt) * h
            log_left[t] = log_left[t] + log_go_on
            left[t] = torch.exp(log_left[t])
            if left[t] < 1 - threshold:
                left[t] = torch.zeros_like(left[t])
        new = []
        for t, h in enumerate(hidden):
            sources = shown[: t + 1] if side == "decoder" else shown
            skipped = float(left[t]) == 0
            new.append(layer(block, settings, side, h, t, sources, encoded, skipped=skipped))
        hidden = new
        shown = [
            s if step and left[t] < 1 - threshold else gathered[t] + left[t] * hidden[t]
            for t, s in enumerate(shown)
        ]
    if getattr(settings, f"{side}_normalize_before", False):
        shown = [layer_norm(part(tensors, "layer_norm"), state) for state in shown]
    return shown


def embed(tensors: Tensors, settings: Namespace, tokens: Sequence[int]) -> list[Tensor]:
    """Embeddings times the square root of their size, plus sinusoids that count from two."""
    words = tensors["embed_tokens.weight"]
    half = words.shape[1] // 2
    states = []
    for place, token in enumerate(tokens, start=PAD + 1):
        state = math.sqrt(words.shape[1]) * words[token]
        if not getattr(settings, "no_token_positional_embeddings", False):
            angles = [place * 10000 ** (-n / (half - 1)) for n in range(half)]
            waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            state = state + torch.tensor(waves, dtype=state.dtype)
        states.append(state)
    return states


def logits(
    tensors: Tensors, settings: Namespace, src_tokens: Tensor, prev_output_tokens: Tensor,
    threshold: float,
) -> Tensor:  # fmt: skip
    """What the published code's model returns; 0 at padding of the target.

    Args:
        tensors: of its checkpoint, under `model`.
        settings: of its checkpoint.
        src_tokens, prev_output_tokens: padded, `(batch, src_len)` and `(batch, tgt_len)`.
        threshold: the value that it reads from ACT_THRESHOLD.
    """
    encoder, decoder = part(tensors, "encoder"), part(tensors, "decoder")
    projection = decoder["output_projection.weight"]
    result = projection.new_zeros(*prev_output_tokens.shape, len(projection))
    for row, (source, target) in enumerate(zip(src_tokens, prev_output_tokens)):
        states = embed(encoder, settings, source[source != PAD].tolist())
        encoded = run(encoder, settings, "encoder", states, [], threshold)
        states = embed(decoder, settings, target[target != PAD].tolist())
        outputs = run(decoder, settings, "decoder", states, encoded, threshold)
        result[row, target != PAD] = torch.stack([projection @ state for state in outputs])
    return result
