#!/usr/bin/env bash
# Shows:    exact match on CFQ, and the share of queries with the right conditions.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_cfq.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_cfq.sh --run DIR [options]

Exact match on CFQ by the length of the query; with --search also the share of queries whose set of
conditions is right, in whatever order.

  --split NAME           which split the data are, to print the paper's number (with halting) beside
                         ours: mcd1 (72.4 %), mcd2 (51.1 %) or mcd3 (51.7 %)

HELP
}

own_option=--split split=""
read_evaluation_options "$@"
by="${by:-query_length}"
published_of "$split" mcd1=72.4 mcd2=51.1 mcd3=51.7
evaluate ${published[@]+"${published[@]}"} ${search:+--conjuncts}
