"""File tree: the files of a data set by relative path, wherever they lie: a folder is one kind, an archive another.

Sources that read small files take a tree, so that each of them reads folders and archives alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput


class FileState(NamedTuple):
    """What is known of a file without reading it. time_ns: of its last change; in an archive, of the archive's."""

    size_bytes: int
    time_ns: int
    is_regular: bool


class Contents(NamedTuple):
    """What an archive holds, as relative POSIX paths, sorted: files, and folders with those that files imply."""

    names: Sequence[str]
    folders: Sequence[str]


class FileTree(ABC):
    """Files by relative POSIX path; picklable, read by several threads at once.

    root: the folder or the archive, which paths in messages begin with.
    """

    root: Path
    follow_links: bool = False
    reads_at_once: int = 1  # of files, by as many threads, where each read waits for an answer rather than a disk

    @property
    def is_local(self) -> bool:
        """Whether it lies on a disk that `root` leads to."""
        return True

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of the file at this relative path; raises BadInput."""

    @abstractmethod
    def start(self, name: str, count: int) -> bytes:
        """The first bytes of the file at this relative path, at most so many; raises BadInput."""

    @abstractmethod
    def state(self, name: str) -> FileState:
        """Size, time and kind of what is at this relative path; raises BadInput."""

    def above(self, name: str) -> "FileTree":
        """The tree of a folder above the root, such as `../masks`; raises BadInput for an archive, which has none."""
        raise BadInput(f"{self.root}: {name} is outside of the archive; unpack it and give the folder")

    @property
    def contents(self) -> Contents | None:
        """What is in it where that is known, as of an archive; None of a folder, which is walked."""
        return None
