#!/usr/bin/env bash
# Shows:    accuracy on ListOps by dependency depth.
# Machine:  that of the training.
# Time:     seconds.
# Expect:   as train_listops_dependency.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_listops_dependency.sh --run DIR [options]

Accuracy on ListOps by dependency depth. --steps N runs the model in another number of steps than in
training: the paper's number is that of 24 steps, 4 more than in training.

HELP
}

read_evaluation_options "$@"
by="${by:-depth}"
evaluate
