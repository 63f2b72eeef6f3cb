"""Tasks that write: translation and abstractive summaries, by encoder and decoder.

Source: Rothe, Narayan and Severyn 2020 (arXiv:1907.12461). Unlike there, the targets do
not begin with `[CLS]`: the decoder reads `[CLS]` first and predicts the first word from
it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import Checkpoint, read_checkpoint
from bert_keras.checkpoints.huggingface import (
    encoder_decoder_config,
    is_encoder_decoder,
)
from bert_keras.config import KEY, BertConfig
from bert_keras.data.columns import Columns
from bert_keras.data.memory import is_path
from bert_keras.data.parallel import stream_sources, without_empty
from bert_keras.data.row_source import RowSource
from bert_keras.errors import CheckpointError, ConfigError, received
from bert_keras.generation.search import write
from bert_keras.model.decoder import BertDecoder, target_inputs
from bert_keras.model.encoder import (
    INPUTS,
    MEMORY,
    MEMORY_PLACES,
    TARGET,
    BertEncoder,
    batch_inputs,
)
from bert_keras.model.encoder_decoder import logits_of, source_inputs
from bert_keras.model.heads import NO_LABEL, MaskedAccuracy, SmoothedCrossentropy
from bert_keras.reading.windows import Parts, check_windows_run
from bert_keras.scoring.rouge import Rouge
from bert_keras.scoring.translation import translation_scores
from bert_keras.settings import with_options_documented
from bert_keras.tasks.answer_rows import plain_values
from bert_keras.tasks.base import Answers, Batch, Column, read_table, refuse_weights
from bert_keras.tasks.generation_settings import (
    ENCODER,
    SHARED,
    AbstractiveSummarizationSettings,
    GenerationSettings,
)
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.long_texts import LongTextTask
from bert_keras.tasks.needs import Needs
from bert_keras.text.detokenizer import detokenized
from bert_keras.text.packing import (
    both_ends,
    first_pieces,
    join,
    pack_pairs,
    pad_rows,
    text_starts,
    unpack,
)
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.text.ragged import sizes_of, slices, starts_of, with_sizes
from bert_keras.text.tokenizer import WordPieceTokenizer

_MORE_TOKENS = 10  # beyond the length relative to the source
_SHOWN = 3  # outputs shown after an epoch
# Weights with a row or a value for each token of the vocabulary.
_OF_TOKENS = ("/word_embeddings", "/output_embeddings", "/output_bias")


class DecoderCodec(HeadCodec):
    """A decoder: an `EncoderDecoderModel` of two BERTs."""

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        if not is_encoder_decoder(config):
            return None
        decoder = BertConfig.from_dict(config["decoder"])
        encoder = BertConfig.from_dict(config["encoder"])
        is_shared = bool(config.get("tie_encoder_decoder"))
        changes = {
            key: value
            for key, value in decoder.to_dict().items()
            if value != encoder.to_dict()[key] and key != "is_decoder"
        }
        return {
            "decoder": SHARED if is_shared else ENCODER,
            "sizes": changes,
            "tied": config["decoder"].get("tie_word_embeddings") is not False,
            **(config.get(KEY) or {}).get("generation", {}),
        }

    def entries(self, task: Any) -> dict[str, Any]:
        """Return the settings that a decoder's weights depend on."""
        names = ("decoder", "target_vocab", "sizes", "tied")
        return {name: getattr(task, name) for name in names}

    def folder_config(
        self, task: Any, config: BertConfig, preprocessor: Preprocessor
    ) -> dict[str, Any]:
        tokenizer = task.target_tokenizer(preprocessor)
        return {
            **encoder_decoder_config(
                config.to_dict(),
                config.replace(**(task.sizes or {})).to_dict(),
                shared=task.decoder == SHARED,
                tied=task.tied,
            ),
            "pad_token_id": tokenizer.pad_id,
            "decoder_start_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
        }

    def write_files(
        self, task: Any, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        if task.target_vocab is not None:  # a copy, for other tools
            lines = [f"{token}\n" for token in task.target_vocab["vocabulary"]]
            text = "".join(lines)
            (folder / "target_vocab.txt").write_text(text, encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Generation(GenerationSettings, LongTextTask):
    """The shared parts of the tasks that generate text.

    In Python, `target_vocab` may also be the config of a `WordPieceTokenizer`.

    Raises:
        ConfigError: a setting is out of its range.
        CheckpointError: `decoder` or `target_vocab` cannot be read.
    """

    head_codec = DecoderCodec("EncoderDecoderModel")
    roles = ("source",)
    columns = {
        "source": Column("source", empty=True),
        "target": Column("target", empty=True),
    }

    def __post_init__(self) -> None:
        if isinstance(self.decoder, os.PathLike):
            object.__setattr__(self, "decoder", os.fspath(self.decoder))
        super().__post_init__()
        vocabulary, sizes = self.target_vocab, self.sizes
        if sizes is None:
            sizes, own = _sizes_of(self.decoder)
            if vocabulary is None:
                vocabulary = own
            else:
                sizes.pop("vocab_size", None)
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = WordPieceTokenizer.from_folder(vocabulary).get_config()
        if vocabulary is not None:
            is_config = isinstance(vocabulary, Mapping)
            tokens = vocabulary.get("vocabulary") if is_config else None
            if not isinstance(tokens, Sequence):
                raise ConfigError(
                    "`target_vocab` must be a folder or the config of a tokenizer; "
                    f"{received(vocabulary)}"
                )
            count, rows = len(tokens), sizes.get("vocab_size", len(tokens))
            sizes = {**sizes, "vocab_size": rows}
            if count > rows:
                raise ConfigError(
                    "`target_vocab` must have at most `vocab_size` tokens, "
                    f"{rows:,}; received {count:,}"
                )
        if self.decoder == SHARED and sizes:
            raise ConfigError(
                "`decoder` must not be shared with another vocabulary or other sizes; "
                f"received {', '.join(sizes)}"
            )
        object.__setattr__(self, "target_vocab", vocabulary)
        object.__setattr__(self, "sizes", sizes)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Return the task of stored settings.

        Raises:
            ConfigError: they name a path: a folder must not make us read another one.
        """
        if config.get("sizes") is None or isinstance(config.get("target_vocab"), str):
            raise ConfigError(
                "the settings of a model that writes must hold `sizes`, and no path as "
                "`target_vocab`"
            )
        return super().from_config(config)

    @classmethod
    def inherited(cls, held: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a model that is trained further.

        Its decoder is in the folder, whatever it once started from; another `decoder`
        has its own sizes and vocabulary.
        """
        if held is None:
            return {}
        plain = cls()
        own = {k: v for k, v in held.get_config().items() if v != getattr(plain, k)}
        found = {**own, "sizes": held.sizes, **held.adjusted(given)}
        found["decoder"] = SHARED if held.decoder == SHARED else ENCODER
        if given.get("decoder", held.decoder) == held.decoder:
            return found
        of_decoder = ("decoder", "target_vocab", "sizes", "tied")
        return {name: found[name] for name in found if name not in of_decoder}

    def adjusted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings; the sizes belong to a decoder and its vocabulary."""
        if settings.get("decoder", self.decoder) != self.decoder:
            return {"sizes": None, **settings}
        if "target_vocab" in settings and self.sizes is not None:
            sizes = {k: v for k, v in self.sizes.items() if k != "vocab_size"}
            return {"sizes": sizes, **settings}
        return dict(settings)

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return the pairs of a table, those with an empty text left out."""
        if source.labelled:
            return without_empty(read_table(cls.columns, source))
        parts = cls.stream_own(source, sys.maxsize)
        return None if parts is None else next(parts)

    @classmethod
    def stream_own(
        cls, source: RowSource, rows_at_once: int
    ) -> Iterator[Columns] | None:
        """Yield the lines of a file, each a source to answer."""
        is_table = source.columns or source.header == "yes"
        if is_table or not is_path(source.data):
            return None
        column = cls.columns["source"]
        return stream_sources(source.data, rows_at_once, column=column)

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the targets as UTF-8, object [N]."""
        blank = [
            (row, f"`{role}` must hold a text; {received(text)}")
            for role in self.columns
            for row, text in enumerate(columns[role])
            if not text.strip()
        ]
        columns.refuse(blank)
        encoded = [text.encode("utf-8", "surrogatepass") for text in columns["target"]]
        return np.array(encoded, object)

    def describe(self, columns: Columns) -> dict[str, Any]:
        words = [len(text.split()) for text in columns["target"]]
        return {
            "rows": len(columns),
            "mean_target_words": round(float(np.mean(words)), 1),
        }

    # Text to batch.

    def signatures(self) -> dict[str, tuple[tf.TensorSpec, ...]]:
        return {"serving_default": (tf.TensorSpec([None], tf.string, name="text"),)}

    def target_tokenizer(self, preprocessor: Preprocessor) -> WordPieceTokenizer:
        """Return the tokenizer of the targets."""
        if self.target_vocab is None:
            return preprocessor.tokenizer
        if "_tokenizer" not in self.__dict__:
            with tf.init_scope():  # it has variables
                made = WordPieceTokenizer.from_config(self.target_vocab)
            object.__setattr__(self, "_tokenizer", made)
        found: WordPieceTokenizer = self.__dict__["_tokenizer"]
        return found

    def features(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch of sources, with `[CLS]` as the only target token."""
        batch, memory = self._sources(preprocessor, texts)
        if memory is not None:
            batch |= _padded_memory(memory)
        sizes, _ = self.lengths(preprocessor, texts)
        longest = tf.cast(sizes - 2, tf.float32) * self.length_ratio
        limits = tf.cast(tf.math.ceil(longest), tf.int32) + _MORE_TOKENS
        tokenizer = self.target_tokenizer(preprocessor)
        first = tf.zeros_like(batch.get(MEMORY_PLACES, batch["token_ids"])[:, :1])
        if "sequence_ids" in batch:
            batch[f"{TARGET}position_ids"] = first
            batch[f"{TARGET}sequence_ids"] = first + 1
        return {
            **batch,
            f"{TARGET}token_ids": first + tokenizer.cls_id,
            f"{TARGET}padding_mask": first + 1,
            "limits": tf.minimum(limits, self.max_target_length),
            "is_blank": sizes <= 2,
            "sources": tf.convert_to_tensor(texts, tf.string),
            "tokens": tf.constant(tokenizer.vocabulary),
            "frame": tf.constant([tokenizer.cls_id, tokenizer.sep_id]),
        }

    def examples(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        targets: Any,
        weights: Any = None,
        *,
        draws: Any = None,
    ) -> tuple[dict[str, Any], Any, Any]:
        """Return the batch, labels int32 [R, T] (-1: none) and no weights, in graph.

        `draws`, int64 [B], draw the windows of the sources.
        """
        refuse_weights(self, weights)
        tokenizer = self.target_tokenizer(preprocessor)
        pieces = tokenizer(tf.convert_to_tensor(targets, tf.string))
        most = self.max_target_length - 1
        pieces = first_pieces(pieces, tf.minimum(sizes_of(pieces), most))
        whole, _ = join(pieces, None, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
        starts, sizes = starts_of(whole), sizes_of(whole) - 1
        inputs = slices(whole.values, starts, sizes)  # without `[SEP]`
        labels = slices(whole.values, starts + 1, sizes)  # without `[CLS]`
        zeros = inputs.with_values(tf.zeros_like(inputs.values))
        pads = (preprocessor.tokenizer.pad_id, tokenizer.pad_id)
        multiple = preprocessor.length_multiple
        batch: dict[str, Any] = {}
        if self.reads_windows:  # in pairs with the targets are the places of sources
            batch, memory = self._sources(preprocessor, texts, draws)
            source = memory, memory.with_values(tf.zeros_like(memory.values))
            pads = -1, tokenizer.pad_id
        else:
            source = self._joined(preprocessor, texts)
        if preprocessor.layout == "padded":
            own = pad_rows(*source, pad_id=pads[0], multiple=multiple)
            target = pad_rows(
                inputs, zeros, pad_id=pads[1], multiple=multiple, labels=labels
            )
        else:
            own, target = pack_pairs(
                source, (inputs, zeros), pad_ids=pads, multiple=multiple, labels=labels
            )
        if self.reads_windows:
            own = {f"{MEMORY}{name}": value for name, value in own.items()}
            own[MEMORY_PLACES] = own.pop(f"{MEMORY}token_ids")
        found = target.pop("labels")
        kept = {f"{TARGET}{name}": value for name, value in target.items()}
        return {**batch, **own, **kept}, found, None

    def _joined(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return tokens and segments of truncated sources, ragged int32 [B, None]."""
        keep = both_ends if self.long == "head-tail" else first_pieces
        return preprocessor.join_pieces(*preprocessor.pieces(texts), keep=keep)

    def _sources(
        self, preprocessor: Preprocessor, texts: Any, draws: Any = None
    ) -> tuple[dict[str, Any], Any]:
        """Return the batch dict of sources; with windows also the places of the tokens
        of each source in its rows, ragged int32 [B, None], else `None`.
        """
        if not self.reads_windows:
            return preprocessor.lay(*self._joined(preprocessor, texts)), None
        pieces = preprocessor.tokenizer(texts)
        windows = self.reader.cut_texts(preprocessor, pieces, draws=draws)
        batch = preprocessor.lay(windows.ids, windows.segments)
        starts, sizes = text_starts(batch), sizes_of(windows.ids)
        places = tf.ragged.range(starts, starts + sizes).values
        of_text = tf.math.unsorted_segment_sum(sizes, windows.text, tf.shape(texts)[0])
        return batch, with_sizes(places, of_text)

    def target_lengths(
        self, preprocessor: Preprocessor, targets: Any
    ) -> tuple[Any, Any]:
        """Return how many tokens of each target are read, and how many are truncated.

        int32 [B] each, `[SEP]` included.
        """
        tokenizer = self.target_tokenizer(preprocessor)
        whole = sizes_of(tokenizer(tf.convert_to_tensor(targets, tf.string))) + 1
        read = tf.minimum(whole, self.max_target_length)
        return read, whole - read

    # The model.

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(
            pooler=False,
            inputs=self._inputs,
            rows_per_text=None if self.reads_windows else 1,
            not_for_engines="it writes token by token, in many steps of its decoder",
        )

    def _inputs(self) -> Batch:
        inputs = {**batch_inputs(cls_positions=False), **target_inputs()}
        if not self.reads_windows:
            return inputs
        check_windows_run()
        return {**inputs, **source_inputs()}

    def within(self, config: BertConfig) -> Any:
        """Return the task with targets within the positions of the decoder."""
        longest = config.replace(**(self.sizes or {})).max_position_embeddings
        if self.max_target_length <= longest:
            return self
        return dataclasses.replace(self, max_target_length=longest)

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        """Return the logits of the next token at each target token, [R, T, V]."""
        decoder = BertDecoder(
            encoder.config.replace(**(self.sizes or {})),
            memory_size=encoder.config.hidden_size,
            shared=encoder if self.decoder == SHARED else None,
            tied=self.tied,
            rematerialize=encoder.blocks[0].rematerialize,
            seed=seed,
            dtype=encoder.dtype_policy,
        )
        return logits_of(encoder, decoder, inputs)

    def start(self, model: keras.Model, checkpoint: Checkpoint) -> list[str]:
        """Set the decoder's weights from a checkpoint with a decoder, or else from a
        pretrained BERT, see `decoder`.
        """
        is_random = _is_new(self.decoder)
        if not is_random and self.decoder not in (ENCODER, SHARED):
            checkpoint = read_checkpoint(self.decoder)
        tokens = self.target_tokenizer(model.preprocessor).vocabulary
        # Rows of tokens mean nothing in another vocabulary.
        others = [
            scope
            for scope, vocabulary in _vocabularies(checkpoint).items()
            if vocabulary != tokens
        ]
        new = []
        own = [w for w in model.weights if not w.path.startswith("bert/")]
        for weight in own:
            names = [weight.path]
            if not is_random:
                names.append(weight.path.removeprefix("decoder/"))
            if weight.path.endswith(_OF_TOKENS):
                names = [name for name in names if name.split("/")[0] not in others]
            shape = tuple(weight.shape)
            found = [name for name in names if checkpoint.shapes.get(name) == shape]
            if found:
                weight.assign(checkpoint.arrays[found[0]])
            else:
                new.append(weight.path)
        if is_random and len(new) == len(own):
            return ["the decoder is initialized randomly"]
        return [f"{name}: initialized randomly" for name in _parts(new)]

    def is_new(self, path: str) -> bool:
        if not _is_new(self.decoder):
            return "/crossattention/" in path or path.startswith("enc_to_dec_proj/")
        return super().is_new(path)

    def loss(self) -> keras.losses.Loss:
        return SmoothedCrossentropy(self.label_smoothing)

    def metrics(self) -> list[Any]:
        return [MaskedAccuracy(name="accuracy")]

    # Answers and scores.

    def infer(self, model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `Hypotheses`: `ids` int32 [B, S, L], `scores` float32 [B, S]."""
        find_memory = self._window_memory if self.reads_windows else _row_memory
        found = write(
            model.get_layer("decoder"),
            *find_memory(model, batch),
            self,
            first_id=batch["frame"][0],
            last_id=batch["frame"][1],
            limits=batch["limits"],
            sources=batch["sources"],
            vocab_size=batch["tokens"].shape[0],
        )
        return found._asdict()

    def _window_memory(self, model: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the encoder's output for sources in windows, [B, M, H], and its mask.

        Some windows at a time, and without padding, which is most of long sources.
        """
        places, width = batch[MEMORY_PLACES], model.backbone.config.hidden_size

        def states(part: Mapping[str, Any]) -> Any:
            return model.backbone(dict(part), training=False)["sequence_output"]

        found, starts = Parts(dict(batch)).tokens(states, INPUTS, width)
        mask, places = tf.cast(places >= 0, tf.int32), tf.maximum(places, 0)
        length = tf.shape(batch["padding_mask"])[1]
        return tf.gather(
            found, tf.gather(starts, places // length) + places % length
        ), mask

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `text` string [B], and all hypotheses, best first: `texts` string and
        `scores` float32 [B, S], log-probabilities over a power of the length.

        The texts for a source without a word are empty.
        """
        texts = detokenized(outputs["ids"], batch["tokens"], last_id=batch["frame"][1])
        texts = tf.where(batch["is_blank"][:, tf.newaxis], "", texts)
        return {"text": texts[:, 0], "texts": texts, "scores": outputs["scores"]}

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the texts that differ from their targets, the least likely first."""
        spelled = _spelled(columns["target"])
        texts = plain_values(answers["text"])
        wrong = [
            {
                "line": columns.lines[row],
                "source": columns["source"][row],
                "target": columns["target"][row],
                "prediction": texts[row],
                "score": float(answers["scores"][row][0]),
            }
            for row in range(len(columns))
            if _spelled([texts[row]])[0] != spelled[row]
        ]
        return sorted(wrong, key=lambda row: row["score"])

    def shown(self, columns: Columns, answers: Answers) -> list[str]:
        texts = plain_values(answers["text"][:_SHOWN])
        return [
            f"  {source[:200]} -> {text[:200]}"
            for source, text in zip(columns["source"][:_SHOWN], texts, strict=True)
        ]

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        """Return perplexity and accuracy of the targets' tokens, each predicted from
        the tokens before it in the target.
        """
        preprocessor = model.preprocessor.replace(layout="padded")
        string = tf.TensorSpec([None], tf.string)

        @tf.function(input_signature=[string, string], autograph=False)
        def counted(sources: Any, targets: Any) -> Any:
            batch, labels, _ = self.examples(preprocessor, sources, targets)
            logits = tf.cast(self._logits(model, batch), tf.float32)
            real = labels != NO_LABEL
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.maximum(labels, 0), logits
            )
            best = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return (
                tf.reduce_sum(tf.where(real, losses, 0.0)),
                tf.math.count_nonzero(real & (best == labels)),
                tf.math.count_nonzero(real),
            )

        targets = self.targets(columns)
        total, correct, count = 0.0, 0, 0
        for start in range(0, len(columns), batch_size):
            rows = slice(start, start + batch_size)
            sources = as_tensors([columns["source"][rows]])
            found = counted(sources, tf.constant(targets[rows].tolist()))
            total += float(found[0])
            correct += int(found[1])
            count += int(found[2])
        return {
            "perplexity": math.exp(min(total / max(count, 1), 700.0)),
            "token_accuracy": correct / max(count, 1),
        }

    def _logits(self, model: Any, batch: Mapping[str, Any]) -> Any:
        """Return the logits of the targets of a padded batch, [B, T, V]."""
        if not self.reads_windows:
            return model.computed(batch)
        memory, mask = self._window_memory(model, batch)
        given = {k: v for k, v in batch.items() if k.startswith(TARGET)}
        given |= {"memory": memory, "padding_mask": mask}
        return model.get_layer("decoder")(given, training=False)


@keras.saving.register_keras_serializable(package="bert_keras")
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Translation(Generation):
    """A text in another language."""

    name = "translation"
    best_score = "bleu"
    most_score = 100.0

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return BLEU and chrF, from 0 to 100, with the signatures of sacrebleu."""
        texts = plain_values(answers["text"])
        scores = translation_scores(columns["target"], texts)
        return {"num_examples": len(columns), **scores}


@keras.saving.register_keras_serializable(package="bert_keras")
@with_options_documented
@dataclasses.dataclass(frozen=True)
class AbstractiveSummarization(AbstractiveSummarizationSettings, Generation):
    """A short text that summarizes a document in new words."""

    name = "abstractive-summarization"
    best_score = "rougeL"
    columns = {
        "source": Column("document", empty=True),
        "target": Column("summary", empty=True),
    }

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return dataclasses.replace(super().needs, max_length=512)

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return mean ROUGE F-measures, from 0 to 1."""
        texts = plain_values(answers["text"])
        scores = Rouge(self.stemmer).score(columns["target"], texts)
        return {"num_examples": len(columns), **scores}


def _padded_memory(places: Any) -> dict[str, Any]:
    """Return the inputs of sources in windows, one source in a row."""
    sizes = sizes_of(places)
    longest = tf.reduce_max(tf.concat([sizes, [1]], 0))
    laid = places.to_tensor(-1, shape=tf.stack([tf.shape(sizes)[0], longest]))
    ids = tf.cast(laid >= 0, tf.int32)
    return {MEMORY_PLACES: laid, f"{MEMORY}sequence_ids": ids}


def _row_memory(model: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the encoder's output for truncated sources, [B, M, H], and its mask."""
    states = model.backbone(dict(batch), training=False)["sequence_output"]
    memory = unpack(states, batch)
    lengths, width = sizes_of(memory), states.shape[2]
    longest = tf.reduce_max(tf.concat([lengths, [1]], 0))
    shape = tf.stack([tf.shape(lengths)[0], longest, width])
    mask = tf.sequence_mask(lengths, longest, dtype=tf.int32)
    laid = memory.to_tensor(0, shape=shape)
    return tf.ensure_shape(laid, [None, None, width]), mask


def _sizes_of(decoder: Any) -> tuple[dict[str, Any], Any]:
    """Return the sizes that `decoder` determines, and the folder of its vocabulary."""
    if not isinstance(decoder, str) or not decoder:
        raise ConfigError(
            f"`decoder` must be {ENCODER}, {SHARED}, layers/hidden/heads or a path; "
            f"received {decoder!r}"
        )
    if decoder in (ENCODER, SHARED):
        return {}, None
    if _is_new(decoder):
        preset = BertConfig.from_preset(decoder)
        keys = ("num_hidden_layers", "hidden_size", "num_attention_heads")
        found = {key: getattr(preset, key) for key in (*keys, "intermediate_size")}
        return found, None
    checkpoint = read_checkpoint(decoder)
    sizes = checkpoint.config.to_dict()
    del sizes["is_decoder"]
    return sizes, str(checkpoint.path)


def _is_new(decoder: str) -> bool:
    """Return whether a decoder is given by its sizes."""
    parts = decoder.split("/")
    return len(parts) == 3 and all(part.isdecimal() for part in parts)


def _vocabularies(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Return the vocabulary of a checkpoint's weights, by their first scope."""
    try:
        own = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    except CheckpointError:  # a decoder whose vocabulary is given as `target_vocab`
        return {}
    settings = checkpoint.own_entry.get("settings", {})
    target = settings.get("target_vocab") or {"vocabulary": own.vocabulary}
    found = dict.fromkeys(("bert", "cls"), own.vocabulary)
    return {**found, "decoder": tuple(target["vocabulary"])}


def _parts(paths: Sequence[str]) -> list[str]:
    """Return the parts of a decoder that some weights belong to."""
    found = []
    for path in paths:
        steps = path.split("/")
        part = "cross-attention" if "crossattention" in steps else steps[-2]
        if steps[0] == "decoder" and steps[1] == "cls":
            part = "output"
        found.append(f"the decoder's {part}")
    return list(dict.fromkeys(found))


def _spelled(texts: Sequence[str]) -> list[str]:
    """Return texts without spaces and case, which a vocabulary may lack."""
    return ["".join(text.split()).casefold() for text in texts]
