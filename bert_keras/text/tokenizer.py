"""Text to WordPiece ids in the TF graph: `WordPieceTokenizer`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3, and the `tokenizers` library
0.23, whose ids it reproduces. `word_pieces.py` has its graph.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import CheckpointError, ConfigError, one_line, received
from bert_keras.settings import check_choice, check_whole_number
from bert_keras.text import tokenizer_files as files
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.added_tokens import added_tokens as unique_tokens
from bert_keras.text.characters import MOST_TOKENS
from bert_keras.text.splitting import Splitting
from bert_keras.text.tokenizer_files import (
    REQUIRED_TOKENS,
    SPECIAL_TOKENS,
    check_tokens,
)
from bert_keras.text.word_pieces import Untracked, word_pieces

_MOST_CHARACTERS = 1_000_000  # of a word; tf-text counts its bytes in 32 bits


class WordPieceTokenizer(tf.Module):
    """Turn texts into the WordPiece ids that the `tokenizers` library gives.

    Ids and offsets are equal for every string; only for a normalized added token with
    `lstrip` or `rstrip`, the offsets of `tokenizers` include a CJK character beside it,
    and for letters that NFC or NFKC joins, they are the first letter's.
    `packing` adds the special tokens. Every op is a TensorFlow op on the CPU, under any
    Keras backend.
    `keras.export.ExportArchive.track` accepts the tokenizer.

    Args:
        vocabulary: the tokens, in the order of their ids; pieces inside a word start
            with `##`. `[PAD]`, `[UNK]`, `[CLS]` and `[SEP]` are required.
        lowercase: lower-case the text.
        strip_accents: drop accents; `None` means the same as `lowercase`.
        tokenize_chinese_chars: make each CJK character a word.
        special_tokens_in_text: `literal` reads `[MASK]` in a text as three words, so
            that no text can inject a special token; `parse` as the special token.
        max_word_characters: longer words are `[UNK]`. Hugging Face uses 100, Google's
            first code 200.
        added_tokens: tokens found in texts as they are written and never split:
            `AddedToken`, their texts, or mappings as in Hugging Face's files. Those
            that the vocabulary lacks get the ids after it. Flags of the five special
            tokens count with `parse` only.
        normalizer: of a tokenizer.json, in place of `lowercase`, `strip_accents` and
            `tokenize_chinese_chars`; see `Splitting`.
        pre_tokenizer: of a tokenizer.json, in place of BertPreTokenizer.

    Raises:
        ConfigError: a setting or the vocabulary breaks one of these rules.

    Example:
        >>> tokenizer = WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##want", "##ed"]
        ... )
        >>> tokenizer(["UNwantéd", ""]).to_list()
        [[4, 5, 6], []]
        >>> tokenizer.tokenize("UNwantéd")
        ['un', '##want', '##ed']
        >>> tokenizer.decode([2, 4, 5, 6, 3])
        'unwanted'
        >>> len(tokenizer), tokenizer.token_to_id("##ed")
        (7, 6)
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens_in_text: str = "literal",
        max_word_characters: int = 100,
        added_tokens: Sequence[AddedToken | str | Mapping[str, Any]] = (),
        normalizer: Mapping[str, Any] | None = None,
        pre_tokenizer: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name="word_piece_tokenizer")
        check_choice(
            "special_tokens_in_text", special_tokens_in_text, ("literal", "parse")
        )
        check_whole_number(
            "max_word_characters", max_word_characters, least=1, most=_MOST_CHARACTERS
        )
        base = check_tokens(vocabulary)
        splitting = None
        if normalizer is not None or pre_tokenizer is not None:
            splitting = Splitting.of(
                normalizer or {"type": "Sequence"}, pre_tokenizer or _BERT_WORDS
            )
            lowercase = "lower" in splitting.names
            strip_accents = bool({"accents", "marks"} & splitting.names)
            tokenize_chinese_chars = "chinese" in splitting.names
        self._own_splitting = Untracked((normalizer, pre_tokenizer))
        self.added_tokens = unique_tokens(added_tokens)
        known = set(base)
        new = [t.content for t in self.added_tokens if t.content not in known]
        self._base_size = len(base)
        self._vocabulary = Untracked((*base, *new))
        self.notes: tuple[str, ...] = ()
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self._strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.special_tokens_in_text = special_tokens_in_text
        self.max_word_characters = max_word_characters
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        self._id_of = Untracked(ids)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id = (
            ids[token] for token in REQUIRED_TOKENS
        )
        self.mask_id: int | None = ids.get("[MASK]")
        self.added_tokens = tuple(
            sorted(self.added_tokens, key=lambda token: ids[token.content])
        )
        found = self._found_in_texts()
        self._pieces = word_pieces(
            self.vocabulary,
            len(base),
            unk_id=self.unk_id,
            found=tuple(found),
            lowercase=lowercase,
            strip_accents=self.strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            max_word_characters=max_word_characters,
            splitting=splitting,
        )

    def _found_in_texts(self) -> list[AddedToken]:
        """Return the added tokens that are looked for in texts."""
        others = [t for t in self.added_tokens if t.content not in SPECIAL_TOKENS]
        if self.special_tokens_in_text == "parse":
            given = {token.content: token for token in self.added_tokens}
            others += [
                given.get(token, AddedToken(token, special=True))
                for token in SPECIAL_TOKENS
                if self.token_to_id(token) is not None
            ]
        if len(others) > MOST_TOKENS:
            raise ConfigError(
                f"`added_tokens` must be at most {MOST_TOKENS}; received {len(others)}"
            )
        return others

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens, in the order of their ids."""
        return self._vocabulary.value

    @property
    def splits_as_bert(self) -> bool:
        """Whether it has no `normalizer` and `pre_tokenizer` of its own."""
        return self._own_splitting.value == (None, None)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        case = "uncased" if self.lowercase else "cased"
        return (
            f"<WordPieceTokenizer: {len(self):,} tokens, {case}, special tokens in "
            f"texts: {self.special_tokens_in_text}>"
        )

    @tf.autograph.experimental.do_not_convert  # makes tracing ten times faster
    def __call__(self, texts: Any) -> Any:
        """Return the ids of texts, without special tokens.

        Args:
            texts: string [B] or a list of str, or one string. Bytes that are not UTF-8
                are dropped.

        Returns:
            ragged int32 [B, None]; for one string, int32 [None].
        """
        if is_single(texts):
            return self([texts])[0]
        return self._pieces("ids", texts)

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(
        self, texts: Any, *, unit: str = "bytes"
    ) -> tuple[Any, Any, Any]:
        """Return the ids and the position of each piece in the original text.

        Args:
            texts: string [B] or a list of str, or one string.
            unit: `bytes` of the UTF-8 text, or `characters` as Python counts them
                (each byte sequence that is not UTF-8 counts as in
                `bytes.decode("utf-8", "replace")`).

        Returns:
            ids, starts and ends (exclusive), each ragged int32 [B, None]; for one
            string, int32 [None].
        """
        check_choice("unit", unit, ("bytes", "characters"))
        if is_single(texts):
            found = self.tokenize_with_offsets([texts], unit=unit)
            return found[0][0], found[1][0], found[2][0]
        cells = self._pieces(unit, texts)
        columns = tf.unstack(cells.values, num=3, axis=1)
        ids, starts, ends = map(cells.with_values, columns)
        return ids, starts, ends

    def tokenize(self, texts: Any) -> list[Any]:
        """Return the pieces of one text as strings, or a list of them for each text.

        Unlike a call, which returns ids, it does not run in a graph.
        """
        if is_single(texts):
            return self.tokenize([texts])[0]
        rows = self(texts).to_list()
        return [[self.vocabulary[i] for i in row] for row in rows]

    def decode(self, ids: Any, *, skip_special_tokens: bool = True) -> Any:
        """Return the text of ids, as the `tokenizers` library does.

        Only an added token keeps its case and accents, which `tokenizers` normalizes.

        Pieces are joined to words, with spaces between words. The result is in general
        not the original text: the tokenizer drops spaces, case and accents.

        Args:
            ids: integers of one text [N], or of several, [B, N] or one list each.
            skip_special_tokens: leave out `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`,
                `[UNK]` and the added tokens that are special.

        Returns:
            a string, or a list with one for each text.
        """
        rows = _as_lists(ids)
        if rows and all(isinstance(row, list) for row in rows):
            return [
                self.decode(row, skip_special_tokens=skip_special_tokens)
                for row in rows
            ]
        tokens = [self.id_to_token(i) for i in rows]
        if skip_special_tokens:
            special = {t.content for t in self.added_tokens if t.special}
            special.update(SPECIAL_TOKENS)
            tokens = [token for token in tokens if token not in special]
        spaced = [t[2:] if t[:2] == "##" else _JOINED.sub("", f" {t}") for t in tokens]
        return "".join([*tokens[:1], *spaced[1:]])

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or `None` if the vocabulary lacks it."""
        return self._id_of.value.get(token)

    def id_to_token(self, id: int) -> str:
        """Return the token of an id, also one of an array or a tensor."""
        if getattr(id, "shape", None) == ():
            id = np.asarray(id).item()
        check_whole_number("id", id, least=0, most=len(self) - 1)
        return self.vocabulary[id]

    def ids_to_tokens(self, ids: Any) -> Any:
        """Return the tokens of `ids`, integers of any (ragged) shape, as strings."""
        tokens = tf.constant(self.vocabulary)
        return tf.ragged.map_flat_values(lambda flat: tf.gather(tokens, flat), ids)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments as JSON values, the vocabulary as a list.

        `added_tokens` is there only if there are any.
        """
        config: dict[str, Any] = {
            "vocabulary": list(self.vocabulary[: self._base_size]),
            "lowercase": self.lowercase,
            "strip_accents": self._strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            "special_tokens_in_text": self.special_tokens_in_text,
            "max_word_characters": self.max_word_characters,
        }
        for name, value in zip(
            ("normalizer", "pre_tokenizer"), self._own_splitting.value, strict=True
        ):
            if value is not None:
                config[name] = dict(value)
        if self.added_tokens:
            config["added_tokens"] = [token.to_dict() for token in self.added_tokens]
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> WordPieceTokenizer:
        """Return the tokenizer that `get_config` described."""
        return cls(**config)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_config, (self.get_config(),)

    @classmethod
    def from_folder(
        cls, folder: str | os.PathLike[str], **changes: Any
    ) -> WordPieceTokenizer:
        """Return the tokenizer of a model folder, Google's or Hugging Face's.

        Args:
            folder: holds `vocab.txt` or `tokenizer.json`, and perhaps
                `tokenizer_config.json`. Lower-casing follows the first that specifies
                it: tokenizer_config.json, tokenizer.json, then the vocabulary itself;
                `notes` names the source. A broken file raises a CheckpointError.
            **changes: arguments of the class that override the folder.
        """
        settings, notes = files.read_folder(folder)
        try:
            tokenizer = cls(**(settings | changes))
        except ConfigError as error:
            raise CheckpointError(f"{os.fspath(folder)}: {one_line(error)}") from None
        given = tuple(f"{name}=" for name in changes)
        tokenizer.notes = tuple(note for note in notes if not note.startswith(given))
        return tokenizer

    def add_tokens(
        self,
        tokens: Sequence[AddedToken | str | Mapping[str, Any]],
        *,
        special: bool = False,
    ) -> WordPieceTokenizer:
        """Return a tokenizer with further added tokens; this one stays as it is.

        Tokens that the vocabulary lacks get the next ids: a model needs as many more
        rows in its embedding table. `special` counts for tokens given as texts.

        Example:
            >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
            >>> tokenizer = WordPieceTokenizer(words).add_tokens(["covid19"])
            >>> tokenizer(["a covid19"]).to_list()
            [[4, 5]]
        """
        if isinstance(tokens, str):  # each of its characters would be a token
            raise ConfigError(f"`tokens` must be a list of tokens; {received(tokens)}")
        new = [
            AddedToken(t, special=special) if isinstance(t, str) else t for t in tokens
        ]
        config = self.get_config()
        config["added_tokens"] = [*self.added_tokens, *new]
        tokenizer = type(self)(**config)
        tokenizer.notes = self.notes
        return tokenizer

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        max_length: int | None = None,
        has_segments: bool = True,
    ) -> None:
        """Write vocab.txt and tokenizer_config.json, as Hugging Face's readers expect.

        `from_folder` returns an equal tokenizer. Each file is replaced in one step;
        other files of a tokenizer in the folder, such as tokenizer.json, are removed,
        with a warning.
        Other libraries truncate at `max_length` tokens, special tokens included, if it
        is given, and make no segment ids if the model has none.
        """
        files.write_folder(
            folder, self.get_config(), max_length=max_length, has_segments=has_segments
        )


def is_single(texts: Any) -> bool:
    """Return whether `texts` is one string rather than a list or tensor of them."""
    if isinstance(texts, str | bytes):
        return True
    return tf.is_tensor(texts) and texts.dtype == tf.string and texts.shape.rank == 0


def _as_lists(ids: Any) -> list[Any]:
    """Return ids of lists, arrays or (ragged) tensors as lists of int."""
    if isinstance(ids, tf.RaggedTensor):
        return ids.to_list()
    if isinstance(ids, list | tuple):
        return [_as_lists(i) if np.ndim(i) else i for i in ids]
    return np.atleast_1d(np.asarray(ids)).tolist()


# No space before these in decoded text.
_JOINED = re.compile(r"^ (?=[.?!,]|n't|'m|'s|'ve|'re)")
_BERT_WORDS = {"type": "BertPreTokenizer"}
