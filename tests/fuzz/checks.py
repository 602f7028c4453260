"""What several targets check: samples of a source, records of a part, plain values, the pages of an LMDB file."""

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from packer.formats.lmdb import BTree
from packer.sources.base import Source
from tests.fuzz.target import Disagreement, refusable
from tests.support import built_packs

_PLAIN = (type(None), bool, int, float, str, bytes, np.generic)


def check_samples(source: Source, *, most: int | None = None) -> None:
    """Each sample is refused, or has the fields of the schema."""
    for index in range(len(source))[:most]:
        with refusable():
            sample = source[index]
            if set(sample) != set(source.schema.names):
                raise Disagreement(f"{sample}")


def records(reader: Any, samples: int) -> list[dict[str, bytes]]:
    """All records of a part under the schema of `built_packs`; closes the reader."""
    with contextlib.closing(reader):
        names = built_packs.SCHEMA.names
        read = (reader.read(row, names) for row in range(samples))
        return [{name: bytes(value) for name, value in record.items()} for record in read]


def check_plain(value: Any, seen: set[int] | None = None) -> None:
    """Nothing but plain values in lists, tuples and dicts, which may hold each other."""
    seen = set() if seen is None else seen
    if isinstance(value, (tuple, list, dict)):
        if id(value) not in seen:
            seen.add(id(value))
            for item in value.values() if isinstance(value, dict) else value:
                check_plain(item, seen)
    elif value.dtype.hasobject if isinstance(value, np.ndarray) else not isinstance(value, _PLAIN):
        raise Disagreement(f"{type(value)}")


@contextlib.contextmanager
def tree_of(data: bytes) -> Iterator[BTree]:
    """The tree in the bytes of an LMDB file, as packer reads them."""
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        with contextlib.closing(BTree(Path("fuzz.lmdb"), mapped)) as tree:
            yield tree
