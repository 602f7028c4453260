"""Remote part: builds a part in a process that does not hold the work folder, on this machine or on another one.

Each try has a folder of its own, `attempts/part-00000-<32 hex digits>` in the work folder, which both machines must
see; whoever holds the work folder moves what is complete to its place (`DoneRecords.adopt`), in this run or in the next
one. Of a pack behind a URL they share no folder: the part is built on the machine's own disk and goes to the store from
there, with a record that whoever holds the work folder reads; see stored_parts.py. So a process that nobody waits for
any more changes nothing: no other try writes to its folder, and what it leaves there is the same part, or unfinished
and removed.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packer.conversion.build_part import FinishedPart, PartSpec, build_part
from packer.conversion.build_versions import build_versions, check_versions, compares_pixels
from packer.conversion.done_records import put, read_json
from packer.conversion.plan import Plan
from packer.conversion.work_folder_names import ATTEMPTS, PACK, PIECES, PLAN, RECORD
from packer.errors import InvalidRequest, Locked, PackerError, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.fsync import sync_part
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder

if TYPE_CHECKING:  # the client of the stores, which folders do without
    from packer.conversion.stored_parts import StoredParts

NODE = "node"
_SCRATCH = {PACK: ANYTHING, PIECES: ANYTHING}


@dataclass(frozen=True)
class Workplace:
    """What is the same for all parts of a conversion, sent to each machine once.

    work: the work folder. cpus: that a try takes of a machine. threads: that make records, more than that where each
    waits for a store. versions: of the machine that converts. stored: where parts go, of a pack behind a URL; then
    there is a scratch folder.
    """

    plan: Plan
    work: Path
    cpus: int
    threads: int
    scratch: Path | None
    versions: Mapping[str, str]
    stored: "StoredParts | None" = None


class Task(NamedTuple):
    """One try to build a part. attempt: the name of its folder."""

    number: int
    attempt: str
    only_reads: bool


class Outcome(NamedTuple):
    """What became of a try. failure: class and message of an error that another try would meet too."""

    node: str
    finished: bool
    reasons: list[str]
    failure: tuple[str, str] | None = None


def build_remotely(place: Workplace, task: Task) -> Outcome:
    """Build a part in its try's folder."""
    node = platform.node()
    try:
        check_versions(node, place.versions, build_versions(pixels=compares_pixels(place.versions)))
        _check_seen(place)
        if place.stored is not None and place.scratch is not None:
            place.stored.begin_attempt(task.attempt, _named(node))
            with _scratch_folder(place.scratch, task.attempt) as scratch:
                return _built(place, task, node, scratch, partial(_upload, place.stored, scratch))
        with _attempt_folder(place, task, node) as folder:
            if place.scratch is None:
                return _built(place, task, node, folder, partial(_hand_over, place, folder, folder))
            with _scratch_folder(place.scratch, task.attempt) as scratch:
                return _built(place, task, node, scratch, partial(_hand_over, place, folder, scratch))
    except PackerError as error:
        return Outcome(node, False, [], (type(error).__name__, f"{node}: {error.message}"))


def _built(
    place: Workplace, task: Task, node: str, scratch: FolderHandle, hand_over: Callable[[FinishedPart], object]
) -> Outcome:
    for name in (PACK, PIECES):
        scratch.make_folder(name).close()
    spec = PartSpec(place.plan, scratch.inside / PACK, scratch.inside / PIECES, place.threads, task.only_reads)
    built = build_part(spec, task.number)
    if built.finished is not None:
        hand_over(built.finished)
    return Outcome(node, built.finished is not None, list(built.reasons))


def _upload(stored: "StoredParts", scratch: FolderHandle, done: FinishedPart) -> None:
    """Bring a finished part to the store, then the record that says so."""
    stored.put(scratch.inside / PACK / done.part.name, scratch.inside / PIECES / done.part.name, done)


def _hand_over(place: Workplace, folder: FolderHandle, scratch: FolderHandle, done: FinishedPart) -> None:
    """Bring a finished part into the try's folder, then the record that says so."""
    for name in (PACK, PIECES):
        if scratch is not folder:
            folder.make_folder(name).close()
            _copy(scratch.inside / name / done.part.name, folder.inside / name / done.part.name)
        with folder.folder(name) as inner:
            inner.sync()
    put(folder, RECORD, {**asdict(done), "fingerprint": place.plan.fingerprint})


def _copy(source: Path, target: Path) -> None:
    with failing(target, "copy"):
        if source.is_dir():
            target.mkdir()
            for inner in sorted(source.rglob("*")):  # a folder before what is in it
                at = target / inner.relative_to(source)
                at.mkdir() if inner.is_dir() else _copy_file(inner, at)
        else:
            _copy_file(source, target)
    sync_part(target)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("xb") as written:
        shutil.copyfileobj(read, written, 4 << 20)


def _named(node: str) -> str:
    return f"{node}, process {os.getpid()}"


def _check_seen(place: Workplace) -> None:
    """Raise InvalidRequest where this machine does not see what all machines must."""
    source = place.plan.source
    root = source.folder.root if source.is_on_disk and source.folder.is_local else None
    for path in (place.work / PLAN if place.stored is None else None, root):
        if path is not None and not path.exists():
            shared = "the source" if place.stored is not None else "the source and the folder of the pack"
            raise InvalidRequest(f"{path}: not there; every machine must see {shared}")


@contextmanager
def _attempt_folder(place: Workplace, task: Task, node: str) -> Iterator[FolderHandle]:
    """The try's folder, new, in the work folder of this very plan."""
    with FolderHandle.at(place.work) as work:
        if read_json(work, PLAN).get("fingerprint") != place.plan.fingerprint:
            raise StorageError(f"{place.work}: another conversion works there by now")
        with work.folder(ATTEMPTS) as attempts, attempts.make_folder(task.attempt) as folder:
            folder.write_file(NODE, _named(node).encode())
            attempts.sync()
            yield folder


@contextmanager
def _scratch_folder(above: Path, attempt: str) -> Iterator[FolderHandle]:
    """A folder on this machine's own disk, empty again afterwards; what killed tries have left there goes, unless it is
    another user's or in use."""
    with failing(above, "list the folder"):
        left = [above / name for name in os.listdir(above) if name.startswith(".packer-part-")]
    for path in left:
        with suppress(Locked, UnsafePath, StorageError), work_folder(path, _SCRATCH) as old:
            old.clear()
    # another try of this machine may hold it for a moment, as it looks for what killed ones have left
    with work_folder(above / f".packer-{attempt}", _SCRATCH, waiting=_soon) as scratch:
        try:
            yield scratch
        finally:
            scratch.clear()


def _soon() -> None:
    """Nothing is to be told: it is let go at once."""
