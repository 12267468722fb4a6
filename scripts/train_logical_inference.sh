#!/usr/bin/env bash
# Shows:    the Sparse Universal Transformer infers logical relations between sentences that are
#           longer than those of its training, where a plain Transformer does not.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     see docs/results.md.
# Expect:   the paper: 98, 97, 94, 90, 88, 81 % on 7 to 12 operators; --small: docs/results.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_logical_inference.sh --data DIR [--model NAME] [--small] [options]

Train on logical inference (data-prep/logical_inference.sh), at most 6 operators, as classification
of one label. Without --small: the paper's model and settings (Tables 6 and 7), 450 epochs. With
--small: states of 128, 4,000 updates of 4,096 tokens, 6 steps of `sut` or 6 layers of fairseq's own
`transformer` with about as many MACs.

HELP
}

experiment=logical_inference
models="sut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    updates="${updates:-4000}"
    settings=("${small_run[@]}" --lr 1e-3 --max-tokens 4096 --dropout 0.0)
    case "$model" in
        sut)
            settings+=(
                --arch sut_tiny --no-token-positional-embeddings --attention-window 1
                --encoder-layers 6 --decoder-layers 1
            )
            ;;
        transformer)
            settings+=(
                --arch transformer --encoder-layers 6 --decoder-layers 1 --encoder-embed-dim 128
                --encoder-ffn-embed-dim 256 --encoder-attention-heads 8
                --decoder-attention-heads 8 --encoder-normalize-before
                --decoder-normalize-before
            )
            ;;
    esac
    interval=$((updates / 4 > 0 ? updates / 4 : 1))
else
    settings=("${table_7[@]}" --max-tokens 16384 --update-freq 4 --max-epoch 450)
    case "$model" in
        sut) settings+=(--arch sut_logical_inference) ;;
        transformer) settings+=(--arch transformer --dropout 0.5) ;;
    esac
    interval=1000
fi
train "${settings[@]}" --task classification_as_translation --group-column operators \
    --validate-interval 100000 --validate-interval-updates "$interval" \
    --save-interval 100000 --save-interval-updates "$interval" --keep-interval-updates 1 \
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
