"""File tree: interface to the files of a data set by relative path, in a folder, an archive or an object store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput, printable
from packer.schema import USUAL_PIXELS


def most_file_bytes(max_pixels: int) -> int:
    """Return the largest allowed size in bytes of a file of a sample: 8 bytes per pixel and 1 MiB."""
    return 8 * max(max_pixels, USUAL_PIXELS) + (1 << 20)


class FileState(NamedTuple):
    """Unpacked size in bytes, time of the last change, and whether the file is regular.

    The time of a file in an archive is that of the archive.
    """

    size_bytes: int
    time_ns: int
    is_regular: bool


class Contents(NamedTuple):
    """Sorted relative POSIX paths in an archive: `names` are the files, `folders` the folders that contain them."""

    names: Sequence[str]
    folders: Sequence[str]


class FileTree(ABC):
    """The files of a data set by relative POSIX path. A tree is picklable and thread-safe.

    Attributes:
        root: Path of the folder or archive, or the URL. Paths in messages begin with `root`.
        follow_links: True follows symbolic links that lead out of `root`. False makes them errors.
        most_bytes: Largest allowed size of a file of one sample.
        unpacks_again: True if reading files out of order unpacks parts of the archive repeatedly.
        reads_at_once: Number of threads that should read in parallel. Greater than 1 for reads from a server.
        is_local: True if the files are on a disk below `root`, False if they are on a server.
    """

    root: Path
    follow_links: bool = False
    most_bytes: int = most_file_bytes(USUAL_PIXELS)
    unpacks_again: bool = False
    reads_at_once: int = 1
    is_local: bool = True

    @abstractmethod
    def read(self, name: str, *, is_table: bool = False) -> bytes:
        """Return the bytes of a file. Raises BadInput if the file cannot be read or is too large.

        `is_table` is True for a file with values of many samples, which may be larger than `most_bytes`.
        """

    def check_size(self, name: str, size: int) -> None:
        """Raise BadInput if `size`, the size in bytes of the file `name`, exceeds `most_bytes`."""
        if size > self.most_bytes:
            raise BadInput(
                f"{printable(str(self.root / name))}: {size:,} bytes, expected at most {self.most_bytes:,} of a "
                "sample; leave it out, or allow larger images with --max-pixels"
            )

    @abstractmethod
    def start(self, name: str, count: int) -> bytes:
        """Return the first `count` bytes of a file, fewer if the file is smaller. Raises BadInput."""

    @abstractmethod
    def state(self, name: str) -> FileState:
        """Return size, time and kind of a file. Raises BadInput if the file cannot be read."""

    def above(self, name: str) -> "FileTree":
        """Return the tree of a folder outside `root`, such as `../masks`. An archive or URL raises BadInput."""
        raise BadInput(f"{self.root}: {name} is outside of the archive; unpack it and give the folder")

    @property
    def contents(self) -> Contents | None:
        """All files and folders of an archive or URL. None for a folder on disk, which `scan` lists."""
        return None
