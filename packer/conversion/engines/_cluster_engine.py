"""Cluster engine: builds each part as a task of a cluster.

If a machine or a process is lost, the engine builds the part again. After four lost attempts, it raises an error with
the part and the machines. An attempt that takes far longer than all others is abandoned. It does no harm, because each
attempt writes to its own folder.

`build_remotely` runs on the machine that builds a part, and delivers the part with the `Delivery` of the publication.
"""

import os
import platform
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from packer import errors
from packer.conversion.build_part import PartSpec, build_part
from packer.conversion.conversion_run import ConversionRun
from packer.conversion.engines import base
from packer.conversion.engines.base import EngineOptions
from packer.conversion.library_versions import check_versions, compares_pixels, library_versions
from packer.conversion.plan import Plan
from packer.conversion.publication import Delivery
from packer.conversion.work_folder_names import PACK, PIECES
from packer.errors import InvalidRequest, Locked, PackerError, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder

_MOST_ATTEMPTS = 4
_PATIENCE_SECONDS = 300.0  # without any machine
_LEAST_LIMIT_SECONDS = 600.0  # of an attempt
_LIMIT = 8.0  # times the duration of the longest attempt
_SEEN_SECONDS = 60.0  # until NFS shows the files of another machine
_NEEDS_SCRATCH = (
    "each machine uploads the parts that it builds: give --nodes-scratch, a folder on the disk of every machine with "
    "room for one part for each CPU"
)
_SCRATCH = {PACK: ANYTHING, PIECES: ANYTHING}


# ---- on the machine that builds a part


@dataclass(frozen=True)
class Workplace:
    """The input of all parts of a conversion; sent to each machine once.

    Attributes:
        plan: the plan.
        cpus: the number of CPUs for an attempt.
        threads: the number of threads that encode samples; more than `cpus` if they wait for a store.
        scratch: a folder on the disk of each machine; None builds in the attempt's folder.
        versions: of the machine that converts.
        delivery: receives the finished parts.
    """

    plan: Plan
    cpus: int
    threads: int
    scratch: Path | None
    versions: Mapping[str, str]
    delivery: Delivery


class Task(NamedTuple):
    """One attempt to build a part. attempt: its name."""

    number: int
    attempt: str
    only_reads: bool


class Outcome(NamedTuple):
    """The result of an attempt. failure: class and message of an error."""

    node: str
    finished: bool
    reasons: list[str]
    failure: tuple[str, str] | None = None


def build_remotely(place: Workplace, task: Task) -> Outcome:
    """Build a part and deliver it."""
    node = platform.node()
    try:
        check_versions(node, place.versions, library_versions(pixels=compares_pixels(place.versions)))
        _check_seen(place)
        with (
            place.delivery.begun(task.attempt, f"{node}, process {os.getpid()}") as folder,
            _build_folder(place, task, folder) as scratch,
        ):
            for name in (PACK, PIECES):
                scratch.make_folder(name).close()
            spec = PartSpec(place.plan, scratch.inside / PACK, scratch.inside / PIECES, place.threads, task.only_reads)
            built = build_part(spec, task.number)
            if built.finished is not None:
                place.delivery.deliver(built.finished, scratch, scratch if folder is None else folder)
            return Outcome(node, built.finished is not None, list(built.reasons))
    except PackerError as error:
        return Outcome(node, False, [], (type(error).__name__, f"{node}: {error.message}"))


def _build_folder(place: Workplace, task: Task, folder: FolderHandle | None) -> AbstractContextManager[FolderHandle]:
    """Return the folder in which a part is built: the scratch folder, else the attempt's own."""
    if place.scratch is not None:
        return _scratch_folder(place.scratch, task.attempt)
    if folder is None:
        raise InvalidRequest(_NEEDS_SCRATCH)
    return nullcontext(folder)


def _check_seen(place: Workplace) -> None:
    """Raise InvalidRequest if this machine cannot read the source or the shared folder."""
    place.delivery.check_shared()
    source = place.plan.source
    if source.folder.is_local and not source.folder.root.exists():
        raise InvalidRequest(f"{source.folder.root}: not found; every machine must see the source")


@contextmanager
def _scratch_folder(above: Path, attempt: str) -> Iterator[FolderHandle]:
    """Yield an empty folder on the disk of this machine, and empty it afterwards.

    Folders of killed attempts are removed, except those that are locked or belong to another user.
    """
    with failing(above, "list the folder"):
        left = [above / name for name in os.listdir(above) if name.startswith(".packer-part-")]
    for path in left:
        with suppress(Locked, UnsafePath, StorageError), work_folder(path, _SCRATCH) as old:
            old.clear()
    # another attempt may lock the folder for a moment while it removes old folders
    with work_folder(above / f".packer-{attempt}", _SCRATCH, waiting=lambda: None) as scratch:
        try:
            yield scratch
        finally:
            scratch.clear()


# ---- on the machine that converts


class Lost(NamedTuple):
    """An attempt whose machine or process was lost."""

    reason: str


class Cluster(ABC):
    """Machines that build parts. Handles of tasks are hashable."""

    @abstractmethod
    def connect(self, place: Workplace) -> None:
        """Connect, and compare versions; raises InvalidRequest if they differ or without any machine."""

    @abstractmethod
    def submit(self, task: Task) -> Any:
        """Start `build_remotely` on a machine; return the handle of the task."""

    @abstractmethod
    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        """Wait for these seconds or until a task ends; return the ended tasks, and the current number of slots."""

    @abstractmethod
    def drop(self, handle: Any) -> None:
        """Try to end a task."""

    @abstractmethod
    def close(self) -> None:
        """End all tasks, and disconnect."""


@dataclass
class _Part:
    """A part and its current attempt. begun: the start time. lost: machine and reason of each lost attempt."""

    number: int
    attempt: str = ""
    begun: float | None = None
    lost: list[str] = field(default_factory=list)


class ClusterEngine(base.Engine):
    """An engine over a cluster."""

    cluster: Cluster

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        if options.to_store and options.nodes_scratch is None:
            raise InvalidRequest(_NEEDS_SCRATCH)

    def build(self, run: ConversionRun, numbers: Iterator[int]) -> None:
        plan = run.plan
        versions = library_versions(pixels=not plan.keeps_bytes)
        cpus = self.options.threads or 1
        threads = self.options.threads or max(1, plan.source.folder.reads_at_once)
        scratch, delivery = self.options.nodes_scratch, run.publication.delivery
        attempts = _Attempts(self.cluster, run, numbers)
        try:
            self.cluster.connect(Workplace(plan, cpus, threads, scratch, versions, delivery))
            attempts.build_all()
        finally:
            self.cluster.close()
            self.notes += attempts.notes()


class _Attempts:
    """The attempts that are under way on the cluster for one conversion."""

    def __init__(self, cluster: Cluster, run: ConversionRun, numbers: Iterator[int]) -> None:
        self._cluster = cluster
        self._run = run
        self._publication = run.publication
        self._todo = (_Part(number) for number in numbers)
        self._again: deque[_Part] = deque()
        self._running: dict[Any, _Part] = {}
        self._longest: float | None = None  # seconds of a finished attempt
        self._lost: list[str] = []

    def build_all(self) -> None:
        """Build every part; raises StorageError if that is not possible."""
        slots, seen = 1, time.monotonic()
        while self._submit(2 * max(1, slots)):
            ended, slots = self._cluster.wait(list(self._running), 1.0)
            now = time.monotonic()
            seen = now if slots or ended else seen
            if now - seen > _PATIENCE_SECONDS:
                raise StorageError(
                    f"{self._publication.work.path}: for {_PATIENCE_SECONDS:.0f} s no machine was there to build parts"
                )
            self._look(now)
            for handle, outcome in ended.items():
                part = self._running.pop(handle)
                if part.begun is not None and isinstance(outcome, Outcome):
                    self._longest = max(self._longest or 0.0, now - part.begun)
                self._end(part, outcome)
            self._give_up(now)

    def notes(self) -> list[str]:
        """Return a line on lost attempts, if there were any."""
        if not self._lost:
            return []
        more = f"; and {len(self._lost) - 1} more" if len(self._lost) > 1 else ""
        return [f"attempts were lost and their parts built again: {self._lost[0]}{more}"]

    def _submit(self, most: int) -> bool:
        """Submit tasks until so many are under way; return whether any is."""
        while len(self._running) < most:
            part = self._again.popleft() if self._again else next(self._todo, None)
            if part is None:
                break
            part.attempt, part.begun = f"part-{part.number:05d}-{uuid4().hex}", None
            task = Task(part.number, part.attempt, self._run.spec.only_reads)
            self._running[self._cluster.submit(task)] = part
        return bool(self._running)

    def _look(self, now: float) -> None:
        """Note which attempts have begun."""
        waiting = {part.attempt: part for part in self._running.values() if part.begun is None}
        for attempt in self._publication.attempts() if waiting else ():
            if attempt in waiting:
                waiting[attempt].begun = now

    def _give_up(self, now: float) -> None:
        if self._longest is None:  # no attempt has ended yet
            return
        limit = max(_LEAST_LIMIT_SECONDS, _LIMIT * self._longest)
        hung = [handle for handle, part in self._running.items() if part.begun is not None and now - part.begun > limit]
        for handle in hung:
            self._cluster.drop(handle)
            reason = f"not done after {limit:.0f} s, where no other part took more than {self._longest:.0f} s"
            self._end(self._running.pop(handle), Lost(reason))

    def _end(self, part: _Part, outcome: Outcome | Lost) -> None:
        if isinstance(outcome, Outcome) and outcome.failure is not None:
            name, message = outcome.failure
            if issubclass(getattr(errors, name, PackerError), StorageError):
                outcome = Lost(message)  # another machine may succeed
        if isinstance(outcome, Lost):
            if self._run.spec.only_reads or not self._adopted(part):
                self._note_lost(part, outcome)
            return
        if outcome.failure is not None:
            name, message = outcome.failure
            raise getattr(errors, name, PackerError)(f"{self._name(part)}: {message}")
        self._run.refuse(part.number, outcome.reasons)
        if outcome.finished and not self._run.spec.only_reads:
            self._adopt_when_seen(part)
        else:
            self._progress(part)

    def _note_lost(self, part: _Part, outcome: Lost) -> None:
        """Queue the part again; raises StorageError after the last attempt."""
        node = self._publication.node_of(part.attempt)
        part.lost.append(f"{node or 'before it began'}: {outcome.reason}")
        self._lost.append(f"{self._name(part)}, {part.lost[-1]}")
        if len(part.lost) == _MOST_ATTEMPTS:
            raise StorageError(
                f"{self._name(part)}: {_MOST_ATTEMPTS} attempts to build it were lost: {'; '.join(part.lost)}"
            )
        self._again.append(part)

    def _adopt_when_seen(self, part: _Part) -> None:
        """Adopt a part that another machine has built; raises StorageError if it does not become visible here."""
        until = time.monotonic() + _SEEN_SECONDS
        while not self._adopted(part):
            if time.monotonic() > until:
                where = self._publication.place_of(part.attempt)
                raise StorageError(
                    f"{where}: the part that was built there is not visible here after {_SEEN_SECONDS:.0f} s"
                )
            time.sleep(0.2)

    def _adopted(self, part: _Part) -> bool:
        """Adopt a part if it is complete."""
        done = self._publication.adopt(part.attempt)
        if done is None:
            return False
        for item in (*done.skipped, *done.incomplete):
            self._run.note(item)
        self._progress(part)
        return True

    def _progress(self, part: _Part) -> None:
        samples, sizes = self._run.plan.parts[part.number], self._run.plan.sizes
        self._run.progress(len(samples), int(sizes[samples.start : samples.stop].sum()))

    def _name(self, part: _Part) -> str:
        return self._run.plan.part_name(part.number)
