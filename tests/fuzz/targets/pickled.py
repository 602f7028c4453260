"""Pickles of plain values: nothing but these comes out, whatever the input says."""

import pickle
from collections.abc import Iterator

import numpy as np

from packer.layouts.pickled import loads
from packer.layouts.serialized import pair
from tests.fuzz import words
from tests.fuzz.checks import check_plain
from tests.fuzz.target import Disagreement

TOKENS = (*words.PICKLE, b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"u1")


def seeds() -> Iterator[bytes]:
    for protocol in range(6):
        yield pickle.dumps((b"\xff\xd8", 7), protocol=protocol)
        yield pickle.dumps(([b"\xff"], np.array([3]), {"a": [None, 1.5]}), protocol=protocol)
        yield pickle.dumps(np.float32(1), protocol=protocol)


def check(data: bytes) -> None:
    value = loads(data)
    check_plain(value)
    image, label = pair(value)
    if type(image) is not bytes or type(label) is not int:
        raise Disagreement(f"{type(image)} {type(label)}")
