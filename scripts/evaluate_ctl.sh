#!/usr/bin/env bash
# Shows:    accuracy on compositional table lookup by functions.
# Machine:  that of the training.
# Time:     seconds.
# Expect:   as train_ctl.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_ctl.sh --run DIR [options]

Accuracy on compositional table lookup by functions. --steps N runs the model in another number of
steps than in training.

HELP
}

read_evaluation_options "$@"
by="${by:-depth}"
evaluate
