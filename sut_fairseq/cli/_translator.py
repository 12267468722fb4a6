"""Translates raw text with a trained model, and says what that cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor

from sut_fairseq.analysis import trained
from sut_fairseq.analysis.complexity import count, without_padding
from sut_fairseq.analysis.depth import units_with_threshold
from sut_fairseq.cli._model_files import ModelFiles
from sut_fairseq.errors import InputError


@dataclass(frozen=True)
class Search:
    """How to search, by fairseq's names and with its defaults.

    Attributes:
        beam: number of hypotheses that are kept.
        lenpen: the score of a hypothesis is divided by its length to the power of this.
        max_len_a, max_len_b: a hypothesis has at most a * source length + b tokens.
        max_tokens: greatest number of source tokens in a batch, padding included.
        batch_size: greatest number of sentences in a batch; 0: any.
    """

    beam: int = 5
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    max_tokens: int = 4096
    batch_size: int = 0


@dataclass(frozen=True)
class Translation:
    """One line and its translation.

    Attributes:
        source: the line.
        translation: its translation; empty for a blank line, and where there is an `error`.
        error: why there is no translation; None where there is one.
        score: as fairseq-generate prints it: log-probability to base 2, divided by length^lenpen.
        source_tokens, target_tokens: both with the end of the sentence.
    """

    source: str
    translation: str = ""
    error: str | None = None
    score: float | None = None
    source_tokens: Tensor | None = None
    target_tokens: Tensor | None = None


class Translator:
    """A trained model with its dictionaries and tokenisation.

    Args:
        files: where they are.
        search: how to search.
        alpha_threshold: halting threshold; None: that of training.
        device: `cpu`, `cuda`, ...

    Raises:
        ValueError: the files do not fit together, the model takes no `alpha_threshold`, or there is
            no such device.
    """

    def __init__(
        self,
        files: ModelFiles,
        search: Search,
        *,
        alpha_threshold: float | None = None,
        device: str = "cpu",
    ) -> None:
        overrides: dict[str, Any] = {
            "data": str(files.folder),
            "source_lang": files.source_lang,
            "target_lang": files.target_lang,
        }
        if alpha_threshold is not None:
            overrides["alpha_threshold"] = alpha_threshold
        self.search = search
        self.model, self.task = trained.load(str(files.checkpoint), overrides)
        thresholds = {unit.alpha_threshold for unit in units_with_threshold(self.model)}
        if alpha_threshold is not None and not thresholds:
            raise InputError(
                f"--alpha-threshold {alpha_threshold} has no meaning for `{files.checkpoint}`: "
                f"nothing in this model halts by stick-breaking, so leave the option out."
            )
        self.alpha_threshold: float | None = next(iter(thresholds), None)
        self.source_side, self.target_side = files.tokenization()
        self.device = _device(device)
        self.model.to(self.device)
        generation = GenerationConfig(
            beam=search.beam,
            lenpen=search.lenpen,
            max_len_a=search.max_len_a,
            max_len_b=search.max_len_b,
        )
        # fairseq's `prepare_for_inference_` changes no result, but nothing can be counted after it.
        self.generator = self.task.build_generator([self.model], generation)
        limits = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        self.max_source_tokens = int(limits[0])

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Translate lines of raw text; bytes that were no UTF-8 are lone surrogates in them.

        Returns:
            one translation for each line, in their order; lines without a word, and those that the
            model cannot take, get an empty one.
        """
        results = []
        tokens: dict[int, Tensor] = {}
        for number, line in enumerate(lines):
            error = None
            if not _is_unicode(line):
                line = line.encode(errors="replace").decode()
                error = "the line is not UTF-8; convert it, for example with `iconv -t UTF-8`."
            elif len(encoded := self._encode(line)) > self.max_source_tokens:
                error = (
                    f"the sentence has {len(encoded):,} tokens with its end, but the model takes "
                    f"at most {self.max_source_tokens:,}; split it."
                )
            elif len(encoded) > 1:
                tokens[number] = encoded
            results.append(Translation(line, error=error))
        numbers = list(tokens)
        dataset = self.task.build_dataset_for_inference(
            list(tokens.values()), [len(encoded) for encoded in tokens.values()]
        )
        for group in trained.similar_lengths(
            dataset, range(len(numbers)), self.search.max_tokens, self.search.batch_size
        ):
            batch = dataset.collater([dataset[index] for index in group])
            for index, best in self._generate(batch):
                number = numbers[index]
                results[number] = Translation(
                    lines[number],
                    translation=self._decode(best["tokens"]),
                    score=float(best["score"]) / math.log(2),
                    source_tokens=tokens[number],
                    target_tokens=best["tokens"],
                )
        return results

    def describe(self, translation: Translation) -> dict[str, Any]:
        """What is known about a translation, ready for JSON.

        Its cost is counted by running the model once more on the pair of sentence and translation:
        depth is the average number of steps run for each token of the encoder and the decoder, and
        `macs_teacher_forced` are the multiply-accumulates of this run, attention products included.
        A beam search computes `beam` hypotheses instead. Depths are None where nothing halts.
        """
        result: dict[str, Any] = {
            "source": translation.source,
            "translation": translation.translation,
            "score": translation.score,
            "alpha_threshold": self.alpha_threshold,
            "encoder_depth": None,
            "decoder_depth": None,
            "macs_teacher_forced": None,
        }
        if translation.error is not None:
            result["error"] = translation.error
        if translation.source_tokens is None or translation.target_tokens is None:
            return result
        pair = (translation.source_tokens.to(self.device), translation.target_tokens)
        cost = count(self.model, without_padding([pair], self.task.target_dictionary.eos()))
        result["macs_teacher_forced"] = cost.macs_full
        for stack, halting in cost.halting.items():
            result[f"{stack}_depth"] = float(halting.depth)
        return result

    def _encode(self, line: str) -> Tensor:
        encoded: Tensor = self.task.source_dictionary.encode_line(
            self.source_side.encode(line), add_if_not_exist=False
        )
        return encoded.long()

    def _decode(self, tokens: Tensor) -> str:
        text: str = self.task.target_dictionary.string(
            tokens.int().cpu(),
            extra_symbols_to_ignore=self.generator.symbols_to_strip_from_output,
        )
        return self.target_side.decode(text)

    def _generate(self, batch: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Number in the dataset and best hypothesis of each sentence of a batch."""
        batch = utils.apply_to_sample(lambda tensor: tensor.to(self.device), batch)
        with torch.no_grad():
            found = self.task.inference_step(self.generator, [self.model], batch)
        return [(number, hypotheses[0]) for number, hypotheses in zip(batch["id"].tolist(), found)]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _device(name: str) -> torch.device:
    """The device of a name, if there is one here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        # torch answers a device that is not there with an AssertionError or several lines.
        raise InputError(
            f"--device {name} cannot be used here; `cpu` always can, and `cuda` with a GPU and a "
            f"torch that was built for it."
        ) from error
    return device
