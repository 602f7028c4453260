"""Publication: collects the parts of one plan and turns the parts into a pack. `FolderPublication` writes to a folder.

A pack on disk is built in a work folder next to the target (see work_folder_layout.py). Each finished part has a record
file. Each record is written to a temporary file, synced and renamed, so a record is complete or absent. A later run
skips the recorded parts. It refuses a copy of a work folder, because the marker of the folder is not valid in a copy.

A worker process may also build a part, in a separate folder `attempts/<task>`. `adopt` moves the complete part into the
work folder, in this run or in a later run.
"""

import json
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from packer import __version__
from packer.conversion.build_part import FinishedPart
from packer.conversion.plan import Plan
from packer.conversion.work_folder_layout import ATTEMPTS, BEING_WRITTEN, DONE, PACK, PIECES, PLAN, RECORD
from packer.errors import CorruptPack, InvalidRequest, PackerError, PackExists, StorageError
from packer.files.digest import part_bytes
from packer.files.folder_handle import FolderHandle, link
from packer.files.fsync import sync_part
from packer.files.storage_errors import failing
from packer.files.terminal_output import shell_word
from packer.files.work_folder import WorkFolder
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from packer.pack.unlisted_files import check_replaceable, check_whole
from packer.stores.url import StoreURL

_NODE = "node"
_OPTIONS = {"part_bytes": "--part-size", "extras_bytes": "--extras", "codecs": "--codec"}  # others: equal names


class Delivery(Protocol):
    """Transfer of parts from worker processes to the pack. Picklable: each worker receives a copy."""

    def check_shared(self) -> None:
        """Raise InvalidRequest if this machine cannot read the work folder, which all machines must share."""

    def begun(self, attempt: str, node: str) -> AbstractContextManager[FolderHandle | None]:
        """Return a `with` block for one task, in which a worker process builds one part. Entering registers the task.

        The block yields a new, empty folder for the part, or None if the pack is behind a URL.

        Args:
            attempt: the unique name of the task.
            node: the name of the machine of the worker, for messages.
        """

    def deliver(self, done: FinishedPart, scratch: FolderHandle, folder: FolderHandle) -> object:
        """Transfer a finished part to the pack, then write the record that marks the part as complete.

        If the pack is behind a URL, the part is uploaded. Otherwise, the part is copied from `scratch` to `folder`.

        Args:
            done: the description of the part.
            scratch: the folder that contains the part.
            folder: the folder that `begun` yields. May be the object `scratch`; then no file is copied. Ignored if
                the pack is behind a URL.
        """


class Publication(ABC):
    """Collection of the finished parts of one plan; `publish` turns the parts into a pack.

    Attributes:
        target: the path or URL of the pack.
        work: the work folder, locked by this process.
        pack: the path of the folder of parts, valid while `work` is open.
        pieces: the path of the folder of index entries, one file for each part, valid while `work` is open.
        finished: the parts that have a record, by name of the part.
        keeps_parts: True if finished parts stay on this disk; False if finished parts are uploaded.
    """

    keeps_parts = True

    def __init__(self, plan: Plan, target: Path, work: WorkFolder) -> None:
        self.plan = plan
        self.target = target
        self.work = work
        self.pack = work.inside / PACK
        self.pieces = work.inside / PIECES
        self.finished: dict[str, FinishedPart] = {}

    @abstractmethod
    def begin(self, *, restart: bool) -> None:
        """Prepare the work folder, and fill `finished` with the parts of an earlier run.

        If `restart` is true, remove the parts of the earlier run. Otherwise, finished parts of another plan raise
        InvalidRequest.
        """

    @abstractmethod
    def finish(self, done: FinishedPart) -> None:
        """Add a part to `finished`, and store the record of the part for later runs. Thread-safe.

        The part must be in the folder `pack` already, and its index entries in the folder `pieces`.
        """

    @abstractmethod
    def publish(self, manifest: Manifest) -> None:
        """Write the manifest, make the pack visible, and empty the work folder.

        A target that exists and may not be replaced raises PackExists. A disk or store that fails raises StorageError.
        """

    def remove(self) -> None:
        """Remove all files of the unfinished conversion."""
        _clear(self.work)

    def sweep(self) -> None:
        """Remove the files of all parts that are not in `finished`."""
        self.work.check()
        self._keep(PACK, self.finished if self.keeps_parts else ())
        self._keep(PIECES, self.finished)

    # ---- parts that other processes build

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """Object that transfers parts from worker processes to the pack."""

    @abstractmethod
    def attempts(self) -> list[str]:
        """Return the sorted names of the worker tasks that have started and whose part is not yet adopted."""

    @abstractmethod
    def adopt(self, attempt: str) -> FinishedPart | None:
        """Return the part that the worker task `attempt` has built, and add this part to the finished parts.

        If the part is incomplete, return None and add nothing. A damaged record raises CorruptPack.
        """

    @abstractmethod
    def node_of(self, attempt: str) -> str:
        """Return the machine that runs the worker task `attempt`, or "" if the task has not started."""

    @abstractmethod
    def place_of(self, attempt: str) -> str:
        """Return the path or URL to which the worker task `attempt` writes, for messages."""

    # ---- the work folder

    def _start(self, *folders: str) -> None:
        self.work.clear()
        for name in (PACK, PIECES, *folders):
            self.work.make_folder(name).close()
        options = self.plan.options.to_json()
        plan = {"fingerprint": self.plan.fingerprint, "options": options, "version": __version__}
        _put(self.work, PLAN, {**plan, "schema": self.plan.schema.to_json()})

    def _keep(self, name: str, kept: Container[str]) -> bool:
        """Remove the files of folder `name` that are not in `kept`. Return True if a file was removed."""
        with self.work.folder(name) as folder:
            others = [inner for inner in folder.names() if inner not in kept]
            for inner in others:
                folder.remove(inner)
        return bool(others)


class FolderPublication(Publication):
    """Publication of a pack in a folder. One rename makes the pack visible."""

    def __init__(self, plan: Plan, target: Path, work: WorkFolder, *, overwrite: bool = False) -> None:
        super().__init__(plan, target, work)
        self._overwrite = overwrite

    # ---- continuing an earlier run

    def check(self, *, restart: bool) -> None:
        """Fill `finished` and raise the errors that `begin` would raise, but write no file."""
        earlier = None if restart else read_plan(self.work)
        records = {} if earlier is None else read_records(self.work)
        if earlier is not None and records:
            self._compare(earlier)
            if self.work.status(PACK) is not None and self.work.status(PIECES) is not None:
                self._find_finished(records)

    def begin(self, *, restart: bool) -> None:
        if not restart:
            clear_replaced(self.work)
        earlier = None if restart else read_plan(self.work)
        records = {} if earlier is None else read_records(self.work)
        if earlier is None or (earlier.get("fingerprint") != self.plan.fingerprint and not records):
            self._start(DONE)
            return
        self._compare(earlier)
        for name in (PACK, PIECES, DONE):
            self.work.make_folder(name).close()  # `pack` is absent if a run ended right after the rename
        self._find_finished(records)
        for attempt in self.attempts():
            self.adopt(attempt)
        self.sweep()

    def _find_finished(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        place = self.work.path / DONE
        done = [self._parsed(content, name, place / name) for name, content in records.items()]
        self.finished = {each.part.name: each for each in done if self._is_present(each)}

    def _compare(self, earlier: dict[str, Any]) -> None:
        """Raise InvalidRequest if the earlier run has another plan, or if no run can continue (`resume_reason`)."""
        reason = self.plan.source.resume_reason
        if reason is not None:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion, which cannot go on: {reason}; --restart (restart=True) "
                "removes its work"
            )
        if earlier.get("fingerprint") != self.plan.fingerprint:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion, and since then "
                f"{_difference(earlier, self.plan.options.to_json())}; --restart removes its work"
            )

    def _is_present(self, done: FinishedPart) -> bool:
        """Return True if the part has its full size and the index entries exist. A power failure may lose files."""
        with self.work.folder(PACK) as pack, self.work.folder(PIECES) as pieces:
            part, piece = pack.status(done.part.name), pieces.status(done.part.name)
        if part is None or piece is None or not stat.S_ISREG(piece.st_mode):
            return False
        is_real = stat.S_ISREG(part.st_mode) or stat.S_ISDIR(part.st_mode)
        return is_real and part_bytes(self.pack / done.part.name) == done.part.bytes

    def _parsed(self, content: Mapping[str, Any], name: str, place: Path) -> FinishedPart:
        found = parse_record(content, self.plan)
        if found is None or name not in (RECORD, record_name(found.part.name)):
            raise damaged(place)
        return found

    def sweep(self) -> None:
        self.work.check()
        if self._keep(DONE, {record_name(name) for name in self.finished}):
            with self.work.folder(DONE) as folder:
                folder.sync()  # before the part is removed, because a rebuilt part has the same name
        super().sweep()
        if self.attempts():
            self._keep(ATTEMPTS, ())

    def finish(self, done: FinishedPart) -> None:
        for name in (PACK, PIECES):
            with self.work.folder(name) as folder:
                folder.sync()
        with self.work.folder(DONE) as folder:
            _put(folder, record_name(done.part.name), asdict(done))
        self.finished[done.part.name] = done

    # ---- parts that other processes build

    @property
    def delivery(self) -> "FolderDelivery":
        self.work.make_folder(ATTEMPTS).close()
        return FolderDelivery(self.work.path.absolute(), self.plan.fingerprint)

    def attempts(self) -> list[str]:
        if self.work.status(ATTEMPTS) is None:
            return []
        with self.work.folder(ATTEMPTS) as attempts:
            return attempts.names()

    def adopt(self, attempt: str) -> FinishedPart | None:
        with self.work.folder(ATTEMPTS) as attempts:
            if attempts.status(attempt) is None:
                return None
            with attempts.folder(attempt) as folder:
                record = {} if folder.status(RECORD) is None else _read_json(folder, RECORD)
                if record.get("fingerprint") != self.plan.fingerprint:
                    return None
                done = self._parsed(record, RECORD, folder.path / RECORD)
                if done.part.name not in self.finished:
                    for name in (PACK, PIECES):
                        with folder.folder(name) as inner, self.work.folder(name) as place:
                            if inner.status(done.part.name) is not None:  # absent if a kill came between the two
                                place.remove(done.part.name)
                                inner.replace(done.part.name, place, done.part.name)
                    if not self._is_present(done):
                        return None
                    self.finish(done)
            attempts.remove(attempt)
        return done

    def node_of(self, attempt: str) -> str:
        with self.work.folder(ATTEMPTS) as attempts:
            if attempts.status(attempt) is None:
                return ""
            with attempts.folder(attempt) as folder:
                return folder.read_file(_NODE).decode(errors="replace")

    def place_of(self, attempt: str) -> str:
        return str(self.work.path / ATTEMPTS / attempt)

    # ---- the end

    def check_free(self) -> None:
        """Raise PackExists if the target exists and `overwrite` is false."""
        if not self._overwrite and os.path.lexists(self.target):
            check_target(None, self.target, overwrite=False)

    def publish(self, manifest: Manifest) -> None:
        self.check_free()  # a conversion takes hours
        with self.work.folder(PACK) as pack:
            pack.write_file(manifests.NAME, manifest.to_bytes())
        if self._overwrite and os.path.lexists(self.target):
            self._replace()
        else:
            self.work.publish(PACK, self.work.above, self.target.name)
        self.remove()

    def _replace(self) -> None:
        """Swap the new pack with the old pack. If the old pack has changed, swap back and raise InvalidRequest."""
        check_replaceable(self.target)
        self.work.swap(PACK, self.work.above, self.target.name)
        try:
            check_whole(self.pack)
        except PackerError as error:
            self.work.swap(PACK, self.work.above, self.target.name)
            check_replaceable(self.target)  # moved back to the target
            raise InvalidRequest(f"{self.target}: changed while it was replaced; run again") from error


@dataclass(frozen=True)
class FolderDelivery:
    """Transfer of parts through the work folder, which all machines must share.

    Attributes:
        work: the path of the work folder.
        fingerprint: the fingerprint of the plan.
    """

    work: Path
    fingerprint: str

    def check_shared(self) -> None:
        if not (self.work / PLAN).exists():
            raise InvalidRequest(f"{self.work}: not found; every machine must see the folder of the pack")

    @contextmanager
    def begun(self, attempt: str, node: str) -> Iterator[FolderHandle]:
        with FolderHandle.at(self.work) as work:
            if _read_json(work, PLAN).get("fingerprint") != self.fingerprint:
                raise StorageError(f"{self.work}: another conversion uses this folder now")
            with work.folder(ATTEMPTS) as attempts, attempts.make_folder(attempt) as folder:
                folder.write_file(_NODE, node.encode())
                attempts.sync()
                yield folder

    def deliver(self, done: FinishedPart, scratch: FolderHandle, folder: FolderHandle) -> None:
        for name in (PACK, PIECES):
            if scratch is not folder:
                folder.make_folder(name).close()
                copy_part(scratch.inside / name / done.part.name, folder.inside / name / done.part.name)
            with folder.folder(name) as inner:
                inner.sync()
        _put(folder, RECORD, {**asdict(done), "fingerprint": self.fingerprint})


def copy_part(source: Path, target: Path, *, links: bool = False) -> None:
    """Copy a file, or a folder with its files, and sync the copy. A failed operation raises StorageError.

    If `links` is true, hard links replace the copies where the file system supports them. The files must be synced.
    """
    copy = _link_file if links else _copy_file
    with failing(target, "copy"):
        if source.is_dir():
            target.mkdir()
            for inner in sorted(source.rglob("*")):  # a folder comes before its files
                place = target / inner.relative_to(source)
                place.mkdir() if inner.is_dir() else copy(inner, place)
        else:
            copy(source, target)
    if not links or target.is_dir():
        sync_part(target)


def _copy_file(source: Path, target: Path) -> None:
    import shutil  # slow import, which few conversions need

    with source.open("rb") as read, target.open("xb") as written:
        shutil.copyfileobj(read, written, 4 << 20)


def _link_file(source: Path, target: Path) -> None:
    if not link(source, target):
        _copy_file(source, target)
        sync_part(target)


# ---- records


def read_plan(work: FolderHandle) -> dict[str, Any] | None:
    """Return the content of `plan.json` in a work folder, or None if the file is absent."""
    return None if work.status(PLAN) is None else _read_json(work, PLAN)


def read_records(work: FolderHandle) -> dict[str, dict[str, Any]]:
    """Return the JSON of each record of a finished part in a work folder, by file name."""
    if work.status(DONE) is None:
        return {}
    with work.folder(DONE) as folder:
        return {name: _read_json(folder, name) for name in folder.names() if not name.endswith(BEING_WRITTEN)}


def clear_replaced(work: WorkFolder) -> None:
    """Clear a work folder whose `pack` is the replaced pack, because its run ended before it could remove this pack."""
    if read_plan(work) is not None:  # removed first
        try:
            parts = [vars(part) for part in manifests.read(work.inside / PACK).parts]
        except PackerError:  # absent or incomplete
            return
        if all(record.get("part") in parts for record in read_records(work).values()):
            return
    _clear(work)


def _clear(work: WorkFolder) -> None:
    work.check()
    work.remove(PLAN)  # first, because other files are ignored without a plan
    work.sync()
    work.clear()


def record_name(part: str) -> str:
    """Return the file name of the record of a part: `part-00000.json` for `part-00000.tar`."""
    found = re.match(r"part-[0-9]+", part)
    return f"{found.group() if found else part}.json"


def parse_record(content: Mapping[str, Any], plan: Plan) -> FinishedPart | None:
    """Return the part that a record describes.

    If the record is damaged, or the plan has no part of this name and number of samples, return None.
    """
    try:
        part = Part.from_json(content["part"])
        sizes = _count(content["bytes_in"]), _count(content["bytes_out"])
        skipped, incomplete = _pairs(content["skipped"]), _pairs(content["incomplete"])
        etag = content.get("etag", "")
        found = FinishedPart(part, *sizes, skipped, incomplete, _counts(content["findings"]), etag)
    except (KeyError, TypeError, ValueError):
        return None
    is_planned = plan.has_part(part.name, part.samples + len(skipped))
    return found if is_planned and isinstance(etag, str) else None


def _put(folder: FolderHandle, name: str, content: Mapping[str, Any]) -> None:
    """Write a JSON file under a temporary name, then rename the file to `name`."""
    folder.remove(name + BEING_WRITTEN)
    folder.write_file(name + BEING_WRITTEN, json.dumps(content).encode() + b"\n")
    folder.replace(name + BEING_WRITTEN, folder, name)


def _read_json(folder: FolderHandle, name: str) -> dict[str, Any]:
    return parse_object(folder.read_file(name), folder.path / name)


def parse_object(text: bytes, place: Path | StoreURL) -> dict[str, Any]:
    """Parse a JSON object. Other text raises CorruptPack, whose message names `place`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(place) from error
    if not isinstance(found, dict):
        raise damaged(place)
    return found


def damaged(place: Path | StoreURL) -> CorruptPack:
    """Return the error for a damaged file `place` of an unfinished conversion."""
    return CorruptPack(f"{place}: damaged: not what packer writes; --restart removes the unfinished work")


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
    then = plan.get("options")
    if not isinstance(then, dict) or not then:
        return "the source, the options or packer's version changed"
    changed = [
        f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))} was {_shown(then.get(name))}, now {_shown(now.get(name))}"
        for name in sorted({*then, *now} - {"source"})
        if then.get(name) != now.get(name)
    ]
    if then.get("source") != now.get("source"):
        changed.append("the options of the source (--from, --split, --sidecar, --missing ...) changed")
    if plan.get("version") != __version__:
        changed.append(f"packer was {plan.get('version')!s:.20}, now {__version__}")
    return "; ".join(changed) or "files of the source changed"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items()) or "not given"
    return ",".join(map(str, value)) if isinstance(value, list) else "not given" if value is None else f"{value}"


# ---- the target


def check_target(root: Path | None, target: Path, *, overwrite: bool) -> None:
    """Check that a pack can be written to the folder `target`.

    Args:
        root: the folder of the source, or None if the source has no folder.
        target: the folder of the new pack.
        overwrite: True if an existing pack may be replaced.

    Raises:
        InvalidRequest: the target is inside the source, is a link, or has no parent folder.
        PackExists: the target exists and `overwrite` is false, or the target is not a pack.
    """
    if root is not None:
        check_outside(root, target)
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise InvalidRequest(f"{target}: its parent folder does not exist; make it first")
        return
    if target.is_symlink():
        raise InvalidRequest(f"{target}: is a link; give the folder itself, or another name")
    with failing(target, "list the folder"):
        is_empty = target.is_dir() and not any(target.iterdir())
    if is_empty and not overwrite:
        raise PackExists(f"{target}: an empty folder; remove it: rmdir {shell_word(str(target))}")
    if not overwrite:
        advice = "--overwrite replaces it, or" if _is_pack(target) else "it is not a pack and is never replaced;"
        raise PackExists(f"{target}: already there; {advice} choose another name")
    check_replaceable(target)


def check_outside(root: Path, target: Path) -> None:
    """Raise InvalidRequest if `target` is the folder `root` or inside this folder."""
    with failing(target, "resolve"):  # links may change during the call
        source, place = root.resolve(), target.resolve()
    if place == source:
        raise InvalidRequest(f"{target}: is the source itself; give the pack another name")
    if source in place.parents:
        raise InvalidRequest(f"{target}: is inside the source {root}; choose a folder next to it")


def _is_pack(target: Path) -> bool:
    try:
        manifests.read(target)
    except PackerError:
        return os.path.lexists(target / manifests.NAME)  # --overwrite reports a damaged pack
    return True
