"""`sut-experiment evaluate` for translations by a run, or by any folder of checkpoints."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sut_data.tables import table
from sut_data.waiting import waiting
from sut_fairseq.analysis.depth import check_thresholds
from sut_fairseq.cli import average, bleu, macs
from sut_fairseq.cli._command import for_json
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import reading
from sut_fairseq.experiments.commands import USER_DIR, program
from sut_fairseq.experiments.evaluating import SCORE
from sut_fairseq.experiments.json_files import read_json, write_json
from sut_fairseq.experiments.provenance import Data, added_set, describe_data
from sut_fairseq.experiments.published import tables
from sut_fairseq.inference.results import Search

# Names of scores in tables, and their keys in results.json.
SCORES = {
    "tokenised BLEU": "tokenized_bleu",
    "compound-split BLEU": "tokenized_bleu_compound_split",
    "sacreBLEU": "sacrebleu",
    "chrF2": "chrf",
}
_LINES_OF_A_SENTENCE = 5  # source, reference, raw and decoded hypothesis, its scores


@dataclass(frozen=True, kw_only=True)
class Options:
    """How translations are made.

    Attributes:
        subset: which set.
        best: how many checkpoints to average.
        log: output of the training, to take the NLL of checkpoints from.
        beam, lenpen: of the search.
        alpha_threshold: halting threshold; None: that of training.
        max_tokens: source tokens in a batch.
        cpu: use no GPU.
        user_dir: plugin that registers the architecture.

    Raises:
        InputError: an option of the search has an invalid value.
    """

    subset: str
    best: int
    log: str | None
    beam: int
    lenpen: float
    alpha_threshold: float | None
    max_tokens: int
    cpu: bool
    user_dir: Path = USER_DIR

    def __post_init__(self) -> None:
        Search(beam=self.beam, lenpen=self.lenpen, max_tokens=self.max_tokens)  # checks them

    def name(self) -> str:
        """Name of the results folder."""
        name = f"{self.subset}-best-{self.best}-beam-{self.beam}-lenpen-{self.lenpen:g}"
        return name if self.alpha_threshold is None else f"{name}-alpha-{self.alpha_threshold!r}"


def evaluate(
    data: Path, checkpoints: Path, out: Path | None, options: Options, say: Callable[[str], None]
) -> dict[str, Any]:
    """Average the best checkpoints, translate a set, and print scores and costs.

    Args:
        data: prepared folder.
        checkpoints: --save-dir of the training.
        out: folder of the results; None: one in that of the checkpoints, named by the options.
        options: how to translate.
        say: called with a sentence about what happens.

    Returns:
        everything about the evaluation, as stored in `results.json`.

    Raises:
        InputError: for unsuitable folders, or if a part of the evaluation fails.
    """
    reference = data / "text" / f"{options.subset}.tgt"
    _check_asked(data, reference, checkpoints, options)
    out = out or checkpoints / f"evaluation-{options.name()}"
    prepared = describe_data(data)
    described = {"digest": prepared.digest, "added": added_set(data, options.subset)}
    _check_out(out, data, described)
    out.mkdir(parents=True, exist_ok=True)
    # A call that fails or is interrupted leaves the results of an earlier one as they are.
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out) as folder:
        averaged, generated = (Path(folder) / name for name in ("average.pt", "generated.txt"))
        say(f"averaging the best checkpoints of {checkpoints}")
        chosen = {**_average(checkpoints, averaged, options), "output": str(out / averaged.name)}
        _print_chosen(chosen)

        say("counting MACs")  # first: it refuses a threshold for a model without one
        cost = _count(averaged, data, options)

        search = f"beam {options.beam}, length penalty {options.lenpen:g}"
        say(f"translating {options.subset} ({search})")
        sentences = len(reference.read_bytes().splitlines())
        _generate(data, averaged, generated, out / "generate.log", options, sentences)
        with waiting("scoring"):
            scores = for_json(asdict(bleu.score_file(generated, data, options.subset)))

        (out / "results.json").unlink(missing_ok=True)  # never beside files of another call
        for file in (averaged, generated):
            file.replace(out / file.name)
        for name, printed in (("average", chosen), ("macs", cost), ("bleu", scores)):
            write_json(out / f"{name}.json", printed)

    document = {
        **{name: getattr(prepared, name) or None for name in ("dataset", "split")},
        "limited": prepared.limited,
        "data": {"folder": str(data), **described},
        **{name: getattr(options, name) for name in ("subset", "beam", "lenpen")},
        "alpha_threshold": options.alpha_threshold,
        "checkpoints": chosen["checkpoints"],
        "scores": scores,
        "cost": cost,
    }
    write_json(out / "results.json", document)
    say("done")
    _print_table(document, _published(prepared, options.subset))
    print(f"MACs and steps are those of the model run on the references. JSON: {out}/results.json")
    return document


def _check_asked(data: Path, reference: Path, checkpoints: Path, options: Options) -> None:
    """Refuse folders without the set or checkpoints, and a bad threshold."""
    if not reference.is_file():
        sets = sorted(path.stem for path in reference.parent.glob("*.tgt"))
        there = ", ".join(name for name in sets if not name.endswith(".raw"))
        unprepared = "make the folder with `sut-prepare` first, and name one of its sets"
        remedy = f"name one of {there}" if there else unprepared
        raise InputError(f"--data {data} has no set `{options.subset}`: {remedy} with --subset.")
    if not checkpoints.is_dir():
        raise InputError(
            f"--checkpoints {checkpoints} is not a folder: name the --save-dir of the training."
        )
    if options.alpha_threshold is not None:
        check_thresholds("--alpha-threshold", [options.alpha_threshold])


def _check_out(out: Path, data: Path, described: dict[str, str]) -> None:
    """Refuse to replace results on other data, as told by the digests in `described`.

    Raises:
        InputError: if the folder has such results, or a damaged file of them.
    """
    path = out / "results.json"
    document = read_json(path) if path.is_file() else {}
    before = (document.get("data") or {}) if isinstance(document, dict) else None
    if not isinstance(before, dict):
        raise InputError(f"{path} is damaged (it does not say on which data it is): remove it.")
    if any(before.get(name, value) != value for name, value in described.items()):
        raise InputError(
            f"{out} has the results on {before.get('folder')}: name another folder for those on "
            f"{data} with --out, or move the old ones away."
        )


def _average(checkpoints: Path, averaged: Path, options: Options) -> dict[str, Any]:
    """Write the average of the best checkpoints; returns the report of `sut-average`."""
    by_log = ["--metric", "nll_loss", "--minimize", "--log", options.log] if options.log else []
    best = ["--best", str(options.best), "--or-fewer", *by_log, "--output", str(averaged)]
    arguments = average.parse(["--from", str(checkpoints), *best])
    report: dict[str, Any] = for_json(average.average(arguments).as_dict())
    return report


def _count(averaged: Path, data: Path, options: Options) -> dict[str, Any]:
    """What the model costs on the references; returns the report of `sut-macs`."""
    threshold = options.alpha_threshold
    at = [] if threshold is None else ["--alpha-threshold", f"{threshold!r}"]
    whole = ["--data", str(data), "--gen-subset", options.subset]
    arguments = macs.make_parser().parse_args(["--path", str(averaged), *whole, *at])
    report: dict[str, Any] = for_json(macs.measured(arguments))
    return report


def _generate(
    data: Path, averaged: Path, generated: Path, log: Path, options: Options, sentences: int
) -> None:
    """Run fairseq-generate; its output goes into a file, its messages go into the log."""
    threshold = options.alpha_threshold
    overrides = "{}" if threshold is None else f"{{'alpha_threshold': {threshold!r}}}"
    line = [
        *program("fairseq-generate"),
        *(str(data), "--user-dir", str(options.user_dir), "--path", str(averaged)),
        *("--gen-subset", options.subset, "--model-overrides", overrides),
        *("--beam", str(options.beam), "--lenpen", f"{options.lenpen:g}"),
        *("--max-tokens", str(options.max_tokens), "--required-batch-size-multiple", "1"),
        *("--num-workers", "0", "--log-format", "none"),
        *(["--cpu"] if options.cpu else []),
    ]
    in_utf8 = {**os.environ, "PYTHONIOENCODING": "utf-8"}  # whatever the locale
    with (
        open(generated, "wb") as stream,
        open(log, "w", encoding="utf-8") as errors,
        tqdm(
            total=_LINES_OF_A_SENTENCE * sentences, desc="translating", unit="line", disable=None
        ) as bar,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, env=in_utf8) as process,
    ):
        assert process.stdout is not None
        try:
            for one in process.stdout:
                stream.write(one)
                bar.update()
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        if status:
            last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            raise InputError(f"the translation failed; {log} ends: {last}")


def _print_chosen(chosen: dict[str, Any]) -> None:
    """Print which checkpoints were averaged, and the metric that they were chosen by."""
    for checkpoint in chosen["checkpoints"]:
        value = "-" if checkpoint["value"] is None else f"{checkpoint['value']:g}"
        name = Path(checkpoint["file"]).name
        print(f"  {name}: {checkpoint['metric']} {value}, {checkpoint['updates']:,} updates")
    for note in chosen["notes"]:
        print(f"  note: {note}")
    metric = chosen["checkpoints"][0]["metric"]
    if metric != "nll_loss":
        print(
            f"  note: chosen by {metric}, the run's --best-checkpoint-metric; --log gives the NLL"
        )


def _published(prepared: Data, subset: str) -> dict[str, str]:
    """By score: the published numbers of all models of the experiment with these data."""
    if prepared.dataset not in reading.known():
        return {}
    found: dict[str, list[str]] = {}
    numbers = tables(reading.read(prepared.dataset), prepared, subset, SCORE)
    for model, scores in numbers.items():
        for score, number in scores.items():
            found.setdefault(score, []).append(f"{model} {number:g}")
    return {score: f"published: {', '.join(models)}" for score, models in found.items()}


def _print_table(document: dict[str, Any], published: dict[str, str]) -> None:
    """Print a table of name, value and remark."""
    scores, cost = document["scores"], document["cost"]
    compared = f"against {scores['references']} references"
    remarks = {
        "tokenised BLEU": scores["tokens"],
        "sacreBLEU": f"{scores['sacrebleu_signature']}, {compared}",
        "chrF2": f"{scores['chrf_signature']}, {compared}",
    }
    rows = [
        (
            name,
            f"{scores[key]:.2f}",
            "; ".join(filter(None, (remarks.get(name), published.get(name)))),
        )
        for name, key in SCORES.items()
    ]
    rows += [
        ("sentences", f"{scores['sentences']:,}", ""),
        ("parameters", f"{cost['params'] / 1e6:.2f} M", ""),
        ("MACs per sentence pair", f"{cost['macs_full'] / 1e6:.2f} M", "with attention products"),
    ]
    for stack, halting in cost.get("halting", {}).items():
        skipped = f"{100 * halting['skipped']:.1f} % skipped"
        rows.append((f"{stack} steps per token", f"{halting['depth']:.2f}", skipped))
    print(table(rows, "<><"))
