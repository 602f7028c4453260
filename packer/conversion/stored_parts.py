"""Stored parts: those of a conversion to a URL. Each goes to the store when it is finished, from where it is built.

Below the URL, until the pack is published:

    .partial/plan.json            of which plan and versions the parts are: created, so that one of two goes on
    .partial/attempts/<try>       the machine of a try to build a part, see remote_part.py
    .partial/pieces/part-00000... the index entries of a part
    .partial/done/part-00000.json of a finished part: written last, when part and entries are there
    part-00000...                 the part, under its final name

Plan and versions decide a part's bytes, whoever builds it and how often. So conversions with the same ones go on after
each other's parts, from any machine, and put the same bytes where they run side by side; another one is refused. What
is finished is taken up while the object has the size and the ETag of its record.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packer.conversion.build_part import FinishedPart
from packer.errors import CorruptPack, InvalidRequest, NoObject, PackExists, StorageError, printable
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX
from packer.stores.store import Store, StoredObject

PARTIAL = ".partial"
DONE = f"{PARTIAL}/done"
_PLAN = f"{PARTIAL}/plan.json"
_ATTEMPTS = f"{PARTIAL}/attempts"
_PIECES = f"{PARTIAL}/pieces"
MOST_RECORD_BYTES = manifests.MOST_BYTES  # a record has all skipped samples of its part, as the manifest has of all
_MOST_ENTRIES_BYTES = 1 << 30
# what a conversion puts there; a pack of another name may lie deeper
_OURS = re.compile(rf"({re.escape(PARTIAL)}|{EXTRAS}|{INDEX})/.*|part-[0-9]+(\.[a-z0-9]+)?")


@dataclass(frozen=True)
class StoredPlan:
    """The plan whose parts lie below a URL. versions: of what decides a part's bytes, see build_versions.py.

    run: a name for this run alone, of a source that cannot be told from another one; empty for all others.
    """

    fingerprint: str
    versions: Mapping[str, str]
    run: str = ""

    def to_bytes(self) -> bytes:
        """As `plan.json` holds it."""
        return manifests.canonical(asdict(self))


@dataclass(frozen=True)
class StoredParts:
    """The parts of one plan below a store's URL. Pickles; threads and machines may share it."""

    store: Store
    plan: StoredPlan

    # ---- whose they are

    def begin(self, *, giving_way: Collection[str] = ()) -> None:
        """Claim the URL for this plan.

        giving_way: fingerprints of plans whose unfinished parts there are removed.
        Raises InvalidRequest where another plan has it, or something lies there that is no conversion's; StoreError.
        """
        there = self._claimed()
        if there and there.get("fingerprint") in giving_way:
            self._remove_all()
        elif not there:
            self._check_empty()
        if not self.store.create(_PLAN, self.plan.to_bytes()):
            raise InvalidRequest(
                f"{self.store.url}: another pack is on its way there, or was when its conversion was killed"
                f"{self._difference(self._claimed())}: choose another name, or, where nobody works on it any more, "
                f"remove what is below {self.store.url}"
            )

    def _check_empty(self) -> None:
        """So whatever lies there later is this plan's. Raises InvalidRequest."""
        there = self.listed()
        others = [name for name in there if not name.startswith(f"{PARTIAL}/")]
        if others and _PLAN not in there:  # else another machine has begun with this very plan
            raise InvalidRequest(
                f"{self.store.url}: {printable(others[0])} lies there already; choose another name, or remove what is "
                "below it if nobody needs it"
            )

    def check(self) -> None:
        """Raise PackExists where the pack is published by now, StorageError where it is given up, or another's."""
        try:
            there = self.store.read(_PLAN, most=MOST_RECORD_BYTES)
        except NoObject:
            there = b""
        if there == self.plan.to_bytes():
            return
        if self.store.state(manifests.NAME) is not None:
            raise PackExists(f"{self.store.url}: another machine has put a pack there meanwhile")
        raise StorageError(f"{self.store.url}: the conversion to it was given up meanwhile, or is another one's by now")

    def remove(self) -> None:
        """Remove all parts and what is said of them, and give the URL up; nothing where it is claimed for another."""
        if self._claimed() == json.loads(self.plan.to_bytes()):
            self._remove_all()

    def _remove_all(self) -> None:
        there = [name for name in self.listed() if _OURS.fullmatch(name)]
        _remove(self.store, (name for name in there if name.startswith(f"{DONE}/")))
        _remove(self.store, (name for name in there if not name.startswith(f"{DONE}/")))

    def _claimed(self) -> dict[str, Any]:
        """What plan.json says; nothing where there is none, or another's."""
        try:
            found = json.loads(self.store.read(_PLAN, most=MOST_RECORD_BYTES))
        except (NoObject, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _difference(self, there: Mapping[str, Any]) -> str:
        """Which versions differ, where the plan is the same."""
        versions = there.get("versions")
        if there.get("fingerprint") != self.plan.fingerprint or not isinstance(versions, dict):
            return ""
        differing = [
            f"{name} {versions.get(name)!s:.40}, here {said}"
            for name, said in self.plan.versions.items()
            if versions.get(name) != said
        ]
        return f" (of the same plan, by a machine with {'; '.join(differing)})" if differing else ""

    # ---- tries

    def begin_attempt(self, attempt: str, node: str) -> None:
        """A machine has begun to build a part. Raises PackExists, StorageError as `check`."""
        self.check()
        self.store.write(f"{_ATTEMPTS}/{attempt}", node.encode())

    def attempts(self) -> list[str]:
        """The tries that have begun, sorted."""
        return sorted(found.name.rpartition("/")[2] for found in self.store.objects(_ATTEMPTS))

    def node_of(self, attempt: str) -> str:
        """The machine of a try; empty where it had not begun."""
        try:
            return self.store.read(f"{_ATTEMPTS}/{attempt}", most=MOST_RECORD_BYTES).decode(errors="replace")
        except NoObject:
            return ""

    def end_attempt(self, attempt: str) -> None:
        """Nobody asks for it any more."""
        self.store.remove(f"{_ATTEMPTS}/{attempt}")

    # ---- finished parts

    def put(self, path: Path, piece: Path, done: FinishedPart) -> FinishedPart:
        """Bring a finished part there, its index entries, then the record; the same with the part's ETag.

        Raises PackExists, StorageError as `check`, StoreError.
        """
        with failing(piece, "read"):
            entries = piece.read_bytes()
        self.check()  # whoever is late changes no part of a pack that is published
        etag = self.store.upload(done.part.name, path)
        self.store.write(f"{_PIECES}/{done.part.name}", entries)
        found = replace(done, etag=etag)
        self.check()  # nor leaves a record there: an upload takes long
        record = {**asdict(found), "entries": {"bytes": len(entries), "sha256": hashlib.sha256(entries).hexdigest()}}
        self.store.write(f"{DONE}/{_record_name(done.part.name)}", manifests.canonical(record))
        return found

    def listed(self) -> dict[str, StoredObject]:
        """All objects below the URL, by name."""
        return {found.name: found for found in self.store.objects()}

    def record(self, part: str) -> dict[str, Any] | None:
        """What is said of a part that is finished; None where it is not. Raises CorruptPack."""
        name = f"{DONE}/{_record_name(part)}"
        try:
            found = json.loads(self.store.read(name, most=MOST_RECORD_BYTES))
        except NoObject:
            return None
        except (ValueError, RecursionError) as error:
            raise self._damaged(name) from error
        if not isinstance(found, dict):
            raise self._damaged(name)
        return found

    def finished_names(self, there: Iterable[str]) -> Iterator[str]:
        """Of the parts among these objects that have a record."""
        names = set(there)
        return (name for name in sorted(names) if f"{DONE}/{_record_name(name)}" in names)

    def entries(self, part: str, record: Mapping[str, Any]) -> bytes:
        """The index entries of a part; raises CorruptPack where they are not what its record says."""
        name = f"{_PIECES}/{part}"
        try:
            data = self.store.read(name, most=_MOST_ENTRIES_BYTES)
        except NoObject:
            data = b""
        if record.get("entries") != {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}:
            raise self._damaged(name)
        return data

    def _damaged(self, name: str) -> CorruptPack:
        return CorruptPack(
            f"{self.store.url / name}: damaged: not what packer writes; --restart throws the unfinished work away"
        )


def _record_name(part: str) -> str:
    """As of the records on a disk: the part's name without the format's suffix."""
    return f"{part.partition('.')[0]}.json"


def remove_records(store: Store) -> bool:
    """Remove what is below `.partial`; whether there was anything."""
    left = [found.name for found in store.objects(PARTIAL)]
    _remove(store, left)
    return bool(left)


def _remove(store: Store, names: Iterable[str]) -> None:
    """As long as anything else is there, so is the claim that keeps others away."""
    for name in sorted(names, key=lambda name: (name == _PLAN, name)):
        store.remove(name)
