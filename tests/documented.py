"""Code blocks of Markdown pages, and a way to run them as a reader would.

All blocks of a page run in their order, in one folder, as one bash script. Small programs stand in
for our commands and fairseq's: they hand their arguments to this process, which runs the real
command in a fork (`tests.integration.commands`). A page with ten commands then imports torch and
fairseq once. Further options shorten what would take long.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Listener
from pathlib import Path

from tests.integration.commands import run

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.*?) -->\n)?"
    r"^```(?P<language>sh|bash|python)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
_STAND_IN = """#!{python} -IS
import os, sys
from multiprocessing.connection import Client
with Client(os.environ["DOCUMENTED_COMMANDS"]) as caller:
    caller.send((os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), sys.stdin.read()))
    status, output, errors = caller.recv()
sys.stdout.write(output)
sys.stderr.write(errors)
sys.exit(status)
"""

Shorten = Callable[[str, list[str]], list[str]]


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: sh, bash or python.
        code: its content.
        reason: why it is not run; empty if it is.
    """

    language: str
    code: str
    reason: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that a reader would run."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["code"], match["reason"] or "")
        for match in _BLOCK.finditer(text)
    ]


def script(page: Path) -> str:
    """The blocks of a page that are run, as one bash script."""
    parts = []
    for number, block in enumerate(blocks(page), start=1):
        if block.reason:
            continue
        parts.append(f"echo '=== block {number}' >&2")
        if block.language == "python":
            parts.append(f"python -c \"$(cat <<'END'\n{block.code}END\n)\"")
        else:
            parts.append(block.code)
    return "\n".join(parts)


def run_page(
    page: Path, folder: Path, commands: list[str], shorten: Shorten
) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page.

    Args:
        page: the Markdown file.
        folder: where they run.
        commands: names of those that are run in forks; `python` runs the blocks in Python.
        shorten: takes the name and arguments of a command, returns the arguments to run it with.
    """
    programs = folder / ".commands"
    programs.mkdir()
    for name in (*commands, "python"):
        (programs / name).write_text(_STAND_IN.format(python=os.path.realpath(sys.executable)))
        (programs / name).chmod(0o755)
    with _served(folder / ".socket", shorten) as address:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script(page)],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "DOCUMENTED_COMMANDS": address,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@contextmanager
def _served(socket: Path, shorten: Shorten) -> Iterator[str]:
    """Answer the stand-ins, one after the other, until the script has ended."""
    with Listener(str(socket), family="AF_UNIX") as listener:

        def serve() -> None:
            while True:
                with listener.accept() as caller:
                    message = caller.recv()
                    if message is None:
                        return
                    name, arguments, cwd, given = message
                    done = run(
                        name, *shorten(name, arguments), cwd=Path(cwd), stdin=given, ok=False
                    )
                    caller.send((done.status, done.stdout, done.stderr))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(socket)
        finally:
            from multiprocessing.connection import Client

            with Client(str(socket)) as caller:
                caller.send(None)
            thread.join()
