"""A new kind is a module and a line in the list of its axis: shown by kinds made up here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from torch import Tensor, nn

from sut_fairseq import losses
from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.depth import check_uses_threshold, set_threshold, threshold_of
from sut_fairseq.criterions import cross_entropy_with_auxiliary as auxiliary_criterion
from sut_fairseq.errors import InputError
from sut_fairseq.models import _attenders, _kinds
from sut_fairseq.models._axis import Kind
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models.kinds import AXES, register_kind
from sut_fairseq.models.language_model import LanguageModelConfig, UniversalTransformerLanguageModel
from sut_fairseq.models.retrieval_network import (
    ContextualRetrievalModel,
    ContextualRetrievalModelConfig,
)
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.distributions.others import OthersSoftmax
from sut_fairseq.modules.attention.distributions.softmax import Softmax
from sut_fairseq.modules.attention.interface import Attention, Memory
from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, scaled_products
from sut_fairseq.modules.attention.retrieve import Retrieve
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import RouterCalls
from tests.equivalence.test_incremental import assert_beams_equal_full_passes
from tests.models import (
    SMALL,
    batch,
    sample_of,
    small_classifier,
    small_model,
    small_recurrent,
    task,
)


class SharedValue(Retrieve):
    """Every head of the weights sums up one and the same value."""

    fuses: ClassVar[bool] = False

    def __call__(self, weights: Tensor, values: Tensor) -> Tensor:
        return torch.einsum("bhqkj,bjd->bhqkd", weights, values[:, 0])

    def products_per_key(self, values: Tensor) -> int:
        return values.shape[3]


class MultiQueryAttention(Attention):
    """Two heads of keys, one value of another size: keys and values differ in both."""

    def __init__(self, core: AttentionCore, embed_dim: int, source_dim: int) -> None:
        super().__init__()
        self.core = core
        self.query = nn.Linear(embed_dim, 2 * 8)
        self.key = nn.Linear(source_dim, 2 * 8)
        self.value = nn.Linear(source_dim, 5)
        self.output = nn.Linear(2 * 5, embed_dim)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.key(states).unflatten(1, (2, 8)), self.value(states).unsqueeze(1)

    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, None]:
        queries = self.query(states).view(-1, 1, 2, 8)
        context = self.core(queries, tokens, memory, states, look)
        return self.output(context.flatten(1)), None


def build_multi_query(config: Any, side: Any, core: AttentionCore, source_dim: int) -> Attention:
    core.retrieve = SharedValue()
    return MultiQueryAttention(core, side.embed_dim, source_dim)


class Squared(Distribution):
    """Weights in proportion to the squares of the scores."""

    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor | None) -> Tensor:
        squares = scores.square() + 1e-9
        if visible is not None:
            squares = squares * visible[:, None, :, None]
        return squares / squares.sum(dim=-1, keepdim=True).clamp(min=1e-9)


class Distance(Scores):
    """Content less the distance."""

    def forward(self, pairing: Pairing) -> Tensor:
        assert pairing.positions is not None
        keys = torch.arange(pairing.keys.shape[2])
        distance = (keys - pairing.positions.unsqueeze(-1)).abs()
        return scaled_products(pairing.queries, pairing.keys) - distance[:, None, :, None]


class ScaledByExperts(FeedForward):
    """y = sum over the chosen experts of g(e|h) v_e W h, elementwise."""

    def __init__(self, router: Router, embed_dim: int) -> None:
        super().__init__()
        self.router = router
        self.scales = nn.Parameter(torch.rand(router.num_experts, embed_dim))
        self.layer = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, states: Tensor, *others: Any) -> tuple[Tensor, RouterCalls]:
        call_weights, _, look = others
        routing = self.router(states, call_weights)
        routing.show(look)
        scales = self.scales[routing.expert_indices] * routing.expert_weights.unsqueeze(-1)
        return self.layer(states) * scales.sum(dim=1), routing.calls


def build_scaled(config: Any, side: Any, activation: Any) -> FeedForward:
    router = Router(side.embed_dim, config.ffn_experts, config.ffn_top_k)
    return ScaledByExperts(router, side.embed_dim)


class CountDown(NamedTuple):
    """How many steps each token has left."""

    left: Tensor

    @property
    def remaining(self) -> Tensor:
        return (self.left > 0).to(self.left)

    @property
    def remainder(self) -> Tensor:
        return torch.zeros_like(self.left)

    def select(self, chosen: Tensor) -> CountDown:
        return CountDown(self.left[chosen])


class TwoSteps(Halting[CountDown]):
    """Every token stops after two steps."""

    shows_read_out: ClassVar[bool] = True
    num_steps = 2.0

    def start(self, hidden: Tensor) -> CountDown:
        return CountDown(hidden.new_full(hidden.shape[:1], self.num_steps))

    def advance(self, hidden: Tensor, state: CountDown) -> CountDown:
        return CountDown(state.left - 1)

    def computed(self, state: CountDown, tokens: ActiveTokens, decoding: bool) -> Tensor:
        return state.left > 0

    def read_out(self, hidden: Tensor, state: CountDown) -> Tensor:
        return hidden

    def call_weights(self, state: CountDown) -> None:
        return None

    def never_halt(self) -> None:
        self.num_steps = torch.inf


@pytest.fixture
def same_help_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """`register_kind` changes the helps of options."""
    for options in MODEL_DATACLASS_REGISTRY.values():
        for option in fields(options):
            monkeypatch.setattr(option, "metadata", option.metadata)


def assert_trains_and_decodes(**options: Any) -> Any:
    """Every parameter gets a gradient, and decoding step by step equals one pass."""
    inputs = batch()
    model = small_model(**options)
    with torch.no_grad():
        encoded = model.encoder(inputs["src_tokens"])
        full, extra = model.decoder(inputs["prev_output_tokens"], encoded)
        state: dict = {}
        for length in range(1, full.shape[1] + 1):
            part = model.decoder(inputs["prev_output_tokens"][:, :length], encoded, state)[0]
            real = inputs["prev_output_tokens"][:, length - 1].ne(task().target_dictionary.pad())
            torch.testing.assert_close(part[real, 0], full[real, length - 1])
    model.train()
    model(**inputs)[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    return model, extra


@pytest.mark.parametrize("layout", ["compact", "masked"])
def test_attention_with_values_of_another_shape(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind("one value for all heads", build_multi_query)
    monkeypatch.setitem(_kinds.ATTENTION.kinds, "multi-query", kind)
    assert "multi-query, one value for all heads" in _kinds.ATTENTION.help
    halting = dict.fromkeys(("encoder_halting", "decoder_halting"), "stick-breaking")
    model, _ = assert_trains_and_decodes(
        attention_kind="multi-query", token_layout=layout, **halting, alpha_threshold=0.999
    )
    assert isinstance(model.decoder.stack.block.cross_attention, MultiQueryAttention)


def test_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("squares", lambda config, side: Squared())
    monkeypatch.setitem(_kinds.DISTRIBUTIONS.kinds, "squared", kind)
    model, _ = assert_trains_and_decodes(attention_distribution="squared")
    assert isinstance(model.encoder.stack.block.self_attention.core.distribution, Squared)


def test_cross_attention_that_reads_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token decoded by itself, or in a beam, has the position that it has in its sentence."""
    kind = Kind("not the word of the same number", lambda config, side: OthersSoftmax())
    monkeypatch.setitem(_kinds.CROSS_ATTENTION.kinds, "others", kind)
    model, _ = assert_trains_and_decodes(cross_attention="others")
    assert isinstance(model.decoder.stack.block.cross_attention.core.distribution, OthersSoftmax)
    assert_beams_equal_full_passes(model.eval())


def test_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("the nearer the better", lambda config, side: Distance())
    monkeypatch.setitem(_kinds.POSITIONS.kinds, "distance", kind)
    assert_trains_and_decodes(attention_positions="distance")


@pytest.mark.usefixtures("same_help_after")
def test_feed_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a router, whose choices reach the auxiliary losses as those of our kinds do."""
    monkeypatch.setattr(_kinds.FEED_FORWARD, "kinds", dict(_kinds.FEED_FORWARD.kinds))
    register_kind("feed-forward", "scaled", "experts that scale one layer", build_scaled)
    model, extra = assert_trains_and_decodes(feed_forward_kind="scaled", ffn_experts=3, ffn_top_k=2)
    stack, num_tokens = model.encoder.stack, 6
    assert isinstance(stack.block.feed_forward, ScaledByExperts)
    assert extra["routing"]["decoder.feed_forward"].weight > 0
    counted = count(model, [batch((num_tokens,), (1,))]).by_kind["feed-forward"]
    layer = stack.block.feed_forward.layer
    assert counted == stack.num_steps * (num_tokens + 1) * layer.in_features * layer.out_features


def test_halting(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("two steps", lambda config, side: TwoSteps())
    monkeypatch.setitem(_kinds.HALTING.kinds, "two-steps", kind)
    _, extra = assert_trains_and_decodes(encoder_halting="two-steps", decoder_halting="two-steps")
    for statistics in extra["halting"].values():
        assert float(statistics.depth) == 2 and float(statistics.skipped) == 0.5
        assert float(statistics.expected_depth / statistics.tokens) == 2


class Falling(TwoSteps):
    """A token stops once its steps so far, of four, are the share `alpha_threshold`."""

    num_steps = 4.0

    def __init__(self, alpha_threshold: float) -> None:
        super().__init__()
        self.alpha_threshold = alpha_threshold

    def computed(self, state: CountDown, tokens: ActiveTokens, decoding: bool) -> Tensor:
        assert self.alpha_threshold is not None
        return 4 - state.left < 4 * self.alpha_threshold


def test_halting_with_a_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("falling", lambda config, side: Falling(config.alpha_threshold))
    monkeypatch.setitem(_kinds.HALTING.kinds, "falling", kind)
    model = small_model(encoder_halting="falling", decoder_halting="none", alpha_threshold=0.5)
    check_uses_threshold("--alpha-threshold", model)
    assert threshold_of(model) == 0.5
    for threshold, steps in ((0.5, 2), (0.25, 1)):
        set_threshold(model, threshold)
        depth = count(model, [batch((6,), (1,))]).halting["encoder"].depth
        assert float(depth) == steps


@pytest.mark.usefixtures("same_help_after")
def test_a_kind_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kinds.HALTING, "kinds", dict(_kinds.HALTING.kinds))
    described = fields(UniversalTransformerConfig)
    (halting,) = (field for field in described if field.name == "encoder_halting")

    def build(config: Any, side: Any) -> TwoSteps:
        return TwoSteps()

    for _ in range(2):  # fairseq may import a plugin twice
        register_kind("halting", "two-steps", "after two steps", build)
    assert halting.metadata["help"].endswith("; two-steps, after two steps (encoder)")
    _, extra = assert_trains_and_decodes(encoder_halting="two-steps")
    assert float(extra["halting"]["encoder"].depth) == 2
    with pytest.raises(InputError, match="`axis` must be one of attender, attention, attention-di"):
        register_kind("halt", "two-steps", "after two steps", build)
    with pytest.raises(
        InputError, match=r"has a kind `act` already \(ACT of Graves \(2016\)\): ch"
    ):
        register_kind("halting", "act", "after two steps", build)


@pytest.mark.usefixtures("same_help_after")
def test_two_kinds_of_one_name_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions without names look alike: their helps tell them apart."""
    monkeypatch.setattr(_kinds.HALTING, "kinds", dict(_kinds.HALTING.kinds))
    helps = ("after two steps", "after two steps", "after three steps")
    builders = [lambda config, side: TwoSteps() for _ in helps]
    for help, build in zip(helps[:2], builders):
        register_kind("halting", "early", help, build)
    with pytest.raises(InputError, match="has a kind `early` already .after two steps."):
        register_kind("halting", "early", helps[2], builders[2])


@pytest.mark.usefixtures("same_help_after")
def test_a_partial_builder_may_be_registered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kinds.HALTING, "kinds", dict(_kinds.HALTING.kinds))

    def build(steps: int, config: Any, side: Any) -> TwoSteps:
        return TwoSteps()

    for _ in range(2):
        register_kind("halting", "two-steps", "after two steps", partial(build, 2))
    assert "two-steps" in _kinds.HALTING.kinds


def test_names_and_builders_that_cannot_be() -> None:
    with pytest.raises(InputError, match="^`name` must be one word, but is 'two steps' instead.$"):
        register_kind("halting", "two steps", "after two steps", lambda config, side: TwoSteps())
    with pytest.raises(InputError, match="^`build` must be a function that returns a module, but "):
        register_kind("halting", "two-steps", "after two steps", TwoSteps())  # type: ignore[arg-type]
    assert not {"two steps", "two-steps"} & AXES["halting"].kinds.keys()


def test_what_builders_return_is_known_of_every_axis() -> None:
    assert all(axis.returns for axis in AXES.values())


@pytest.mark.usefixtures("same_help_after")
@pytest.mark.parametrize(
    ("build", "shown"),
    [(lambda config, side: None, "None"), (lambda config, side: Softmax(), "Softmax()")],
)
def test_a_builder_that_returns_something_else(
    build: Callable[..., Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kinds.POSITIONS, "kinds", dict(_kinds.POSITIONS.kinds))
    register_kind("attention-positions", "own", "somewhere", build)
    sentence = "the builder of the attention-positions kind `own` must return a `Scores`, but retur"
    with pytest.raises(InputError, match=f"^{sentence}ns {re.escape(shown)}.$"):
        small_model(attention_positions="own")


def test_a_mixture_may_look_elsewhere_with_any_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a gaze that moves from token to token needs the same heads at each."""
    kind = Kind("squares", lambda config, side: Squared())
    monkeypatch.setitem(_kinds.CROSS_ATTENTION.kinds, "squared", kind)
    model = small_model(cross_attention="squared", attention_experts=4)
    assert isinstance(model.decoder.stack.block.cross_attention.core.distribution, Squared)
    with pytest.raises(InputError, match="content with a mixture of attention experts"):
        small_model(cross_attention="location", attention_experts=4)


class Nearest(ContentAttender):
    """Scores by distance."""

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        return -torch.cdist(queries, keys)


@pytest.mark.usefixtures("same_help_after")
@pytest.mark.parametrize("options", [{"attender": "nearest"}, {"mix_content": "nearest"}])
def test_attenders_of_another_package(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for axis, known in (
        ("attender", _attenders.ATTENDERS),
        ("mix-content", _attenders.CONTENT_ATTENDERS),
    ):
        monkeypatch.setattr(known, "kinds", dict(known.kinds))
        register_kind(axis, "nearest", "the nearest", lambda config: Nearest())
    model, inputs = small_recurrent(**options), batch()
    assert any(isinstance(module, Nearest) for module in model.modules())
    with torch.no_grad():
        encoded = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
        full = model.decoder(inputs["prev_output_tokens"], encoded)[0]
        state: dict = {}
        for length in range(1, full.shape[1] + 1):
            part = model.decoder(inputs["prev_output_tokens"][:, :length], encoded, state)[0]
            torch.testing.assert_close(part[:, 0], full[:, length - 1])


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    kinds = "auto, multihead, mixture, compositional "
    kinds += "(or a kind of your own, with its --user-dir or, in Python, its import)"
    sentence = f"`attention_kind` must be one of {kinds}, but is star instead."
    with pytest.raises(InputError, match=re.escape(sentence)):
        small_model(attention_kind="star")
    with pytest.raises(InputError, match="`attend` must be one of after, before, but is x instead"):
        small_recurrent(attend="x")


def retrieval_network(**options: Any) -> nn.Module:
    config = ContextualRetrievalModelConfig(**options)
    return ContextualRetrievalModel.build_model(config, SimpleNamespace(num_features=4))


def test_dense_kinds_refuse_experts() -> None:
    with pytest.raises(InputError, match="`attention_experts` must be 1 for `attention_kind` mul"):
        small_model(attention_kind="multihead", attention_experts=4)
    with pytest.raises(InputError, match="`ffn_experts` must be 1 for `feed_forward_kind` dense"):
        small_model(feed_forward_kind="dense", ffn_experts=4)


@pytest.mark.parametrize("build", [small_model, retrieval_network])
def test_a_mixture_of_one_expert_is_refused(build: Callable[..., nn.Module]) -> None:
    """Its router would choose among one expert."""
    sentence = "`attention_experts` must be at least 2 for `attention_kind` mixture, but is 1 inste"
    with pytest.raises(InputError, match=f"^{sentence}"):
        build(attention_kind="mixture", attention_biases="none")


@pytest.mark.parametrize("option", ["attention_retrievals", "attention_value_dim"])
def test_heads_retrieve_nothing_else(option: str) -> None:
    sentence = f"`{option}` must be left out without `attention_kind` compositional, but"
    for experts in (1, 4):
        with pytest.raises(InputError, match=f"^{sentence} is 2 instead.$"):
            small_model(**{option: 2}, attention_experts=experts)
    small_model(attention_kind="multihead", **{option: 2})  # of a preset of another kind


def language_model(**options: Any) -> nn.Module:
    lengths = dict(max_target_positions=40, tokens_per_sample=40)
    config = replace(LanguageModelConfig(), **{**SMALL, **lengths, **options})
    return UniversalTransformerLanguageModel.build_model(config, task())


@pytest.mark.parametrize("build", [language_model, small_classifier, retrieval_network])
def test_cross_attention_is_refused_where_there_is_none(build: Callable[..., nn.Module]) -> None:
    build()
    sentence = "`cross_attention` must be left out: this model has none, but is location instead."
    with pytest.raises(InputError, match=f"^{sentence}$"):
        build(cross_attention="location")


def test_the_default_kind_follows_from_the_number_of_experts() -> None:
    for experts, kind in ((1, "multihead"), (4, "mixture")):
        named, auto = (
            small_model(attention_kind=name, attention_experts=experts) for name in (kind, "auto")
        )
        assert named.state_dict().keys() == auto.state_dict().keys()
        assert torch.equal(named(**batch())[0], auto(**batch())[0])


def test_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight, default and log follow from the one line that enters it."""
    monkeypatch.setattr(losses, "LISTENERS", [])  # the real options stay as they are
    monkeypatch.setattr(losses, "AUXILIARY_LOSSES", own := list(losses.AUXILIARY_LOSSES))
    monkeypatch.setattr(auxiliary_criterion, "AUXILIARY_LOSSES", own)

    @losses.auxiliary("mean_gate", "routing", "mean gate of the first expert")
    def mean_gate(statistics: Any) -> Tensor:
        return statistics.gate[0] / statistics.weight

    options = auxiliary_criterion.options_with_weights()()
    assert options.mean_gate_weight == 0.0 and options.mutual_information_weight == 0.0
    sample, experts = sample_of(batch()), dict(ffn_experts=3, ffn_top_k=2)
    model = small_model(**experts)
    criteria = [
        auxiliary_criterion.CrossEntropyWithAuxiliaryCriterion(
            task(), False, 0.1, weights={"mean_gate": weight}
        )
        for weight in (0.0, 2.0)
    ]
    without, with_it = (criterion.train()(model, sample) for criterion in criteria)
    logged = with_it[2]["mean_gate_loss"]
    assert logged > 0
    torch.testing.assert_close(with_it[0] - without[0], 2.0 * logged)
