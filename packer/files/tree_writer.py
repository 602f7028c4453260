"""Tree: a new folder that is filled with files by name, where nothing can be written outside it.

Every folder on the way is opened from the one above it (openat) and is never a link, and a file is always a new one:
whoever swaps a folder for a link meanwhile gets an error, not a file elsewhere.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from packer.files.open_folder import OpenFolder
from packer.files.storage_errors import failing
from packer.schema import Buffer

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWriter:
    """Files below a folder in `above`, which is made. They are not synced one by one: `sync` does that for all."""

    def __init__(self, above: OpenFolder, name: str) -> None:
        """Raises UnsafePath, StorageError."""
        self._opened = above.make_folder(name)
        self._path, self._root = self._opened.path, self._opened.descriptor

    def __enter__(self) -> "TreeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def sync(self) -> None:
        """Bring all files to disk, by syncing their file system; raises StorageError."""
        self._opened.sync_file_system()

    def write(self, components: Sequence[bytes], data: Buffer) -> None:
        """A new file, its folders made where they are not there; components as `naming.components` gives them.

        Raises StorageError where something is in the way.
        """
        path = self._path / os.fsdecode(b"/".join(components))
        with failing(path, "write"):
            descriptor = self._folder(components[:-1])
            try:
                file = os.open(components[-1], _NEW_FILE, 0o666, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            with os.fdopen(file, "wb") as opened:
                opened.write(data)

    def make_folder(self, components: Sequence[bytes]) -> None:
        """A folder, which may be there already; raises StorageError where something else is in the way."""
        with failing(self._path / os.fsdecode(b"/".join(components)), "make the folder"):
            os.close(self._folder(components))

    def _folder(self, names: Sequence[bytes]) -> int:
        """A descriptor of a folder below the root; the caller closes it."""
        descriptor = os.dup(self._root)
        for name in names:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                inner = os.open(name, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor
