"""Files of a pack that a cache fetches, without a store: each fetch is written down, and may be slow or damaged."""

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packer.copies.pack_files import PackFile
from packer.copies.part_cache import PartCache, cache_folder
from packer.stores.store import Fetched
from tests.support.child_processes import forked

DIGEST = hashlib.sha256(b"a pack").hexdigest()
_PIECE_BYTES = 4096


def pack_file(number: int, size: int) -> PackFile:
    """A part of so many bytes."""
    return PackFile(f"part-{number:05d}.pth", size, hashlib.sha256(content(number, size)).hexdigest())


def content(number: int, size: int) -> bytes:
    """Its bytes."""
    return (hashlib.sha256(b"%d" % number).digest() * (size // 32 + 1))[:size]


@dataclass(frozen=True)
class FileSource:
    """log: a line for each fetch that began. seconds: that one takes. damaged: names of files that come with another
    first byte, so many times.
    """

    log: Path
    seconds: float = 0.0
    damaged: tuple[tuple[str, int], ...] = ()

    def where(self, file: PackFile | None) -> str:
        return f"s3://b/x.pack/{file.name}" if file is not None else "s3://b/x.pack"

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float | None = None) -> Fetched:
        with self.log.open("a") as log:
            log.write(f"{file.name}\n")
        data = content(int(file.name[5:10]), file.bytes)
        if self.fetches()[file.name] <= dict(self.damaged).get(file.name, 0):
            data = b"\xff" + data[1:]
        pieces = range(0, len(data), _PIECE_BYTES)
        for at in pieces:
            os.pwrite(descriptor, data[at : at + _PIECE_BYTES], at)
            time.sleep(self.seconds / len(pieces))
        return Fetched(len(data), hashlib.sha256(data).hexdigest(), '"etag"')

    def check_unchanged(self) -> None:
        """It never changes."""

    def fetches(self) -> Counter[str]:
        """How often each file was fetched."""
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()


def part_cache(
    base: Path, source: FileSource, *, limit: int | None = None, patience: float = 30.0, digest: str = DIGEST
) -> PartCache:
    """A cache in the folder `base`, which is there."""
    return PartCache(cache_folder(base), limit, digest, source, patience)


def whole_files(cache: PartCache, files: Sequence[PackFile]) -> list[str]:
    """Names of the files in the cache; asserts that each is complete, and that only what is in `.work` is not."""
    known = {file.name: file for file in files}
    found = []
    for path in sorted(cache.folder.folder.rglob("*")):
        name = str(path.relative_to(cache.folder.folder))
        if path.is_dir() or name == "locks" or name.startswith(("made-by-packer-", ".work/")):
            continue
        digest, _, name = name.partition("/")
        assert digest == cache.digest, path
        assert hashlib.sha256(path.read_bytes()).hexdigest() == known[name].sha256, path
        found.append(name)
    return found


def in_processes(count: int, work: Callable[[int], object]) -> list[int]:
    """Start so many forks that call `work` with their number; returns their pids."""
    return [forked(partial(work, number)) for number in range(count)]


def ended(pids: Sequence[int]) -> list[int]:
    """The exit codes of forks, once they have ended."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


class Watch:
    """Calls `look` again and again in a thread, inside the block, and keeps the largest number that it returned."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most = 0
        self.looks = 0

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.most = max(self.most, self._look())
            self.looks += 1
            time.sleep(0.001)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
