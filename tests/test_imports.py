"""Which module may import which: the package's layers, read from its source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "sut_fairseq"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

# Each room and the rooms it may import from, besides itself.
ALLOWED = {
    "errors": set(),
    "statistics": set(),
    "losses": {"statistics"},
    "metrics": {"statistics"},
    "modules": {"statistics"},
    "_requirements": set(),
    "_added_options": set(),
    "_mistakes": set(),
    "_excepthook": {"_mistakes"},
    "_allocator": set(),
    "_machine": set(),
    "_training_options": set(),
    "_workers": {"_excepthook", "_training_options"},
    "_tensorboard": set(),
    "checkpoints": {"_excepthook", "_mistakes", "_training_options", "_workers"},
    "_process": {"checkpoints", "_excepthook", "_mistakes", "_workers"},
    "models": {
        *("modules", "statistics", "checkpoints"),
        *("_added_options", "_excepthook", "_process", "_training_options", "_workers"),
    },
    "criterions": {
        *("losses", "metrics", "statistics"),
        *("_added_options", "_allocator", "_process", "_tensorboard", "_workers"),
    },
    "tasks": {"metrics", "modules", "statistics", "_process"},
    "experiments": {"checkpoints", "_machine"},
    # May use everything. Of the two, commands may show an analysis; nothing else uses either.
    "analysis": {
        *("statistics", "losses", "metrics", "modules", "models", "criterions", "tasks", ""),
        *("checkpoints", "_allocator", "_machine"),
    },
    # Trained models that are asked about text; the package itself offers them, when first used.
    "inference": {"modules", "tasks", "analysis", "experiments", "checkpoints", ""},
    "cli": {
        *("statistics", "losses", "metrics", "modules", "models", "criterions", "tasks", ""),
        *("analysis", "experiments", "inference", "checkpoints", "_allocator"),
    },
    # What fairseq looks up by name.
    "_registration": {"criterions", "models", "tasks", "checkpoints", "_excepthook"},
    # The package itself imports it, but not in every command, and shows the core's errors.
    "": {"inference", "_excepthook", "_registration", "_requirements"},
}
# The exception for bad input, which any room may raise; it imports nothing.
FOR_ALL = "errors"
# The sister package: its errors are those of every room, the rest of it is for commands, which
# begin with the import of the package itself.
DATA = "sut_data"
DATA_ROOT = ROOT.parent / "data-prep" / DATA
MAY_USE_DATA = {"checkpoints", "models", "analysis", "experiments", "inference", "cli"}
MAY_USE_DATA |= {"", "_registration"}
# Its rooms; each may import from those before it, and nothing of this package.
DATA_ROOMS = (
    *("errors", "interrupts", "files", "tables", "waiting", "command_line"),
    *("text", "folders", "kit", "sets", "also", "main", "doctor", "commands", "__main__"),
)
MAY_USE_FAIRSEQ = {
    *("_added_options", "_workers", "models", "criterions", "tasks", "metrics", "checkpoints"),
    *("analysis", "inference", "cli"),
}


def name_of(path: Path, root: Path) -> str:
    """Dotted name of a module, relative to the package; "" for the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.split(".")[0]


def statements(tree: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    """All nodes of a module; those under `if TYPE_CHECKING`, which never run, only `for_types`."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        never_runs = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if for_types or not never_runs:
            yield from statements(node, for_types)


def imported(
    tree: ast.AST, module: str, is_package: bool, for_types: bool, package: str
) -> Iterator[str]:
    """Absolute dotted names that a module imports anywhere, inside functions too.

    `from a import b` gives both a and a.b, since b may be a module or not.
    """
    for node in statements(tree, for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = [package, *filter(None, module.split("."))]
                up = node.level - is_package
                base = ".".join([*here[: len(here) - up], *filter(None, [base])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


parsed = cache(ast.parse)


def read(root: Path, package: str = PACKAGE, *, for_types: bool = True) -> dict[str, set[str]]:
    """All imports of each module of a package."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        name, tree = name_of(path, root), parsed(path.read_text(encoding="utf-8"))
        found[name] = set(imported(tree, name, path.stem == "__init__", for_types, package))
    return found


def inside(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Imports of modules of the package itself, by their relative names."""
    result: dict[str, set[str]] = {}
    for module, names in imports.items():
        own = {name[len(PACKAGE) + 1 :] for name in names if f"{name}.".startswith(f"{PACKAGE}.")}
        result[module] = {name for name in own if name in imports}
        if result[module] - {""}:
            # `from package import module` is an import of the module, not of what is around it.
            result[module].discard("")
    return result


def violations(imports: dict[str, set[str]]) -> list[str]:
    """One line for each import that the layers forbid."""
    found = []
    for module, names in imports.items():
        room = room_of(module)
        if room not in ALLOWED:
            found.append(f"{module}: the room `{room}` has no rule")
            continue
        for other in sorted(inside(imports)[module]):
            if other != FOR_ALL and room_of(other) not in {room, *ALLOWED[room]}:
                found.append(f"{module} imports {other or PACKAGE}")
        if room not in MAY_USE_DATA:
            data = {".".join(name.split(".")[:2]) for name in names if room_of(name) == DATA}
            wrong = data - {DATA, f"{DATA}.{FOR_ALL}"}
            found += [f"{module} imports {name}" for name in sorted(wrong)]
        if room not in MAY_USE_FAIRSEQ and any(room_of(name) == "fairseq" for name in names):
            found.append(f"{module} imports fairseq")
    return found


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a cycle; empty if there is none."""
    graph = {module: others - {module} for module, others in inside(imports).items()}
    while graph:
        # Whatever imports nothing that is left cannot be part of a ring.
        free = {module for module, others in graph.items() if not others & graph.keys()}
        if not free:
            return sorted(graph)
        graph = {module: others for module, others in graph.items() if module not in free}
    return []


def test_every_layer_keeps_to_its_own() -> None:
    imports = read(ROOT)
    assert {"statistics", "modules.stack", "models.universal_transformer", ""} <= imports.keys()
    assert violations(imports) == []


def test_no_circles() -> None:
    assert circle(read(ROOT, for_types=False)) == []


def data_violations(imports: dict[str, set[str]]) -> list[str]:
    """What sut_data imports of sut_fairseq, of torch or fairseq, or of its own later layers."""
    found = []
    for module, names in imports.items():
        room = room_of(module)
        rank = DATA_ROOMS.index(room) if room else 0
        for name in sorted(names):
            first, _, rest = name.partition(".")
            if first in (PACKAGE, "fairseq", "torch"):
                found.append(f"{DATA}.{module} imports {name}")
            elif first == DATA and rest and DATA_ROOMS.index(room_of(rest)) > rank:
                found.append(f"{DATA}.{module} imports {name}, a later room")
    return found


def test_the_data_package_stands_alone() -> None:
    imports = read(DATA_ROOT, DATA)
    assert {"errors", "text.pipeline", "sets.scan.command", "main"} <= imports.keys()
    assert data_violations(imports) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("text/words.py", "from sut_fairseq.errors import InputError"),
        ("text/words.py", "def f():\n    import torch"),
        ("text/words.py", "from sut_data.folders import making"),
        ("text/words.py", "from ..sets import scan"),
        ("errors.py", "from sut_data.files import read_lines"),
    ],
)
def test_forbidden_imports_of_the_data_package_are_seen(
    tmp_path: Path, file: str, source: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    assert data_violations(read(tmp_path, DATA))


def test_importing_all_of_the_data_package_loads_no_torch() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import sut_data\n"
        "for module in pkgutil.walk_packages(sut_data.__path__, 'sut_data.'):\n"
        "    if module.name != 'sut_data.__main__':\n"
        "        importlib.import_module(module.name)\n"
        "heavy = {'torch', 'fairseq', 'sut_fairseq', 'numpy', 'sacremoses', 'sentencepiece'}\n"
        "print(len([name for name in sys.modules if name.startswith('sut_data')]))\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()) or 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(DATA_ROOT.parent)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 40


def test_without_the_data_package_one_sentence_says_what_to_do() -> None:
    """As with `--user-dir sut_fairseq` in a checkout that is not installed."""
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sut_data':\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import sut_fairseq\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "ImportError: sut_fairseq needs the package sut_data, which is installed together with "
        "it: run `pip install -e .` in the repository, and give `--user-dir` as before."
    )


@pytest.mark.parametrize(
    "file, source",
    [
        ("modules/stack.py", "import fairseq.utils"),
        ("modules/stack.py", "def f():\n    from fairseq import utils"),
        ("modules/stack.py", "from sut_fairseq import losses"),
        ("modules/stack.py", "from .. import losses"),
        ("modules/deep/er.py", "from ...losses import router_z"),
        ("modules/stack.py", "from sut_fairseq.models._config import X"),
        ("losses.py", "from sut_fairseq.modules.stack import Stack"),
        ("criterions/auxiliary.py", "import sut_fairseq.modules.stack"),
        ("models/data_router.py", "from sut_fairseq.analysis.trace import f"),
        ("models/data_router.py", "from sut_fairseq.criterions import auxiliary"),
        ("analysis/trace.py", "from sut_fairseq.cli.macs import f"),
        ("statistics.py", "import sut_fairseq"),
        ("modules/stack.py", "from sut_data.files import read_lines"),
        ("losses.py", "import sut_data.text"),
        ("kernels/fast.py", ""),
    ],
)
def test_forbidden_imports_are_seen(tmp_path: Path, file: str, source: str) -> None:
    """The check itself, on a copy of the package's outline with one import too many."""
    outline = ["__init__.py", "statistics.py", "losses.py", "modules/stack.py", "models/_config.py"]
    outline += ["criterions/auxiliary.py", "analysis/trace.py", "cli/macs.py"]
    for name, text in {**dict.fromkeys(outline, ""), file: source}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(violations(read(tmp_path))) == 1


def test_circles_are_seen(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "one.py").write_text("from sut_fairseq.modules.two import f")
    (tmp_path / "modules" / "two.py").write_text(
        "def g():\n    from sut_fairseq.modules import one"
    )
    assert violations(read(tmp_path)) == []
    assert circle(read(tmp_path)) == ["modules.one", "modules.two"]
