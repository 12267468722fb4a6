#!/usr/bin/env bash
# Shows:    accuracy on simple arithmetic by depth of nesting.
# Machine:  that of the training.
# Time:     seconds.
# Expect:   as train_arithmetic.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_arithmetic.sh --run DIR [options]

Accuracy on simple arithmetic by depth of nesting. --steps N runs the model in another number of
steps than in training.

HELP
}

read_evaluation_options "$@"
by="${by:-depth}"
evaluate
