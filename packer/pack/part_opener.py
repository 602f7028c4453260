"""Part opener: opens the parts of one pack in its format, each compared with the manifest before it is mapped."""

import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path

from packer import formats
from packer.errors import CorruptPack, StorageError
from packer.formats.base import Reader
from packer.pack import reader_cache
from packer.pack.manifest import Part
from packer.schema import Schema


class PartOpener:
    """Of the packs with this format and schema. is_folder: whether a part is a folder of files."""

    def __init__(self, format: str, schema: Schema) -> None:
        self._reader: type[Reader] = formats.load(format).Reader
        self._schema = schema
        self.is_folder = self._reader.is_folder

    def check(self, path: Path, part: Part) -> reader_cache.Key:
        """As `check_part`."""
        return check_part(path, part, is_folder=self.is_folder)

    def open(self, path: Path, samples: int, *, readahead: bool = True) -> Reader:
        """A reader that the caller closes; raises CorruptPack, StorageError."""
        return self._reader(path, self._schema, samples=samples, readahead=readahead)

    def shared(self, path: Path, part: Part, key: reader_cache.Key) -> AbstractContextManager[Reader]:
        """The reader of this process for a checked part, which a data set may have open already."""
        return reader_cache.open_readers.pinned(key, lambda: self.open(path, part.samples))


def check_part(path: Path, part: Part, *, is_folder: bool = False) -> reader_cache.Key:
    """Compare a part's size with the manifest (mapping a cut file would kill the process); returns its identity.

    is_folder: of a part that is one, this says nothing of the files in it, of which there may be millions: their sizes
    are compared one by one when they are read. Raises CorruptPack, StorageError where the file system does not answer.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorruptPack(f"{path}: part is missing; copy the pack again") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot read: {error.strerror}; see its permissions and its disk") from error
    if is_folder:
        if not stat.S_ISDIR(status.st_mode):
            raise CorruptPack(f"{path}: expected a folder, found a file, link or device; copy the pack with cp -rL")
        return status.st_dev, status.st_ino
    if not stat.S_ISREG(status.st_mode):
        raise CorruptPack(f"{path}: expected a file, found a link, folder or device; copy the pack with cp -rL")
    if status.st_size != part.bytes:
        raise CorruptPack(
            f"{path}: part is cut or changed: expected {part.bytes} bytes, found {status.st_size}; copy the pack again"
        )
    return status.st_dev, status.st_ino
