"""Untrained models by the name of their architecture, and random sentence pairs for them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.tasks.language_modeling import LanguageModelingConfig
from torch import Tensor

import sut_fairseq  # noqa: F401  (registers the architectures)
from sut_fairseq.analysis.depth import never_halt
from sut_fairseq.errors import InputError, check
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel

READS_NUMBERS = (
    "a contextual_retrieval model reads objects made of numbers, not words: `sut-benchmark "
    "attention --kinds compositional` counts its kind of attention."
)

_MAX_VOCAB_SIZE = 10_000_000  # each word becomes an entry of a dictionary: minutes above it


def build(
    arch: str,
    vocab_size: int,
    flags: Sequence[str] = (),
    *,
    alpha_threshold: float | None = None,
    name: str = "--arch",
    command: str = "sut-macs",
) -> tuple[Any, SimpleNamespace]:
    """An untrained model, and as much of a task as building it needs.

    Args:
        arch: any architecture that fairseq-train knows.
        vocab_size: size of its one dictionary, the special symbols included.
        flags: flags of that architecture, as one types them.
        alpha_threshold: halting threshold; None: nothing halts, because an untrained halting unit
            says nothing.
        name: the flag that `arch` was given with, for error messages.
        command: the console command whose --help an error message points to.

    Returns:
        the model in training mode, and an object with `source_dictionary`, `target_dictionary` and,
        for a classifier, `num_labels`: all words but the special symbols.

    Raises:
        InputError: if there is no such architecture or flag, or if a value is not allowed.
    """
    check(
        arch in models.ARCH_MODEL_REGISTRY,
        name,
        "an architecture that fairseq-train knows (e.g. sut_base, ut_base, transformer_wmt_en_de)",
        arch,
    )
    if models.ARCH_MODEL_REGISTRY[arch] is ContextualRetrievalModel:
        raise InputError(READS_NUMBERS)
    dictionary = Dictionary()
    check(
        len(dictionary) < vocab_size <= _MAX_VOCAB_SIZE,
        "--vocab-size",
        f"greater than the number of special symbols ({len(dictionary)}) and at most "
        f"{_MAX_VOCAB_SIZE:,}",
        vocab_size,
    )
    for word in range(vocab_size - len(dictionary)):
        dictionary.add_symbol(str(word))
    if alpha_threshold is not None:
        flags = [*flags, "--alpha-threshold", str(alpha_threshold)]

    def refuse(message: str) -> NoReturn:
        raise InputError(f"{message}; see `{command} --help`.")

    parser = options.get_training_parser()
    parser.error = refuse  # its own prints 200 lines of usage
    parsed = options.parse_args_and_arch(parser, ["unused", "--arch", arch, *flags])
    task = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=dictionary,
        num_labels=len(dictionary) - dictionary.nspecial,
    )
    dataclass = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY[arch])
    config = parsed if dataclass is None else dataclass.from_namespace(parsed)
    _fill_in_from_task(config)
    model = models.ARCH_MODEL_REGISTRY[arch].build_model(config, task)
    if alpha_threshold is None:
        never_halt(model)
    return model, task


def _fill_in_from_task(config: Any) -> None:
    """Put defaults where a language model refers to options of its task, as `${task.NAME}`."""
    task = LanguageModelingConfig()
    for name, value in vars(config).items():
        if isinstance(value, str) and value.startswith("${task."):
            setattr(config, name, getattr(task, name))


def random_batch(
    model: Any, task: Any, *, src_len: int, tgt_len: int, sentences: int = 1
) -> dict[str, Tensor]:
    """Pairs of random words, without padding: a model's `src_tokens`, `src_lengths`, ...

    A language model reads the source alone.

    Args:
        model, task: for which; torch's random state decides which words.
        src_len, tgt_len: number of tokens of each sentence.
        sentences: number of pairs.

    Raises:
        InputError: if the model takes no sentences of that length.
    """
    tokens = {}
    limits = model.max_positions()
    limits = limits if isinstance(limits, tuple) else (limits,)
    for side, dictionary, length, most in zip(
        ("--src-len", "--tgt-len"),
        (task.source_dictionary, task.target_dictionary),
        (src_len, tgt_len),
        limits,
    ):
        check(1 <= length <= most, side, f"between 1 and the model's maximum ({most})", length)
        tokens[side] = torch.randint(dictionary.nspecial, len(dictionary), (sentences, length))
    batch = {
        "src_tokens": tokens["--src-len"],
        "src_lengths": torch.full((sentences,), src_len),
    }
    if "--tgt-len" in tokens:
        batch["prev_output_tokens"] = tokens["--tgt-len"]
    return batch
