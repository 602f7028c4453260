"""Folder tree: the files of a data set below the folder that the user names, read by one rule about links.

| the path of a file                                    | by default   | follow_links |
|-------------------------------------------------------|--------------|--------------|
| contains no link                                      | is read      | is read      |
| contains a link and leads to a file below the folder  | is read      | is read      |
| leads out of the folder                               | LinkLeadsOut | is read      |
| leads nowhere, to itself, or not to a regular file    | BadInput     | BadInput     |

The folder itself may be a link. A folder from an archive can contain a link to any file of the user. So files elsewhere
are read only if the user asks for it. A file is opened beneath the descriptor of the folder, and no link is on the
way: the opened file is the checked one, even if another program replaces it with a link meanwhile.

When a SourceRoot first meets a file, it notes its size and the times of modification and change. After every read it
compares them with those of the open file. Writing to a file, or renaming another file to its path,
changes its ctime, which no program can set. Device and inode are not compared. They differ between the machines of a
cluster, and exFAT and FUSE change the inode number of a file from time to time.
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
_THROUGH_A_LINK = (errno.ELOOP, errno.ENOTDIR)  # errors of open_beneath for a link, at the end or on the way
_BROKEN = {errno.ENOENT: "leads nowhere", errno.ELOOP: "leads to itself, or through more than 40 others"}
EMPTY = "the file is empty; get it again"
HOW_TO_FOLLOW = "--follow-links (follow_links=True)"


class LinkLeadsOut(BadInput):
    """A file behind a link out of the folder, which the user did not request to follow."""


@dataclass(eq=False)
class SourceRoot(FileTree):
    """The folder of a data set; keeps nothing open."""

    root: Path
    follow_links: bool = False
    _met: dict[str, int] = field(default_factory=dict, repr=False, compare=False)  # hash of each file's size and times
    _above: "dict[str, SourceRoot]" = field(default_factory=dict, repr=False, compare=False)

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of a regular file; raises LinkLeadsOut, BadInput."""
        try:  # 100 000 small files are read here: only messages make a Path
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
        """Raise BadInput if a regular file is not the one that this path had first."""
        now = hash((status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        if self._met.setdefault(name, now) != now:
            raise self._changed(name)

    def _changed(self, name: str) -> BadInput:
        return BadInput(f"{self.root / name}: changed since it was listed; run again when nothing writes to it")

    def open(self, name: str) -> int:
        """Return a descriptor of a regular file, for the caller to close; raises LinkLeadsOut, BadInput."""
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
        """Return the status of a file, behind its links; raises LinkLeadsOut, BadInput."""
        try:  # as in `read`
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
        """Return whether a path leads out of the folder, with all links followed."""
        real = self.real
        found = os.path.realpath(os.path.join(real, name))
        return found != real and not found.startswith(os.path.join(real, ""))

    def behind_links(self, name: str) -> str:
        """Return the relative path that `name` leads to, without links in it; raises LinkLeadsOut, OSError."""
        if not self.leads_out(name):
            return os.path.relpath(os.path.realpath(os.path.join(self.real, name)), self.real)
        path = self.root / name
        os.stat(path)  # a link that leads nowhere raises here
        raise LinkLeadsOut(f"{path}: is a link out of the folder; {HOW_TO_FOLLOW} packs its target")

    @property
    def real(self) -> str:
        """The folder's absolute path, without links in it."""
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
    """Return the bytes of a regular file that the user names; follows links. Raises BadInput for anything else.

    Never blocks on a FIFO or device. SourceRoot reads the files of a data set.
    """
    return SourceRoot(path.parent, follow_links=True).read(path.name)


def _open_followed(path: Path) -> int:
    if os.path.islink(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise _not_a_file(path)  # opening a device can have effects
    return os.open(path, _FILE)


def _unreadable(path: Path, error: OSError) -> BadInput:
    """Return an error of the system as one of the file."""
    if os.path.islink(path) and error.errno in _BROKEN:
        return BadInput(f"{path}: cannot read: the link {_BROKEN[error.errno]}; fix it or leave it out")
    return BadInput(f"{path}: cannot read: {error.strerror}; make it readable or leave it out")


def _not_a_file(path: Path) -> BadInput:
    return BadInput(f"{path}: expected a regular file, found another kind of file; leave it out")
