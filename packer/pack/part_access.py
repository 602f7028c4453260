"""Part access: classes that open the parts of a pack: local parts, remote parts, and parts that are hashed first.

* LocalParts: files on this machine.
* SuppliedParts: files that a `PartSupply` downloads when they are read.
* CheckedParts: LocalParts or SuppliedParts whose sha256 is compared before their first read.
* JoinedParts: the parts of several packs.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

from packer.errors import CorruptPack
from packer.formats.base import Reader, Record
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.manifest import Manifest
from packer.pack.part_readers import Key, PartLease, PartOpener, ReaderPin, open_readers, open_unreplaced
from packer.pack.unlisted_files import check_digest
from packer.schema import Buffer


class PartSupply(Protocol):
    """A cache that downloads the parts of a pack when they are needed. Its size may be limited."""

    @property
    def url(self) -> str:
        """URL of the pack, for messages."""

    def key(self, number: int) -> Key:
        """Return the key of a part in the ReaderCache. A second download of the part has the same key."""

    def where(self, number: int) -> str:
        """Return the place of a part, for messages."""

    def lease(self, number: int) -> PartLease:
        """Return a lease on the file of a part, which is downloaded if it is not in the cache.

        Raises StoreError, StorageError, CorruptPack.
        """

    @property
    def room_bytes(self) -> int | None:
        """Bytes of parts that fit into the cache together; None without a limit."""

    @property
    def part_bytes(self) -> Sequence[int]:
        """Bytes that each part takes in the cache."""

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        """Download parts in the background, in this order, as long as the cache has space.

        Args:
            parts: Numbers of parts.
            more: True adds the parts after those of the last call. False replaces those of the last call.
        """

    def discard(self, number: int) -> None:
        """Remove the file of a part from the cache if its sha256 is wrong. The next lease downloads the part again."""

    def give_up(self, parts: Sequence[int]) -> None:
        """Mark parts that will not be needed soon. The cache removes their files first."""

    def close(self) -> None:
        """End downloads. It may be called twice, and in a forked child."""


class Parts(ABC):
    """The parts of one open pack, by number. Thread-safe.

    Attributes:
        keys: key of each part in the ReaderCache.
        supply: downloads the parts; None for local parts.
    """

    keys: list[Key]
    supply: PartSupply | None = None

    @abstractmethod
    def pinned(self, number: int) -> AbstractContextManager[Reader]:
        """Return a `with` block that yields the reader of a part, which stays open inside the block."""

    @abstractmethod
    def path(self, number: int) -> AbstractContextManager[Path]:
        """Return a `with` block that yields the path of a part. Its file exists inside the block."""

    @abstractmethod
    def where(self, number: int) -> str:
        """Return the place of a part, for messages."""

    def may_download(self, number: int) -> bool:
        """Return True if `pinned` may download the part.

        Then no other part may be pinned at the same time, because the cache may need its space.
        """
        return False

    def fetch_again(self, number: int) -> bool:
        """Discard a damaged remote part for a new download, and return True. Return False if the part is local."""
        return False

    def close(self) -> None:  # noqa: B027  local parts need nothing
        """End downloads and processes. Shared readers stay open. It may be called twice, and in a forked child."""


class LocalParts(Parts):
    """Parts on this machine. The constructor checks their sizes: reading a truncated mapped file raises SIGBUS."""

    def __init__(self, paths: Sequence[Path], manifest: Manifest, opener: PartOpener, *, readahead: bool) -> None:
        self._paths = paths
        self._parts = manifest.parts
        self._opener = opener
        self._readahead = readahead
        self.keys = [opener.check(path, part) for path, part in zip(paths, manifest.parts, strict=True)]

    def pinned(self, number: int) -> AbstractContextManager[Reader]:
        return ReaderPin(open_readers, self.keys[number], partial(self._open, number))

    def path(self, number: int) -> AbstractContextManager[Path]:
        return nullcontext(self._paths[number])

    def where(self, number: int) -> str:
        return str(self._paths[number])

    def _open(self, number: int) -> Reader:
        path, part = self._paths[number], self._parts[number]

        def opened() -> Reader:
            if self._opener.check(path, part) != self.keys[number]:  # `convert --overwrite` replaced the pack
                raise CorruptPack(f"{path}: part was replaced since the pack was opened; open the pack again")
            return self._opener.open(path, part.samples, readahead=self._readahead)

        return open_unreplaced(path, opened)


class SuppliedParts(Parts):
    """Parts that `supply` downloads when they are read. The ReaderCache closes the lease of a part with its reader."""

    def __init__(self, supply: PartSupply, manifest: Manifest, opener: PartOpener, *, readahead: bool) -> None:
        self.supply = self._supply = supply
        self._parts = manifest.parts
        self._opener = opener
        self._readahead = readahead
        self.keys = [supply.key(number) for number in range(len(manifest.parts))]

    @contextmanager
    def pinned(self, number: int) -> Iterator[Reader]:
        key = self.keys[number]
        entry = open_readers.pin_open(key)
        if entry is None:
            lease = self._supply.lease(number)  # before the lock of all readers: it may be a download
            samples = self._parts[number].samples
            make = partial(self._opener.open, lease.path, samples, readahead=self._readahead)
            entry = open_readers.pin_with_lease(key, make, lease)
        try:
            yield entry.reader
        finally:
            open_readers.unpin(key, entry)

    @contextmanager
    def path(self, number: int) -> Iterator[Path]:
        lease = self._supply.lease(number)
        try:
            yield lease.path
        finally:
            lease.close()

    def where(self, number: int) -> str:
        return self._supply.where(number)

    def may_download(self, number: int) -> bool:
        return not open_readers.is_open(self.keys[number])

    def fetch_again(self, number: int) -> bool:
        self._supply.discard(number)
        open_readers.drop(self.keys[number])
        return True

    def close(self) -> None:
        self._supply.close()


class CheckedParts(Parts):
    """Other parts whose sha256 is compared before their first value is read. The comparison maps no file."""

    def __init__(self, parts: Parts, manifest: Manifest, *, isolated: ReaderProcess | None) -> None:
        """Wrap other parts.

        Args:
            isolated: a process that reads damaged parts. None: a damaged part raises CorruptPack.
        """
        self._inner = parts
        self._manifest = manifest
        self._isolated = isolated
        self.keys, self.supply = parts.keys, parts.supply
        self._checking = threading.Lock()
        self._checked: dict[int, Reader | None] = {}  # the isolated reader of a damaged part, None for an undamaged one

    def pinned(self, number: int) -> AbstractContextManager[Reader]:
        if number not in self._checked:
            self._check(number)
        damaged = self._checked[number]
        return self._inner.pinned(number) if damaged is None else nullcontext(damaged)

    def _check(self, number: int) -> None:
        part = self._manifest.parts[number]
        with self._inner.path(number) as path, self._checking:  # several threads may need a part at the same time
            if number in self._checked:
                return
            try:
                check_digest(path, part, self._manifest)
                self._checked[number] = None
            except CorruptPack:
                if self._isolated is None:
                    raise
                self._checked[number] = self._isolated.reader(path, part.samples)

    def path(self, number: int) -> AbstractContextManager[Path]:
        return self._inner.path(number)

    def where(self, number: int) -> str:
        return self._inner.where(number)

    def may_download(self, number: int) -> bool:
        return self._inner.may_download(number)

    def fetch_again(self, number: int) -> bool:
        return self._inner.fetch_again(number)

    def close(self) -> None:
        try:
            if self._isolated is not None:
                self._isolated.close()
        finally:
            self._inner.close()


class JoinedParts(Parts):
    """The parts of several packs, one pack after another. `close` does nothing: each pack closes its own parts."""

    def __init__(self, packs: Sequence[tuple[Parts, Mapping[str, str]]]) -> None:
        """Join the parts of packs.

        Args:
            packs: for each pack, its parts, and field of this object -> field of the pack for fields whose names
                differ.
        """
        self._places = [(parts, number, names) for parts, names in packs for number in range(len(parts.keys))]
        self.keys = [key for parts, _ in packs for key in parts.keys]
        self.supply = packs[0][0].supply if len(packs) == 1 else None

    def pinned(self, number: int) -> AbstractContextManager[Reader]:
        parts, inner, names = self._places[number]
        return _renamed(parts.pinned(inner), names) if names else parts.pinned(inner)

    def may_download(self, number: int) -> bool:
        parts, inner, _ = self._places[number]
        return parts.may_download(inner)

    def fetch_again(self, number: int) -> bool:
        parts, inner, _ = self._places[number]
        return parts.fetch_again(inner)

    def path(self, number: int) -> AbstractContextManager[Path]:
        parts, inner, _ = self._places[number]
        return parts.path(inner)

    def where(self, number: int) -> str:
        parts, inner, _ = self._places[number]
        return parts.where(inner)


@contextmanager
def _renamed(pin: AbstractContextManager[Reader], names: Mapping[str, str]) -> Iterator[Reader]:
    with pin as reader:
        yield _RenamedReader(reader, names)


class _RenamedReader(Reader):
    def __init__(self, reader: Reader, names: Mapping[str, str]) -> None:
        super().__init__(reader.path, reader.schema, samples=reader.samples)
        self._reader = reader
        self._names = names

    def read(self, row: int, names: Sequence[str]) -> Record:
        inner = [self._names.get(name, name) for name in names]
        found = self._reader.read(row, inner)
        return {name: found[stored] for name, stored in zip(names, inner, strict=True)}

    def values(self, rows: Sequence[int], name: str) -> Sequence[Buffer]:
        return self._reader.values(rows, self._names.get(name, name))

    def close(self) -> None:
        self._reader.close()
