"""The MACs counter against formulas, and against the figures in print."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from sut_fairseq.analysis import counting, untrained
from sut_fairseq.analysis.complexity import Complexity, count, without_padding
from sut_fairseq.analysis.counting import PRODUCTS, REPEATED
from sut_fairseq.cli.macs import main
from sut_fairseq.errors import InputError
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from tests.formulas import CFQ_T5, SUT_BASE, UT_BASE, Formula, Sizes
from tests.models import HALTING, MIXTURE, SMALL, lower_threshold, small_model

Report = dict[str, Any]


@functools.cache
def macs(arch: str, n: int = 10, m: int | None = 10, vocabulary: int = 37000) -> Report:
    """What `sut-macs --json` says; big models are built once for all tests."""
    output = io.StringIO()
    lengths = ["--src-len", n, "--vocab-size", vocabulary]
    lengths += [] if m is None else ["--tgt-len", m]
    with contextlib.redirect_stdout(output):
        assert main(["--arch", arch, *map(str, lengths), "--json"]) == 0
    report: Report = json.loads(output.getvalue())
    return report


@pytest.mark.parametrize(
    ("arch", "sizes"),
    [("sut_base", SUT_BASE), ("ut_base", UT_BASE), ("ut_cfq_t5", CFQ_T5)],
)
def test_presets_meet_the_formula(arch: str, sizes: Sizes) -> None:
    n, m, vocabulary = (13, 6, 100) if arch == "ut_cfq_t5" else (10, 10, 37000)
    found = macs(arch) if n == 10 else macs(arch, n, m, vocabulary)
    formula = Formula.without_halting(sizes, n, m, vocabulary)
    assert found["macs"] == formula.paper()
    assert found["macs_full"] == formula.full()
    assert found["by_part"]["projection"] == formula.projection()
    assert found["by_part"]["encoder"] == formula.stack(formula.source, 1)
    assert found.get("skipped", 0) == 0


@pytest.mark.parametrize(
    ("arch", "d", "hidden", "steps", "positions", "offsets"),
    [
        # Direction: two numbers of each state. Relative ones: offsets -9 to 9, projected, and the
        # gate of absolute ones, and the places 0 to 9 as well.
        ("ndr_ctl", 256, 512, 14, lambda d: 10 * (2 * d + 2), 0),
        ("ndr_ctl_rel_gate", 256, 512, 14, lambda d: 19 * d * d, 19),
        ("ndr_ctl_abs_rel_gate", 256, 512, 14, lambda d: 29 * d * d + 10 * (d + 1), 29),
    ],
)
def test_data_routers_meet_the_formula(
    arch: str,
    d: int,
    hidden: int,
    steps: int,
    positions: Callable[[int], int],
    offsets: int,
) -> None:
    found = macs(arch, 10, None, 20)
    feed_forward = 2 * d * hidden + hidden + d
    norms = 2 * d if arch == "ndr_ctl" else d  # tanh bounds the updates of the others
    per_token = 4 * d * d + feed_forward + (2 * d * d + 2 * d) + norms
    labels = 20 - 4
    expected = steps * (10 * per_token + positions(d)) + d * labels + labels
    assert found["macs"] == expected
    assert found["macs_full"] == expected + steps * 10 * d * (2 * 10 + offsets)
    assert found["by_kind"]["copy gates"] == steps * 10 * (2 * d * d + 2 * d)


@pytest.mark.parametrize(
    ("arch", "printed_macs", "printed_parameters"),
    [
        ("sut_base", 787, 66),
        ("sut_big", 787, 110),
        ("ut_base", 1998, 64),
        ("ut_big", 3707, 105),
    ],
)
def test_presets_meet_the_paper(arch: str, printed_macs: int, printed_parameters: int) -> None:
    found = macs(arch)
    assert found["macs"] == pytest.approx(printed_macs * 1e6, rel=0.01)
    assert found["params"] == pytest.approx(printed_parameters * 1e6, rel=0.015)
    kinds = found["by_kind"]
    assert sum(kinds.values()) - kinds[PRODUCTS] == found["macs"]
    assert sum(kinds.values()) - kinds[REPEATED] == found["macs_full"]
    assert sum(found["by_part"].values()) == found["macs"]


@pytest.mark.parametrize(("n", "m"), [(10, 10), (5, 3)])
def test_fairseq_transformer_meets_the_paper(n: int, m: int) -> None:
    """Counted by the same rules: 608M by the formula, 604M in print."""
    found = macs("transformer_wmt_en_de", n, m, vocabulary=32768)
    d, hidden = 512, 2048
    projection = d * d + d
    feed_forward = 2 * d * hidden + hidden + d
    layers = 6 * n * (4 * projection + feed_forward + 2 * d)
    layers += 6 * m * (4 * projection + feed_forward + 3 * d)
    layers += 6 * (2 * m + 2 * n) * projection  # queries and output, keys and values
    assert found["macs"] == layers + m * d * 32768
    if n == m == 10:
        assert found["macs"] == pytest.approx(604e6, rel=0.01)
    assert found["macs_full"] - found["macs"] == 6 * 2 * (n * n + m * m + n * m) * d


def tokens_run(model: UniversalTransformerModel, pair: dict[str, torch.Tensor]) -> list[list[int]]:
    """Number of tokens in each step of encoder and decoder, seen from outside of the counter."""
    runs: list[list[int]] = [[], []]
    for seen, side in zip(runs, (model.encoder, model.decoder)):

        def note(_: nn.Module, inputs: Any, seen: list[int] = seen) -> None:
            seen.append(len(inputs[0]))

        side.stack.block.register_forward_pre_hook(note)
    with torch.no_grad():
        model(**pair)
    return [seen + [0] * (SMALL["encoder_layers"] - len(seen)) for seen in runs]


@pytest.mark.parametrize("alpha_threshold", [1.0, 0.6, 0.3])
@pytest.mark.parametrize("kind", ["mixture", "dense pre-norm"])
def test_halting_saves_what_it_skips(kind: str, alpha_threshold: float) -> None:
    pre_norm = dict(encoder_normalize_before=True, decoder_normalize_before=True)
    model = small_model(**(MIXTURE if kind == "mixture" else pre_norm), **HALTING)
    lower_threshold(model, alpha_threshold)
    (pair,) = without_padding([(torch.arange(4, 11), torch.arange(4, 9))], eos=2)
    counted = count(model, [pair])
    source, target = tokens_run(model, pair)
    if alpha_threshold < 1:
        assert 0 < source[-1] < 7 or 0 < target[-1] < 5, "some tokens halt and some do not"
    sizes = Sizes(
        embed_dim=16,
        heads=2,
        head_dim=8,
        hidden=12,
        steps=4,
        experts=(4, 3) if kind == "mixture" else (1, 1),
        top_k=(2, 2) if kind == "mixture" else (1, 1),
        window=2,
        pre_norm=kind != "mixture",
    )
    formula = Formula(sizes, source, target, vocabulary=len(model.decoder.dictionary))
    assert counted.macs == formula.paper()
    assert counted.macs_full == formula.full()
    assert float(counted.halting["encoder"].steps_run) == sum(source)
    assert float(counted.halting["decoder"].steps_run) == sum(target)


def test_the_masked_layout_skips_only_experts() -> None:
    """Tokens that have halted stay in the list: all else is computed for them, too."""
    kinds = {}
    for layout, threshold in (("compact", 0.3), ("masked", 0.3), ("compact", 1.0)):
        model = small_model(**MIXTURE, **HALTING, token_layout=layout)
        lower_threshold(model, threshold)
        (pair,) = without_padding([(torch.arange(4, 11), torch.arange(4, 9))], eos=2)
        kinds[layout, threshold] = count(model, [pair]).by_kind
    halted, masked, whole = kinds.values()
    assert masked["feed-forward"] == halted["feed-forward"] < whole["feed-forward"]
    assert masked["routers"] == whole["routers"] > halted["routers"]


def test_batches_cost_what_their_sentences_cost_alone() -> None:
    model = small_model(**MIXTURE, **HALTING)
    lower_threshold(model, 0.5)
    torch.manual_seed(0)
    lengths = [(3, 4), (5, 2), (3, 4), (1, 1), (5, 2), (3, 4)]
    pairs = [(torch.randint(4, 11, (n,)), torch.randint(4, 11, (m,))) for n, m in lengths]
    together = count(model, without_padding(pairs, eos=2))
    alone = [count(model, without_padding([pair], eos=2)) for pair in pairs]

    def total(value: Callable[[Complexity], int]) -> int:
        return sum(value(one) for one in alone)

    assert together.sentences == total(lambda one: one.sentences) == 6
    assert together.source_tokens == sum(n for n, _ in lengths)
    assert together.macs == total(lambda one: one.macs)
    assert together.macs_full == total(lambda one: one.macs_full)
    for kind, found in together.by_kind.items():
        assert found == total(lambda one, kind=kind: one.by_kind[kind])
    skipped = [1 - float(h.steps_run / h.steps_possible) for h in together.halting.values()]
    assert all(0 < share < 1 for share in skipped)


def test_counting_leaves_the_model_as_it_was() -> None:
    model = small_model(**MIXTURE, **HALTING)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    (pair,) = without_padding([(torch.arange(4, 11), torch.arange(4, 9))], eos=2)
    first, second = count(model, [pair]), count(model, [pair])
    assert (first.macs, first.by_kind) == (second.macs, second.by_kind)
    assert not model.training
    assert not any(module._forward_hooks for module in model.modules())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_without_padding_groups_by_lengths() -> None:
    pairs = [(torch.full((n,), 5), torch.full((m,), 6)) for n, m in [(2, 3), (2, 2), (2, 3)] * 2]
    batches = list(without_padding(pairs, eos=2, max_tokens=6))
    assert [tuple(batch["prev_output_tokens"].shape) for batch in batches] == [
        (2, 2),
        (2, 3),
        (2, 3),
    ]
    assert all((batch["prev_output_tokens"][:, 0] == 2).all() for batch in batches)
    assert sum(batch["src_tokens"].numel() for batch in batches) == 12
    alone = list(without_padding(pairs, eos=2, max_tokens=1))
    assert [len(batch["src_lengths"]) for batch in alone] == [1] * 6


def test_a_failure_inside_ptflops_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model()
    (pair,) = without_padding([(torch.arange(4, 11), torch.tensor([4, 999, 2]))], eos=2)
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(InputError, match="count this model: IndexError: .*out of range"):
        count(model, [pair])
    assert [module.training for module in model.modules()] == modes
    assert capsys.readouterr() == ("", "")

    def fail(**_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(InputError, match="count this model: NotImplementedError.$"):
        count(model, [pair])

    monkeypatch.setattr(counting, "get_model_complexity_info", lambda *_, **__: (None, None))
    assert main(["--arch", "sut_tiny", "--vocab-size", "24"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("sut-macs: error: ptflops could not count this model")
    assert len(errors.splitlines()) == 1


def test_tied_parameters_count_once() -> None:
    tied = small_model(joined=True, share_all_embeddings=True)
    (pair,) = without_padding([(torch.tensor([4, 2]), torch.tensor([4, 2]))], eos=2)
    assert count(tied, [pair]).params == sum(p.numel() for p in nn.Module.parameters(tied))
    untied = small_model(joined=True)
    words = 2 * len(untied.encoder.dictionary) * SMALL["encoder_embed_dim"]
    assert count(untied, [pair]).params - count(tied, [pair]).params == words


def test_what_the_hooks_do_not_see_is_refused() -> None:
    """A count without convolutions, or without half of the keys, would look like a whole one."""
    for arch in ("lightconv", "fconv", "fconv_lm", "lstm_lm", "roberta_base", "s2t_transformer"):
        with pytest.raises(InputError, match="has layers that are not counted here; `sut-macs`"):
            untrained.build(arch, 9)
    flags = ["--cross-self-attention", "--no-cross-attention", "--encoder-layers", "1"]
    model, task = untrained.build("transformer", 9, flags)
    batch = untrained.random_batch(model, task, src_len=3, tgt_len=2)
    with pytest.raises(InputError, match="--cross-self-attention is not counted"):
        count(model, [batch])


def test_steps_of_training() -> None:
    """A model that runs fewer steps in training is counted with as many as asked."""
    flags = ["--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "8", "--encoder-layers", "9"]
    flags += ["--training-steps-beyond-length", "1"]
    model, task = untrained.build("ndr_ctl_transformer", 9, flags)
    batch = untrained.random_batch(model, task, src_len=4, tgt_len=2)
    projection = 5 * (8 + 1)
    ever, training = (
        count(model, [batch], training=one).macs - projection for one in (False, True)
    )
    assert ever * 5 == training * 9
