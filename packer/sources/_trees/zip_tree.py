"""Zip tree: reads the files in a zip file. Deflated members are unpacked in memory.

packer.layouts.zip_archive checks the positions of members. Every read compares size and crc32 with the directory of the
zip file. No member unpacks to more than the size in the directory.
"""

import os
import stat
from pathlib import Path

from packer.errors import BadInput, printable
from packer.layouts.zip_archive import ZIP_ERRORS, Archive
from packer.sources._trees.archive_tree import ArchiveTree, Members, place_of
from packer.sources.records._random_access_files import FileBytes, OpenFile

_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # first bytes of a zip file with members, and without
_MOST_DIRECTORY_BYTES = 256 << 20  # enough for two million names of ImageNet's length


def is_zip(start: bytes) -> bool:
    """Return True for a zip file with the first bytes `start`, at least 4."""
    return start.startswith(_MAGICS)


def zip_tree(path: Path) -> ArchiveTree:
    """Return the tree of the files in a zip file. Raises BadInput for refused members or a damaged zip file."""
    file = OpenFile(*place_of(path))
    try:
        with os.fdopen(os.dup(file.descriptor), "rb") as stream:
            archive = Archive(
                FileBytes(file), stream, wanted=None, may_deflate=True, most_directory_bytes=_MOST_DIRECTORY_BYTES
            )
            entries = archive.places()
    except (*ZIP_ERRORS, OSError) as error:
        reason = printable(" ".join(str(error).split())[:200])
        raise BadInput(f"{printable(str(path))}: cannot read the zip file: {reason}; unpack it") from error
    members = Members(columns=5)
    for name, entry in entries.items():
        kind = stat.S_IFMT(entry.unix_mode)
        if name.endswith("/") and not entry.unpacked_bytes:
            members.add_folder(name)
        elif kind not in (0, stat.S_IFREG):
            members.refuse(name, "symbolic link" if kind == stat.S_IFLNK else "not a regular file")
        else:
            members.add_file(
                name, entry.offset, entry.size_bytes, entry.unpacked_bytes, entry.crc32, int(entry.is_deflated)
            )
    root = members.resolve(path)
    return ArchiveTree(path, members, root=root, file=file)
