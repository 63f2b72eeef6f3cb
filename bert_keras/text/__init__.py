"""Strings to token ids to rows, in the TensorFlow graph.

Read `preprocessor`, `tokenizer`, `normalization`, `packing`, in that order; `ragged`
holds the operations on rows that all of them use, `tokenizer_files` what a folder
holds. `windows`, `masking` and `sentences` build on them.
"""
