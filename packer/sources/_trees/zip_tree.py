"""Zip tree: the files in a zip, as files of a folder; stored members are read by offset, deflated ones are unpacked.

Where its members lie is settled by packer.files.zip_archive. What the archive says of a member's size and crc32 is
compared whenever it is read, so that none unpacks to more than it announces.
"""

import os
import stat
from array import array
from pathlib import Path

from packer.errors import BadInput, printable
from packer.files.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.sources._trees.archive_tree import ArchiveTree, Found, Packed, place_of
from packer.sources.records._random_access_files import FileBytes, OpenFile

_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # of one with members, and of one without
_MOST_DIRECTORY_BYTES = 256 << 20  # two million names as those of ImageNet


def is_zip(start: bytes) -> bool:
    """Whether a file that begins so is a zip."""
    return start.startswith(_MAGICS)


def zip_tree(path: Path) -> ArchiveTree:
    """The files in a zip; raises BadInput naming what cannot be taken, and for one that is damaged."""
    file = OpenFile(*place_of(path))
    try:
        with os.fdopen(os.dup(file.descriptor), "rb") as stream:
            archive = Archive(
                FileBytes(file), stream, wanted=None, may_deflate=True, most_directory_bytes=_MOST_DIRECTORY_BYTES
            )
            entries = archive.places()
    except (*ZIP_ERRORS, OSError) as error:
        said = printable(" ".join(str(error).split())[:200])
        raise BadInput(f"{printable(str(path))}: no zip file that can be read as it is: {said}; unpack it") from error
    found = Found()
    taken: list[ArchiveEntry] = []
    for name, entry in entries.items():
        kind = stat.S_IFMT(entry.unix_mode)
        if name.endswith("/") and not entry.unpacked_bytes:
            found.add_folder(name)
        elif kind not in (0, stat.S_IFREG):
            found.refuse(name, "symbolic link" if kind == stat.S_IFLNK else "no regular file")
        elif found.add_file(name, entry.offset, entry.size_bytes):
            taken.append(entry)
    root = found.settle(path)
    packed = Packed(
        array("q", (taken[row].unpacked_bytes for row in found.rows)),
        array("L", (taken[row].crc32 for row in found.rows)),
        array("B", (taken[row].is_deflated for row in found.rows)),
    )
    return ArchiveTree(path, found, root=root, file=file, packed=packed)
