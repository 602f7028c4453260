"""A pack whose manifest an attacker wrote, every hash right: opened, and every sample read and decoded."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from tests.fuzz import scratch
from tests.support import built_packs, hostile_packs

_FORMATS = ("lmdb", "hdf5", "pth", "bmp")
_MOST_SAMPLES = 8
TOKENS = tuple(
    text.encode()
    for text in (
        *('"kind":"image"', '"kind":"depth"', '"kind":"mask"', '"kind":"json"', '"kind":"number"', '"kind":"points"'),
        *('"codec":"raw:float32"', '"codec":"npy"', '"codec":"jpeg:95"', '"codec":"png"', '"codec":"json"', "[null,4]"),
        *('"dtype":"float16"', '"dtype":"bool"', '"shape":[]', '"shape":[0]', '"hidden":true', '"classes":[]', "null"),
        *('"format":"hdf5"', '"format":"pth"', '"format":"bmp"', '"samples":0', '"samples":4', "4611686018427387903"),
    )
)


@functools.cache
def _packs() -> dict[str, Path]:
    """A sound pack of each format."""
    found = {}
    for format in _FORMATS:
        found[format] = scratch.folder() / format
        built_packs.make_pack(found[format], 3, format=format, parts=1)
    return found


def seeds() -> Iterator[bytes]:
    for folder in _packs().values():
        yield (folder / manifests.NAME).read_bytes()


def check(data: bytes) -> None:
    try:
        members = json.loads(data)
        folder = _packs()[members["format"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    (folder / manifests.NAME).write_bytes(_sealed(members, data))
    pack = Pack(folder, verify="never")
    try:
        samples = SampleDecoder(pack, None)
        for index in range(min(len(pack), _MOST_SAMPLES)):
            samples.sample(index)
            pack.index.index_of(pack.index.key(index))
    finally:
        pack.close()


def _sealed(members: dict[str, object], data: bytes) -> bytes:
    try:
        return hostile_packs.sealed({**members})
    except (ValueError, TypeError, RecursionError):  # nothing that has a canonical form
        return data
