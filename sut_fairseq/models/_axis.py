"""An axis along which models differ, with its kinds; and the options of a stack for its kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sut_fairseq.errors import check

Build = TypeVar("Build")
BuildOfKind = TypeVar("BuildOfKind", covariant=True)


@dataclass(frozen=True)
class Kind(Generic[BuildOfKind]):
    """A kind and how it is built.

    Attributes:
        help: its description in the option's help.
        build: makes its module.
    """

    help: str
    build: BuildOfKind


class Axis(Generic[Build]):
    """An axis along which models differ.

    Args:
        help: what the option decides.
        kinds: the kinds by name.
        returns: classes of what builders return; none where a plugin can add no kind.
    """

    def __init__(self, help: str, kinds: dict[str, Kind[Build]], *returns: type) -> None:
        self._help = help
        self.kinds = kinds
        self.returns = returns

    def __iter__(self) -> Iterator[str]:
        """The names, for an option's choices."""
        return iter(self.kinds)

    @property
    def help(self) -> str:
        """The help of the option that chooses."""
        return f"{self._help}: " + "; ".join(f"{name}, {k.help}" for name, k in self.kinds.items())

    def builder(self, option: str, name: object) -> Build:
        """The builder of the kind with this name.

        Raises:
            InputError: naming `option`, if there is no such kind.
        """
        own = "or a kind of your own, with its --user-dir or, in Python, its import"
        known = f"one of {', '.join(self)} ({own})"
        check(str(name) in self.kinds, option, known, name)
        return self.kinds[str(name)].build


@dataclass(frozen=True)
class Side:
    """The options of one stack, with the decoder's defaults filled in from the encoder's."""

    name: Literal["encoder", "decoder"]
    embed_dim: int
    source_dim: int
    num_steps: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    block: str
    pre_norm: bool
    halting: str

    @property
    def causal(self) -> bool:
        """Whether tokens cannot see later ones."""
        return self.name == "decoder"
