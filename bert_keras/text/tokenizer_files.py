"""The files of a tokenizer: vocab.txt and its rules, tokenizer.json and its config.

`check_tokens` and `read_vocabulary` hold the rules of a vocabulary. `read_folder` turns
the files of Google's, Hugging Face's and KerasHub's releases into the arguments of
`WordPieceTokenizer`; `write_folder` writes Hugging Face's files.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_keras.errors import CheckpointError, ConfigError, received, shown
from bert_keras.files.atomic import replaced_file
from bert_keras.files.json_file import read_json
from bert_keras.files.lfs import check_no_pointer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
REQUIRED_TOKENS = SPECIAL_TOKENS[:4]
_MOST_TOKEN_BYTES = 256  # a limit of tf-text


def check_tokens(vocabulary: Sequence[str]) -> tuple[str, ...]:
    """Return the vocabulary as a tuple; raise ConfigError if it is not valid."""
    tokens = tuple(vocabulary)
    seen: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ConfigError(
                f"`vocabulary` must hold strings; received {shown(token)}"
            )
        if seen.setdefault(token, i) != i:
            raise ConfigError(
                f"`vocabulary` must hold each token once; received {shown(token)} as "
                f"{seen[token]} and {i}"
            )
        try:
            size = len(token.removeprefix("##").encode())
        except UnicodeEncodeError:
            raise ConfigError(
                f"`vocabulary` must be Unicode text; received {shown(token)} as {i}"
            ) from None
        if size > _MOST_TOKEN_BYTES:
            raise ConfigError(
                f"`vocabulary` must have tokens of at most {_MOST_TOKEN_BYTES} bytes; "
                f"received one of {size} as {i}"
            )
    for token in REQUIRED_TOKENS:
        if token not in seen:
            raise ConfigError(
                f"`vocabulary` must hold {token}; received {len(tokens)} tokens "
                "without it"
            )
    return tokens


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Return the tokens of a vocab.txt, one per line; empty last lines are ignored."""
    text = read_text(path).removeprefix("\ufeff")
    # Not `splitlines`: the released Chinese vocabulary has U+2028 as a token.
    tokens = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    lines: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if lines.setdefault(token, line) != line:
            raise CheckpointError(
                f"{os.fspath(path)}:{line}: the token {shown(token)} is already in "
                f"line {lines[token]}"
            )
    return tokens


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file."""
    check_no_pointer(path)
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{os.fspath(path)}: must be UTF-8 text; byte {error.start} is not"
        ) from None


def looks_lower_cased(vocabulary: Sequence[str]) -> bool:
    """Return whether no token except `[CLS]`, `<S>` and the like has a capital letter.

    True for the released uncased and Chinese vocabularies, false for cased ones.
    """
    return not any(
        token != token.lower() and not token.startswith(("[", "<"))
        for token in vocabulary
    )


def vocabulary_hash(vocabulary: Iterable[str]) -> str:
    """Return the SHA-256 of the tokens as a vocab.txt with LF line endings."""
    text = "".join(f"{token}\n" for token in vocabulary)
    return hashlib.sha256(text.encode()).hexdigest()


# Keys of tokenizer_config.json (the first three are Hugging Face's) to our arguments.
_CONFIG_KEYS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "tokenize_chinese_chars",
    "special_tokens_in_text": "special_tokens_in_text",
    "max_word_characters": "max_word_characters",
}
TOKENIZER_JSON = "tokenizer.json"
# Keys of the BertNormalizer in tokenizer.json.
_NORMALIZER_KEYS = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# In TF-Hub style SavedModels: as `convert` writes them, and in the hub's own.
_SAVED_MODEL = "saved_model.pb"
_ASSETS = ("assets.extra", "assets")
# In KerasHub presets: its files, and the keys of its tokenizer.json.
_KERAS_HUB_VOCABULARY = pathlib.Path("assets", "tokenizer", "vocabulary.txt")
_KERAS_HUB_KEYS = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "split_on_cjk": "tokenize_chinese_chars",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "lowercase": (bool,),
    "strip_accents": (bool, type(None)),
    "tokenize_chinese_chars": (bool,),
    "special_tokens_in_text": (str,),
    "max_word_characters": (int,),
}


def read_folder(
    folder: str | os.PathLike[str],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments of a tokenizer and notes on how they were found."""
    folder = _vocabulary_folder(pathlib.Path(folder))
    plain, whole = folder / "vocab.txt", folder / TOKENIZER_JSON
    config = folder / "tokenizer_config.json"
    if (folder / _KERAS_HUB_VOCABULARY).exists():
        return _read_keras_hub(folder)
    if not plain.exists() and not whole.exists():
        raise CheckpointError(
            f"{folder}: holds no vocabulary, neither {plain.name} nor {whole.name}"
        )
    notes: list[str] = []
    settings: dict[str, Any] = {}
    source = whole.name
    if whole.exists():
        settings = _read_tokenizer_json(whole, notes)
    if plain.exists():
        settings["vocabulary"] = read_vocabulary(plain)
    if config.exists():
        found = _select(config, read_json(config), _CONFIG_KEYS)
        settings |= found
        source = config.name if "lowercase" in found else source
    if "lowercase" in settings:
        source = f"read from {source}"
    else:
        settings["lowercase"] = looks_lower_cased(settings["vocabulary"])
        which = "no" if settings["lowercase"] else "a"
        source = f"guessed: {which} token outside brackets holds a capital letter"
    notes.append(f"lowercase={settings['lowercase']}, {source}")
    return settings, tuple(notes)


def _vocabulary_folder(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of the vocabulary: of a SavedModel, one of its assets."""
    for place in (folder, folder / "encoder", folder / "preprocess"):
        for name in _ASSETS if (place / _SAVED_MODEL).exists() else ():
            if (place / name / "vocab.txt").exists():
                return place / name
    return folder


def _read_keras_hub(
    folder: pathlib.Path,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what `read_folder` does, for a KerasHub preset."""
    path = folder / TOKENIZER_JSON
    values = read_json(path).get("config")
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: must hold `config`")
    wanted = {"split": True, "suffix_indicator": "##", "oov_token": "[UNK]"}
    _require(path, values, wanted)
    # KerasHub's defaults.
    settings: dict[str, Any] = {"lowercase": False, "strip_accents": False}
    settings |= _select(path, values, _KERAS_HUB_KEYS)
    parse = values.get("special_tokens_in_strings") is True
    settings["special_tokens_in_text"] = "parse" if parse else "literal"
    settings["vocabulary"] = read_vocabulary(folder / _KERAS_HUB_VOCABULARY)
    note = f"lowercase={settings['lowercase']}, read from {path.name} of KerasHub"
    return settings, (note,)


def write_folder(
    folder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    max_length: int | None = None,
) -> None:
    """Write vocab.txt and tokenizer_config.json; `settings` as of `get_config`.

    Other programs truncate at `max_length` tokens, if given.
    """
    for token in settings["vocabulary"]:
        if "\n" in token or "\r" in token:
            raise ConfigError(f"vocab.txt cannot hold the token {token!r}")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: settings[ours] for key, ours in _CONFIG_KEYS.items()}
    known = set(settings["vocabulary"])
    for name in ("pad", "unk", "cls", "sep", "mask"):
        if (token := f"[{name.upper()}]") in known:
            config[f"{name}_token"] = token
    config["tokenizer_class"] = "BertTokenizer"
    if max_length is not None:
        config["model_max_length"] = max_length
    _replace(folder / "vocab.txt", "".join(f"{t}\n" for t in settings["vocabulary"]))
    _replace(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


def write_tokenizer_json(
    folder: str | os.PathLike[str], settings: Mapping[str, Any], *, max_length: int
) -> None:
    """Write tokenizer.json, from which the package `tokenizers` makes our batches.

    Its tokenizer truncates to `max_length`, specials included, and pads to the longest
    text. `settings` are as of `get_config`.
    """
    ids = {token: number for number, token in enumerate(settings["vocabulary"])}
    parsed = settings["special_tokens_in_text"] == "parse"
    found_in_texts = [t for t in SPECIAL_TOKENS if t in ids] if parsed else []
    no = ("single_word", "lstrip", "rstrip", "normalized")

    values = {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": max_length,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": ids["[PAD]"],
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            {"id": ids[t], "content": t, **dict.fromkeys(no, False), "special": True}
            for t in found_in_texts
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            **{theirs: settings[ours] for theirs, ours in _NORMALIZER_KEYS.items()},
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "BertProcessing",
            "cls": ["[CLS]", ids["[CLS]"]],
            "sep": ["[SEP]", ids["[SEP]"]],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": settings["max_word_characters"],
            "vocab": ids,
        },
    }
    text = json.dumps(values, ensure_ascii=False)
    _replace(pathlib.Path(folder) / TOKENIZER_JSON, f"{text}\n")


def _read_tokenizer_json(path: pathlib.Path, notes: list[str]) -> dict[str, Any]:
    """Return the vocabulary and the normalizer's settings."""
    values = read_json(path)
    model, normalizer = values.get("model"), values.get("normalizer")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise CheckpointError(f"{path}: holds no WordPiece vocabulary")
    _require(path, model, {"type": "WordPiece", "continuing_subword_prefix": "##"})
    settings: dict[str, Any] = {"vocabulary": _ordered(path, model, values, notes)}
    settings |= _select(
        path, model, {"max_input_chars_per_word": "max_word_characters"}
    )
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        settings |= _select(path, normalizer, _NORMALIZER_KEYS)
        if normalizer.get("clean_text") is False:
            notes.append(f"{path.name}: clean_text is false, the text is cleaned still")
    elif normalizer is not None:
        notes.append(f"{path.name}: a normalizer other than BertNormalizer is not read")
    return settings


def _ordered(
    path: pathlib.Path,
    model: dict[str, Any],
    values: dict[str, Any],
    notes: list[str],
) -> list[str]:
    """Return the tokens in the order of their ids, added tokens included."""
    ids = dict(model["vocab"])
    added = values.get("added_tokens") or []
    try:
        more = {row["content"]: row["id"] for row in added if row["content"] not in ids}
        ids |= more
        tokens = sorted(ids, key=ids.__getitem__)
        dense = [ids[token] for token in tokens] == list(range(len(tokens)))
    except (TypeError, KeyError):
        dense = False
    if not dense:
        raise CheckpointError(f"{path}: the ids must be 0, 1, 2 ..., each of one token")
    if more:
        notes.append(
            f"{path.name}: added tokens have ids and are not looked for in texts: "
            + ", ".join(sorted(more))
        )
    return tokens


def _require(
    path: pathlib.Path, values: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise a CheckpointError if a file holds another value than the wanted one."""
    for key, value in wanted.items():
        if values.get(key, value) != value:
            raise CheckpointError(
                f"{path}: `{key}` must be {value!r}; {received(values[key])}"
            )


def _select(
    path: pathlib.Path, values: Mapping[str, Any], keys: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments that a file holds, checked for their types."""
    found = {ours: values[key] for key, ours in keys.items() if key in values}
    for key, ours in keys.items():
        if ours in found and type(found[ours]) not in _TYPES[ours]:
            types = " or ".join(kind.__name__ for kind in _TYPES[ours])
            raise CheckpointError(
                f"{path}: `{key}` must be {types}; received {shown(found[ours])}"
            )
    return found


def _replace(path: pathlib.Path, text: str) -> None:
    with replaced_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))
