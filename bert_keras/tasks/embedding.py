"""One vector for each text, close for texts of similar meaning: a bi-encoder.

Trained on pairs: both texts of a pair go through the same encoder, in one batch.

Sources: Reimers and Gurevych 2019 (arXiv:1908.10084); Devlin et al. 2018
(arXiv:1810.04805), section 5.3, table 7, for layers other than the last.
"""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import DENSE_SCOPE
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import Strata, quantiles
from bert_keras.data.row_source import RowSource
from bert_keras.errors import CheckpointError, ConfigError, DataError, counted, shown
from bert_keras.lazy_names import deferred, serializable
from bert_keras.reading.dense import checked_dense
from bert_keras.reading.late_interaction import MEANING, LateInteraction
from bert_keras.reading.layers import LAST, parse_layers, whole_number
from bert_keras.reading.term_vector import TermVector
from bert_keras.reading.text_vector import (
    COUNTED_TOKENS,
    DOCUMENT,
    QUERY,
    TextVector,
    check_prompts,
    one_after_the_other,
)
from bert_keras.scoring.correlation import ranks
from bert_keras.scoring.embeddings import (
    cosines,
    pair_places,
    retrieval_scores,
    similarity_scores,
)
from bert_keras.scoring.similarity import COSINE, DOT, MAXSIM, Similarity
from bert_keras.settings import (
    OF_VECTORS,
    OWN_LENGTHS,
    POOLINGS,
    VECTOR_OUTPUTS,
    check_choice,
    with_options_documented,
)
from bert_keras.tasks.base import Answers, Batch, Column, Run, Task, by_reader
from bert_keras.tasks.classifier import label_numbers
from bert_keras.tasks.embedding_settings import VECTORS, EmbeddingSettings
from bert_keras.tasks.given_labels import numbers
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.long_texts import LongTextTask
from bert_keras.tasks.needs import Needs, named_scope
from bert_keras.tasks.negatives import (
    NEGATIVE,
    candidates_of,
    pairs_of,
    read_with_negatives,
    without_positives,
)
from bert_keras.tasks.protocols import TAUGHT, TextSpec, check_dense

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.checkpoints import Checkpoint, sentence_files
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model import contrastive, distillation, pooling
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    (sentence_files,) = deferred("bert_keras.checkpoints.sentence_files")
    contrastive, distillation, pooling = deferred(
        "bert_keras.model.contrastive",
        "bert_keras.model.distillation",
        "bert_keras.model.pooling",
    )

_LEARNED = (DENSE_SCOPE, "layer_mix", "windows")  # layers above the encoder
_FAR = 0.25  # a pair whose rank is off by this share of all pairs counts as a mistake


def similarities(columns: Columns) -> np.ndarray:
    """Return the labels as numbers, float32 [N]; bad ones are named by line."""
    columns.require("label", reason="the model learned similarities")
    return label_numbers(columns)


def places_of(
    columns: Columns, vectors: np.ndarray, similarity: Similarity
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank of each text's pair and the nearest wrong one: `pair_places`."""
    first, second = np.split(vectors, [len(columns)])
    candidates = candidates_of(columns)
    texts = {"texts": columns["text"], "pairs": candidates}
    return pair_places(first, second, **texts, similarity=similarity)


# The settings of `TextVector` that have the same names here.
_READ = (
    *("pooling", "normalize", "layers", "combine_layers", "dense", "prompts"),
    *("default_prompt", "include_prompt", "default_length", *OWN_LENGTHS),
)
# How a student of vectors is trained, see docs/figures.md, Students.
_OF_VECTORS: dict[str, Any] = {"rate_times": 10.0, "least_epochs": 6, "dropout": 0.0}
# Tokens are compared one by one, and few pairs spoil them at the usual rate.
_OF_TOKENS: dict[str, Any] = {"rate_times": 0.3}
_LEAST_LENGTH = 3  # [CLS], a token and [SEP]
_RARITY = 4.0  # of the words that a new masked-LM head finds in a text
_SIMILARITIES = {"dense": COSINE, "sparse": DOT, "tokens": MAXSIM}
_PROJECTION = (  # of the tokens' vectors, by default
    {"units": 128, "activation": "linear", "use_bias": False, "on_tokens": True},
)
# The values that settings may have with a kind of vectors.
_ONE_LAYER = {
    **{"pooling": ("mean", "max"), "layers": (LAST,), "dimensions": ((),)},
    **{"truncate_dim": (0,), "include_prompt": (True,), "objective": ("ranking",)},
}
_FIXED: dict[str, dict[str, tuple[Any, ...]]] = {
    "sparse": {**_ONE_LAYER, "dense": ((),), "combine": ("mean", "max")},
    "tokens": {**_ONE_LAYER, "pooling": ("mean",), "long": ("truncate",)},
}
_STARTING = 64  # pairs from whose tokens a new projection starts
_FLOPS = (5e-5, 3e-5)  # the defaults of `query_flops` and `document_flops`


class EmbeddingCodec(HeadCodec):
    """The settings of a folder of sentence-transformers, or of a plain encoder."""

    def reads(self, config: Mapping[str, Any]) -> bool:
        return bool(sentence_files.sentence_settings(config))

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings; the vectors of a plain encoder are not normalized."""
        stored = sentence_files.sentence_settings(config) or {"normalize": False}
        if "error" in stored:
            raise CheckpointError(stored["error"])
        own = ("max_length", "unused", "head", "marks")
        return {k: v for k, v in stored.items() if k not in own}

    def architecture_of(self, task: Any) -> str:
        return "BertForMaskedLM" if task.is_sparse else self.architecture

    def write_files(
        self, task: Any, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        """Write sentence-transformers' files; it supports only the last layer."""
        if task.layers == LAST:
            sentence_files.write_sentence_files(
                folder,
                hidden_size=hidden_size,
                max_length=task.default_length or preprocessor.max_length,
                vocabulary=preprocessor.tokenizer.vocabulary,
                marks=[x.content for x in preprocessor.tokenizer.added_tokens],
                **{name: getattr(task, name) for name in OF_VECTORS},
            )


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Embedding(EmbeddingSettings, LongTextTask):
    """One vector for each text.

    With the objective `ranking` the rows are matching pairs, and the other texts of the
    batch are negatives, in both directions, as are the texts of the column `negative`;
    with `similarity` they have a label, higher for more similar texts, and the cosines
    learn its order. With `vectors` a row is one text, whose vector becomes its
    teacher's: small encoders then ask for the texts that a large one has indexed
    (arXiv:2509.12539).

    The vector of a text in windows is combined from the vectors that the windows have
    as texts.
    """

    name = "embedding"
    head_codec = EmbeddingCodec()
    columns = {
        "text": "text",
        "text_pair": "text_pair",
        "label": Column("label", optional=True),
        NEGATIVE: Column(NEGATIVE, optional=True, empty=True, lists=True),
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", parse_layers(self.layers))
        object.__setattr__(self, "dimensions", _parsed_widths(self.dimensions))
        object.__setattr__(self, "dense", checked_dense(self.dense, self.layers))
        object.__setattr__(self, "skip_words", _parsed_words(self.skip_words))
        for mode in str(self.pooling).split("+"):
            check_choice("pooling", mode, POOLINGS)
        check_prompts(self.prompts, self.default_prompt)
        super().__post_init__()
        for name in (*OWN_LENGTHS, "default_length"):
            if 0 < (length := getattr(self, name)) < _LEAST_LENGTH:
                raise ConfigError(
                    f"`{name}` must be 0 or at least {_LEAST_LENGTH}; received {length}"
                )
        if (
            self.kind != "sparse"
            and (found := (self.query_flops, self.document_flops)) != _FLOPS
        ):
            raise ConfigError(
                "`query_flops` and `document_flops` have an effect only with `kind` "
                f"sparse; received {found[0]} and {found[1]}"
            )
        for name, allowed in _FIXED.get(self.kind, {}).items():
            if (value := getattr(self, name)) not in allowed:
                raise ConfigError(
                    f"`{name}` must be left out with `kind` {self.kind}; received "
                    f"{shown(value)}"
                )
        if self.kind == "sparse":
            object.__setattr__(self, "pooling", "max")
            if self.reads_windows:  # as over the tokens of a text
                object.__setattr__(self, "combine", "max")
            object.__setattr__(self, "normalize", False)
        elif self.kind == "tokens":
            self._check_tokens()

    def _check_tokens(self) -> None:
        """Raise ConfigError if a setting of `kind` tokens does not fit another."""
        others = [layer for layer in self.dense if not layer.get("on_tokens")]
        if others:
            raise ConfigError(
                "`dense` must be layers with `on_tokens` true with `kind` tokens; "
                f"received {shown(others[0])}"
            )
        if 0 < self.query_length < self.query_expansion:
            raise ConfigError(
                "`query_expansion` must be at most `query_length`, which truncates "
                f"queries; received {self.query_expansion} and {self.query_length}"
            )

    @property
    def is_dense(self) -> bool:
        """Whether a text has one vector, pooled from its tokens."""
        return self.kind == "dense"

    @property
    def is_sparse(self) -> bool:
        """Whether vectors have a weight for each token of the vocabulary."""
        return self.kind == "sparse"

    @property
    def similarity(self) -> Similarity:
        """How vectors are compared."""
        return _SIMILARITIES[self.kind]

    @property
    def vector_output(self) -> str:  # type: ignore[override]
        return VECTOR_OUTPUTS[self.kind]

    @property
    def best_score(self) -> str:  # type: ignore[override]
        return {"ranking": "mrr", VECTORS: "cosine"}.get(self.objective, "spearman")

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """Whether the loss compares the texts of a batch."""
        return self.objective != VECTORS

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(
            pooler=False,
            outputs=self.reader.encoder_outputs,
            scopes=("cls/predictions/",) if self.is_sparse else (),
            inputs=self.reader.inputs,
            meanings={COUNTED_TOKENS: MEANING} if self.kind == "tokens" else {},
            **(_OF_TOKENS if self.kind == "tokens" else {}),
            rows_per_text=None if self.reads_windows else 1 + self.compares,
            **(_OF_VECTORS if self.objective == VECTORS else {}),
        )

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        columns = source.columns
        if not source.labelled and NEGATIVE in columns:
            raise ConfigError(
                f"`columns` must name columns of {', '.join(cls.roles)}, which the "
                f"model reads; received {NEGATIVE}"
            )
        if not source.labelled:
            return None
        others = ("text_pair", "label", NEGATIVE)
        optional = [role for role in others if role not in columns]
        wanted = {**cls.columns, **columns}
        return read_with_negatives(
            source.data, wanted, optional=optional, **source.rules
        )

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        if cls.from_columns(columns, **settings).objective == "similarity":
            return quantiles(similarities(columns))
        return [()] * len(columns)

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Embedding:
        """Return the task; the objective is `similarity` if rows have a label.

        It is `vectors` if they are no pairs.
        """
        objective = "similarity" if "label" in columns else "ranking"
        kind = settings.get("kind", "dense")
        if "text_pair" not in columns:
            if kind != "dense":
                columns.require(
                    "text_pair",
                    reason=f"vectors of `kind` {kind} learn pairs: only a student of a "
                    "teacher with dense vectors learns from single texts",
                )
            objective = VECTORS
        found: dict[str, Any] = {"objective": objective}
        if kind != "dense":
            if "label" in columns and "objective" not in settings:
                raise DataError(
                    f"has the column `label`, from which `kind` {kind} does not learn: "
                    "leave it out, and the pairs that do not match",
                    path=columns.path,
                )
            found["scale"] = 1.0
        if kind == "tokens":
            found |= {"dense": _PROJECTION, "skip_words": "punctuation"}
        return cls(**{**found, **settings})

    def with_objective_of(self, columns: Columns) -> Embedding:
        if not _are_pairs(columns):
            return self
        found = type(self).from_columns(columns, kind=self.kind)
        return dataclasses.replace(self, objective=found.objective)

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        """Return the texts; to train, both of each pair, and then its negatives.

        Empty negatives fill the rows that have fewer. To score, all first texts,
        followed by all second texts and all negatives; if `scores_sides`, also whether
        each is a query or a document.
        """
        if use == "answer":
            return super().texts(columns, use=use)
        if self.objective == VECTORS and use == "train":
            return (columns["text"],)
        if "text_pair" not in columns and (
            self.objective == VECTORS or TAUGHT in columns
        ):
            texts = columns["text"]
            return (texts, [QUERY] * len(texts)) if self.scores_sides else (texts,)
        first, second = pairs_of(columns)
        if use == "train":
            some = self._negatives(columns)
            filled = itertools.zip_longest(*some, fillvalue="")
            return first, second, *map(list, filled)
        others = candidates_of(columns)
        sides = [QUERY] * len(first) + [DOCUMENT] * len(others)
        return ([*first, *others], sides) if self.scores_sides else ([*first, *others],)

    def _negatives(self, columns: Columns) -> list[list[str]]:
        """Return the negatives of each row for training.

        Raises:
            DataError: the rows have labels, so that their pairs need not match.
        """
        if NEGATIVE in columns and self.objective == "similarity":
            raise DataError(
                f"`{NEGATIVE}` is for pairs that match, the objective ranking; "
                "received it with the objective similarity",
                path=columns.path,
            )
        return without_positives(columns, *pairs_of(columns))[0]

    def notes(self, columns: Columns) -> list[str]:
        """Return a warning about negatives that are positives of their text.

        Or that second texts are not learned.
        """
        if self.objective == VECTORS:
            note = f"{columns.path}: only the column text is learned, not the pairs"
            return [note] * ("text_pair" in columns)
        count = without_positives(columns, *pairs_of(columns))[1]
        return [
            f"{columns.path}: left out {counted(count, 'negatives')} equal to the text "
            "itself or to one of its pairs"
        ] * bool(count)

    def prompt(self, *names: str) -> str:
        """Return the first of these prompts that exists, or else the default one."""
        return self.reader.prompt(*names)

    def with_prompt(self, name: str) -> Embedding:
        """Return the task with a prompt before each text, see `TextVector`."""
        found = self.reader.with_prompt(name)
        given = {n: getattr(found, n) for n in ("default_prompt", "default_length")}
        if isinstance(found, LateInteraction):
            given["default_side"] = "query" if found.default_query else "document"
        return dataclasses.replace(self, **given)

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        """Return also `query` and `document`, if the task reads one of them otherwise
        than other texts.
        """
        found = dict(super().signatures())
        if self.reads_by_reader and self.reader.names_sides:
            found |= dict.fromkeys(("query", "document"), found["serving_default"])
        return found

    def of_signature(self, name: str) -> Embedding:
        return self.with_prompt(name) if name in ("query", "document") else self

    # Text to batch.

    @property
    def reader(self) -> TextVector:
        """How a text becomes a vector."""
        own = {name: getattr(self, name) for name in _READ}
        own |= {"normalize_combined": self.normalize, **self.long_settings}
        if self.kind != "tokens":
            return (TermVector if self.is_sparse else TextVector)(**own)
        return LateInteraction(
            **own,
            skip_words=self.skip_words,
            query_expansion=self.query_expansion,
            attend_expansion=self.attend_expansion,
            default_query=self.default_side == "query",
        )

    @property
    def scores_sides(self) -> bool:  # type: ignore[override]
        return self.objective == "ranking" and self.reader.reads_sides

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch of texts, each with the default prompt before it."""
        return self.reader.batch(preprocessor, texts)

    def lengths(
        self, preprocessor: Preprocessor, texts: Any, *, sides: Any = None
    ) -> tuple[Any, Any]:
        """Return the lengths, int32, of texts, [B], or of each text of rows, [2B …]."""
        if isinstance(texts, tuple):
            texts, sides = self._one_after_the_other(texts)
        return self.reader.lengths(preprocessor, texts, sides=sides)

    def windows_of(
        self, preprocessor: Preprocessor, texts: Any, *, sides: Any = None
    ) -> Any:
        """Return the windows, int32, of texts, [B, 2], or of each text of rows."""
        if isinstance(texts, tuple):
            texts, sides = self._one_after_the_other(texts)
        return self.reader.windows_of(preprocessor, texts, sides=sides)

    def _one_after_the_other(self, rows: Sequence[Any]) -> tuple[Any, Any]:
        """Return the texts of rows, tf.string [2B], or more, and their sides.

        `rows` are first texts, second texts and perhaps negatives, tf.string [B] each.
        """
        texts = one_after_the_other(rows)
        if self.objective == "similarity":  # both are of one kind
            return texts, None
        sides = [QUERY] + [DOCUMENT] * (len(rows) - 1)
        return texts, tf.tile(sides, tf.shape(texts) // len(rows))

    @property
    def reads_by_reader(self) -> bool:
        return super().reads_by_reader and len(self.roles) == 1

    @property
    def may_read_windows(self) -> bool:  # type: ignore[override]
        return super().may_read_windows and self.kind != "tokens"

    @property
    def answers_ids(self) -> bool:
        is_of_ids = super().reads_by_reader and not self.reads_windows
        return is_of_ids and self.kind != "tokens"

    @property
    def is_plain(self) -> bool:
        is_changed = self.prompt() or self.default_length or self.long != "truncate"
        return self.answers_ids and not is_changed

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        if scored and self.scores_sides:
            texts, sides = texts
            batch = self.reader.batch(preprocessor, texts, sides=sides)
        else:
            batch = self.features(preprocessor, texts)
        return self.answer(run(batch), batch)

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the targets of the loss.

        For `similarity` the labels, float32 [N]; for `vectors` the teacher's, float32
        [N, D], or 0, [N, 1], before it answers; for `ranking` int32 [N, 2 + K], a
        number for each text of a row, the same for equal texts, which are not negatives
        of each other; -1 in place of a missing negative.
        """
        if self.objective == VECTORS:
            unknown = np.zeros((len(columns), 1), np.float32)
            return np.stack(columns[TAUGHT]) if TAUGHT in columns else unknown
        texts = self.texts(columns, use="train")
        if self.objective == "similarity":
            return similarities(columns)
        numbers: dict[str, int] = {}
        rows = [
            [
                numbers.setdefault(t, len(numbers)) if t or k < 2 else -1
                for k, t in enumerate(row)
            ]
            for row in zip(*texts, strict=True)
        ]
        return np.array(rows, np.int32).reshape(-1, len(texts))

    def examples(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        targets: Any,
        weights: Any = None,
        *,
        draws: Any = None,
    ) -> tuple[Batch, Any, Any]:
        """Return one batch with the texts of each row, one after the other.

        `draws`, int64 [B], draw the windows of the texts of a row.
        """
        if self.objective == VECTORS and not isinstance(texts, tuple | list):
            texts = (texts,)
        if not isinstance(texts, tuple | list) or len(texts) < 1 + self.compares:
            raise ConfigError("`x` must be a pair of texts to train embeddings")
        if draws is not None:
            draws = tf.repeat(draws, len(texts))
        each, sides = self._one_after_the_other(texts)
        batch = self.reader.batch(preprocessor, each, sides=sides, draws=draws)
        return batch, self.encode_targets(targets), weights

    def encode_targets(self, targets: Any) -> Any:
        """Return numbers for labels as written in a file."""
        return numbers(targets, tf.float32)

    # The model.

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        vectors = self.reader.vector(encoder, inputs, seed)
        width = int(vectors.shape[-1])
        _check_width("dimensions", max(self.dimensions, default=0), width)
        _check_width("truncate_dim", self.truncate_dim, width)
        return vectors

    def named_outputs(self, outputs: Any, model: Any) -> dict[str, Any]:
        vectors = self.answer(outputs, {})[self.vector_output]
        if self.kind == "tokens":
            return {self.vector_output: vectors}
        found = {"sentence_embedding": vectors}
        if self.layers == LAST and self.is_dense:
            is_first = any(layer.get("on_tokens") for layer in self.dense)
            kind = keras.layers.Dense if is_first else pooling.TextPooling
            reader = next(x for x in model.layers if isinstance(x, kind))
            found["last_hidden_state"] = keras.tree.flatten(reader.input)[0]
        return found

    def from_named(self, named: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        own = self.vector_output if self.kind == "tokens" else "sentence_embedding"
        return named[own]

    def start(self, model: keras.Model, checkpoint: Checkpoint) -> list[str]:
        """Set the weights of the layers on the text's vector from the checkpoint.

        A masked-LM head that the checkpoint lacks starts with the tokens' embeddings.
        """
        notes = []
        for scope in self.needs.scopes:
            if any(name.startswith(scope) for name in checkpoint.shapes):
                continue
            width = model.backbone.config.embedding_size  # type: ignore[attr-defined]
            if width is not None:
                raise ConfigError(
                    f"{checkpoint.path}: sparse vectors need a masked-LM head where "
                    f"`embedding_size` ({width}) is not `hidden_size`: start from an "
                    "encoder that has one, such as ELECTRA's generator"
                )
            table = model.backbone.embeddings.word_embeddings  # type: ignore[attr-defined]
            model.get_layer("cls").start_with_tokens(table, rarity=_RARITY)
            notes.append(
                f"the checkpoint has no {named_scope(scope)}: it starts as the product "
                "with the tokens' embeddings"
            )
        for layer in model.layers:
            names = {w.path: tuple(w.shape) for w in layer.weights}
            if not layer.name.startswith(_LEARNED) or not names:
                continue
            if all(checkpoint.shapes.get(n) == shape for n, shape in names.items()):
                for weight in layer.weights:
                    weight.assign(checkpoint.arrays[weight.path])
            else:
                notes.append(f"{layer.name}: initialized randomly")
        return notes

    def start_from(self, model: Any, columns: Columns) -> list[str]:
        """Set a new projection of tokens by the vectors of some of the rows' tokens."""
        if not isinstance(self.reader, LateInteraction) or not self.dense:
            return []
        step = max(len(columns) // _STARTING, 1)
        some = range(0, len(columns), step)[:_STARTING]
        pairs = pairs_of(columns.take(some))
        texts, sides = self._one_after_the_other(pairs)
        batch = self.reader.batch(model.preprocessor, texts, sides=sides)
        name = self.reader.start_projection(model, batch)
        return [
            f"{name}: starts with the principal components of the tokens of "
            f"{counted(2 * len(pairs[0]), 'training texts')}"
        ] * bool(name)

    def frozen(self, encoder: BertEncoder) -> list[keras.layers.Layer]:
        """Return the blocks above the selected layers: they do not affect the loss."""
        return self.reader.unread_blocks(encoder)

    def loss(self) -> keras.losses.Loss:
        if self.is_sparse:
            return contrastive.SparseRankingLoss(
                self.scale,
                query_flops=self.query_flops,
                document_flops=self.document_flops,
            )
        if self.kind == "tokens":
            return contrastive.TokenRankingLoss(self.scale)
        if self.objective == VECTORS:
            return distillation.DirectionLoss()
        if self.objective == "ranking":
            return contrastive.RankingLoss(self.scale, self.dimensions)
        of_order = {
            "cosine": contrastive.SimilarityOrderLoss,
            "angle": contrastive.AngleOrderLoss,
        }
        return of_order[self.similarity_loss](self.scale, self.dimensions)

    # Answers and scores.

    def infer(self, model: Any, batch: Batch) -> Any:
        if self.reads_windows:
            return self.reader.below(model).outputs(batch)
        return super().infer(model, batch)

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `embedding`, float32 [B, D], or less wide by `truncate_dim`.

        Sparse vectors are `term_weights`, float32 [B, V]; vectors of tokens are
        `token_embeddings`, float32 [B, T, D], 0 for tokens that do not count.

        A shortened vector has length 1 again if `normalize` says so;
        sentence-transformers leaves it shorter.
        """
        width = outputs.shape[-1]
        if self.truncate_dim in (0, width):  # shortened already, in an engine
            return {self.vector_output: outputs}
        _check_width("truncate_dim", self.truncate_dim, width)
        short = outputs[:, : self.truncate_dim]
        return {"embedding": pooling.unit_vectors(short) if self.normalize else short}

    def recipe(self) -> dict[str, Any]:
        if self.is_sparse:
            return {
                "meaning": "sentence_embedding is the weight of each token of the "
                "vocabulary for the text; texts are compared by dot product",
                "activation": "log(1 + relu(x)), maximum over the tokens",
            }
        if self.kind == "tokens":
            return {
                "meaning": "token_embeddings are the vectors of the text's tokens, 0 "
                "where they do not count; texts are compared by MaxSim",
                "activation": "none",
                **self.reader.recipe(),
            }
        return {
            "meaning": "sentence_embedding is the vector of the text, pooled from its "
            "tokens",
            "activation": "none",
            **self.reader.recipe(),
            **({"width": self.truncate_dim} if self.truncate_dim else {}),
        }

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return correlations if rows have labels, and retrieval scores of pairs.

        Of rows with a teacher's vectors, `cosine` is the mean cosine to these.

        Retrieval scores are left out for the objective `similarity`, whose pairs need
        not match, unless there is no label. With `dimensions`, the main score is also
        given for vectors of each width, but not beside a teacher's vectors, which are
        learned whole.
        """
        vectors = answers[self.vector_output]
        scores = self._scores(columns, vectors)
        main = self.best_score if self.best_score in scores else "mrr"
        widths = () if TAUGHT in columns else self.dimensions
        for width in sorted(widths, reverse=True):
            if width < vectors.shape[1]:
                found = self._scores(columns, vectors[:, :width])
                scores[f"{main}_of_width_{width}"] = found[main]
        return scores

    def _scores(self, columns: Columns, vectors: np.ndarray) -> dict[str, Any]:
        scores: dict[str, Any] = {}
        if TAUGHT in columns:
            taught = np.stack(columns[TAUGHT])
            scores["cosine"] = float(cosines(vectors[: len(columns)], taught).mean())
        if not _are_pairs(columns):
            return scores
        if "label" in columns:
            pairs = _of_pairs(columns, vectors)
            found = self.similarity if self.kind == "tokens" else COSINE
            scores |= similarity_scores(*pairs, similarities(columns), found)
        if self.objective != "similarity" or not scores:
            places = places_of(columns, vectors, self.similarity)[0]
            scores |= retrieval_scores(places)
        return scores

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return texts whose pair is not the nearest, or pairs that are far off."""
        vectors = answers[self.vector_output]
        if not _are_pairs(columns):
            return []
        if self.objective == "similarity":
            return self._far_pairs(columns, vectors)
        return self._lost_pairs(columns, vectors)

    def _far_pairs(self, columns: Columns, vectors: np.ndarray) -> list[dict[str, Any]]:
        """Return pairs whose cosine is far from its rank by label, farthest first."""
        found = cosines(*_of_pairs(columns, vectors))
        texts, pairs = pairs_of(columns)
        gold = similarities(columns)
        off = (ranks(found) - ranks(gold)) / len(gold)
        rows = np.flatnonzero(abs(off) > _FAR)
        return [
            {
                "line": columns.lines[row],
                "text": f"{texts[row]}  |  {pairs[row]}",
                "label": columns["label"][row],
                "cosine": float(found[row]),
            }
            for row in rows[np.argsort(-abs(off[rows]), kind="stable")]
        ]

    def _lost_pairs(
        self, columns: Columns, vectors: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return the texts whose pair is not the nearest, farthest first."""
        texts, pairs = columns["text"], candidates_of(columns)
        places, nearest = places_of(columns, vectors, self.similarity)
        rows = np.flatnonzero(places > 1)
        return [
            {
                "line": columns.lines[row],
                "text": texts[row],
                "label": pairs[row],
                "place": int(places[row]),
                "prediction": pairs[nearest[row]],
            }
            for row in rows[np.argsort(-places[rows], kind="stable")]
        ]

    # Explanations are of the similarity of two texts.

    def paired(self) -> PairedTexts:
        """Return the task that reads pairs.

        Raises:
            ConfigError: there is a prompt, whose words are no part of the texts, or
                vectors are shortened.
        """
        check_dense(self, "an explanation of similarity")
        if self.truncate_dim:
            raise ConfigError(
                "`truncate_dim` must be 0 to explain the similarity of whole vectors; "
                f"received {self.truncate_dim}: --set truncate_dim=0 leaves it out"
            )
        if self.prompt():
            raise ConfigError(
                "`default_prompt` must be empty to explain the words of texts; "
                f"received {self.default_prompt}: --set default_prompt= leaves it out"
            )
        return PairedTexts(**self.get_config())

    def explained(self, item: Item) -> list[Target]:
        item.refuse("target", "against")
        features = item.features([list(item.parts)])
        roles = zip(("text", "text_pair"), item.parts, strict=True)
        pieces = [[item.words.add(role, text)] for role, text in roles]
        return [item.cosine("similarity", item.joined_rows(features, pieces))]

    # Students.

    @property
    def learns_from(self) -> str:
        return "vectors" if self.objective == VECTORS else "batches"

    def soft_targets(self, answers: Answers, teacher: Embedding) -> np.ndarray:
        """Return a teacher's vectors, which the objective `vectors` learns."""
        return answers[teacher.vector_output]

    def candidates(self, columns: Columns) -> list[list[str]]:
        if self.objective != "ranking":
            raise ConfigError(
                "`objective` must be ranking with a `teacher` that scores pairs; "
                f"received {self.objective}"
            )
        _, *others = self.texts(columns, use="train")
        if len(others) < 2:
            raise DataError(
                "must have the column `negative`, which `mine` writes: the teacher's "
                "scores of the texts of a row are compared",
                path=columns.path,
            )
        return [list(row) for row in zip(*others, strict=True)]

    def aligned(self, model: str, *, width: int, hidden_size: int) -> Embedding:
        own = hidden_size * len(str(self.pooling).split("+"))
        if self.combine_layers == "concat":
            own *= len(self.layers)
        if self.dense:
            own = self.dense[-1]["units"]
        added = {"units": width, "activation": "linear", "use_bias": True}
        dense = self.dense if own == width else (*self.dense, added)
        return dataclasses.replace(self, aligned_to=model, dense=dense)

    # What is saved.

    @classmethod
    def inherited(cls, held: Task | None, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(held, Embedding):
            return {}
        own = {"objective", "scale", "dimensions", "aligned_to"}  # of a training
        own |= {"query_flops", "document_flops"}
        if given.get("kind", held.kind) != held.kind:
            own |= {"pooling", "normalize", "default_side"}
            own |= {n for n in ("dense", "skip_words") if not getattr(held, n)}
        return {k: v for k, v in held.get_config().items() if k not in own}


class PairedTexts(Embedding):
    """Reads pairs of texts, whose similarity is explained."""

    roles = ("text", "text_pair")

    def pair_answers(
        self, answers: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the `similarity` of each pair, from the answers to all texts."""
        vectors = np.array([row["embedding"] for row in answers])
        pairs = vectors.reshape(len(answers) // 2, 2, -1)
        found = cosines(pairs[:, 0], pairs[:, 1])
        return [{"similarity": float(cosine)} for cosine in found]


def _are_pairs(columns: Columns) -> bool:
    """Return whether rows are pairs, and not texts of which vectors are learned."""
    return "text_pair" in columns or TAUGHT not in columns


def _of_pairs(columns: Columns, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the first and second texts, without negatives."""
    count = len(columns)
    return vectors[:count], vectors[count : 2 * count]


def _parsed_widths(value: Any) -> Any:
    """Return widths given as JSON's list, one number, or `192,96` as a tuple."""
    if isinstance(value, str):
        value = [whole_number(part) for part in value.split(",")]
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, int) else value


def _parsed_words(value: Any) -> Any:
    """Return words given as JSON's list, or `punctuation`, as a tuple."""
    if value == "punctuation":
        return tuple(string.punctuation)
    return tuple(value) if isinstance(value, list) else value


def _check_width(name: str, given: int, width: int) -> None:
    """Raise a ConfigError unless vectors of a width can be shortened."""
    if given > width:
        raise ConfigError(
            f"`{name}` must be at most {width}, the width of the vectors; received "
            f"{given}"
        )
