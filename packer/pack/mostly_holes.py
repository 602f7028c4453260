"""Mostly holes: refuses a pack of more than 1 GiB if less than a thousandth of its bytes are data and not holes.

A small archive can contain a file of a terabyte that is one hole, and reading this file takes hours. Every function
that opens a pack therefore calls this check first. A pack with fewer holes is accepted, because `cp --sparse=always`
and some file systems create holes from runs of zeros.
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
from packer.pack.manifest import Manifest

MOST_BYTES = 1 << 30
MOST_TIMES = 1000

_NOWHERE: Mapping[str, Path] = MappingProxyType({})
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_mostly_holes(folder: Path, manifest: Manifest, *, copies: Mapping[str, Path] = _NOWHERE) -> None:
    """Raise CorruptPack if a pack consists mostly of holes. Missing files count as empty files.

    The check ends at the first files that contain enough data. It opens no file of a pack of at most 1 GiB.

    Args:
        folder: the pack.
        manifest: the manifest of the pack.
        copies: name of a part or of the index folder -> the path that replaces it.
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
            f"{folder}: hostile or damaged: only {found:,} of {total:,} bytes are data, the others are holes in its "
            "files; get the pack again, or pack again"
        )


def data_bytes(descriptor: int, *, most: float) -> int:
    """Count the bytes of a file outside holes, up to about `most`. If the system cannot find holes, count all."""
    size, at, found = os.fstat(descriptor).st_size, 0, 0
    while at < size and found < most:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            return found if error.errno == errno.ENXIO else size  # ENXIO: a hole until the end
        found += at - start
    return found


def _files(folder: Path, manifest: Manifest, copies: Mapping[str, Path]) -> Iterator[int]:
    """Yield a descriptor of each file of the pack. The descriptor is closed before the next one."""
    for name in manifest.listed:
        top, _, rest = name.partition("/")
        path = copies[top] / rest if top in copies else folder / name
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
    except (OSError, PackerError):  # a link, a device, or a removed file
        return
