"""Mostly holes: a pack of more than 1 GiB whose files contain less than a thousandth of it as data is refused.

Holes take no space on a disk, but time to read and hash: an archive of a few KB can contain a file of a terabyte that
is one hole, and a manifest that names it. Everything that opens a pack therefore checks this first. Smaller holes are
no damage. packer writes none, but `cp --sparse=always`, `tar --sparse` and some file systems make them from long runs
of zeros, and reading them takes seconds, or time in proportion to the data.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from packer.errors import CorruptPack, PackerError
from packer.files.digest import entries, opened_folder
from packer.files.safe_paths import open_beneath
from packer.pack.manifest import EXTRAS, INDEX, Manifest

MOST_BYTES = 1 << 30
MOST_TIMES = 1000

_NOWHERE: Mapping[str, Path] = MappingProxyType({})
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_mostly_holes(folder: Path, manifest: Manifest, *, copies: Mapping[str, Path] = _NOWHERE) -> None:
    """Raise CorruptPack where hardly anything of what the manifest names is there.

    Looks at the first few files of a pack of data, and at none of one of 1 GiB or less. A file that is missing or no
    file counts nothing: whatever reads it says so, and raises where its size is not the manifest's.
    copies: by the name of a part or of the index folder, where it is read instead.
    """
    listed = sum(part.bytes for part in manifest.parts)
    listed += sum(file.bytes for file in (*manifest.index, *manifest.extras))
    enough = (listed - MOST_BYTES) / MOST_TIMES
    found = total = 0
    if enough <= 0:
        return
    for descriptor in _files(folder, manifest, copies):
        total += os.fstat(descriptor).st_size
        found += data_bytes(descriptor, most=enough - found)
        if found >= enough:
            return
    if total > MOST_BYTES + MOST_TIMES * found:
        raise CorruptPack(
            f"{folder}: hostile or damaged: of {total:,} bytes {found:,} are there and the others are holes in its "
            f"files, which packer does not write; get the pack again, or pack again"
        )


def data_bytes(descriptor: int, *, most: float) -> int:
    """Bytes of an open file that are no hole, until there are `most` of them; all where the system does not tell."""
    size, at, found = os.fstat(descriptor).st_size, 0, 0
    while at < size and found < most:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole until the end
                return found
            return size
        found += at - start
    return found


def _files(folder: Path, manifest: Manifest, copies: Mapping[str, Path]) -> Iterator[int]:
    """A descriptor of every file that the manifest names, also in parts that are folders; open until the next one."""
    index = copies.get(INDEX, folder / INDEX)
    for path in (
        *(copies.get(part.name, folder / part.name) for part in manifest.parts),
        *(index / file.name for file in manifest.index),
        *(folder / EXTRAS / file.name for file in manifest.extras),
    ):
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            continue
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISREG(mode):
                yield descriptor
        finally:
            os.close(descriptor)
        if stat.S_ISDIR(mode):
            yield from _files_in(path)


def _files_in(path: Path) -> Iterator[int]:
    try:
        with opened_folder(path) as root:
            for name, size in entries(path):
                if size is not None:
                    descriptor = open_beneath(root, name)
                    try:
                        yield descriptor
                    finally:
                        os.close(descriptor)
    except (OSError, PackerError):  # a link, a device, a file that has gone
        return
