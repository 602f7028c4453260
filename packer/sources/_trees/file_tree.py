"""File tree: the files of a data set by relative path, wherever they lie: a folder is one kind, an archive another.

Sources that read small files take a tree, so that each of them reads folders and archives alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput, printable
from packer.schema import USUAL_PIXELS


def most_file_bytes(max_pixels: int) -> int:
    """Bytes of the largest file of a sample: four channels of 16 bit per pixel, not compressed, and 1 MiB more."""
    return 8 * max(max_pixels, USUAL_PIXELS) + (1 << 20)


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
    most_bytes: int = most_file_bytes(USUAL_PIXELS)  # of a file of one sample
    unpacks_again: bool = False  # whether files that are read in another order than theirs are unpacked many times
    reads_at_once: int = 1  # of files, by as many threads, where each read waits for an answer rather than a disk

    @property
    def is_local(self) -> bool:
        """Whether it lies on a disk that `root` leads to."""
        return True

    @abstractmethod
    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """The bytes of the file at this relative path; raises BadInput.

        is_table: whether it belongs to no single sample, so that it may have more than `most_bytes`.
        """

    def check_size(self, name: str, size: int) -> None:
        """Raise BadInput, before anything is read, for more bytes than the file of a sample may have."""
        if size > self.most_bytes:
            raise BadInput(
                f"{printable(str(self.root / name))}: {size:,} bytes, expected at most {self.most_bytes:,} of a "
                "sample; leave it out, or allow larger pictures with --max-pixels"
            )

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
