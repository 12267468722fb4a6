"""Kinds of your own on the axes of a model, from a plugin, without a change to this package.

A plugin (a folder for `--user-dir`, or a module that is imported before the model is built) defines
a subclass of the axis's base class and registers how it is built:

    from sut_fairseq.models.kinds import register_kind

    register_kind("halting", "two-steps", "after two steps", lambda config, side: TwoSteps())

Then `--encoder-halting two-steps` chooses it, on every command line and in presets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import unwrap
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import MODEL_DATACLASS_REGISTRY
from torch import nn

from sut_fairseq._added_options import add_options
from sut_fairseq.errors import InputError, check, check_choice
from sut_fairseq.models import _attenders, _kinds
from sut_fairseq.models._axis import Axis, Kind
from sut_fairseq.models._given import options_of_command
from sut_fairseq.models._returned import check_returned

AXES: dict[str, Axis[Any]] = {
    "attender": _attenders.ATTENDERS,
    "attention": _kinds.ATTENTION,
    "attention-distribution": _kinds.DISTRIBUTIONS,
    "attention-positions": _kinds.POSITIONS,
    "block": _kinds.BLOCKS,
    "cross-attention": _kinds.CROSS_ATTENTION,
    "feed-forward": _kinds.FEED_FORWARD,
    "halting": _kinds.HALTING,
    "mix-content": _attenders.CONTENT_ATTENDERS,
}


def register_kind(
    axis: str,
    name: str,
    help: str,
    build: Callable[..., Any],
    options: type[FairseqDataclass] | None = None,
) -> None:
    """Add a kind to an axis, for all models that have its option.

    Every builder is called with the options of the model (`config.dropout`, ...) and, but for
    attenders, with the side that it builds for: `side.name` ("encoder" or "decoder"), `embed_dim`,
    `source_dim`, `num_steps`, `num_heads`, `head_dim`, `hidden_dim`, `block`, `halting`, `causal`,
    `pre_norm` (then the stack adds a layer norm after the last step).

    Args:
        axis: which one, and what its builder takes and returns:

            attender, mix-content: `(config)`, an `Attender` or a `ContentAttender`
                (`modules.recurrent.attenders.interface`), of recurrent models.
            attention: `(config, side, core, source_dim)`, an `Attention`
                (`modules.attention.interface`); a decoder also asks for its cross-attention, with a
                `core.causal` that is False.
            attention-distribution, cross-attention: `(config, side)`, a `Distribution`
                (`modules.attention.distributions.interface`).
            attention-positions: `(config, side)`, `Scores`
                (`modules.attention.positions.interface`).
            block: `(config, side, self_attention, cross_attention, feed_forward)`, a `Block`
                (`modules.block`).
            feed-forward: `(config, side, activation)`, a `FeedForward` (`modules.feedforward`).
            halting: `(config, side)`, a `Halting` (`modules.halting.interface`).
        name: the value of the option.
        help: what it does, for the help of the option.
        build: the builder.
        options: a dataclass of options that the kind adds to the models, each with a default and a
            help, as fairseq's: `speed: float = field(default=0.1, metadata={"help": "how fast"})`
            becomes `--speed`, and `config.speed` in the builder. Kinds may share it.

    Raises:
        InputError: if there is no such axis, the name is not one word, the builder is no function,
            the axis has a kind of this name from elsewhere, or there is an option of one of these
            names; when a model is built, if the builder returns something else; when it is called,
            if attention, feed-forward layer, block, scores or distribution return another size
            than their base class says.
    """
    check_choice("axis", axis, AXES)
    check(isinstance(name, str) and name.split() == [name], "name", "one word", repr(name))
    makes = callable(build) and not isinstance(build, nn.Module)
    check(makes, "build", "a function that returns a module", f"{build!r:.80}")
    kinds = AXES[axis]
    known = kinds.kinds.get(name)
    if known is not None and (known.help, _origin(known.build)) != (help, _origin(build)):
        raise InputError(
            f"the axis {axis} has a kind `{name}` already ({known.help}): choose another name."
        )
    before = kinds.help
    kinds.kinds[name] = Kind(help, _checked(axis, name, build))
    choosing = {
        (_group(config, field.name), field)
        for config in MODEL_DATACLASS_REGISTRY.values()
        for field in fields(config)
        if before in field.metadata.get("help", "")
    }
    for _, field in choosing:  # their helps were made when this package was imported
        text = field.metadata["help"].replace(before, kinds.help)
        field.metadata = {**field.metadata, "help": text}  # type: ignore[assignment]
    if options is not None:
        for group in {group for group, _ in choosing}:
            add_options("model", MODEL_DATACLASS_REGISTRY, group, options, options_of_command())


def _group(config: type, option: str) -> type:
    """The class among the bases of a configuration that defines an option."""
    return next(part for part in config.__mro__ if option in vars(part).get("__annotations__", ()))


def _checked(axis: str, name: str, build: Callable[..., Any]) -> Callable[..., Any]:
    """The builder, which refuses to return anything but a module of its axis, and checks its calls.

    A forgotten `return` would leave the part out, and another class would fail in some batch.
    """

    @wraps(build)
    def checked(*arguments: Any) -> Any:
        module = build(*arguments)
        bases: Any = AXES[axis].returns
        if not isinstance(module, bases):
            base, got = bases[0].__name__, " ".join(repr(module).split())
            raise InputError(
                f"the builder of the {axis} kind `{name}` must return a `{base}`, but returns "
                f"{got:.80}."
            )
        check_returned(module, axis, name)
        return module

    return checked


def _origin(build: Callable[..., Any]) -> tuple[str, str]:
    """Where a builder comes from: a plugin may be imported twice, under the same name."""
    build = unwrap(build)
    made = getattr(build, "func", build)  # of a functools.partial
    return made.__module__, made.__qualname__
