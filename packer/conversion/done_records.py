"""Done-records: which parts of an interrupted conversion are finished, so that the next run goes on after them.

They lie in the work folder beside the target, see work_folder_names.py.

Of a pack behind a URL the parts lie in the store, and what is said of tries and parts lies there too, so that machines
need not share a folder: see stored_parts.py. Records and index entries are here all the same.

A record is a file of its own, written under another name, synced and renamed: it is whole or not there, and whoever
builds a part may write its record, without a word to whoever builds another one.

What is read of an earlier run is read from this very folder, whose marker a copy does not have: a record that came
with an archive is never taken for one's own work. One that does not fit the plan is refused.
"""

import json
import re
import stat
from collections.abc import Collection, Container, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from packer import __version__
from packer.conversion.build_part import FinishedPart
from packer.conversion.work_folder_names import ATTEMPTS, BEING_WRITTEN, DONE, PACK, PIECES, PLAN, RECORD
from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.files.digest import part_bytes
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import WorkFolder
from packer.pack import manifest as manifests
from packer.pack.manifest import Part

if TYPE_CHECKING:  # the client of the stores, which folders do without
    from packer.conversion.stored_parts import StoredParts
    from packer.stores.store import StoredObject
    from packer.stores.url import StoreURL

_NONE: Mapping[str, Any] = MappingProxyType({})
_OPTIONS = {"part_bytes": "--part-size", "extras_bytes": "--extras", "codecs": "--codec"}  # others as they are called


class DoneRecords:
    """The state of one conversion in its work folder. pack, pieces: good as long as the work folder is open."""

    def __init__(self, work: WorkFolder, stored: "StoredParts | None" = None) -> None:
        """stored: where the parts go, of a pack behind a URL."""
        self.work = work
        self.stored = stored
        self._there: dict[str, StoredObject] = {}  # what is in the store, as far as it is known
        self.pack = work.inside / PACK
        self.pieces = work.inside / PIECES
        self.finished: dict[str, FinishedPart] = {}

    def check(
        self,
        fingerprint: str,
        parts: Mapping[str, int],
        *,
        restart: bool,
        options: Mapping[str, Any],
        no_resume: str | None = None,
    ) -> None:
        """Raise InvalidRequest where `begin` would; nothing is changed. Then `finished` is what a run would go on
        after.
        """
        plan = None if restart else self._plan()
        if plan is not None and self._names():
            self._compare(plan, fingerprint, options, no_resume)
            if self.work.status(PACK) is not None and self.work.status(PIECES) is not None:
                every = self._records(parts)
                self.finished = {done.part.name: done for done in every if self._is_there(done)}

    def begin(
        self,
        fingerprint: str,
        parts: Mapping[str, int],
        *,
        restart: bool,
        options: Mapping[str, Any] = _NONE,
        no_resume: str | None = None,
    ) -> None:
        """Take up the work of an earlier run, or start anew; raises InvalidRequest where source or options changed.

        parts: samples of each, in the plan. options: what the user asked for, so that a later run can say what is
        another. no_resume: why the source cannot be told from another one, so that no work of an earlier run is taken
        up.
        """
        plan = None if restart else self._plan()
        if plan is None or (plan.get("fingerprint") != fingerprint and not self._names()):  # no part would be lost
            self._claim({fingerprint, (self._plan() or {}).get("fingerprint", "")} if restart else ())
            self.work.clear()
            for name in (PACK, PIECES, DONE):
                self.work.make_folder(name).close()
            put(self.work, PLAN, {"fingerprint": fingerprint, "options": dict(options), "version": __version__})
            self._adopt_stored(parts)
            return
        self._compare(plan, fingerprint, options, no_resume)
        self._claim()
        every = self._records(parts)
        for name in (PACK, PIECES, DONE):
            self.work.make_folder(name).close()  # `pack` is gone when a run ended right after it became the target
        if not self._is_replaced(every):
            # not there after a power loss on a disk that lies
            self.finished = {done.part.name: done for done in every if self._is_there(done)}
            for attempt in self._local_attempts():
                self._adopt_local(attempt, parts, fingerprint)
            self._adopt_stored(parts)
        self.sweep()

    def _claim(self, giving_way: Collection[str] = ()) -> None:
        """Where parts go to a store: see `StoredParts.begin`."""
        if self.stored is not None:
            self.stored.begin(giving_way=giving_way)
            self._there = self.stored.listed()

    def is_of(self, fingerprint: str) -> bool:
        """Whether the work that lies here is of that plan; True where there is none."""
        plan = self._plan()
        return plan is None or plan.get("fingerprint") == fingerprint

    def _compare(
        self, plan: dict[str, Any], fingerprint: str, options: Mapping[str, Any], no_resume: str | None
    ) -> None:
        """Raise InvalidRequest, saying what is another, where the work in the folder is not of that plan."""
        if no_resume is not None:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion lies here, which cannot go on: {no_resume}; --restart "
                "(restart=True) throws its work away"
            )
        if plan.get("fingerprint") != fingerprint:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion lies here, and since then {_difference(plan, options)}; "
                "--restart throws its work away"
            )

    def _is_replaced(self, every: list[FinishedPart]) -> bool:
        """Whether `pack` is the old pack: a run ended between the swap and `remove`, and sizes alone may agree."""
        try:
            found = manifests.read(self.pack)
        except PackerError:  # none yet, or one that a kill cut short
            return False
        return {part.name: part.sha256 for part in found.parts} != {done.part.name: done.part.sha256 for done in every}

    def _is_there(self, done: FinishedPart) -> bool:
        with self.work.folder(PACK) as pack, self.work.folder(PIECES) as pieces:
            part, piece = pack.status(done.part.name), pieces.status(done.part.name)
        if piece is None or not stat.S_ISREG(piece.st_mode):
            return False
        if self.stored is not None:
            return self._is_stored(done)
        if part is None:
            return False
        is_real = stat.S_ISREG(part.st_mode) or stat.S_ISDIR(part.st_mode)
        return is_real and part_bytes(self.pack / done.part.name) == done.part.bytes

    def _is_stored(self, done: FinishedPart) -> bool:
        found = self._there.get(done.part.name)
        return found is not None and (found.bytes, found.etag) == (done.part.bytes, done.etag)

    def _plan(self) -> dict[str, Any] | None:
        """What plan.json says; None where there is none: then nothing else counts."""
        return None if self.work.status(PLAN) is None else read_json(self.work, PLAN)

    def _names(self) -> list[str]:
        """Of all records, sorted; raises UnsafePath where a link is in the place of their folder."""
        if self.work.status(DONE) is None:
            return []
        with self.work.folder(DONE) as folder:
            return [name for name in folder.names() if not name.endswith(BEING_WRITTEN)]

    def _records(self, parts: Mapping[str, int]) -> list[FinishedPart]:
        names = self._names()
        if not names:
            return []
        with self.work.folder(DONE) as folder:
            return [self._record(folder, name, parts) for name in names]

    def _record(self, folder: FolderHandle, name: str, parts: Mapping[str, int]) -> FinishedPart:
        """One record; raises CorruptPack where it is damaged, or of no part that the plan has."""
        found = _finished_part(read_json(folder, name), parts)
        if found is None or name not in (RECORD, _name_of(found.part.name)):
            raise _damaged(folder.path / name)
        return found

    def sweep(self) -> None:
        """Remove what is unfinished, and so give its space back; raises UnsafePath, StorageError.

        Records go first, on disk too: none outlives its part, whose name the next try takes.
        """
        self.work.check()
        if self._keep(DONE, {_name_of(name) for name in self.finished}):
            with self.work.folder(DONE) as folder:
                folder.sync()
        for name in (PACK, PIECES):
            self._keep(name, self.finished if self.stored is None or name == PIECES else ())
        if self._local_attempts():
            self._keep(ATTEMPTS, ())

    def _keep(self, name: str, kept: Container[str]) -> bool:
        """Remove all others from a folder; whether there were any."""
        with self.work.folder(name) as folder:
            others = [inner for inner in folder.names() if inner not in kept]
            for inner in others:
                folder.remove(inner)
        return bool(others)

    def remove(self) -> None:
        """Remove everything, the plan first: without it the rest counts for nothing, however far this gets."""
        self.work.check()
        self.work.remove(PLAN)
        self.work.sync()
        self.work.clear()

    def remove_all(self) -> None:
        """As `remove`, and what was brought to a store."""
        if self.stored is not None:
            self.stored.remove()
        self.remove()

    # ---- what other processes build

    def attempts(self) -> list[str]:
        """The tries that have begun, sorted."""
        return self._local_attempts() if self.stored is None else self.stored.attempts()

    def _local_attempts(self) -> list[str]:
        if self.work.status(ATTEMPTS) is None:
            return []
        with self.work.folder(ATTEMPTS) as attempts:
            return attempts.names()

    def adopt(self, attempt: str, parts: Mapping[str, int], fingerprint: str) -> FinishedPart | None:
        """Take the part that another process has built into its place; None where it is unfinished.

        parts: the samples of each part that it may be. Raises CorruptPack, UnsafePath, StoreError.
        """
        if self.stored is None:
            return self._adopt_local(attempt, parts, fingerprint)
        own = {name: samples for name, samples in parts.items() if attempt.startswith(f"{_stem(name)}-")}
        for name in own:
            found = self.stored.store.state(name)
            if found is not None:
                self._there[name] = found
            done = self._adopt_stored_part(self.stored, name, parts)
            if done is not None:
                self.stored.end_attempt(attempt)
            return done
        return None

    def _adopt_local(self, attempt: str, parts: Mapping[str, int], fingerprint: str) -> FinishedPart | None:
        with self.work.folder(ATTEMPTS) as attempts:
            if attempts.status(attempt) is None:
                return None
            with attempts.folder(attempt) as folder:
                if folder.status(RECORD) is None or read_json(folder, RECORD).get("fingerprint") != fingerprint:
                    return None
                done = self._record(folder, RECORD, parts)
                if done.part.name not in self.finished:
                    for name in (PACK, PIECES):
                        with folder.folder(name) as inner, self.work.folder(name) as place:
                            if inner.status(done.part.name) is not None:  # else a kill came in between
                                place.remove(done.part.name)
                                inner.replace(done.part.name, place, done.part.name)
                    if not self._is_there(done):
                        return None
                    self.add(done)
            attempts.remove(attempt)
        return done

    def _adopt_stored(self, parts: Mapping[str, int]) -> None:
        """Take up what is finished in the store, by this machine or another one."""
        if self.stored is not None:
            for name in self.stored.finished_names(self._there):
                if name in parts and name not in self.finished:
                    self._adopt_stored_part(self.stored, name, parts)

    def _adopt_stored_part(self, stored: "StoredParts", name: str, parts: Mapping[str, int]) -> FinishedPart | None:
        said = stored.record(name)
        if said is None:
            return None
        done = _finished_part(said, parts)
        if done is None or done.part.name != name:
            raise _damaged(stored.store.url / name)
        if not self._is_stored(done):
            return None
        if done.part.name not in self.finished:
            entries = stored.entries(name, said)
            with self.work.folder(PIECES) as pieces:
                pieces.remove(name)
                pieces.write_file(name, entries)
            self.add(done)
        return done

    def place_of(self, attempt: str) -> str:
        """Where what a try has built is to be seen, for messages."""
        return str(self.work.path / ATTEMPTS / attempt if self.stored is None else self.stored.store.url)

    def node_of(self, attempt: str, name: str) -> str:
        """What the machine of a try has written under that name; empty where it had not begun."""
        if self.stored is not None:
            return self.stored.node_of(attempt)
        with self.work.folder(ATTEMPTS) as attempts:
            if attempts.status(attempt) is None:
                return ""
            with attempts.folder(attempt) as folder:
                return folder.read_file(name).decode(errors="replace")

    def finish(self, done: FinishedPart) -> None:
        """A part that was built here is on disk with its piece, in their places: bring it to the store, if there is
        one, and record it. Any thread may say so.
        """
        if self.stored is not None:
            done = self.stored.put(self.pack / done.part.name, self.pieces / done.part.name, done)
            with self.work.folder(PACK) as pack:
                pack.remove(done.part.name)
        self.add(done)

    def add(self, done: FinishedPart) -> None:
        """Record a part that lies where it belongs, with its piece. Any thread may say so."""
        for name in (PACK, PIECES):
            with self.work.folder(name) as folder:
                folder.sync()
        with self.work.folder(DONE) as folder:
            put(folder, _name_of(done.part.name), asdict(done))
        self.finished[done.part.name] = done


def _name_of(part: str) -> str:
    """The name of a part's record."""
    return f"{_stem(part)}.json"


def _stem(part: str) -> str:
    """A part's name without the format's suffix."""
    found = re.match(r"part-[0-9]+", part)
    return found.group() if found else part


def _finished_part(said: Mapping[str, Any], parts: Mapping[str, int]) -> FinishedPart | None:
    """What a record says; None where it is damaged, or of no part that the plan has."""
    try:
        part = Part.from_json(said["part"])
        sizes = _count(said["bytes_in"]), _count(said["bytes_out"])
        skipped, incomplete = _pairs(said["skipped"]), _pairs(said["incomplete"])
        etag = said.get("etag", "")
        found = FinishedPart(part, *sizes, skipped, incomplete, _counts(said["findings"]), etag)
    except (KeyError, TypeError, ValueError):
        return None
    is_planned = part.name in parts and part.samples + len(skipped) == parts[part.name]
    return found if is_planned and isinstance(etag, str) else None


def put(folder: FolderHandle, name: str, content: Mapping[str, Any]) -> None:
    """Write a file that is whole or not there, synced with its name; what a kill left of an earlier one goes."""
    folder.remove(name + BEING_WRITTEN)
    folder.write_file(name + BEING_WRITTEN, json.dumps(content).encode() + b"\n")
    folder.replace(name + BEING_WRITTEN, folder, name)


def read_json(folder: FolderHandle, name: str) -> dict[str, Any]:
    """The object in a file; raises CorruptPack where there is none."""
    text = folder.read_file(name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(folder.path / name) from error
    if not isinstance(found, dict):
        raise _damaged(folder.path / name)
    return found


def _damaged(place: "Path | StoreURL") -> CorruptPack:
    return CorruptPack(f"{place}: damaged: not what packer writes; --restart throws the work away")


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a count, found {value!r:.40}")
    return value


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise TypeError(f"expected counts, found {value!r:.40}")
    return {name: _count(count) for name, count in value.items()}


def _pairs(value: Any) -> list[list[str]]:
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not (pairs and all(isinstance(text, str) for pair in value for text in pair)):
        raise TypeError(f"expected keys with reasons, found {value!r:.40}")
    return list(value)


def _difference(plan: dict[str, Any], now: Mapping[str, Any]) -> str:
    """What is another than in the run whose plan it is."""
    then = plan.get("options")
    if not isinstance(then, dict) or not then or not now:
        return "the source, the options or packer's version changed"
    changed = [
        f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))} was {_said(then.get(name))}, now {_said(now.get(name))}"
        for name in sorted({*then, *now} - {"source"})
        if then.get(name) != now.get(name)
    ]
    if then.get("source") != now.get("source"):
        changed.append("what is asked of the source (--from, --split, --sidecar, --missing ...) changed")
    if plan.get("version") != __version__:
        changed.append(f"packer was {plan.get('version')!s:.20}, now {__version__}")
    return "; ".join(changed) or "files of the source changed"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items()) or "not given"
    return ",".join(map(str, value)) if isinstance(value, list) else "not given" if value is None else f"{value}"
