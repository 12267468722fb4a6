"""`sut-doctor`: check this installation and machine; a line for each thing, ok or what to do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sut_data.command_line import Parser, run_command
from sut_data.doctor import installed, machine
from sut_data.doctor.finding import Finding, Ran, last_line
from sut_data.interrupts import end_when_interrupted
from sut_data.waiting import waiting

PROGRAM = "sut-doctor"


def main(argv: Sequence[str] | None = None) -> int:
    """Check everything; returns 0 if all is well, 1 if something needs a fix."""
    end_when_interrupted()
    arguments = make_parser().parse_args(argv)
    findings: list[Finding] = []
    status = run_command(PROGRAM, lambda: _main(arguments, findings))
    return status or int(not all(one.ok for one in findings))


def _main(arguments: argparse.Namespace, findings: list[Finding]) -> None:
    for finding in check_all():
        findings.append(finding)
        if not arguments.json:
            print(finding, flush=True)
    wrong = [one.name for one in findings if not one.ok]
    if arguments.json:
        print(json.dumps(_document(findings), indent=2, ensure_ascii=False))
    elif wrong:
        print(f"{len(wrong)} of {len(findings)} need something: {', '.join(wrong)}")
    else:
        print("all is well")


def _document(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "ok": all(one.ok for one in findings),
        "checks": [
            {"name": one.name, "ok": one.ok, "found": one.found, "fix": one.fix or None}
            for one in findings
        ],
    }


def check_all() -> Iterator[Finding]:
    """Yield the finding of each check as soon as it is done."""
    yield guarded(installed.PACKAGE, installed.check_package)
    yield guarded("Python", machine.check_python)
    with waiting("torch"):
        torch, ran = installed.probe("accelerator")
    about = torch[-1] if torch and not ran.problem else None
    multiplies = guarded("torch", lambda: installed.check_torch(about, ran))
    yield multiplies
    plugin, imported = _probe_plugin() if multiplies.ok else ([], None)
    yield guarded("fairseq", lambda: installed.check_fairseq(plugin, imported))
    registers = guarded("plugin", lambda: installed.check_plugin(plugin, imported))
    yield registers
    compiled = installed.installed("fairseq-fixed") is not None
    yield guarded("C++ compiler", lambda: machine.check_compiler(needed=not compiled))
    yield guarded("cores", lambda: installed.check_threads(about))
    yield guarded("GPU", lambda: installed.check_gpu(about))
    yield guarded("C library", machine.check_c_library)
    yield guarded("disk", machine.check_disk)
    with waiting("training a tiny model"):
        trained = guarded("training", lambda: installed.check_training(registers.ok))
    yield trained


def _probe_plugin() -> tuple[list[Any], Ran | None]:
    with waiting("fairseq"):
        return installed.probe("plugin")


def guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check finds; a failure of the check itself is a finding too."""
    try:
        return check()
    except Exception as error:
        said = last_line(f"{type(error).__name__}: {error}")
        return Finding(name, "unknown", f"this could not be checked ({said}).")


def make_parser() -> Parser:
    """Return the command line of `sut-doctor`."""
    parser = Parser(
        PROGRAM,
        "Check whether this installation and this machine can train and translate: versions, both "
        "distributions of fairseq, compiler, cores and threads, GPU and its precisions, C library, "
        "disk, whether fairseq finds the plugin, and a tiny training with generation, in a "
        "temporary folder. One line for each, ok or what to do.",
        "The exit status is 0 if all is ok, else 1.",
        examples=[PROGRAM, f"{PROGRAM} --json > doctor.json"],
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
