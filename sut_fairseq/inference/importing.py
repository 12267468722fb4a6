"""Imports checkpoints of the published SUT code as checkpoints of this package."""

from __future__ import annotations

import logging
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import Tensor

from sut_fairseq.analysis.untrained import numbered
from sut_fairseq.checkpoints.published import Translation, translate
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import setting, updates_of
from sut_fairseq.errors import InputError
from sut_fairseq.inference.files import ModelFiles, find_model

ARCH = "universal_transformer"
# Settings of the task that say where its data are, and how they are read.
_OF_TASK = (
    *("data", "source_lang", "target_lang"),
    *("left_pad_source", "left_pad_target", "truncate_source"),
)


@dataclass(frozen=True)
class Imported:
    """A model that was imported.

    Attributes:
        path: the checkpoint that it was in.
        source: what that checkpoint holds.
        model: the model, in evaluation mode.
        translation: its options and tensors.
        alpha_threshold: its halting threshold.
        settings: of a training of such a model, as fairseq-train parses them.
        files: where its dictionaries are; None if they were not found.
    """

    path: Path
    source: Mapping[str, Any]
    model: Any
    translation: Translation
    alpha_threshold: float
    settings: Namespace
    files: ModelFiles | None

    def checkpoint(self) -> dict[str, Any]:
        """The checkpoint that fairseq would have saved of this model.

        The optimizer state is left out, because it belongs to the original's tensors; numbers of
        updates and of epochs stay.
        """
        with _quiet_hydra():
            config = convert_namespace_to_omegaconf(self.settings)
        cfg = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        assert isinstance(cfg, dict)
        self._take_over_task(cfg["task"])
        extra = self.source.get("extra_state") or {}
        kept = {name: extra[name] for name in ("train_iterator", "val_loss") if name in extra}
        history: dict[str, Any] = dict(criterion_name="", optimizer_name="", lr_scheduler_state={})
        history["num_updates"] = updates_of(self.source) or 0
        return {
            "args": None,
            "cfg": cfg,
            "model": self._tensors(),
            "criterion": None,
            "optimizer_history": [history],
            "task_state": {},
            "extra_state": {**kept, "imported_from": self.path.name},
        }

    def _take_over_task(self, task: dict[str, Any]) -> None:
        """Fill in how the original's data were read, and where they are."""
        for name in _OF_TASK:
            value = setting(self.source, "task", name)
            if value is not None:
                task[name] = value
        if self.files is not None:
            names = dict(source_lang=self.files.source_lang, target_lang=self.files.target_lang)
            task.update(data=str(self.files.folder), **names)

    def _tensors(self) -> dict[str, Tensor]:
        """Parameters in the order of our model, and its words where they are known."""
        tensors, own = self.translation.tensors, self.model.state_dict()
        found = {**(own if self.files is not None else {}), **tensors}
        return {key: found[key] for key in own if key in found}


def import_published(
    path: Path,
    *,
    alpha_threshold: float | None = None,
    data: str | Path | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> Imported:
    """Read a checkpoint of the published SUT code as a model of this package.

    Args:
        path: the checkpoint; nothing in it is run.
        alpha_threshold: halting threshold of the model, in (0, 1]; None: our model's default,
            which is that of the published code.
        data: folder of the dictionaries. None: those beside the checkpoint or in the data folder
            that it names, if there are any.
        languages: of source and target, where the checkpoint does not name them.

    Raises:
        InputError: if it is no such checkpoint, or if the dictionaries are not its own.
    """
    source = load_checkpoint(path)
    try:
        translation = translate(source)
    except InputError as error:
        raise InputError(f"`{path}` cannot be imported: {error}") from error
    files = _find_dictionaries(path, data, languages)
    flags = dict(translation.options)
    if alpha_threshold is not None:
        flags["alpha_threshold"] = alpha_threshold
    settings = _parse(flags)
    words = _dictionaries(translation, files)
    task = SimpleNamespace(source_dictionary=words[0], target_dictionary=words[1])
    config = models.MODEL_DATACLASS_REGISTRY[ARCH].from_namespace(settings)
    model = models.ARCH_MODEL_REGISTRY[ARCH].build_model(config, task).eval()
    try:
        model.load_state_dict(dict(translation.tensors), strict=True)
    except RuntimeError as error:
        reason = str(error).strip().rpartition("\n")[2].strip()
        raise InputError(
            f"`{path}` cannot be imported: its tensors do not fit together ({reason})"
        ) from error
    return Imported(path, source, model, translation, config.alpha_threshold, settings, files)


@contextmanager
def _quiet_hydra() -> Iterator[None]:
    """Silence hydra's warnings about how fairseq calls it."""
    logger = logging.getLogger("hydra")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _find_dictionaries(
    path: Path, data: str | Path | None, languages: tuple[str | None, str | None]
) -> ModelFiles | None:
    """Where the dictionaries are; None if there are none and no folder was given."""
    try:
        return find_model(path, data, *languages)
    except InputError:
        if data is not None:
            raise
        return None


def _parse(flags: Mapping[str, Any]) -> Namespace:
    """The settings of a training of such a model, as fairseq-train would parse them."""
    line = ["", "--arch", ARCH, "--task", "translation"]
    line += ["--criterion", "cross_entropy_with_auxiliary"]
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(flag)
        elif value is not False:
            line.append(f"{flag}={value}")

    def refuse(message: str) -> None:
        raise InputError(f"the checkpoint's settings make no model: {message}.")

    parser = options.get_training_parser()
    parser.error = refuse  # its own ends the process
    return options.parse_args_and_arch(parser, line)


def _dictionaries(translation: Translation, files: ModelFiles | None) -> Sequence[Dictionary]:
    """Dictionaries of source and target; without files, numbers as words, as many as needed."""
    sizes = [
        len(translation.tensors[f"{side}.embedding.tokens.weight"])
        for side in ("encoder", "decoder")
    ]
    if files is None:
        return [numbered(size) for size in sizes]
    found = files.load_dictionaries()
    for size, dictionary, path in zip(sizes, found, files.dictionaries):
        if len(dictionary) != size:
            raise InputError(
                f"`{path}` has {len(dictionary):,} words with the special symbols, but "
                f"the model has {size:,}: name the data folder that it was trained on with --data."
            )
    return found
