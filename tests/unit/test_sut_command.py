"""`sut` lists the commands and runs them; help has groups and examples; shells complete."""

from __future__ import annotations

import argparse
import importlib
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sut_data.command_line import Parser
from sut_data.commands import about, commands, completion, main
from sut_data.main import main as prepare
from sut_data.main import set_files

# More options than these need headings.
MOST_WITHOUT_HEADING = 8


def parser_of(name: str) -> Parser:
    """The command line of a console command."""
    parser = importlib.import_module(commands()[name].module).make_parser()
    assert isinstance(parser, Parser)
    return parser


def with_subcommands(parser: Parser) -> Iterator[Parser]:
    """A parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from with_subcommands(one)


def command_lines(parser: Parser) -> list[list[str]]:
    """The examples of a parser as words, lines that go on put together."""
    text = "\n".join(parser.examples).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines()]


def test_sut_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"sut-macs", "sut-options", "sut-prepare", "sut-user-dir"} <= set(commands())
    assert main([]) == 0
    shown = capsys.readouterr().out
    for name, command in commands().items():
        line = about(command)
        assert f"  {name} " in shown and line in shown
        assert line.endswith(".") and not line.startswith("`")


def test_sut_runs_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["sut"])
    for name in ("user-dir", "sut-user-dir"):
        assert main([name]) == 0
        assert capsys.readouterr().out.endswith("/sut_fairseq\n")
    assert main(["nothing"]) == 2
    assert "there is no command `nothing`; `sut` lists them all" in capsys.readouterr().err


def test_sut_imports_neither_torch_nor_fairseq() -> None:
    code = (
        "import sys, sut_data.commands as commands\n"
        "commands.main([])\n"
        "print(*{'torch', 'fairseq'} & {*sys.modules})"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("name", list(commands()))
def test_help_has_headings_and_examples_that_are_understood(name: str) -> None:
    whole = parser_of(name)
    for parser in with_subcommands(whole):
        (plain,) = [group for group in parser._action_groups if group.title == "options"]
        assert len(plain._group_actions) <= MOST_WITHOUT_HEADING, parser.prog
        lines = command_lines(parser)
        assert len(lines) >= 2, parser.prog
        assert all(line[: len(parser.prog.split())] == parser.prog.split() for line in lines), lines
        shown = parser.format_help()
        assert "\nexamples:\n" in shown
        if name == "sut-prepare":
            continue  # it hands its arguments on
        for line in lines:
            ends = [line.index(word) for word in ("--", "#", ">", "|") if word in line]
            whole.parse_args(line[1 : min(ends, default=len(line))])


@pytest.mark.parametrize("name", list(set_files()))
def test_help_of_data_sets_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prepare([name, "--help"])
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert examples.count(f"  sut-prepare {name} ") == 2
    with pytest.raises(SystemExit):
        prepare([f"{name}.sh", "--help"])
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert examples.count(f"  bash data-prep/{name}.sh ") == 2


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str) -> None:
    pytest.importorskip("shtab")
    script = completion(shell)
    for name in ("sut", *commands()):
        assert name in script
    assert "--alpha-threshold" in script and "parallel_text" in script
    if shell == "bash":
        check = f"{script}\n_shtab_sut_macs >/dev/null 2>&1; complete -p sut-macs sut-experiment"
        process = subprocess.run(["bash", "-c", check], capture_output=True, text=True)
        assert process.returncode == 0 and process.stdout.count("complete ") == 2, process.stderr
