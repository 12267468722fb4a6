"""Small fairseq models and batches for the tests."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models.architectures import DATA_ROUTER
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from tests.comparison import randomise

SMALL = dict(
    encoder_embed_dim=16,
    encoder_attention_heads=2,
    encoder_ffn_embed_dim=12,
    encoder_layers=4,
    decoder_layers=4,
    attention_window=2,
    attention_buckets=6,
    attention_max_distance=6,
    dropout=0.0,
    max_source_positions=40,
    max_target_positions=40,
)
HALTING = dict(encoder_halting="stick-breaking", decoder_halting="stick-breaking")
NDR = {
    "ndr": DATA_ROUTER,
    "mixtures of ndr": {**DATA_ROUTER, "attention_experts": 4, "attention_top_k": 2},
    "abs/rel gate": {
        **DATA_ROUTER,
        "attention_distribution": "softmax",
        "attention_positions": "absolute-relative",
        "copy_gate_update": "tanh",
    },
    "rel": dict(attention_positions="transformer-xl", no_token_positional_embeddings=True),
}
MIXTURE = dict(attention_experts=4, attention_top_k=2, ffn_experts=3, ffn_top_k=2)
COMPOSITIONAL = dict(
    attention_kind="compositional", attention_retrievals=2, attention_retrieval_dim=4
)
# What holds for every kind of attention is tested with each of these.
ATTENTION_KINDS = {"dense": {}, "mixture": MIXTURE, "compositional": COMPOSITIONAL}


def dictionary(num_words: int = 9, prefix: str = "w") -> Dictionary:
    words = Dictionary()
    for number in range(num_words):
        words.add_symbol(f"{prefix}{number}")
    return words


def task(joined: bool = False) -> SimpleNamespace:
    """What a model reads of a fairseq task: dictionaries, of different sizes unless joined."""
    source = dictionary()
    return SimpleNamespace(
        source_dictionary=source,
        target_dictionary=source if joined else dictionary(7, "v"),
    )


def small_model(
    *, joined: bool = False, seed: int = 3, dtype: torch.dtype = torch.float64, **options: Any
) -> UniversalTransformerModel:
    """A model in evaluation mode; the halting units are random, so that tokens differ in depth."""
    torch.manual_seed(seed)
    config = replace(UniversalTransformerConfig(), **{**SMALL, **options})
    model = UniversalTransformerModel.build_model(config, task(joined))
    model = model.to(dtype).eval()
    for name, module in model.named_modules():
        if name.endswith(("halting", "positions")):
            randomise(module, seed, scale=1.0)
    return model


def lower_threshold(model: UniversalTransformerModel, alpha_threshold: float) -> None:
    """Change the threshold of a built model."""
    for stack in (model.encoder.stack, model.decoder.stack):
        if stack.halting.halts:
            stack.halting.alpha_threshold = alpha_threshold


def batch(
    source_lengths: tuple[int, ...] = (6, 2, 4),
    target_lengths: tuple[int, ...] = (3, 7, 5),
    seed: int = 0,
) -> dict[str, Tensor]:
    """Sources padded on the left and targets on the right, as fairseq collates them."""
    generator = torch.Generator().manual_seed(seed)
    words = dictionary()

    def sentences(lengths: tuple[int, ...], num_words: int, left: bool) -> Tensor:
        rows = torch.full((len(lengths), max(lengths)), words.pad())
        for row, length in zip(rows, lengths):
            tokens = torch.randint(
                words.nspecial, words.nspecial + num_words, (length,), generator=generator
            )
            if left:
                row[len(row) - length :] = tokens
            else:
                row[:length] = tokens
        return rows

    source = sentences(source_lengths, 9, left=True)
    target = sentences(target_lengths, 7, left=False)
    target[:, 0] = words.eos()
    return {
        "src_tokens": source,
        "src_lengths": torch.tensor(source_lengths),
        "prev_output_tokens": target,
    }


def padding(tokens: Tensor) -> Tensor:
    """True at padding."""
    return tokens.eq(dictionary().pad())


def sample_of(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """A fairseq batch whose target is the decoder's input, one token later."""
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    return {"net_input": inputs, "target": target, "ntokens": int((~padding(target)).sum())}
