#!/usr/bin/env bash
# Pretraining on 4 machines with 8 GPUs each, one process per machine: sbatch examples/cluster/slurm.sh
#SBATCH --job-name=bert-base
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=3-00:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"

# Each task gets its rank from Slurm's variables; --strategy auto would find them, too.
# The data must be at the same path on all machines; the run folder is on the first one.
# If a worker fails, `srun` ends the others, which also notice it themselves within half a
# minute (code 69); the same command then resumes from the last checkpoint. Two minutes
# before the time limit, or when the job is preempted, Slurm sends SIGTERM: all workers
# save and exit with code 75, which is not a failure, and the job is requeued.
for attempt in 1 2 3 4 5; do
    srun --kill-on-bad-exit=1 \
        bert-keras pretrain --data data/128 --data data/512 --vocab models/vocabulary \
        --size base --output runs/base --held-out data/held_out \
        --batch-size 256 --precision mixed_bfloat16 --strategy multi-worker && exit 0
    code=$?
    if [ "$code" -eq 75 ]; then # saved
        scontrol requeue "$SLURM_JOB_ID"
        exit 75
    fi
    # A mistake in the command or the data (code 2) is not worth a retry.
    [ "$code" -ne 2 ] || exit 2
    echo "attempt $attempt ended with code $code" >&2
done
exit "$code"
