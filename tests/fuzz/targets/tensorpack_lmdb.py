"""Tensorpack LMDB: one record of the input behind sound ones, by whichever serializer it seems to be of."""

import pickle
from collections.abc import Iterator

import numpy as np

from packer.sources.records.tensorpack_lmdb import Source
from tests.fuzz import scratch, words
from tests.fuzz.checks import check_samples
from tests.fuzz.target import refusable
from tests.support.arrow_payloads import VERSIONS, recorded
from tests.support.foreign_files import lmdb_environment

TOKENS = (*words.PICKLE, b"\xc4\x02nd\xc3", b"\x92", bytes(8), b"K\x01", b"u1")
_SOUND = pickle.dumps([np.zeros((2, 2, 3), np.uint8), 1])


def seeds() -> Iterator[bytes]:
    for protocol in range(6):
        yield pickle.dumps([np.zeros((2, 2, 3), np.uint8), 1], protocol=protocol)
    yield pickle.dumps({"0": b"\xff\xd8", "1": np.float32(0.5), "2": [None, "a"]})
    yield b"\x92\xc4\x02\xff\xd8\x07"
    for version in VERSIONS:
        yield recorded(version)["pair"]


def check(data: bytes) -> None:
    entries = {b"00000000": _SOUND, b"00000001": _SOUND, b"00000002": data}
    path = scratch.folder() / "fuzz.lmdb"
    path.unlink(missing_ok=True)
    lmdb_environment(path, entries, is_folder=False)
    for features in ((), ("image=0:image", "label=1:number"), ("a=0:numbers", "b=1:json"), ("a=0:bytes", "b=1:text")):
        with refusable():
            check_samples(Source(path, features=features))
