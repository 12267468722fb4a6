#!/usr/bin/env bash
# Shows:    Universal Transformers, dense and sparse, on COGS, sentences to logical forms with combinations unseen in training.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     see docs/results.md.
# Expect:   the paper has no number; --small: docs/results.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_cogs.sh --data DIR [--model NAME] [--small] [options]

Train on COGS (data-prep/cogs.sh). Without --small: the dense model of the paper's CFQ runs (`ut`),
the experts of its logical inference model (`sut`), or fairseq's Transformer for IWSLT, with the
paper's settings. With --small: `ut_tiny`, `sut_tiny`, or a Transformer of two layers, states of 128,
6,000 updates. `ndr` is the Neural Data Router, in encoder and decoder.

HELP
}

experiment=cogs
models="sut ut ndr transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 6000
else
    paper_settings
fi
train exact_match
