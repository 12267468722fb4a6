"""A trained model applied to raw text."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor
from tqdm import tqdm

from sut_data.text.tokenization import TextSide
from sut_fairseq.analysis import trained
from sut_fairseq.analysis.depth import set_threshold, threshold_of
from sut_fairseq.analysis.sentences import Reader
from sut_fairseq.errors import InputError, check
from sut_fairseq.inference.batching import encoded_batches
from sut_fairseq.inference.costs import Costs
from sut_fairseq.inference.device import usable_device
from sut_fairseq.inference.files import ModelFiles, find_model
from sut_fairseq.inference.results import (
    Classification,
    ExactMatch,
    Search,
    Translation,
    whole_number,
)
from sut_fairseq.inference.sharing import NotPickled, sharing_weights
from sut_fairseq.inference.text import ModelText, SharedSide
from sut_fairseq.inference.trace import SentenceTrace
from sut_fairseq.modules.trained_words import OtherWordsError
from sut_fairseq.tasks.labels import LabelTask

Item = TypeVar("Item")


def load(
    path: str | Path,
    *,
    data: str | Path | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    alpha_threshold: float | None = None,
    device: str | None = None,
) -> Model:
    """Load a trained model with its dictionaries and its tokenisation.

    Args:
        path: a checkpoint, or a folder with one: of fairseq-train, or of `sut-export`.
        data: folder of the dictionaries and the tokenisation; None: they are looked for beside the
            checkpoint, then in the data folder of the training.
        source_lang, target_lang: None: as in training.
        alpha_threshold: halting threshold; None: that of training.
        device: `cpu`, `cuda`, ...; None: a GPU where there is one.

    Raises:
        InputError: if something is missing, damaged or does not fit; the message names it.
    """
    files = find_model(path, data, source_lang, target_lang)
    return Model(files, alpha_threshold=alpha_threshold, device=device)


class Model(NotPickled):
    """A trained model with its dictionaries and tokenisation; `load` makes one.

    Several threads may use it at once: each call runs a copy of the model that shares its weights,
    so a threshold applies to one call only.

    Args:
        files: where everything is.
        alpha_threshold: halting threshold; None: that of training.
        device: `cpu`, `cuda`, ...; None: a GPU where there is one.
        overrides: settings that replace those of training.

    Attributes:
        model: fairseq's model, in evaluation mode. Calls leave it unchanged, and run it in
            evaluation mode whatever mode it is in.
        task: fairseq's task, with both dictionaries.
        device: where the model is.

    Raises:
        InputError: the files do not fit together, the model takes no `alpha_threshold`, or there is
            no such device.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        alpha_threshold: float | None = None,
        device: str | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "data": str(files.folder),
            "source_lang": files.source_lang,
            "target_lang": files.target_lang,
            "group_column": None,
            **(overrides or {}),
        }
        if isinstance(alpha_threshold, Real):  # settings accept floats only
            settings["alpha_threshold"] = float(alpha_threshold)
        self.files = files
        try:
            self.model, self.task = trained.load(str(files.checkpoint), settings)
        except OtherWordsError as error:
            raise InputError(
                f"{error.difference}: name the folder with the dictionaries of its training "
                f"(`data`; on the command line `--data`), not `{files.folder}`."
            ) from error
        self._checked(alpha_threshold)
        self.device = usable_device(device)
        self.model.to(self.device).eval()
        limits = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        source, target = map(SharedSide.of, files.tokenization())
        self._text = ModelText(self.task, source, target, max_source_tokens=int(limits[0]))

    @property
    def alpha_threshold(self) -> float | None:
        """The default halting threshold of calls; None if nothing halts by a threshold."""
        return threshold_of(self.model)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes of a classifier; empty for a model that answers with a sequence."""
        if not isinstance(self.task, LabelTask):
            return ()
        return tuple(self.task.target_dictionary[int(label)] for label in self.task.labels)

    @property
    def source_side(self) -> TextSide:
        """How text becomes symbols of the source."""
        return self._text.source_side

    @property
    def target_side(self) -> TextSide:
        """How symbols of the target become text."""
        return self._text.target_side

    @property
    def max_source_tokens(self) -> int:
        """The longest source that the model takes, its end included."""
        return self._text.max_source_tokens

    def __repr__(self) -> str:
        halts = "" if self.alpha_threshold is None else f", alpha_threshold={self.alpha_threshold}"
        return (
            f"<{type(self.model).__name__} of {self.files.checkpoint}, {self.files.source_lang} to "
            f"{self.files.target_lang}{halts}, on {self.device}>"
        )

    def translate(
        self,
        lines: Iterable[str],
        *,
        alpha_threshold: float | None = None,
        beam: int = Search.beam,
        lenpen: float = Search.lenpen,
        max_len_a: float = Search.max_len_a,
        max_len_b: int = Search.max_len_b,
        max_tokens: int = Search.max_tokens,
        batch_size: int = Search.batch_size,
        costs: bool = True,
    ) -> list[Translation]:
        """Translate lines of raw text; a classifier answers with a label.

        Args:
            lines: sentences; bytes that were no UTF-8 are lone surrogates in them.
            alpha_threshold: halting threshold of this call.
            beam, lenpen, max_len_a, max_len_b, max_tokens, batch_size: see `Search`.
            costs: whether to find `depth` and `macs`, which runs the model once more on each
                different line, alone; on small models that takes longer than translating.

        Returns:
            one translation for each line, in their order; lines without a word, and those that the
            model cannot take, get an empty one.
        """
        search = Search(beam, lenpen, max_len_a, max_len_b, max_tokens, batch_size)
        model = self._copy(alpha_threshold)
        threshold = threshold_of(model)
        results = [
            replace(self._text.read(line), alpha_threshold=threshold) for line in _listed(lines)
        ]
        generation = GenerationConfig(
            beam=search.beam,
            lenpen=search.lenpen,
            max_len_a=search.max_len_a,
            max_len_b=search.max_len_b,
        )
        # fairseq's `prepare_for_inference_` changes no result, but nothing can be counted after it.
        generator = self.task.build_generator([model], generation)
        answers = self._batches(results, search, model, generator)
        for number, found in _progress(answers, "translating", len(results)):
            results[number] = replace(
                results[number],
                text=self._text.decode(found["tokens"], generator.symbols_to_strip_from_output),
                score=float(found["score"]) / math.log(2),
                target_tokens=found["tokens"].cpu(),
            )
        if not costs:
            return results
        counted = Costs(model, self.task, self.device)
        shown = _progress(results, "counting MACs", len(results))
        return [counted.added_to(result) for result in shown]

    def classify(
        self, lines: Iterable[str], *, alpha_threshold: float | None = None
    ) -> list[Classification]:
        """Classify lines of raw text.

        Raises:
            InputError: if the model is not a classifier, or a line has no words or more than the
                model takes.
        """
        if not isinstance(self.task, LabelTask):
            raise InputError(
                f"{type(self.model).__name__} was trained to answer with a sequence, not with a "
                "class: ask it with `translate`."
            )
        results = []
        for number, result in enumerate(map(self._text.read, _listed(lines)), start=1):
            if result.source_tokens is None:
                reason = result.error or "classification needs at least one word a line."
                raise InputError(f"line {number}: {reason}")
            results.append(result)
        model, labels = self._copy(alpha_threshold), self.labels
        classified: dict[int, Classification] = {}
        scored = self._label_scores(results, model)
        for number, scores in _progress(scored, "classifying", len(results)):
            order = scores.argsort(descending=True, stable=True)
            ranked = [labels[label] for label in order.tolist()]
            shares = dict(zip(ranked, scores[order].exp().tolist()))
            classified[number] = Classification(results[number].source, ranked[0], shares)
        return [classified[number] for number in range(len(results))]

    def exact_match(
        self,
        sources: Iterable[str],
        references: Iterable[str],
        *,
        alpha_threshold: float | None = None,
        beam: int = 1,
        max_len_b: int | None = None,
    ) -> ExactMatch:
        """Compare answers with references, symbol by symbol.

        A reference with a word that the model does not know is never matched, nor is the answer
        to a source without a word.

        Args:
            sources, references: as many of either.
            alpha_threshold: halting threshold of this call.
            beam: number of hypotheses that are kept.
            max_len_b: greatest number of tokens of an answer; None: those of the longest reference,
                and 10 more.

        Raises:
            InputError: if there are not as many references as sources, or the model cannot take a
                source.
        """
        asked, expected = _listed(sources, "sources"), _listed(references, "references")
        check(bool(asked), "sources", "at least one", "none")
        needed = f"as many as sources ({len(asked)})"
        check(len(expected) == len(asked), "references", needed, len(expected))
        for number, source in enumerate(asked, 1):
            error = self._text.read(source).error
            if error is not None:  # before the search, which takes long
                raise InputError(f"source {number} of {len(asked)} has no answer: {error}")
        encoded = [self._text.reference(reference) for reference in expected]
        if max_len_b is None:
            max_len_b = max(map(len, encoded)) + 10
        answers = self.translate(
            asked, alpha_threshold=alpha_threshold, beam=beam, max_len_b=max_len_b, costs=False
        )
        found = (answer.target_tokens for answer in answers)
        right = tuple(
            one is not None and one.tolist() == tokens for one, tokens in zip(found, encoded)
        )
        texts = tuple(answer.text for answer in answers)
        return ExactMatch(100 * sum(right) / len(right), right, texts)

    def trace(
        self,
        text: str,
        *,
        alpha_threshold: float | None = None,
        target: str | None = None,
        beam: int = Search.beam,
        max_len: int = Search.max_len_b,
        costs: bool = True,
    ) -> SentenceTrace:
        """Run the model on a sentence, and record every step, on the CPU.

        Args:
            text: the sentence.
            alpha_threshold: halting threshold of this call.
            target: text that a decoder reads instead of the model's answer.
            beam: hypotheses in beam search.
            max_len: greatest number of generated tokens.
            costs: whether to count MACs.

        Raises:
            InputError: if the model has no depth loop, or the sentence has no words or more than
                the model takes.
        """
        check(isinstance(text, str), "text", "one sentence", repr(text)[:40])
        readable = target is None or isinstance(target, str)
        check(readable, "target", "what a decoder reads, as one text", repr(target)[:40])
        beam, max_len = whole_number("beam", beam, 1), whole_number("max_len", max_len, 1)
        reader = self.reader(alpha_threshold, beam=beam, max_len=max_len)
        with torch.device("cpu"):  # whatever torch's default device is
            sentence = reader.sentence(text)
            return SentenceTrace.of(sentence, reader.ask(sentence, target=target, costs=costs))

    def reader(
        self, alpha_threshold: float | None = None, *, beam: int = 1, max_len: int = 200
    ) -> Reader:
        """What `sut-report` uses: a copy of the model on the CPU, for one thread."""
        model = self._copy(alpha_threshold, on_cpu=True)
        return Reader(
            model, self.task, self.source_side, self.target_side, beam=beam, max_len=max_len
        )

    def _copy(self, alpha_threshold: float | None, *, on_cpu: bool = False) -> Any:
        """A copy for one call, with its threshold."""
        threshold = self._checked(alpha_threshold)
        if on_cpu and self.device.type != "cpu":
            model = copy.deepcopy(self.model).cpu()
        else:
            model = sharing_weights(self.model)
        model.eval()  # whoever trains `model` between calls leaves it in training mode
        if threshold is not None:
            set_threshold(model, threshold)
        return model

    def _checked(self, value: float | None) -> float | None:
        """The given threshold, if it is valid."""
        if value is None:
            return None
        if self.alpha_threshold is None:
            raise InputError(
                f"An alpha_threshold ({value}) has no meaning for `{self.files.checkpoint}`: "
                "nothing in this model halts by a threshold, so leave it out."
            )
        number = isinstance(value, Real) and not isinstance(value, bool) and 0 < value <= 1
        check(number, "alpha_threshold", "greater than 0, at most 1", repr(value))
        return float(value)

    def _batches(
        self, results: Sequence[Translation], search: Search, model: Any, generator: Any
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each line that has words, and the best hypothesis for it."""
        for numbers, batch in encoded_batches(self.task, results, search, self.device):
            with torch.no_grad():
                found = self.task.inference_step(generator, [model], batch)
            yield from zip(numbers, (hypotheses[0] for hypotheses in found))

    def _label_scores(
        self, results: Sequence[Translation], model: Any
    ) -> Iterator[tuple[int, Tensor]]:
        """The number of each line, and the log-probability of each label, `(num_labels,)`."""
        for numbers, batch in encoded_batches(self.task, results, Search(), self.device):
            yield from zip(numbers, self.task.label_scores([model], batch).cpu())


def _progress(items: Iterable[Item], doing: str, total: int) -> Iterable[Item]:
    """The items, with a bar on a terminal if they take long; a call in a program prints nothing."""
    return tqdm(items, doing, total, unit="line", leave=False, delay=3, disable=None)


def _listed(lines: Iterable[str], name: str = "lines") -> list[str]:
    if isinstance(lines, str):
        raise InputError("give a list of sentences, as in [text], not one text alone.")
    check(isinstance(lines, Iterable), name, "a list of sentences", type(lines).__name__)
    listed = list(lines)
    for line in listed:
        check(isinstance(line, str), name, "a list of texts", f"one with {line!r:.40}")
    return listed
