"""An `InputError` that nobody caught, in commands and elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data.data_utils import batch_by_size, get_buckets, infer_language_pair
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationTask, load_langpair_dataset

from sut_fairseq import _process
from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq._mistakes import divergence
from sut_fairseq.errors import InputError

COMMANDS = ("/usr/bin/fairseq-train", "fairseq/fairseq_cli/generate.py", "sut-macs")
OTHERS = ("", "-c", "/usr/bin/pytest", "notebook.py", "fairseq.py", "train.py")


def old_hook(*arguments: object) -> None:
    print("the old hook", file=sys.stderr)


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Pretend to be the process of a program, with an exception hook of its own."""

    def pretend(program: str) -> None:
        monkeypatch.setattr(sys, "argv", [program])
        monkeypatch.setattr(sys, "excepthook", old_hook)

    return pretend


@pytest.mark.parametrize("program", COMMANDS)
def test_commands_end_in_the_sentence(
    program: str, run_as: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run_as(program)
    show_input_errors_as_sentences()
    hook = sys.excepthook
    show_input_errors_as_sentences()
    assert sys.excepthook is hook, "installed twice"
    hook(InputError, InputError("`top_k` is 9."), None)
    assert capsys.readouterr().err == "error: `top_k` is 9.\n"
    hook(ValueError, ValueError("no sentence of ours"), None)
    assert capsys.readouterr().err == "the old hook\n"


def ask_for(path: Path, what: str) -> None:
    """Let fairseq look for something that is not there, or make a batch of too long sentences."""
    if what == "folder":
        infer_language_pair(str(path / "folder"))
    elif what == "checkpoint":
        load_model_ensemble_and_task([str(path / "a.pt")], task=SimpleNamespace())
    elif what == "set":
        load_langpair_dataset(
            str(path), "test9", "src", None, "tgt", None, False, None, 0, *[0] * 5
        )
    elif what == "batch":
        batch_by_size(np.arange(2), lambda number: 0, np.array([3, 9]), max_tokens=5)
    elif what == "buckets":
        get_buckets([3, 9], 2)
    else:
        TranslationTask.setup_task(SimpleNamespace(data=str(path), source_lang=None))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("folder", "error: there is no `{}/folder`: check the path.\n"),
        ("checkpoint", "error: there is no checkpoint `{}/a.pt`: check its path.\n"),
        ("set", "error: there is no set `test9` in `{}`: check both names.\n"),
        (
            "batch",
            "error: a sentence has more tokens than the 5 that --max-tokens allows in",
        ),
        ("buckets", "error: --num-batch-buckets pads sentences for TPUs, on which these models"),
        ("pair", "error: the data folder has no set of a language pair: name the folder that "),
    ],
)
def test_what_fairseq_does_not_find_or_fit(
    what: str,
    sentence: str,
    run_as: Callable[[str], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_as("fairseq-generate")
    show_input_errors_as_sentences()
    with pytest.raises(Exception) as caught:
        ask_for(tmp_path, what)
    sys.excepthook(caught.type, caught.value, caught.tb)
    assert capsys.readouterr().err.startswith(sentence.format(tmp_path))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("fairseq.trainer", "error: the words of the data are others\n"),
        ("users_plugin", "the old hook\n"),
    ],
)
def test_what_fairseq_puts_in_place_of_our_error(
    module: str, message: str, run_as: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its trainer does so without naming ours as the cause; what others raise is theirs."""
    run_as("fairseq-train")
    show_input_errors_as_sentences()

    def load() -> None:
        raise InputError("the words of the data are others")

    code = "try:\n    load()\nexcept Exception:\n    raise Exception('ensure that they match')"
    with pytest.raises(Exception, match="ensure that they match") as caught:
        exec(code, {"__name__": module, "load": load})
    sys.excepthook(caught.type, caught.value, caught.tb)
    assert capsys.readouterr().err == message


def test_files_that_others_do_not_find(
    run_as: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_as("fairseq-train")
    show_input_errors_as_sentences()
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "nothing").read_text()
    sys.excepthook(caught.type, caught.value, caught.tb)
    assert capsys.readouterr().err == "the old hook\n"


@pytest.mark.parametrize("program", OTHERS)
def test_nothing_else_is_touched(program: str, run_as: Callable[[str], None]) -> None:
    run_as(program)
    show_input_errors_as_sentences()
    assert sys.excepthook is old_hook


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        ("fairseq-hydra-train", True),
        ("fairseq_cli/hydra_train.py", True),
        ("fairseq_cli/hydra_validate.py", False),
    ],
)
def test_architectures_where_all_options_have_values(
    program: str, refused: bool, run_as: Callable[[str], None]
) -> None:
    """A configuration's are the model's; those of a checkpoint are what it was trained with."""
    run_as(program)
    given = Namespace(_name="sut_tiny", encoder_layers=3)
    with pytest.raises(InputError) if refused else contextlib.nullcontext():
        ARCH_CONFIG_REGISTRY["sut_tiny"](given)


@pytest.mark.parametrize("program", ["fairseq-hydra-train", "fairseq_cli/hydra_train.py"])
def test_hydra_prints_no_traceback_itself(
    program: str, run_as: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user has decided what it prints."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for decided, expected in ((True, "0"), (False, "1")):
        if not decided:
            monkeypatch.delenv("HYDRA_FULL_ERROR")
        run_as(program)
        show_input_errors_as_sentences()
        assert os.environ["HYDRA_FULL_ERROR"] == expected


@pytest.mark.parametrize(("norm", "diverged"), [("0.2", False), ("nan", True), ("-inf", True)])
def test_workers_whose_gradients_differ(norm: str, diverged: bool) -> None:
    """fairseq says of all of them that they are inconsistent, since nan equals nothing."""
    said = f"Fatal error: gradients are inconsistent between workers\nrank   0 = {norm}\nrank   1"
    error = divergence(f"{said} = 0.3")
    assert (error is not None) == diverged
    if error is not None:
        assert str(error).startswith("the training diverged (gradients are Nan/Inf): give --clip")


def ours(registry: dict[str, Any]) -> dict[str, Any]:
    return {
        name: entry for name, entry in registry.items() if entry.__module__.startswith("sut_fair")
    }


def begin(task: Any) -> None:
    """Set up a task; those that read a folder begin when they are made of what is in it."""
    with contextlib.suppress(TypeError):
        task(None, None, None)
    task.setup_task(None)


def beginnings() -> dict[str, Callable[[], object]]:
    """Where fairseq begins to use something of ours: the call it makes, with senseless options."""
    calls: dict[str, Callable[[], object]] = {}
    for name, model in ours(MODEL_REGISTRY).items():
        calls[f"model {name}"] = lambda model=model: model.build_model(None, None)
    for name, task in ours(TASK_REGISTRY).items():
        calls[f"task {name}"] = lambda task=task: begin(task)
    for name, criterion in ours(CRITERION_REGISTRY).items():
        calls[f"criterion {name}"] = lambda kind=criterion: kind.build_criterion(None, None)
    for name in ours(ARCH_MODEL_REGISTRY):
        fill_in = ARCH_CONFIG_REGISTRY[name]
        if name not in MODEL_REGISTRY:
            calls[f"arch {name}"] = lambda fill_in=fill_in: fill_in(SimpleNamespace())
    return calls


def test_the_list_is_not_empty() -> None:
    kinds = {name.split()[0] for name in beginnings()}
    assert kinds == {"model", "task", "criterion", "arch"}


@pytest.mark.parametrize("beginning", sorted(beginnings()))
def test_whatever_fairseq_uses_of_ours(
    beginning: str, run_as: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors are sentences, and what it trains is safe."""
    run_as("fairseq-train")
    protected: list[str] = []
    monkeypatch.setattr(_process, "protect_trainings", lambda: protected.append(beginning))
    with contextlib.suppress(Exception):
        beginnings()[beginning]()
    assert sys.excepthook is not old_hook
    assert protected
