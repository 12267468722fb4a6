"""The model card of an exported model: what is known about it, and nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from sut_data.waiting import about
from sut_fairseq.checkpoints.settings import averaged_in, name_of, setting, updates_of
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import records
from sut_fairseq.experiments.evaluating import CHECKPOINTS, SCORE, Evaluated, read_evaluations
from sut_fairseq.experiments.provenance import stamp_of
from sut_fairseq.experiments.reading import is_file, read
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.report import details, markdown_table
from sut_fairseq.inference.files import ModelFiles
from sut_fairseq.inference.translated import translations_by

FILE = "README.md"
_CHECKPOINTS = "checkpoints"  # --save-dir of a run's trainings
_SIDES = ("encoder", "decoder")
_BUFFERS = (".version", "._float_tensor")  # of fairseq's models: numbers that are no parameters

# Columns of evaluations that a card shows, and what it calls them.
_COLUMNS = {
    "mode": "mode",
    "group": "group",
    "alpha_threshold": "threshold",
    "sentences": "sentences",
    "percent": "%",
    "bleu": "BLEU",
    "encoder_depth": "encoder steps",
    "decoder_depth": "decoder steps",
    "skipped": "skipped",
}


def model_card(
    files: ModelFiles, state: Mapping[str, Any], *, name: str, license: str | None = None
) -> str:
    """The model card as Markdown, from what the checkpoint and its run say about the model.

    Args:
        files: the model.
        state: its checkpoint.
        name: what to call it.
        license: of the model, which only the user can know.
    """
    run = _run_of(files.checkpoint)
    record, evaluations = None, []
    if run is not None:
        record = records.read_record(run)
        evaluations = _evaluations(files.checkpoint, run, record)
    translated = list(translations_by(files.checkpoint, state, run))
    sections = [
        _front_matter(files, license),
        f"# {name}",
        _bullets("Model", _model(files, state, record)),
        _bullets("Data", _data(files, state, record)),
        _bullets("Training", _training(state, record)),
        *_translation_scores(translated),
        *_scores(evaluations),
        _costs(translated),
        _USE,
        f"## Licence\n\n{license}" if license else "",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def plugin_of(state: Mapping[str, Any]) -> Path | None:
    """The `--user-dir` that a checkpoint was trained with, if it is not this package."""
    plugin = Path(str(setting(state, "common", "user_dir") or ""))
    return None if plugin.name in ("", "sut_fairseq") else plugin


_USE = """## Use

```python
import sut_fairseq

model = sut_fairseq.load("this/folder")
print(model.translate(["..."])[0])
```

`sut-translate this/folder` does the same on the command line; both come with the package
`sut_fairseq`."""


def _run_of(checkpoint: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, if `sut-experiment` made it.

    A checkpoint of an earlier stage belongs to a separate training, which has no record.
    """
    folders = list(checkpoint.absolute().parents)[:3]
    if [folder.name for folder in folders[1:2]] != [_CHECKPOINTS]:
        folders = folders[:2]  # otherwise it is an average in a folder of its evaluation
    return next((folder for folder in folders if (folder / records.RECORD).is_file()), None)


def _evaluations(checkpoint: Path, run: Path, record: Record) -> list[Evaluated]:
    """The evaluations of this checkpoint, not those of others in its run."""
    try:
        which = read(record.experiment).evaluation.checkpoint
    except InputError:  # the user's own file is gone
        return []
    same = os.path.realpath(run / CHECKPOINTS[which]) == os.path.realpath(checkpoint)
    return read_evaluations(run, record) if same else []


def _front_matter(files: ModelFiles, license: str | None) -> str:
    """The front matter that model hubs read."""
    lines = ["library_name: sut_fairseq", "tags:", "- fairseq", "- universal-transformer"]
    if license:
        plain = re.fullmatch(r"[A-Za-z][\w.+-]*", license)
        lines.insert(0, f"license: {license if plain else json.dumps(license)}")  # JSON is YAML
    return "\n".join(["---", *lines, "---"])


def _model(
    files: ModelFiles, state: Mapping[str, Any], record: Record | None
) -> Iterator[tuple[str, str]]:
    if arch := name_of(state, "model"):
        yield "Architecture", f"`{arch}`"
    plugin = plugin_of(state)
    if plugin is not None:
        yield "Needs the plugin", f"`{plugin.name}` (`--user-dir`; in Python, import it first)"
    if record is not None:
        size = f", {record.size}" if record.size else ""
        without = f", without {record.without}" if record.without else ""
        # The user's own file is named without its folders.
        own = is_file(record.experiment)
        name = Path(record.experiment).name if own else record.experiment
        yield "Experiment", f"{name}: {record.model}{size}{without}"
    tensors = {
        (tensor.data_ptr(), tensor.shape): tensor.numel()
        for key, tensor in state["model"].items()
        if tensor.is_floating_point() and not key.endswith(_BUFFERS)
    }
    yield "Parameters", f"{sum(tensors.values()):,}"
    if task := name_of(state, "task"):
        yield "Task", f"`{task}`"
    yield "From and to", f"{files.source_lang}, {files.target_lang}"
    threshold = setting(state, "model", "alpha_threshold")
    kinds = (setting(state, "model", f"{side}_halting") for side in _SIDES)
    if any(kind not in (None, "none") for kind in kinds) and isinstance(threshold, Real):
        yield "Halting threshold in training", f"{threshold:g}"


def _data(
    files: ModelFiles, state: Mapping[str, Any], record: Record | None
) -> Iterator[tuple[str, str]]:
    stamp = stamp_of(files.folder)
    recorded = setting(state, "task", "data")
    if record is not None:
        stamp = {**stamp, "dataset": record.data.dataset, "split": record.data.split}
        stamp["limited"] = record.data.limited
    elif not stamp and recorded:
        stamp = stamp_of(Path(str(recorded)))
    if stamp.get("dataset"):
        split = f", split {stamp['split']}" if stamp.get("split") else ""
        limited = ", not all of it" if stamp.get("limited") else ""
        yield "Data set", f"{stamp['dataset']}{split}{limited}"
    elif recorded:
        yield "Data folder", f"`{Path(str(recorded)).name}`"
    for side, text in zip(("Source", "Target"), files.tokenization()):
        moses = f"Moses ({text.language})" if text.language else "words between spaces"
        subwords = {"words": "", "bpe": ", BPE"}.get(text.subwords, f", {text.subwords}")
        yield f"{side} tokenisation", f"{moses}{subwords}"


def _training(state: Mapping[str, Any], record: Record | None) -> Iterator[tuple[str, str]]:
    updates = updates_of(state)
    if updates:
        yield "Updates", f"{updates:,}"
    averaged = averaged_in(state)
    if averaged:
        each = ", ".join(f"{one.get('updates', 0):,}" for one in averaged)
        yield "Average of checkpoints after", f"{each} updates"
    if criterion := name_of(state, "criterion"):
        yield "Criterion", f"`{criterion}`"
    if record is not None:
        yield "Seed", str(record.seed)
        if record.sessions:
            yield "Machine", record.computers
            yield "Code", f"sut_fairseq {record.codes}"
        if record.seconds:
            yield "Training time", about(record.seconds)


def _translation_scores(translated: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A section for each evaluation of translations: scores with their signatures."""
    for document in translated:
        scores = document["scores"]
        rows = [
            ("sacreBLEU", scores.get("sacrebleu"), scores.get("sacrebleu_signature")),
            ("chrF2", scores.get("chrf"), scores.get("chrf_signature")),
            ("tokenised BLEU", scores.get("tokenized_bleu"), scores.get("tokens")),
        ]
        cells = [
            (name, f"{value:.2f}", how or "") for name, value, how in rows if value is not None
        ]
        yield f"## Scores on {_translated_as(document)}\n\n" + markdown_table(
            [("score", "value", "signature"), *cells]
        )


def _scores(evaluations: Sequence[Evaluated]) -> Iterator[str]:
    """A section for each other evaluation."""
    for one in evaluations:
        columns = [key for key in _COLUMNS if any(row.get(key) for row in one.rows)]
        if one.asked.by == SCORE or "percent" not in columns:
            continue  # translations, which have sections of their own
        figures = [[_cell(key, row.get(key, "")) for key in columns] for row in one.rows]
        heads = [_COLUMNS[key] for key in columns]
        sort = f"{one.measure[:1].upper()}{one.measure[1:]}"
        what = f"{sort} on `{one.asked.subset}` of {_set(one)}"
        title = ", ".join([f"## {what}", *details(one.asked)])
        yield f"{title}\n\n{markdown_table([heads, *figures])}"


def _set(one: Evaluated) -> str:
    return " ".join(filter(None, (one.data.dataset, one.data.split))) or "its data"


def _translated_as(document: Mapping[str, Any]) -> str:
    threshold = document.get("alpha_threshold")
    parts = [
        f"`{document['subset']}`",
        f"of {document['dataset']}" if document.get("dataset") else "",
        f"(beam {document.get('beam')}, length penalty {document.get('lenpen')}"
        + (f", threshold {threshold:g})" if threshold is not None else ")"),
    ]
    return " ".join(filter(None, parts))


def _costs(translated: Sequence[Mapping[str, Any]]) -> str:
    """A table of thresholds and MACs."""
    rows = []
    for document in translated:
        cost, threshold = document["cost"], document.get("alpha_threshold")
        halting = cost.get("halting") or {}
        depths = [f"{halting[side]['depth']:.2f}" if side in halting else "" for side in _SIDES]
        bleu = document["scores"].get("sacrebleu")
        rows.append(
            (
                "as in training" if threshold is None else f"{threshold:g}",
                f"{cost['macs_full'] / 1e6:,.1f}",
                *depths,
                "" if bleu is None else f"{bleu:.2f}",
            )
        )
    if not rows:
        return ""
    heads = ("threshold", "million MACs a sentence", "encoder steps", "decoder steps", "sacreBLEU")
    return "## Thresholds and MACs\n\n" + markdown_table([heads, *rows])


def _bullets(title: str, facts: Iterator[tuple[str, str]]) -> str:
    lines = [f"- {name}: {value}" for name, value in facts]
    return "\n".join([f"## {title}\n", *lines]) if lines else ""


def _cell(column: str, text: str) -> str:
    """A number with four significant digits; counts, names and other text as they are."""
    if column in ("group", "sentences"):
        return text
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text
