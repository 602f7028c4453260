"""Zip archive: the spans of the entries of a zip file, for packs and for archives of other tools.

The standard library reads the directory, and every statement in it is compared with the file. Each entry must be
between its own header and the next one, so that entries cannot overlap. Entries are not unpacked here.
Source: PKWARE APPNOTE 4.3.
"""

import struct
import zipfile
from collections.abc import Set
from typing import IO, NamedTuple, Protocol

# exceptions for a damaged file, besides OSError
ZIP_ERRORS = (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, struct.error, OverflowError)
_MOST_ENTRIES = 10_000  # if any name is allowed
_UTF_8 = 0x800  # flag of a name in UTF-8
_UNIX = 3  # system that made an entry
_END_MAGIC = b"PK\x05\x06"
_IN_ZIP64 = (1 << 32) - 1
_MOST_COMMENT_BYTES = (1 << 16) - 1
_MOST_ENTRY_BYTES = 1 << 10  # of one entry in the directory; packer's have about 80


class Bytes(Protocol):
    """A mapped file, or an object that reads a file by offset: `archive[start:end]` returns bytes."""

    def __getitem__(self, span: slice, /) -> bytes: ...


class ArchiveEntry(NamedTuple):
    """The place of an entry in the archive.

    Attributes:
        offset: Offset of the entry's data in the archive.
        size_bytes: Size of the data in the archive, compressed or not.
        unpacked_bytes: Size of the uncompressed content; equal to `size_bytes` if `is_deflated` is False.
        crc32: Checksum of the uncompressed content.
        is_deflated: True if the data is compressed with deflate. False if it is stored uncompressed.
        unix_mode: Kind of file and permissions; 0 if the archive was not made on Unix.
    """

    offset: int
    size_bytes: int
    unpacked_bytes: int
    crc32: int
    is_deflated: bool
    unix_mode: int = 0


class Archive:
    """The entries of a zip file. Damaged, overlapping and unexpected entries raise one of ZIP_ERRORS."""

    def __init__(
        self,
        mapped: Bytes,
        file: IO[bytes],
        *,
        wanted: Set[str] | None,
        others: Set[str] = frozenset(),
        in_folder: bool = False,
        may_deflate: bool = False,
        most_directory_bytes: int | None = None,
    ) -> None:
        """Read the directory.

        Args:
            mapped: The complete archive; a slice returns its bytes.
            file: The same archive, opened for the standard library.
            wanted: Names of entries that must exist; None to allow any names.
            others: Further names that may exist. Unless `wanted` is None, all other names are refused.
            in_folder: True if all entries are in one folder of any name, which is removed from their names.
            may_deflate: True to accept entries that are compressed with deflate. False refuses them.
            most_directory_bytes: Limit for an archive of another tool, which may also have a comment; None for a limit
                that follows from the number of names.
        """
        self._mapped = mapped
        self._wanted = wanted
        self._others = others
        self._may_deflate = may_deflate
        if most_directory_bytes is None:
            most_entries = _MOST_ENTRIES if wanted is None else len(wanted) + len(others)
            self._check_directory(self._mapped[-98:], most_entries * _MOST_ENTRY_BYTES)
        else:
            self._check_directory(self._commented_tail(), most_directory_bytes)
        with zipfile.ZipFile(file) as archive:
            self._infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            self._end = archive.start_dir
        self._root = self._infos[0].filename.partition("/")[0] + "/" if in_folder and self._infos else ""
        if self._root in ("/", "./", "../"):
            raise ValueError(f"its entries are in {self._root!r}, expected a folder of their own")

    def _commented_tail(self) -> bytes:
        """Return the end of the archive without its comment; raise ValueError unless the comment ends the file."""
        tail = self._mapped[-98:]
        if tail[-22:-18] == _END_MAGIC and tail[-2:] == b"\0\0":
            return tail
        tail = self._mapped[-(_MOST_COMMENT_BYTES + 98) :]
        at = tail.rfind(_END_MAGIC)
        if at < 0 or len(tail) - at < 22 or int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail) - at - 22:
            raise ValueError("it does not end with the directory of a zip file: it is cut, or something follows it")
        return tail[max(0, at - 76) : at + 20] + b"\0\0"

    def _check_directory(self, tail: bytes, most_bytes: int) -> None:
        """Raise ValueError if the directory is too large, before zipfile reads it. PKWARE APPNOTE 4.3.14 to 4.3.16."""
        if tail[-22:-18] != _END_MAGIC or tail[-2:] != b"\0\0":
            raise ValueError("it does not end with the directory of a zip file")
        if tail[-18:-14] not in (bytes(4), b"\xff" * 4):
            raise ValueError("it is one of several disks")
        size = int.from_bytes(tail[-10:-6], "little")
        if tail[:4] == b"PK\x06\x06":  # zip64: this size is valid; the other may refer to it
            size = max(size if size != _IN_ZIP64 else 0, int.from_bytes(tail[40:48], "little"))
        if size > most_bytes:
            raise ValueError(f"its zip directory has {size} bytes, expected at most {most_bytes}")

    def places(self) -> dict[str, ArchiveEntry]:
        """Return the place of each entry by its name; raises one of ZIP_ERRORS if a name is missing or not expected."""
        if self._infos and self._infos[0].header_offset:  # another file may precede the archive
            raise ValueError("it does not begin with the first entry of a zip file")
        found: dict[str, ArchiveEntry] = {}
        ends = [info.header_offset for info in self._infos[1:]] + [self._end] * bool(self._infos)
        for info, end in zip(self._infos, ends, strict=True):
            name = _name(info).removeprefix(self._root)
            known = self._wanted is None or name in self._wanted or name in self._others
            if not info.filename.startswith(self._root) or name in found or not known:
                raise ValueError(f"unexpected or repeated entry {info.filename!r:.80}")
            found[name] = self._place(info, end)
        missing = sorted((self._wanted or set()) - found.keys())
        if missing:
            raise ValueError(f"no entry {missing[0]!r}")
        return found

    def _place(self, info: zipfile.ZipInfo, end: int) -> ArchiveEntry:
        """Return the span of an entry, between its header and the next one."""
        # bit 3: sizes are repeated behind the data; bit 11: the name is UTF-8
        is_deflated = self._may_deflate and info.compress_type == zipfile.ZIP_DEFLATED
        is_stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not (is_stored or is_deflated) or info.flag_bits & ~(0x80E if is_deflated else 0x808):  # bits 1, 2: level
            raise ValueError(f"entry {info.filename!r:.80} is compressed or encrypted")
        at = info.header_offset
        name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF_8 else "cp437")
        header = self._mapped[at : at + 30] if at >= 0 else b""
        if header[:4] != b"PK\x03\x04" or self._mapped[at + 30 : at + 30 + len(name)] != name:
            raise ValueError(f"entry {info.filename!r:.80} has no header of its own")
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
        start = at + 30 + name_bytes + extra_bytes
        if name_bytes != len(name) or start + info.compress_size > end:
            raise ValueError(f"entry {info.filename!r:.80} does not fit before the next one")
        mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
        return ArchiveEntry(start, info.compress_size, info.file_size, info.CRC, is_deflated, mode)


def _name(info: zipfile.ZipInfo) -> str:
    """Return the name of an entry: UTF-8 if it is flagged or valid UTF-8 (macOS sets no flag), else code page 437."""
    if info.flag_bits & _UTF_8 or info.orig_filename.isascii():
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeDecodeError:
        return info.orig_filename
