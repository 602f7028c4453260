"""BasicSR LMDB: the lists beside it, each of the input, and pixels of the sizes that they say."""

import pickle
from collections.abc import Iterator

from packer.sources.records.basicsr_lmdb import Source
from tests.fuzz import scratch, words
from tests.fuzz.checks import check_samples
from tests.fuzz.target import refusable
from tests.support.foreign_files import lmdb_environment

TOKENS = (*words.PICKLE, b"3_4_5", b"resolution", b"keys", b".png (4,5,3) 1\n", b"4,5,3")
_LISTS = ("meta_info.pkl", "meta_info.txt", "_keys_cache.p")


def seeds() -> Iterator[bytes]:
    for protocol in range(6):
        yield pickle.dumps({"name": "s", "resolution": ["3_4_5", "1_3_3"], "keys": ["a", "b"]}, protocol=protocol)
    yield pickle.dumps({"name": "s", "resolution": "3_4_5", "keys": ["a"]})
    yield pickle.dumps(["a", "a.meta", "b"])
    yield b"a.png (4,5,3) 1\nb.png (1,3,3) 1\n"


def check(data: bytes) -> None:
    for name in _LISTS:
        root = scratch.folder() / name.replace(".", "_")
        if not (root / "data.mdb").exists():
            lmdb_environment(root, {b"a": bytes(60), b"a.meta": b"4,5,3", b"b": bytes(9)})
        (root / name).write_bytes(data)
        with refusable():
            check_samples(Source(root))
