#!/usr/bin/env bash
# Pretraining on the TPU of this machine, a TPU VM such as v4-8. Run it in a checkout of
# bert_keras: examples/cluster/tpu_vm.sh
#
# The newest TensorFlow package for TPUs is 2.20. All rows have the length of the data,
# since the TPU's compiler needs fixed shapes; the batch is a multiple of the cores.
# Fine-tuning takes the same option: bert-keras train TASK … --strategy tpu.
# (Written from TensorFlow's documentation; it was not run on a TPU.)
set -euo pipefail
python3 -m venv ~/bert
. ~/bert/bin/activate
pip install --quiet 'tensorflow-tpu==2.20.*' \
    --find-links https://storage.googleapis.com/libtpu-tf-releases/index.html
# Without their dependencies, which include TensorFlow's package for CPUs.
pip install --quiet --no-deps 'tensorflow-text==2.20.*' 'keras-hub>=0.21' .
pip install --quiet 'keras>=3.12,<4' safetensors google-crc32c huggingface_hub \
    fsspec pyarrow tokenizers jinja2 lazy_loader pyyaml rich typing_extensions

# After a preemption the VM restarts, and the same command resumes. After SIGTERM the run
# is saved and exits with code 75; it is not retried here.
failures=0
until bert-keras pretrain --data data/128 --vocab models/vocabulary --size base \
    --output runs/base --batch-size 256 --precision mixed_bfloat16 --strategy tpu; do
    code=$?
    [ "$code" -ne 75 ] || exit 75 # run this script again to resume
    [ "$code" -ne 2 ] || exit 2 # a mistake in the command or the data
    failures=$((failures + 1))
    [ "$failures" -lt 20 ] || exit "$code"
    sleep 10
done
