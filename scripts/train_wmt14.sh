#!/usr/bin/env bash
# Shows:    the Sparse Universal Transformer on WMT'14 English-German, and what each of its parts does.
# Machine:  8 GPUs (the paper: 8192 x 32 tokens for each update); --small only shows that it runs.
# Time:     not measured.
# Expect:   the paper, BLEU: sut_base 29.2, sut_big 29.4, ut_base 29.3, ut_big 29.6, Transformer base
#           27.3, big 29.3; sut_base without mim 28.9, momha 28.7, act 29.0, halting 29.1.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_wmt14.sh --data DIR [--model NAME] [--without PART] [--small] [options]

Train on WMT'14 (data-prep/wmt14_en_de.sh) with the paper's settings (Tables 6 and 7), 8192 tokens x 32
for each update, spread over the GPUs there are. `transformer` is fairseq's transformer_wmt_en_de.

  --without PART  one row of the ablation (Table 2), for sut_base and sut_big:
                  mim       load balancing (Fedus et al., 2021) instead of mutual information
                  momha     one head for each expert, 4 times as many experts (MoA)
                  act       no loss for expected depth
                  halting   all tokens run all steps
HELP
}

experiment=wmt14
models="sut_base sut_big ut_base ut_big transformer"
own_option=--without without=""
read_training_options "$@"

settings=(
    --arch "$model" --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)'
    --adam-eps 1e-9 --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000
    --share-all-embeddings --keep-best-checkpoints 5
)
case "$model" in
    transformer) settings+=(--arch transformer_wmt_en_de) ;;
    ut_*) [ -z "$without" ] || die "--without takes parts of sut_base and sut_big, not of $model." ;;
esac
case "$without" in
    "") ;;
    mim) settings+=(--mutual-information-weight 0 --load-balance-weight 0.01) ;;
    momha)
        # As many heads for each token, and as many query weights.
        experts=$([ "$model" = sut_big ] && echo 192 || echo 96)
        settings+=(--encoder-attention-heads 1 --attention-experts "$experts" --attention-top-k 16)
        ;;
    act) settings+=(--expected-depth-weight 0) ;;
    halting) settings+=(--encoder-halting none --decoder-halting none) ;;
    *) die "--without takes mim, momha, act or halting, not \`$without\`." ;;
esac
if [ -n "$small" ]; then
    updates="${updates:-100}"
    settings+=(--max-tokens 2048)
else
    settings+=(--max-tokens 8192 --max-epoch 100)
    batches=32
fi
evaluation="evaluate_translation.sh --data $data --checkpoints OUT/checkpoints"
train nll_loss
