#!/usr/bin/env bash
# Shows:    accuracy and depth by number of operators, up to twice as many as in training.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_logical_inference.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_logical_inference.sh --run DIR [options]

Accuracy on logical inference by the number of operators. On a systematic split `--by A` (or B, C) shows
the pairs with the held-out pattern as `yes`.

HELP
}

read_evaluation_options "$@"
by="${by:-operators}"
evaluate
