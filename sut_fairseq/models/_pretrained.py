"""How this package's models load trained parameters: `from_pretrained`, and checks of sharing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.models import BaseFairseqModel
from fairseq.utils import split_paths
from torch import Tensor, nn

from sut_data.text.tokenization import FILE, TextSide, load_direction
from sut_fairseq.checkpoints.exported import is_exported
from sut_fairseq.checkpoints.integrity import check_whole
from sut_fairseq.checkpoints.reading import guard_fairseq
from sut_fairseq.errors import InputError, check

_TOKENISERS = {"tokenizer", "bpe"}
_READ = ("data", "source_lang", "target_lang")  # settings of a task that tell its tokenisation


class Pretrained(BaseFairseqModel):
    """A model whose files are checked before it is loaded."""

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **options: Any,
    ) -> Any:
        """Load a trained model with its task, as fairseq's models do.

        Args:
            model_name_or_path: folder of the checkpoint. (fairseq would also fetch and unpack
                archives, whose content is unchecked.)
            checkpoint_file: its name in the folder; for an ensemble several, with colons between.
            data_name_or_path: folder of the dictionaries; if it begins with a dot, relative to the
                folder of the checkpoint.
            options: settings to replace, and those of fairseq's tokenisers. Without the latter
                (`tokenizer`, `bpe`), raw text for a translation task is tokenised like the data in
                that folder, as by `sut-translate`.

        Returns:
            fairseq's `GeneratorHubInterface`.

        Raises:
            InputError: there is no such folder, or a checkpoint is damaged or could run code.
        """
        folder = Path(model_name_or_path)
        check(folder.is_dir(), "model_name_or_path", "the folder of the checkpoint", folder)
        names = checkpoint_file.split(os.pathsep)
        for name in names:
            if is_exported(name):
                raise InputError(
                    f"fairseq's `from_pretrained` reads no `{name}`: load it with "
                    f"`sut_fairseq.load({str(folder)!r})`, or export it with --format pt."
                )
            check_whole(folder / name)
        guard_fairseq()
        hub = super().from_pretrained(
            str(folder), checkpoint_file, str(data_name_or_path), **options
        )
        # Tasks without two languages have no such settings; language_modeling has none at all.
        data, source_lang, target_lang = (getattr(hub.task.cfg, name, None) for name in _READ)
        known = data and source_lang and target_lang
        if known and not _TOKENISERS & options.keys():
            place = Path(split_paths(str(data))[0])
            if (place / FILE).is_file():
                source, target = load_direction(place, str(source_lang), str(target_lang))
                hub.tokenizer, hub.bpe = _Words(source, target), _Subwords(source, target)
        return hub

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any
    ) -> Any:
        """Load parameters as fairseq's models do, unless that would lose some of them.

        Raises:
            InputError: if the model shares a matrix that has two values in the checkpoint.
        """
        _check_shared(self, state_dict)
        return super().load_state_dict(state_dict, *arguments, **options)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare the model for generation as fairseq does.

        Raises:
            InputError: for `--retain-dropout`, which would have no effect.
        """
        if cfg.generation.retain_dropout:
            raise InputError(
                "--retain-dropout: models of this package have no dropout outside training; leave "
                "the option out."
            )
        super().prepare_for_inference_(cfg)


def _check_shared(model: nn.Module, state: Mapping[str, Any]) -> None:
    names: dict[Tensor, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = names.setdefault(parameter, name)
        if not (first in state and name in state and first != name):
            continue
        one, other = state[first], state[name]
        # Wrong shapes are reported elsewhere.
        if one.shape == other.shape and not torch.allclose(one, other, 0, 0, equal_nan=True):
            raise InputError(
                f"the checkpoint has different weights for `{first}` and `{name}`, which this "
                "model shares: share embeddings as in the training, or give the names and values "
                "of those options to --model-overrides."
            )


class _Step(NamedTuple):
    """A step of tokenisation with fairseq's interface."""

    source: TextSide
    target: TextSide


class _Words(_Step):
    def encode(self, text: str) -> str:
        return self.source.tokenize(text)

    def decode(self, words: str) -> str:
        return self.target.detokenize(words)


class _Subwords(_Step):
    def encode(self, words: str) -> str:
        return self.source.segment(words)

    def decode(self, symbols: str) -> str:
        return self.target.join(symbols)
