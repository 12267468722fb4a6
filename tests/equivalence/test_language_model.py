"""Language models: the decoder's depth loop without an encoder."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.errors import InputError
from sut_fairseq.models.language_model import (
    LANGUAGE_MODELS,
    LanguageModelConfig,
    UniversalTransformerLanguageModel,
)
from tests.comparison import randomise
from tests.models import ATTENTION_KINDS, HALTING, MIXTURE, NDR, SMALL, dictionary

# But for those that say where cross-attention looks, of which a language model has none.
KINDS = {
    name: kind for name, kind in {**ATTENTION_KINDS, **NDR}.items() if "cross_attention" not in kind
}
WORDS = dictionary()


def language_model(seed: int = 3, **options: Any) -> UniversalTransformerLanguageModel:
    """In evaluation mode, float64; the halting unit is random, so that tokens differ in depth."""
    torch.manual_seed(seed)
    limits = dict(max_target_positions=40, tokens_per_sample=40)
    config = replace(LanguageModelConfig(), **{**SMALL, **limits, **options})
    task = SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS)
    model = UniversalTransformerLanguageModel.build_model(config, task).double().eval()
    for name, module in model.named_modules():
        if name.endswith(("halting", "positions")):
            randomise(module, seed, scale=1.0)
    return model


def texts(lengths: tuple[int, ...] = (7, 3, 5), seed: int = 0) -> Tensor:
    """Padded on the right; each begins with the end of the one before."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), WORDS.pad())
    for row, length in zip(rows, lengths):
        row[:length] = torch.randint(WORDS.nspecial, len(WORDS), (length,), generator=generator)
    rows[:, 0] = WORDS.eos()
    return rows


@pytest.mark.parametrize("halting", [{}, HALTING], ids=["none", "stick"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_one_token_at_a_time(kind: dict[str, Any], halting: dict[str, Any]) -> None:
    """With beams that are repeated, swapped and dropped on the way."""
    model = language_model(**kind, **halting, alpha_threshold=0.5)
    tokens, state = texts(), {}
    for end in range(1, tokens.shape[1] + 1):
        order = {3: [0, 0, 1, 2], 5: [2, 1, 0], 6: [1]}.get(end)
        if order is not None:
            model.decoder.reorder_incremental_state(state, torch.tensor(order))
            tokens = tokens[order]
        new, _ = model.decoder(tokens[:, :end], incremental_state=state)
        full, _ = model(tokens[:, :end])
        real = tokens[:, end - 1].ne(WORDS.pad())
        torch.testing.assert_close(new[real, 0], full[real, -1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@torch.no_grad()
def test_neither_later_tokens_nor_other_texts_change_anything(kind: dict[str, Any]) -> None:
    model = language_model(**kind, **HALTING, alpha_threshold=0.5)
    tokens = texts()
    scores, extra = model(tokens)
    assert not extra["halting"].keys() - {"decoder"} and extra["attn"] is None
    for row, length in enumerate((7, 3, 5)):
        for end in range(1, length + 1):
            alone, _ = model(tokens[row : row + 1, :end])
            torch.testing.assert_close(alone[0], scores[row, :end], rtol=1e-10, atol=1e-10)


def test_the_objective_and_all_gradients() -> None:
    """Auxiliary losses count; the exact match of a text means nothing and is not logged."""
    task = SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS)
    weights = {"mutual_information": 0.1, "expected_depth": 0.1}
    criterion = CrossEntropyWithAuxiliaryCriterion(task, False, 0.0, weights=weights)
    model = language_model(**MIXTURE, **HALTING)
    tokens = texts()
    sample = {
        "net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([7, 3, 5])},
        "target": tokens.roll(-1, dims=1),
        "ntokens": int(tokens.ne(WORDS.pad()).sum()),
    }
    loss, _, log = criterion.eval()(model, sample)
    assert {"mutual_information_loss", "expected_depth_loss"} <= log.keys()
    assert not any("exact_match" in key for key in log)
    plain = criterion.compute_loss(model, model(tokens), sample)[0]
    assert loss.item() != pytest.approx(plain.item())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@torch.no_grad()
def test_beam_search_finds_what_scoring_says() -> None:
    """fairseq's generator continues a prefix; each hypothesis has the score of a full pass."""
    model = language_model(**KINDS["compositional"], **HALTING, alpha_threshold=0.5)
    prefix = texts((3, 3))
    generator = SequenceGenerator([model], WORDS, beam_size=3, max_len_a=0, max_len_b=8)
    sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([3, 3])}}
    found = generator.generate([model], sample, prefix_tokens=prefix[:, 1:], bos_token=WORDS.eos())
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 3
        for one in hypotheses:
            tokens = one["tokens"]
            assert tokens[:2].tolist() == prefix[row, 1:].tolist()
            read = torch.cat([prefix[row, :1], tokens[:-1]])
            scores = model(read.unsqueeze(0))[0].log_softmax(dim=-1)[0]
            expected = scores.gather(1, tokens.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(one["positional_scores"], expected.float())


@pytest.mark.parametrize("option", ["share_decoder_input_output_embed", "share_all_embeddings"])
def test_embeddings(option: str) -> None:
    """A language model reads one text, so that both options tie the same two matrices."""
    shared = language_model(**{option: True})
    assert shared.decoder.output_projection.weight is shared.decoder.embedding.tokens.weight
    assert "decoder.stack.block.cross_attention.query.weight" not in shared.state_dict()
    own = language_model(**{option: True}, separate_embeddings=True)
    assert own.decoder.output_projection.weight is not own.decoder.embedding.tokens.weight
    task = SimpleNamespace(source_dictionary=WORDS, target_dictionary=dictionary(4))
    config = replace(
        LanguageModelConfig(),
        **{**SMALL, "tokens_per_sample": 9, "max_target_positions": None, option: True},
    )
    sentence = f"^`{option}` needs one dictionary, but --output-dictionary-size makes another one"
    with pytest.raises(InputError, match=sentence):
        UniversalTransformerLanguageModel.build_model(config, task)
    config.separate_embeddings = True
    assert UniversalTransformerLanguageModel.build_model(config, task).max_positions() == 9


def test_an_output_projection_of_its_own() -> None:
    """It starts with the variance of a tied one, and texts have the length that is given."""
    model = language_model(encoder_embed_dim=256, tokens_per_sample=50, decoder_layers=1)
    weight = model.decoder.output_projection.weight.detach()
    assert float(weight.std()) == pytest.approx(256**-0.5, rel=0.1)
    assert model.max_positions() == 40


@pytest.mark.parametrize("others", [["past"], ["self"], ["past", "self"]])
def test_it_predicts_the_next_token_alone(others: list[str]) -> None:
    targets = ["future", *others]
    task = SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS, targets=targets)
    flags = " and ".join(f"--{name}-target" for name in others)
    with pytest.raises(InputError, match=f"predicts the next token of a text only: leave {flags}"):
        UniversalTransformerLanguageModel.build_model(LanguageModelConfig(), task)


def test_the_two_presets_differ_in_attention_alone() -> None:
    ours, twin = LANGUAGE_MODELS["compositional_lm"], LANGUAGE_MODELS["ut_lm"]
    assert {name for name in ours if ours[name] != twin.get(name)} == {
        *("attention_kind", "attention_retrievals", "attention_retrieval_dim"),
    }
    sizes = {}
    for name, preset in (("ut", twin), ("compositional", ours)):
        model = language_model(**{**preset, "decoder_layers": 1})
        sizes[name] = sum(p.numel() for p in model.parameters())
    # Retrieval queries of 8 searches, and the one matrix of retrieval keys.
    assert sizes["compositional"] - sizes["ut"] == 512 * 8 * 32 + 64 * 32


def test_a_checkpoint_of_two_matrices_fits_no_model_that_shares_them() -> None:
    """One of them would replace the other, and every score would be wrong."""
    separate, shared = language_model(), language_model(share_all_embeddings=True)
    with pytest.raises(InputError, match=r"`decoder\.embedding\.tokens\.weight` and `decoder\.out"):
        shared.load_state_dict(separate.state_dict())
    separate.load_state_dict(shared.state_dict())
    with torch.no_grad():
        shared.decoder.output_projection.weight[0] = torch.nan  # what a diverged training left
    shared.load_state_dict(
        {
            name: value.clone()
            for name, value in shared.state_dict().items()
            if isinstance(value, Tensor)
        },
        strict=False,
    )
