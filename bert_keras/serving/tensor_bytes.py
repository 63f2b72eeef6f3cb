"""Tensors as bytes, as the Open Inference Protocol sends them.

Numbers are little-endian, one after another; a string is its length as uint32, then its
bytes. Source: Triton's "binary tensor data extension"; `raw_input_contents` of
kserve/open-inference-protocol, "inference_grpc".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.errors import shown
from bert_keras.serving.errors import RequestError

_NUMBERS = {"INT32": "<i4", "INT64": "<i8", "FP32": "<f4", "FP64": "<f8", "BOOL": "?"}
_LENGTH = struct.Struct("<I")


def values_of(name: str, datatype: Any, data: bytes) -> list[Any]:
    """Return the values of a tensor, flat: numbers, or `bytes` for BYTES.

    Raises:
        RequestError: the bytes of input `name` do not hold whole values, or the
            datatype has no such form.
    """
    if datatype == "BYTES":
        return _strings(name, data)
    if datatype not in _NUMBERS:
        raise RequestError(
            f"`datatype` of {name} must be BYTES, {', '.join(_NUMBERS)}; received "
            f"{shown(datatype)}"
        )
    dtype = np.dtype(_NUMBERS[datatype])
    if len(data) % dtype.itemsize:
        raise RequestError(
            f"the binary data of {name} must have {dtype.itemsize} bytes for each "
            f"{datatype}; received {len(data)} bytes"
        )
    found: list[Any] = np.frombuffer(data, dtype).tolist()
    return found


def bytes_of(values: np.ndarray) -> bytes:
    """Return the values of a tensor, [B, …], as bytes; strings are UTF-8 in objects."""
    if values.dtype != object:
        return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    parts: list[bytes] = []
    for text in values.reshape(-1).tolist():
        encoded = text.encode("utf-8") if isinstance(text, str) else text
        parts += _LENGTH.pack(len(encoded)), encoded
    return b"".join(parts)


def split(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return consecutive parts of the given sizes.

    Raises:
        RequestError: together they are not as long as the data.
    """
    if sum(sizes) != len(data):
        raise RequestError(
            f"the binary data must have {sum(sizes)} bytes, the sum of all "
            f"`binary_data_size`; received {len(data)}"
        )
    found, start = [], 0
    for size in sizes:
        found.append(data[start : start + size])
        start += size
    return found


def _strings(name: str, data: bytes) -> list[bytes]:
    found: list[bytes] = []
    place = 0
    while place < len(data):
        start = place + _LENGTH.size
        if start <= len(data):
            (length,) = _LENGTH.unpack_from(data, place)
            place = start + length
        if start > len(data) or place > len(data):
            raise RequestError(
                f"the binary data of {name} must hold strings, each after its length "
                f"in 4 bytes; received {len(data)} bytes, which end within string "
                f"{len(found)}"
            )
        found.append(data[start:place])
    return found
