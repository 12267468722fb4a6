"""Untrained models by the name of their architecture, and random sentence pairs for them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.models import FairseqLanguageModel
from fairseq.tasks.language_modeling import LanguageModelingConfig
from torch import Tensor

from sut_fairseq.analysis.countable import check_kind
from sut_fairseq.analysis.depth import never_halt
from sut_fairseq.errors import InputError, check
from sut_fairseq.models.retrieval_network import ContextualRetrievalModel

READS_NUMBERS = (
    "a contextual_retrieval model reads objects made of numbers, not words: `sut-benchmark "
    "attention --kinds compositional` counts its kind of attention."
)

# Options that models read without declaring them.
_READ_BY_MODELS = {"criterion", "max_target_positions", "tokens_per_sample"}

_MAX_VOCAB_SIZE = 10_000_000  # each word becomes a dictionary entry: more would take minutes


def build(
    arch: str,
    vocab_size: int,
    flags: Sequence[str] = (),
    *,
    alpha_threshold: float | None = None,
    name: str = "--arch",
    command: str = "sut-macs",
) -> tuple[Any, SimpleNamespace]:
    """An untrained model, and as much of a task as it takes to build it.

    Args:
        arch: any architecture that fairseq-train knows.
        vocab_size: size of its one dictionary, the special symbols included.
        flags: flags of that architecture, as typed.
        alpha_threshold: halting threshold; None: nothing halts, because the predictions of an
            untrained halting unit mean nothing.
        name: the flag that `arch` was given with, for error messages.
        command: the console command whose --help an error message points to.

    Returns:
        the model in training mode, and an object with `source_dictionary`, `target_dictionary` and,
        for a classifier, `num_labels`: all words but the special symbols.

    Raises:
        InputError: if there is no such architecture or flag of a model, if the model cannot be
            counted, or if a value is not allowed.
    """
    check(
        arch in models.ARCH_MODEL_REGISTRY,
        name,
        "an architecture that fairseq-train knows (e.g. sut_base, ut_base, transformer_wmt_en_de)",
        arch,
    )
    kind = models.ARCH_MODEL_REGISTRY[arch]
    if kind is ContextualRetrievalModel:
        raise InputError(READS_NUMBERS)
    check_kind(kind)
    special = Dictionary().nspecial
    check(
        special < vocab_size <= _MAX_VOCAB_SIZE,
        "--vocab-size",
        f"greater than the number of special symbols ({special}) and at most {_MAX_VOCAB_SIZE:,}",
        vocab_size,
    )
    dictionary = numbered(vocab_size)
    if alpha_threshold is not None:
        flags = [*flags, "--alpha-threshold", str(alpha_threshold)]

    def refuse(message: str) -> NoReturn:
        raise InputError(f"{message}; see `{command} --help`.")

    # A language model shares options with its task (`--tokens-per-sample`).
    of_task = "language_modeling" if issubclass(kind, FairseqLanguageModel) else "translation"
    parser = options.get_training_parser(of_task)
    parser.error = refuse  # its own prints 200 lines of usage
    parsed = options.parse_args_and_arch(parser, ["unused", "--arch", arch, *flags])
    _check_of_model(kind, parser, flags)
    task = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=dictionary,
        num_labels=len(dictionary) - dictionary.nspecial,
    )
    dataclass = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY[arch])
    config = parsed if dataclass is None else dataclass.from_namespace(parsed)
    _fill_in_from_task(config)
    try:
        model = kind.build_model(config, task)
    except InputError:
        raise
    except Exception as error:
        if kind.__module__.startswith("sut_fairseq."):
            raise  # our models refuse flags with an `InputError`: this is a bug
        # fairseq's models refuse them with exceptions of all kinds.
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"--arch {arch} cannot be built with these flags ({type(error).__name__}: {reason}); "
            f"`sut-options {arch}` lists those that it has."
        ) from error
    if alpha_threshold is None:
        never_halt(model)
    return model, task


def numbered(size: int) -> Dictionary:
    """A dictionary whose words are numbers; the special symbols count among its `size` entries."""
    dictionary = Dictionary()
    for word in range(size - len(dictionary)):
        dictionary.add_symbol(str(word))
    return dictionary


def _check_of_model(kind: type[Any], parser: ArgumentParser, flags: Sequence[str]) -> None:
    """Refuse flags that do not affect the model, which `parser` has read."""
    of_model = ArgumentParser(add_help=False)
    kind.add_args(of_model)
    own = {action.dest for action in of_model._actions} | _READ_BY_MODELS
    known = parser._option_string_actions
    named = [flag.partition("=")[0] for flag in flags]
    others = [flag for flag in named if flag in known and known[flag].dest not in own]
    if others:
        raise InputError(
            f"{', '.join(others)}: this is about the training and not about the model, and would "
            "change nothing here: leave it out (`sut-benchmark plan` and others have options such "
            "as `--dtype` of their own)."
        )


def _fill_in_from_task(config: Any) -> None:
    """Fill in values where a language model refers to options of its task, as `${task.NAME}`.

    Raises:
        InputError: if the value given is no whole number.
    """
    task = LanguageModelingConfig()
    for name, value in vars(config).items():
        if isinstance(value, str) and value.startswith("${task."):
            setattr(config, name, getattr(task, name))
        elif name == "max_target_positions" and isinstance(value, str):
            # The parser knows no type for an option that refers to another one.
            requirement = "a whole number of at least 1"
            check(
                value.isdecimal() and int(value) > 0, "--max-target-positions", requirement, value
            )
            setattr(config, name, int(value))


def random_batch(
    model: Any, task: Any, *, src_len: int, tgt_len: int, sentences: int = 1
) -> dict[str, Tensor]:
    """Pairs of random words, without padding: a model's `src_tokens`, `src_lengths`, ...

    A language model reads the source alone.

    Args:
        model, task: what reads the batch; torch's random state decides which words.
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
