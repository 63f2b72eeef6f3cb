"""Put a task on an encoder, save and load it, export and convert it.

Read `folder`, `pretrained_model`, `model_folder`, `export`, `task_model`, `loading`, in
that order. `task_model` is a `trainable_model`, whose losses are in `objective`.
`model_card` writes the README of a folder, `model_file` the graphs of other
engines. `convert` writes checkpoints of other formats.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
