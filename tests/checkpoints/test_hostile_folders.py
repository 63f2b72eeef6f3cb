"""Files of a model folder with values that nobody writes: one line, little memory."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import refused, thorough

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.cli.info import describe
from bert_keras.errors import BertKerasError
from bert_keras.files.json_file import JSONError, parse_json, read_json
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.text.tokenizer import WordPieceTokenizer
from checkpoints.test_tf_hub import write_pair

_HUGE = 10**9
_ODD: list[Any] = [None, True, "x", "", [], [1], {}, {"a": 1}, -1, 0, _HUGE, 1e300]
_LONG = "@LONG@"  # a placeholder for text that `json.dumps` does not write
_NOT_FINITE = "@NAN@"
_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 500


def opened(folder: Path) -> None:
    """Read whatever a folder holds, weights and task as well."""
    describe(folder)
    WordPieceTokenizer.from_folder(folder)
    load_model(folder)


def either_way(action: Callable[[], object]) -> None:
    """Check that an action works or fails with one line, with little memory."""
    tracemalloc.start()
    try:
        action()
    except BertKerasError as error:
        assert "\n" not in str(error), str(error)
        assert len(str(error)) <= _MOST_CHARACTERS, str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < _MOST_BYTES, f"{peak:,} bytes"


def mutations(values: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place of each value in a JSON value, and it with another there."""
    places: list[tuple[Any, ...]] = []

    def walk(value: Any, place: tuple[Any, ...]) -> None:
        items: Any = ()
        if isinstance(value, dict):
            items = list(value.items())[:40]
        elif isinstance(value, list):
            items = list(enumerate(value))[:3]
        for key, below in items:
            places.append((*place, key))
            walk(below, (*place, key))

    walk(values, ())
    for number, place in enumerate(places):
        # A third of the odd values each, in turn: all of them over the keys of a file.
        odd = [*_ODD, _LONG, _NOT_FINITE][number % 3 :: 3]
        for value in odd:
            changed = copy.deepcopy(values)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            yield f"{place}={value!r}"[:80], changed
        changed = copy.deepcopy(values)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        del inner[place[-1]]
        yield f"{place} missing", changed


def written(values: Any) -> str:
    text = json.dumps(values)
    long = "1" * 5_000
    return text.replace(f'"{_LONG}"', long).replace(f'"{_NOT_FINITE}"', "NaN")


@pytest.fixture(scope="module")
def folder_of(
    spam_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that returns a tiny folder of a format, written once."""
    place = tmp_path_factory.mktemp("formats")

    @functools.cache
    def folder_of(kind: str) -> Path:
        source = spam_folder
        if kind == "huggingface":
            return source
        if kind == "tf-hub":
            return write_pair(place / kind)
        if kind == "model-garden":  # has no classifier: it gets the encoder alone
            source = Path(shutil.copytree(spam_folder, place / "encoder"))
            known = read_checkpoint(spam_folder)
            arrays = {n: a for n, a in known.arrays.items() if n.startswith("bert/")}
            config = {**known.config.to_dict(), "architectures": ["BertModel"]}
            write_huggingface(source, arrays, config)
        convert(source, place / kind, to=kind)
        return place / kind

    return folder_of


FILES = [
    ("huggingface", "config.json"),
    ("huggingface", "tokenizer_config.json"),
    ("google", "bert_config.json"),
    ("keras-hub", "config.json"),
    ("keras-hub", "task.json"),
    ("keras-hub", "preprocessor.json"),
    ("keras-hub", "metadata.json"),
    ("keras-hub", "tokenizer.json"),
    ("keras-hub", "bert_keras.json"),
    ("model-garden", "params.yaml"),
    ("tf-hub", "encoder/assets.extra/config.json"),
    ("tf-hub", "encoder/assets.extra/tokenizer_config.json"),
]


@pytest.mark.parametrize(
    ("kind", "file", "stride"),
    [
        pytest.param(*FILES[0], 29, marks=pytest.mark.slow),
        *(thorough(*each, 1) for each in FILES),
    ],
)
def test_every_key_may_be_odd(
    folder_of: Callable[[str], Path], tmp_path: Path, kind: str, file: str, stride: int
) -> None:
    """Every change of every file is thorough; `make test` has some of one file."""
    folder = tmp_path / "folder"
    shutil.copytree(folder_of(kind), folder)
    path = folder / file
    if not path.is_file():
        pytest.skip(f"{kind} contains no {file}")
    is_yaml = path.suffix == ".yaml"
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text) if is_yaml else json.loads(text)
    if file == "params.yaml":
        (folder / "bert_config.json").unlink(missing_ok=True)
    count = 0
    for place, changed in itertools.islice(mutations(values), 0, None, stride):
        path.write_text(written(changed), encoding="utf-8")
        count += 1
        try:
            either_way(lambda: describe(folder))
            if "tokenizer" in file:  # another file cannot change it
                either_way(lambda: WordPieceTokenizer.from_folder(folder))
            if kind == "huggingface" or count % 7 == 0:
                either_way(lambda: load_model(folder))
        except Exception as error:
            raise AssertionError(f"{file}: {place}") from error
    assert count > 5


def changed_config(source: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(source, target)
    values = json.loads((target / "config.json").read_text(encoding="utf-8"))
    for name, value in changes.items():
        inner, _, key = name.rpartition("__")
        place = values
        for step in filter(None, inner.split("__")):
            place = place[step]
        if value is None:
            del place[key]
        else:
            place[key] = value
    (target / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return target


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"bert_keras": None, "id2label": None, "num_labels": _HUGE},
            ("`num_labels` must be", "3; received 1000000000"),
        ),
        (
            {"bert_keras__preprocessing__length_multiple": _HUGE},
            ("`length_multiple` must be at most", "40; received 1,000,000,000"),
        ),
        (
            {"bert_keras__preprocessing__max_length": _HUGE},
            ("`max_length` must be at most", "40; received 1,000,000,000"),
        ),
        ({"bert_keras__settings__classes": [0, 1, 2]}, ("`classes` must be",)),
        ({"bert_keras__settings__classes": [None, "a"]}, ("`classes` must be",)),
        (
            {
                "bert_keras__settings__classes": [str(i) for i in range(10_000)],
                "id2label": None,
            },
            ("`classes` must fit", "received 10,000"),
        ),
        ({"num_hidden_layers": 10_000_000}, ("`num_hidden_layers`",)),
        ({"max_position_embeddings": 10_000_000}, ("position_embeddings",)),
        ({"intermediate_size": 10_000_000}, ("intermediate",)),
    ],
)
def test_numbers_are_bounded_by_the_weights(
    spam_folder: Path, tmp_path: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    folder = changed_config(spam_folder, tmp_path / "folder", **changes)
    refused(lambda: load_model(folder), *parts)
    either_way(lambda: load_model(folder))
    either_way(lambda: describe(folder))


@pytest.mark.parametrize("key", ["settings", "preprocessing"])
def test_info_of_an_entry_that_is_not_an_object(
    spam_folder: Path, tmp_path: Path, key: str
) -> None:
    changes = {f"bert_keras__{key}": ["x"]}
    folder = changed_config(spam_folder, tmp_path / "folder", **changes)
    refused(lambda: describe(folder), f"`{key}` of `bert_keras` must be an object")


@pytest.mark.parametrize("most", [True, "100", 10**12, 0, -1, 1.5, [100]])
def test_longest_words_of_a_tokenizer(
    spam_folder: Path, tmp_path: Path, most: Any
) -> None:
    vocabulary = WordPieceTokenizer.from_folder(spam_folder).vocabulary
    model = {
        "type": "WordPiece",
        "vocab": {token: i for i, token in enumerate(vocabulary)},
        "max_input_chars_per_word": most,
    }
    text = json.dumps({"model": model, "normalizer": None})
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    message = refused(lambda: WordPieceTokenizer.from_folder(tmp_path))
    assert len(message) < _MOST_CHARACTERS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1" * 5_000, "at most 40 digits; has 5,000"),
        ("[" * 40 + "]" * 40, "more than 32 deep"),
        ("[" * 100_000, "more than 32 deep"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ("1e999", "out of range: 1e999"),
        ('{"a": 1, "a": 2}', "the key 'a' has two values"),
        (r'["\ud800"]', "half of a surrogate pair"),
        ("{", "Expecting property name"),
    ],
)
def test_rejected_json(text: str, reason: str) -> None:
    with pytest.raises(JSONError, match=reason) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


def test_accepted_json(tmp_path: Path) -> None:
    text = '{"a": [1, 1.5, null, true, "\\ud83d\\ude00"], "b": %d, "b": %d}'
    value = parse_json(text % (10**30, 10**30))
    assert value == {"a": [1, 1.5, None, True, "😀"], "b": 10**30}
    assert math.isfinite(value["b"])
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json", kind=list) == [1]
    refused(lambda: read_json(tmp_path / "a.json"), "must hold a JSON object; received")
    refused(lambda: read_json(tmp_path), "no such file")
