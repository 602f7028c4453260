"""Cluster engine: parts as tasks of a cluster, submitted anew where a machine, a worker or its memory gave way.

A cluster is four calls: connect, submit, wait, close. Retries are counted here, since clusters count them in ways of
their own: a part is tried four times, then the error names it and the machines. At most twice as many tasks are under
way as the cluster builds at once, so that the last ones to be submitted are not the last to be known.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from packer import errors
from packer.conversion.done_records import ATTEMPTS
from packer.conversion.engines import base
from packer.conversion.engines.base import Job
from packer.conversion.remote_part import NODE, Outcome, Task, Workplace
from packer.errors import PackerError, StorageError

_TRIES = 4
_PATIENCE_SECONDS = 300.0  # without a machine that could build a part


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
    def close(self) -> None:
        """End what is still under way, and disconnect."""


@dataclass
class _Part:
    """lost: machine and reason of each try that was lost."""

    number: int
    attempt: str = ""
    lost: list[str] = field(default_factory=list)


class ClusterEngine(base.Engine):
    """An engine over a cluster."""

    cluster: Cluster

    def build(self, job: Job, numbers: Iterator[int]) -> None:
        plan, work = job.spec.plan, job.records.work
        place = Workplace(plan, work.path.absolute(), self.options.threads or 1, self.options.nodes_scratch)
        todo = (_Part(number) for number in numbers)
        again: deque[_Part] = deque()
        running: dict[Any, _Part] = {}
        slots, seen = 1, time.monotonic()
        work.make_folder(ATTEMPTS).close()
        try:
            self.cluster.connect(place)
            while True:
                while len(running) < 2 * max(1, slots):
                    part = again.popleft() if again else next(todo, None)
                    if part is None:
                        break
                    part.attempt = f"part-{part.number:05d}-{uuid4().hex}"
                    running[self.cluster.submit(Task(part.number, part.attempt, job.spec.only_reads))] = part
                if not running:
                    return
                ended, slots = self.cluster.wait(list(running), 1.0)
                seen = time.monotonic() if slots or ended else seen
                if time.monotonic() - seen > _PATIENCE_SECONDS:
                    raise StorageError(
                        f"{work.path}: for {_PATIENCE_SECONDS:.0f} s no machine was there to build parts"
                    )
                for handle, outcome in ended.items():
                    part = running.pop(handle)
                    if isinstance(outcome, Lost):
                        again.append(_tried(job, part, outcome))
                    else:
                        _take(job, part, outcome)
        finally:
            self.cluster.close()


def _tried(job: Job, part: _Part, outcome: Lost) -> _Part:
    """The part, to be tried again; raises StorageError after the last try."""
    node = job.records.node_of(part.attempt, NODE)
    part.lost.append(f"{node or 'before it began'}: {outcome.reason}")
    if len(part.lost) == _TRIES:
        name = job.spec.plan.part_name(part.number)
        raise StorageError(f"{name}: {_TRIES} tries to build it were lost: {'; '.join(part.lost)}")
    return part


def _take(job: Job, part: _Part, outcome: Outcome) -> None:
    plan = job.spec.plan
    if outcome.failure is not None:
        name, message = outcome.failure
        kind = getattr(errors, name, PackerError)
        raise kind(f"{plan.part_name(part.number)}: {message}")
    job.refuse(part.number, outcome.reasons)
    samples = plan.parts[part.number]
    if outcome.finished and not job.spec.only_reads:
        done = job.records.adopt(part.attempt, {plan.part_name(part.number): len(samples)}, plan.fingerprint)
        if done is None:
            raise StorageError(f"{job.records.work.path / part.attempt}: the part that was built there is gone")
        for item in (*done.skipped, *done.incomplete):
            job.note(item)
    job.progress(len(samples), int(plan.sizes[samples.start : samples.stop].sum()))
