#!/usr/bin/env bash
# Shows:    what Universal Transformers, dense and sparse, generalise to on SCAN's splits.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     with --small about 20 minutes on one core for 2,500 updates.
# Expect:   nearly all commands of the random split right, and few of `addprim_jump` and `length`
#           (docs/results.md).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_scan.sh --data DIR [--model NAME] [--small] [options]

Train on a split of SCAN (data-prep/scan.sh). Without --small: the dense model of the paper's CFQ
runs (`ut`), the experts of its logical inference model (`sut`), or fairseq's Transformer for IWSLT.
With --small: `ut_tiny`, `sut_tiny`, or a Transformer of two layers, states of 128, 2,500 updates. `ndr` is the
Neural Data Router, in encoder and decoder.

HELP
}

experiment=scan
models="sut ut ndr transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 2500
else
    paper_settings
fi
train exact_match "${small:+250}"
