"""Read and write checkpoints of every known format.

A reader maps the files of a folder or hub name to {canonical name: array}.

Read `formats`, `huggingface`, `matching`, `checkpoint`, `names`, in that order; the
other formats have a file each. This subpackage uses no model class, and imports
TensorFlow only to write TensorFlow's formats.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
