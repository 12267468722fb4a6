"""Small fairseq models and batches for the tests."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from sut_fairseq.models import _kinds
from sut_fairseq.models._attenders import ATTENDERS
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models.architectures import DATA_ROUTER
from sut_fairseq.models.encoder_classifier import EncoderClassifier, EncoderClassifierConfig
from sut_fairseq.models.recurrent_translation import (
    RecurrentTranslationConfig,
    RecurrentTranslationModel,
)
from sut_fairseq.models.retrieval_network import (
    ContextualRetrievalModel,
    ContextualRetrievalModelConfig,
)
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from sut_fairseq.tasks.labels import LabelTaskConfig
from sut_fairseq.tasks.sequence_classification import SequenceClassificationTask
from tests.comparison import randomise

Model = TypeVar("Model", bound=nn.Module)

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
MIXTURE = dict(attention_experts=4, attention_top_k=2, ffn_experts=3, ffn_top_k=2)
COMPOSITIONAL = dict(
    attention_kind="compositional", attention_retrievals=2, attention_retrieval_dim=4
)
# Seeds with which tokens differ in depth.
LOCATION, MIX = (
    dict(cross_attention=name, location_hidden_size=8, seed=7) for name in ("location", "mix")
)
NDR = {
    "ndr": DATA_ROUTER,
    "mixtures of ndr": {**DATA_ROUTER, "attention_experts": 4, "attention_top_k": 2},
    "compositional ndr": {**DATA_ROUTER, **COMPOSITIONAL},
    "mix ndr": {**DATA_ROUTER, **MIX},
    "abs/rel gate": {
        **DATA_ROUTER,
        "attention_distribution": "softmax",
        "attention_positions": "absolute-relative",
        "copy_gate_update": "tanh",
    },
    "rel": dict(attention_positions="transformer-xl", no_token_positional_embeddings=True),
}
# What holds for every kind of attention is tested with each of these.
ATTENTION_KINDS = {
    "dense": {},
    "mixture": MIXTURE,
    "compositional": COMPOSITIONAL,
    "own values": dict(
        COMPOSITIONAL,
        attention_value_matrices="own",
        attention_value_scores="linear",
        attention_value_dim=3,
        attention_biases="all",
        attention_distribution="others",
        seed=5,
    ),
    "location": LOCATION,
    "mix of compositional": {**COMPOSITIONAL, **MIX},
}


def configurations() -> dict[str, dict[str, Any]]:
    """Options of a model for each kind of each axis, and of further models named in this file.

    The kinds are read from the lists in `_kinds`, so that new ones are included. Options that give
    the same model as earlier ones are left out.
    """
    sut = {**MIXTURE, **HALTING}
    dense = dict(sut, attention_experts=1, attention_top_k=1)

    def both(option: str, name: str) -> dict[str, Any]:
        return {f"{side}_{option}": name for side in ("encoder", "decoder")}

    named = {
        **{f"{name} positions": dict(sut, attention_positions=name) for name in _kinds.POSITIONS},
        **{f"{n} weights": dict(sut, attention_distribution=n) for n in _kinds.DISTRIBUTIONS},
        **{
            f"{name} attention": dict(
                sut if name in ("auto", "mixture") else dense, attention_kind=name
            )
            for name in _kinds.ATTENTION
        },
        **{
            f"{name} feed-forward": {
                **sut,
                "feed_forward_kind": name,
                **(dict(ffn_experts=1, ffn_top_k=1) if name == "dense" else {}),
            }
            for name in _kinds.FEED_FORWARD
        },
        **{
            f"{name} cross-attention": dict(
                sut if name == "content" else dense, cross_attention=name, location_hidden_size=8
            )
            for name in _kinds.CROSS_ATTENTION
        },
        **{f"{name} halting": {**MIXTURE, **both("halting", name)} for name in _kinds.HALTING},
        **{f"{name} block": {**sut, **both("block", name)} for name in _kinds.BLOCKS},
        **NDR,
        "dense": {},
        "pre-norm": dict(sut, encoder_normalize_before=True, decoder_normalize_before=True),
        "sampled experts": dict(sut, router_sample=True),
        "checkpointed": dict(sut, checkpoint_activations=True),
    }
    defaults = vars(UniversalTransformerConfig())
    first = {str(sorted({**defaults, **named[n]}.items())): n for n in reversed(named)}
    return {name: options for name, options in named.items() if name in first.values()}


def dictionary(num_words: int = 9, prefix: str = "w") -> Dictionary:
    words = Dictionary()
    for number in range(num_words):
        words.add_symbol(f"{prefix}{number}")
    return words


def classification_task() -> SequenceClassificationTask:
    """A task with words as sources and five labels."""
    return SequenceClassificationTask(LabelTaskConfig(), dictionary(), dictionary(5, "v"))


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
    return _randomly_halting(model.to(dtype).eval(), seed)


def small_classifier(
    *, seed: int = 3, dtype: torch.dtype = torch.float64, **options: Any
) -> EncoderClassifier:
    """The same as a classifier of whole sentences."""
    torch.manual_seed(seed)
    config = replace(EncoderClassifierConfig(), **{**SMALL, **options})
    model = EncoderClassifier.build_model(config, classification_task())
    return _randomly_halting(model.to(dtype).eval(), seed)


def _randomly_halting(model: Model, seed: int) -> Model:
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


SMALL_RECURRENT = dict(
    encoder_embed_dim=8,
    encoder_hidden_size=12,
    location_hidden_size=6,
    dropout=0.0,
    max_source_positions=40,
    max_target_positions=40,
)
# Every attender, and both kinds of decoders with and without a stop gate.
RECURRENT_KINDS = {
    **{name: dict(attender=name) for name in ATTENDERS},
    "mix, attend before": dict(attender="mix", attend="before"),
    "mix, stop gate": dict(attender="mix", stop_gate=True),
    "location, attend before, stop gate": dict(
        attender="location", attend="before", stop_gate=True
    ),
}


def small_recurrent(
    *, joined: bool = False, seed: int = 3, dtype: torch.dtype = torch.float64, **options: Any
) -> RecurrentTranslationModel:
    """A recurrent model in evaluation mode, with random weights."""
    config = replace(RecurrentTranslationConfig(), **{**SMALL_RECURRENT, **options})
    model = RecurrentTranslationModel.build_model(config, task(joined)).to(dtype).eval()
    randomise(model, seed)
    return model


RETRIEVAL_FEATURES = 14  # of an object of the task by default


def small_retriever(
    *, seed: int = 3, dtype: torch.dtype = torch.float64, **options: Any
) -> ContextualRetrievalModel:
    """A model of the contextual retrieval task, in evaluation mode."""
    torch.manual_seed(seed)
    config = ContextualRetrievalModelConfig(**{"encoder_embed_dim": 16, **options})
    features = SimpleNamespace(num_features=RETRIEVAL_FEATURES)
    return ContextualRetrievalModel.build_model(config, features).to(dtype).eval()
