"""The zip directory and headers of an .npz file, compared with zipfile and NumPy."""

import io
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.formats._column_part import MappedRecords, arrays, mapping
from packer.formats._folder_part import find_arrays, save
from tests.fuzz import words
from tests.fuzz.scratch import written
from tests.fuzz.target import Disagreement
from tests.support import built_packs

_SAMPLES = 2
_SCHEMA = built_packs.SCHEMA.select(built_packs.SCHEMA.names[:3])
_ARRAYS = {array.name("."): array for name in _SCHEMA.names for array in arrays(_SCHEMA, name, _SAMPLES)}
TOKENS = (*words.ZIP, *words.NPY, b"packer.json", b"label.npy", b"key.data.npy")


def seeds() -> Iterator[bytes]:
    values = {"key.data": b"ab", "key.offsets": np.array([0, 1, 2], "<i8").tobytes(), "blob.data": b""}
    values |= {"blob.offsets": bytes(24), "label": bytes(16)}
    with tempfile.TemporaryDirectory() as folder:
        contents = {name: (_ARRAYS[name], bytearray(value)) for name, value in values.items()}
        save(Path(folder) / "a.npz", contents, schema=_SCHEMA, samples=_SAMPLES)
        yield (Path(folder) / "a.npz").read_bytes()


def check(data: bytes) -> None:
    path = written("fuzz.npz", data)
    with path.open("rb") as file, mapping(path, file.fileno(), readahead=True) as mapped:
        _, places = find_arrays(path, mapped, file, [_ARRAYS], schema=_SCHEMA, samples=_SAMPLES)
        rows = MappedRecords(
            path, mapped, schema=_SCHEMA, places={_ARRAYS[name]: place for name, place in places.items()}
        )
    for name, place in places.items():
        expected = _with_numpy(data, name)
        if expected is not None and expected != data[place.offset : place.offset + place.size_bytes]:
            raise Disagreement(f"array {name} lies elsewhere for NumPy")
    for row in range(_SAMPLES):
        for value in rows.read(row, _SCHEMA.names).values():
            bytes(value)


def _with_numpy(data: bytes, name: str) -> bytes | None:
    """The array's bytes; None where zipfile finds fault with its crc32, which the manifest's sha256 stands for."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            return found[name].tobytes()
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return None
