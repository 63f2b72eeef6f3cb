"""Attention of an encoder, as arrays and as a page: `explain_attention`.

The page has the three views of bertviz (Vig 2019, arXiv:1906.05714): the heads of a
layer, all heads of all layers, and the query and key neurons of a head.
"""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from bert_keras.data.items import as_items
from bert_keras.errors import ConfigError, DataError, shown
from bert_keras.explanations.pages import framed, scripted_page
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import PACKED_INPUTS, REQUIRED_INPUTS, BertEncoder
from bert_keras.models.task_model import TaskModel
from bert_keras.report.page import write_file
from bert_keras.retrieval.embedder import load_embedder
from bert_keras.settings import check_whole_number
from bert_keras.text.preprocessor import as_tensors

PAGE_TOKENS = 128  # the size of a page grows with the square
_LEVELS = 255  # shades of a page


@dataclasses.dataclass(frozen=True)
class Attention:
    """The attention of one text.

    Attributes:
        tokens: T pieces, with `[CLS]` and `[SEP]`.
        segments: int32 [T], 1 for the second text of a pair.
        probabilities: float32 [L, N, T, T], by layer, head, query and key.
        queries, keys: float32 [L, N, T, D]; the scores are their products divided by
            the square root of D.
    """

    tokens: tuple[str, ...]
    segments: np.ndarray
    probabilities: np.ndarray
    queries: np.ndarray
    keys: np.ndarray

    def _repr_html_(self) -> str:
        return AttentionList([self])._repr_html_()


class AttentionList(list[Attention]):
    """The attention of several texts, displayed in a notebook."""

    def page(self, *, title: str = "Attention") -> str:
        """Return a self-contained HTML page; it shows 128 tokens of each text."""
        data = {"texts": [_shown(each) for each in self]}
        return scripted_page("attention", title=title, data=data)

    def write(self, path: str | os.PathLike[str], *, title: str = "Attention") -> Path:
        """Write the page and return its path.

        Raises:
            DataError: it cannot be written.
        """
        return write_file(path, self.page(title=title))

    def _repr_html_(self) -> str:
        return framed(self.page())


def explain_attention(
    model: str | os.PathLike[str] | Predictor | TaskModel,
    texts: Any,
    *,
    max_length: int | None = None,
    batch_size: int = 32,
) -> AttentionList:
    """Return the attention of texts in all layers and heads of an encoder.

    Args:
        model: a model folder of any task, an encoder, `hf://owner/name`, a predictor or
            a task model.
        texts: strings, or pairs of strings.
        max_length: in tokens, at most the model's; longer texts are truncated.
        batch_size: texts computed at once.

    Raises:
        ConfigError: the model is a SavedModel, or a setting is out of its range.
        DataError: a text is missing or not a string.

    Example:
        >>> explain_attention("models/emails", ["You have won!"])[0].probabilities.shape
        (6, 12, 6, 6)
    """
    check_whole_number("batch_size", batch_size, least=1)
    if not isinstance(model, Predictor | TaskModel):
        model = load_embedder(model)
    found = model.model if isinstance(model, Predictor) else model
    if not isinstance(found, TaskModel):
        raise ConfigError(
            "`model` must be a model folder, whose layers can be read; received a "
            "SavedModel"
        )
    preprocessor = found.preprocessor
    if max_length is not None:
        check_whole_number("max_length", max_length, least=3)
        shorter = min(max_length, preprocessor.max_length)
        preprocessor = preprocessor.replace(max_length=shorter)
    rows = [_parts(row, item) for row, item in enumerate(as_items(texts))]
    vocabulary = preprocessor.tokenizer.vocabulary
    places: dict[int, Attention] = {}
    for count in {len(row) for row in rows}:  # a batch holds single texts or pairs
        chosen = [place for place, row in enumerate(rows) if len(row) == count]
        for start in range(0, len(chosen), batch_size):
            part = chosen[start : start + batch_size]
            columns = list(zip(*(rows[place] for place in part), strict=True))
            batch = preprocessor(as_tensors(columns))
            made = attentions_of(found.backbone, batch, vocabulary)
            places |= dict(zip(part, made, strict=True))
    return AttentionList(places[place] for place in range(len(rows)))


def _parts(row: int, item: Any) -> tuple[str, ...]:
    """Return the one or two texts of an item."""
    parts = [item] if isinstance(item, str) else item
    is_fit = isinstance(parts, tuple | list) and len(parts) in (1, 2)
    if not is_fit or not all(isinstance(part, str) for part in parts):
        raise DataError(
            "each item of `texts` must be a string or a pair of strings; "
            f"received {shown(item)} at index {row}"
        )
    return tuple(parts)


def attentions_of(
    encoder: BertEncoder, batch: Mapping[str, Any], vocabulary: Sequence[str]
) -> list[Attention]:
    """Return the attention of each text of a batch dict, padded or packed.

    Args:
        encoder: the encoder.
        batch: see `BertEncoder`.
        vocabulary: the tokens by their ids.
    """
    ids, segments, mask = (batch[name] for name in REQUIRED_INPUTS)
    positions, sequences, starts = (batch.get(name) for name in PACKED_INPUTS)
    bias = encoder.attention_bias(mask, sequences)
    x = encoder.embeddings(ids, segments, positions, training=False)
    layers: list[tuple[np.ndarray, ...]] = []
    for block in encoder.blocks:
        flat = ops.reshape(x, (-1, x.shape[-1]))
        shape = (*ids.shape, block.num_heads, -1)
        query, key = (
            np.asarray(ops.cast(ops.reshape(dense(flat), shape), "float32"))
            for dense in (block.query, block.key)
        )
        x, probabilities = block(x, bias, training=False)
        layers.append(
            (
                np.asarray(ops.cast(probabilities, "float32")),
                query.transpose(0, 2, 1, 3),
                key.transpose(0, 2, 1, 3),
            )
        )
    arrays = [np.stack(parts, axis=1) for parts in zip(*layers, strict=True)]
    found = []
    for row, columns in _places(mask, sequences, starts):
        names = tuple(vocabulary[token] for token in np.asarray(ids)[row, columns])
        probabilities, query, key = (each[row] for each in arrays)
        found.append(
            Attention(
                names,
                np.asarray(segments)[row, columns],
                probabilities[:, :, columns][..., columns],
                query[:, :, columns],
                key[:, :, columns],
            )
        )
    return found


def _places(mask: Any, sequences: Any, starts: Any) -> Iterator[tuple[int, slice]]:
    """Yield the row and the columns of each text of a batch."""
    mask = np.asarray(mask)
    if starts is None:
        yield from ((row, slice(0, int(each.sum()))) for row, each in enumerate(mask))
        return
    ranks = np.asarray(sequences)
    for start in np.asarray(starts).tolist():
        row, first = divmod(start, mask.shape[1])
        size = int((ranks[row] == ranks[row, first]).sum())
        yield row, slice(first, first + size)


def _shown(attention: Attention) -> dict[str, Any]:
    """Return the data of the page, arrays as bytes in base64."""
    kept = slice(0, PAGE_TOKENS)
    probabilities = attention.probabilities[:, :, kept, kept]
    # Square roots give the many small probabilities more shades.
    shades = np.rint(np.sqrt(probabilities) * _LEVELS).astype("uint8")
    found = {
        "tokens": attention.tokens[kept],
        "segments": attention.segments[kept].tolist(),
        "shape": [*attention.queries[:, :, kept].shape],
        "probabilities": _base64(shades),
        "isCut": len(attention.tokens) > PAGE_TOKENS,
    }
    for name, values in (("queries", attention.queries), ("keys", attention.keys)):
        largest = float(np.abs(values).max(initial=1e-9))
        scaled = np.rint(values[:, :, kept] / largest * 127).astype("int8")
        found[name] = {"largest": largest, "values": _base64(scaled)}
    return found


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
