#!/usr/bin/env bash
# Shows:    exact match on a split of SCAN, by the length of the output.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_scan.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_scan.sh --run DIR [options]

Exact match on SCAN by the number of actions.

HELP
}

read_evaluation_options "$@"
by="${by:-target_length}"
evaluate
