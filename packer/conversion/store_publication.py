"""Store publication: a pack behind a URL. The machine that builds a part also uploads the part.

During a conversion, the URL contains these objects:

`.partial/plan.json`: the fingerprint of the plan, and the library versions.

`.partial/attempts/<task>`: the name of the machine that runs this task. Each task builds one part.

`.partial/pieces/part-00000...`: the index entries of a part.

`.partial/done/<name>.json`: the record of a finished part, or of another uploaded file.

`part-00000...`, `extras/`, `index/`: the files of the pack.

The store creates `plan.json` only once, so only one conversion may write to the URL. A later run with an equal plan and
equal versions continues the conversion from any machine. A run with another plan raises an error. A finished part is
used again if its object has the size and the ETag in the record. `packer.json` is created last and completes the pack.
A pack behind a URL is never replaced, because a store cannot swap a pack that other processes read.

The scratch folder on this machine contains the index entries of all parts, and each part until it is uploaded. If this
folder is lost, a later run can still continue.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packer import formats
from packer.conversion.build_part import FinishedPart
from packer.conversion.machine_versions import library_versions
from packer.conversion.plan import Plan
from packer.conversion.publication import (
    Publication,
    damaged,
    parse_object,
    parse_record,
    read_plan,
    record_name,
)
from packer.conversion.work_folder_layout import NAMES, PACK, PIECES
from packer.errors import InvalidRequest, NoObject, PackExists, StorageError, printable
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import WorkFolder, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.stores.store import Store, StoredObject
from packer.stores.url import URLPath

_PARTIAL = ".partial"
_DONE = f"{_PARTIAL}/done"
_PLAN = f"{_PARTIAL}/plan.json"
_ATTEMPTS = f"{_PARTIAL}/attempts"
_PIECES = f"{_PARTIAL}/pieces"
_MOST_RECORD_BYTES = manifests.MOST_BYTES  # a record lists skipped samples, as the manifest does
_MOST_ENTRIES_BYTES = 1 << 30
# names of objects that a conversion writes; other packs below the URL do not match
_OWN_NAMES = re.compile(rf"({re.escape(_PARTIAL)}|{EXTRAS}|{INDEX})/.*|part-[0-9]+(\.[a-z0-9]+)?")


@contextmanager
def scratch_folder(target: URLPath, scratch: Path | None, *, overwrite: bool) -> Iterator[WorkFolder]:
    """Return a `with` block that yields the locked work folder for the pack `target`, in the folder `scratch`.

    If `scratch` is None or missing, if `overwrite` is true, or if the URL is not writable, raise InvalidRequest.
    """
    if target.url.is_web:
        raise InvalidRequest(f"{target}: a web server cannot be written; give s3://, gs:// or az://")
    if not target.url.key:
        raise InvalidRequest(f"{target}: a pack cannot be a complete bucket; give a name in it, {target}/NAME")
    if overwrite:
        raise InvalidRequest(
            f"{target}: --overwrite is for folders: a store cannot swap a pack that others read; give another name, "
            "and remove the old pack later"
        )
    if scratch is None:
        raise InvalidRequest(
            f"{target}: give --scratch, a folder of this machine with room for the index and for a few parts, which "
            "are built there before they are uploaded"
        )
    if not scratch.is_dir():
        raise InvalidRequest(f"{scratch}: --scratch: the folder does not exist; make it first")
    name = f".packer-{hashlib.sha256(str(target.url).encode()).hexdigest()[:32]}"
    with work_folder(scratch / name, NAMES) as work:
        yield work


def published_pack(target: URLPath, work: WorkFolder) -> Manifest | None:
    """Return the manifest of a pack that an interrupted run published, or None if the URL has no pack.

    The temporary objects of the interrupted run are removed.

    Raises:
        PackExists: the URL has a pack without temporary objects, so no interrupted run published this pack.
        InvalidRequest: the store overwrites objects that must be created only once.
    """
    store = Store(target.url)
    try:
        content = store.read(manifests.NAME, most=manifests.MOST_BYTES)
    except NoObject:
        if store.keeps_conditions(f"{_PARTIAL}/probe-{uuid.uuid4().hex}"):
            return None
        raise InvalidRequest(
            f"{target}: the store overwrites objects that it is asked to create (If-None-Match), so that two "
            "conversions would destroy each other's pack; build the pack in a folder and copy it with the store's tool"
        ) from None
    has_work = bool(work.content())
    work.clear()
    if not _remove_partial(store) and not has_work:
        raise already_there(target)
    return manifests.parse(str(target.url / manifests.NAME), content)


def already_there(target: URLPath) -> PackExists:
    """Return the error for a URL that already has a pack."""
    return PackExists(f"{target}: already there; choose another name")


class StorePublication(Publication):
    """Publication of a pack behind a URL. The manifest is created last and makes the pack visible."""

    keeps_parts = False

    def __init__(self, plan: Plan, target: URLPath, work: WorkFolder) -> None:
        super().__init__(plan, target, work)
        if formats.load(plan.options.to).Reader.is_folder:
            raise InvalidRequest(
                f"{target}: parts of the format {plan.options.to} are folders of files, which are slow to read from a "
                "store; use --to lmdb"
            )
        run = "" if plan.source.resume_reason is None else uuid.uuid4().hex
        self._store = Store(target.url)
        self._delivery = StoreDelivery(
            self._store, plan.fingerprint, library_versions(pixels=not plan.keeps_bytes), run
        )
        self._objects: dict[str, StoredObject] = {}  # known objects below the URL, by name

    def begin(self, *, restart: bool) -> None:
        earlier = (read_plan(self.work) or {}).get("fingerprint", "")
        self._delivery.claim(giving_way={self.plan.fingerprint, earlier} if restart else ())
        self._start()
        self._objects = self._delivery.objects()
        for name in self.plan.part_samples:
            if f"{_DONE}/{record_name(name)}" in self._objects:
                self._take_up(name)

    def _take_up(self, name: str) -> FinishedPart | None:
        """Add a part of an earlier run to `finished`. Return None if it has no record, or if its object has changed."""
        record = self._delivery.record(name)
        if record is None:
            return None
        done = parse_record(record, self.plan)
        if done is None or done.part.name != name:
            raise damaged(self._store.url / name)
        found = self._objects.get(name)
        if found is None or (found.bytes, found.etag) != (done.part.bytes, done.etag):
            return None
        if name not in self.finished:
            entries = self._delivery.entries(name, record)
            with self.work.folder(PIECES) as pieces:
                pieces.remove(name)
                pieces.write_file(name, entries)
            self.finished[name] = done
        return done

    def finish(self, done: FinishedPart) -> None:
        name = done.part.name
        self.finished[name] = self._delivery.put(self.pack / name, self.pieces / name, done)
        with self.work.folder(PACK) as pack:
            pack.remove(name)

    def remove(self) -> None:
        self._delivery.remove()
        super().remove()

    # ---- parts that other machines build

    @property
    def delivery(self) -> "StoreDelivery":
        return self._delivery

    def attempts(self) -> list[str]:
        return sorted(found.name.rpartition("/")[2] for found in self._store.objects(_ATTEMPTS))

    def adopt(self, attempt: str) -> FinishedPart | None:
        name = self.plan.part_name(int(attempt.split("-")[1]))
        found = self._store.state(name)
        if found is not None:
            self._objects[name] = found
        done = self._take_up(name)
        if done is not None:
            self._store.remove(f"{_ATTEMPTS}/{attempt}")
        return done

    def node_of(self, attempt: str) -> str:
        try:
            return self._store.read(f"{_ATTEMPTS}/{attempt}", most=_MOST_RECORD_BYTES).decode(errors="replace")
        except NoObject:
            return ""

    def place_of(self, attempt: str) -> str:
        return str(self._store.url)

    # ---- the end

    def publish(self, manifest: Manifest) -> None:
        if self._store.state(manifests.NAME) is None:  # another machine may have published this plan
            self._delivery.claim()
            objects = self._delivery.objects()
            for part in manifest.parts:
                if part.name not in objects or objects[part.name].bytes != part.bytes:
                    raise StorageError(
                        f"{self._store.url / part.name}: removed or replaced since it was uploaded; --restart builds "
                        "all parts again"
                    )
            for folder, files in ((EXTRAS, manifest.extras), (INDEX, manifest.index)):  # the index shows completeness
                for file in files:
                    self._upload(f"{folder}/{file.name}", file.sha256, file.bytes)
        if not self._store.create(manifests.NAME, manifest.to_bytes()):
            raise PackExists(f"{self.target}: another pack appeared there during the conversion; choose another name")
        _remove_partial(self._store)
        self.work.clear()

    def _upload(self, name: str, sha256: str, size: int) -> None:
        record = f"{_DONE}/{name}.json"
        try:
            known: dict[str, Any] = json.loads(self._store.read(record, most=_MOST_RECORD_BYTES))
        except NoObject:
            known = {}
        if known.get("sha256") == sha256:
            found = self._store.state(name)
            if found is not None and (found.bytes, found.etag) == (size, known.get("etag")):
                return
        etag = self._store.upload(name, self.pack / name)
        self._store.write(record, manifests.canonical({"bytes": size, "etag": etag, "sha256": sha256}))


@dataclass(frozen=True)
class StoreDelivery:
    """Transfer of parts to a store. Picklable and thread-safe.

    Attributes:
        fingerprint: the fingerprint of the plan.
        versions: the result of `library_versions` on the machine that runs `convert`.
        run: a unique id if a later run must not continue this run, otherwise "".
    """

    store: Store
    fingerprint: str
    versions: Mapping[str, str]
    run: str = ""

    @property
    def _claim(self) -> bytes:
        return manifests.canonical({"fingerprint": self.fingerprint, "versions": dict(self.versions), "run": self.run})

    def claim(self, *, giving_way: Collection[str] = ()) -> None:
        """Reserve the URL for this plan: create `plan.json`.

        Args:
            giving_way: fingerprints of plans. If the URL is reserved for one of them, its objects are removed first.

        Raises:
            InvalidRequest: the URL is reserved for another plan, or contains other objects.
        """
        there = self._claimed()
        if there and there.get("fingerprint") in giving_way:
            self._remove_all()
        elif not there:
            self._check_empty()
        if not self.store.create(_PLAN, self._claim):
            raise InvalidRequest(
                f"{self.store.url}: another pack is on its way there{self._difference(self._claimed())}; choose "
                f"another name, or, if its conversion was killed, remove what is below {self.store.url}"
            )

    def _check_empty(self) -> None:
        there = self.objects()
        others = [name for name in there if not name.startswith(f"{_PARTIAL}/")]
        if others and _PLAN not in there:  # else another machine has begun with this plan
            raise InvalidRequest(
                f"{self.store.url}: {printable(others[0])} is already there; choose another name, or remove what is "
                "below it"
            )

    def _claimed(self) -> dict[str, Any]:
        try:
            found = json.loads(self.store.read(_PLAN, most=_MOST_RECORD_BYTES))
        except (NoObject, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _difference(self, there: Mapping[str, Any]) -> str:
        versions = there.get("versions")
        if there.get("fingerprint") != self.fingerprint or not isinstance(versions, dict):
            return ""
        differing = [
            f"{name} {versions.get(name)!s:.40}, here {here}"
            for name, here in self.versions.items()
            if versions.get(name) != here
        ]
        return f" (of the same plan, by a machine with {'; '.join(differing)})" if differing else ""

    def remove(self) -> None:
        """Remove all objects of this conversion. If the URL is reserved for another plan, do nothing."""
        if self._claimed() == json.loads(self._claim):
            self._remove_all()

    def _remove_all(self) -> None:
        own = [name for name in self.objects() if _OWN_NAMES.fullmatch(name)]
        _remove(self.store, (name for name in own if name.startswith(f"{_DONE}/")))
        _remove(self.store, (name for name in own if not name.startswith(f"{_DONE}/")))

    def _check_claim(self) -> None:
        """Raise StorageError if `plan.json` is not from this conversion, or PackExists if the URL has a pack."""
        try:
            there = self.store.read(_PLAN, most=_MOST_RECORD_BYTES)
        except NoObject:
            there = b""
        if there == self._claim:
            return
        if self.store.state(manifests.NAME) is not None:
            raise PackExists(f"{self.store.url}: another machine has put a pack there")
        raise StorageError(f"{self.store.url}: the conversion was removed, or another one has the URL now")

    # ---- parts

    def check_shared(self) -> None:
        """Do nothing, because the machines share only the store."""

    @contextmanager
    def begun(self, attempt: str, node: str) -> Iterator[FolderHandle | None]:
        self._check_claim()
        self.store.write(f"{_ATTEMPTS}/{attempt}", node.encode())
        yield None

    def deliver(self, done: FinishedPart, scratch: FolderHandle, folder: FolderHandle) -> None:
        self.put(scratch.inside / PACK / done.part.name, scratch.inside / PIECES / done.part.name, done)

    def put(self, path: Path, piece: Path, done: FinishedPart) -> FinishedPart:
        """Upload a finished part, the index entries, and the record. Return the part with the ETag of the store.

        Args:
            path: the file of the part.
            piece: the file of the index entries.
            done: the description of the part.
        """
        name = done.part.name
        with failing(piece, "read"):
            entries = piece.read_bytes()
        self._check_claim()  # a slow machine must not change a published pack
        etag = self.store.upload(name, path)
        self.store.write(f"{_PIECES}/{name}", entries)
        found = replace(done, etag=etag)
        self._check_claim()  # again after the upload, which takes long
        record = {**asdict(found), "entries": _summary(entries)}
        self.store.write(f"{_DONE}/{record_name(name)}", manifests.canonical(record))
        return found

    def objects(self) -> dict[str, StoredObject]:
        """Return all objects below the URL by name."""
        return {found.name: found for found in self.store.objects()}

    def record(self, part: str) -> dict[str, Any] | None:
        """Return the record of a part, or None if the part is not finished. A damaged record raises CorruptPack."""
        name = f"{_DONE}/{record_name(part)}"
        try:
            return parse_object(self.store.read(name, most=_MOST_RECORD_BYTES), self.store.url / name)
        except NoObject:
            return None

    def entries(self, part: str, record: Mapping[str, Any]) -> bytes:
        """Return the index entries of a part. If they do not match the checksum in `record`, raise CorruptPack."""
        name = f"{_PIECES}/{part}"
        try:
            data = self.store.read(name, most=_MOST_ENTRIES_BYTES)
        except NoObject:
            data = b""
        if record.get("entries") != _summary(data):
            raise damaged(self.store.url / name)
        return data


def _summary(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _remove_partial(store: Store) -> bool:
    left = [found.name for found in store.objects(_PARTIAL)]
    _remove(store, left)
    return bool(left)


def _remove(store: Store, names: Iterable[str]) -> None:
    """Remove objects. `plan.json` is removed last, because it keeps other conversions away from the URL."""
    for name in sorted(names, key=lambda name: (name == _PLAN, name)):
        store.remove(name)
