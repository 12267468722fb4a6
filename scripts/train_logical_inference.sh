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
--small: states of 64, 6 steps of `sut` or 6 layers of fairseq's own `transformer`.

HELP
}

experiment=logical_inference
models="sut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 12000
    settings+=(
        --lr 2e-3 --encoder-embed-dim 64 --encoder-layers 6 --decoder-layers 1 --dropout 0
        --expected-depth-weight 0
    )
    case "$model" in
        sut) settings+=(--encoder-ffn-embed-dim 64 --attention-window 1) ;;
        transformer)
            settings+=(--encoder-ffn-embed-dim 256 --decoder-embed-dim 64 --decoder-ffn-embed-dim 256)
            ;;
    esac
else
    paper_settings
    [ "$model" != sut ] || settings+=(--encoder-layers 12 --decoder-layers 12)
fi
settings+=(--task classification_as_translation --group-column operators)
train accuracy "${small:+3000}"
