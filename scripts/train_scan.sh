#!/usr/bin/env bash
# Shows:    what Universal Transformers, dense and sparse, generalise to on SCAN's splits.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     with --small 15 minutes on 2 cores for 2,500 updates.
# Expect:   nearly all commands of the random split right, and far fewer of `addprim_jump` and `length`
#           (docs/results.md).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_scan.sh --data DIR [--model NAME] [--small] [options]

Train on a split of SCAN (data-prep/scan.sh). Without --small: the dense model of the paper's CFQ
runs (`ut`), or as many experts of its logical inference model (`sut`). With --small: `ut_tiny`,
`sut_tiny`, or fairseq's own Transformer of two layers, states of 128, 2,500 updates.

HELP
}

experiment=scan
models="sut ut transformer"
read_training_options "$@"

positions=(--no-token-positional-embeddings)  # lengths unseen in training need relative ones
if [ -n "$small" ]; then
    updates="${updates:-2500}"
    settings=("${small_run[@]}" --max-tokens 2048)
    case "$model" in
        sut) settings+=(--arch sut_tiny "${positions[@]}") ;;
        ut) settings+=(--arch ut_tiny "${positions[@]}") ;;
        transformer)
            settings+=(
                --arch transformer --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128
                --encoder-ffn-embed-dim 256 --encoder-attention-heads 8
                --decoder-attention-heads 8 --encoder-normalize-before
                --decoder-normalize-before --dropout 0.1 --lr 2e-3
            )
            ;;
    esac
    interval=$((updates / 10 > 0 ? updates / 10 : 1))
else
    settings=("${table_7[@]}" --max-tokens 16384 --update-freq 4 --max-epoch 450)
    case "$model" in
        sut) settings+=(--arch sut_logical_inference --encoder-layers 8 --decoder-layers 8) ;;
        ut) settings+=(--arch ut_cfq) ;;
        transformer) settings+=(--arch transformer) ;;
    esac
    interval=1000
fi
train "${settings[@]}" \
    --validate-interval 100000 --validate-interval-updates "$interval" \
    --save-interval 100000 --save-interval-updates "$interval" --keep-interval-updates 1 \
    --best-checkpoint-metric exact_match --maximize-best-checkpoint-metric
