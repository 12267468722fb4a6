"""What a model did with one sentence, as NumPy arrays and as pictures."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sut_fairseq.analysis.sentences import Answered, Sentence
from sut_fairseq.errors import check, check_choice

# matplotlib is an extra, and takes a second to import.
if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Figures(dict[str, "Figure"]):
    """Pictures by name. A notebook shows them; `save` writes them."""

    def save(self, folder: str | Path, ending: str = "png") -> list[Path]:
        """Write each picture as `<name>.<ending>` (`png`, `pdf`, `svg`); return the files.

        Raises:
            InputError: for another ending.
        """
        from sut_fairseq.analysis import drawing

        ending = ending.removeprefix(".")
        check_choice("ending", ending, ("png", "pdf", "svg"))
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.{ending}" for name in self]
        for path, figure in zip(paths, self.values()):
            drawing.save(figure, path)
        return paths

    def _repr_html_(self) -> str:
        return "".join(
            f'<img alt="{html.escape(name)}" src="data:image/png;base64,{_png(figure)}">'
            for name, figure in self.items()
        )


@dataclass(frozen=True)
class SentenceTrace:
    """What a model did with one sentence.

    Arrays have the keys "encoder" and "decoder", if the model has these loops; `run` is the number
    of steps that were computed, and NaN marks tokens that were no longer computed.

    Attributes:
        source: the sentence.
        text: the answer.
        words: the text of each token that a loop computes, `length` of them. A decoder's inputs
            are one token behind its outputs.
        unknown_words: those of the sentence that the model does not know.
        alpha_threshold: the halting threshold; None if nothing halts by a threshold.
        macs: multiply-accumulates of running the model on the sentence and this answer, attention
            products included; None if they were not requested or cannot be counted.
        num_steps: the maximum number of steps of each loop.
        depth: steps until each token was read out, `(length,)`.
        computed: which tokens took each step, `(run, length)`, bool.
        halting: probability of having halted before each step, `(run, length)`; only of loops that
            halt.
        attention: by "encoder.self_attention", "decoder.cross_attention", ... the weights
            `(run, num_heads, length, num_keys)`; those of a mixture are averaged over its experts.
        gates: openness of copy gates, `(run, length, embed_dim)`; only of blocks that have them.
        experts: by "encoder.feed_forward", ... the chosen experts `(run, length, top_k)`, -1 where
            a token was not computed; only of mixtures.
        expert_weights: the weight of each of them in the mixture, of the same shape.
    """

    source: str
    text: str
    words: Mapping[str, tuple[str, ...]]
    unknown_words: tuple[str, ...]
    alpha_threshold: float | None
    macs: int | None
    num_steps: Mapping[str, int]
    depth: Mapping[str, NDArray[Any]]
    computed: Mapping[str, NDArray[Any]] = field(repr=False)
    halting: Mapping[str, NDArray[Any]] = field(repr=False)
    attention: Mapping[str, NDArray[Any]] = field(repr=False)
    gates: Mapping[str, NDArray[Any]] = field(repr=False)
    experts: Mapping[str, NDArray[Any]] = field(repr=False)
    expert_weights: Mapping[str, NDArray[Any]] = field(repr=False)
    answered: Answered = field(repr=False, compare=False)

    @classmethod
    def of(cls, sentence: Sentence, answered: Answered) -> SentenceTrace:
        """Take the arrays out of what a `Reader` found."""
        stacks = answered.stacks
        choices = {
            f"{name}.{part}": choice
            for name, stack in stacks.items()
            for part, choice in stack.experts.items()
        }
        return cls(
            source=sentence.text,
            text=answered.text,
            words={name: tuple(w.text for w in ws) for name, ws in answered.reads.items()},
            unknown_words=tuple(word.text for word in sentence.words if word.unknown),
            alpha_threshold=answered.alpha_threshold,
            macs=answered.macs,
            num_steps={name: stack.num_steps for name, stack in stacks.items()},
            depth={name: _array(stack.depth[0]) for name, stack in stacks.items()},
            computed={name: _array(stack.computed[:, 0]) for name, stack in stacks.items()},
            halting={
                name: _array(stack.halted[:, 0])
                for name, stack in stacks.items()
                if stack.halted is not None
            },
            attention={
                f"{name}.{part}": _array(weights[:, 0])
                for name, stack in stacks.items()
                for part, weights in stack.attention.items()
            },
            gates={
                name: _array(stack.gates[:, 0])
                for name, stack in stacks.items()
                if stack.gates is not None
            },
            experts={name: _array(choice.indices[:, 0]) for name, choice in choices.items()},
            expert_weights={name: _array(choice.weights[:, 0]) for name, choice in choices.items()},
            answered=answered,
        )

    def plot(self, head: int | None = None) -> Figures:
        """Draw attention, gates and halting of each step, as `sut-report` does.

        Args:
            head: the attention head to show, from 1; None: the greatest weight of all heads.

        Raises:
            InputError: if there is no such head.
        """
        from sut_fairseq.analysis import trace_plots

        if head is not None:
            most = min((maps.shape[1] for maps in self.attention.values()), default=1)
            whole = isinstance(head, Integral) and not isinstance(head, bool)
            requirement = f"a whole number between 1 and {most}, the number of heads"
            check(whole and 1 <= head <= most, "head", requirement, head)
        return Figures(trace_plots.sentence_figures(self.answered, head))


def _array(tensor: Any) -> NDArray[Any]:
    if tensor.dtype == torch.bfloat16:  # NumPy has none
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def _png(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return base64.b64encode(file.getvalue()).decode()
