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

Accuracy on logical inference by the number of operators, beside the paper's. On a systematic split
`--by A` (or B, C) shows the pairs with the held-out pattern (`yes`) beside the paper's.

HELP
}

read_evaluation_options "$@"
by="${by:-operators}"
published=()
if [ -z "$max_sentences" ] && [ "$subset" = test ]; then
    case "$by" in
        operators) published=(--published 7=98 8=97 9=94 10=90 11=88 12=81) ;;
        A) published=(--published yes=97) ;;
        B) published=(--published yes=94) ;;
        C) published=(--published yes=52) ;;
    esac
fi
evaluate ${published[@]+"${published[@]}"}
