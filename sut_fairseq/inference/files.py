"""The files of a trained model: the checkpoint, its dictionaries, its tokenisation."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from fairseq import utils
from fairseq.data import Dictionary, data_utils

from sut_data.text.tokenization import TextSide, load_direction
from sut_fairseq.checkpoints.exported import WEIGHTS
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import name_of, setting
from sut_fairseq.errors import InputError, check

# Of several checkpoints in a folder, the first of these that exists is the model.
_NAMES = (WEIGHTS, "checkpoint_best.pt", "checkpoint_last.pt")


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model are.

    Attributes:
        checkpoint: the checkpoint file.
        folder: holds the dictionaries `dict.<language>.txt` and the tokenisation, if there is one.
        source_lang, target_lang: its languages.
    """

    checkpoint: Path
    folder: Path
    source_lang: str
    target_lang: str

    @property
    def dictionaries(self) -> list[Path]:
        """The dictionaries of source and target."""
        return [self.folder / f"dict.{name}.txt" for name in (self.source_lang, self.target_lang)]

    def load_dictionaries(self) -> list[Dictionary]:
        """The dictionaries of source and target.

        Raises:
            InputError: one is damaged.
        """
        found = []
        for path in self.dictionaries:
            try:
                found.append(Dictionary.load(str(path)))
            except OSError:
                raise
            except Exception as error:  # fairseq raises several kinds
                reason = " ".join(str(error).split())
                raise InputError(
                    f"`{path}` cannot be read as a dictionary ({reason}): copy it again from the "
                    "data folder of the training."
                ) from error
        return found

    def tokenization(self) -> tuple[TextSide, TextSide]:
        """How source and target are tokenised; as words between spaces if no file says it.

        Raises:
            InputError: the file that says it is damaged.
        """
        return load_direction(self.folder, self.source_lang, self.target_lang)


def find_model(
    path: str | Path,
    data: str | Path | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> ModelFiles:
    """Find the files of a model.

    The dictionaries are those in `data`; without it, those beside the checkpoint, or else those in
    the data folder that it was trained on. Languages that are not given are those that the
    checkpoint records, or else those of the data in that folder, or else `src` and `tgt`.

    Args:
        path: a checkpoint, or a folder with one; see `find_checkpoint`.
        data: a binarised data folder, or None.
        source_lang, target_lang: its languages.

    Raises:
        InputError: there is no checkpoint, or there are no dictionaries for it.
    """
    named = isinstance(path, (str, PathLike))
    check(named, "path", "the path of a checkpoint or of its folder", repr(path))
    named = data is None or isinstance(data, (str, PathLike))
    check(named, "data", "the path of a data folder, or left out", repr(data))
    checkpoint = find_checkpoint(Path(path))
    state = load_checkpoint(checkpoint, lazy=True)
    task = name_of(state, "task")
    if task == "language_modeling":
        raise InputError(
            f"`{checkpoint}` is a language model, which translates nothing: load it with the "
            "`from_pretrained` of `sut_fairseq.models.UniversalTransformerLanguageModel`."
        )
    if task == "contextual_retrieval":
        raise InputError(
            f"`{checkpoint}` reads numbers, not text: `sut-report` draws what it retrieves."
        )
    recorded = setting(state, "task", "data")
    places = [checkpoint.parent if data is None else Path(data)]
    if data is None and recorded:
        places.append(Path(utils.split_paths(str(recorded))[0]))
    given = (source_lang, target_lang)
    stored = tuple(setting(state, "task", f"{side}_lang") for side in ("source", "target"))
    for folder in places:
        found = data_utils.infer_language_pair(str(folder)) if folder.is_dir() else (None, None)
        choices = zip(given, stored, found, ("src", "tgt"))
        source, target = (next(filter(None, languages)) for languages in choices)
        files = ModelFiles(checkpoint, folder, source, target)
        if all(path.is_file() for path in files.dictionaries):
            return files
    names = " with ".join(path.name for path in files.dictionaries)
    raise InputError(
        f"There is no {names} in {' or '.join(f'`{place}`' for place in places)}: name the data "
        "folder that the model was trained on (`data`), and its languages (`source_lang`, "
        "`target_lang`) if they have other names; on the command line `--data` and so on."
    )


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file, or the one in a folder: its only one, an exported one, the best, the last.

    The folder of a run of `sut-experiment` has its checkpoints in `checkpoints`.

    Raises:
        InputError: there is none, or there are several and none is exported, the best or the last.
    """
    if not path.is_dir():
        return path  # `load_checkpoint` reports what is wrong with it
    for folder in (path, path / "checkpoints"):
        found = sorted(folder.glob("*.pt")) + sorted(folder.glob(WEIGHTS))
        if found:
            return _one_of(found)
    runs = sorted(found.parent.name for found in path.glob("*/run.json"))
    if runs:
        raise InputError(f"`{path}` is a folder of several runs ({', '.join(runs)}): name one.")
    raise InputError(
        f"`{path}` has no checkpoint (*.pt, {WEIGHTS}); give a folder or a file that is one."
    )


def _one_of(found: list[Path]) -> Path:
    """The checkpoint to take, of those in a folder."""
    if len(found) == 1:
        return found[0]
    by_name = {path.name: path for path in found}
    for name in _NAMES:
        if name in by_name:
            return by_name[name]
    raise InputError(
        f"`{found[0].parent}` has {len(found)} checkpoints, and none is called "
        f"{' or '.join(_NAMES)}; give one of the files, {found[0].name} for example."
    )
