"""Long texts whose tokens are answered one by one: `TokenWindows`.

As of words that are tagged, and of a context that holds an answer: windows overlap, and
each token is answered in the window where it has the most context.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred
from bert_keras.reading.windows import LongTexts
from bert_keras.text.windows import Cut

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")

# Entries of a batch without a graph. int32 [S, 6] of each window: its text, its first
# token of it, how many it holds, the first column of these, and the tokens from and to
# which it has the most context.
TOKEN_PLACES = "token_places"
# int32 [W], the token at which a word is answered, in the rows laid end to end.
WORD_PLACES = "word_places"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenWindows(LongTexts):
    """Windows that overlap by half or more; no token is left out.

    Args:
        max_first_tokens: longer questions are truncated, see `Cut`.
        of_words: whether the words of a text are answered, or of lists of words.
    """

    long: str = "windows"
    max_first_tokens: int | None = None
    of_words: bool = False

    @property
    def takes_lists(self) -> bool:
        return self.of_words

    def cut(self, max_length: int, *, is_prefix: bool = False) -> Cut:
        cut = Cut(
            max_length,
            stride=self.stride,
            overlap=0.5,
            is_last_full=self.of_words,
            is_prefix=is_prefix,
        )
        if self.max_first_tokens is None:
            return cut
        return dataclasses.replace(cut, max_first_tokens=self.max_first_tokens)

    def answer_specs(self) -> dict[str, Any]:
        if self.of_words:
            return {WORD_PLACES: tf.TensorSpec([None], tf.int32, WORD_PLACES)}
        return {TOKEN_PLACES: tf.TensorSpec([None, 6], tf.int32, TOKEN_PLACES)}
