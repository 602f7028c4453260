"""Zip arrays: arrays stored in a zip file as they are, as torch and NumPy do, and their places in the mapped file.

Of the archive see packer.layouts.zip_archive. An .npz file has the end record under the name `packer.json`, then one
`.npy` file (numpy/lib/format.py, version 1.0) per array, whose header is exactly the one that `header` makes.
"""

import mmap
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import truncate
from pathlib import Path
from typing import IO

from packer.errors import CorruptPack
from packer.files.npy_arrays import npy_header_of_size
from packer.formats._columns import MOST_END_BYTES, Array, ArraySpan, Content, check_end, end_record, reason
from packer.layouts.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.schema import Schema

# ---- npz files

_END = "packer.json"
_OF_A_LIST = 128  # bytes of the header of every array with one dimension


def header(array: Array, length: int) -> bytes:
    """The header of the array's .npy file; length: in the place of the one that its shape leaves open."""
    shape = tuple(length if known is None else known for known in array.shape)
    return npy_header_of_size(array.dtype, shape, least_bytes=_OF_A_LIST)


def save(path: Path, contents: Mapping[str, tuple[Array, Content]], *, schema: Schema, samples: int) -> None:
    """A new file with the arrays under these names; raises OSError, and leaves an empty file then."""
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, _END, end_record(schema, samples))
                for name, (array, content) in contents.items():
                    _add(archive, f"{name}.npy", header(array, len(content)), content)
        except BaseException:
            with suppress(OSError):  # what is left may look complete
                truncate(path, 0)
            raise


def _add(archive: zipfile.ZipFile, name: str, *blocks: Content | bytes) -> None:
    entry = zipfile.ZipInfo(name)  # its time is 1980, its rights are the same everywhere
    with archive.open(entry, "w", force_zip64=True) as file:
        for block in blocks:
            with memoryview(block) as view:
                file.write(view)


def places(
    path: Path, mapped: mmap.mmap, file: IO[bytes], arrays: Mapping[str, Array], *, schema: Schema, samples: int
) -> dict[str, ArraySpan]:
    """Where the numbers of each array lie; raises CorruptPack for anything but what `save` writes."""
    return places_of_either(path, mapped, file, [arrays], schema=schema, samples=samples)[1]


def places_of_either(
    path: Path,
    mapped: mmap.mmap,
    file: IO[bytes],
    tables: Sequence[Mapping[str, Array]],
    *,
    schema: Schema,
    samples: int,
) -> tuple[int, dict[str, ArraySpan]]:
    """Which of some tables the file holds, by the names of their arrays, and where these lie; raises as `places`."""
    named = [{_END, *(f"{name}.npy" for name in arrays)} for arrays in tables]
    in_all = set.intersection(*named)
    try:
        entries = Archive(mapped, file, wanted=in_all, others=set.union(*named) - in_all).places()
        at = next((at for at, names in enumerate(named) if names == entries.keys()), None)
        if at is None:
            raise ValueError(f"its entries are those of no part: {', '.join(sorted(entries)):.200}")
    except ZIP_ERRORS as error:
        raise CorruptPack(f"{path}: not an .npz file: {reason(error)}; copy or pack it again") from error
    arrays = tables[at]
    end = entries[_END]
    found = mapped[end.offset : end.offset + min(end.size_bytes, MOST_END_BYTES + 1)]
    check_end(path, found, schema=schema, samples=samples)
    return at, {name: _numbers(path, mapped, array, entries[f"{name}.npy"]) for name, array in arrays.items()}


def _numbers(path: Path, mapped: mmap.mmap, array: Array, entry: ArchiveEntry) -> ArraySpan:
    """The place behind the header, which must be the expected one, and of the size that it says."""
    length = max(0, entry.size_bytes - _OF_A_LIST)
    start = header(array, length)
    size_bytes = entry.size_bytes - len(start)
    if mapped[entry.offset : entry.offset + len(start)] != start or array.size_bytes not in (None, size_bytes):
        raise CorruptPack(
            f"{path}: {array.name('.')} is not the array that the schema has: expected {array.dtype} of shape "
            f"{array.shape} in {entry.size_bytes} bytes; copy or pack it again"
        )
    return ArraySpan(entry.offset + len(start), size_bytes)
