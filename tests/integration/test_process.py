"""What the package does to the process that imports it, what to one that trains, and its extras."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sut_data.command_line import EXTRAS
from tests.integration.commands import (
    TINY,
    USER_DIR,
    Finished,
    generate,
    run,
    run_installed,
    train,
    words,
)

# Leaves out what fairseq itself does when it is imported.
IMPORT_CHANGES_NOTHING = """
import logging, sys
import sut_fairseq
assert sys.excepthook is sys.__excepthook__
for name in ("fairseq.tasks.text_to_speech", "fairseq", "sut_fairseq", "matplotlib"):
    assert logging.getLogger(name).level == logging.NOTSET, name
for extra in ("matplotlib", "sacremoses", "sentencepiece", "subword_nmt", "ptflops"):
    assert extra not in sys.modules, extra

assert not sut_fairseq._allocator.keep_freed_memory.cache_info().currsize, "memory is kept"
sut_fairseq.errors.check(False, "a", "b", 1)
"""

# Runs the lines of its arguments one after the other, as the installed commands do.
RUN_LINES = """
import importlib, shlex, sys
lines = sys.argv[1:]
for line in lines:
    sys.argv = shlex.split(line)
    module = "sut_fairseq.cli." + sys.argv[0].removeprefix("sut-").replace("-", "_")
    assert importlib.import_module(module).main() == 0, line
    assert not {"torch", "fairseq"} & sys.modules.keys(), line
"""


def test_what_needs_no_model_answers_at_once(
    repository: Path, text: Path, data: Path, trained: Path, tmp_path: Path
) -> None:
    """Without torch and fairseq, whose import takes seconds."""
    (tmp_path / "generated").write_text(generate(data, trained).stdout)
    folder = shutil.copytree(data, tmp_path / "data")
    (folder / "text").mkdir()
    shutil.copy(text / "test.tgt", folder / "text")
    run = repository / "docs/results/records/ctl/ctl-backward-ndr-12000-seed-1"
    lines = [
        *("sut-user-dir", "sut-experiment list", "sut-experiment show ctl --size small"),
        *(f"sut-experiment {command} {run}" for command in ("compare", "report")),
        f"sut-experiment keep {run} --into {tmp_path}",
        *(f"sut-{name} {tmp_path}/generated --data {folder}" for name in ("exact-match", "bleu")),
    ]
    command = [sys.executable, "-c", RUN_LINES, *lines]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_an_import_changes_nothing() -> None:
    """And an error in somebody else's program keeps its traceback."""
    command = [sys.executable, "-c", IMPORT_CHANGES_NOTHING]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 1
    assert finished.stderr.startswith("Traceback")
    assert finished.stderr.endswith("InputError: `a` must be b, but is 1 instead.\n")


def test_a_bad_option_ends_the_installed_command_in_a_sentence(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    options = "--user-dir sut_fairseq --arch sut_tiny --attention-top-k 9 --cpu --batch-size 8"
    where = ("--save-dir", tmp_path / "run")
    finished = run_installed(
        "fairseq-train", data, *words(options), *where, cwd=repository, ok=False
    )
    assert finished.status == 1
    assert "Traceback" not in finished.stderr
    assert finished.last_line == (
        "error: `attention_top_k` must be between 1 and `attention_experts` (4), but is 9 instead."
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--arch transformer --criterion classification", "--criterion classification needs --t"),
        ("--arch transformer --task classification_as_translation", "classification needs a dict"),
    ],
    ids=["criterion", "task"],
)
def test_the_sentence_comes_without_our_model_too(
    options: str, sentence: str, joined_data: Path, tmp_path: Path
) -> None:
    sizes = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8"
    finished = train(joined_data, tmp_path, *words(options), *words(sizes), ok=False)
    assert finished.status == 1
    assert finished.last_line.startswith(f"error: {sentence}")
    assert "Traceback" not in finished.stderr


def test_training_says_once_that_freed_memory_is_kept(data: Path, tmp_path: Path) -> None:
    said = "training on a CPU: the C library keeps freed memory in this process"
    assert train(data, tmp_path, *TINY).stdout.count(said) == 1
    generated = generate(data, tmp_path / "checkpoint_last.pt")
    assert said not in generated.stdout + generated.stderr


# Runs a function with arguments where no extra is installed.
WITHOUT_EXTRAS = f"""
import sys
extras = tuple({list(EXTRAS)})
loaded = [name for name in sys.modules if name.partition(".")[0] in extras]
sys.modules.update(dict.fromkeys([*extras, *loaded]))
from {{module}} import {{function}} as command
sys.argv = ["command", *{{arguments}}]
sys.exit(command())
"""


def without_extras(module: str, function: str, *arguments: object, ok: bool = True) -> Finished:
    program = WITHOUT_EXTRAS.format(
        module=module, function=function, arguments=[str(one) for one in arguments]
    )
    return run("python", "-c", program, stdin="jump\n", ok=ok)


def test_training_generating_and_counting_need_no_extra(data: Path, tmp_path: Path) -> None:
    common = words("--cpu --batch-size 8 --num-workers 0 --required-batch-size-multiple 1")
    given = (data, "--user-dir", USER_DIR, *common)
    path = tmp_path / "checkpoint_last.pt"
    training = words("--optimizer adam --max-update 1 --disable-validation --save-dir")
    without_extras("fairseq_cli.train", "cli_main", *given, *TINY, *training, tmp_path)
    generated = without_extras("fairseq_cli.generate", "cli_main", *given, "--path", path)
    assert "Generate test with beam=5" in generated.stdout
    counted = without_extras("sut_fairseq.cli.macs", "main", "--path", path, "--data", data)
    assert "MACs" in counted.stdout


@pytest.mark.parametrize(
    ("command", "arguments", "package", "extra"),
    [
        ("evaluate", "--plot {out}/picture.svg", "matplotlib", "plots"),
        ("report", "--out {out}", "matplotlib", "plots"),
        ("translate", "", "sacremoses", "text"),
    ],
)
def test_a_missing_extra_is_named(
    command: str,
    arguments: str,
    package: str,
    extra: str,
    data: Path,
    trained: Path,
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(data, tmp_path / "moses")
    side = {"language": "de", "subwords": "words", "model": None}
    (folder / "tokenization.json").write_text(json.dumps({"src": side, "tgt": side}))
    given = [trained] if command == "translate" else ["--path", trained]
    given += ["--data", folder, *words(arguments.format(out=tmp_path))]
    finished = without_extras(f"sut_fairseq.cli.{command}", "main", *given, ok=False)
    assert finished.status == 2
    assert finished.last_line == (
        f"sut-{command}: error: this needs {package}, which is not installed: "
        f"run `pip install 'sut_fairseq[{extra}]'`."
    )
