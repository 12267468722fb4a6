"""A sentence and a model's answer to it, as plain data.

Numbers are rounded, since display needs no more digits. Attention maps are bytes in base64, because
as decimal numbers they would take five times the space.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sut_fairseq.analysis.sentences import Answered, Sentence, Word
from sut_fairseq.analysis.traces import Choice, StackTrace

# A page with several sentences at ten thresholds has to open on a phone.
MOST_MAP_BYTES = 300_000  # of one answer; above that, only the maximum over heads is kept


def sentence_record(sentence: Sentence) -> dict[str, Any]:
    """The record of a sentence: `text`, `words` and `reference` (or None)."""
    return {
        "text": sentence.text,
        "words": _words(sentence.words),
        "reference": sentence.reference,
    }


def answer_record(answered: Answered) -> dict[str, Any]:
    """The record of a model's answer to a sentence.

    Returns:
        `threshold`, `text`, `words`, `macs`, `skipped` (share of the (token, step) pairs of loops
        that halt that were not computed, as in `depth.skipped`) and `stacks`: the `stack_record` of
        "encoder" and "decoder".
    """
    stacks = answered.stacks
    halting = [steps for steps in stacks.values() if steps.halted is not None]
    run = sum(int(steps.computed.sum()) for steps in halting)
    possible = sum(steps.num_steps * steps.computed.shape[2] for steps in halting)
    whole = _map_bytes(stacks.values()) <= MOST_MAP_BYTES
    return {
        "threshold": answered.alpha_threshold,
        "text": answered.text,
        "words": _words(answered.words),
        "macs": answered.macs,
        "skipped": round(1 - run / possible, 4) if halting else 0.0,
        "stacks": {
            name: stack_record(steps, answered.reads[name], each_head=whole)
            for name, steps in stacks.items()
        },
    }


def stack_record(steps: StackTrace, reads: Sequence[Word], *, each_head: bool) -> dict[str, Any]:
    """What a depth loop did with the one sentence of a batch.

    Args:
        steps: what it did.
        reads: the words of its tokens.
        each_head: keep the attention of every head; otherwise the maximum over heads.

    Returns:
        `reads`; `steps`, the greatest number that it may run; by step and token `computed` (a
        string of 0 and 1 for each step), `halted` and `gates` (means over channels; both None
        where there are none); `depth` of each token; and, by layer, `attention` and `experts`
        (`indices` and `weights`, (step, token, choice); null where not computed).
    """
    computed = steps.computed[:, 0]
    return {
        "reads": _words(reads),
        "steps": steps.num_steps,
        "computed": ["".join("01"[bool(one)] for one in row) for row in computed.tolist()],
        "depth": steps.depth[0].tolist(),
        "halted": None if steps.halted is None else _numbers(steps.halted[:, 0]),
        "gates": None if steps.gates is None else _numbers(steps.gates[:, 0].mean(dim=-1)),
        "attention": {
            name: {"top_k": steps.top_k[name], **pack_maps(maps[:, 0], computed, each_head)}
            for name, maps in steps.attention.items()
        },
        "experts": {name: _experts(choice) for name, choice in steps.experts.items()},
    }


def pack_maps(maps: Tensor, computed: Tensor, each_head: bool) -> dict[str, Any]:
    """Attention weights as bytes: 255 stands for 1.

    Args:
        maps: `(run, num_heads, length, num_keys)`, in [0, 1].
        computed: which tokens took the step, `(run, length)`; nothing is kept of the others.
        each_head: keep every head; otherwise the maximum over heads.

    Returns:
        `num_heads`, how many there are; `kept`, how many of them have maps here; `num_keys`; and
        `weights`, in base64: steps, within a step the heads, within a head the rows of the computed
        tokens, one after the other.
    """
    num_heads, num_keys = maps.shape[1], maps.shape[3]
    if not each_head:
        maps = maps.amax(dim=1, keepdim=True)
    rows = [heads[:, chosen].flatten() for heads, chosen in zip(maps, computed)]
    weights = torch.cat(rows).mul(255).round().clamp(0, 255).to(torch.uint8)
    return {
        "num_heads": num_heads,
        "kept": maps.shape[1],
        "num_keys": num_keys,
        "weights": base64.b64encode(weights.numpy().tobytes()).decode(),
    }


def _map_bytes(stacks: Any) -> int:
    return sum(maps.numel() for steps in stacks for maps in steps.attention.values())


def _experts(choice: Choice) -> dict[str, Any]:
    """Experts and their weights, null for a token that was not computed."""
    indices, weights = choice.indices[:, 0].tolist(), choice.weights[:, 0].tolist()
    return {
        "indices": [[None if own[0] < 0 else own for own in step] for step in indices],
        "weights": [
            [None if own[0] != own[0] else [round(one, 3) for one in own] for own in step]
            for step in weights
        ],
    }


def _numbers(values: Tensor) -> list[list[float | None]]:
    """Rows of numbers, null for NaN."""
    return [[None if one != one else round(one, 4) for one in row] for row in values.tolist()]


def _words(words: Sequence[Word]) -> list[list[Any]]:
    """[text] for each word, [text, 1] for an unknown one."""
    return [[word.text, 1] if word.unknown else [word.text] for word in words]
