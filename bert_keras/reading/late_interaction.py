"""A vector for each token of a text, for late interaction: `LateInteraction`.

Queries and documents are read differently: each has its prompt and its length, queries
may be padded with `[MASK]`, whose vectors count, too, and words such as punctuation are
left out of documents.

Source: Khattab and Zaharia 2020 (arXiv:2004.12832), section 3.2.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import DENSE_SCOPE
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.reading.dense import dense_layers, principal_kernel
from bert_keras.reading.text_vector import COUNTED_TOKENS, DOCUMENT, QUERY, TextVector
from bert_keras.reading.windows import Batch, prompted
from bert_keras.text.packing import pad_rows
from bert_keras.text.ragged import put, sizes_of, with_sizes

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.model import encoder as model_encoder
    from bert_keras.model import pooling
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.token_ids import TokenIds
    from bert_keras.text.tokenizer import WordPieceTokenizer
else:
    keras, tf = deferred("keras", "tensorflow")
    model_encoder, pooling = deferred(
        "bert_keras.model.encoder", "bert_keras.model.pooling"
    )

MEANING = (
    "1 for a token whose vector counts, 0 for padding and for words that are left out"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteraction(TextVector):
    """How a text becomes a vector for each of its tokens.

    Args:
        skip_words: words of the vocabulary that do not count in documents.
        query_expansion: queries of fewer tokens are padded with `[MASK]` to so many,
            which count; 0: none.
        attend_expansion: whether the other tokens see this padding.
        default_query: whether a text without a side is a query.
    """

    skip_words: tuple[str, ...] = ()
    query_expansion: int = 0
    attend_expansion: bool = False
    default_query: bool = False

    names_sides = True
    reads_sides = True

    def with_prompt(self, name: str) -> Self:
        found = super().with_prompt(name)
        return dataclasses.replace(found, default_query=name == "query")

    def batch(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        *,
        sides: Any = None,
        draws: Any = None,
    ) -> Batch:
        """Return the batch dict of texts, see `TextVector`, one in each row.

        It also has `counted_tokens`, int32 [B, T].
        """
        tokenizer = preprocessor.tokenizer
        prompts, limits = self.before_each(preprocessor, texts, sides)
        ids, _ = preprocessor.join(prompted(prompts, texts), limits)
        sizes = sizes_of(ids)
        if sides is None:
            sides = tf.fill(tf.shape(sizes), QUERY if self.default_query else DOCUMENT)
        is_query = sides == QUERY
        if self.query_expansion:
            least = tf.where(is_query, self.query_expansion, 0)
            ids = _padded(ids, tf.maximum(sizes, least), expansion_id(tokenizer))
        segments = ids.with_values(tf.zeros_like(ids.values))
        rule = {"pad_id": tokenizer.pad_id, "multiple": preprocessor.length_multiple}
        batch = pad_rows(ids, segments, **rule)
        counted = batch["padding_mask"]
        if self.query_expansion and not self.attend_expansion:
            length = tf.shape(counted)[1]
            batch["padding_mask"] = tf.sequence_mask(sizes, length, dtype=tf.int32)
        number = {word: n for n, word in enumerate(tokenizer.vocabulary)}
        skipped = [number[word] for word in self.skip_words if word in number]
        if skipped:
            found = batch["token_ids"][:, :, tf.newaxis] == tf.constant(skipped)
            is_left_out = tf.reduce_any(found, axis=2) & ~is_query[:, tf.newaxis]
            counted = tf.where(is_left_out, 0, counted)
        return {**batch, COUNTED_TOKENS: counted}

    # The model.

    def inputs(self) -> Batch:
        found = model_encoder.batch_inputs(cls_positions=False)
        return found | model_encoder.named_inputs([COUNTED_TOKENS])

    def vector(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the Keras tensor of each token's vector, [B, T, D].

        0 for tokens that do not count.
        """
        x = self.token_vectors(encoder, inputs)
        on_tokens, _ = dense_layers(self.dense, seed)
        for layer in on_tokens:
            x = layer(x)
        return pooling.CountedTokens(self.normalize)(x, inputs[COUNTED_TOKENS])

    def start_projection(self, model: keras.Model, batch: Batch) -> str:
        """Set a new first layer on the tokens by their vectors in a batch.

        Return its name; empty if it is not a linear one to fewer numbers.
        """
        layer = model.get_layer(f"{DENSE_SCOPE}0")
        is_linear = type(layer) is keras.layers.Dense and not layer.use_bias
        if (
            not is_linear
            or layer.activation is not keras.activations.linear
            or layer.units >= layer.input.shape[-1]
        ):
            return ""
        below = model_encoder.PartialModel(model._inputs_struct, layer.input)
        vectors = pooling.unit_vectors(keras.ops.cast(below(batch), "float32"))
        counted = np.asarray(batch[COUNTED_TOKENS]) > 0
        found = keras.ops.convert_to_numpy(vectors)[counted]
        layer.kernel.assign(principal_kernel(found, layer.units))
        return str(layer.name)

    def recipe(self) -> dict[str, Any]:
        return {
            "normalized": self.normalize,
            "words left out of documents": list(self.skip_words),
            "tokens of a query, with [MASK]": self.query_expansion,
            "padding with [MASK] is seen by other tokens": self.attend_expansion,
        }


def _padded(ids: Any, sizes: Any, value: int) -> Any:
    """Return ragged int32 [B, None] with a value after each row, of these sizes."""
    flat = tf.fill([tf.reduce_sum(sizes)], tf.constant(value, tf.int32))
    starts = tf.cumsum(sizes, exclusive=True)
    places = tf.ragged.range(starts, starts + sizes_of(ids)).values
    return with_sizes(put(flat, places, ids.values), sizes)


def expansion_id(tokenizer: WordPieceTokenizer | TokenIds) -> int:
    """Return the id of `[MASK]`, with which queries are filled up.

    Raises:
        ConfigError: the vocabulary has none.
    """
    found = tokenizer.mask_id
    if found is None:
        raise ConfigError("`query_expansion` needs [MASK], which the vocabulary lacks")
    return found
