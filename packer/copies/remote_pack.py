"""Remote pack: an open pack behind a URL. Its manifest and index are downloaded first, its parts when they are read.

The sha256 of packer.json identifies the pack in the cache, and packer.json contains the sha256 of every other file. So
a file in the cache is always a file of this very pack.
"""

import hashlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path

from packer.copies.copy_sources import RemoteFiles, check_no_folders
from packer.copies.owned_folder import Lease
from packer.copies.pack_files import PackFile, extra_files, in_blocks, index_files, part_files
from packer.copies.part_cache import PartCache, cache_folder
from packer.copies.part_prefetch import PartPrefetch
from packer.errors import CorruptPack, DamagedObject, InvalidRequest
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import NAME, Manifest
from packer.pack.part_readers import Key, open_readers
from packer.pack.reader import Pack
from packer.pack.remote_head import RemoteIdentity, read_manifest
from packer.stores.store import Store, StoreOptions
from packer.stores.url import StoreURL, URLPath, parse, path_or_url
from packer.system.byte_sizes import parse_size
from packer.system.parallel import ordered_map

_INDEX_DOWNLOADS = 4  # at once: the files are small, so most of the time is spent waiting for answers
_SCRATCH_PARTS = 4  # the parts that threads read, and the next ones


@dataclass(frozen=True)
class RemoteLocation:
    """The URL of a remote pack, and its cache. Pickles, so that workers open the same pack.

    Attributes:
        url: The URL of the pack.
        cache: A folder on a disk of this machine.
        limit_bytes: Limit on all files in the cache; None for no limit.
        options: Options of the store.
    """

    url: StoreURL
    cache: Path
    limit_bytes: int | None = None
    options: StoreOptions = StoreOptions()

    @property
    def store(self) -> Store:
        """The store with the pack."""
        return Store(self.url, self.options)

    def find(self) -> RemoteIdentity:
        """Return the pack that is at the URL now; raises StoreError, InvalidRequest, CorruptPack."""
        return self.read_manifest()[0]

    def read_manifest(self) -> tuple[RemoteIdentity, Manifest]:
        """Return the pack that is at the URL now, and its manifest; raises as `find` does."""
        return read_manifest(self.store)


def remote_location(
    url: str,
    *,
    cache: str | PathLike[str] | None,
    cache_limit: int | str | None,
    patience: float | None,
) -> RemoteLocation:
    """Return the location of a URL. cache_limit: bytes, or a text such as "200GB". Raises InvalidRequest."""
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


class RemoteParts:
    """The parts of an open remote pack in one process; implements `PartSupply`."""

    def __init__(self, cache: PartCache, parts: tuple[PackFile, ...]) -> None:
        self._cache = cache
        self._parts = parts
        self._prefetch = PartPrefetch(cache, parts)
        self._kept = ExitStack()
        self._kept_bytes = 0
        self._keeping = threading.Lock()
        # below zero, since numbers of devices are positive
        self._name = -1 - int(hashlib.sha256(f"{cache.folder.folder}/{cache.digest}".encode()).hexdigest()[:15], 16)

    def keep(self, file: PackFile) -> Path:
        """Download a file and keep it while the pack is open; return its path. Thread-safe."""
        lease = self._lease(file)
        with self._keeping:
            self._kept.callback(lease.close)
            self._kept_bytes += in_blocks(file.bytes)
        return lease.path

    def _lease(self, file: PackFile) -> Lease:
        return self._cache.lease(file, close_unused=partial(open_readers.close_unused, only_given_up=False))

    @property
    def url(self) -> str:
        """The URL of the pack."""
        return self._cache.source.where(None)

    def key(self, number: int) -> Key:
        """Return the identity of a part in the process's table of readers."""
        return self._name, number

    def where(self, number: int) -> str:
        """Return the URL of a part, and its file in the cache."""
        part = self._parts[number]
        return f"{self._cache.source.where(part)} (in the cache as {self._cache.path(part)})"

    def discard(self, number: int) -> None:
        """Download a part again for the next lease if its file in the cache is damaged."""
        self._cache.discard(self._parts[number])

    def lease(self, number: int) -> Lease:
        """Return a lease on a part, which is downloaded if it is not in the cache; raises as PartCache.lease does."""
        self._prefetch.start_watching()
        return self._lease(self._parts[number])

    @property
    def room_bytes(self) -> int | None:
        """Bytes of parts that the cache can hold at once; None for no limit."""
        limit = self._cache.limit_bytes
        return None if limit is None else limit - self._kept_bytes

    @property
    def part_bytes(self) -> Sequence[int]:
        """Bytes that each part takes."""
        return [in_blocks(part.bytes) for part in self._parts]

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        """Download parts in the background; see `PartPrefetch.want`."""
        self._prefetch.want(parts, more=more)

    def give_up(self, parts: Sequence[int]) -> None:
        """Mark parts as not needed soon."""
        self._prefetch.give_up(parts)

    def close(self) -> None:
        """End the threads, and release all files."""
        self._prefetch.close()
        self._kept.close()


def open_remote(location: RemoteLocation, pack: RemoteIdentity | None = None, *, verify: str = "first") -> Pack:
    """Open a remote pack. pack: what `location.find` returned, in a process that must open the same pack.

    Raises StoreError, StorageError, UnsafePath, InvalidRequest and CorruptPack.
    """
    folder = cache_folder(location.cache)
    pack = pack or location.find()
    source, patience = RemoteFiles(location.store, pack), location.options.patience_seconds
    cache = PartCache(folder, location.limit_bytes, pack.digest, source, patience)
    kept = [PackFile(NAME, pack.bytes, pack.digest)]
    try:
        return _opened(cache, kept, verify)
    except DamagedObject:
        raise
    except CorruptPack:  # files in the cache may be damaged
        for file in kept:
            cache.discard(file)
    return _opened(cache, kept[:1], verify)


def _opened(cache: PartCache, kept: list[PackFile], verify: str) -> Pack:
    """Open the pack. kept: packer.json; the files of the index are added to it."""
    head, url = kept[0], cache.source.where(None)
    with ExitStack() as undo:
        first = RemoteParts(cache, ())
        undo.callback(first.close)
        path = first.keep(head)
        with failing(path, "read"):
            manifest = manifests.parse(cache.source.where(head), path.read_bytes())
        check_no_folders(url, manifest)
        index, parts = index_files(manifest), tuple(part_files(manifest))
        kept += index
        cache.check_limit([head, *index], parts)
        supply = RemoteParts(cache, parts)
        undo.callback(supply.close)
        supply.keep(head)
        for _ in ordered_map(supply.keep, index, threads=_INDEX_DOWNLOADS):
            pass
        opened = Pack(path.parent, verify=verify, supply=supply)
        undo.pop_all()
        first.close()
    return opened


@contextmanager
def read_once(
    pack: Path, *, scratch: Path | None = None, extras: bool = False, in_order: bool = True, apart: bool = False
) -> Iterator[Pack]:
    """Open a pack for one pass over it, in a folder or behind a URL. A context that closes the pack.

    The files of a remote pack are downloaded to a temporary cache, which contains only a few parts at a time. `apart`
    is that of `Pack`, for a pack in a folder: the parts of a remote pack are hashed when they are downloaded.

    Args:
        pack: A folder or a URL.
        scratch: A folder with room for four parts of a remote pack; by default the system's temporary folder.
        extras: Download the extras too.
        in_order: All parts are read, one after the other, so they are downloaded ahead.

    Raises:
        InvalidRequest: If `scratch` does not exist, or is given for a pack in a folder. Also as Pack and open_remote.
    """
    pack = path_or_url(pack)
    if not isinstance(pack, URLPath):
        if scratch is not None:
            raise InvalidRequest(f"{pack}: --scratch is for a remote pack; this one is read where it is")
        opened = Pack(pack, isolate_damaged=apart)
        try:
            yield opened
        finally:
            opened.close()
        return
    if scratch is not None and not scratch.is_dir():
        raise InvalidRequest(f"{scratch}: --scratch: the folder does not exist; make it first")
    with tempfile.TemporaryDirectory(prefix="packer-", dir=scratch) as name:
        location = RemoteLocation(pack.url, Path(name))
        stored, manifest = location.read_manifest()
        parts = part_files(manifest)
        kept = [stored.bytes, *(file.bytes for file in (*manifest.index, *manifest.extras))]
        largest = max((part.bytes for part in parts), default=0)
        limit = sum(map(in_blocks, kept)) + _SCRATCH_PARTS * in_blocks(largest)
        opened = open_remote(replace(location, limit_bytes=limit), stored)
        try:
            if isinstance(opened.supply, RemoteParts):
                for file in extra_files(manifest) if extras else ():
                    opened.supply.keep(file)
                if in_order:
                    opened.supply.fetch_ahead(range(len(parts)))
            yield opened
        finally:
            opened.close()
