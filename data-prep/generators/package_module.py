"""Load one file of the package by itself: the package would import torch and fairseq."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from raw_files import REPOSITORY


def load(name: str) -> ModuleType:
    """Return the module of `sut_fairseq/<name>.py`, which imports nothing of the package."""
    path = REPOSITORY / "sut_fairseq" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"sut_fairseq_{name}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    specification.loader.exec_module(module)
    return module
