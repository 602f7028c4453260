"""Remote pack: opens a pack behind a URL. Downloads its manifest and index first, and its parts when they are read.

The sha256 of packer.json identifies the pack in the cache, and packer.json contains the sha256 of every other file. So
the files of two versions of a pack are never mixed.
"""

import hashlib
import posixpath
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path

from packer.copies.copy_sources import RemoteFiles, check_no_folders
from packer.copies.leased_folder import Lease
from packer.copies.pack_files import PackFile, extra_files, in_blocks, index_files, part_files
from packer.copies.part_cache import PartCache, cache_folder
from packer.copies.part_prefetch import PartPrefetch
from packer.errors import CorruptPack, DamagedObject, InvalidRequest
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.derived_pack import PackRecipe
from packer.pack.manifest import NAME, Manifest
from packer.pack.part_readers import Key, open_readers
from packer.pack.reader import Pack, VerifyMode
from packer.pack.remote_head import RemoteIdentity, read_manifest
from packer.stores.store import Store, StoreOptions
from packer.stores.url import StoreURL, URLPath, is_url, parse, path_or_url
from packer.system.byte_sizes import parse_size
from packer.system.parallel import ordered_map

_INDEX_DOWNLOADS = 4  # at the same time: the files are small, and most of the time is spent waiting for answers
_SCRATCH_PARTS = 4  # parts in a temporary cache: those that threads read, and the next ones


@dataclass(frozen=True)
class RemoteLocation:
    """The URL of a remote pack, and its cache. Can be pickled for worker processes.

    Attributes:
        url: The URL of the pack.
        cache: The folder for the cache, on a disk of this machine.
        limit_bytes: Limit on the size of all files in the cache; None for no limit.
        options: Options of the store.
    """

    url: StoreURL
    cache: Path
    limit_bytes: int | None = None
    options: StoreOptions = StoreOptions()

    @property
    def store(self) -> Store:
        """The store that contains the pack."""
        return Store(self.url, self.options)

    def find(self) -> RemoteIdentity:
        """Return the identity of the pack that is at the URL now. Raises StoreError, InvalidRequest, CorruptPack."""
        return self.read_manifest()[0]

    def read_manifest(self) -> tuple[RemoteIdentity, Manifest]:
        """Return identity and manifest of the pack that is at the URL now. Raises the errors of `find`."""
        return read_manifest(self.store)


def remote_location(
    url: str,
    *,
    cache: str | PathLike[str] | None,
    cache_limit: int | str | None,
    patience: float | None,
) -> RemoteLocation:
    """Return the location of a remote pack for arguments of `packer.open`. Wrong arguments raise InvalidRequest.

    Args:
        url: The URL of the pack.
        cache: The folder for the cache. None is an error, because parts are read from the cache.
        cache_limit: Bytes, or a text such as "200GB"; None for no limit.
        patience: Seconds to wait for a store that does not answer; None for the default.
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
class RemoteRecipe(PackRecipe):
    """Recipe that opens the pack at a URL. Every process opens the version `identity`, or raises an error."""

    location: RemoteLocation
    identity: RemoteIdentity

    def open(self, verify: VerifyMode, *, isolate_damaged: bool = False) -> Pack:
        """Return the pack. `isolate_damaged` has no effect, because parts are hashed when they are downloaded."""
        return open_remote(self.location, self.identity, verify=verify)


class RemoteParts:
    """The parts of an open remote pack in one process. Implements `PartSupply`, which documents the methods."""

    def __init__(self, cache: PartCache, parts: tuple[PackFile, ...]) -> None:
        self._cache = cache
        self._parts = parts
        self._prefetch = PartPrefetch(cache, parts)
        self._kept = ExitStack()
        self._kept_bytes = 0
        self._keeping = threading.Lock()
        # negative, because the key of a local part begins with the number of a device
        self._name = -1 - int(hashlib.sha256(f"{cache.folder.folder}/{cache.digest}".encode()).hexdigest()[:15], 16)

    def keep(self, file: PackFile) -> Path:
        """Download a file, keep it in the cache while the pack is open, and return its path. Thread-safe."""
        lease = _leased(self._cache, file)
        with self._keeping:
            self._kept.callback(lease.close)
            self._kept_bytes += in_blocks(file.bytes)
        return lease.path

    @property
    def url(self) -> str:
        return self._cache.source.where(None)

    def key(self, number: int) -> Key:
        return self._name, number

    def where(self, number: int) -> str:
        part = self._parts[number]
        return f"{self._cache.source.where(part)} (in the cache as {self._cache.path(part)})"

    def discard(self, number: int) -> None:
        self._cache.discard(self._parts[number])

    def lease(self, number: int) -> Lease:
        self._prefetch.start_watching()
        return _leased(self._cache, self._parts[number])

    @property
    def room_bytes(self) -> int | None:
        limit = self._cache.limit_bytes
        return None if limit is None else limit - self._kept_bytes

    @property
    def part_bytes(self) -> Sequence[int]:
        return [in_blocks(part.bytes) for part in self._parts]

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        self._prefetch.want(parts, more=more)

    def give_up(self, parts: Sequence[int]) -> None:
        self._prefetch.give_up(parts)

    def close(self) -> None:
        self._prefetch.close()
        self._kept.close()


def _leased(cache: PartCache, file: PackFile) -> Lease:
    return cache.lease(file, close_unused=partial(open_readers.close_unused, only_given_up=False))


def open_remote(location: RemoteLocation, pack: RemoteIdentity | None = None, *, verify: str = "first") -> Pack:
    """Open a remote pack.

    Args:
        location: The URL and the cache.
        pack: The result of an earlier `location.find`, to open this version of the pack only. None opens the pack that
            is at the URL now.
        verify: The argument `verify` of `Pack`.

    Raises:
        StoreError: The store does not answer or refuses.
        ObjectChanged: `pack` is not at the URL any more.
        StorageError: The cache cannot be written, or has not enough room.
        UnsafePath: Other users may write to the folder of the cache.
        InvalidRequest: The URL does not lead to a pack, or a remote pack of this format cannot be read.
        CorruptPack: The pack is damaged.
    """
    folder = cache_folder(location.cache)
    pack = pack or location.find()
    source, patience = RemoteFiles(location.store, pack), location.options.patience_seconds
    cache = PartCache(folder, location.limit_bytes, pack.digest, source, patience)
    kept = [PackFile(NAME, pack.bytes, pack.digest)]
    try:
        return _opened(location, cache, kept, verify)
    except DamagedObject:
        raise
    except CorruptPack:  # files in the cache may be damaged
        for file in kept:
            cache.discard(file)
    return _opened(location, cache, kept[:1], verify)


def open_member(
    url: str, *, cache: str | PathLike[str] | None, cache_limit: int | str | None, patience: float | None
) -> Pack:
    """Open a remote member of a collection in a folder. The arguments are those of `remote_location`."""
    return open_remote(remote_location(url, cache=cache, cache_limit=cache_limit, patience=patience))


def _opened_member(location: RemoteLocation, verify: str, path: str) -> Pack:
    """Open a member of the remote collection at `location`. `path` is a URL, or relative to the collection."""
    if not is_url(path):
        url = location.url
        path = f"{url.scheme}://{url.bucket}/{posixpath.normpath(f'{url.key}/{path}')}"
    return open_remote(replace(location, url=parse(path)), verify=verify)


def _opened(location: RemoteLocation, cache: PartCache, kept: list[PackFile], verify: str) -> Pack:
    """Open the pack. `kept` contains packer.json; the files of the index are appended to it."""
    head = kept[0]
    with closing(_leased(cache, head)) as lease, failing(lease.path, "read"):
        manifest = manifests.parse(cache.source.where(head), lease.path.read_bytes())
    check_no_folders(cache.source.where(None), manifest)
    index, parts = index_files(manifest), tuple(part_files(manifest))
    kept += index
    cache.check_limit([head, *index], parts)
    supply = RemoteParts(cache, parts)
    try:
        folder = supply.keep(head).parent
        for _ in ordered_map(supply.keep, index, threads=_INDEX_DOWNLOADS):
            pass
        remote = partial(_opened_member, location, verify) if manifest.members else None
        return Pack(folder, verify=verify, supply=supply, remote=remote, on_close=supply.close)
    except BaseException:
        supply.close()
        raise


@contextmanager
def read_once(
    pack: Path,
    *,
    scratch: Path | None = None,
    extras: bool = False,
    in_order: bool = True,
    isolate_damaged: bool = False,
) -> Iterator[Pack]:
    """Yield an open pack for one pass over it, and close the pack at the end of the `with` block.

    The files of a remote pack are downloaded to a temporary cache, which contains only a few parts at a time.

    Args:
        pack: A folder or a URL.
        scratch: A folder with room for four parts of a remote pack. None for the system's temporary folder.
        extras: True to download the extras too.
        in_order: True downloads the next parts ahead, for a pass that reads all parts in order. False downloads a part
            when it is read.
        isolate_damaged: The argument of `Pack`. Ignored for a remote pack, whose parts are hashed when downloaded.

    Raises:
        InvalidRequest: `scratch` does not exist, or is given for a folder. Also the errors of Pack and open_remote.
    """
    pack = path_or_url(pack)
    if not isinstance(pack, URLPath):
        if scratch is not None:
            raise InvalidRequest(f"{pack}: --scratch is for a remote pack; this one is read where it is")
        opened = Pack(pack, isolate_damaged=isolate_damaged)
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
        manifests.with_parts(location.url, manifest)
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
