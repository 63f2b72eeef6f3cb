"""The values of a request, checked against a signature and the limits: `Decoder`.

JSON is decoded to a list of values for each input: bytes, lists of bytes, or lists of
integers. The answers are encoded as JSON.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.items import is_blank
from bert_keras.errors import shown
from bert_keras.files.json_file import refuse_constant
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.errors import RequestError
from bert_keras.serving.signatures import Answers, Parts, Signature, TensorInfo
from bert_keras.settings import INT32
from bert_keras.tasks.answer_rows import plain_values

Decode = Callable[[Signature], Parts]


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object in the body of a request.

    Raises:
        RequestError: it is not UTF-8, not JSON, or not an object.
    """
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"JSON Parse error: invalid UTF-8 at offset {error.start}"
        ) from None
    except RecursionError:
        raise RequestError("JSON Parse error: nested too deeply") from None
    except ValueError as error:
        raise RequestError(f"JSON Parse error: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise RequestError(f"the body must be a JSON object; received {shown(found)}")
    return found


class Decoder:
    """Converts the values of requests to the inputs of a signature.

    Args:
        config: the limits.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._max_texts = config.max_texts
        self._max_characters = config.max_characters

    def rows(self, signature: Signature, instances: Any) -> Parts:
        """Return the inputs of a signature from TF Serving's row form, `instances`."""
        if not isinstance(instances, list):
            raise RequestError(
                f"`instances` must be a list; received {shown(instances)}"
            )
        self._check_count("instances", len(instances))
        names = [each.name for each in signature.inputs]
        named = [
            _named(f"instances[{place}]", row, signature)
            for place, row in enumerate(instances)
        ]
        columns = {name: [row[name] for row in named] for name in names}
        return self.columns(signature, columns, "instances")

    def columns(self, signature: Signature, inputs: Any, word: str = "inputs") -> Parts:
        """Return the inputs of a signature from TF Serving's column form, `inputs`."""
        given = _named(word, inputs, signature)
        for name, values in given.items():
            if not isinstance(values, list):
                raise RequestError(
                    f"`{name}` must be a list of values, one per row; received "
                    f"{shown(values)}"
                )
        counts = {len(values) for values in given.values()}
        if len(counts) > 1:
            raise RequestError(
                "the inputs must have the same number of rows; received "
                f"{', '.join(map(str, sorted(counts)))}"
            )
        self._check_count(word, counts.pop())
        return [
            self._values(each, given[each.name], signature) for each in signature.inputs
        ]

    def texts(self, name: str, values: Sequence[str]) -> list[bytes]:
        """Return texts as bytes, within the limits; none of them may be empty."""
        self._check_count(name, len(values))
        return _none_empty(name, [self._text(name, value) for value in values])

    def _check_count(self, word: str, count: int) -> None:
        if not 1 <= count <= self._max_texts:
            raise RequestError(
                f"`{word}` must hold 1 to {self._max_texts} rows; received {count}",
                status=400 if not count else 413,
            )

    def _values(
        self, info: TensorInfo, values: list[Any], signature: Signature
    ) -> list[Any]:
        """Return the values of an input, one per row, all of one shape."""
        is_text, longest = info.dtype == "string", signature.longest_row
        of_one = self._text if is_text else _integer
        rank = len(info.shape) - 1
        if not rank:
            row_values: list[Any] = [of_one(info.name, value) for value in values]
            if is_text and info.name not in signature.may_be_empty:
                return _none_empty(info.name, row_values)
            return row_values
        shapes = set()
        for value in values:
            shape = _shape(info.name, value, rank)
            shapes.add(shape)
            if math.prod(shape) > (longest or self._max_texts):
                raise RequestError(
                    f"`{info.name}` must have at most {longest or self._max_texts} "
                    f"values in a row; received {math.prod(shape)}",
                    status=413,
                )
        if len(shapes) > 1:
            raise RequestError(
                f"`{info.name}` must have rows of one length; received "
                f"{shown(sorted(shapes))}"
            )
        if not all(shapes.pop()):
            raise RequestError(f"`{info.name}` must not hold empty lists")

        def nested(value: Any, depth: int) -> Any:
            if not depth:
                return of_one(info.name, value)
            return [nested(each, depth - 1) for each in value]

        found = [nested(value, rank) for value in values]
        if is_text:  # in a list, empty texts fill up the row
            blank = [all(map(_is_blank, row)) for row in found]
            if any(blank):
                raise RequestError(
                    f"`{info.name}` must hold a text that is not empty in each row; "
                    f"received {shown(values[blank.index(True)])}"
                )
        return found

    def _text(self, name: str, value: Any) -> bytes:
        """Return a text as bytes; it is a string, bytes, or base64 in an object."""
        if isinstance(value, dict) and set(value) == {"b64"}:
            try:
                value = base64.b64decode(value["b64"], validate=True)
            except (binascii.Error, ValueError, TypeError):
                raise RequestError(
                    f"`{name}`: `b64` must be base64; received {shown(value['b64'])}"
                ) from None
        if not isinstance(value, str | bytes):
            raise RequestError(
                f"`{name}` must hold strings; received {shown(value)} "
                f"({type(value).__name__})"
            )
        try:
            if isinstance(value, str):
                text, octets = value, value.encode("utf-8")
            else:  # may hold lone surrogates, which `Client` sends so
                text, octets = value.decode("utf-8", "surrogatepass"), value
        except UnicodeEncodeError:
            raise RequestError(f"`{name}` must not hold a lone surrogate") from None
        except UnicodeDecodeError as error:
            raise RequestError(
                f"`{name}` must be UTF-8; byte 0x{value[error.start]:02x} is not"
            ) from None
        if len(text) > self._max_characters:
            raise RequestError(
                f"`{name}` must have at most {self._max_characters} characters; "
                f"received {len(text)}",
                status=413,
            )
        return octets


def _none_empty(name: str, texts: list[bytes]) -> list[bytes]:
    """Return texts; raise a RequestError if one is empty."""
    for at, text in enumerate(texts):
        if _is_blank(text):
            raise RequestError(
                f"`{name}` must not be empty; received "
                f"{shown(text.decode())} at index {at}"
            )
    return texts


def _is_blank(text: bytes) -> bool:
    return is_blank(text.decode("utf-8", "surrogatepass"))


def _named(where: str, given: Any, signature: Signature) -> Mapping[str, Any]:
    """Return values by the names of the inputs; a single input needs no name."""
    names = [each.name for each in signature.inputs]
    if not isinstance(given, dict) or set(given) == {"b64"}:  # base64 is a string
        if len(names) > 1:
            raise RequestError(
                f"`{where}` must be an object with {', '.join(names)}; received "
                f"{shown(given)}"
            )
        return {names[0]: given}
    if set(given) != set(names):
        raise RequestError(
            f"`{where}` must have the inputs {', '.join(names)}; received "
            f"{shown(', '.join(sorted(map(str, given))))}"
            f"{signature.elsewhere(map(str, given))}"
        )
    return given


def _shape(name: str, value: Any, rank: int) -> tuple[int, ...]:
    """Return the shape of rectangular nested lists.

    Raises:
        RequestError: they are not rectangular, or not nested `rank` deep.
    """
    if not isinstance(value, list):
        raise RequestError(
            f"`{name}` must hold lists nested {rank + 1} deep; received {shown(value)}"
        )
    if rank == 1:
        if any(isinstance(each, list) for each in value):
            raise RequestError(f"`{name}` must hold lists nested 2 deep")
        return (len(value),)
    inner = {_shape(name, each, rank - 1) for each in value}
    if len(inner) > 1:
        raise RequestError(f"`{name}` must have rows of one length")
    return (len(value), *(inner.pop() if inner else (0,) * (rank - 1)))


def _integer(name: str, value: Any) -> int:
    if type(value) is not int or not -INT32 - 1 <= value <= INT32:
        raise RequestError(f"`{name}` must hold int32; received {shown(value)}")
    return value


def plain_answers(answers: Answers) -> dict[str, Any]:
    """Return answers as JSON values; strings named `…_bytes` as base64."""
    return {
        name: (
            _in_base64(values)
            if values.dtype == object and name.endswith("_bytes")
            else plain_values(values)
        )
        for name, values in answers.items()
    }


def _in_base64(values: np.ndarray) -> list[Any]:
    def encoded(text: bytes) -> dict[str, str]:
        return {"b64": base64.b64encode(text).decode("ascii")}

    found: list[Any] = np.vectorize(encoded, [object])(values).tolist()
    return found


def row_form(answers: Answers) -> list[Any]:
    """Return answers in TF Serving's row form: one object per row, or one output."""
    plain = plain_answers(answers)
    if len(plain) == 1:
        return next(iter(plain.values()))
    return [
        dict(zip(plain, values, strict=True))
        for values in zip(*plain.values(), strict=True)
    ]


def column_form(answers: Answers) -> Any:
    """Return answers in TF Serving's column form: by name, or one output."""
    plain = plain_answers(answers)
    return next(iter(plain.values())) if len(plain) == 1 else plain


_PLACE = secrets.token_hex(16)  # stands for a vector until its text is there


def dump_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, without NaN and Infinity.

    Vectors may be float32 [D]: their numbers have the nine digits that a float32 needs,
    which takes a third of the time of `json`.
    """
    vectors: list[str] = []

    def with_place(vector: np.ndarray) -> str:
        vectors.append(_vector_text(vector))
        return _PLACE

    text = json.dumps(
        value,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        default=with_place,
    )
    if vectors:
        before, *after = text.split(f'"{_PLACE}"')
        text = before + "".join(itertools.chain(*zip(vectors, after, strict=True)))
    return text.encode("utf-8")


def _vector_text(vector: np.ndarray) -> str:
    if not np.isfinite(vector).all():
        raise ValueError("a vector must have finite numbers")
    return f"[{','.join(['%.9g'] * len(vector)) % tuple(vector.tolist())}]"
