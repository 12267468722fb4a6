#!/usr/bin/env bash
# Shows:    exact match on PCFG SET by number of functions.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_pcfg.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_pcfg.sh --run DIR [options]

Exact match on PCFG SET by the number of functions.

HELP
}

read_evaluation_options "$@"
by="${by:-functions}"
evaluate
