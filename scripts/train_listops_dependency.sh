#!/usr/bin/env bash
# Shows:    the Neural Data Router computes nested lists whose results depend on more operations in a
#           row than in training.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     see docs/results.md.
# Expect:   the paper, accuracy on dependency depth 7 and 8, with 24 steps: 0.99, baselines at most
#           0.90.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"
. "$(dirname -- "${BASH_SOURCE[0]}")/_router.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_listops_dependency.sh --data DIR [--model NAME] [--small] [options]

Train on ListOps balanced by dependency depth (data-prep/listops_dependency.sh). Without --small: Table
9 of the paper. With --small: states of 128 and 12 steps, larger steps of the optimiser, 2,400
updates of 64 sources, after 4,000 on those of at most 7 and 8,000 on those of at most 14 tokens.

HELP
    router_usage
}

experiment=listops_dependency
models="ndr transformer rel abs_rel_gate lstm bilstm"
read_training_options "$@"
router_settings listops
settings+=(--clip-norm 1)

if [ -n "$small" ]; then
    small_router_settings 2400 64 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
        --encoder-attention-heads 8 --encoder-layers 12 --dropout 0 --activation-dropout 0
elif is_model lstm bilstm; then
    updates="${updates:-200000}"
    settings+=(--lr 1e-3 --batch-size 512 --weight-decay 0.08)
elif is_model transformer rel; then
    updates="${updates:-200000}"
    settings+=(--lr 4e-4 --batch-size 512 --weight-decay 0.05)
else
    updates="${updates:-100000}"
    settings+=(--lr 2e-4 --batch-size 512 --weight-decay 0.09)
fi
if [ -n "$small" ]; then train_small_router 5:7 10:14; else train accuracy; fi
