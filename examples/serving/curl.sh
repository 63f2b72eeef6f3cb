#!/bin/sh
# Query a served model with curl: its state, its signatures, two texts by row and by column.
#
#     sh examples/serving/curl.sh [URL [MODEL]]
#
# The server is `bert-keras serve` or TF Serving; the model reads one text.
set -eu
url=${1:-http://localhost:8501}
model="$url/v1/models/${2:-emails}"

ask() {
    curl --silent --show-error --fail --max-time 30 "$@"
    echo
}

ask "$model"
ask "$model/metadata"
ask "$model:predict" \
    -d '{"instances": ["Dinner at ours on Friday?", "Claim your prize now!!!"]}'
ask "$model:predict" \
    -d '{"inputs": {"text": ["Dinner at ours on Friday?", "Claim your prize now!!!"]}}'
