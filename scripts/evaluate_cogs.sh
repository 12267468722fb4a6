#!/usr/bin/env bash
# Shows:    exact match on COGS by type of generalisation.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_cogs.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_cogs.sh --run DIR [options]

Exact match on COGS for each of the 21 types of generalisation (`--subset gen`, the default) or on the
test set of its own distribution (`--subset test`).

HELP
}

read_evaluation_options "$@"
by="${by:-type}" subset="${subset:-gen}"
evaluate
