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
#SBATCH --signal=B:USR1@300
# Five minutes before the time limit (USR1 to this script), or when the job is preempted (TERM), the
# training saves and ends with status 75. The job is then requeued, and continues where it stopped.
# Not tested on a cluster: adapt the lines above to yours.
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

# Before anything else, since a signal may come at once.
told=
trap 'told=yes' USR1 TERM

# The environment that the package is installed in; without one, what is on PATH.
environment="${SLURM_SUBMIT_DIR:-.}/.venv/bin/activate"
# shellcheck source=/dev/null
if [ -f "$environment" ]; then . "$environment"; fi

nodes="${SLURM_JOB_NUM_NODES:-1}"
if [ "$nodes" -eq 1 ]; then
    # fairseq starts a process for each GPU by itself.
    sut-experiment train "$@" &
else
    # Every process must see all GPUs of its machine: fairseq takes the one of its local rank.
    gpus="${SLURM_GPUS_ON_NODE:?this script runs in a job of Slurm: start it with sbatch}"
    sut-experiment train --gpus $((nodes * gpus)) \
        --launcher "srun --ntasks $((nodes * gpus)) --ntasks-per-node $gpus --gpus-per-node $gpus --gpu-bind none" \
        "$@" -- --distributed-world-size $((nodes * gpus)) --distributed-port 12345 &
fi
training=$!

# USR1 in both cases: srun passes it on, whereas TERM makes it end the processes soon. Sent every
# second, since a process that has only just started may miss it; only the first counts.
while kill -0 "$training" 2>/dev/null; do
    if [ -n "$told" ]; then kill -USR1 "$training" 2>/dev/null || true; fi
    sleep 1 &
    wait "$!" || true # ends when a signal comes
done
status=0
wait "$training" || status=$?
case "$status" in
    75 | 138) # saved; or ended by USR1 (status 128 + 10) before it could handle it
        scontrol requeue "${SLURM_JOB_ID:?}"
        ;;
esac
exit "$status"
