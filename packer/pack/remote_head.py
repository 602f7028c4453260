"""Remote head: reads the manifest and the index of a pack behind a URL, without its parts."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from packer.errors import CorruptPack, InvalidRequest, ObjectChanged
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, NAME, Manifest
from packer.stores.store import Store


@dataclass(frozen=True)
class RemoteIdentity:
    """Identity of the content of a pack behind a URL.

    Attributes:
        digest: sha256 of packer.json, in hex digits.
        bytes: size of packer.json.
        etag: ETag of packer.json in the store.
    """

    digest: str
    bytes: int
    etag: str


def read_manifest(store: Store) -> tuple[RemoteIdentity, Manifest]:
    """Return the identity and the manifest of a pack; raises StoreError, InvalidRequest, CorruptPack."""
    state = store.state(NAME)
    if state is None:
        raise InvalidRequest(f"{store.url}: not a pack: there is no {store.url / NAME}; check the URL")
    if state.bytes > manifests.MOST_BYTES:
        raise CorruptPack(f"{store.url / NAME}: hostile or damaged: {state.bytes:,} bytes; put the pack there again")
    raw = store.read(NAME, most=state.bytes, etag=state.etag)
    manifest = manifests.parse(str(store.url / NAME), raw)
    return RemoteIdentity(hashlib.sha256(raw).hexdigest(), len(raw), state.etag), manifest


def fetch_index(store: Store, manifest: Manifest, folder: Path) -> None:
    """Download the index into an empty folder and compare the sha256 of each file.

    Raises StoreError, CorruptPack, StorageError.
    """
    with failing(folder / INDEX, "make the folder"):
        (folder / INDEX).mkdir()
    for file in manifest.index:
        path = folder / INDEX / file.name
        with failing(path, "make"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            found = store.fetch(f"{INDEX}/{file.name}", descriptor, bytes=file.bytes)
        finally:
            os.close(descriptor)
        if found.sha256 != file.sha256:
            raise CorruptPack(
                f"{store.url / INDEX / file.name}: damaged: its sha256 is not the manifest's; put the pack there again"
            )


def check_unchanged(store: Store, pack: RemoteIdentity) -> None:
    """Raise ObjectChanged if packer.json at the URL is not that of `pack` any more."""
    state = store.state(NAME)
    if state is None or state.etag != pack.etag:
        found = "is gone" if state is None else f"has ETag {state.etag}, it had {pack.etag}"
        raise ObjectChanged(f"{store.url}: the pack was replaced since it was opened: {NAME} {found}; open it again")
