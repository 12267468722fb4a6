"""Files that pretend to be checkpoints, through every command that reads one.

Each is refused in one sentence, and nothing in it runs: the canary is a file that the tricks make.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import MODEL_REGISTRY

import sut_fairseq
from sut_fairseq import models
from sut_fairseq.checkpoints.reading import _fairseq_read, load_checkpoint
from sut_fairseq.checkpoints.settings import EVALUATED, refuse_code
from sut_fairseq.cli import (
    average,
    benchmark,
    evaluate,
    experiment,
    importing,
    macs,
    report,
    translate,
)
from sut_fairseq.errors import InputError
from tests import malice
from tests.integration.commands import TINY, Finished, generate, on_cpu, train, words


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "ran"


@pytest.fixture(scope="module")
def files(trained: Path, canary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The whole collection of checkpoints by name."""
    folder = tmp_path_factory.mktemp("files")
    found = [
        *malice.malicious(trained, folder, canary),
        *malice.settings_that_run(trained, folder, canary),
        *malice.broken(trained, folder),
    ]
    assert not canary.exists(), "the collection itself runs nothing"
    return {path.stem: path for path in found}


@pytest.fixture(scope="module")
def nonsense(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Whole and harmless files, from which no model can be built."""
    return [*malice.nonsense(trained, tmp_path_factory.mktemp("nonsense"))]


@pytest.fixture(scope="module")
def exports(
    trained: Path, data: Path, canary: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Weights of exported models by the names of their folders."""
    folder = tmp_path_factory.mktemp("exports")
    return {path.parent.name: path for path in malice.exported(trained, data, folder, canary)}


def test_the_tricks_work(trained: Path, canary: Path, tmp_path: Path) -> None:
    """Where nothing guards against them: otherwise the tests below say nothing."""
    worked = 0
    for path in malice.malicious(trained, tmp_path, canary):
        if path.stem.startswith(("tar", "script", "old-")):
            continue
        with contextlib.suppress(Exception):  # what comes after the trick does not matter
            torch.load(path, weights_only=False)
        worked += canary.exists()
        canary.unlink(missing_ok=True)
    assert worked >= 25


Command = Callable[[Path, Path, Path], int]


def in_folder(path: Path, out: Path) -> Path:
    """A folder of checkpoints with one file."""
    folder = out / "checkpoints"
    folder.mkdir(exist_ok=True)
    place = folder / "checkpoint_best.pt"
    place.unlink(missing_ok=True)
    place.symlink_to(path)
    return folder


COMMANDS: dict[str, Command] = {
    "translate": lambda p, data, out: translate.main([str(p), "--data", str(data)]),
    "export": lambda p, data, out: translate.main(
        [str(p), "--data", str(data), "--export", str(out / "exported")]
    ),
    "evaluate": lambda p, data, out: evaluate.main(["--path", str(p), "--data", str(data)]),
    "import": lambda p, data, out: importing.main([str(p), "--out", str(out / "ours.pt")]),
    "macs": lambda p, data, out: macs.main(["--path", str(p)]),
    "report": lambda p, data, out: report.main(
        ["--path", str(p), "--data", str(data), "--out", str(out / "report")]
    ),
    "average": lambda p, data, out: average.main([str(p), "--output", str(out / "mean.pt")]),
    "benchmark": lambda p, data, out: benchmark.main(
        ["decode", "--path", str(p), "--data", str(data), "--repetitions", "1"]
    ),
    "experiment": lambda p, data, out: experiment.main(
        ["evaluate", "--checkpoints", str(in_folder(p, out)), "--data", str(data), "--cpu"]
        + ["--out", str(out / "evaluation")]
    ),
}


@pytest.mark.parametrize(
    ("command", "each"),
    # All read checkpoints by the same function. One gets all files in the default tests, the
    # others every third, in turn.
    [
        *((name, 1 if name == "translate" else 3) for name in COMMANDS),
        *(pytest.param(n, 1, marks=pytest.mark.slow) for n in COMMANDS if n != "translate"),
    ],
)
def test_our_commands_refuse_all(
    command: str,
    each: int,
    files: dict[str, Path],
    exports: dict[str, Path],
    canary: Path,
    data_with_text: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A folder of an experiment's checkpoints has no exported models.
    wanted = [*(files if command == "experiment" else files | exports).items()]
    for name, path in wanted[[*COMMANDS].index(command) % each :: each]:
        status = COMMANDS[command](path, data_with_text, tmp_path)
        shown = capfd.readouterr()
        assert not canary.exists(), name
        assert status == 2, (name, shown)
        *_, last = shown.err.splitlines()
        assert last.startswith(f"sut-{command.replace('export', 'translate')}: error: "), name
        assert len(last) > 50 and "Traceback" not in shown.err, (name, last)
        assert shown.err.count("\n") == 1, (name, shown.err)
    left = {path.name for path in tmp_path.rglob("*")}
    assert left <= {"checkpoints", "checkpoint_best.pt", "evaluation"}


@pytest.mark.parametrize(
    ("command", "each"),
    # One command gets all files in the default tests, the others some of them, in turn. An
    # experiment evaluates in a process of its own: seconds for each file.
    [
        *((name, 1 if name == "evaluate" else 4) for name in COMMANDS if name != "experiment"),
        *(pytest.param(n, 1, marks=pytest.mark.slow) for n in COMMANDS if n != "evaluate"),
    ],
)
def test_our_commands_make_no_model_of_nonsense(
    command: str,
    each: int,
    nonsense: list[Path],
    data_with_text: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Files that are whole: what builds no model, like averaging, may find nothing wrong."""
    first = [*COMMANDS].index(command) % each
    for path in nonsense[first::each]:
        out = tmp_path / f"out-{path.stem}"
        out.mkdir()
        status = COMMANDS[command](path, data_with_text, out)
        said = capfd.readouterr().err.splitlines()
        if command in ("average", "export") and status == 0:
            continue
        assert status == 2 and len(said) == 1 and "error: " in said[0], (path.name, said)


@pytest.fixture
def data_with_text(data: Path, text: Path) -> Iterator[Path]:
    """A prepared folder as `sut-experiment evaluate` wants it, for as long as a test."""
    link = data / "text"
    link.symlink_to(text)
    yield data
    link.unlink()


OTHER_MODELS = [name for name in models.__all__ if name != "UniversalTransformerModel"]


@pytest.mark.parametrize(
    ("model", "each"),
    [
        ("UniversalTransformerModel", 1),
        *((name, 5) for name in OTHER_MODELS),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in OTHER_MODELS),
    ],
)
def test_from_pretrained_refuses_all(
    model: str, each: int, files: dict[str, Path], data: Path, canary: Path
) -> None:
    """In the default tests one model gets all files, the others some of them, in turn."""
    from_pretrained = getattr(models, model).from_pretrained
    for name, path in [*files.items()][models.__all__.index(model) % each :: each]:
        with pytest.raises(InputError) as error:
            from_pretrained(path.parent, path.name, str(data))
        assert str(path.name) in str(error.value) and not canary.exists(), name
    with pytest.raises(InputError, match="must be the folder of the checkpoint, but is"):
        from_pretrained(files["tar"])


def test_a_second_checkpoint_is_checked_too(
    trained: Path, data: Path, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of fairseq's models load one that their settings name, with fairseq's own function."""
    path = malice.names_another(trained, data, tmp_path, canary)
    unguarded = _fairseq_read
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", unguarded)
    with contextlib.suppress(Exception):  # what comes after the trick does not matter
        checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
    assert canary.exists(), "otherwise the rest says nothing"
    canary.unlink()
    for load in (
        lambda: sut_fairseq.load(tmp_path, device="cpu"),
        lambda: models.UniversalTransformerModel.from_pretrained(tmp_path, path.name),
    ):
        monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", unguarded)
        with pytest.raises(InputError, match="would run its setting `encoder_layers`"):
            load()
        assert not canary.exists()


def test_load_refuses_all_exports(exports: dict[str, Path], canary: Path) -> None:
    assert len(exports) == 30
    for name, path in exports.items():
        with pytest.raises(InputError):
            sut_fairseq.load(path.parent, device="cpu")
        assert not canary.exists(), name


def test_every_model_of_ours_is_among_them() -> None:
    registered = {
        model.__name__
        for model in MODEL_REGISTRY.values()
        if model.__module__.startswith("sut_fairseq.")
    }
    assert registered == set(models.__all__)


# Of these fairseq says itself "OSError: Model file not found"; and what it takes for a missing
# checkpoint, so that it begins a new training.
NOT_FOUND = ("loop", "dangling")
NO_FILE = (*NOT_FOUND, "folder", "endless", "pipe")
# One of each kind for every command of fairseq in the default tests; all of them in the slow ones.
SOME = (
    *("0-os.system-in-extra_state", "22-os.system-in-all", "old", "setting-0", "flipped-weights"),
    *("empty", "first-100", "text", "bomb", "folder", "endless"),
)


def through_fairseq(
    path: Path, data: Path, out: Path
) -> Iterator[tuple[str, Callable[[], Finished]]]:
    validation = ("--task", "translation", "--path", path, *words("--batch-size 8"))
    training = (*TINY, "--max-update", 1)
    yield "generate", lambda: generate(data, path, ok=False)
    yield (
        "interactive",
        lambda: on_cpu("fairseq-interactive", data, "--path", path, stdin="run\n", ok=False),
    )
    yield "validate", lambda: on_cpu("fairseq-validate", data, *validation, ok=False)
    for option in ("--restore-file", "--finetune-from-model") if path.stem not in NO_FILE else ():
        yield option, lambda option=option: train(data, out, *training, option, path, ok=False)


@pytest.mark.parametrize("name", SOME)
def test_commands_of_fairseq_refuse(
    name: str, files: dict[str, Path], data: Path, canary: Path, tmp_path: Path
) -> None:
    """With our plugin; one command for each file, in turn."""
    commands = list(through_fairseq(files[name], data, tmp_path))
    command, call = commands[SOME.index(name) % len(commands)]
    check_refused(command, call, canary)


@pytest.mark.slow
def test_commands_of_fairseq_refuse_all(
    files: dict[str, Path], data: Path, canary: Path, tmp_path: Path
) -> None:
    for name, path in files.items():
        for command, call in through_fairseq(path, data, tmp_path):
            if name not in NOT_FOUND:
                check_refused(f"{command} {name}", call, canary)


def check_refused(what: str, call: Callable[[], Finished], canary: Path) -> None:
    finished = call()
    assert finished.status == 1 and not canary.exists(), what
    assert "Traceback" not in finished.stderr, (what, finished.stderr[-2000:])
    assert finished.last_line.startswith("error: ") and len(finished.last_line) > 50, what


def test_settings_that_are_plain_values_pass() -> None:
    for value in (
        "[(512, 3, 2)] * 4 + [(512, 1, 1)]",
        " 10000,20000",
        "True",
        "{'a': -1.5}",
        "None",
    ):
        refuse_code("x.pt", {"cfg": {"model": {"adaptive_softmax_cutoff": value}}})
    refuse_code("x.pt", {"args": None, "cfg": {"task": {"data": "print('any folder (1)')"}}})


@pytest.mark.parametrize(
    "value",
    ["f()", "[x for x in y]", "a.b", "lambda: 0", "f'{f()}'", "9**9**9", "1 if f else 2", ")"],
)
def test_settings_that_could_do_anything_do_not(value: str) -> None:
    nested: dict[str, Any] = {"cfg": {"model": {"decoder": [{"character_filters": value}]}}}
    with pytest.raises(InputError, match="would run its setting `character_filters` as Python"):
        refuse_code("x.pt", nested)


def test_all_settings_that_fairseq_evaluates_are_known() -> None:
    """Those that its source hands to `eval` by the name of a setting."""
    pattern = r"\beval(?:_str_list|_str_dict|_bool)?\(\s*(?:self\.)?(?:args|cfg)\.(\w+)"
    found: set[str] = set()
    for source in Path(fairseq.__file__).parent.rglob("*.py"):
        if "examples" not in source.parts:
            found.update(re.findall(pattern, source.read_text(encoding="utf-8")))
    assert len(found) > 20
    assert found <= EVALUATED


def test_a_whole_one_is_read(trained: Path) -> None:
    for lazy in (True, False):
        assert load_checkpoint(trained, lazy=lazy)["model"]
