#!/usr/bin/env bash
# Shows:    computation traded for accuracy after training, by the halting threshold alone.
# Machine:  that of the training.
# Time:     as many evaluations as thresholds; with --search also as many generations.
# Expect:   fewer steps at lower thresholds. The paper (Figures 5 and 6): a third skipped at 0.8 on CFQ,
#           half at any threshold on logical inference.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_evaluation.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/sweep_alpha_threshold.sh --run DIR [options]

Accuracy or exact match against the share of skipped steps, for thresholds from 0.1 to 0.999, on the
reference targets, as in the paper, and with --search in greedy search too. For translations, which
exact match says little about, BLEU on tokens in greedy search (--search).

HELP
}

read_evaluation_options "$@"
[ -z "$alpha_threshold" ] || die "--alpha-threshold is what this script varies: leave it out."
modes=(--modes reference)
[ -z "$search" ] || modes=(--modes reference search)
if [ -n "$search" ] && [ -f "${data:-$(cat "$run/data")}/tokenization.json" ]; then
    modes=(--modes search --bleu)
fi
search="" sweep="thresholds${search:+-search}"
evaluate "${modes[@]}" --thresholds 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 0.999
