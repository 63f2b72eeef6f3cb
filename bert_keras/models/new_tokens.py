"""A pretrained encoder with more tokens than it was pretrained with: `with_tokens`.

The embedding of a new token starts as the mean of the embeddings of the pieces into
which the encoder's own tokenizer splits it; so does its bias in the masked-LM head.

Source: Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression"
(arXiv:2402.09977), section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_keras.checkpoints import Checkpoint, LazyArrays
from bert_keras.checkpoints.huggingface import is_encoder_decoder
from bert_keras.errors import ConfigError
from bert_keras.models.folder import Folder
from bert_keras.runs.notes import say
from bert_keras.text.new_tokens import with_new_tokens
from bert_keras.text.tokenizer import WordPieceTokenizer

TABLE = "bert/embeddings/word_embeddings"
_BIAS = "cls/predictions/output_bias"


def with_tokens(folder: Folder, tokens: Sequence[str] | None) -> Folder:
    """Return a folder whose tokenizer has further words as added tokens; with notes.

    Args:
        folder: an encoder, with or without heads.
        tokens: as in `with_new_tokens`; without tokens, the folder itself.

    Raises:
        ConfigError: a token is wrong, or the folder has a decoder.
    """
    if tokens is None:
        return folder
    tokenizer, notes = with_new_tokens(folder.tokenizer, tokens)
    for note in notes:
        say(note)
    return widened(folder, tokenizer)


def widened(folder: Folder, tokenizer: WordPieceTokenizer) -> Folder:
    """Return a folder with another tokenizer, which has its tokens and further ones.

    A table with more rows than the folder has tokens grows only as far as needed.

    Raises:
        ConfigError: the folder has a decoder.
    """
    if is_encoder_decoder(folder.checkpoint.raw_config):
        raise ConfigError(
            f"tokens can be added to an encoder alone; received {folder.path}, which "
            "has a decoder"
        )
    own, checkpoint = folder.tokenizer, folder.checkpoint
    first = own.vocab_size
    if tokenizer.vocab_size == first:
        return folder
    starts = own(list(tokenizer.vocabulary[first:])).to_list()
    size = max(checkpoint.config.vocab_size, tokenizer.vocab_size)
    config = tokenizer.get_config()
    changed = dataclasses.replace(
        checkpoint,
        config=checkpoint.config.replace(vocab_size=size),
        raw_config={**checkpoint.raw_config, "vocab_size": size},
        arrays=_widened_arrays(checkpoint, size, first, starts),
        tokenizer={
            **checkpoint.tokenizer,
            "vocabulary": config["vocabulary"],
            "added_tokens": config.get("added_tokens", ()),
        },
    )
    return dataclasses.replace(
        folder, checkpoint=changed, config={**folder.config, "vocab_size": size}
    )


def _widened_arrays(
    checkpoint: Checkpoint, size: int, first: int, starts: Sequence[Sequence[int]]
) -> LazyArrays:
    """Return a checkpoint's arrays with `size` rows of tokens.

    From the row `first` on, each is the mean of the rows in its entry of `starts`.
    """
    arrays = checkpoint.arrays

    def read(name: str) -> np.ndarray:
        array = arrays[name]
        if name not in (TABLE, _BIAS):
            return array
        wide = np.zeros((size, *array.shape[1:]), np.float32)
        wide[: len(array)] = array
        for row, pieces in enumerate(starts, first):
            wide[row] = array[list(pieces)].mean(axis=0)
        return wide

    shapes = {
        name: (size, *shape[1:]) if name in (TABLE, _BIAS) else shape
        for name, shape in arrays.shapes.items()
    }
    return LazyArrays(shapes, read, place=str(checkpoint.path))
