"""Image2LMDB: its list of names, and a record, each of the input."""

from collections.abc import Iterator

from packer.sources.records.image2lmdb import Source
from tests.fuzz import scratch
from tests.fuzz.target import Disagreement, refusable
from tests.support.arrow_payloads import JPEG, VERSIONS, recorded
from tests.support.foreign_files import lmdb_environment

TOKENS = (b" 1\n", b"a.png 0\n", b"\n", b" ", b"item", bytes(8))


def seeds() -> Iterator[bytes]:
    yield b"a.png 0\nb c.png 1\n"
    yield b"a.png 0\na.png 1\n"
    for version in VERSIONS:
        yield recorded(version)["bytes"]
        yield recorded(version)["pair"]


def check(data: bytes) -> None:
    sound = recorded("11.0.0")["bytes"]
    path = scratch.folder() / "fuzz.lmdb"
    path.unlink(missing_ok=True)
    lmdb_environment(path, {b"0": sound, b"1": sound, b"2": data}, is_folder=False)
    scratch.written("fuzz_images_idx.txt", data)
    with refusable():
        source = Source(path)
        keys = [source.key(index) for index in range(len(source))]
        if len(set(keys)) < len(keys) or source[0]["image"] != JPEG:
            raise Disagreement(f"{keys}")
    (path.parent / "fuzz_images_idx.txt").unlink()
    if not isinstance(Source(path)[2]["image"], bytes):
        raise Disagreement("no bytes")
