#!/usr/bin/env bash
# Shows:    accuracy on ListOps by depth of nesting.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_listops.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_listops.sh --run DIR [options]

Accuracy on ListOps by the depth of nesting.

HELP
}

read_evaluation_options "$@"
by="${by:-depth}"
evaluate
