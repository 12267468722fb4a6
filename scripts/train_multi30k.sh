#!/usr/bin/env bash
# Shows:    the Sparse Universal Transformer translates image captions as well as a Transformer that
#           does the same number of multiplications.
# Machine:  one GPU; with --small 2 CPU cores.
# Time:     see docs/results.md.
# Expect:   docs/results.md; the paper has no number.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_multi30k.sh --data DIR [--model NAME] [--small] [options]

Train on Multi30k (data-prep/multi30k.sh). `sut`, `ut`, or fairseq's `transformer` with about as many
MACs as `sut`. Without --small: states of 256, 6 steps or layers, 20,000 updates of 8,192 tokens. With
--small: states of 128, 3 steps or layers, 4,000 updates of 2,048 tokens.

HELP
}

experiment=multi30k
models="sut ut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 4000 absolute
    settings+=(--dropout 0.1 --lr 5e-3)
    case "$model" in
        # Experts that a token does not use cost nothing: as many as give both about as many
        # parameters, as in the paper's pairs.
        sut) settings+=(--attention-experts 8 --ffn-experts 8) ;;
        transformer)
            settings+=(--encoder-layers 3 --decoder-layers 3 --encoder-ffn-embed-dim 384)
            ;;
    esac
else
    updates="${updates:-20000}"
    settings=(
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 1.0
        --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 2000 --max-tokens 8192
    )
    case "$model" in
        sut | ut)
            settings+=(
                --arch "${model}_tiny" --encoder-embed-dim 256 --attention-head-dim 32
                --encoder-layers 6 --decoder-layers 6 --dropout 0.3 --attention-dropout 0.1
            )
            ;;
        transformer)
            settings+=(
                --arch transformer --encoder-embed-dim 256 --encoder-ffn-embed-dim 768
                --encoder-attention-heads 8 --decoder-attention-heads 8 --encoder-layers 6
                --decoder-layers 6 --encoder-normalize-before --decoder-normalize-before
                --dropout 0.3 --attention-dropout 0.1
            )
            ;;
    esac
    [ "$model" != sut ] || settings+=(--encoder-ffn-embed-dim 256)
fi
settings+=(--label-smoothing 0.1 --share-all-embeddings --keep-best-checkpoints 5)
evaluation="evaluate_translation.sh --data $data --checkpoints OUT/checkpoints"
train nll_loss "${small:+400}"
