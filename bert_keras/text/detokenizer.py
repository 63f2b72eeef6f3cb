"""WordPiece ids to text in the TF graph: `detokenized`.

Pieces are joined and punctuation is spaced as in running text. What the vocabulary does
not hold, such as capital letters in an uncased one, stays lost.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from bert_keras.text.tokenizer_files import SPECIAL_TOKENS

# Patterns of RE2, which has no look-ahead, and what replaces them; in this order. A
# pattern that needs the character after it is applied twice.
_SPECIAL = "|".join(re.escape(token) for token in SPECIAL_TOKENS)
_LETTER = r"[\pL\pM]"
_RULES: tuple[tuple[str, str], ...] = (
    (r' " ([^"]*[^" ]) " ', r' "\1" '),
    (r" ([.,!?;:%…)\]}»”’])", r"\1"),
    (r"([(\[{«“¿¡$€£#@]) ", r"\1"),
    (rf"({_LETTER})(’| ') ?((?:s|t|re|ve|ll|d|m)) ", r"\1'\3 "),
    (rf" ((?:[ldjmtscnLDJMTSCN]|qu|Qu|QU)) ?(?:'|’) ?({_LETTER})", r" \1'\2"),
    (rf"({_LETTER}|\d) ([-/]) ({_LETTER}|\d)", r"\1\2\3"),
    (rf"({_LETTER}|\d) ([-/]) ({_LETTER}|\d)", r"\1\2\3"),
    (r"(\d)([.:]) (\d)", r"\1\2\3"),
    (r"(\d)([.:]) (\d)", r"\1\2\3"),
    (r"(\d), (\d\d\d)([^\d])", r"\1,\2\3"),
    (r"(\d), (\d\d\d)([^\d])", r"\1,\2\3"),
    # Scripts without spaces.
    (r"([\p{Han}\p{Hiragana}\p{Katakana}、。]) ", r"\1"),
)


@tf.autograph.experimental.do_not_convert
def detokenized(ids: Any, tokens: Any, *, last_id: Any) -> Any:
    """Return the text of ids up to the first `[SEP]`, without special tokens, in graph.

    `ids` are int32 [..., L], `tokens` string [V], the vocabulary, and `last_id` is the
    id of `[SEP]`. Returns string [...].

    Example:
        >>> vocabulary = tf.constant(["[SEP]", "don", "'", "t", "eat", "##en"])
        >>> detokenized([[1, 2, 3, 4, 5, 0, 4]], vocabulary, last_id=0).numpy()
        array([b"don't eaten"], dtype=object)
    """
    ids = tf.convert_to_tensor(ids, tf.int32)
    is_before = tf.cumsum(tf.cast(ids == last_id, tf.int32), axis=-1) == 0
    pieces = tf.gather(tokens, ids)
    is_inside = tf.strings.regex_full_match(pieces, "##.+")
    is_kept = is_before & ~tf.strings.regex_full_match(pieces, _SPECIAL)
    inside = tf.strings.regex_replace(pieces, "^##", "")
    pieces = tf.where(is_inside, inside, tf.strings.join([" ", pieces]))
    pieces = tf.where(is_kept, pieces, "")
    return spaced(tf.strings.reduce_join(pieces, axis=-1))


@tf.autograph.experimental.do_not_convert
def spaced(texts: Any) -> Any:
    """Return words separated by spaces as running text, string of any shape.

    Example:
        >>> spaced(tf.constant(["don ' t go , she said ( twice ) ."])).numpy()
        array([b"don't go, she said (twice)."], dtype=object)
    """
    texts = tf.strings.join([" ", texts, " "])
    for pattern, rewrite in _RULES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return tf.strings.regex_replace(tf.strings.strip(texts), r" +", " ")
