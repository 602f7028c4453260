"""HDF5 heads: parsed by the C library; a signal of it is told from an error of ours, since it ends the worker."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py

from packer.formats.hdf5 import Reader
from tests.fuzz import words
from tests.fuzz.checks import records
from tests.fuzz.scratch import written
from tests.fuzz.target import Disagreement
from tests.support import built_packs

_SAMPLES = 2
TOKENS = (*words.HDF5, b"packer")
MOST_BYTES = 1 << 14


def seeds() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        built_packs.write_part(path, built_packs.records(_SAMPLES), format="hdf5")
        yield path.read_bytes()
        with h5py.File(path, "r+") as file:
            del file["label"]
            file.create_dataset("label", data=[0, 1], dtype="<i8", chunks=(2,), compression="gzip")
        yield path.read_bytes()


def check(data: bytes) -> None:
    path = written("fuzz.h5", data)
    found = [record["label"] for record in records(Reader(path, built_packs.SCHEMA, samples=_SAMPLES), _SAMPLES)]
    with h5py.File(path, "r", locking=False) as file:
        if b"".join(found) != file["label"][()].tobytes():
            raise Disagreement("another label for h5py")
