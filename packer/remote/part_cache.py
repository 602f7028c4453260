"""Part cache: the files of one pack in the cache, each fetched once for all processes of the machine and checked first.

Whoever needs a file fetches it, or waits for whoever does: there is no leader that could die.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from packer.errors import DamagedObject, InvalidRequest, StorageError
from packer.files.digest import part_sha256
from packer.remote.cache_folder import MOST_FILE_BYTES, CachedName, CacheFolder, Claim, Lease, Spared, in_blocks

CloseIdle = Callable[[], object]  # closes what this process keeps open of the cache without reading it
_LEAST_WAIT_S, _MOST_WAIT_S = 0.002, 0.05


class PackFile(NamedTuple):
    """A file of a pack: relative path, size and sha256 as the manifest has them."""

    name: str
    bytes: int
    sha256: str


class FileFetched(NamedTuple):
    """What a source has written: the sha256 as hex, and the ETag of what it was read from."""

    bytes: int
    sha256: str
    etag: str


class PartSource(Protocol):
    """Where the files of a pack come from."""

    def where(self, file: PackFile | None) -> str:
        """A file's URL, or the pack's, for messages."""

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float) -> FileFetched:
        """Write a file into an open one, from its beginning; raises StoreError, StorageError."""

    def check_unchanged(self) -> None:
        """Raise ObjectChanged where the pack is another one by now."""


@dataclass(frozen=True)
class PartCache:
    """The files of the pack whose packer.json has this sha256. Threads and processes may share it; it pickles.

    patience_seconds: how long an outage of the store is waited for, and how long room in the cache.
    """

    folder: CacheFolder
    digest: str
    source: PartSource
    patience_seconds: float

    def check_limit(self, kept: Sequence[PackFile], parts: Sequence[PackFile]) -> None:
        """Raise InvalidRequest where the limit holds less than what an open pack keeps and its largest part."""
        needed = sum(in_blocks(file.bytes) for file in kept) + max((in_blocks(part.bytes) for part in parts), default=0)
        limit = self.folder.limit_bytes
        if limit is not None and needed > limit:
            raise InvalidRequest(
                f"cache_limit={limit}: the index and the largest part of the pack take {needed:,} bytes; expected at "
                "least that, and room for the parts that are read at a time"
            )
        for file in (*kept, *parts):
            if file.bytes > MOST_FILE_BYTES:
                raise InvalidRequest(
                    f"{self.source.where(file)}: {file.bytes:,} bytes: a cache takes files of at most "
                    f"{MOST_FILE_BYTES:,}; pack again with a smaller --part-size"
                )

    def is_there(self, file: PackFile) -> bool:
        """Whether it is in the cache now; it counts as just used then."""
        lease = self._found(file)
        if lease is not None:
            lease.close()
        return lease is not None

    def _found(self, file: PackFile) -> Lease | None:
        return self.folder.lease(self._named(file), file.bytes)

    def path(self, file: PackFile) -> Path:
        """Where it is in the cache, or will be."""
        return self.folder.path(self._named(file))

    def _named(self, file: PackFile) -> CachedName:
        return CachedName(self.digest, file.name)

    def lease(self, file: PackFile, *, close_idle: CloseIdle) -> Lease:
        """The file, fetched where it is not there; nobody removes it before the lease is closed.

        Raises StoreError where the store does not give it, ObjectChanged where the pack has changed there, CorruptPack
        where it is damaged there, StorageError where there is no room for it.
        """
        found = self._found(file)
        began, pause = time.monotonic(), _LEAST_WAIT_S
        while found is None:
            claim = self.folder.claim(self._named(file))
            if claim is None:  # somebody fetches it
                time.sleep(pause)
                pause = min(2 * pause, _MOST_WAIT_S)
                found = self._found(file)
                continue
            with claim:
                found = self._found(file)
                if found is None:
                    # who has waited for another's attempts does not begin to count anew
                    patience = max(0.0, self.patience_seconds - (time.monotonic() - began))
                    self._make_room(file, claim, close_idle)
                    found = self._fetched(file, claim, patience)
        return found

    def reserve_ahead(self, file: PackFile, *, since_ns: int) -> Callable[[], None] | None:
        """What fetches a file, for which room is reserved; it does nothing where the file is there, or somebody else
        fetches it. None where there is no room without removing what is needed.

        since_ns: what was used since then is, and all of this pack that was not given up. It is to be called, whatever
        happens, as it has the right to fetch. Both raise as `lease` does.
        """
        spared = Spared(self.digest, since_ns)
        claim = None if self.is_there(file) else self.folder.claim(self._named(file))
        if claim is None:
            return _nothing
        with ExitStack() as undo:
            undo.enter_context(claim)
            if self.is_there(file):
                return _nothing
            if not claim.reserve(file.bytes, spared=spared):
                return None
            held = undo.pop_all()

        def fetch() -> None:
            with held:
                self._fetched(file, claim, self.patience_seconds, spared=spared).close()

        return fetch

    def discard(self, file: PackFile) -> None:
        """Remove a file whose bytes are not the manifest's any more, so that the next lease fetches it.

        Others that have it open keep it, and its blocks, until they close it.
        """
        while (claim := self.folder.claim(self._named(file))) is None:  # another process checks it, or fetches it
            time.sleep(_MOST_WAIT_S)
        with claim, closing(self._found(file) or ExitStack()) as found:
            if isinstance(found, Lease) and part_sha256(found.path, most_bytes=file.bytes) != file.sha256:
                self.folder.remove(self._named(file))

    def give_up(self, file: PackFile) -> None:
        """Say that a file will not be needed soon."""
        self.folder.give_up(self._named(file))

    def _make_room(self, file: PackFile, claim: Claim, close_idle: CloseIdle) -> None:
        """Reserve room, waiting for what others read now; raises StorageError where they do not let go of it."""
        if claim.reserve(file.bytes):
            return
        until = time.monotonic() + self.patience_seconds
        with self.folder.waiting():
            while True:
                close_idle()
                if claim.reserve(file.bytes):
                    return
                if time.monotonic() > until:
                    raise StorageError(
                        f"{self.folder.folder}: no room for {self.source.where(file)}: it has {file.bytes:,} bytes, "
                        f"the limit is {self.folder.limit_bytes:,}, and what is there was in use for "
                        f"{self.patience_seconds:g} s; raise cache_limit, or read with fewer workers"
                    )
                time.sleep(_MOST_WAIT_S)

    def _fetched(self, file: PackFile, claim: Claim, patience: float, *, spared: Spared | None = None) -> Lease:
        """Fetch a file that there is room for, once more where it comes damaged."""
        sums = []
        for _ in range(2):
            with claim.new_file(file.bytes, spared=spared) as descriptor:
                fetched = self.source.fetch(file, descriptor, patience_seconds=patience)
                if (fetched.bytes, fetched.sha256) == (file.bytes, file.sha256):
                    return claim.publish(descriptor)
            sums.append(f"{fetched.sha256[:16]}...")
            self.source.check_unchanged()
        raise DamagedObject(
            f"{self.source.where(file)}: damaged where it is stored: sha256 {' and '.join(sums)} when it was fetched "
            f"twice, the manifest says {file.sha256[:16]}... (ETag {fetched.etag}); put the pack there again"
        )


def _nothing() -> None:
    """The file is there, or on its way."""
