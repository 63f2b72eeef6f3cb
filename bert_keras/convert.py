"""Turn a checkpoint of any readable origin into a Hugging Face folder: `convert`."""

from __future__ import annotations

import os
from pathlib import Path

from bert_keras.checkpoints import Checkpoint, read_checkpoint, write_huggingface
from bert_keras.checkpoints.sentence_files import (
    read_sentence_files,
    write_sentence_files,
)
from bert_keras.errors import CheckpointError
from bert_keras.folder import replaced_folder
from bert_keras.model_folder import check_vocabulary
from bert_keras.tokenizer import WordPieceTokenizer

_KEPT = ("id2label", "label2id", "problem_type", "pad_token_id", "bert_keras")


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str]
) -> list[str]:
    """Write a checkpoint, encoder and heads, as a Hugging Face folder.

    Args:
        source: folder, Google checkpoint or `hf://owner/name`.
        target: the folder to write; a model folder that stood there is replaced.

    Returns:
        Lines that tell what was chosen on the way.

    Raises:
        CheckpointError: the source is broken or no BERT, or the target is taken.
    """
    checkpoint = read_checkpoint(source)
    if checkpoint.unrecognized:
        raise CheckpointError(
            f"{checkpoint.path}: holds weights that have no name in BERT: "
            f"{', '.join(checkpoint.unrecognized[:4])}"
        )
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path)
    check_vocabulary(tokenizer, checkpoint)
    raw = checkpoint.raw_config
    config = {
        **checkpoint.config.to_dict(),
        **{key: raw[key] for key in _KEPT if key in raw},
        "model_type": "bert",
        "architectures": [_architecture(raw, set(checkpoint.shapes))],
    }
    with replaced_folder(target) as folder:
        write_huggingface(folder, checkpoint.arrays, config)
        tokenizer.save(folder)
        notes = _keep_pooling(checkpoint, folder)
    return [*checkpoint.notes, *tokenizer.notes, *notes]


def _keep_pooling(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Write how tokens become a text's vector, where the source says so; tells if not.

    An encoder whose further steps are not computed here is converted without them.
    """
    try:
        said = read_sentence_files(checkpoint.path)
    except CheckpointError as error:
        return [f"left out: the files of sentence-transformers: {error}"]
    if said:
        longest = checkpoint.config.max_position_embeddings
        hidden_size = checkpoint.config.hidden_size
        settings = {"max_length": longest, **said}
        write_sentence_files(folder, hidden_size=hidden_size, **settings)
    return []


def _architecture(raw: dict[str, object], names: set[str]) -> str:
    """Return Hugging Face's class for these weights: what the source says, or heads."""
    said = raw.get("architectures")
    if isinstance(said, list) and len(said) == 1:
        return str(said[0])
    scopes = {name.split("/")[0] for name in names}
    if "cls" in scopes:
        both = any(name.startswith("cls/seq_relationship") for name in names)
        return "BertForPreTraining" if both else "BertForMaskedLM"
    if "classifier" in scopes:
        return "BertForSequenceClassification"
    return "BertForQuestionAnswering" if "qa_outputs" in scopes else "BertModel"
