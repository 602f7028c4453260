"""Zip arrays: arrays stored in a zip file as they are, as torch and NumPy do, and their places in the mapped file.

The directory is read by the standard library; what it says is believed only as far as the file bears it out.
Layout: PKWARE APPNOTE 4.3. An .npz file has the end record under the name `packer.json`, then one `.npy` file
(numpy/lib/format.py, version 1.0) per array, whose header is exactly the one that `header` makes.
"""

import mmap
import struct
import zipfile
from collections.abc import Mapping, Set
from contextlib import suppress
from os import truncate
from pathlib import Path
from typing import IO

from packer.errors import CorruptPack
from packer.files.npy_arrays import npy_header_of_size
from packer.formats._columns import MOST_END_BYTES, Array, ArraySpan, Content, check_end, end_record, reason
from packer.schema import Schema

# what is raised for a file that is not as it should be, besides OSError
ZIP_ERRORS = (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, struct.error, OverflowError)
_MOST_ENTRY_BYTES = 1 << 10  # of one entry in the zip's directory; ours have about 80


class Archive:
    """The entries of a mapped zip file; anything unusual about them is one of ZIP_ERRORS."""

    def __init__(
        self,
        mapped: mmap.mmap,
        file: IO[bytes],
        *,
        wanted: Set[str],
        others: Set[str] = frozenset(),
        in_folder: bool = False,
    ) -> None:
        """wanted, others: names of the entries that must and that may be there; no other may.

        in_folder: whether all of them lie in one folder of any name, which is not part of their names here.
        """
        self._mapped = mapped
        self._wanted = wanted
        self._others = others
        self._check_directory((len(wanted) + len(others)) * _MOST_ENTRY_BYTES)
        with zipfile.ZipFile(file) as archive:
            self._infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            self._end = archive.start_dir
        self._root = self._infos[0].filename.partition("/")[0] + "/" if in_folder and self._infos else ""
        if self._root in ("/", "./", "../"):  # nothing here is written by these names, but unzip may be
            raise ValueError(f"its entries lie in {self._root!r}, expected a folder of their own")

    def _check_directory(self, most_bytes: int) -> None:
        """Look at the size of the directory before zipfile reads it all. PKWARE APPNOTE 4.3.14 to 4.3.16."""
        tail = self._mapped[-98:]
        if tail[-22:-18] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
            raise ValueError("it does not end with the directory of a zip file")
        size = int.from_bytes(tail[-10:-6], "little")
        if tail[:4] == b"PK\x06\x06":
            size = max(size, int.from_bytes(tail[40:48], "little"))
        if size > most_bytes:
            raise ValueError(f"its zip directory has {size} bytes, expected at most {most_bytes}")

    def places(self) -> dict[str, ArraySpan]:
        """Name -> place of the bytes, for exactly the expected entries."""
        if self._infos and self._infos[0].header_offset:  # the file of another format may stand before the archive
            raise ValueError("it does not begin with the first entry of a zip file")
        found: dict[str, ArraySpan] = {}
        ends = [info.header_offset for info in self._infos[1:]] + [self._end]
        for info, end in zip(self._infos, ends, strict=True):
            name = info.filename.removeprefix(self._root)
            known = name in self._wanted or name in self._others
            if not info.filename.startswith(self._root) or name in found or not known:
                raise ValueError(f"unexpected or repeated entry {info.filename!r:.80}")
            found[name] = self._place(info, end)
        missing = sorted(self._wanted - found.keys())
        if missing:
            raise ValueError(f"no entry {missing[0]!r}")
        return found

    def _place(self, info: zipfile.ZipInfo, end: int) -> ArraySpan:
        """Where the bytes of an entry lie, between its header and what comes next."""
        # bit 3: sizes also stand behind the data; bit 11: the name is UTF-8
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ~0x808 or info.file_size != info.compress_size:
            raise ValueError(f"entry {info.filename!r:.80} is compressed or encrypted")
        at = info.header_offset
        name = info.orig_filename.encode()
        header = self._mapped[at : at + 30] if at >= 0 else b""
        if header[:4] != b"PK\x03\x04" or self._mapped[at + 30 : at + 30 + len(name)] != name:
            raise ValueError(f"entry {info.filename!r:.80} has no header of its own")
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
        start = at + 30 + name_bytes + extra_bytes
        if name_bytes != len(name) or start + info.file_size > end:
            raise ValueError(f"entry {info.filename!r:.80} does not fit before the next one")
        return ArraySpan(start, info.file_size)


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
    try:
        entries = Archive(mapped, file, wanted={_END, *(f"{name}.npy" for name in arrays)}).places()
    except ZIP_ERRORS as error:
        raise CorruptPack(f"{path}: not an .npz file: {reason(error)}; copy or pack it again") from error
    end = entries[_END]
    found = mapped[end.offset : end.offset + min(end.size_bytes, MOST_END_BYTES + 1)]
    check_end(path, found, schema=schema, samples=samples)
    return {name: _numbers(path, mapped, array, entries[f"{name}.npy"]) for name, array in arrays.items()}


def _numbers(path: Path, mapped: mmap.mmap, array: Array, entry: ArraySpan) -> ArraySpan:
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
