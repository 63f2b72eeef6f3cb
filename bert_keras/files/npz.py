"""Arrays of an npz file, the large ones mapped into memory: `open_arrays`.

NumPy maps `.npy` files alone. In an npz that `numpy.savez` wrote, each array is such a
file, stored as it is.

Source: APPNOTE.TXT of PKWARE, section 4.3.7, for the header before a file in a zip.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_LARGE = 1 << 24  # bytes of an array that is mapped
_HEADER, _SIZES = 30, slice(26, 30)  # bytes of the header, and of two lengths in it


@contextlib.contextmanager
def open_arrays(path: str | os.PathLike[str]) -> Iterator[Mapping[str, Any]]:
    """Return the arrays of an npz file by name, read when they are asked for.

    Those of 16 MB or more are mapped, unless the file is compressed: their pages are
    read when they are used, without the check of their sum.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: there is no such file, or it is broken.
    """
    with np.load(path, allow_pickle=False) as stored:
        yield _Arrays(path, stored)


class _Arrays(Mapping[str, Any]):
    def __init__(self, path: str | os.PathLike[str], stored: Any) -> None:
        self._path, self._stored = path, stored

    def __getitem__(self, name: str) -> Any:
        large = [
            info
            for info in self._stored.zip.infolist()
            if info.filename == f"{name}.npy"
            and info.compress_type == zipfile.ZIP_STORED
            and info.file_size >= _LARGE
        ]
        return _mapped(self._path, large[0]) if large else self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def _mapped(path: str | os.PathLike[str], info: zipfile.ZipInfo) -> np.ndarray:
    """Return an array of an npz file as pages of this file."""
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<HH", file.read(_HEADER)[_SIZES])
        file.seek(name + extra, os.SEEK_CUR)
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read:
            raise ValueError(f"npy version {version}")
        shape, is_fortran, dtype = read[version](file)
        if dtype.hasobject:
            raise ValueError("pickled objects")
        found = np.memmap(
            path,
            dtype,
            "r",
            offset=file.tell(),
            shape=shape,
            order="F" if is_fortran else "C",
        )
    return np.asarray(found)
