"""Folder tree: reads the files of a data set below a folder, with a rule about symbolic links.

| the path of a file                                    | by default   | follow_links |
|-------------------------------------------------------|--------------|--------------|
| contains no link                                      | is read      | is read      |
| contains a link and leads to a file below the folder  | is read      | is read      |
| leads out of the folder                               | LinkLeadsOut | is read      |
| leads nowhere, to itself, or not to a regular file    | BadInput     | BadInput     |

The folder itself may be a link. A folder from an archive can contain a link to any file of the user. Therefore files
outside the folder are read only with `follow_links`. A file is opened relative to the descriptor of the folder, with
links resolved before. If another program replaces the file with a link meanwhile, opening fails.

At the first access to a file, a SourceRoot stores size, mtime and ctime. After every read, the stored values are
compared with the values of the open file. Writing to a file, or renaming another file to its path, changes the ctime,
which no program can set. Device and inode are not compared: they differ between the machines of a cluster, and exFAT
and FUSE change inode numbers.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import BadInput
from packer.files.safe_paths import open_beneath
from packer.sources._trees.file_tree import FileState, FileTree

_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # a FIFO does not block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0)
_THROUGH_A_LINK = (errno.ELOOP, errno.ENOTDIR)  # errors of open_beneath: the file is a link, or a folder of its path
_BROKEN = {errno.ENOENT: "leads nowhere", errno.ELOOP: "leads to itself, or through more than 40 others"}
EMPTY = "the file is empty; get it again"
HOW_TO_FOLLOW = "--follow-links (follow_links=True)"


class LinkLeadsOut(BadInput):
    """Error for a path that leads out of the folder through a symbolic link, without `follow_links`."""


@dataclass(eq=False)
class SourceRoot(FileTree):
    """The tree of a folder on disk. No descriptor stays open between calls."""

    root: Path
    follow_links: bool = False
    _met: dict[str, int] = field(default_factory=dict, repr=False, compare=False)  # path -> hash of size and times
    _above: "dict[str, SourceRoot]" = field(default_factory=dict, repr=False, compare=False)

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of a file, as `FileTree.read` does. Raises LinkLeadsOut if a link leads out of the tree."""
        try:  # fast path for many small files: a Path is created only for messages
            descriptor = self._open(name)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise _not_a_file(self.root / name)
                if not is_table:
                    self.check_size(name, before.st_size)
                data = os.read(descriptor, before.st_size + 1)
                while len(data) < before.st_size and (more := os.read(descriptor, before.st_size - len(data))):
                    data += more  # one read returns at most 2 GiB
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unreadable(self.root / name, error) from error
        if len(data) != before.st_size or before.st_ctime_ns != after.st_ctime_ns:
            raise self._changed(name)
        self.check(name, after)
        return data

    def check(self, name: str, status: os.stat_result) -> None:
        """Raise BadInput if size, mtime or ctime of a regular file changed since the first access."""
        now = hash((status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        if self._met.setdefault(name, now) != now:
            raise self._changed(name)

    def _changed(self, name: str) -> BadInput:
        return BadInput(f"{self.root / name}: changed since it was listed; run again when nothing writes to it")

    def open(self, name: str) -> int:
        """Open a regular file and return the descriptor, which you must close. Raises LinkLeadsOut, BadInput."""
        try:
            descriptor = self._open(name)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise _not_a_file(self.root / name)
                self.check(name, status)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise _unreadable(self.root / name, error) from error
        return descriptor

    def start(self, name: str, count: int) -> bytes:
        descriptor = self.open(name)
        try:
            return os.read(descriptor, count)
        except OSError as error:
            raise _unreadable(self.root / name, error) from error
        finally:
            os.close(descriptor)

    def status(self, name: str) -> os.stat_result:
        """Return the `os.stat` result of a file, with links followed. Raises LinkLeadsOut, BadInput."""
        try:  # without a Path, as in `read`
            status = os.stat(f"{self.root}/{name}", follow_symlinks=self.follow_links)
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(os.path.join(self.real, self.behind_links(name)), follow_symlinks=False)
        except OSError as error:
            raise _unreadable(self.root / name, error) from error
        if stat.S_ISREG(status.st_mode):
            self.check(name, status)
        return status

    def state(self, name: str) -> FileState:
        status = self.status(name)
        return FileState(status.st_size, status.st_mtime_ns, stat.S_ISREG(status.st_mode))

    def above(self, name: str) -> "SourceRoot":
        found = self._above.setdefault(name, SourceRoot(self.root / name, self.follow_links))
        found.most_bytes = self.most_bytes
        return found

    def leads_out(self, name: str) -> bool:
        """Return True if a path leads out of the folder after all symbolic links are followed."""
        real = self.real
        found = os.path.realpath(os.path.join(real, name))
        return found != real and not found.startswith(os.path.join(real, ""))

    def behind_links(self, name: str) -> str:
        """Return the relative path that `name` leads to, with all links resolved. Raises LinkLeadsOut, OSError."""
        if not self.leads_out(name):
            return os.path.relpath(os.path.realpath(os.path.join(self.real, name)), self.real)
        path = self.root / name
        os.stat(path)  # raises OSError for a broken link
        raise LinkLeadsOut(f"{path}: is a link out of the folder; {HOW_TO_FOLLOW} packs its target")

    @property
    def real(self) -> str:
        """Absolute path of the folder, with all links resolved."""
        return os.path.realpath(self.root)

    def _open(self, name: str) -> int:
        if self.follow_links:
            return _open_followed(self.root / name)
        folder = os.open(self.root, _FOLDER)
        try:
            try:
                return open_beneath(folder, os.fsencode(name))
            except OSError as error:
                if error.errno not in _THROUGH_A_LINK:
                    raise
            return open_beneath(folder, os.fsencode(self.behind_links(name)))
        finally:
            os.close(folder)


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file at a path from the user. Links are followed.

    Raises BadInput for any other kind of file. Never blocks on a FIFO or device.
    """
    return SourceRoot(path.parent, follow_links=True).read(path.name)


def _open_followed(path: Path) -> int:
    if os.path.islink(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise _not_a_file(path)  # opening a device can have effects
    return os.open(path, _FILE)


def _unreadable(path: Path, error: OSError) -> BadInput:
    if os.path.islink(path) and error.errno in _BROKEN:
        return BadInput(f"{path}: cannot read: the link {_BROKEN[error.errno]}; fix it or leave it out")
    return BadInput(f"{path}: cannot read: {error.strerror}; make it readable or leave it out")


def _not_a_file(path: Path) -> BadInput:
    return BadInput(f"{path}: expected a regular file, found another kind of file; leave it out")
