"""What a model is written as for others: SavedModels, engines, model cards.

Read `saved_model` first. `model_file` writes the model of a task for an engine,
`answers_graph` its answers, and `answers_file` names the task of either.
`inference/engine_export.py` puts the files of an engine together, since it answers with
them to check them; `models/convert.py` writes checkpoints.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
