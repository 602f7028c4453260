"""Tree writer: writes new files by their relative paths into a folder, and never outside of it.

Each folder of a path is opened from the folder above (openat). A link in the place of a folder, or an existing file, is
an error.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.schema import Buffer

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWriter:
    """Writes files below a folder. They are on disk after `sync`."""

    def __init__(self, root: FolderHandle, *, keep_open: bool = False) -> None:
        """Take over an open, empty folder. `close` closes it.

        Args:
            root: The folder.
            keep_open: True keeps the last used folder below each folder of `root` open. It saves three system calls per
                file, but files follow this folder if another process moves it. False opens the folder for each file.
        """
        self._root = root
        self._keep_open = keep_open
        self._open: dict[bytes, tuple[tuple[bytes, ...], int]] = {}

    @classmethod
    def inside(cls, above: FolderHandle, name: str) -> "TreeWriter":
        """Return a writer for the folder `name` in `above`, and make this folder. Raises UnsafePath, StorageError."""
        return cls(above.make_folder(name))

    @classmethod
    def at(cls, path: Path) -> "TreeWriter":
        """Return a writer with `keep_open` for the empty folder at `path`. Raises OSError, also if it is a link."""
        return cls(FolderHandle(path, os.open(path, _FOLDER)), keep_open=True)

    def __enter__(self) -> "TreeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all folders. A second call has no effect."""
        for top in list(self._open):
            os.close(self._open.pop(top)[1])
        self._root.close()

    def sync(self) -> None:
        """Sync the file system that contains the files. Raises StorageError."""
        self._root.sync_file_system()

    def write(self, components: Sequence[bytes], data: Buffer) -> None:
        """Write a new file, and make its folders if they are absent. Raises StorageError.

        Args:
            components: The names of the folders and the file, as `safe_paths.components` returns them.
            data: The content.
        """
        try:
            self._write(components, data)
        except OSError as error:
            with failing(self._path(components), "write"):  # only now, because it costs more than the file
                raise error

    def _write(self, components: Sequence[bytes], data: Buffer) -> None:
        folder = self._folder_of(tuple(components[:-1]))
        try:
            file = os.open(components[-1], _NEW_FILE, 0o666, dir_fd=folder)
        finally:
            if not self._keep_open:
                os.close(folder)
        try:
            with memoryview(data) as view, view.cast("B") as raw:
                done = 0
                while done < len(raw):
                    done += os.write(file, raw[done:])
        finally:
            os.close(file)

    def make_folder(self, components: Sequence[bytes]) -> None:
        """Make a folder if it is absent. Raises StorageError if a file or a link has its name."""
        with failing(self._path(components), "make the folder"):
            os.close(self._folder(components))

    def _path(self, components: Sequence[bytes]) -> Path:
        return self._root.path / os.fsdecode(b"/".join(components))

    def _folder_of(self, names: tuple[bytes, ...]) -> int:
        """Return a descriptor of the folder for a file. Close it if `keep_open` is False."""
        if not self._keep_open:
            return self._folder(names)
        top = names[0] if names else b""
        kept = self._open.get(top)
        if kept is not None and kept[0] == names:
            return kept[1]
        if kept is not None:
            os.close(self._open.pop(top)[1])
        descriptor = self._folder(names)
        self._open[top] = (names, descriptor)
        return descriptor

    def _folder(self, names: Sequence[bytes]) -> int:
        descriptor = os.dup(self._root.descriptor)
        for name in names:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                inner = os.open(name, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor
