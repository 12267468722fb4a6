"""One folder with all that a trained model needs, to keep, to move, or to publish."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sut_data.files import check_can_make, written_whole
from sut_data.text.tokenization import FILE as TOKENIZATION
from sut_data.text.tokenization import load_tokenization
from sut_fairseq.checkpoints import writing
from sut_fairseq.checkpoints.exported import write_exported
from sut_fairseq.checkpoints.reading import first_not_finite, load_checkpoint
from sut_fairseq.checkpoints.settings import settings_of
from sut_fairseq.errors import InputError
from sut_fairseq.inference.card import FILE as CARD
from sut_fairseq.inference.card import model_card, plugin_of
from sut_fairseq.inference.files import ModelFiles
from sut_fairseq.modules.trained_words import NAME, TrainedWords

CHECKPOINT = "checkpoint.pt"
FORMATS = ("safetensors", "pt")


def export(
    files: ModelFiles,
    out: Path,
    format: str = "safetensors",
    *,
    license: str | None = None,
    option: str = "--out",
) -> str:
    """Put everything that a model needs into one new folder.

    The checkpoint loses its optimizer state and gains the names of its languages. The folder also
    has the dictionaries, the tokenisation, and a model card, `README.md`.

    Args:
        files: the model.
        out: folder to make; it appears complete or not at all.
        format: "safetensors": `model.safetensors` and `config.json`, which cannot hold code; "pt":
            `checkpoint.pt`, which fairseq can read with `--user-dir`.
        license: of the model, for the card; None: the card names none.
        option: the command's name for `out`.

    Returns:
        The command that translates with the folder.

    Raises:
        InputError: `out` exists and is not empty, is the current folder, or cannot be made; or the
            model's files are damaged or do not belong together, or its weights are not all finite.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{option} `{out}` is there already; give the name of a new folder.")
    if Path.cwd().is_relative_to(os.path.realpath(out)):
        raise InputError(
            f"{option} {out} would be replaced, but it is the current folder or has it inside: run "
            "the command from another one, or name a folder in it."
        )
    check_can_make(out, f"{option} {out}")
    state = load_checkpoint(files.checkpoint)
    state.pop("last_optimizer_state", None)
    _check_finite(state, files)
    _check_words(state, files)
    _set_languages(state, files)
    command = ["sut-translate", str(out)]
    plugin = plugin_of(state)
    if plugin is not None:
        command += ["--user-dir", str(plugin)]
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(out) as partial:
        partial.mkdir()
        for path in _to_copy(files):
            copy = partial / path.relative_to(files.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        card = model_card(files, state, name=out.name, license=license)
        (partial / CARD).write_text(card, encoding="utf-8", errors="replace")
        if format == "pt":
            writing.save(state, partial / CHECKPOINT)
        else:
            write_exported(state, partial)
    return shlex.join(command)


def _check_finite(state: Mapping[str, Any], files: ModelFiles) -> None:
    """Refuse weights that loading the export would refuse."""
    name = first_not_finite(state["model"])
    if name is not None:
        raise InputError(
            f"the model in `{files.checkpoint}` cannot be exported: its weights `{name}` are not "
            "all finite, so its training diverged; take an earlier checkpoint."
        )


def _check_words(state: Mapping[str, Any], files: ModelFiles) -> None:
    """Compare the dictionaries with the words of the training, as loading the export would."""
    for side, dictionary in zip(("source", "target"), files.load_dictionaries()):
        trained = state["model"].get(f"{NAME}.{side}._extra_state")
        if trained is not None:
            TrainedWords(dictionary.symbols, side).set_extra_state(trained)


def _to_copy(files: ModelFiles) -> list[Path]:
    """Dictionaries, tokenisation, and the models of subwords that it names."""
    copied = dict.fromkeys(files.dictionaries)
    if (files.folder / TOKENIZATION).exists():
        copied[files.folder / TOKENIZATION] = None
        sides = load_tokenization(files.folder).values()
        copied.update((side.model, None) for side in sides if side.model is not None)
    return list(copied)


def _set_languages(state: Mapping[str, Any], files: ModelFiles) -> None:
    """Record the languages, which fairseq otherwise infers from the files of the data folder."""
    settings = settings_of(state, "task")
    if settings is None:
        raise InputError(
            f"{files.checkpoint} has no settings (`args` or `cfg`) to build its model from: give a "
            "checkpoint that fairseq-train or `sut-average` wrote."
        )
    settings.update(source_lang=files.source_lang, target_lang=files.target_lang)
