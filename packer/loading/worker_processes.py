"""Worker processes: make a loader's batches, each by itself, with the batch builder that threads use.

Starting, watching and ending the processes is torch's DataLoader's work, which has met more systems than we have; steps
of the order go out through it, and parcels come back. The processes live on between epochs.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from packer.errors import InvalidRequest, PackerError
from packer.loading.batch_builder import BatchBuilder
from packer.loading.sampling import Step, Steps
from packer.loading.worker_transport import BatchLayout, PackedBatch
from packer.system._torch_private import end_workers
from packer.system.buffer_pool import BufferPool, Bytes
from packer.system.shared_memory import Address, MappedBuffers, SharedSlab, shared

_AHEAD = 2  # batches of each worker that are in the making, or wait
_PAGE = 1 << 16
_of_parents: list[Any] = []  # held for ever by a forked child, where their end would be that of the parent's workers


@dataclass(frozen=True)
class _Task:
    """A batch to make, and the slab for it."""

    step: Step
    slab: Address | None


class _WorkerDataset(Dataset[Any]):
    """What a worker has: a task goes in, a parcel comes out, or the PackerError that says it all already."""

    def __init__(self, recipe: Callable[..., BatchBuilder]) -> None:
        self._recipe = recipe
        self._mappings: MappedBuffers | None = None

    def __getitem__(self, task: _Task) -> "PackedBatch | PackerError":
        table = BatchLayout(self._mapped(task.slab) if task.slab is not None else None)
        try:
            return table.packed(self._recipe(take=table.take).make(task.step))
        except PackerError as error:
            return error
        except StopIteration as error:  # it would end the epoch in silence (PEP 479 has it the same way)
            raise RuntimeError("StopIteration was raised while a batch was made") from error

    def _mapped(self, slab: Address) -> Bytes | None:
        """None where the system does not let a process see another's files: batches travel by value then."""
        self._mappings = self._mappings or MappedBuffers()
        try:
            return self._mappings.get(slab)
        except OSError:
            return None


@dataclass
class _TaskSampler:
    """The tasks of the pass that is going on, as DataLoader's sampler; each holds its slab until its parcel comes."""

    slabs: BufferPool[SharedSlab]
    steps: Steps | None = None
    size: int = 0  # of a slab; 0 while nobody knows how much a batch takes
    held: deque[SharedSlab | None] = field(default_factory=deque)

    def __iter__(self) -> Iterator[_Task]:
        while self.held:  # DataLoader asks for the first task when no worker has an old one left
            if (unused := self.held.popleft()) is not None:
                self.slabs.put_back(unused)
        while self.steps is not None and (step := self.steps.next()) is not None:
            slab = self.slabs.reserve(self.size) if self.size else None
            self.held.append(slab)
            yield _Task(step, slab.address if slab is not None else None)


class WorkerPool:
    """Makes the batches of one pass at a time; processes are started for the first."""

    def __init__(self, recipe: Callable[..., BatchBuilder], workers: int, *, seed: int) -> None:
        """recipe: of what gives memory; goes to the workers, so it is pickled where they are not forked.

        seed: of torch's and Python's generators in the workers.
        """
        self._numbers = count()
        self._make = _WorkerDataset(recipe)
        self._workers = workers
        self._seed = seed
        self._tasks = _TaskSampler(self._slabs())
        self._loader: DataLoader[Any] | None = None
        self._running: Any = None
        self._turn = 0  # of the newest pass
        self.pid = os.getpid()

    def begin(self, steps: Steps) -> "WorkerPass":
        """A pass over those steps; ends the one before."""
        if os.getpid() != self.pid:
            self.close()
            self.pid = os.getpid()
        self._tasks.steps = steps
        if self._loader is None:
            self._loader = self._started()
        try:
            self._running = iter(self._loader)
        except BaseException:
            self.close()
            raise
        self._turn += 1
        return WorkerPass(self, self._turn)

    def _started(self) -> DataLoader[Any]:
        generator = torch.Generator()  # of its own: the caller's stays as it is
        generator.manual_seed(self._seed)
        return DataLoader(
            self._make,
            sampler=self._tasks,
            batch_size=None,
            collate_fn=_as_it_is,
            generator=generator,
            num_workers=self._workers,
            prefetch_factor=_AHEAD,
            persistent_workers=True,
        )

    def take(self, turn: int) -> Any:
        """The next batch of that pass; raises StopIteration after the last, and what went wrong, in its turn."""
        if os.getpid() != self.pid:
            raise InvalidRequest("a Loader's iterator does not live on in a forked child; call iter(loader) there")
        if turn != self._turn:
            raise InvalidRequest(
                "a Loader with workers makes one pass at a time: a newer iter(loader) has ended this one"
            )
        if self._running is None:
            raise StopIteration
        try:
            sent = next(self._running)
            if isinstance(sent, PackerError):
                raise sent
            slab = self._tasks.held.popleft()
            batch = sent.unpacked(self._tasks.slabs.give(slab, slab.memory.size) if slab is not None else None)
        except StopIteration:
            raise
        except BaseException:  # also Ctrl-C in the middle of a message, or before its slab was taken: nothing fits then
            self.close()
            raise
        if hasattr(os, "memfd_create"):  # else the size stays unknown, and batches travel by value
            self._tasks.size = max(self._tasks.size, -(-sent.wanted // _PAGE) * _PAGE)
        return batch

    def close(self) -> None:
        """End the processes; the next pass starts new ones."""
        if os.getpid() != self.pid:
            _of_parents.append(self._running)
        elif self._running is not None:  # not left to its end: a traceback may hold it, or a collection end its queues
            end_workers(self._running)
        self._loader = self._running = None
        self._tasks = _TaskSampler(self._slabs(), size=self._tasks.size)  # nobody writes into this memory

    def _slabs(self) -> BufferPool[SharedSlab]:
        """Memory for what is on its way and in the making, and for what a caller may keep a little longer."""
        numbers = self._numbers
        return BufferPool(2 * (_AHEAD * self._workers + 2), new=lambda size: shared(size, next(numbers)))


class WorkerPass:
    """One pass of a crew."""

    def __init__(self, crew: WorkerPool, turn: int) -> None:
        self._crew = crew
        self._turn = turn
        self.pid = crew.pid

    def __iter__(self) -> "WorkerPass":
        return self

    def __next__(self) -> Any:
        return self.take()

    def take(self) -> Any:
        """As Crew.take."""
        return self._crew.take(self._turn)

    def stop(self) -> None:
        """Nothing: the processes wait for the next pass, and end with the loader."""


def _as_it_is(parcel: Any) -> Any:
    return parcel
