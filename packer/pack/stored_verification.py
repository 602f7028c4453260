"""Stored verification: compares what lies behind a URL with the manifest there, file by file.

Each file is fetched into one without a name, which is hashed on the way and gone with the process. Values are not
looked at one by one: the sha256 of a part says whether one of them is another.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress

from packer.errors import CorruptPack, NoObject, ObjectChanged
from packer.pack.manifest import EXTRAS, INDEX, NAME, Manifest
from packer.pack.stored_head import read_manifest
from packer.stores.store import Store, StoredObject

PARTIAL = ".partial/"  # what a conversion that was killed has left there; the next one to the URL removes it


def stored_problems(store: Store, *, reads_parts: bool, digest: str | None) -> Iterator[str]:
    """One line per problem, as it is found. digest: the sha256 that packer.json shall have, None for any.

    Raises InvalidRequest where there is no pack, StoreError.
    """
    try:
        pack, manifest = read_manifest(store)
    except CorruptPack as error:
        yield str(error)
        return
    if digest not in (None, pack.digest):
        yield (
            f"{store.url / NAME}: another pack than expected: its sha256 is {pack.digest}, expected {digest}; get the "
            "pack again"
        )
    files = dict(_files(manifest))
    there = _listing(store, files)
    for name in sorted(there.keys() - files.keys() - {NAME}):
        if not name.startswith(PARTIAL):
            yield f"{store.url / name}: unknown object: the manifest does not list it; remove it"
    for name, (size, sha256) in files.items():
        found = there.get(name)
        if found is None:
            yield f"{store.url / name}: missing; put the pack there again"
        elif found.bytes != size:
            yield f"{store.url / name}: cut or changed: {found.bytes} bytes, expected {size}; put the pack there again"
        elif reads_parts or not name.startswith("part-"):
            yield from _damage(store, name, found, sha256)


def _files(manifest: Manifest) -> Iterator[tuple[str, tuple[int, str]]]:
    """Size and sha256 of all files but the manifest, by name."""
    for file in manifest.index:
        yield f"{INDEX}/{file.name}", (file.bytes, file.sha256)
    for file in manifest.extras:
        yield f"{EXTRAS}/{file.name}", (file.bytes, file.sha256)
    for part in manifest.parts:
        yield part.name, (part.bytes, part.sha256)


def _listing(store: Store, files: Mapping[str, object]) -> dict[str, StoredObject]:
    """What is there, by name; of a web server, which has no listing, what is looked for."""
    if not store.url.is_web:
        return {found.name: found for found in store.objects()}
    states = {name: store.state(name) for name in files}
    return {name: state for name, state in states.items() if state is not None}


def _damage(store: Store, name: str, found: StoredObject, sha256: str) -> Iterator[str]:
    """A file whose bytes are not those that the manifest says."""
    where = store.url / name
    with tempfile.TemporaryFile() as file:
        fetched = None
        with suppress(NoObject, ObjectChanged):
            fetched = store.fetch(name, file.fileno(), bytes=found.bytes, etag=found.etag)
    if fetched is None:
        yield f"{where}: changed while it was looked at; run again"
    elif fetched.sha256 != sha256:
        yield (
            f"{where}: damaged: sha256 {fetched.sha256[:16]}..., the manifest says {sha256[:16]}...; put the pack "
            "there again"
        )
