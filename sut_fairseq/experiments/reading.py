"""Finding and reading the files of experiments, ours and users' own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sut_fairseq.errors import InputError, check_choice
from sut_fairseq.experiments.checking import check_experiment, check_models, check_stages
from sut_fairseq.experiments.schema import (
    UPDATES,
    Ablation,
    Document,
    Evaluation,
    Experiment,
    Size,
)
from sut_fairseq.experiments.typed import Place, build, nearest, read_yaml

FOLDER = Path(__file__).resolve().parent
_SUFFIXES = (".yaml", ".yml")
_SHARED = "_"  # prefix of files that are only meant to be extended
_EXAMPLE = "example"
MATRIX = "matrix"  # folder of its columns


def known() -> list[str]:
    """Names of the experiments of this package."""
    names = (path.stem for path in FOLDER.glob("*.yaml"))
    return sorted(name for name in names if not name.startswith(_SHARED) and name != _EXAMPLE)


def columns() -> list[str]:
    """Names of the experiments that are columns of the matrix, each with `matrix/` before it."""
    found = sorted(path.stem for path in (FOLDER / MATRIX).glob("*.yaml"))
    return [f"{MATRIX}/{name}" for name in found if not name.startswith(_SHARED)]


def is_ours(path: Path) -> bool:
    """Whether the file of an experiment is one of this package."""
    return path.resolve().is_relative_to(FOLDER)


def is_file(name: str) -> bool:
    """Whether this is the path of an experiment's file, not the name of one of ours."""
    return Path(name).suffix in _SUFFIXES


def read(name: str) -> Experiment:
    """Read an experiment.

    Args:
        name: of an experiment of this package, or the path of a file.

    Raises:
        InputError: if there is none, or something in its files is invalid.
    """
    path = Path(name)
    if not is_file(name):
        path = FOLDER / f"{name}.yaml"
        if name not in (*known(), *columns(), _EXAMPLE):
            raise InputError(
                f"there is no experiment `{name}`{nearest(name, known())}: there are "
                f"{', '.join(known())}, and your own by the path of a .yaml file."
            )
    documents: dict[Path, Document] = {}
    place = _collect(path, documents, ())
    stems = [file.stem for file in documents]
    named = {
        file.stem if is_ours(file) or stems.count(file.stem) == 1 else str(file): document
        for file, document in documents.items()
    }
    return _resolve(path, named, place)


def _collect(path: Path, documents: dict[Path, Document], below: tuple[Path, ...]) -> Place:
    """Read a file after those that it extends, each once; returns its place.

    An extended file is beside it or one of ours, so that a `scan.yaml` can extend our `scan`.
    """
    content, place = read_yaml(path)
    document = build(Document, content if content is not None else {}, place)
    below = (*below, path.resolve())
    for other in document.extends:
        files = (folder / f"{other}.yaml" for folder in (path.parent, FOLDER))
        found = [file.resolve() for file in files if file.is_file()]
        if not found:
            there = [one.stem for folder in {path.parent, FOLDER} for one in folder.glob("*.yaml")]
            raise InputError(
                f"{place / 'extends'}: there is no file {other}.yaml{nearest(other, there)} in "
                f"{path.parent}, nor in {FOLDER}."
            )
        base = next((file for file in found if file != below[-1]), found[0])
        if base in below:
            names = (file.stem for file in (*below, base))
            raise InputError(f"{path} extends itself: {' -> '.join(names)}.")
        if base not in documents:
            _collect(base, documents, below)
    documents[below[-1]] = document
    return place


def _resolve(path: Path, documents: dict[str, Document], place: Place) -> Experiment:
    """Merge the documents, except for settings, which `settings.compose` merges."""

    def last(key: str, default: Any = None) -> Any:
        for document in reversed(documents.values()):
            value = getattr(document, key)
            if value is not None:
                return value
        if default is not None:
            return default
        raise InputError(f"{place} needs the key `{key}`.")

    models: dict[str, str] = last("models")
    sizes = _merged_sizes(documents.values())
    for key, group in (("models", models), ("sizes", sizes)):
        if not group:
            raise InputError(f"{place} needs the key `{key}`, with at least one entry.")
    sizes = {name: _inherit(name, sizes, place / "sizes") for name in sizes}
    for name, size in sizes.items():
        check_stages(place / "sizes" / name / "stages", size.stages or [])
        for told in size.lengths_told:
            lengths = [UPDATES, *(stage.name for stage in size.stages or ())]
            check_choice(f"{place / 'sizes' / name / 'about'}: a name in braces", told, lengths)
    ablations = {
        name: Ablation(about=part.about, models=part.models)
        for document in documents.values()
        for name, part in document.ablations.items()
    }
    check_models(models, sizes, place / "sizes")
    check_models(models, ablations, place / "ablations")
    experiment = Experiment(
        name=str(path.resolve().relative_to(FOLDER).with_suffix(""))
        if is_ours(path)
        else path.stem,
        path=path,
        documents=documents,
        shows=last("shows"),
        paper=last("paper", "none"),
        expect=last("expect", "not known yet"),
        machine=last("machine", "not known yet"),
        time=last("time", "not measured"),
        dataset=last("dataset", ""),
        prepare=last("prepare", {}),
        generate=last("generate", {}),
        task=last("task", "translation"),
        models=models,
        sizes=sizes,
        ablations=ablations,
        metric=last("metric"),
        evaluation=last("evaluation", Evaluation()),
        compared=list(documents.values())[-1].compared or [],
        published=last("published", []),
        summaries=last("summaries", []),
        claims=last("claims", []),
    )
    check_experiment(experiment, place)
    return experiment


def _merged_sizes(documents: Iterable[Document]) -> dict[str, Size]:
    """The sizes without settings: what a file leaves out of one, those that it extends may give."""
    sizes: dict[str, Size] = {}
    for document in documents:
        for name, size in document.sizes.items():
            before = sizes.get(name, Size())
            sizes[name] = Size(
                about=size.about or before.about,
                budget=size.budget or before.budget,
                like=before.like if size.like is None else size.like,
                models=before.models if size.models is None else size.models,
                stages=before.stages if size.stages is None else size.stages,
            )
    return sizes


def _inherit(
    name: str, sizes: Mapping[str, Size], place: Place, below: tuple[str, ...] = ()
) -> Size:
    """A size with the models and stages that it takes over by `like`.

    Raises:
        InputError: if there is no such size, or one is like itself.
    """
    size = sizes[name]
    if size.like is None:
        return size
    check_choice(f"{place / name / 'like'}", size.like, sizes)
    below = (*below, name)
    if size.like in below:
        raise InputError(f"{place}: a size is like itself: {' -> '.join((*below, size.like))}.")
    other = _inherit(size.like, sizes, place, below)
    return replace(
        size,
        models=other.models if size.models is None else size.models,
        stages=other.stages if size.stages is None else size.stages,
    )
