"""A trained model in use: its folder, predictions, export, embeddings, search.

Read `model_folder`, `predictor`, `export`, in that order. `convert` writes checkpoints
of other formats: it needs models and tokenizers, so it does not stand in `checkpoints`.
"""
