"""Turn a checkpoint of any readable origin into a folder of another: `convert`.

What comes in is found by looking at the files; `FORMATS` holds what goes out, a line
each: how it is written, and which files such a folder has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.checkpoints import (
    Checkpoint,
    check_encoder,
    google,
    head_config,
    keras_hub,
    model_garden,
    read_checkpoint,
    write_google,
    write_huggingface,
    write_keras_hub,
    write_model_garden,
)
from bert_keras.checkpoints.sentence_files import (
    read_sentence_files,
    write_sentence_files,
)
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.files.atomic import CONFIG, FILES, check_output_place, replaced_folder
from bert_keras.inference import tf_hub as tf_hub_writer
from bert_keras.inference.model_folder import check_vocabulary
from bert_keras.text.tokenizer import WordPieceTokenizer

# Of a config.json: what is no size, and means something to a reader of ours.
_KEPT = (
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "pad_token_id",
    "bert_keras",
)


def _write_huggingface(
    folder: Path,
    checkpoint: Checkpoint,
    config: dict[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    write_huggingface(folder, checkpoint.arrays, config)
    tokenizer.save(folder)
    said, notes = _pooling(checkpoint)
    if said:
        hidden_size = checkpoint.config.hidden_size
        write_sentence_files(folder, hidden_size=hidden_size, **said)
    return notes


def _write_google(
    folder: Path,
    checkpoint: Checkpoint,
    config: dict[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    notes = write_google(folder, checkpoint.arrays, config)
    tokenizer.save(folder)
    return [*notes, *_lost_pooling(checkpoint)]


def _write_keras_hub(
    folder: Path,
    checkpoint: Checkpoint,
    config: dict[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    settings = tokenizer.get_config()
    notes = write_keras_hub(folder, checkpoint.arrays, config, settings)
    return [*notes, *_lost_pooling(checkpoint)]


def _write_model_garden(
    folder: Path,
    checkpoint: Checkpoint,
    config: dict[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    notes = write_model_garden(folder, checkpoint.arrays, config)
    tokenizer.save(folder)
    return [*notes, *_lost_pooling(checkpoint)]


def _write_tf_hub(
    folder: Path,
    checkpoint: Checkpoint,
    config: dict[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    notes = tf_hub_writer.write_tf_hub(folder, checkpoint.arrays, config, tokenizer)
    return [*notes, *_lost_pooling(checkpoint)]


class Format(NamedTuple):
    """How a folder of one format is written, and what may stand in such a folder.

    `write(folder, checkpoint, config, tokenizer)` fills a new folder and returns notes;
    `config` is the whole of a Hugging Face `config.json`. A folder that stands at the
    target is replaced only if it holds `files` alone, and `needed` among them.
    """

    write: Callable[[Path, Checkpoint, dict[str, Any], WordPieceTokenizer], list[str]]
    files: frozenset[str]
    needed: str


FORMATS = {
    "huggingface": Format(_write_huggingface, FILES, CONFIG),
    "google": Format(_write_google, google.FILES, google.CONFIG),
    "keras-hub": Format(_write_keras_hub, keras_hub.FILES, CONFIG),
    "model-garden": Format(
        _write_model_garden, model_garden.FILES, model_garden.PARAMS
    ),
    "tf-hub": Format(_write_tf_hub, tf_hub_writer.FILES, tf_hub_writer.NEEDED),
}


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str = "huggingface",
) -> list[str]:
    """Write a checkpoint, encoder and heads, as a folder of a format.

    Weights keep every bit, in whatever format they come; float16, bfloat16 and float64
    become float32. What the format cannot say is told, or refused where the answers
    would be others.

    Args:
        source: what `read_checkpoint` reads: a folder, a checkpoint, `hf://owner/name`.
        target: the folder to write; one of the same format that stood there is
            replaced when all is written.
        to: `huggingface`, `google`, `keras-hub`, `model-garden` or `tf-hub`.

    Returns:
        Lines that tell what was chosen on the way.

    Raises:
        CheckpointError: the source is broken or no BERT, the format has no such weight
            or computation, or the target is taken.
        ConfigError: `to` is no format, or a size in the source is out of its range.
    """
    if to not in FORMATS:
        raise ConfigError(f"`to` must be one of {', '.join(FORMATS)}; received {to!r}")
    check_output_place("target", target, {"source": source})
    checkpoint = read_checkpoint(source)
    if checkpoint.unrecognized:
        raise CheckpointError(
            f"{checkpoint.path}: holds weights that have no name in BERT: "
            f"{', '.join(checkpoint.unrecognized[:4])}"
        )
    check_encoder(checkpoint)
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    check_vocabulary(tokenizer, checkpoint)
    raw = checkpoint.raw_config
    config = {
        **checkpoint.config.to_dict(),
        **{key: raw[key] for key in _KEPT if key in raw},
        "model_type": "bert",
        **head_config(raw, checkpoint.shapes),
    }
    write, files, needed = FORMATS[to]
    with replaced_folder(target, files=files, needed=needed) as folder:
        notes = write(folder, checkpoint, config, tokenizer)
    return [*checkpoint.notes, *tokenizer.notes, *notes]


def _pooling(checkpoint: Checkpoint) -> tuple[dict[str, Any], list[str]]:
    """Return how tokens become a text's vector, where the source says so, and notes.

    An encoder whose further steps are not computed here is converted without them.
    """
    try:
        said = read_sentence_files(checkpoint.path)
    except CheckpointError as error:
        return {}, [f"left out: the files of sentence-transformers: {error}"]
    longest = {"max_length": checkpoint.config.max_position_embeddings}
    return ({**longest, **said} if said else {}), []


def _lost_pooling(checkpoint: Checkpoint) -> list[str]:
    """Return the note on what the source says of pooling, for formats without it."""
    said, notes = _pooling(checkpoint)
    if said:
        vectors = f"{said['pooling']}{', of length 1' if said['normalize'] else ''}"
        notes = [f"left out: how tokens become a text's vector ({vectors})"]
    return notes
