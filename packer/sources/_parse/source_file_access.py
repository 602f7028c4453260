"""Source file access: the files of a data set, below the folder that the user names, read by one rule about links.

| the path of a file                               | unless asked                  | follow_links          |
|--------------------------------------------------|-------------------------------|-----------------------|
| has no link in it                                | is read                       | is read               |
| has a link in it and leads to a file below the folder | is read                  | is read               |
| leads out of the folder                          | LinkLeadsOut                  | is read               |
| leads nowhere, to itself, or to no regular file  | BadInput                      | BadInput              |

The folder itself may be a link. A folder that comes out of an archive can hold a link to any file of whoever packs it:
what a data set consists of is settled by its folder, and whoever links to files elsewhere says so. A file is opened
beneath the folder's descriptor, where no link is on the way, so that what is opened is what was judged, whoever puts a
link in its place meanwhile.

A SourceRoot notes the size and the times of modification and of change of each file that it meets, and compares them
with those of the open file after every read. Writing to a file or renaming another one to its path changes its ctime,
which no program can set. Device and inode are not compared: they differ between the machines of a cluster, and exFAT
and FUSE number a file again when the kernel has dropped it from its cache.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import BadInput
from packer.files.safe_paths import open_beneath
from packer.sources._trees.file_tree import FileState, FileTree

_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # a FIFO does not block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0)
_THROUGH_A_LINK = (errno.ELOOP, errno.ENOTDIR)  # what open_beneath says of one, at the end or on the way
_BROKEN = {errno.ENOENT: "leads nowhere", errno.ELOOP: "leads to itself, or through more than 40 others"}
EMPTY = "the file is empty; get it again"
HOW_TO_FOLLOW = "--follow-links (follow_links=True)"


class LinkLeadsOut(BadInput):
    """A file that is reached by a link out of the folder, which nobody has asked to follow."""


@dataclass(eq=False)
class SourceRoot(FileTree):
    """The folder of a data set; holds nothing open."""

    root: Path
    follow_links: bool = False
    _met: dict[str, int] = field(default_factory=dict, repr=False, compare=False)  # hash of each file's size and times
    _above: "dict[str, SourceRoot]" = field(default_factory=dict, repr=False, compare=False)

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """The bytes of the regular file at this relative path; raises LinkLeadsOut, BadInput."""
        try:  # 100 000 small files are read here: a Path is made where a message needs it
            descriptor = self._open(name)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise _no_file(self.root / name)
                if not is_table:
                    self.check_size(name, before.st_size)
                data = os.read(descriptor, before.st_size + 1)
                while len(data) < before.st_size and (more := os.read(descriptor, before.st_size - len(data))):
                    data += more  # one read gives 2 GiB at most
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _told(self.root / name, error) from error
        if len(data) != before.st_size or before.st_ctime_ns != after.st_ctime_ns:
            raise self._changed(name)
        self.check(name, after)
        return data

    def check(self, name: str, status: os.stat_result) -> None:
        """Raise BadInput where a regular file is not the one that was met first at this relative path."""
        now = hash((status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        if self._met.setdefault(name, now) != now:
            raise self._changed(name)

    def _changed(self, name: str) -> BadInput:
        return BadInput(f"{self.root / name}: changed since it was listed; run again when nothing writes to it")

    def open(self, name: str) -> int:
        """A descriptor of the regular file at this path, for the caller to close; raises LinkLeadsOut, BadInput."""
        path = self.root / name
        with _reading(path):
            descriptor = self._open(name)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise _no_file(path)
                self.check(name, status)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor

    def start(self, name: str, count: int) -> bytes:
        """The first bytes of the regular file at this relative path, at most so many; raises LinkLeadsOut, BadInput."""
        descriptor = self.open(name)
        try:
            with _reading(self.root / name):
                return os.read(descriptor, count)
        finally:
            os.close(descriptor)

    def status(self, name: str) -> os.stat_result:
        """What the system says of the file at this relative path, links followed; raises LinkLeadsOut, BadInput."""
        try:  # as of `read`
            status = os.stat(f"{self.root}/{name}", follow_symlinks=self.follow_links)
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(os.path.join(self.real, self.behind_links(name)), follow_symlinks=False)
        except OSError as error:
            raise _told(self.root / name, error) from error
        if stat.S_ISREG(status.st_mode):
            self.check(name, status)
        return status

    def state(self, name: str) -> FileState:
        """As of a tree; raises LinkLeadsOut too."""
        status = self.status(name)
        return FileState(status.st_size, status.st_mtime_ns, stat.S_ISREG(status.st_mode))

    def above(self, name: str) -> "SourceRoot":
        found = self._above.setdefault(name, SourceRoot(self.root / name, self.follow_links))
        found.most_bytes = self.most_bytes
        return found

    def leads_out(self, name: str) -> bool:
        """Whether what is at this relative path lies outside of the folder, all links followed."""
        real = self.real
        found = os.path.realpath(os.path.join(real, name))
        return found != real and not found.startswith(os.path.join(real, ""))

    def behind_links(self, name: str) -> str:
        """The relative path, without a link in it, of what the one at `name` leads to; raises LinkLeadsOut, OSError."""
        if not self.leads_out(name):
            return os.path.relpath(os.path.realpath(os.path.join(self.real, name)), self.real)
        path = self.root / name
        os.stat(path)  # one that leads nowhere is told as such
        raise LinkLeadsOut(f"{path}: is a link out of the folder; {HOW_TO_FOLLOW} packs what it leads to")

    @property
    def real(self) -> str:
        """The folder's absolute path without a link in it."""
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
    """The bytes of a regular file that the user names, links followed; raises BadInput for anything else.

    Never blocks on a FIFO or device. For files of a data set there is SourceRoot.
    """
    return SourceRoot(path.parent, follow_links=True).read(path.name)


def _open_followed(path: Path) -> int:
    if os.path.islink(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise _no_file(path)  # opening a device can do something to it
    return os.open(path, _FILE)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Make an error of the system in the block one of the file."""
    try:
        yield
    except OSError as error:
        raise _told(path, error) from error


def _told(path: Path, error: OSError) -> BadInput:
    """An error of the system as one of the file."""
    if os.path.islink(path) and error.errno in _BROKEN:
        return BadInput(f"{path}: cannot read: the link {_BROKEN[error.errno]}; mend it or leave it out")
    return BadInput(f"{path}: cannot read: {error.strerror}; make it readable or leave it out")


def _no_file(path: Path) -> BadInput:
    return BadInput(f"{path}: expected a regular file, found another kind of file; leave it out")
