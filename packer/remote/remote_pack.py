"""Remote pack: a pack behind a URL, opened by its manifest and index, whose parts come into a cache as they are read.

The sha256 of packer.json names the pack in the cache, and it names each part's sha256: whatever comes out of the store
is that very pack, or an error.
"""

import hashlib
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path

from packer.errors import CorruptPack, DamagedObject, InvalidRequest, NoObject, ObjectChanged
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, NAME, Manifest
from packer.pack.part_readers import Key, PartLease, PartOpener, open_readers
from packer.pack.reader import Pack
from packer.pack.stored_head import StoredPack, check_unchanged, read_manifest
from packer.remote.cache_folder import CacheFolder, in_blocks
from packer.remote.part_cache import FileFetched, PackFile, PartCache
from packer.remote.part_fetcher import PartFetcher
from packer.stores.store import Store, StoreOptions
from packer.stores.url import StoreURL, parse, path_or_url
from packer.system.byte_sizes import parse_size
from packer.system.parallel import ordered_map

_INDEX_FETCHES = 4  # at once, of a dozen of files that are small for most packs: each waits for an answer


@dataclass(frozen=True)
class RemoteLocation:
    """Where a pack is, and where its files are kept. Pickles, so that worker processes open the same pack.

    cache: a folder on a disk of this machine. limit_bytes: of all that the cache holds, None for no limit.
    """

    url: StoreURL
    cache: Path
    limit_bytes: int | None = None
    options: StoreOptions = StoreOptions()

    @property
    def store(self) -> Store:
        """The store that has it."""
        return Store(self.url, self.options)

    def find(self) -> StoredPack:
        """The pack that is there now, its manifest fetched; raises StoreError, InvalidRequest, CorruptPack."""
        return self.read_manifest()[0]

    def read_manifest(self) -> tuple[StoredPack, Manifest]:
        """As `find`, and the manifest."""
        return read_manifest(self.store)


def remote_location(
    url: str,
    *,
    cache: str | PathLike[str] | None,
    cache_limit: int | str | None,
    patience: float | None,
) -> RemoteLocation:
    """The location of a URL. cache_limit: bytes, or a text such as "200GB".

    Raises InvalidRequest where what is given does not go together.
    """
    if cache is None:
        raise InvalidRequest(
            f"{url}: parts are read from a disk of this machine: give cache=, a folder with room for them, and "
            "cache_limit=, how much of it they may take"
        )
    limit = parse_size(cache_limit) if isinstance(cache_limit, str) else cache_limit
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidRequest(f'cache_limit={cache_limit!r}: expected bytes, or a text such as "200GB"')
    options = StoreOptions() if patience is None else StoreOptions(patience_seconds=patience)
    return RemoteLocation(parse(url), path_or_url(cache).absolute(), limit, options)


@dataclass(frozen=True)
class _StoreSource:
    """The files of the pack as the store has them."""

    store: Store
    pack: StoredPack

    def where(self, file: PackFile | None) -> str:
        return str(self.store.url / file.name if file is not None else self.store.url)

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float) -> FileFetched:
        options = replace(self.store.options, patience_seconds=patience_seconds)
        store = replace(self.store, options=options)
        try:
            fetched = store.fetch(file.name, descriptor, bytes=file.bytes)
        except (NoObject, ObjectChanged) as error:
            self.check_unchanged()
            raise DamagedObject(
                f"{self.where(file)}: missing, or of another size than the {file.bytes:,} bytes that the manifest "
                "says; put the pack there again"
            ) from error
        return FileFetched(fetched.bytes, fetched.sha256, fetched.etag)

    def check_unchanged(self) -> None:
        check_unchanged(self.store, self.pack)


class RemoteParts:
    """The supply of an open pack's parts in one process."""

    def __init__(self, cache: PartCache, parts: tuple[PackFile, ...]) -> None:
        self._cache = cache
        self._parts = parts
        self._fetcher = PartFetcher(cache, parts)
        self._kept = ExitStack()
        self._kept_bytes = 0
        self._keeping = threading.Lock()
        # below zero, where no device has its number
        self._name = -1 - int(hashlib.sha256(f"{cache.folder.folder}/{cache.digest}".encode()).hexdigest()[:15], 16)

    def keep(self, file: PackFile) -> Path:
        """Bring a file, which stays as long as the pack is open; returns where it is. Several threads may."""
        lease = self._leased(file)
        with self._keeping:
            self._kept.callback(lease.close)
            self._kept_bytes += in_blocks(file.bytes)
        return lease.path

    @property
    def url(self) -> str:
        """As PartSupply."""
        return self._cache.source.where(None)

    def key(self, number: int) -> Key:
        """As PartSupply."""
        return self._name, number

    def where(self, number: int) -> str:
        """The URL of a part, and its file in the cache."""
        part = self._parts[number]
        return f"{self._cache.source.where(part)} (in the cache as {self._cache.path(part)})"

    def discard(self, number: int) -> None:
        """As PartSupply."""
        self._cache.discard(self._parts[number])

    def lease(self, number: int) -> PartLease:
        """As PartSupply; raises as PartCache.lease."""
        self._fetcher.start_watching()
        return self._leased(self._parts[number])

    def _leased(self, file: PackFile) -> PartLease:
        return self._cache.lease(file, close_idle=partial(open_readers.close_idle, only_done_with=False))

    @property
    def room_bytes(self) -> int | None:
        """As PartSupply."""
        limit = self._cache.folder.limit_bytes
        return None if limit is None else limit - self._kept_bytes

    @property
    def part_bytes(self) -> Sequence[int]:
        """As PartSupply."""
        return [in_blocks(part.bytes) for part in self._parts]

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        """As PartSupply."""
        self._fetcher.want(parts, more=more)

    def give_up(self, parts: Sequence[int]) -> None:
        """As PartSupply."""
        self._fetcher.give_up(parts)

    def close(self) -> None:
        """As PartSupply."""
        self._fetcher.close()
        self._kept.close()


def open_remote(location: RemoteLocation, pack: StoredPack | None = None, *, verify: str = "first") -> Pack:
    """The open pack. pack: the one that `location.find` has found before, for a process that is to open the same.

    Raises StoreError, StorageError, UnsafePath, InvalidRequest and CorruptPack.
    """
    folder = CacheFolder(location.cache, limit_bytes=location.limit_bytes)
    pack = pack or location.find()
    cache = PartCache(folder, pack.digest, _StoreSource(location.store, pack), location.options.patience_seconds)
    kept = [PackFile(NAME, pack.bytes, pack.digest)]
    try:
        return _opened(location, cache, kept, verify)
    except DamagedObject:
        raise
    except CorruptPack:  # what the cache has of it may be damaged
        for file in kept:
            cache.discard(file)
    return _opened(location, cache, kept[:1], verify)


def _opened(location: RemoteLocation, cache: PartCache, kept: list[PackFile], verify: str) -> Pack:
    """kept: packer.json; the files of the index are added."""
    head = kept[0]
    with ExitStack() as undo:
        first = RemoteParts(cache, ())
        undo.callback(first.close)
        path = first.keep(head)
        with failing(path, "read"):
            manifest = manifests.parse(cache.source.where(head), path.read_bytes())
        if PartOpener(manifest.format, manifest.schema).is_folder:
            raise InvalidRequest(
                f"{location.url}: parts of the format {manifest.format} are folders of files, which are not fetched "
                "one by one; packer convert packs it again as lmdb, hdf5 or pth"
            )
        index = [PackFile(f"{INDEX}/{file.name}", file.bytes, file.sha256) for file in manifest.index]
        kept += index
        parts = tuple(PackFile(part.name, part.bytes, part.sha256) for part in manifest.parts)
        cache.check_limit([head, *index], parts)
        supply = RemoteParts(cache, parts)
        undo.callback(supply.close)
        supply.keep(head)
        for _ in ordered_map(supply.keep, index, threads=_INDEX_FETCHES):
            pass
        opened = Pack(path.parent, verify=verify, supply=supply)
        undo.pop_all()
        first.close()
    return opened
