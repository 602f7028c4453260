"""Store target: a pack's place behind a URL. Its parts go there one by one, as they are finished; see stored_parts.py.

What is put together of all parts, the index and the manifest, is in a scratch folder of this machine. When all parts
are there it is uploaded:

    extras/, index/         under their own names, each with a record below .partial/done
    packer.json             created last: from then on it is a pack, and never before

A run that was killed leaves its scratch folder and what is under `.partial`; the same command goes on with both: what
is there is neither built nor uploaded again. Behind packer.json both are rubbish: the next `convert` to that URL, from
any machine, removes them, and succeeds if it would build that pack. Nothing is replaced: a store has no way to swap a
pack that others read for another one.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer import formats
from packer.conversion.build_versions import build_versions
from packer.conversion.plan import Plan
from packer.conversion.stored_parts import DONE, MOST_RECORD_BYTES, PARTIAL, StoredParts, StoredPlan, remove_records
from packer.errors import InvalidRequest, NoObject, PackerError, PackExists, StorageError
from packer.files.work_folder import ANYTHING, WorkFolder, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.stores.store import Store
from packer.stores.url import StoreURL, URLPath

_PACK = "pack"  # in the scratch folder, and the work folder of its conversion beside it
_NAMES = {_PACK: ANYTHING, f"\\.{_PACK}\\.partial": ANYTHING}


@dataclass(frozen=True)
class StoreTarget:
    """url: of the pack. scratch: a folder of this machine with room for its index, and for the parts it builds."""

    url: StoreURL
    scratch: Path

    @classmethod
    def of(cls, target: URLPath, *, scratch: Path | None, overwrite: bool) -> "StoreTarget":
        """Raises InvalidRequest for what a store cannot do, before it is asked."""
        if target.url.is_web:
            raise InvalidRequest(f"{target}: a web server cannot be written; give s3://, gs:// or az://")
        if not target.url.key:
            raise InvalidRequest(f"{target}: a whole bucket is no place for a pack; give a name in it, {target}/NAME")
        if overwrite:
            raise InvalidRequest(
                f"{target}: --overwrite is for folders, which are swapped in one step; in a store somebody may read "
                "the pack that is there: give another name, and remove the old one when nobody needs it"
            )
        if scratch is None:
            raise InvalidRequest(
                f"{target}: parts are built on this machine before they are uploaded: give --scratch, a folder with "
                "room for the index and a few of them; what is there after a kill is taken up by the same command"
            )
        return cls(target.url, scratch)

    def check_format(self, name: str) -> None:
        """Raise InvalidRequest for a format whose parts are folders of files."""
        if formats.load(name).Reader.is_folder:
            raise InvalidRequest(
                f"{self.url}: parts of the format {name} are folders of files, which no store reads fast; say --to lmdb"
            )

    @contextmanager
    def opened(self) -> Iterator["Publication"]:
        """The scratch folder, locked; it is removed at the end where it is empty. Raises Locked, UnsafePath."""
        name = f".packer-{hashlib.sha256(str(self.url).encode()).hexdigest()[:32]}"
        if not self.scratch.is_dir():
            raise InvalidRequest(f"{self.scratch}: --scratch: there is no such folder; make it first")
        with work_folder(self.scratch / name, _NAMES) as work:
            yield Publication(self, Store(self.url), work)


class Publication:
    """One pack on its way to a store."""

    def __init__(self, target: StoreTarget, store: Store, work: WorkFolder) -> None:
        self._target = target
        self._store = store
        self._work = work

    @property
    def folder(self) -> Path:
        """Where the pack is built."""
        return self._work.path / _PACK

    @property
    def is_built(self) -> bool:
        """Whether a pack is there that an earlier run has built."""
        return (self.folder / manifests.NAME).exists()

    def check(self) -> Manifest | None:
        """The pack that is there already where a run was killed behind its packer.json; what that left there is
        removed.

        Raises PackExists where a pack is there of which nothing is left, InvalidRequest where the store does not keep
        conditions, StoreError.
        """
        try:
            there = self._store.read(manifests.NAME, most=manifests.MOST_BYTES)
        except NoObject:
            there = b""
        if there:
            if not remove_records(self._store) and not self.is_built:
                self.end()
            return manifests.parse(str(self._target.url / manifests.NAME), there)
        if not self._store.keeps_conditions(f"{PARTIAL}/probe-{uuid.uuid4().hex}"):
            raise InvalidRequest(
                f"{self._target.url}: the store overwrites what is there though it is asked to create it "
                "(If-None-Match), so that of two conversions each would destroy the other's; build the pack in a "
                "folder, and copy it with the store's own tool"
            )
        return None

    def end(self, *, complete: bool = False) -> None:
        """Remove what is here, since a pack is there: it has no place to go. Raises PackExists unless `complete`."""
        self._work.clear()
        if not complete:
            raise PackExists(f"{self._target.url}: already there; choose another name")

    def parts_of(self, plan: Plan) -> StoredParts:
        """Where the parts of a plan go."""
        run = "" if plan.source.resume_reason is None else uuid.uuid4().hex
        versions = build_versions(pixels=not plan.keeps_bytes)
        return StoredParts(self._store, StoredPlan(plan.fingerprint, versions, run))

    def built(self) -> Manifest | None:
        """The pack that an earlier run has built here, all of whose parts are in the store."""
        try:
            return manifests.read(self.folder)
        except PackerError:
            return None

    def forget(self) -> None:
        """Remove what an earlier run has built here of another pack."""
        self._work.remove(_PACK)

    def publish(self, parts: StoredParts) -> Manifest:
        """Upload the rest of the pack, and remove it here; raises PackExists, StorageError, StoreError."""
        manifest = manifests.read(self.folder)
        if self._store.state(manifests.NAME) is None:  # else an earlier run was killed behind it
            parts.begin()
            there = parts.listed()
            for part in manifest.parts:
                if part.name not in there or there[part.name].bytes != part.bytes:
                    raise StorageError(
                        f"{self._target.url / part.name}: has been removed or replaced since it was put there; "
                        "--restart builds all parts anew"
                    )
            for name, sha256, size in _files(manifest):
                self._upload(name, sha256, size)
        if not self._store.create(manifests.NAME, manifest.to_bytes()):
            raise PackExists(f"{self._target.url}: another pack was put there meanwhile; choose another name")
        remove_records(self._store)
        self._work.clear()
        return manifest

    def _upload(self, name: str, sha256: str, size: int) -> None:
        """Bring a file there, unless a record says that it is, and it has the ETag of then."""
        record = f"{DONE}/{name}.json"
        try:
            known: dict[str, Any] = json.loads(self._store.read(record, most=MOST_RECORD_BYTES))
        except NoObject:
            known = {}
        if known.get("sha256") == sha256:
            found = self._store.state(name)
            if found is not None and (found.bytes, found.etag) == (size, known.get("etag")):
                return
        etag = self._store.upload(name, self.folder / name)
        self._store.write(record, manifests.canonical({"bytes": size, "etag": etag, "sha256": sha256}))


def is_of(manifest: Manifest, plan: Plan) -> bool:
    """Whether a pack is made of the files of a plan, with its options; never of a source that cannot be told apart."""
    is_same = manifest.options == plan.options.to_json() and manifest.source.get("digest") == plan.digest
    return is_same and plan.source.resume_reason is None


def _files(manifest: Manifest) -> Iterator[tuple[str, str, int]]:
    """Name, sha256 and size of all files but parts and manifest: the index last, whose size says that all is there."""
    for folder, files in ((EXTRAS, manifest.extras), (INDEX, manifest.index)):
        for file in files:
            yield f"{folder}/{file.name}", file.sha256, file.bytes
