"""Store target: a pack's place behind a URL. It is built in a scratch folder of this machine, and uploaded from there.

Below the URL, while it is published:

    .partial/plan.json      which pack is being published: created, so that of two conversions one goes on
    .partial/done/NAME.json of each file that is there: its sha256, size and ETag
    part-00000 ..., index/, extras/   under their own names, which nobody reads before there is a packer.json
    packer.json             created last: from then on it is a pack, and never before

A run that was killed leaves its scratch folder and what is under `.partial`; the same command goes on with both: the
pack is not built again, and what has a record and the ETag of that record is not uploaded again. Nothing is replaced: a
store has no way to swap a pack that others read for another one.
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
from packer.conversion.plan import Plan
from packer.errors import InvalidRequest, NoObject, PackerError, PackExists
from packer.files.work_folder import ANYTHING, WorkFolder, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.stores.store import Store
from packer.stores.url import StoreURL, URLPath

_PARTIAL = ".partial"
_PLAN = f"{_PARTIAL}/plan.json"
_DONE = f"{_PARTIAL}/done"
_PACK = "pack"  # in the scratch folder, and the work folder of its conversion beside it
_NAMES = {_PACK: ANYTHING, f"\\.{_PACK}\\.partial": ANYTHING}


@dataclass(frozen=True)
class StoreTarget:
    """url: of the pack. scratch: a folder of this machine with room for it."""

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
                f"{target}: a pack is built on this machine before it is uploaded: give --scratch, a folder with room "
                "for it; what is there after a kill is taken up by the same command"
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

    def check(self) -> None:
        """Raise PackExists where a pack is there already that is not the one of an earlier run of this command,
        InvalidRequest where the store does not keep conditions, StoreError.
        """
        try:
            there = self._store.read(manifests.NAME)
        except NoObject:
            there = b""
        if there and not (self.is_built and there == manifests.read(self.folder).to_bytes()):
            raise PackExists(f"{self._target.url}: already there; choose another name")
        if not self._store.keeps_conditions(f"{_PARTIAL}/probe-{uuid.uuid4().hex}"):
            raise InvalidRequest(
                f"{self._target.url}: the store overwrites what is there though it is asked to create it "
                "(If-None-Match), so that of two conversions each would destroy the other's; build the pack in a "
                "folder, and copy it with the store's own tool"
            )

    def has(self, plan: Plan) -> bool:
        """Whether the pack that is built is what this plan gives: of the same files, with the same options."""
        try:
            built = manifests.read(self.folder)
        except PackerError:
            return False
        return built.options == plan.options.to_json() and built.source.get("digest") == plan.digest

    def publish(self) -> Manifest:
        """Upload the pack that is built, and remove it here; raises PackExists, InvalidRequest, StoreError."""
        manifest = manifests.read(self.folder)
        data = manifest.to_bytes()
        claim = manifests.canonical({"pack": hashlib.sha256(data).hexdigest(), "pack_id": manifest.pack_id})
        if not self._store.create(_PLAN, claim):
            raise InvalidRequest(
                f"{self._target.url}: another pack is being published there, or was when its conversion was killed: "
                f"choose another name, or, where nobody publishes it any more, remove what is below "
                f"{self._target.url / _PARTIAL}"
            )
        if self._store.state(manifests.NAME) is None:  # else an earlier run was killed behind it
            for name, sha256, size in _files(manifest):
                self._upload(name, sha256, size)
        if not self._store.create(manifests.NAME, data):
            raise PackExists(f"{self._target.url}: another pack was put there meanwhile; choose another name")
        # in this order: as long as a record is there, so is the claim that keeps others away
        for found in list(self._store.objects(_DONE)):
            self._store.remove(found.name)
        self._store.remove(_PLAN)
        self._work.clear()
        return manifest

    def _upload(self, name: str, sha256: str, size: int) -> None:
        """Bring a file there, unless a record says that it is, and it has the ETag of then."""
        record = f"{_DONE}/{name}.json"
        try:
            known: dict[str, Any] = json.loads(self._store.read(record))
        except NoObject:
            known = {}
        if known.get("sha256") == sha256:
            found = self._store.state(name)
            if found is not None and (found.bytes, found.etag) == (size, known.get("etag")):
                return
        etag = self._store.upload(name, self.folder / name)
        self._store.write(record, manifests.canonical({"bytes": size, "etag": etag, "sha256": sha256}))


def _files(manifest: Manifest) -> Iterator[tuple[str, str, int]]:
    """Name, sha256 and size of all files but the manifest: index and extras last, whose size says that all is there."""
    for part in manifest.parts:
        yield part.name, part.sha256, part.bytes
    for file in manifest.extras:
        yield f"{EXTRAS}/{file.name}", file.sha256, file.bytes
    for file in manifest.index:
        yield f"{INDEX}/{file.name}", file.sha256, file.bytes
