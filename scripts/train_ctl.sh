#!/usr/bin/env bash
# Shows:    the Neural Data Router applies tables it has learned more often in a row than in training.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     with --small see docs/results.md.
# Expect:   the paper, accuracy on 9 and 10 functions: 1.00 in both directions.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"
. "$(dirname -- "${BASH_SOURCE[0]}")/_router.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_ctl.sh --data DIR [--model NAME] [--small] [options]

Train on compositional table lookup (data-prep/ctl.sh). Without --small: Table 7 of the paper. With
--small: states of 128, larger steps of the optimiser, as many steps of the model in training as a
source has tokens and one more (all 14 with ACT), all lengths equally often, 4,000 updates of 256
sources.

HELP
    router_usage
}

experiment=ctl
models="$router_models"
read_training_options "$@"
router_settings ctl
settings+=(--clip-norm 5)

if [ -n "$small" ]; then
    settings+=(--balance-lengths)
    # How many steps a length needs is what ACT shall find out by itself.
    case "$model" in *_act*) steps=() ;; *) steps=(--training-steps-beyond-length 1) ;; esac
    small_router_settings 4000 256 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
        --encoder-layers 14 --activation-dropout 0.1 ${steps[@]+"${steps[@]}"}
elif is_model lstm bilstm dnc; then
    updates="${updates:-20000}"
    settings+=(--lr 1e-3 --batch-size 256 --weight-decay 0)
else
    case "$model" in
        *_act*) updates="${updates:-60000}" settings+=(--encoder-layers 14) ;;
        *) updates="${updates:-30000}" ;;
    esac
    settings+=(--batch-size 512)
    if is_model transformer rel geometric; then
        settings+=(--lr 1.5e-4 --weight-decay 0.0025)
    elif is_model ndr; then
        settings+=(--lr 1.5e-4 --weight-decay 0.01)
    else
        settings+=(--lr 2e-4 --weight-decay 0.01)
    fi
fi
train accuracy "${small:+250}"
