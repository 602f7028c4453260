"""Pickles of plain values: nothing but these comes out, whatever the input says."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from packer.errors import PackerError
from packer.layouts.pickled import loads
from packer.layouts.serialized import pair
from tests.fuzz.target import Disagreement

TOKENS = (b"cos\nsystem\n", b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"\x93", b"R", b"b", b"(", b"t", b"\x94", b"u1")
MOST_BYTES = 2048
_PLAIN = (type(None), bool, int, float, str, bytes, np.ndarray, np.generic)


def seeds() -> Iterator[bytes]:
    for protocol in range(6):
        yield pickle.dumps((b"\xff\xd8", 7), protocol=protocol)
        yield pickle.dumps(([b"\xff"], np.array([3]), {"a": [None, 1.5]}), protocol=protocol)
        yield pickle.dumps(np.float32(1), protocol=protocol)


def check(data: bytes) -> None:
    value = loads(data)
    _check_plain(value)
    try:
        image, label = pair(value)
    except PackerError:
        return
    if type(image) is not bytes or type(label) is not int:
        raise Disagreement(f"{type(image)} {type(label)}")


def _check_plain(value: Any, seen: set[int] | None = None) -> None:
    seen = set() if seen is None else seen
    if isinstance(value, (tuple, list, dict)):
        if id(value) in seen:
            return
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            _check_plain(item, seen)
    elif not isinstance(value, _PLAIN) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
        raise Disagreement(f"{type(value)}")
