#!/usr/bin/env bash
# Pretraining on the TPU of this machine, a TPU VM such as v4-8: in a checkout of
# bert_keras there, examples/cluster/tpu_vm.sh
#
# TensorFlow's package for TPUs ends at 2.20. Rows have one length, that of the data,
# since the TPU's compiler wants one shape; the batch is a multiple of the cores.
# Fine-tuning takes the same setting: bert-keras train TASK … --strategy tpu.
# (Written from TensorFlow's documentation; it was not run on a TPU.)
set -euo pipefail
python3 -m venv ~/bert
. ~/bert/bin/activate
pip install --quiet 'tensorflow-tpu==2.20.*' \
    --find-links https://storage.googleapis.com/libtpu-tf-releases/index.html
# Without their dependencies, which are TensorFlow's package for CPUs.
pip install --quiet --no-deps 'tensorflow-text==2.20.*' 'keras-hub>=0.21' .
pip install --quiet 'keras>=3.12,<4' safetensors google-crc32c huggingface_hub \
    fsspec jinja2 pyyaml rich typing_extensions

# A VM that was preempted starts again, and the same command goes on. One that is asked to
# end (SIGTERM) has saved, which code 75 says: it is not held by another try.
failures=0
until bert-keras pretrain --data data/128 --vocab models/vocabulary --size base \
    --output runs/base --batch-size 256 --precision mixed_bfloat16 --strategy tpu; do
    code=$?
    [ "$code" -ne 75 ] || exit 75 # run this script again to go on
    [ "$code" -ne 2 ] || exit 2 # a mistake in the command or the data
    failures=$((failures + 1))
    [ "$failures" -lt 20 ] || exit "$code"
    sleep 10
done
