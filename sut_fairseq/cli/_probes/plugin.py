"""Imports fairseq, and then has it import this package as for `--user-dir`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import fairseq


def main() -> None:
    """Print a JSON document after each of the two imports."""
    from fairseq import models, utils

    print(json.dumps({"file": fairseq.__file__}), flush=True)
    utils.import_user_module(Namespace(user_dir=str(Path(__file__).resolve().parents[2])))
    package = Path(__file__).resolve().parents[2].name
    ours = [
        name
        for name, kind in models.ARCH_MODEL_REGISTRY.items()
        if kind.__module__.partition(".")[0] == package
    ]
    if "sut_base" not in ours:
        sys.exit("it imports the package, but then does not know the architecture sut_base")
    print(json.dumps({"architectures": len(ours)}))


if __name__ == "__main__":
    main()
