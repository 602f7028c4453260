"""Read once: a pack that a command goes through once, in a folder or behind a URL.

Behind a URL its parts come into a scratch cache, which goes with the block, and make room for each other: there are
never more than a few of them on the disk.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from packer.errors import InvalidRequest
from packer.pack.manifest import EXTRAS, Manifest
from packer.pack.reader import Pack
from packer.remote.cache_folder import in_blocks
from packer.remote.part_cache import PackFile
from packer.remote.remote_pack import RemoteLocation, RemoteParts, open_remote
from packer.stores.url import URLPath, path_or_url

_PARTS = 4  # that threads read from, and the next ones


@contextmanager
def read_once(
    pack: Path, *, scratch: Path | None = None, extras: bool = False, in_order: bool = True, apart: bool = False
) -> Iterator[Pack]:
    """The open pack, which is closed with the block.

    pack: its folder, or a URL. scratch: a folder of this machine with room for four parts of a pack behind a URL; the
    system's temporary one by default. extras: its files of no sample are wanted, too. in_order: all parts are, one
    after the other: they are fetched ahead. apart: see Pack; what comes from a URL is hashed when it is fetched.
    Raises as Pack and packer.remote.remote_pack.open_remote do, InvalidRequest for a scratch that does not fit.
    """
    pack = path_or_url(pack)
    if not isinstance(pack, URLPath):
        if scratch is not None:
            raise InvalidRequest(f"{pack}: --scratch is for a pack at a URL; this one is read where it is")
        opened = Pack(pack, isolate_damaged=apart)
        try:
            yield opened
        finally:
            opened.close()
        return
    if scratch is not None and not scratch.is_dir():
        raise InvalidRequest(f"{scratch}: --scratch: there is no such folder; make it first")
    with tempfile.TemporaryDirectory(prefix="packer-", dir=scratch) as name:
        location = RemoteLocation(pack.url, Path(name))
        stored, manifest = location.read_manifest()
        limit = _room(stored.bytes, manifest)
        opened = open_remote(replace(location, limit_bytes=limit), stored)
        try:
            if isinstance(opened.supply, RemoteParts):
                for file in manifest.extras if extras else ():
                    opened.supply.keep(PackFile(f"{EXTRAS}/{file.name}", file.bytes, file.sha256))
                if in_order:
                    opened.supply.fetch_ahead(range(len(manifest.parts)))
            yield opened
        finally:
            opened.close()


def _room(head_bytes: int, manifest: Manifest) -> int:
    """Bytes for what is kept, and for some parts of the largest size."""
    kept = [head_bytes, *(file.bytes for file in (*manifest.index, *manifest.extras))]
    largest = max((part.bytes for part in manifest.parts), default=0)
    return sum(map(in_blocks, kept)) + _PARTS * in_blocks(largest)
