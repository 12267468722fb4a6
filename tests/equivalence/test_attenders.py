"""Attenders, encoder and decoders of a recurrent model against their equations as plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sut_fairseq.models._attenders import ATTENDERS
from sut_fairseq.models.recurrent_translation import DECODERS, RecurrentTranslationConfig
from sut_fairseq.modules.attention.distributions.gaze import GazeState, MovingGaze, Sentences
from sut_fairseq.modules.location import Places, Weighter, leaky_clamp, look_along, soft_staircase
from sut_fairseq.modules.recurrent.attenders.interface import Attender, Source
from sut_fairseq.modules.recurrent.gru import GRUEncoder
from sut_fairseq.modules.recurrent.stop_gate import StopGate
from tests import reference_location as reference
from tests.comparison import assert_agree, normal, randomise

INPUT_DIM, HIDDEN_DIM, WIDTH = 3, 4, 5
LENGTHS = torch.tensor([6, 1, 4])
CONFIG = RecurrentTranslationConfig(encoder_hidden_size=HIDDEN_DIM, location_hidden_size=3)
DECODING = {"after": reference.decode_after, "before": reference.decode_before}


def build(name: str, seed: int = 1) -> Attender:
    attender = ATTENDERS.builder("attender", name)(CONFIG).double()
    # Scaled so that gazes end up in all places, beyond the sentence too.
    return randomise(attender, seed, scale=1.0)


def tensor(rows: Any) -> Tensor:
    return torch.stack([torch.stack(list(row)) for row in rows])


@pytest.mark.parametrize("name", list(ATTENDERS))
def test_weights_are_the_equations(name: str) -> None:
    attender = build(name)
    queries = normal(len(LENGTHS), WIDTH, HIDDEN_DIM)
    states = normal(len(LENGTHS), 6, HIDDEN_DIM, seed=1)
    source = Source(states, LENGTHS)
    weights, state = attender(queries, source, attender.start(source))
    assert state.place == WIDTH
    parameters = dict(attender.named_parameters())
    ours, theirs = {}, {}
    for row, length in enumerate(LENGTHS.tolist()):
        ours[str(row)] = weights[row, :, :length]
        theirs[str(row)] = tensor(
            reference.attention(name, parameters, queries[row], states[row, :length])
        )
        assert not weights[row, :, length:].any()
    variables: dict[str, Tensor] = {**parameters, "queries": queries}
    if name != "location":
        variables["states"] = states
    assert_agree(ours, theirs, variables)


@pytest.mark.parametrize("name", list(ATTENDERS))
@pytest.mark.parametrize("chunks", [(1,) * WIDTH, (2, 3)])
def test_state_is_handed_on(name: str, chunks: tuple[int, ...]) -> None:
    """Queries one after the other see what all of them together see; rows may change places."""
    attender = build(name)
    queries = normal(len(LENGTHS), WIDTH, HIDDEN_DIM).detach()
    source = Source(normal(len(LENGTHS), 6, HIDDEN_DIM, seed=1).detach(), LENGTHS)
    together, _ = attender(queries, source, attender.start(source))
    state, end = attender.start(source), 0
    order = torch.arange(len(LENGTHS))
    for number, width in enumerate(chunks):
        rows = torch.tensor([2, 0, 1] if number % 2 else [1, 1, 0, 2][: len(order)])
        order = order[rows]
        state = state.select(rows)
        mine = Source(source.states[order], LENGTHS[order])
        weights, state = attender(queries[order, end : end + width], mine, state)
        expected = together[order, end : end + width]
        torch.testing.assert_close(weights, expected, rtol=1e-12, atol=1e-12)
        end += width


@pytest.mark.parametrize("name", list(ATTENDERS))
def test_padding_changes_nothing(name: str) -> None:
    attender = build(name)
    queries = normal(len(LENGTHS), WIDTH, HIDDEN_DIM).detach()
    states = normal(len(LENGTHS), 6, HIDDEN_DIM, seed=1).detach()
    results = []
    for garbage in (0.0, 1e3):
        padded = torch.nn.functional.pad(states, (0, 0, 0, 3))
        for row, length in enumerate(LENGTHS.tolist()):
            padded[row, length:] = garbage
        source = Source(padded, LENGTHS)
        results.append(attender(queries, source, attender.start(source))[0])
    assert torch.equal(*results)
    torch.testing.assert_close(results[0].sum(-1), torch.ones(len(LENGTHS), WIDTH).double())


@pytest.mark.parametrize("name", list(DECODERS))
@pytest.mark.parametrize("attender", list(ATTENDERS))
def test_encoder_and_decoder_are_the_equations(attender: str, name: str) -> None:
    encoder = randomise(GRUEncoder(INPUT_DIM, HIDDEN_DIM).double(), 2)
    build_decoder = DECODERS.builder("attend", name)
    decoder = build_decoder(build(attender), INPUT_DIM, HIDDEN_DIM, HIDDEN_DIM, dropout=0.0)
    randomise(decoder.double(), 7)
    words, tokens = normal(3, 4, INPUT_DIM), normal(3, 3, INPUT_DIM, seed=1)
    lengths = torch.tensor([4, 1, 3])
    states, final = encoder(words, lengths)
    source = Source(states, lengths)
    outputs, _, _ = decoder(tokens, source, decoder.start(final, source))
    ours, theirs = {}, {}
    for row, length in enumerate(lengths.tolist()):
        own, last = reference.encode(
            dict(encoder.named_parameters()), words[row, :length], HIDDEN_DIM
        )
        ours[str(row)] = outputs[row]
        theirs[str(row)] = tensor(
            DECODING[name](attender, dict(decoder.named_parameters()), tokens[row], own, last)
        )
    variables = {f"encoder.{key}": x for key, x in encoder.named_parameters()}
    variables |= {f"decoder.{key}": x for key, x in decoder.named_parameters()}
    assert_agree(ours, theirs, {**variables, "words": words, "tokens": tokens})


@pytest.mark.parametrize("chunks", [(WIDTH,), (1,) * WIDTH, (2, 3)])
@pytest.mark.parametrize("mixes", [False, True])
def test_the_gaze_of_each_head_is_the_equations(mixes: bool, chunks: tuple[int, ...]) -> None:
    """In cross-attention; a query that takes no step is skipped, as if it were not there."""
    gaze = randomise(MovingGaze(HIDDEN_DIM, 3, mixes=mixes).double(), 1, scale=1.0)
    num_heads, num_keys = 2, int(LENGTHS.max())
    queries = normal(len(LENGTHS), num_heads, WIDTH, HIDDEN_DIM)
    scores = normal(len(LENGTHS), num_heads, WIDTH, 1, num_keys, seed=1)
    padding = torch.arange(num_keys) < num_keys - LENGTHS.unsqueeze(1)  # on the left
    taken = torch.ones(len(LENGTHS), WIDTH, dtype=torch.bool)
    taken[0, 1] = taken[2, 3] = False
    state = GazeState()
    pieces, end = [], 0
    for width in chunks:
        own = slice(end, end + width)
        sentences = Sentences(queries[:, :, own], taken[:, own], False, state, None, len(LENGTHS))
        pieces.append(gaze(sentences, scores[:, :, own], num_keys, padding))
        end += width
        assert state.hidden is not None and state.hidden.is_contiguous(), "cuDNN wants it so"
    weights = torch.cat(pieces, dim=2).squeeze(3)
    parameters = dict(gaze.named_parameters())
    ours, theirs = {}, {}
    for row, length in enumerate(LENGTHS.tolist()):
        for head in range(num_heads):
            steps = taken[row]
            own = list(queries[row, head, steps])
            content = shares = None
            if mixes:
                matches = scores[row, head, steps, 0, num_keys - length :]
                content = [reference.softmax(list(line)) for line in matches]
                share = [reference.linear(parameters, "location_share", list(q)) for q in own]
                shares = [torch.sigmoid(x) for (x,) in share]
            found = reference.location_attention(
                reference.part(parameters, "weighter"), own, length, content, shares
            )
            ours[f"{row} {head}"] = weights[row, head, steps, num_keys - length :]
            theirs[f"{row} {head}"] = tensor(found)
            assert not weights[row, head, steps, : num_keys - length].any()
    variables = {**parameters, "queries": queries}
    if mixes:
        variables["scores"] = scores
    assert_agree(ours, theirs, variables)


def test_stairs_and_clamp() -> None:
    x = torch.tensor([-1.5, -0.3, 0.0, 0.5, 0.9, 1.0, 2.4], dtype=torch.float64)
    stairs = soft_staircase(x)
    torch.testing.assert_close(
        stairs, torch.tensor([-1.5, 0.0, 0.0, 0.5, 1.0, 1.0, 2.12]).double(), atol=0.03, rtol=0
    )
    clamped = leaky_clamp(x)
    torch.testing.assert_close(
        clamped, torch.tensor([-0.015, -0.003, 0, 0.5, 0.9, 1, 1.014]).double()
    )


@pytest.mark.parametrize("length", [2, 6])
def test_at_first_the_gaze_goes_from_word_to_word(length: int) -> None:
    """What a new weighter starts with: its biases, before queries have a say."""
    torch.manual_seed(1)
    weighter = Weighter(HIDDEN_DIM, 3)
    torch.nn.init.zeros_(weighter.blocks.weight)
    gaze, _ = weighter(torch.randn(1, length, HIDDEN_DIM), torch.zeros(1, 3))
    places = Places.of(torch.tensor([float(length)]), torch.arange(length).unsqueeze(0), None)
    looked = look_along(gaze, places, places.outset)
    expected = torch.arange(length).float().unsqueeze(0)
    torch.testing.assert_close(looked.centre / places.step, expected, rtol=0, atol=0.2)


def test_half_precision_misses_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast does not round the gaze: after 200 queries it rests where it does in float32."""
    width, size = 200, 16
    torch.manual_seed(1)
    weighter, queries = Weighter(size, size), torch.randn(4, width, size)
    # Autocast does round the GRU, here as anywhere.
    omega = torch.randn(4, width, size).tanh()
    monkeypatch.setattr(weighter.gru, "forward", lambda *_: (omega, None))
    places = Places.of(torch.full((4,), float(width)), torch.arange(width).unsqueeze(0), None)

    def centres(autocast: bool) -> Tensor:
        """In words."""
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            gaze, _ = weighter(queries, torch.zeros(4, size))
        return look_along(gaze, places, places.outset.expand(4)).centre / places.step

    torch.testing.assert_close(centres(True), centres(False), rtol=0, atol=1e-3)


def test_the_share_of_location_is_not_rounded() -> None:
    """In bfloat16 the sigmoid of 6, 0.9975, is 0.9961 or 1: content counts half as much again."""
    seen: dict[str, Tensor] = {}
    attender = ATTENDERS.builder("attender", "mix")(CONFIG)
    heads = MovingGaze(HIDDEN_DIM, 3, mixes=True)
    for module in (attender, heads):
        torch.nn.init.zeros_(module.location_share.weight)
        torch.nn.init.constant_(module.location_share.bias, 6.0)
        module.bfloat16()
    queries = torch.randn(1, 2, HIDDEN_DIM, dtype=torch.bfloat16)
    source = Source(queries, torch.tensor([2]))
    expected = torch.full((1, 2), 6.0).sigmoid()
    look = seen.__setitem__
    attender(queries, source, attender.start(source), look)
    torch.testing.assert_close(seen["location_share"], expected)
    scores = torch.zeros(1, 1, 2, 1, 2, dtype=torch.bfloat16)
    heads(Sentences(queries.unsqueeze(1), None, True, None, None, 1), scores, 2, None, look)
    torch.testing.assert_close(seen["location_share"], expected.unsqueeze(1))


def test_the_stop_gate_sees_only_where_attention_rests() -> None:
    gate = StopGate(end=2).double()
    scores, rested = normal(2, 3, 5), normal(2, 4, 4, seed=1)
    weights = rested.softmax(-1)
    lengths = torch.tensor([4, 1])
    # It starts as the attention on the last word.
    last = torch.stack([weights[0, 1:, 3], weights[1, 1:, 0]])
    probabilities = gate(scores, weights, lengths).exp()
    torch.testing.assert_close(probabilities[..., 2], last)
    with torch.no_grad():
        gate.scale.copy_(torch.tensor([0.7, -0.4, 1.3]))
        gate.shift.fill_(0.2)
    log_probabilities = gate(scores, weights, lengths)
    probabilities = log_probabilities.exp()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 3).double())
    for sentence, length in enumerate(lengths.tolist()):
        for token in range(3):
            before, now = weights[sentence, token].tolist(), weights[sentence, token + 1].tolist()
            rests = (now[length - 1], before[length - 1], before[max(length - 2, 0)])
            evidence = [math.log(m / (1 - m)) for m in rests]
            log_odds = 0.7 * evidence[0] - 0.4 * evidence[1] + 1.3 * evidence[2] + 0.2
            expected = 1 / (1 + math.exp(-log_odds))
            assert float(probabilities[sentence, token, 2]) == pytest.approx(expected, rel=1e-6)
    # Scores, the end token's among them, decide about the others alone.
    others = scores[..., [0, 1, 3, 4]].softmax(-1) * (1 - probabilities[..., 2:3])
    torch.testing.assert_close(probabilities[..., [0, 1, 3, 4]], others)
    (gradient,) = torch.autograd.grad(log_probabilities[..., 2].sum(), scores, retain_graph=True)
    assert not gradient.any()
    log_probabilities.square().sum().backward()
    for parameter in gate.parameters():
        assert parameter.grad is not None and parameter.grad.all()
    assert rested.grad is None  # the end does not shape the attention


def test_the_stop_gate_where_attention_is_certain() -> None:
    """Log-probabilities and gradients stay finite where no attention, or all of it, rests there."""
    gate = StopGate(end=0)
    weights = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    scores = torch.zeros(1, 2, 3, requires_grad=True)
    result = gate(scores, weights, torch.tensor([2]))
    assert result.isfinite().all()
    result.sum().backward()
    for variable in (scores, *gate.parameters()):
        assert variable.grad is not None and variable.grad.isfinite().all()
