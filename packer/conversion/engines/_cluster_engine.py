"""Cluster engine: parts as tasks of a cluster, submitted anew where a machine, a worker or its memory gave way.

A cluster is five calls: connect, submit, wait, drop, close. Retries are counted here, since clusters count them in ways
of their own: a part is tried four times, then the error names it and the machines. At most twice as many tasks are
under way as the cluster builds at once, so that the last ones to be submitted are not the last to be known. A try that
takes far longer than any other has hung, and is given up: what it still does is done in a folder of its own.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from packer import errors
from packer.conversion.build_versions import build_versions
from packer.conversion.engines import base
from packer.conversion.engines.base import EngineOptions, Job
from packer.conversion.remote_part import NODE, Outcome, Task, Workplace
from packer.conversion.work_folder_names import ATTEMPTS
from packer.errors import InvalidRequest, PackerError, StorageError

_TRIES = 4
_PATIENCE_SECONDS = 300.0  # without a machine that could build a part
_LEAST_LIMIT_SECONDS = 600.0  # of a try, which also has eight times what the longest one took
_LIMIT = 8.0
_SEEN_SECONDS = 60.0  # until every machine sees what another one wrote: NFS asks anew after as many


class Lost(NamedTuple):
    """A try whose end nobody knows: its machine or its process is gone."""

    reason: str


class Cluster(ABC):
    """Machines that build parts. A handle is whatever `submit` returns; it can be a key of a dict."""

    @abstractmethod
    def connect(self, place: Workplace) -> None:
        """Make ready, and compare versions; raises InvalidRequest where a machine has others, or there is none."""

    @abstractmethod
    def submit(self, task: Task) -> Any:
        """Have `build_remotely` run somewhere; returns a handle at once."""

    @abstractmethod
    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        """What has ended of these, maybe nothing after so many seconds, and how many parts are built at once now."""

    @abstractmethod
    def drop(self, handle: Any) -> None:
        """End a try that is not waited for any more, if it can be ended."""

    @abstractmethod
    def close(self) -> None:
        """End what is still under way, and disconnect."""


@dataclass
class _Part:
    """begun: when its try was seen on disk; None before. lost: machine and reason of each try that was lost."""

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
            raise InvalidRequest(
                "each machine uploads the parts that it builds: give --nodes-scratch, a folder on the disk of every "
                "machine with room for one part for each CPU"
            )

    def build(self, job: Job, numbers: Iterator[int]) -> None:
        plan, work, stored = job.spec.plan, job.records.work, job.records.stored
        versions = build_versions(pixels=not plan.keeps_bytes)
        cpus = self.options.threads or 1
        threads = self.options.threads or max(1, plan.source.folder.reads_at_once)
        tries = _Tries(self.cluster, job, numbers)
        if stored is None:
            work.make_folder(ATTEMPTS).close()
        place = Workplace(plan, work.path.absolute(), cpus, threads, self.options.nodes_scratch, versions, stored)
        try:
            self.cluster.connect(place)
            tries.run()
        finally:
            self.cluster.close()
            self.notes += tries.notes()


class _Tries:
    """What is under way on the cluster for one conversion."""

    def __init__(self, cluster: Cluster, job: Job, numbers: Iterator[int]) -> None:
        self._cluster = cluster
        self._job = job
        self._todo = (_Part(number) for number in numbers)
        self._again: deque[_Part] = deque()
        self._running: dict[Any, _Part] = {}
        self._longest: float | None = None  # seconds of a try that ended well
        self._lost: list[str] = []

    def run(self) -> None:
        """Until every part is there."""
        slots, seen = 1, time.monotonic()
        while self._submit(2 * max(1, slots)):
            ended, slots = self._cluster.wait(list(self._running), 1.0)
            now = time.monotonic()
            seen = now if slots or ended else seen
            if now - seen > _PATIENCE_SECONDS:
                raise StorageError(
                    f"{self._job.records.work.path}: for {_PATIENCE_SECONDS:.0f} s no machine was there to build parts"
                )
            self._look(now)
            for handle, outcome in ended.items():
                part = self._running.pop(handle)
                if part.begun is not None and isinstance(outcome, Outcome):
                    self._longest = max(self._longest or 0.0, now - part.begun)
                self._end(part, outcome)
            self._give_up(now)

    def notes(self) -> list[str]:
        """A line where tries were lost."""
        if not self._lost:
            return []
        more = f"; and {len(self._lost) - 1} more" if len(self._lost) > 1 else ""
        return [f"tries that were lost, whose parts were built again: {self._lost[0]}{more}"]

    def _submit(self, most: int) -> bool:
        """Have so many under way, or all that are left; False where there is none."""
        while len(self._running) < most:
            part = self._again.popleft() if self._again else next(self._todo, None)
            if part is None:
                break
            part.attempt, part.begun = f"part-{part.number:05d}-{uuid4().hex}", None
            task = Task(part.number, part.attempt, self._job.spec.only_reads)
            self._running[self._cluster.submit(task)] = part
        return bool(self._running)

    def _look(self, now: float) -> None:
        """Note which tries have begun."""
        waiting = {part.attempt: part for part in self._running.values() if part.begun is None}
        for attempt in self._job.records.attempts() if waiting else ():
            if attempt in waiting:
                waiting[attempt].begun = now

    def _give_up(self, now: float) -> None:
        if self._longest is None:  # nothing says how long a part of this conversion takes
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
                outcome = Lost(message)  # of one machine's disk or line, maybe
        if isinstance(outcome, Lost):
            if self._job.spec.only_reads or not self._adopted(part):
                self._note_lost(part, outcome)
            return
        if outcome.failure is not None:
            name, message = outcome.failure
            raise getattr(errors, name, PackerError)(f"{self._name(part)}: {message}")
        self._job.refuse(part.number, outcome.reasons)
        if outcome.finished and not self._job.spec.only_reads:
            self._adopt_when_seen(part)
        else:
            self._progress(part)

    def _note_lost(self, part: _Part, outcome: Lost) -> None:
        """To be tried again; raises StorageError after the last try."""
        node = self._job.records.node_of(part.attempt, NODE)
        part.lost.append(f"{node or 'before it began'}: {outcome.reason}")
        self._lost.append(f"{self._name(part)}, {part.lost[-1]}")
        if len(part.lost) == _TRIES:
            raise StorageError(f"{self._name(part)}: {_TRIES} tries to build it were lost: {'; '.join(part.lost)}")
        self._again.append(part)

    def _adopt_when_seen(self, part: _Part) -> None:
        """Take what a machine says to have built; raises StorageError where it is not seen here."""
        until = time.monotonic() + _SEEN_SECONDS
        while not self._adopted(part):
            if time.monotonic() > until:
                where = self._job.records.place_of(part.attempt)
                raise StorageError(
                    f"{where}: the part that was built there is not seen here after {_SEEN_SECONDS:.0f} s"
                )
            time.sleep(0.2)

    def _adopted(self, part: _Part) -> bool:
        """Take a part into its place if it is complete, whoever said so."""
        plan = self._job.spec.plan
        samples = {self._name(part): len(plan.parts[part.number])}
        done = self._job.records.adopt(part.attempt, samples, plan.fingerprint)
        if done is None:
            return False
        for item in (*done.skipped, *done.incomplete):
            self._job.note(item)
        self._progress(part)
        return True

    def _progress(self, part: _Part) -> None:
        samples, sizes = self._job.spec.plan.parts[part.number], self._job.spec.plan.sizes
        self._job.progress(len(samples), int(sizes[samples.start : samples.stop].sum()))

    def _name(self, part: _Part) -> str:
        return self._job.spec.plan.part_name(part.number)
