"""NPZ and NPY of others: the zip directory, members and headers, compared with NumPy."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from packer.sources.arrays import npy, npz
from packer.sources.arrays._array_source import ArraySource
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.ZIP, *words.NPY, b"(2, 9, 9)")
_PIXELS = np.arange(2 * 9 * 9, dtype=np.uint8).reshape(2, 9, 9)


def seeds() -> Iterator[bytes]:
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=_PIXELS, y=np.array(["a", "b"]))
        yield file.getvalue()
    for array in (_PIXELS, np.asfortranarray(_PIXELS).astype(">u2")):
        file = io.BytesIO()
        np.save(file, array)
        yield file.getvalue()


def check(data: bytes) -> None:
    path = scratch.written("fuzz", data)
    for maker in (npz.Source, npy.Source):
        with refusable():
            _compare(data, maker(path, named_splits=True), is_archive=maker is npz.Source)


def _compare(data: bytes, source: ArraySource, *, is_archive: bool) -> None:
    for array in source.arrays():
        try:
            expected: Any = np.load(io.BytesIO(data), allow_pickle=False)
            if is_archive:
                expected = expected[array.path.partition("/")[2]]
        except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, SyntaxError):
            continue
        found, wanted = array.row(0), expected[0]
        if array.is_text:
            if isinstance(wanted, np.str_) and found != str(wanted):
                raise Disagreement(f"{found!r}, and of NumPy {wanted!r}")
        elif np.asarray(found).tobytes() != wanted.astype(wanted.dtype.newbyteorder("=")).tobytes():
            raise Disagreement(f"{found}, and of NumPy {wanted}")
