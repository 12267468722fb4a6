"""`sut-export`: write a trained model as one folder without code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import Parser
from sut_fairseq.cli._command import add_model, run_command
from sut_fairseq.inference.export import FORMATS, export
from sut_fairseq.inference.files import find_model


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return run_command("sut-export", lambda: _main(arguments))


def _main(arguments: argparse.Namespace) -> None:
    files = find_model(
        arguments.model, arguments.data, arguments.source_lang, arguments.target_lang
    )
    command = export(files, arguments.out, arguments.format, license=arguments.license)
    size = sum(path.stat().st_size for path in arguments.out.rglob("*") if path.is_file())
    print(
        f"wrote {arguments.out} ({size / 1e6:,.1f} MB); translate with "
        f"`{command}`, and read the model card, README.md, before publishing"
    )


def make_parser() -> Parser:
    """Return the command line of `sut-export`."""
    parser = Parser(
        "sut-export",
        description="Put a trained model into a new folder: weights without the optimizer state, "
        "configuration, dictionaries, tokenisation, and a model card with what the run's records "
        "say (data, scores, costs). Commands and `sut_fairseq.load` read the folder.",
        examples=[
            "sut-export checkpoints/mine --out mine --license cc-by-4.0",
            "sut-export mine --format pt --out mine_pt",
        ],
    )
    add_model(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="safetensors: model.safetensors and config.json, which cannot hold code; pt: "
        "checkpoint.pt, as fairseq writes it (default: %(default)s)",
    )
    parser.add_argument(
        "--license", metavar="NAME", help="licence of the model, for its card: mit, cc-by-4.0, ..."
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
