"""HDF5 of others: chunks, filters and heaps that are read by hand, compared with h5py."""

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.arrays import _hdf5_arrays
from packer.sources.arrays._stored_array import StoredArray
from packer.sources.records._random_access_files import RecordFile, RecordFiles
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement, refusable

TOKENS = words.HDF5
MOST_BYTES = 1 << 14


def seeds() -> Iterator[bytes]:
    pixels = np.arange(3 * 9 * 9, dtype=np.uint8).reshape(3, 9, 9)
    for options in ({"compression": "gzip", "shuffle": True, "chunks": (2, 9, 5)}, {"compression": "lzf"}, {}):
        path = scratch.folder() / "seed.h5"
        with h5py.File(path, "w", locking=False) as file:  # a target that is started meanwhile inherits a lock
            file.create_dataset("x", data=pixels.astype("<u2"), **options)
            values = file.create_dataset("y", (3,), h5py.vlen_dtype(np.uint8))
            values[1] = np.arange(5, dtype=np.uint8)
            file.create_dataset("z", data=np.arange(3.0), chunks=(2,), fletcher32=True)
        yield path.read_bytes()


def check(data: bytes) -> None:
    path = scratch.written("fuzz.h5", data)
    files = RecordFiles(SourceRoot(path.parent), [RecordFile(path.name, len(data))])
    for array in list(_hdf5_arrays.arrays(files, 0)):
        for row in range(min(array.shape[0], 3)) if isinstance(array, StoredArray) else ():
            with refusable():
                found = array.row(row)
                if not (array.is_text or array.is_ragged):  # HDF5 may read a damaged heap for ever
                    _compare(path, array.path.partition("/")[2], row, np.asarray(found).tobytes())


def _compare(path: Path, name: str, row: int, found: bytes) -> None:
    """Raise Disagreement where h5py gives other numbers.

    Of an array in chunks, zeros of h5py say nothing: HDF5 finds a chunk by a search over the keys of the index, and
    gives zeros for one that it cannot find because a key is damaged. The listing walks over all entries instead, and
    has the chunk. (Seen at every byte of a key's last coordinate, that of the bytes in an element, which is 0 in a
    sound file and which chunk_iter does not show.)
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            is_chunked = file[name].chunks is not None
            expected = np.asarray(file[name][row])
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError, MemoryError):
        return
    theirs = expected.astype(expected.dtype.newbyteorder("=")).tobytes()
    if theirs == found:
        return
    if is_chunked and len(theirs) == len(found):
        one, other = (np.frombuffer(data, np.uint8).reshape(-1, expected.dtype.itemsize) for data in (theirs, found))
        if not ((one != other).any(axis=1) & one.any(axis=1)).any():
            return
    raise Disagreement(f"{found}, and of h5py {expected}")
