"""Models of other tools: `convert`, and `from_keras_hub` and `to_keras_hub` in memory.

`convert` writes a checkpoint of any readable format as a folder of another format, and
`extend` one with further words in its vocabulary. The source format is detected from
the files. `FORMATS` lists the target formats: the function that writes each, and the
files of such a folder.

A KerasHub model in memory is converted through a temporary preset folder, so that one
mapping of weight names serves folders and models alike.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.checkpoints import (
    LazyArrays,
    check_encoder,
    google,
    model_garden,
    read_checkpoint,
    write_google,
    write_huggingface,
    write_model_garden,
)
from bert_keras.checkpoints.checkpoint import FORMAT, as_checkpoint_error, listed
from bert_keras.checkpoints.huggingface import GENERATOR, is_encoder_decoder
from bert_keras.checkpoints.keras_hub import FILES as KERAS_HUB_FILES
from bert_keras.checkpoints.keras_hub import KINDS, TASK, embeds, write_keras_hub
from bert_keras.checkpoints.model_types import their_architecture
from bert_keras.checkpoints.sentence_files import (
    dense_tensors,
    pair_entry,
    pair_scores,
    similarity,
    text_length,
    unused_prompts,
    write_dense,
    write_head,
    write_sentence_files,
)
from bert_keras.config import KEY
from bert_keras.errors import CheckpointError, ConfigError, counted, shown
from bert_keras.exports.model_card import Source, write_readme
from bert_keras.files.atomic import (
    CONFIG,
    FILES,
    NEW_TOKENS,
    check_output_place,
    replaced_folder,
)
from bert_keras.files.json_file import read_json
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.folder import Folder
from bert_keras.models.kept_layers import with_layers
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import config_of
from bert_keras.models.new_tokens import widened
from bert_keras.models.pretrained_model import check_tied
from bert_keras.models.task_model import TaskModel
from bert_keras.settings import OWN_LENGTHS, check_choice, layer_numbers
from bert_keras.text.new_tokens import with_words

# Keys of a config.json, other than sizes, that our readers use.
_KEPT = (
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "sentence_transformers",
    "sbert_ce_default_activation_function",
    "pad_token_id",
    "classifier_dropout",
    "seq_classif_dropout",
    "qa_dropout",
    "bert_keras",
)


class Format(NamedTuple):
    """How a folder of one format is written, and which files it may hold.

    `write(folder, arrays, config)` fills a new folder and returns notes, if any;
    `config` is a complete Hugging Face `config.json`. With `has_own_vocabulary`, it
    also takes the tokenizer, and writes it; otherwise the tokenizer is written as
    Hugging Face's files. An existing target folder is replaced only if it contains no
    files other than `files`, and `needed` among them.
    """

    write: Callable[..., Sequence[str] | None]
    files: frozenset[str]
    needed: str
    has_own_vocabulary: bool = False


FORMATS = {
    "huggingface": Format(write_huggingface, FILES, CONFIG),
    "google": Format(write_google, google.FILES, google.CONFIG),
    "keras-hub": Format(
        lambda folder, arrays, config, tokenizer: write_keras_hub(
            folder, arrays, config, tokenizer.get_config()
        ),
        KERAS_HUB_FILES,
        CONFIG,
        has_own_vocabulary=True,
    ),
    "model-garden": Format(write_model_garden, model_garden.FILES, model_garden.PARAMS),
}


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str = "huggingface",
    keep_layers: str | Sequence[int] | None = None,
    part: str | None = None,
    card: bool = True,
) -> list[str]:
    """Write a checkpoint, encoder and heads, as a folder of another format.

    Weights of float32 keep every bit; float16, bfloat16 and float64 become float32.
    What the target format cannot express is reported in a note, or rejected
    if the model's answers would change.

    Args:
        source: what `read_checkpoint` reads: a folder, a checkpoint, `hf://owner/name`.
        target: the folder to write; an existing one of the same format is replaced
            once everything is written.
        to: `huggingface`, `google`, `keras-hub` or `model-garden`.
        keep_layers: the layers of the encoder to keep, by number from 0, such as
            `(0, 2, 4)` or `"0,2,4"`; `None`: all. The head stays as it is.
        part: `discriminator` or `generator`, of a TensorFlow 1 checkpoint of ELECTRA;
            by default the discriminator, unless there is only a generator.
        card: whether to write a model card, README.md, into a folder of the format
            `huggingface`. Another README.md that is already there stays.

    Returns:
        Notes on choices made during the conversion.

    Raises:
        CheckpointError: the source is broken or not a BERT model, the format lacks a
            weight or computation, or the target holds something else.
        ConfigError: `to` is not a known format, a size in the source is out of range,
            `keep_layers` cannot be kept, see `with_layers`, or the source has no parts.

    Example:
        >>> convert("models/emails", "models/emails-3", keep_layers=(0, 2, 4))
        []
    """
    check_choice("to", to, FORMATS)
    check_output_place("target", target, {"source": source})
    checkpoint = read_checkpoint(source, part=part)
    opened = with_layers(Folder.open(checkpoint), keep_layers)
    return _write_opened(
        opened, target, to=to, card=card, source=source, layers=keep_layers
    )


def extend(
    encoder: str | os.PathLike[str],
    words: Sequence[str],
    target: str | os.PathLike[str],
    *,
    card: bool = True,
) -> list[str]:
    """Write an encoder, and its heads, with words as further entries of its vocabulary.

    Their embeddings start as the mean of the embeddings of their pieces. The file
    `new_tokens.txt` of the folder lists them, one per line.

    Args:
        encoder: what `read_checkpoint` reads.
        words: as `corpus.domain_words.learn_words` returns them: in the case of the
            vocabulary, and none of them in it.
        target, card: as in `convert`.

    Returns:
        Notes, as `convert` does.

    Raises:
        CheckpointError: as in `convert`.
        ConfigError: a word is in the vocabulary, or the encoder has a decoder.
    """
    check_output_place("target", target, {"encoder": encoder})
    opened = Folder.open(encoder)
    opened = widened(opened, with_words(opened.tokenizer, words))
    return _write_opened(
        opened, target, to="huggingface", card=card, source=encoder, words=words
    )


def _write_opened(
    opened: Folder,
    target: str | os.PathLike[str],
    *,
    to: str,
    card: bool,
    source: str | os.PathLike[str],
    words: Sequence[str] = (),
    layers: str | Sequence[int] | None = None,
) -> list[str]:
    """Write an opened folder as one of the format `to`, see `convert`.

    `words` are the words that it was extended by, see `extend`, and `layers` the layers
    that were kept.
    """
    opened.check_config()
    checkpoint = opened.checkpoint
    if opened.unread:
        raise CheckpointError(
            f"{checkpoint.path}: holds weights that are not part of BERT: "
            f"{listed(opened.unread)}"
        )
    check_tied(checkpoint.shapes, checkpoint)
    check_encoder(checkpoint)
    tokenizer, form = opened.tokenizer, FORMATS[to]
    config, notes = _config_to_write(opened, to)
    notes = [*checkpoint.notes, *tokenizer.notes, *notes]
    prompts = unused_prompts(opened.home)
    if prompts:
        notes.append(f"left out: the prompts of the cross-encoder: {listed(prompts)}")
    generator = checkpoint.path / GENERATOR
    if (generator / CONFIG).is_file():
        notes.append(f"left out: the generator, which {generator} holds")
    with replaced_folder(target, files=form.files, needed=form.needed) as folder:
        given = (folder, checkpoint.arrays, config)
        if form.has_own_vocabulary:
            notes += form.write(*given, tokenizer) or ()
        else:
            notes += form.write(*given) or ()
            segments = checkpoint.config.type_vocab_size
            tokenizer.save(
                folder, max_length=_max_length(opened), has_segments=segments > 0
            )
        notes += _convert_pooling(opened, folder, to=to)
        if words:
            lines = "".join(f"{word}\n" for word in words)
            (folder / NEW_TOKENS).write_text(lines, encoding="utf-8")
        if to == "huggingface":
            kept = () if layers is None else layer_numbers(layers)
            found = Source(os.fspath(source), checkpoint.origin, len(words), kept)
            with as_checkpoint_error(f"{checkpoint.path}: config.json", ConfigError):
                is_kept = write_readme(target, folder, card=card, source=found)
            if is_kept:
                notes.append("README.md is kept: it is not a card of bert_keras")
    return notes


def _config_to_write(opened: Folder, to: str) -> tuple[dict[str, Any], list[str]]:
    """Return `config.json` in the format `to`, and notes on what it leaves out.

    Raises:
        CheckpointError: the format cannot hold what is in the folder.
    """
    checkpoint = opened.checkpoint
    raw, notes = checkpoint.raw_config, list[str]()
    head = {k: v for k, v in opened.config.items() if k != KEY and raw.get(k) != v}
    head["architectures"] = opened.config["architectures"]
    declared = head["architectures"][0]
    theirs = functools.partial(their_architecture, checkpoint.config)
    is_encoder = all(name.startswith("bert/") for name in checkpoint.shapes)
    if is_encoder and declared != "BertModel" and not is_encoder_decoder(raw):
        notes.append(
            f"written as {theirs('BertModel')}: the config names {theirs(declared)}, "
            "without its head"
        )
        head["architectures"] = ["BertModel"]
    applied = pair_scores(opened.config)
    config = {
        **checkpoint.config.to_dict(),
        **{key: raw[key] for key in _KEPT if key in raw},
        **({} if applied is None else pair_entry(applied)),
        "model_type": checkpoint.config.model_type,
        **head,
    }
    if is_encoder_decoder(raw):
        if to != "huggingface":
            raise CheckpointError(
                f"{checkpoint.path}: has a decoder, which only the format huggingface "
                f"can hold; received `to` {to}"
            )
        config = raw
    pooling = checkpoint.own_entry.get("settings", {}).get("pooling")
    if pooling and to != "huggingface" and not is_encoder:
        raise CheckpointError(
            f"{checkpoint.path}: the head reads the tokens' vectors (pooling "
            f"{pooling}), which only the format huggingface can hold; received `to` "
            f"{to}: `train --opens-in transformers` trains a head on BERT's pooler"
        )
    states_length = bool(opened.sentence) or applied is not None
    if FORMATS[to].has_own_vocabulary and not checkpoint.own_entry and states_length:
        config[KEY] = {"format": FORMAT, "preprocessing": opened.preprocessing}
        if to == "keras-hub" and embeds(opened.sentence, config["model_type"]):
            config[KEY]["sentence"] = opened.sentence
    return config, notes


def _max_length(opened: Folder) -> int:
    """Return the length at which other tools truncate texts, in tokens."""
    longest = opened.checkpoint.config.max_position_embeddings
    stored = opened.checkpoint.own_entry.get("preprocessing", {}).get("max_length")
    return min(stored or text_length(opened.home) or longest, longest)


def _convert_pooling(opened: Folder, folder: Path, *, to: str) -> list[str]:
    """Write how tokens are pooled into a text's vector, if the source specifies it.

    An encoder whose later steps are not supported here is converted without them.

    Args:
        opened: the source.
        folder: gets the files of sentence-transformers in the format huggingface.
        to: the format, of which others have no such files.

    Returns:
        Notes on what is left out.
    """
    settings = opened.sentence
    if "error" in settings:
        return [f"left out: the files of sentence-transformers: {settings['error']}"]
    if not settings:
        return []
    model_type = opened.checkpoint.config.model_type
    # It is written as the preset's task.
    if to == "keras-hub" and embeds(settings, model_type):
        return _further_steps(settings)
    if to != "huggingface":
        how = f"{settings['pooling']}{', normalized' if settings['normalize'] else ''}"
        return [
            f"left out: how tokens are pooled into a text's vector ({how})",
            *_further_steps(settings),
        ]
    sizes = opened.checkpoint.config
    settings = {"max_length": sizes.max_position_embeddings, **settings}
    unused, _ = settings.pop("unused", ()), settings.pop("marks", ())
    measure = similarity(opened.home)
    if isinstance(measure, str) and settings.get("kind") != "tokens":
        settings |= {"measure": measure}
    write_sentence_files(folder, hidden_size=sizes.hidden_size, **settings)
    if settings.get("dense"):
        tensors = dense_tensors(opened.home)
        write_dense(folder, LazyArrays.of(tensors, place=str(opened.home)))
    if settings.get("head"):
        write_head(folder, opened.checkpoint.arrays)
    return [f"left out: {line}" for line in unused]


def _further_steps(settings: Mapping[str, Any]) -> list[str]:
    """Return a note on what else sentence-transformers does for a vector, if it does.

    `settings` is what `read_sentence_files` returned.
    """
    found = []
    if dense := settings.get("dense"):
        found.append(counted(len(dense), "Dense layers"))
    if prompts := settings.get("prompts"):
        found.append(f"the prompts {listed(list(prompts))}")
    found += [
        f"{key} {shown(settings[key])}"
        for key in ("default_prompt", "include_prompt", "truncate_dim", *OWN_LENGTHS)
        if key in settings
    ]
    return [f"left out with the pooling: {'; '.join(found)}"] if found else []


def from_keras_hub(model: Any, *, dtype: Any = None) -> BertEncoder | TaskModel:
    """Return our model with the weights of a KerasHub model.

    Args:
        model: a `BertBackbone`, `DistilBertBackbone` or `ElectraBackbone`, which
            becomes a `BertEncoder`, or a `BertMaskedLM`, `BertTextClassifier`,
            `BertTextEmbedder`, `DistilBertMaskedLM` or `DistilBertTextClassifier` with
            its preprocessor, which becomes a `TaskModel`. KerasHub does not name
            classes: here they are LABEL_0, LABEL_1 …
        dtype: dtype policy, as in `BertEncoder`.

    Raises:
        CheckpointError: the model is none of these, or has no preprocessor.

    Example:
        >>> backbone = keras_hub.models.BertBackbone(
        ...     vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=4,
        ...     intermediate_dim=6, max_sequence_length=8)
        >>> from_keras_hub(backbone).config.hidden_act
        'gelu_new'
    """
    from keras_hub import models  # takes a second, which other formats do not need

    def classes(names: Sequence[str]) -> tuple[Any, ...]:
        # Not every release has them all: the embedder came with 0.32.
        return tuple(getattr(models, name) for name in names if hasattr(models, name))

    backbones = [kind.backbone for kind in KINDS.values()]
    named = [f"{kind.classes}{t}" for kind in KINDS.values() for t in kind.tasks]
    tasks = classes(named)
    kinds: tuple[Any, ...] = (*classes(backbones), *tasks)
    if not isinstance(model, kinds):
        raise CheckpointError(
            f"`model` must be one of {', '.join([*backbones, *named])} of KerasHub; "
            f"received {type(model).__name__}"
        )
    if isinstance(model, tasks) and model.preprocessor is None:
        raise CheckpointError(
            "`model` must have a preprocessor, which holds the vocabulary; "
            f"received a {type(model).__name__} without one"
        )
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as folder:
        model.save_to_preset(folder)
        if isinstance(model, tasks):
            return load_model(folder, dtype=dtype)
        encoder = BertEncoder.from_pretrained(folder, dtype=dtype)
        encoder.source = f"KerasHub's {type(model).__name__}"
        return encoder


def to_keras_hub(model: BertEncoder | TaskModel) -> Any:
    """Return a KerasHub model with the weights of ours.

    Args:
        model: an encoder, which becomes a `BertBackbone`; or a model of the tasks
            `classification`, `multi-label`, `regression`, `masked-lm` or `embedding`,
            which becomes a `BertTextClassifier`, a `BertMaskedLM` or a
            `BertTextEmbedder` with its preprocessor. A DistilBERT becomes the
            `DistilBert…` of the same name, without an embedder; an ELECTRA, which has
            no task there, an `ElectraBackbone`.

    Raises:
        CheckpointError: KerasHub has no such head or computation.
    """
    from keras_hub import models

    arrays = {weight.path: weight.numpy() for weight in model.weights}
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as name:
        folder = Path(name)
        if isinstance(model, TaskModel):
            settings = model.preprocessor.tokenizer.get_config()
            write_keras_hub(folder, arrays, config_of(model), settings)
        else:
            config = {**model.config.to_dict(), "architectures": ["BertModel"]}
            write_keras_hub(folder, arrays, config)
        task = folder / TASK
        kind = read_json(task if task.is_file() else folder / CONFIG)["class_name"]
        return getattr(models, kind).from_preset(str(folder))
