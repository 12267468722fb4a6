#!/usr/bin/env bash
# Shows:    the Sparse Universal Transformer computes nested lists of up to 2,000 symbols.
# Machine:  one GPU of 40 GB or more; with --small (lists of Nangia and Bowman) 2 CPU cores.
# Time:     not measured.
# Expect:   the paper: 49.23 %, a Transformer 36.37 % (Long Range Arena).
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_experiment.sh"

usage() {
    cat <<'HELP'
usage: bash scripts/train_listops.sh --data DIR [--model NAME] [--small] [options]

Train on ListOps (data-prep/listops.sh) as classification of one label. Without --small: the paper's
logical inference model and settings, sources of up to 2,100 symbols. With --small: `sut_tiny` with 6
steps or a Transformer of 6 layers, 6,000 updates.

HELP
}

experiment=listops
models="sut transformer"
read_training_options "$@"

if [ -n "$small" ]; then
    small_settings 6000
    settings+=(--encoder-layers 6 --decoder-layers 1)
    [ "$model" != sut ] || settings+=(--decoder-halting none)
else
    paper_settings
    [ "$model" != sut ] || settings+=(--encoder-layers 12 --decoder-layers 12)
fi
settings+=(
    --task classification_as_translation --group-column depth
    --max-source-positions 2100
)
train accuracy
