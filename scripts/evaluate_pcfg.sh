#!/usr/bin/env bash
# Shows:    exact match on PCFG SET by number of functions.
# Machine:  that of the training.
# Time:     minutes.
# Expect:   as train_pcfg.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/evaluate_pcfg.sh --run DIR [options]

Exact match on PCFG SET by the number of functions.

  --split NAME           which published split the data are, to print the paper's number beside ours:
                         systematicity (87 %) or productivity (62 %)

HELP
}

own_option=--split split=""
read_evaluation_options "$@"
by="${by:-functions}"
published_of "$split" systematicity=87 productivity=62
evaluate ${published[@]+"${published[@]}"}
