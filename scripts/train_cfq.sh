#!/usr/bin/env bash
# Shows:    Universal Transformers on CFQ, questions to SPARQL, with compounds unseen in training.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     see docs/results.md.
# Expect:   the paper, exact match on MCD1, MCD2, MCD3: with halting 72.4, 51.1, 51.7 %, without
#           71.0, 48.6, 51.3 %, T5-style 68.3, 43.1, 45.7 %; --small: docs/results.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_cfq.sh --data DIR [--model NAME] [--small] [options]

Train on CFQ (data-prep/cfq.sh). Without --small: the paper's models and settings (Tables 6 and 7):
`ut` halts, `ut_fixed` does not, `ut_t5` has T5's positions and normalisation and does not halt;
`sut` has the experts of the paper's logical inference model in 8 steps. With --small: `sut`, `ut` or
a `transformer` of two layers with states of 128, 6,000 updates.

HELP
}

experiment=cfq
models="ut ut_fixed ut_t5 sut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 6000
    case "$model" in
        ut_*) die "--small has the models sut, ut and transformer, not $model." ;;
    esac
else
    paper_settings
    case "$model" in
        ut_fixed) settings+=(--arch ut_cfq --encoder-halting none --decoder-halting none) ;;
        ut_t5) settings+=(--arch ut_cfq_t5) ;;
    esac
fi
train exact_match
