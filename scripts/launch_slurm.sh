#!/usr/bin/env bash
# Trains an experiment under Slurm: on one machine with all its GPUs, or on several.
#
#   sbatch scripts/launch_slurm.sh wmt14 --models sut_base --seeds 1
#   sbatch --nodes 2 scripts/launch_slurm.sh wmt14 --models sut_base
#
#SBATCH --job-name=sut
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --output=slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# A job that was preempted is put back into the queue, and the training goes on where it stopped.
# Not tried on a cluster: adapt the lines above to yours.
set -euo pipefail

for argument in "$@"; do
    case "$argument" in
        -h | --help)
            cat <<'HELP'
usage: sbatch [options of sbatch] scripts/launch_slurm.sh NAME [options of sut-experiment train]

Train an experiment under Slurm. On several machines (--nodes N) every task of the job is a process
of fairseq-train, one for each GPU; fairseq reads machines and ranks from the job.
HELP
            exit 0
            ;;
    esac
done

# The environment that the package is installed in; without one, what is on PATH.
environment="${SLURM_SUBMIT_DIR:-.}/.venv/bin/activate"
# shellcheck source=/dev/null
if [ -f "$environment" ]; then . "$environment"; fi

nodes="${SLURM_JOB_NUM_NODES:-1}"
if [ "$nodes" -eq 1 ]; then
    # fairseq starts a process for each GPU by itself.
    exec sut-experiment train "$@"
fi
gpus="${SLURM_GPUS_ON_NODE:?this script runs in a job of Slurm: start it with sbatch}"
exec sut-experiment train --gpus $((nodes * gpus)) \
    --launcher "srun --ntasks $((nodes * gpus)) --ntasks-per-node $gpus --gpus-per-task 1" "$@" \
    -- --distributed-world-size $((nodes * gpus)) --distributed-port 12345
