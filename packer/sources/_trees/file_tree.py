"""File tree: the files of a data set by relative path, in a folder, an archive or a store.

Sources of small files read trees, so that each of them reads folders, archives and stores alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput, printable
from packer.schema import USUAL_PIXELS


def most_file_bytes(max_pixels: int) -> int:
    """Return the size of the largest file of a sample: four channels of 16 bits per pixel, uncompressed, and 1 MiB."""
    return 8 * max(max_pixels, USUAL_PIXELS) + (1 << 20)


class FileState(NamedTuple):
    """The state of a file. time_ns: of its last change; in an archive, of the last change of the archive."""

    size_bytes: int
    time_ns: int
    is_regular: bool


class Contents(NamedTuple):
    """Sorted relative POSIX paths of the files in an archive, and of all folders that contain them."""

    names: Sequence[str]
    folders: Sequence[str]


class FileTree(ABC):
    """Files by relative POSIX path; picklable and thread-safe.

    Attributes:
        root: the folder or archive; paths in messages begin with it.
        follow_links: whether links out of the root are followed.
        most_bytes: the largest file of one sample.
        unpacks_again: whether reading files out of order unpacks the archive again and again.
        reads_at_once: the number of threads that read at once, more than one if a read waits for a server.
        is_local: whether the files are on a disk below `root`.
    """

    root: Path
    follow_links: bool = False
    most_bytes: int = most_file_bytes(USUAL_PIXELS)
    unpacks_again: bool = False
    reads_at_once: int = 1
    is_local: bool = True

    @abstractmethod
    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of a file; raises BadInput.

        is_table: whether the file belongs to many samples, and may be larger than `most_bytes`.
        """

    def check_size(self, name: str, size: int) -> None:
        """Raise BadInput for a file of a sample that is too large, before it is read."""
        if size > self.most_bytes:
            raise BadInput(
                f"{printable(str(self.root / name))}: {size:,} bytes, expected at most {self.most_bytes:,} of a "
                "sample; leave it out, or allow larger images with --max-pixels"
            )

    @abstractmethod
    def start(self, name: str, count: int) -> bytes:
        """Return the first bytes of a file, at most `count`; raises BadInput."""

    @abstractmethod
    def state(self, name: str) -> FileState:
        """Return size, time and kind of a file; raises BadInput."""

    def above(self, name: str) -> "FileTree":
        """Return the tree of a folder above the root, such as `../masks`; raises BadInput for an archive."""
        raise BadInput(f"{self.root}: {name} is outside of the archive; unpack it and give the folder")

    @property
    def contents(self) -> Contents | None:
        """The files, if they are known as in an archive; None for a folder, which `scan` walks."""
        return None
