"""Greedy search that reports attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sut_fairseq.metrics import word_scores


def greedy_search(
    model: Any, sample: dict[str, Any], words: Any, max_len: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """The most probable next symbol at each step, for whole batches.

    As in fairseq's generator, padding is never generated, nor an empty sentence.

    Args:
        model: an encoder-decoder with incremental decoding.
        sample: a batch.
        words: the target dictionary.
        max_len: greatest number of words before the end, which then follows as in fairseq's
            generator. None: sentences are cut off at the length of the batch's longest reference;
            longer ones are wrong anyway.

    Returns:
        symbols, `(batch, length)`, padded after the end of each sentence; and attention weights,
        `(batch, length, source length)`, or None if the model reports none.
    """
    target = sample["target"]
    inputs = {k: v for k, v in sample["net_input"].items() if k != "prev_output_tokens"}
    encoded = model.encoder(**inputs)
    # fairseq's decoder inputs start with the end-of-sentence symbol.
    tokens = target.new_full((len(target), 1), words.eos())
    ended = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    weights: list[Tensor | None] = []
    state: dict[str, Any] = {}
    most = target.size(1)
    if max_len is not None:
        max_len = min(max_len, model.max_decoder_positions() - 1)
        most = max_len + 1
    for step in range(most):
        output = model.decoder(tokens, encoder_out=encoded, incremental_state=state)
        scores, extra = word_scores(model, output)[:, -1].float(), output[1]
        scores[:, words.pad()] = -torch.inf
        if step == 0:
            scores[:, words.eos()] = -torch.inf
        best = scores.argmax(dim=-1)
        if step == max_len:
            best = torch.full_like(best, words.eos())
        best = best.masked_fill(ended, words.pad())
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        attention = (extra.get("attn") if isinstance(extra, Mapping) else None) or [None]
        weights.append(None if attention[0] is None else attention[0][:, -1].float())
        ended |= best == words.eos()
        if ended.all():
            break
    listed = [one for one in weights if one is not None]
    return tokens[:, 1:], torch.stack(listed, dim=1) if len(listed) == len(weights) else None
