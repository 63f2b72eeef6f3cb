"""`TokenFeatures`: the vectors of the tokens of texts, for a file of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred
from bert_keras.reading.text_vector import TextVector
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.needs import Needs
from bert_keras.text.packing import join, unpack

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.model import pooling
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf, pooling = deferred("keras", "tensorflow", "bert_keras.model.pooling")


@dataclasses.dataclass(frozen=True)
class TokenFeatures(Embedding):
    """One vector for each token, `[CLS]` and `[SEP]` included.

    The arguments are the same as for `Embedding`; `pooling` and prompts are ignored.
    """

    name = "token-vectors"
    may_read_windows = False

    @property
    def reader(self) -> TextVector:
        """As of `Embedding`, without prompts: places are counted in the text itself."""
        return dataclasses.replace(super().reader, prompts={}, default_prompt="")

    def features(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch dict with `starts` and `ends` of the tokens, in characters.

        Both are 0 for `[CLS]` and `[SEP]`, as in the `tokenizers` library.
        """
        tokenizer = preprocessor.tokenizer
        pieces = tokenizer.tokenize_with_offsets(texts, unit="characters")
        most = (self.default_length or preprocessor.max_length) - 2
        ids, starts, ends = (part[:, :most] for part in pieces)
        ids, segments = join(
            ids, None, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
        )
        zero = tf.zeros([ids.nrows(), 1], tf.int32)
        starts, ends = (tf.concat([zero, x, zero], axis=1) for x in (starts, ends))
        return preprocessor.lay(ids, segments, starts=starts, ends=ends)

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return dataclasses.replace(super().needs, inputs=None)

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        vectors = keras.ops.cast(self.reader.token_vectors(encoder, inputs), "float32")
        return pooling.unit_vectors(vectors) if self.normalize else vectors

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `embeddings` float32 [B, T, D], 0 after a text's last token, and
        `token_ids`, `starts` and `ends`, int32 [B, T], -1 there.
        """
        cells = {key: unpack(batch[key], batch) for key in ("starts", "ends")}
        cells["token_ids"] = unpack(batch["token_ids"], batch)
        return {
            "embeddings": unpack(outputs, batch).to_tensor(),
            **{key: value.to_tensor(-1) for key, value in cells.items()},
        }
