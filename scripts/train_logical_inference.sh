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
--small: states of 64, 6 steps of `sut` or 6 layers of fairseq's own `transformer` with about as many
MACs; 3,000 updates on the pairs of at most 3 operators, without which so small a training stays at
the share of the most frequent label, then 5,000 on all.

HELP
}

experiment=logical_inference
models="sut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 5000
    settings+=(--lr 2e-3 --encoder-embed-dim 64 --encoder-layers 6 --decoder-layers 1 --dropout 0)
    case "$model" in
        sut)
            settings+=(
                --encoder-ffn-embed-dim 64 --attention-window 1 --expected-depth-weight 0
                --decoder-halting none
            )
            ;;
        transformer)
            settings+=(--encoder-ffn-embed-dim 256 --decoder-embed-dim 64 --decoder-ffn-embed-dim 256)
            ;;
    esac
else
    paper_settings
    [ "$model" != sut ] || settings+=(--encoder-layers 12 --decoder-layers 12)
fi
settings+=(--task classification_as_translation --group-column operators)
if [ -n "$small" ]; then
    short=$(((updates * 3 + 4) / 5))
    train_part short "$short" accuracy 1000 --train-subset short --total-num-update "$short"
fi
train accuracy "${small:+1000}"
