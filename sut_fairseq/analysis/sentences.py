"""Asking a trained model about sentences: what it answers, how it computes, what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.utils import strip_pad
from torch import Tensor

from sut_data.text.tokenization import TextSide
from sut_fairseq.analysis.complexity import count_pair
from sut_fairseq.analysis.depth import set_threshold, threshold_of
from sut_fairseq.analysis.traces import StackTrace, looked_at, trace
from sut_fairseq.errors import InputError, check
from sut_fairseq.tasks.labels import LabelTask


class Word(NamedTuple):
    """A symbol as the user knows it, and whether the model reads it as the unknown word."""

    text: str
    unknown: bool = False


@dataclass(frozen=True)
class Sentence:
    """What a model is asked about.

    Attributes:
        text: readable text.
        words: a word for each token that the model reads, boundaries included.
        sample: the sentence as a batch of one.
        reference: the right answer, readable; None if unknown.
    """

    text: str
    words: list[Word]
    sample: dict[str, Any]
    reference: str | None = None


@dataclass(frozen=True)
class Answered:
    """A model's answer to a sentence, and how it was computed.

    Attributes:
        alpha_threshold: the halting threshold; None if no halting unit uses one.
        text: the answer, readable.
        words: the answer's symbols, the end included.
        reads: the words of the tokens that each depth loop computes, by "encoder" and "decoder".
            What a decoder reads is one token behind what it writes.
        stacks: what each loop did.
        macs: multiply-accumulates of running the model on the sentence and this answer, attention
            products included; None if they cannot be counted.
    """

    alpha_threshold: float | None
    text: str
    words: list[Word]
    reads: dict[str, list[Word]]
    stacks: dict[str, StackTrace]
    macs: int | None


class Reader:
    """A trained model that is asked about sentences, one at a time.

    Args:
        model, task: a trained model that has steps to look at (see `trace`), on the CPU, and its
            task.
        source, target: how the text of each side becomes symbols.
        beam: hypotheses in beam search; 1: greedy search.
        max_len: greatest number of generated words.

    Raises:
        InputError: if there is nothing to look at in the model.
    """

    def __init__(
        self,
        model: Any,
        task: tasks.FairseqTask,
        source: TextSide,
        target: TextSide,
        *,
        beam: int = 1,
        max_len: int = 200,
    ) -> None:
        self.model, self.task = model, task
        self.source, self.target = source, target
        self.shapes = looked_at(model)
        self.labels = isinstance(task, LabelTask)
        self.beam = beam
        longest = min(max_len, model.max_positions()[1] - 1)
        options = GenerationConfig(beam=beam, max_len_a=0, max_len_b=longest)
        self.search = task.build_generator([model], options)
        model.eval()

    @property
    def alpha_threshold(self) -> float | None:
        """The current threshold of the model; None if no halting unit uses one."""
        return threshold_of(self.model)

    @alpha_threshold.setter
    def alpha_threshold(self, value: float) -> None:
        set_threshold(self.model, value)

    def sentence(self, text: str) -> Sentence:
        """A sentence that the user typed.

        Raises:
            InputError: if it has no words, is not Unicode text, or is longer than the model takes.
        """
        text = " ".join(text.split())
        symbols = _symbols("sentence", text, self.source)
        tokens = sentence_tokens(symbols, self.task.source_dictionary)
        dataset = self.task.build_dataset_for_inference([tokens], [len(tokens)])
        sample = dataset.collater([dataset[0]])
        words = self._source_words(sample)
        # A task may have put a begin token before the symbols.
        first = len(words) - len(symbols) - 1
        for place, symbol in enumerate(symbols):
            words[first + place] = words[first + place]._replace(text=symbol)
        return self._checked(Sentence(text, words, sample))

    def of_split(self, split: str, number: int) -> Sentence:
        """The sentence of a loaded split with this number, from 0.

        Raises:
            InputError: if it has more tokens than the model takes.
        """
        dataset = self.task.dataset(split)
        sample = dataset.collater([dataset[number]])
        source, target = self.task.source_dictionary, self.task.target_dictionary
        text = _readable(self.source, source.string(sample["net_input"]["src_tokens"][0]))
        reference = target.string(strip_pad(sample["target"][0], target.pad()))
        reference = _readable(self.target, reference)
        return self._checked(Sentence(text, self._source_words(sample), sample, reference))

    def ask(
        self,
        sentence: Sentence,
        alpha_threshold: float | None = None,
        *,
        target: str | None = None,
        costs: bool = True,
    ) -> Answered:
        """Let the model answer, and record how it computes the answer.

        Args:
            sentence: as returned by `sentence` or `of_split`.
            alpha_threshold: threshold from now on; None: keep the current one.
            target: what a decoder reads instead of the model's own answer.
            costs: whether to count MACs.

        Raises:
            InputError: if the target has no words, or is longer than the model takes.
        """
        if alpha_threshold is not None:
            self.alpha_threshold = alpha_threshold
        dictionary = self.task.target_dictionary
        answer, words = self._answer(sentence, target)
        net_input = dict(sentence.sample["net_input"])
        reads = {"encoder": sentence.words}
        if "decoder" in self.shapes:
            # A classification shows only the position that the label is predicted at.
            read = answer[:0] if self.labels else answer[:-1]
            previous = torch.cat([read.new_tensor([dictionary.eos()]), read])
            self._check_length("target", len(previous), 1)
            net_input["prev_output_tokens"] = previous.unsqueeze(0)
            reads["decoder"] = [Word(dictionary.bos_word), *words[: len(read)]]
        return Answered(
            alpha_threshold=self.alpha_threshold,
            text=_readable(self.target, dictionary.string(answer)),
            words=words,
            reads=reads,
            stacks=trace(self.model, {"net_input": net_input}).stacks,
            macs=self._macs(net_input, answer) if costs else None,
        )

    def _answer(self, sentence: Sentence, target: str | None) -> tuple[Tensor, list[Word]]:
        """The answer's tokens, the end included, `(length,)`, and their words."""
        dictionary = self.task.target_dictionary
        if target is None:
            with torch.no_grad():
                found = self.task.inference_step(self.search, [self.model], sentence.sample)
            answer: Tensor = found[0][0]["tokens"]
            return answer, _words(answer, dictionary)
        if self.labels:
            raise InputError("--target is for translation models; a label is not read, but told.")
        symbols = _symbols("--target", target, self.target)
        answer = sentence_tokens(symbols, dictionary)
        words = _words(answer, dictionary)
        return answer, [w._replace(text=s) for w, s in zip(words, [*symbols, dictionary.eos_word])]

    def _macs(self, net_input: dict[str, Any], answer: Tensor) -> int | None:
        source = net_input["src_tokens"][0]
        read = answer[:1] if self.labels else answer
        cost = count_pair(self.model, source, read, self.task.target_dictionary.eos())
        return None if cost is None else cost.macs_full

    def _source_words(self, sample: dict[str, Any]) -> list[Word]:
        return _words(sample["net_input"]["src_tokens"][0], self.task.source_dictionary)

    def _checked(self, sentence: Sentence) -> Sentence:
        self._check_length("source", len(sentence.words), 0)
        return sentence

    def _check_length(self, side: str, length: int, number: int) -> None:
        """Refuse a sentence that is longer than the model takes."""
        most = self.model.max_positions()[number]
        check(length <= most, f"{side} sentence", f"at most {most} tokens long", length)


def sentence_tokens(symbols: Sequence[str], dictionary: Dictionary) -> Tensor:
    """Tokens of a typed sentence and its end, `(length,)`; unknown symbols are the unknown word.

    So are the names of fairseq's special symbols: a user who types `<pad>` does not mean padding.
    """
    found = [dictionary.index(symbol) for symbol in symbols]
    tokens = [index if index >= dictionary.nspecial else dictionary.unk() for index in found]
    return torch.tensor([*tokens, dictionary.eos()])


def _readable(side: TextSide, symbols: str) -> str:
    """Symbols as text; words stay tokenised if the extra that detokenises is not installed."""
    try:
        return side.decode(symbols)
    except ModuleNotFoundError:
        return side.join(symbols)


def _symbols(name: str, text: str, side: TextSide) -> list[str]:
    """The symbols of raw text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"`{name}` is not Unicode text: type it in UTF-8.") from None
    symbols = side.encode(text).split()
    check(bool(symbols), name, "at least one word", repr(text))
    return symbols


def _words(tokens: Tensor, dictionary: Dictionary) -> list[Word]:
    return [Word(dictionary[int(token)], int(token) == dictionary.unk()) for token in tokens]
