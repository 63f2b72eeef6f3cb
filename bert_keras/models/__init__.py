"""Put a task on an encoder, save, load and convert it.

Read `folder`, `pretrained_model`, `model_folder`, `task_model`, `loading`, in that
order. `task_model` is a `trainable_model`, whose losses are in `objective`. `convert`
reads and writes checkpoints of other formats.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(
    __name__, __file__, {"export_model": "bert_keras.exports"}
)
