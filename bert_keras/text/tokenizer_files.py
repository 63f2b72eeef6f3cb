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
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_keras.errors import CheckpointError, ConfigError, one_line, received, shown
from bert_keras.files.atomic import replaced_file
from bert_keras.files.json_file import read_json
from bert_keras.files.lfs import check_no_pointer
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.splitting import Splitting, flat
from bert_keras.text.token_ids import TOKENIZER_JSON

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
REQUIRED_TOKENS = SPECIAL_TOKENS[:4]
MOST_TOKEN_BYTES = 256  # a limit of tf-text
_NO_TOKEN = "[no token "  # names an id that has none; the space keeps texts from it


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
        if size > MOST_TOKEN_BYTES:
            raise ConfigError(
                f"`vocabulary` must have tokens of at most {MOST_TOKEN_BYTES} bytes; "
                f"received one of {size} as {i}"
            )
    for token in REQUIRED_TOKENS:
        if token not in seen:
            raise ConfigError(
                f"`vocabulary` must hold {token}; received {len(tokens)} tokens "
                "without it"
            )
    return tokens


def read_vocabulary(
    path: str | os.PathLike[str], notes: list[str] | None = None
) -> list[str]:
    """Return the tokens of a vocab.txt, one per line; empty last lines are ignored.

    Of a token in several lines the last counts, as in transformers; each earlier line
    gets a name that no text yields, and `notes` one line about them.
    """
    text = read_text(path).removeprefix("\ufeff")
    # Not `splitlines`: the released Chinese vocabulary has U+2028 as a token.
    tokens = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    last = {token: i for i, token in enumerate(tokens)}
    if len(last) == len(tokens):
        return tokens
    unused = [i for i, token in enumerate(tokens) if last[token] != i]
    first = tokens[unused[0]]
    for i in unused:
        tokens[i] = f"{_NO_TOKEN}{i}]"
    if notes is not None:
        notes.append(
            f"{os.path.basename(path)}: {len(unused)} lines have a token that comes "
            f"again later, where it counts; the first is line {unused[0] + 1}, "
            f"{shown(first)}, again in line {last[first] + 1}"
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
    """Return whether fewer than 1% of the tokens have a capital letter.

    Tokens such as `[CLS]` and `<S>` do not count. True for the released uncased and
    Chinese vocabularies, also with a few own words such as `URL`; a cased vocabulary
    has capitals in about a third.
    """
    words = [token for token in vocabulary if not token.startswith(("[", "<"))]
    capital = sum(token != token.lower() for token in words)
    return 100 * capital < len(words) or not capital


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
# Keys of the BertNormalizer in tokenizer.json.
_NORMALIZER_KEYS = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
# In TF-Hub style SavedModels: as version 1.0 wrote them, and in the hub's own.
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
    """Return the arguments of a tokenizer and notes on how they were found.

    Where files disagree, it is as in transformers 5: the settings of
    tokenizer_config.json come first, and its `added_tokens_decoder` before other added
    tokens; a `tokenizer_class` of BERT's kind reads `strip_accents` and
    `tokenize_chinese_chars` there alone.

    Raises:
        CheckpointError: the folder is missing, a file is broken, or the tokenizer is
            not BERT's WordPiece.
    """
    folder = _vocabulary_folder(pathlib.Path(folder))
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    if (folder / _KERAS_HUB_VOCABULARY).exists():
        return _read_keras_hub(folder)
    plain, whole = folder / "vocab.txt", folder / TOKENIZER_JSON
    values = {name: _json_of(folder / name) for name in _SETTINGS_FILES}
    config = values["tokenizer_config.json"]
    _check_kind(folder, config, values["config.json"])
    if not plain.exists() and not whole.exists():
        raise CheckpointError(
            f"{folder}: contains no vocabulary, neither {plain.name} nor {whole.name}"
        )
    notes: list[str] = []
    settings: dict[str, Any] = {}
    added: list[dict[str, Any]] = []
    if whole.exists():
        settings, added = read_tokenizer_json(whole)
        is_whole = _class_of(config) in _WHOLE_CLASSES
        if config and not is_whole:
            _drop_settings(settings, config, notes)
        elif is_whole and _json_of(whole).get("post_processor") is None:
            notes.append(
                f"{whole.name} has no post_processor: [CLS] and [SEP] are added as in "
                "BERT, where transformers adds none"
            )
        if "normalizer" in settings and not is_whole:
            notes.append(
                f"{whole.name}: its normalizer and pre_tokenizer are used; with this "
                "`tokenizer_class` transformers 5 takes the ones for BERT"
            )
    if plain.exists():
        tokens = read_vocabulary(plain, notes)
        _check_pieces(plain, tokens)
        whole_tokens = settings.setdefault("vocabulary", tokens)
        if difference := _difference(tokens, whole_tokens, added):
            notes.append(f"{plain.name} {difference}, which counts, as in transformers")
    place = folder / "tokenizer_config.json"
    keys = _CONFIG_KEYS
    if "normalizer" in settings:
        keys = {k: v for k, v in keys.items() if v not in _NORMALIZER_KEYS.values()}
    found = _select(place, config, keys)
    for name, value in found.items():
        if name in settings and settings[name] != value:
            notes.append(
                f"{name}={value}, read from {place.name}; {whole.name} has "
                f"{settings[name]}"
            )
    settings |= found
    guessed = settings.get("lowercase") is None
    if guessed:
        settings["lowercase"] = looks_lower_cased(settings["vocabulary"])
    settings |= _added_tokens(folder, values, settings["vocabulary"], added, notes)
    notes += _unused_settings(config, _json_of(whole) if whole.exists() else {})
    if guessed:
        which = "under 1%" if settings["lowercase"] else "1% or more"
        notes.append(
            f"lowercase={settings['lowercase']}, guessed: {which} of the tokens "
            "outside brackets hold a capital letter"
        )
    return settings, tuple(notes)


_SETTINGS_FILES = (
    "tokenizer_config.json",
    "config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# The classes of Hugging Face's tokenizers with BERT's words and pieces, without `Fast`.
_BERT_CLASSES = {
    f"{name}Tokenizer"
    for name in (
        "Bert BasicBert ConvBert DPRContextEncoder DPRQuestionEncoder DPRReader "
        "DistilBert Electra Funnel LayoutLM Lxmert MobileBert Realm RetriBert "
        "SqueezeBert"
    ).split()
}
# Classes that read tokenizer.json and nothing else.
_WHOLE_CLASSES = {"PreTrainedTokenizer", "TokenizersBackend"}
_SENTENCE_PIECE = (
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "spm.model",
)


def _json_of(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _class_of(values: Mapping[str, Any]) -> str | None:
    name = values.get("tokenizer_class")
    return name.removesuffix("Fast") if isinstance(name, str) else None


def _check_kind(
    folder: pathlib.Path, config: Mapping[str, Any], model: Mapping[str, Any]
) -> None:
    """Raise a CheckpointError if files name a tokenizer that is not BERT's."""
    name = _class_of(config) or _class_of(model)
    if name == "BertJapaneseTokenizer" or "word_tokenizer_type" in config:
        words = config.get("word_tokenizer_type", "basic")
        pieces = config.get("subword_tokenizer_type", "wordpiece")
        raise CheckpointError(
            f"{folder}: the tokenizer BertJapaneseTokenizer ({shown(words)} words, "
            f"{shown(pieces)} pieces) {_OTHER_WORDS}"
        )
    if name is not None and name not in _BERT_CLASSES | _WHOLE_CLASSES:
        raise CheckpointError(f"{folder}: the tokenizer {shown(name)} {_OTHER_WORDS}")
    models = [each for each in _SENTENCE_PIECE if (folder / each).exists()]
    if models and name not in _BERT_CLASSES:
        raise CheckpointError(
            f"{folder}: the tokenizer of {models[0]}, SentencePiece, {_OTHER_WORDS}"
        )


_OTHER_WORDS = (
    "does not split texts as BERT's WordPiece does and cannot be used; pass ids that "
    "it made, or take a model with a WordPiece tokenizer"
)


def _check_pieces(path: pathlib.Path, tokens: Sequence[str]) -> None:
    """Raise a CheckpointError if the vocabulary holds pieces of SentencePiece."""
    begun = [token for token in tokens if len(token) > 1 and token[0] == "\u2581"]
    if len(begun) > sum(token.startswith("##") for token in tokens):
        raise CheckpointError(
            f"{path}: the tokenizer SentencePiece, which has the piece "
            f"{shown(begun[0])}, {_OTHER_WORDS}"
        )


def _difference(
    plain: Sequence[str], whole: Sequence[str], added: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return how vocab.txt differs from tokenizer.json, which may name more tokens."""
    later = {each["id"]: each["content"] for each in added}
    for i, token in enumerate(plain):
        other = whole[i] if i < len(whole) else later.get(i)
        if token != other and not (other or "").startswith(_NO_TOKEN):
            return (
                f"has {shown(token)} as {i}, where {TOKENIZER_JSON} has {shown(other)}"
            )
    if len(plain) < len(whole):
        return f"has {len(plain):,} tokens, where {TOKENIZER_JSON} has {len(whole):,}"
    return None


def _drop_settings(
    settings: dict[str, Any], config: Mapping[str, Any], notes: list[str]
) -> None:
    """Remove what transformers reads from tokenizer_config.json alone."""
    for key in ("strip_accents", "tokenize_chinese_chars"):
        default = None if key == "strip_accents" else True
        if settings.get(key, default) != default and key not in config:
            notes.append(
                f"{key}={settings[key]} of {TOKENIZER_JSON} is not used, as in "
                "transformers, since tokenizer_config.json lacks it"
            )
        if key in settings and key not in config:
            settings[key] = default


# Settings that are not used: the value that changes nothing, and what is done instead.
_UNUSED = {
    "truncation_side": ("right", "a text that is too long loses its end"),
    "padding_side": ("right", "a text begins at the first position"),
    "do_basic_tokenize": (True, "texts are normalized and split into words first"),
}


def _unused_settings(config: Mapping[str, Any], whole: Mapping[str, Any]) -> list[str]:
    """Return notes on settings of transformers that would give other ids.

    Args:
        config: tokenizer_config.json.
        whole: tokenizer.json, whose directions count where `config` has none.
    """
    given: dict[str, Any] = {}
    for name, key in (("truncation_side", "truncation"), ("padding_side", "padding")):
        entry = whole.get(key)
        direction = entry.get("direction") if isinstance(entry, dict) else None
        given[name] = str(direction).lower() if direction else None
    given |= {name: config[name] for name in _UNUSED if name in config}
    return [
        f"the tokenizer's {name} {shown(given[name])} is not used: {instead}"
        for name, (neutral, instead) in _UNUSED.items()
        if given.get(name) not in (None, neutral)
    ]


def _added_tokens(
    folder: pathlib.Path,
    values: Mapping[str, Mapping[str, Any]],
    vocabulary: Sequence[str],
    whole: Sequence[Mapping[str, Any]],
    notes: list[str],
) -> dict[str, Any]:
    """Return the argument `added_tokens`, if any file names some."""
    config = values["tokenizer_config.json"]
    names = values["special_tokens_map.json"]
    special = _special_names(folder, config, names)
    try:
        found = _listed_tokens(config, values["added_tokens.json"], whole, special)
        ids = {token: i for i, token in enumerate(vocabulary)}
        # A `never_split` word without an id stays a word.
        found = [(i, t) for i, t in found if i is not None or t.content in ids]
        numbers = {t.content: i or 0 for i, t in found if t.content not in ids}
        for token in special:
            if token.content in {t.content for _, t in found}:
                continue
            if token.content in ids:
                found.append((ids[token.content], token))
            else:
                notes.append(f"{shown(token.content)} is special and has no id")
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{folder}: the added tokens must be written as by transformers: "
            f"{one_line(error)}"
        ) from None
    for place, content in enumerate(sorted(numbers, key=numbers.__getitem__)):
        ids[content] = len(vocabulary) + place
    for i, token in found:
        if i is not None and ids.get(token.content) != i:
            raise CheckpointError(
                f"{folder}: the added token {shown(token.content)} must have the id "
                f"{ids.get(token.content)}, in the vocabulary or next after it; has {i}"
            )
    tokens = [t for _, t in found if t.content not in SPECIAL_TOKENS or not t.is_plain]
    return {"added_tokens": [t.to_dict() for t in tokens]} if tokens else {}


def _listed_tokens(
    config: Mapping[str, Any],
    numbered: Mapping[str, Any],
    whole: Sequence[Mapping[str, Any]],
    special: Sequence[AddedToken],
) -> list[tuple[int | None, AddedToken]]:
    """Return the tokens with their ids, in order; the first file to name one counts."""
    found: dict[str, tuple[int | None, AddedToken]] = {}

    def add(number: int | None, token: AddedToken) -> None:
        found.setdefault(token.content, (number, token))

    for key, value in (config.get("added_tokens_decoder") or {}).items():
        add(int(key), AddedToken.of(value))
    for value in whole:
        add(value["id"], AddedToken.of(value))
    names = {token.content for token in special}
    for content, number in numbered.items():
        add(number, AddedToken(content, special=content in names))
    for content in config.get("never_split") or ():
        add(None, AddedToken(content, special=content in names, normalized=False))
    ordered = sorted(found.values(), key=lambda each: (each[0] is None, each[0] or 0))
    return ordered


def _special_names(
    folder: pathlib.Path, config: Mapping[str, Any], names: Mapping[str, Any]
) -> list[AddedToken]:
    """Return the further special tokens; raise if BERT's five have other names."""
    found = []
    for source in (config, names):
        for key, value in source.items():
            content = value.get("content") if isinstance(value, dict) else value
            standard = f"[{key[:-6].upper()}]"
            if key.endswith("_token") and standard in SPECIAL_TOKENS:
                if content not in (standard, None):
                    raise CheckpointError(
                        f"{folder}: `{key}` must be {standard}; {received(content)}"
                    )
            elif key in ("additional_special_tokens", "extra_special_tokens"):
                listed = value.values() if isinstance(value, dict) else value or ()
                found += [_special(each) for each in listed]
            elif key in ("bos_token", "eos_token") and content is not None:
                if content not in SPECIAL_TOKENS:
                    found.append(_special(value))
    return list({token.content: token for token in found}.values())


def _special(value: Any) -> AddedToken:
    values = value if isinstance(value, dict) else {"content": value}
    return AddedToken.of({**values, "special": True})


def _vocabulary_folder(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of the vocabulary: of a SavedModel, one of its assets."""
    for place in (folder, folder / "encoder", folder / "preprocess"):
        for name in _ASSETS if (place / _SAVED_MODEL).exists() else ():
            if (place / name / "vocab.txt").exists():
                return place / name
    return folder


def _read_keras_hub(folder: pathlib.Path) -> tuple[dict[str, Any], tuple[str, ...]]:
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
    notes: list[str] = []
    settings["vocabulary"] = read_vocabulary(folder / _KERAS_HUB_VOCABULARY, notes)
    notes.append(
        f"lowercase={settings['lowercase']}, read from {path.name} of KerasHub"
    )
    return settings, tuple(notes)


def write_folder(
    folder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    max_length: int | None = None,
    has_segments: bool = True,
) -> None:
    """Write vocab.txt and tokenizer_config.json; `settings` as from `get_config`.

    Other programs truncate at `max_length` tokens, if given, and make segment ids only
    for a model that has segments. Other files of a tokenizer
    that the folder holds would count beside the new ones: they are removed, with a
    warning.

    Raises:
        CheckpointError: the folder holds a SavedModel or a KerasHub preset, whose own
            vocabulary is read first.
    """
    tokens = list(settings["vocabulary"])
    for token in tokens:
        if "\n" in token or "\r" in token:
            raise ConfigError(f"vocab.txt cannot hold the token {token!r}")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    is_whole = "normalizer" in settings or "pre_tokenizer" in settings
    first = _vocabulary_folder(folder)
    if first != folder or (folder / _KERAS_HUB_VOCABULARY).exists():
        raise CheckpointError(
            f"{folder}: must not hold a SavedModel or a KerasHub preset, whose own "
            "vocabulary would be read instead of this one"
        )
    config = {key: settings[ours] for key, ours in _CONFIG_KEYS.items()}
    known = SPECIAL_TOKENS if "[MASK]" in tokens else REQUIRED_TOKENS
    config |= {f"{token[1:-1].lower()}_token": token for token in known}
    config["tokenizer_class"] = "BertTokenizer"
    if max_length is not None:
        config["model_max_length"] = max_length
    if not has_segments:
        config["model_input_names"] = ["input_ids", "attention_mask"]
    added = [AddedToken.of(each) for each in settings.get("added_tokens", ())]
    ids = _with_added(tokens, added)
    if added:
        config["added_tokens_decoder"] = {
            str(ids[token.content]): token.to_dict() for token in added
        }
        special = [token.content for token in added if token.special]
        config["additional_special_tokens"] = [
            content for content in special if content not in SPECIAL_TOKENS
        ]
    _replace(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens))
    if is_whole:
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_tokenizer_json(folder, settings, max_length=None)
    _replace(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
    _remove_others(folder, () if is_whole else (TOKENIZER_JSON,))


def _remove_others(folder: pathlib.Path, others: Sequence[str]) -> None:
    """Remove `others` and the other files of added tokens that `read_folder` reads."""
    others = (*others, "added_tokens.json", "special_tokens_map.json")
    found = [name for name in others if (folder / name).exists()]
    for name in found:
        (folder / name).unlink()
    if found:
        warnings.warn(
            f"{folder}: removed {', '.join(found)} of another tokenizer, which would "
            "be read instead of this one",
            stacklevel=4,
        )


def _with_added(
    vocabulary: Sequence[str], added: Sequence[AddedToken]
) -> dict[str, int]:
    """Return the ids of the vocabulary and the added tokens."""
    ids = {token: i for i, token in enumerate(vocabulary)}
    for token in added:
        ids.setdefault(token.content, len(ids))
    return ids


def write_tokenizer_json(
    folder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    max_length: int | None,
    read_tokens: Sequence[str] = (),
) -> None:
    """Write tokenizer.json, from which the package `tokenizers` makes our batches.

    Its tokenizer truncates to `max_length`, specials included, and pads to the longest
    text. `settings` are as from `get_config`; `read_tokens` are special tokens that it
    reads in texts even if the settings do not.
    """
    added = [AddedToken.of(each) for each in settings.get("added_tokens", ())]
    ids = _with_added(settings["vocabulary"], added)
    names = {token.content for token in added}
    if settings["special_tokens_in_text"] == "parse":
        more = [t for t in SPECIAL_TOKENS if t in ids and t not in names]
        added += [AddedToken(token, special=True) for token in more]
    else:
        added = [token for token in added if token.content not in SPECIAL_TOKENS]
        added += [AddedToken(token, special=True) for token in read_tokens]
    added.sort(key=lambda token: ids[token.content])
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
            {"id": ids[token.content], **token.to_dict()} for token in added
        ],
        "normalizer": settings.get("normalizer")
        or {
            "type": "BertNormalizer",
            "clean_text": True,
            **{theirs: settings[ours] for theirs, ours in _NORMALIZER_KEYS.items()},
        },
        "pre_tokenizer": settings.get("pre_tokenizer") or {"type": "BertPreTokenizer"},
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
            "vocab": {t: i for i, t in enumerate(settings["vocabulary"])},
        },
    }
    if max_length is None:
        values |= {"truncation": None, "padding": None}
    text = json.dumps(values, ensure_ascii=False)
    _replace(pathlib.Path(folder) / TOKENIZER_JSON, f"{text}\n")


def read_tokenizer_json(
    path: pathlib.Path,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the arguments that tokenizer.json holds, and its added tokens as they are.

    Raises:
        CheckpointError: it is not WordPiece, or splits texts in another way.
    """
    values = read_json(path)
    model = values.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise CheckpointError(f"{path}: contains no WordPiece vocabulary")
    wanted = {"type": "WordPiece", "continuing_subword_prefix": "##"}
    _require(path, model, wanted | {"unk_token": "[UNK]"})
    if not isinstance(model["vocab"], dict):
        raise CheckpointError(f"{path}: contains no WordPiece vocabulary")
    added = values.get("added_tokens") or []
    settings: dict[str, Any] = {"vocabulary": _ordered(path, model["vocab"], added)}
    settings |= _select(
        path, model, {"max_input_chars_per_word": "max_word_characters"}
    )
    settings |= _splitting(path, values)
    _check_template(path, values.get("post_processor"))
    return settings, added


def _ordered(
    path: pathlib.Path, vocab: Mapping[str, Any], added: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the tokens in the order of their ids, added tokens not included.

    Added tokens whose ids are among the vocabulary's ids count as part of it.
    """
    ids = dict(vocab)
    try:
        more = {row["content"]: row["id"] for row in added}
        for content, number in more.items():
            if number < len(vocab):
                ids.setdefault(content, number)
        # Ids without a token come from duplicate lines in a vocab.txt.
        most = min(max(ids.values(), default=0) + 1, 2 * len(ids))
        unused = set(range(most)) - set(ids.values())
        if 100 * len(unused) <= len(ids):
            ids |= {f"{_NO_TOKEN}{i}]": i for i in unused}
        tokens = sorted(ids, key=ids.__getitem__)
        dense = [ids[token] for token in tokens] == list(range(len(tokens)))
    except (TypeError, KeyError):
        dense = False
    if not dense:
        raise CheckpointError(f"{path}: the ids must be 0, 1, 2 ..., each of one token")
    return tokens


def _splitting(path: pathlib.Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the normalizer and pre-tokenizer of a tokenizer.json."""
    if "normalizer" not in values and "pre_tokenizer" not in values:
        return {}
    normalizer = values.get("normalizer") or {"type": "Sequence"}
    words = values.get("pre_tokenizer")
    try:
        found = Splitting.of(normalizer, words)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {one_line(error)}") from None
    steps = flat(normalizer)
    is_berts = len(steps) == 1 and steps[0].get("type") == "BertNormalizer"
    if is_berts and "clean" in found.names and found.breaks == {"punctuation"}:
        return _select(path, steps[0], _NORMALIZER_KEYS)
    return {
        "normalizer": normalizer,
        "pre_tokenizer": words,
        "lowercase": "lower" in found.names,
    }


def _check_template(path: pathlib.Path, value: Any) -> None:
    """Raise if the file adds other special tokens than BERT's."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: `post_processor` must be an object")
    if value.get("type") == "Sequence" and value.get("processors"):
        for each in value["processors"]:
            _check_template(path, each)
        return
    parts: Any
    if value.get("type") in ("BertProcessing", "RobertaProcessing"):
        parts = [value.get("cls", [None])[0], value.get("sep", [None])[0]]
        is_berts = value["type"] == "BertProcessing" and parts == ["[CLS]", "[SEP]"]
    else:
        parts = [_template(value.get("single")), _template(value.get("pair"))]
        is_berts = value.get("type") == "TemplateProcessing" and parts[0] == [
            ("[CLS]", 0),
            ("A", 0),
            ("[SEP]", 0),
        ]
        is_berts &= parts[1] in (
            [*parts[0], ("B", 1), ("[SEP]", 1)],
            [("A", 0), ("B", 1)],  # never set: the library's default
        )
    if not is_berts:
        raise CheckpointError(
            f"{path}: `post_processor` must make [CLS] A [SEP] and [CLS] A [SEP] B "
            f"[SEP]; received {shown(value.get('type'))} with {shown(parts)}"
        )


def _template(value: Any) -> list[tuple[Any, Any]]:
    parts = [part for each in value or () for part in each.values()]
    return [(part.get("id"), part.get("type_id")) for part in parts]


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
