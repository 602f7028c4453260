"""HDF5 listing: a program that says which arrays an HDF5 file has and where their bytes lie; it reads no array.

It is run in a process of its own (packer.system.isolated_program): HDF5 parses the file in C. Its answer is one line of
JSON, and behind it, for each array in blocks, a table of int64, a row for each block in the order of the grid: offset,
size (0: never written) and mask of the filters that were left out. What reads the arrays (hdf5_arrays.py) believes it
only as far as the file bears it out.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from packer.files.hdf5_storage import H5_ERRORS, is_hard_link, lies_elsewhere, open_read_only

MOST_ARRAYS = 10_000
MOST_BLOCKS = 1 << 22  # of one array
_MOST_DEPTH = 32
_MOST_NAME_BYTES = 1000
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_KNOWN = {4: "szip", 5: "nbit", 6: "scaleoffset", 307: "bzip2", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle"}
_KNOWN |= {32013: "zfp", 32015: "zstd", 32026: "blosc2"}


class Refused(Exception):
    """An array that is not read, and why."""


class _Found(NamedTuple):
    description: dict[str, Any]
    table: npt.NDArray[np.int64] | None


def main(descriptor: int) -> bytes:
    """The listing of the file that is open there."""
    try:
        with open_read_only(Path(f"/dev/fd/{descriptor}")) as file:
            sizes = file.id.get_create_plist().get_sizes()
            links: list[str] = []
            found = list(_walk(file.id, links))
        answer = {"arrays": [one.description for one in found], "links": links[:100], "sizes": list(sizes)}
    except (*H5_ERRORS, OSError, MemoryError) as error:
        found = []
        answer = {"error": " ".join(str(error).split())[:200]}
    tables = (one.table.astype("<i8").tobytes() for one in found if one.table is not None)
    return json.dumps(answer).encode() + b"\n" + b"".join(tables)


def _walk(root: Any, links: list[str]) -> Iterator[_Found]:
    """Every array, by names in order; each object once, however many names it has."""
    seen: set[Any] = set()
    pending = [(root, "", 0)]
    count = 0
    while pending:
        group, prefix, depth = pending.pop()
        inner = []
        for name in sorted(group):
            count += 1
            if count > MOST_ARRAYS:
                raise ValueError(f"more than {MOST_ARRAYS} names")
            if len(name) > _MOST_NAME_BYTES or depth > _MOST_DEPTH:
                raise ValueError("names that are longer or deeper than any of a data set")
            path = prefix + name.decode("utf-8", "backslashreplace")
            if not is_hard_link(group, name):
                links.append(path)
                continue
            info = h5py.h5o.get_info(group, name)
            if (info.fileno, info.addr) in seen:
                continue
            seen.add((info.fileno, info.addr))
            child = h5py.h5o.open(group, name)
            if info.type == h5py.h5o.TYPE_GROUP:
                inner.append((child, f"{path}/", depth + 1))
            elif info.type == h5py.h5o.TYPE_DATASET:
                yield _described(child, path)
        pending.extend(reversed(inner))


def _described(dataset: Any, path: str) -> _Found:
    try:
        return _placed(dataset, path)
    except Refused as error:
        return _Found({"path": path, "refused": str(error)}, None)


def _placed(dataset: Any, path: str) -> _Found:
    """Where the bytes of an array lie; raises Refused."""
    space = dataset.get_space()
    shape = space.get_simple_extent_dims() if space.get_simple_extent_type() == h5py.h5s.SIMPLE else ()
    if not shape or not all(shape):
        raise Refused("is no array, or an empty one")
    kind, dtype = _dtype(dataset.get_type())
    found: dict[str, Any] = {"path": path, "shape": list(shape), "kind": kind, "dtype": dtype}
    if isinstance(dataset.get_type(), h5py.h5t.TypeEnumID):
        names = h5py.check_enum_dtype(np.dtype(dataset.get_type().dtype)) or {}  # none where it is a bool
        found["names"] = {name: int(number) for name, number in names.items()}
    options = dataset.get_create_plist()
    if lies_elsewhere(options):
        raise Refused("its bytes lie in other files, which are not followed")
    filters = [_filter(options.get_filter(number)) for number in range(options.get_nfilters())]
    if options.get_layout() == h5py.h5d.CONTIGUOUS and not filters:
        offset = dataset.get_offset()
        if offset is None:
            raise Refused("was never written")
        size, there = math.prod(shape) * dataset.get_type().get_size(), dataset.get_storage_size()
        # HDF5 gives zeros behind the array's end, and the file has other bytes there
        if there != size and not kind.startswith("ragged"):
            raise Refused(f"is damaged: {size} bytes by its shape, {there} by its layout")
        return _Found({**found, "offset": offset}, None)
    if options.get_layout() != h5py.h5d.CHUNKED:
        raise Refused("lies in the header of the file (compact); write it as an ordinary array")
    block = options.get_chunk()
    table = _blocks(dataset, shape, block)
    if (table[:, 1] == 0).any() and not _fills_with_zeros(options, dataset):
        raise Refused("blocks were never written, and are filled with another value than 0")
    return _Found({**found, "block": list(block), "filters": filters, "blocks": len(table)}, table)


def _dtype(kind: Any) -> tuple[str, str]:
    """What values are (`numbers`, `text`, `ragged`, `ragged text`), and the dtype of their numbers; raises Refused."""
    if isinstance(kind, h5py.h5t.TypeStringID):
        return ("ragged text", "|u1") if kind.is_variable_str() else ("text", f"|S{kind.get_size()}")
    if isinstance(kind, h5py.h5t.TypeVlenID):
        inner, dtype = _dtype(kind.get_super())
        if inner != "numbers":
            raise Refused("holds lists of what is no number")
        return "ragged", "|u1" if dtype == "|i1" else dtype
    if isinstance(kind, h5py.h5t.TypeEnumID):
        found = np.dtype(kind.dtype)
        return "numbers", found.str
    if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        found = np.dtype(kind.dtype)
        if h5py.h5t.py_create(found).equal(kind):
            return "numbers", found.str
    raise Refused("holds what is neither numbers nor texts")


def _filter(found: tuple[int, int, tuple[int, ...], bytes]) -> str:
    number = found[0]
    if number not in _FILTERS:
        name = _KNOWN.get(number, f"filter {number}")
        raise Refused(f"is compressed with {name}; packer reads gzip and lzf: h5repack -f GZIP=4 writes it so")
    return _FILTERS[number]


def _blocks(dataset: Any, shape: tuple[int, ...], block: tuple[int, ...]) -> npt.NDArray[np.int64]:
    grid = [-(-length // step) for length, step in zip(shape, block, strict=True)]
    count = 1
    for length in grid:
        count *= length
        if count > MOST_BLOCKS:
            raise Refused(f"has more than {MOST_BLOCKS} blocks; write it in larger ones")
    table = np.zeros((count, 3), np.int64)
    faults: list[str] = []

    def note(info: Any) -> None:
        if not info.size:
            faults.append(f"a block of no bytes at {info.chunk_offset}")
            return
        place = 0
        for at, step, length in zip(info.chunk_offset, block, grid, strict=True):
            if at // step >= length:
                return  # behind the edge, as an array that was made smaller has some
            place = place * length + at // step
        if table[place, 1]:
            faults.append(f"two blocks at {info.chunk_offset}")
        table[place] = info.byte_offset, info.size, info.filter_mask

    dataset.chunk_iter(note)
    if faults:
        raise ValueError(f"the index of an array's blocks has {faults[0]}")
    return table


def _fills_with_zeros(options: Any, dataset: Any) -> bool:
    if options.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return True
    value = np.zeros((), dataset.dtype)
    if value.dtype.hasobject:
        return False
    options.get_fill_value(value)
    return not any(value.tobytes())
