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

HELP
}

read_evaluation_options "$@"
by="${by:-query_length}"
evaluate ${search:+--conjuncts}
