"""Cluster engine: builds each part as a task of a cluster.

If a machine or a process fails, a new task builds the part again. If four tasks for one part fail, the engine raises
an error with the part and the machines. A task that takes far longer than all other tasks counts as failed. If it ends
later, it cannot damage the pack, because each task writes to a separate folder.

In code, `attempt` is the unique name of a task. `build_remotely` runs on a machine of the cluster (a node). It builds
one part and transfers the part with the `Delivery` of the publication.
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
from packer.conversion.engines import base
from packer.conversion.engines.base import EngineOptions
from packer.conversion.machine_versions import check_versions, compares_pixels, library_versions
from packer.conversion.pack_build import ConversionRun
from packer.conversion.plan import Plan
from packer.conversion.publication import Delivery
from packer.conversion.work_folder_layout import PACK, PIECES
from packer.errors import InvalidRequest, Locked, PackerError, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder

_MOST_ATTEMPTS = 4
_PATIENCE_SECONDS = 300.0  # without any machine
_LEAST_LIMIT_SECONDS = 600.0  # of a task
_LIMIT = 8.0  # times the duration of the longest task
_SEEN_SECONDS = 60.0  # until NFS shows the files of another machine
_NEEDS_SCRATCH = (
    "each machine uploads the parts that it builds: give --worker-scratch, a folder on the disk of every machine with "
    "room for one part for each CPU"
)
_SCRATCH = {PACK: ANYTHING, PIECES: ANYTHING}


# ---- on the machine that builds a part


@dataclass(frozen=True)
class Workplace:
    """Input that all tasks of a conversion share. Each machine receives one copy.

    Attributes:
        plan: the plan of the conversion.
        cpus: the number of CPUs that the cluster reserves for a task.
        threads: the number of threads that encode samples. Threads that wait for a store may outnumber the CPUs.
        scratch: a folder on the disk of each machine; None to build in the shared folder of the task.
        versions: library versions on the machine that called `convert`. Each machine must have the same versions.
        delivery: the object that transfers finished parts.
    """

    plan: Plan
    cpus: int
    threads: int
    scratch: Path | None
    versions: Mapping[str, str]
    delivery: Delivery


class Task(NamedTuple):
    """Input of one task.

    Attributes:
        number: the number of the part.
        attempt: the unique name of the task.
        only_reads: True to read samples and list bad samples without writing the part.
    """

    number: int
    attempt: str
    only_reads: bool


class Outcome(NamedTuple):
    """Result of one task.

    Attributes:
        node: the name of the machine.
        finished: True if a complete part was written.
        reasons: one line for each sample that cannot be packed.
        failure: `(class name, message)` of an error, or None.
    """

    node: str
    finished: bool
    reasons: list[str]
    failure: tuple[str, str] | None = None


def build_remotely(place: Workplace, task: Task) -> Outcome:
    """Build and transfer one part. A `PackerError` is returned in `Outcome.failure`, not raised."""
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
    """Return a `with` block that yields an empty folder in `above`. First empty those that killed tasks left."""
    with failing(above, "list the folder"):
        left = [above / name for name in os.listdir(above) if name.startswith(".packer-part-")]
    for path in left:
        with suppress(Locked, UnsafePath, StorageError), work_folder(path, _SCRATCH) as old:
            old.clear()
    # another task may lock the folder for a moment while that task empties old folders
    with work_folder(above / f".packer-{attempt}", _SCRATCH, waiting=lambda: None) as scratch:
        try:
            yield scratch
        finally:
            scratch.clear()


# ---- on the machine that converts


class Lost(NamedTuple):
    """Result of a task whose machine or process failed. `reason` is one line for the user."""

    reason: str


class Cluster(ABC):
    """Client of a cluster that runs tasks."""

    @abstractmethod
    def connect(self, place: Workplace) -> None:
        """Connect, and send `place` to the machines.

        If the cluster has no suitable machine, or if library versions differ, raise InvalidRequest.
        """

    @abstractmethod
    def submit(self, task: Task) -> Any:
        """Start `build_remotely` on a machine, and return a hashable handle of the task."""

    @abstractmethod
    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        """Wait until a task ends, for at most `seconds`. Return `(results, slots)`.

        `results` maps the handle of each ended task to the result. `slots` is the number of tasks that the cluster can
        run at the same time.
        """

    @abstractmethod
    def drop(self, handle: Any) -> None:
        """Try to cancel a task."""

    @abstractmethod
    def close(self) -> None:
        """Cancel all tasks and disconnect."""


@dataclass
class _Part:
    """A part with its current task. `begun` is the start time; `lost` has one line for each failed task."""

    number: int
    attempt: str = ""
    begun: float | None = None
    lost: list[str] = field(default_factory=list)


class ClusterEngine(base.Engine):
    """Base class of engines that build parts on a cluster. A subclass sets `cluster`."""

    cluster: Cluster

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        if options.to_store and options.worker_scratch is None:
            raise InvalidRequest(_NEEDS_SCRATCH)

    def build(self, run: ConversionRun, numbers: Iterator[int]) -> None:
        plan = run.plan
        versions = library_versions(pixels=not plan.keeps_bytes)
        cpus = self.options.threads or 1
        threads = self.options.threads or max(1, plan.source.folder.reads_at_once)
        scratch, delivery = self.options.worker_scratch, run.publication.delivery
        attempts = _Attempts(self.cluster, run, numbers)
        try:
            self.cluster.connect(Workplace(plan, cpus, threads, scratch, versions, delivery))
            attempts.build_all()
        finally:
            self.cluster.close()
            self.notes += attempts.notes()


class _Attempts:
    """The tasks of one conversion. Submits a task for each part, and a new task if it fails."""

    def __init__(self, cluster: Cluster, run: ConversionRun, numbers: Iterator[int]) -> None:
        self._cluster = cluster
        self._run = run
        self._publication = run.publication
        self._todo = (_Part(number) for number in numbers)
        self._again: deque[_Part] = deque()
        self._running: dict[Any, _Part] = {}
        self._longest: float | None = None  # seconds of the longest finished task
        self._lost: list[str] = []

    def build_all(self) -> None:
        """Build all parts. If no machine is there for 300 s, or four tasks for a part fail, raise StorageError."""
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
        if not self._lost:
            return []
        more = f"; and {len(self._lost) - 1} more" if len(self._lost) > 1 else ""
        return [f"attempts were lost and their parts built again: {self._lost[0]}{more}"]

    def _submit(self, most: int) -> bool:
        """Submit tasks until `most` tasks run or no part remains. Return True if a task is running."""
        while len(self._running) < most:
            part = self._again.popleft() if self._again else next(self._todo, None)
            if part is None:
                break
            part.attempt, part.begun = f"part-{part.number:05d}-{uuid4().hex}", None
            task = Task(part.number, part.attempt, self._run.spec.only_reads)
            self._running[self._cluster.submit(task)] = part
        return bool(self._running)

    def _look(self, now: float) -> None:
        waiting = {part.attempt: part for part in self._running.values() if part.begun is None}
        for attempt in self._publication.attempts() if waiting else ():
            if attempt in waiting:
                waiting[attempt].begun = now

    def _give_up(self, now: float) -> None:
        if self._longest is None:  # no task has ended yet
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
        """Queue the part again, or raise StorageError after the fourth failed task."""
        node = self._publication.node_of(part.attempt)
        part.lost.append(f"{node or 'before it began'}: {outcome.reason}")
        self._lost.append(f"{self._name(part)}, {part.lost[-1]}")
        if len(part.lost) == _MOST_ATTEMPTS:
            raise StorageError(
                f"{self._name(part)}: {_MOST_ATTEMPTS} attempts to build it were lost: {'; '.join(part.lost)}"
            )
        self._again.append(part)

    def _adopt_when_seen(self, part: _Part) -> None:
        """Wait until this machine sees the files of a finished part, then adopt it. After 60 s, raise StorageError."""
        until = time.monotonic() + _SEEN_SECONDS
        while not self._adopted(part):
            if time.monotonic() > until:
                where = self._publication.place_of(part.attempt)
                raise StorageError(
                    f"{where}: the part that was built there is not visible here after {_SEEN_SECONDS:.0f} s"
                )
            time.sleep(0.2)

    def _adopted(self, part: _Part) -> bool:
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
