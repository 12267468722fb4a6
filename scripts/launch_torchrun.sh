#!/usr/bin/env bash
# Trains an experiment on all GPUs of one or several machines with torchrun.
#
# One machine needs no launcher: `sut-experiment train NAME` uses all its GPUs. With several, run this
# on each of them, with the same run folder on a shared file system:
#
#   NODES=2 NODE=0 FIRST=machine-0 bash scripts/launch_torchrun.sh wmt14 --models sut_base
#   NODES=2 NODE=1 FIRST=machine-0 bash scripts/launch_torchrun.sh wmt14 --models sut_base
#
# Not tested on several machines.
set -euo pipefail

for argument in "$@"; do
    case "$argument" in
        -h | --help)
            cat <<'HELP'
usage: NODES=N NODE=I FIRST=HOST bash scripts/launch_torchrun.sh NAME [options of sut-experiment train]

Train an experiment with torchrun on N machines of equally many GPUs. Run it on each machine:
I is its number from 0, HOST the name of the first one. GPUS=M says how many GPUs each has (default:
those of this machine), PORT which port of the first one is used (default: 29500).
HELP
            exit 0
            ;;
    esac
done

nodes="${NODES:-1}" node="${NODE:-0}"
gpus="${GPUS:-$(python -c 'import torch; print(torch.cuda.device_count())')}"
launcher="torchrun --nnodes $nodes --node-rank $node --nproc-per-node $gpus \
--master-addr ${FIRST:-localhost} --master-port ${PORT:-29500}"
if [ "$node" -eq 0 ]; then
    # The first machine keeps the record of the run.
    exec sut-experiment train --gpus $((nodes * gpus)) --launcher "$launcher" "$@"
fi
# The others run the same commands, one stage after the other; finished stages are comments in the
# list.
shopt -u patsub_replacement 2>/dev/null || true # in bash 5.2 an & in the path would be replaced
program="$(printf %q "$(command -v fairseq-train)")"
sut-experiment train --gpus $((nodes * gpus)) --launcher "$launcher" --dry-run "$@" |
    # torchrun takes the path of a script, not the name of a command.
    while read -r line; do eval "${line/ fairseq-train / $program }" </dev/null; done
