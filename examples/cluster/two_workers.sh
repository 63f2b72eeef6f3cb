#!/usr/bin/env bash
# Several workers on this machine, over loopback, to test a cluster's command locally.
#
#     examples/cluster/two_workers.sh pretrain --data data/128 --vocab models/vocabulary \
#         --size 2/128/2 --output runs/two --steps 100
#
# WORKERS (2) is their number, PORT (29500) the port of the first one. Exits with the code
# of the first worker that fails, else 0.
set -uo pipefail
workers=${WORKERS:-2}
port=${PORT:-29500}
addresses=$(seq -s, "$port" $((port + workers - 1)) | sed 's/[0-9]\+/"localhost:&"/g')

pids=()
for index in $(seq 0 $((workers - 1))); do
    # As set by the TFJob of Kubernetes in each of its pods.
    TF_CONFIG="{\"cluster\": {\"worker\": [$addresses]}, \"task\": {\"type\": \"worker\", \"index\": $index}}" \
        python -m bert_keras "$@" --strategy multi-worker &
    pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null' INT TERM

code=0
for pid in "${pids[@]}"; do
    wait "$pid"; found=$?
    while kill -0 "$pid" 2>/dev/null; do wait "$pid"; found=$?; done # a signal ends `wait`
    [ "$code" -ne 0 ] || code=$found
done
exit "$code"
