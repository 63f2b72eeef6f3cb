"""How a text becomes one vector: `TextVector`.

A prompt is put before the text; the text is truncated, or read in windows; the encoder
runs, some of its layers are chosen, and the vectors of the tokens are pooled to one.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 3.2 for the pooler, section 5.3,
table 7, for layers other than the last; Reimers and Gurevych 2019 (arXiv:1908.10084)
for pooling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import ConfigError, received, shown
from bert_keras.lazy_names import deferred
from bert_keras.reading.dense import dense_layers
from bert_keras.reading.layers import LAST, Layers, resolve_layers
from bert_keras.reading.windows import PREFIX_LENGTHS, Batch, LongTexts, prompted
from bert_keras.settings import BI, CROSS, DOCUMENT_PROMPTS, POOLER

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.model import encoder, pooling
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    encoder, pooling = deferred("bert_keras.model.encoder", "bert_keras.model.pooling")

PROMPT_LENGTHS = "prompt_lengths"  # tokens that are not pooled, `[CLS]` included
COUNTED_TOKENS = "counted_tokens"  # 1: the vector counts, see `LateInteraction`
QUERY, DOCUMENT = 0, 1  # the side of a text, see `TextVector.batch`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextVector(LongTexts):
    """How a text becomes the vector that a head reads.

    Prompts, `dense` and the lengths of queries and documents are of `embedding` alone.
    With the pooler, prompts and lengths have an effect, but not `normalize`, `layers`
    and `dense`.

    Args:
        pooling: how the vectors of the tokens are pooled, see `TextPooling`; or
            `pooler`, of BERT. The default is `embedding`'s; a classifier's is `pooler`,
            see `PooledTask.reader`.
        normalize: whether vectors, of windows too, are divided by their length.
        normalize_combined: whether the vector combined from windows is, too.
        layers: the hidden states that are read, see `resolve_layers`.
        combine_layers: how several are combined before the pooling, see `LayerMix`.
        pools_each_layer: whether each is pooled instead, and the vectors concatenated.
        dense: settings of layers on the tokens or the vector, see `checked_dense`.
        prompts: texts by name, put before a text.
        default_prompt: the name of the prompt before each text that has no other.
        include_prompt: whether the tokens of prompts are pooled.
        query_length, document_length, default_length: the most tokens of a truncated
            query, of a document and of other texts; 0: as many as the preprocessor's.
        pair_encoder: `cross`, a pair is one row; or `bi`, each of its texts has a row
            and a vector, see `PairFeatures`.
    """

    pooling: str = "mean"
    normalize: bool = False
    normalize_combined: bool = False
    layers: Layers = LAST
    combine_layers: str = "sum"
    pools_each_layer: bool = False
    dense: tuple[Mapping[str, Any], ...] = ()
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str = ""
    include_prompt: bool = True
    query_length: int = 0
    document_length: int = 0
    default_length: int = 0
    pair_encoder: str = CROSS

    # Prompts and lengths.

    def prompt(self, *names: str) -> str:
        """Return the first of these prompts that exists, or else the default one."""
        found = [name for name in names if name in self.prompts]
        name = found[0] if found else self.default_prompt
        return self.prompts.get(name, "")

    def with_prompt(self, name: str) -> Self:
        """Return the reader with a prompt before each text, and its length.

        As in sentence-transformers, `query` and `document` may be missing: there is no
        prompt then, not even the default one. `document` may be named `passage` or
        `corpus`. Texts have `query_length` or `document_length`, as by `encode_query`
        and `encode_document`.

        Raises:
            ConfigError: there are prompts, but not this one.
        """
        names = (name, *DOCUMENT_PROMPTS) if name == "document" else (name,)
        found = [each for each in names if each in self.prompts]
        if not found and name not in ("query", "document"):
            allowed = f"one of {', '.join(self.prompts)}"
            if not self.prompts:
                allowed = "query, document or left out for a model without prompts"
            raise ConfigError(f"`prompt` must be {allowed}; {received(name)}")
        lengths = {"query": self.query_length}
        lengths |= dict.fromkeys(DOCUMENT_PROMPTS, self.document_length)
        return dataclasses.replace(
            self, default_prompt=(*found, "")[0], default_length=lengths.get(name, 0)
        )

    @property
    def names_sides(self) -> bool:
        """Whether queries or documents have a prompt or a length of their own."""
        named = {"query", *DOCUMENT_PROMPTS} & {*self.prompts}
        return bool(named or self.query_length or self.document_length)

    @property
    def reads_sides(self) -> bool:
        """Whether texts with a side are read otherwise than with `max_length` alone."""
        return any((*self._side_prompts, self.query_length, self.document_length))

    @property
    def _side_prompts(self) -> tuple[str, str]:
        return self.prompt("query"), self.prompt(*DOCUMENT_PROMPTS)

    def before(
        self, max_length: int, *, has_sides: bool
    ) -> tuple[tuple[str, ...] | None, tuple[int, ...]]:
        """Return the prompts, or `None` where there are none, and the most tokens.

        One of each for all texts, or with sides of a query and of a document.
        """
        prompts: tuple[str, ...] = (self.prompt(),)
        lengths: tuple[int, ...] = (self.default_length,)
        if has_sides:
            prompts = self._side_prompts
            lengths = (self.query_length, self.document_length)
        limits = tuple(length or max_length for length in lengths)
        return (prompts if any(prompts) else None), limits

    def before_each(self, preprocessor: Preprocessor, texts: Any, sides: Any) -> Any:
        """Return the prompt of each text, tf.string [B], or `None`, and the most tokens
        of each, int or int32 [B].
        """
        has_sides = sides is not None
        prompts, limits = self.before(preprocessor.max_length, has_sides=has_sides)
        if not has_sides:
            each = None if prompts is None else tf.fill(tf.shape(texts), prompts[0])
            return each, limits[0]
        each = None if prompts is None else tf.gather(tf.constant(prompts), sides)
        return each, tf.gather(limits, sides)

    # Texts to a batch, in graph.

    def separates(self, texts: Any) -> bool:
        """Return whether texts are pairs, and each text of a pair has its own row."""
        return self.pair_encoder == BI and isinstance(texts, tuple) and len(texts) > 1

    def batch(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        *,
        sides: Any = None,
        draws: Any = None,
    ) -> Batch:
        """Return the batch dict of texts.

        Args:
            preprocessor: tokenizes, truncates and lays out the texts.
            texts: tf.string [B], or a tuple of two for pairs. In one row, pairs have no
                prompts: only `embedding` has some, which reads each text by itself.
            sides: int32 [B], `QUERY` or `DOCUMENT`, by which texts have their prompt
                and their length; `None`: all have the default ones.
            draws: int64 [B], see `LongTexts.long_batch`.
        """
        if self.separates(texts):
            texts = one_after_the_other(texts)
        prompts, limits = self.before_each(preprocessor, texts, sides)
        if self.long == "truncate":
            joined = preprocessor.join(prompted(prompts, texts), limits)
            found: Batch = preprocessor.lay(*joined)
            before = None
        else:
            found = self.long_batch(
                preprocessor, texts, prefixes=prompts, draws=draws, limits=limits
            )
            before = found.pop(PREFIX_LENGTHS, None)
        if not self.include_prompt:
            if before is None and prompts is not None:
                before = _tokens_before(preprocessor, prompts)
            if before is None:
                rows = found.get(WINDOW_STARTS, texts)
                before = tf.zeros(tf.shape(rows), tf.int32)
            found[PROMPT_LENGTHS] = before
        return found

    def lengths(
        self, preprocessor: Preprocessor, texts: Any, *, sides: Any = None
    ) -> tuple[Any, Any]:
        """Return how many tokens of each text are read, and how many are truncated.

        int32 [B] each, special tokens and prompts included. Of two texts that are read
        by themselves, it is the longer one.
        """
        if not self.separates(texts):
            return super().lengths(preprocessor, texts, sides=sides)
        both = super().lengths(preprocessor, one_after_the_other(texts))
        read, lost = (tf.reduce_max(tf.reshape(each, [-1, 2]), axis=1) for each in both)
        return read, lost

    def window_recipe(self, max_length: int) -> dict[str, Any]:
        found, prompt = super().window_recipe(max_length), self.prompt()
        if not prompt:
            return found
        meaning = f"{found['meaning']}. The tokens of `prompt` follow [CLS] in each row"
        return {**found, "meaning": meaning, "prompt": prompt}

    # The model.

    @property
    def needs_pooler(self) -> bool:
        """Whether the encoder has to have BERT's pooler."""
        return self.pooling == POOLER

    @property
    def encoder_outputs(self) -> tuple[str, ...]:
        """The outputs of the encoder that are read in addition to its usual ones."""
        return () if self.layers == LAST else ("hidden_states",)

    def inputs(self) -> Batch:
        """Return the Keras inputs of a model."""
        found = {**encoder.batch_inputs(), **self.window_inputs()}
        if not self.include_prompt:
            found[PROMPT_LENGTHS] = keras.Input((), dtype="int32", name=PROMPT_LENGTHS)
        return found

    def vector(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the Keras tensor of each text's vector, [B, D], which a head reads.

        `seed` is of the layers of `dense`. D is the hidden size H, or a multiple of it
        for several layers or poolings and for `PairFeatures`, or the units of the last
        layer of `dense`.
        """
        vectors = self.row_vectors(encoder, inputs, seed)
        if self.pair_encoder == BI:
            return pooling.PairFeatures()(vectors)
        if not self.reads_windows:
            return vectors
        x = self.combined(vectors, inputs)
        if not self.normalize_combined:
            return x
        return pooling.UnitVectors(name="unit_windows")(x)

    def row_vectors(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the Keras tensor of the vectors of texts, or of their windows."""
        if self.needs_pooler:
            return encoder.pool(inputs)
        on_tokens, on_vectors = dense_layers(self.dense, seed)
        pool = pooling.TextPooling(
            self.pooling, normalize=self.normalize and not on_vectors, dtype="float32"
        )
        places = [
            inputs.get(name)
            for name in ("padding_mask", "position_ids", "cls_positions")
        ]
        places.append(inputs.get(PROMPT_LENGTHS))
        if self.pools_each_layer:
            vectors = [pool(x, *places) for x in self.states(encoder, inputs)]
            return keras.layers.Concatenate(dtype="float32")(vectors)
        x = self.token_vectors(encoder, inputs)
        for layer in on_tokens:
            x = layer(x)
        x = pool(x, *places)
        for layer in on_vectors:
            x = layer(x)
        return pooling.UnitVectors()(x) if self.normalize and on_vectors else x

    def token_vectors(self, encoder: BertEncoder, inputs: Batch) -> Any:
        """Return the Keras tensor of each token's vector from the chosen layers."""
        states = self.states(encoder, inputs)
        if len(states) == 1:
            return states[0]
        return pooling.LayerMix(self.combine_layers)(states)

    def states(self, encoder: BertEncoder, inputs: Batch) -> list[Any]:
        """Return the Keras tensors of the chosen hidden states, each [R, T, H]."""
        own = (PROMPT_LENGTHS, WINDOW_STARTS, COUNTED_TOKENS)
        outputs = encoder({k: v for k, v in inputs.items() if k not in own})
        if self.layers == LAST:
            return [outputs["sequence_output"]]
        chosen = resolve_layers(self.layers, encoder.config.num_hidden_layers)
        return [outputs["hidden_states"][place] for place in chosen]

    def unread_blocks(self, encoder: BertEncoder) -> list[keras.layers.Layer]:
        """Return the blocks above the chosen layers, which have no effect."""
        if self.layers == LAST:
            return []
        chosen = resolve_layers(self.layers, encoder.config.num_hidden_layers)
        return encoder.blocks[max(chosen) :]  # state 0 is the embeddings'

    def recipe(self) -> dict[str, Any]:
        """Return how tokens are pooled, as values of JSON."""
        return {"pooling": self.pooling, "normalized": self.normalize}


def check_prompts(prompts: Any, default: Any) -> None:
    """Raise a ConfigError unless prompts are texts by name, the default one of them."""
    if not isinstance(prompts, Mapping) or not all(
        isinstance(part, str) for item in prompts.items() for part in item
    ):
        raise ConfigError(f"`prompts` must map names to texts; {received(prompts)}")
    if default and default not in prompts:
        allowed = f"one of {', '.join(prompts)}" if prompts else "empty without prompts"
        raise ConfigError(
            f"`default_prompt` must be {allowed}; received {shown(default)}"
        )


def one_after_the_other(rows: Sequence[Any]) -> Any:
    """Return the texts of each row, K times tf.string [B], as tf.string [K * B]."""
    return tf.reshape(tf.stack(rows, axis=1), [-1])


def _tokens_before(preprocessor: Preprocessor, prompts: Any) -> Any:
    """Return the tokens of each prompt, tf.string [B], `[CLS]` included, int32 [B].

    0 for an empty one. A prompt is tokenized alone, as in sentence-transformers.
    """
    sizes, _ = preprocessor.lengths(prompts)
    return tf.where(prompts == "", 0, sizes - 1)  # without `[SEP]`
