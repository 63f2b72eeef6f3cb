"""The frozen encoder as a source of features: `write_features` for a file of texts.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns, stream_columns
from bert_keras.errors import ConfigError
from bert_keras.files.atomic import check_output_place
from bert_keras.inference.embedder import Source, load_embedder
from bert_keras.inference.feature_file import Writer, check_output, feature_writer
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.model.pooling import unit_vectors
from bert_keras.runs.progress import Progress, report
from bert_keras.tasks.embedding import Embedding
from bert_keras.text.packing import join, unpack
from bert_keras.text.preprocessor import Preprocessor

LEVELS = ("text", "token")
# Batches of texts that are held at once: a token's vector is as long as a text's.
_BATCHES = {"text": 32, "token": 4}


@dataclasses.dataclass(frozen=True)
class TokenVectors(Embedding):
    """One vector for each token, `[CLS]` and `[SEP]` included.

    `pooling` plays no part; the arguments are those of `Embedding`.
    """

    name = "token-vectors"
    summary = "a vector for each token of a text"

    def features(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch dict with `starts` and `ends` of the tokens, in characters.

        Both are 0 for `[CLS]` and `[SEP]`, as the `tokenizers` library has it.
        """
        tokenizer = preprocessor.tokenizer
        pieces = tokenizer.tokenize_with_offsets(texts, unit="characters")
        ids, starts, ends = (part[:, : preprocessor.max_length - 2] for part in pieces)
        ids, segments = join(
            ids, None, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
        )
        zero = tf.zeros([ids.nrows(), 1], tf.int32)
        starts, ends = (tf.concat([zero, x, zero], axis=1) for x in (starts, ends))
        return preprocessor.lay(ids, segments, starts=starts, ends=ends)

    def inputs(self) -> dict[str, Any]:
        return batch_inputs(cls_positions=False)

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        vectors = keras.ops.cast(self.token_vectors(encoder, inputs), "float32")
        return unit_vectors(vectors) if self.normalize else vectors

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `embeddings` float32 [B, T, D], 0 behind a text's last token, and
        `token_ids`, `starts` and `ends`, int32 [B, T], -1 there.
        """
        cells = {key: unpack(batch[key], batch) for key in ("starts", "ends")}
        cells["token_ids"] = unpack(batch["token_ids"], batch)
        return {
            "embeddings": unpack(outputs, batch).to_tensor(),
            **{key: value.to_tensor(-1) for key, value in cells.items()},
        }


def write_features(
    source: Source,
    file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    level: str = "text",
    column: str | int = "text",
    header: str = "auto",
    batch_size: int = 32,
    **settings: Any,
) -> int:
    """Write the features of the texts of a file and return how many texts there are.

    Texts are read and computed some at a time. Parquet is written as they come, so a
    file of any size takes the same memory; npz is for vectors that fit in memory. Speed
    is told on stderr.

    Args:
        source: as in `load_embedder`.
        file: TSV, CSV or JSONL with the texts.
        output: the file to write, `.npz` or `.parquet` (see `feature_file`); it appears
            when it is whole.
        level: `text`, a vector for each text, or `token`, one for each token.
        column: name, or number from 0, of the column of the texts.
        header: as in `read_columns`.
        batch_size: texts computed at once.
        **settings: those of `load_embedder`: `layers`, `combine`, `pooling`,
            `normalize`, `max_length`, `precision`.

    Raises:
        BertKerasError: something given is wrong; what stood at `output` still does.
    """
    if level not in LEVELS:
        raise ConfigError(
            f"`level` must be one of {', '.join(LEVELS)}; received {level!r}"
        )
    check_output_place("output", output, {"source": source, "file": file})
    check_output(output)
    if level == "token" and settings.get("pooling") is not None:
        raise ConfigError("`pooling` is of a text's vector: leave it out for tokens")
    parts = stream_columns(
        file, {"text": column}, header=header, rows_at_once=_BATCHES[level] * batch_size
    )
    first = next(parts)  # a file that cannot be read is told before the model is loaded
    kind: type[Embedding] = Embedding
    if level == "token":
        kind, normalize = TokenVectors, settings.get("normalize")
        settings["normalize"] = bool(normalize)  # a folder's word is for whole texts
    predictor = load_embedder(source, kind=kind, **settings)
    write_part = _write_tokens if level == "token" else _write_texts
    with feature_writer(output) as writer, Progress("vectors", unit="texts") as shown:
        for part in itertools.chain([first], parts):
            write_part(writer, predictor, part, batch_size)
            shown.add(len(part))
    report(shown.line())
    return shown.done


def _write_texts(
    writer: Writer, predictor: Predictor, part: Columns, batch_size: int
) -> None:
    """Write the vectors of some texts."""
    done = 0
    for answers in predictor.stream((part["text"],), batch_size=batch_size):
        rows = slice(done, done + len(answers["embedding"]))
        writer.texts(part.lines[rows], part["text"][rows], answers["embedding"])
        done = rows.stop


def _write_tokens(
    writer: Writer, predictor: Predictor, part: Columns, batch_size: int
) -> None:
    """Write the vectors of the tokens of some texts."""
    # As wide as the longest token, so that all parts have one dtype.
    vocabulary = np.array(predictor.model.preprocessor.tokenizer.vocabulary)
    done = 0
    for answers in predictor.stream((part["text"],), batch_size=batch_size):
        real = answers["token_ids"] >= 0
        rows = slice(done, done + len(real))
        writer.tokens(
            part.lines[rows],
            part["text"][rows],
            answers["embeddings"][real],
            counts=real.sum(axis=1),
            tokens=vocabulary[answers["token_ids"][real]],
            starts=answers["starts"][real],
            ends=answers["ends"][real],
        )
        done = rows.stop
