"""`sut-import`: convert a checkpoint of the published SUT code for use with this package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from os.path import realpath
from pathlib import Path

from sut_data.command_line import Parser
from sut_data.files import check_writable
from sut_data.waiting import waiting
from sut_fairseq.checkpoints import writing
from sut_fairseq.cli._command import add_languages, check_apart, run_command
from sut_fairseq.errors import InputError
from sut_fairseq.inference.importing import Imported, import_published
from sut_fairseq.inference.original import TOLERANCE, compare, read_outputs


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return run_command("sut-import", lambda: _main(arguments))


def _main(arguments: argparse.Namespace) -> None:
    source, out = Path(arguments.checkpoint), Path(arguments.out)
    check_writable(out, "--out")
    if realpath(out) == realpath(source):
        raise InputError(f"--out `{out}` is the checkpoint itself; give another name.")
    for path in arguments.check:
        check_apart({"--check": path, "--out": out})
    outputs = {path: read_outputs(path) for path in arguments.check}
    with waiting("reading"):
        imported = import_published(
            source,
            alpha_threshold=arguments.alpha_threshold,
            data=arguments.data,
            languages=(arguments.source_lang, arguments.target_lang),
        )
    lines = []
    for path, one in outputs.items():
        with waiting("comparing"):
            found = compare(imported.model, one, imported.alpha_threshold, str(path))
        if found.differing:
            raise InputError(
                f"the outputs in `{path}` differ at {found.differing:,} of {found.tokens:,} target "
                f"tokens, by up to {found.difference:.2g} (alpha_threshold "
                f"{found.alpha_threshold:g}), so nothing was written: were they computed with "
                "these weights, without dropout, and with this threshold?"
            )
        lines.append(
            f"{path}: {found.tokens:,} target tokens agree at alpha_threshold "
            f"{found.alpha_threshold:g}, greatest difference {found.difference:.1e}"
        )
    with waiting("writing"):
        writing.save(imported.checkpoint(), out)
    print("\n".join([*lines, *_summary(imported, out)]))


def _summary(imported: Imported, out: Path) -> list[str]:
    """Lines of text that say what was written."""
    chosen = imported.translation.options
    num_parameters = sum(tensor.numel() for tensor in imported.model.parameters())
    halting = [side for side in ("encoder", "decoder") if chosen[f"{side}_halting"] != "none"]
    halts = f"alpha_threshold {imported.alpha_threshold:g}" if halting else "no halting"
    lines = [
        f"wrote {out}: {num_parameters:,} parameters, {chosen['attention_experts']} experts of "
        f"attention and {chosen['ffn_experts']} of feed-forward layers, "
        f"{chosen['encoder_layers']}-{chosen['decoder_layers']} steps, {halts}"
    ]
    if imported.files is None:
        lines.append(
            f"no dictionaries were found: name their folder with --data here, or in `sut-translate "
            f"{out} --data FOLDER`"
        )
    else:
        lines.append(f"translate with `sut-translate {out}`")
    return lines


def make_parser() -> Parser:
    """Return the command line of `sut-import`."""
    parser = Parser(
        "sut-import",
        description="Turn a checkpoint of the SUT code that Tan et al. (2023) published into one "
        "that fairseq-generate (with this plugin), sut-translate, sut-evaluate and "
        "`sut_fairseq.load` read. Tensors and settings are translated; the optimizer state is "
        "dropped. Nothing in the checkpoint is run.",
        examples=[
            "sut-import averaged_model.pt --data data-bin/wmt14 --out sut.pt",
            "sut-import averaged_model.pt --check outputs.npz --alpha-threshold 0.7 --out sut.pt",
        ],
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint of the published code")
    parser.add_argument(
        "--out", required=True, metavar="OUT", help="file to write; replaced if it exists"
    )
    parser.add_argument(
        "--alpha-threshold",
        type=float,
        metavar="A",
        help="halting threshold that the new checkpoint names, in (0, 1]; the original took it "
        "from the environment variable ACT_THRESHOLD (default: 0.999, like the original)",
    )
    parser.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="data folder of the original's training: its dictionaries are compared with the "
        "model's size, and their words kept in the checkpoint (default: beside the checkpoint, or "
        "the folder that it names, if there is one)",
    )
    add_languages(parser)
    parser.add_argument(
        "--check",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="compare with what the original computed: a .npz or .pt with `src_tokens`, "
        "`prev_output_tokens`, `logits`, and `alpha_threshold` if it was another one; if a logit "
        f"differs by more than {TOLERANCE:g}, nothing is written",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
