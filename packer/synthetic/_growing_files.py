"""Growing files: files that say something of all samples of a set, written row by row while the samples are drawn.

Memory holds no more of them than the rows of one sample.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from packer.files.storage_errors import failing


@dataclass(frozen=True)
class SharedFile:
    """A file of rows, in one list or in several that follow each other, as in COCO's JSON.

    name: relative POSIX path. around: what stands before the rows of the first list, between the lists, and behind
    those of the last. separator: what stands between two rows of a list.
    """

    name: str
    around: tuple[bytes, ...] = (b"", b"")
    separator: bytes = b""


class GrowingFile:
    """A shared file while it is written: its first list goes to the file itself, each further one to one beside it."""

    def __init__(self, shared: SharedFile, path: Path, lists: Sequence[IO[bytes]]) -> None:
        self._shared = shared
        self._path = path
        self._lists = lists
        self._has_rows = [False] * len(lists)
        lists[0].write(shared.around[0])

    def add(self, lists: Sequence[Sequence[bytes]]) -> None:
        """Write the rows of a sample, for each of the lists; raises StorageError."""
        with failing(self._path, "write"):
            for number, (file, rows) in enumerate(zip(self._lists, lists, strict=True)):
                for row in rows:
                    file.write(self._shared.separator + row if self._has_rows[number] else row)
                    self._has_rows[number] = True

    def finish(self) -> int:
        """Put the lists together, and return the size in bytes; raises StorageError."""
        whole, *others = self._lists
        between = self._shared.around[1:-1]
        with failing(self._path, "write"):
            for text, file in zip(between, others, strict=True):
                whole.write(text)
                file.seek(0)
                shutil.copyfileobj(file, whole)
            whole.write(self._shared.around[-1])
            whole.flush()
            return whole.tell()


@contextmanager
def growing_file(folder: Path, shared: SharedFile) -> Iterator[GrowingFile]:
    """A new file, closed at the end; what lies beside it meanwhile has no name. Raises StorageError."""
    path = folder / shared.name
    with ExitStack() as files:
        with failing(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            lists: list[IO[bytes]] = [files.enter_context(path.open("xb"))]
            for _ in shared.around[2:]:
                lists.append(files.enter_context(tempfile.TemporaryFile(dir=folder)))
            growing = GrowingFile(shared, path, lists)
        yield growing
