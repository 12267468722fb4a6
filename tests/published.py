"""Checkpoints in the form of the published SUT code, with random weights."""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

SETTINGS: dict[str, Any] = dict(
    arch="sut_transformer_base",
    task="translation",
    criterion="sut_ce_loss",
    encoder_layers=4,
    decoder_layers=3,
    encoder_attn_k=2,
    decoder_attn_k=2,
    encoder_ff_k=2,
    decoder_ff_k=2,
    encoder_halting=True,
    decoder_halting=True,
    encoder_normalize_before=False,
    decoder_normalize_before=False,
    head_dim=4,
    activation_fn="gelu",
    dropout=0.2,
    attention_dropout=0.2,
    activation_dropout=0.1,
    gating_dropout=0.2,
    halting_dropout=0.0,
    sample_topk=0,
    share_all_embeddings=True,
    share_decoder_input_output_embed=True,
    no_token_positional_embeddings=False,
    no_scale_embedding=False,
    adaptive_softmax_cutoff=None,
    adam_betas="(0.9, 0.98)",
    left_pad_source=True,
    left_pad_target=False,
    label_smoothing=0.1,
)
SIZES = dict(embed_dim=12, heads=2, experts=4, ffn_experts=3, hidden_dim=8, offsets=7)
WORDS = 13


def checkpoint(
    *, seed: int = 0, words: int = WORDS, target_words: int | None = None, flat: bool = False,
    dtype: torch.dtype = torch.float64, sizes: dict[str, int] | None = None, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """What that code's training would save, as far as it matters to the tests.

    Args:
        seed: of the weights.
        words, target_words: sizes of the dictionaries; only the first if they are joined.
        flat: settings under `args`, as fairseq wrote them before `cfg`.
        dtype: of the tensors.
        sizes: those that differ from `SIZES`.
        changes: settings that differ from `SETTINGS`.
    """
    settings = Namespace(**{**SETTINGS, **changes})
    tensors = _tensors(settings, {**SIZES, **(sizes or {})}, words, target_words or words, seed)
    cfg = {
        "_name": None,
        "model": settings,
        "task": {"_name": "translation", "data": "/nowhere", "left_pad_source": True},
    }
    return {
        "args": settings if flat else None,
        "cfg": None if flat else cfg,
        # In values that float32 has, since our models are built in it.
        "model": OrderedDict((name, one.float().to(dtype)) for name, one in tensors.items()),
        "optimizer_history": [{"num_updates": 7, "optimizer_name": "FairseqAdam"}],
        "last_optimizer_state": {"state": {}},
        "extra_state": {
            "train_iterator": {"epoch": 2, "iterations_in_epoch": 5},
            "val_loss": 3.5,
            "metrics": [],
        },
    }


def _tensors(
    settings: Namespace, sizes: dict[str, int], words: int, target_words: int, seed: int
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size, inner = sizes["embed_dim"], sizes["heads"] * settings.head_dim
    found: dict[str, Tensor] = {}

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values * scale / shape[-1] ** 0.5

    def norm(name: str) -> None:
        found[f"{name}.weight"] = 1 + draw(size)
        found[f"{name}.bias"] = draw(size)

    def router(name: str, outputs: int, scale: float = 2.0) -> None:
        found[f"{name}.0.weight"], found[f"{name}.0.bias"] = draw(size, size), draw(size)
        found[f"{name}.3.weight"] = draw(outputs, size, scale=scale)

    def attention(name: str, *, own: bool) -> None:
        for projection in ("k_proj", "v_proj"):
            found[f"{name}.{projection}.weight"] = draw(inner, size, scale=2.0)
        found[f"{name}.q_proj.experts.w"] = draw(sizes["experts"], size, inner)
        found[f"{name}.q_proj.output_experts.w"] = draw(sizes["experts"], inner, size)
        router(f"{name}.q_proj.w_gate", sizes["experts"])
        if own:
            shape = (sizes["heads"], settings.head_dim, sizes["offsets"])
            found[f"{name}.rel_pos_emb"] = draw(*shape, scale=3.0)

    embedding = draw(words, size, scale=2.0)
    for side in ("encoder", "decoder"):
        block = f"{side}.universal_layer"
        own = embedding
        if side == "decoder" and not settings.share_all_embeddings:
            own = draw(target_words, size, scale=2.0)
        found[f"{side}.version"] = torch.tensor([3.0])
        found[f"{side}.embed_tokens.weight"] = own
        if not settings.no_token_positional_embeddings:
            found[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        attention(f"{block}.self_attn", own=True)
        norm(f"{block}.self_attn_layer_norm")
        if side == "decoder":
            attention(f"{block}.encoder_attn", own=False)
            norm(f"{block}.encoder_attn_layer_norm")
        moe, experts, hidden = f"{block}.moe", sizes["ffn_experts"], sizes["hidden_dim"]
        found[f"{moe}.experts.w"], found[f"{moe}.experts.b"] = (
            draw(experts, size, hidden), draw(experts, hidden)
        )  # fmt: skip
        found[f"{moe}.output_experts.w"] = draw(experts, hidden, size)
        found[f"{moe}.output_experts.b"] = draw(experts, size)
        router(f"{moe}.w_gate", experts)
        norm(f"{block}.final_layer_norm")
        if getattr(settings, f"{side}_halting"):
            router(f"{side}.halting_universal_layer._gate", 2, scale=4.0)
            again = {k: t for k, t in found.items() if k.startswith(f"{block}.")}
            for name, tensor in again.items():
                twice = name.replace("universal_layer", "halting_universal_layer.mod")
                found[twice] = tensor
        if getattr(settings, f"{side}_normalize_before"):
            norm(f"{side}.layer_norm")
    shared = settings.share_all_embeddings or settings.share_decoder_input_output_embed
    found["decoder.output_projection.weight"] = (
        found["decoder.embed_tokens.weight"] if shared else draw(target_words, size)
    )
    return found
