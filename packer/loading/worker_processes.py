"""Worker processes: each makes whole batches of a loader, with the batch jobs that threads do.

torch's DataLoader starts, watches and ends the processes: it has been run on more systems than packer. Steps of the
sampling order go to the workers through it, and batches come back. The processes live on between epochs.

A batch travels in memory that both processes have mapped. torch's own way costs a descriptor and a connection per
tensor, and new memory per batch. Here the loader's process owns the buffers, and knows by itself when a batch is freed
(packer.system.shared_memory has the rule). It tells the worker the address of a buffer; the worker lays out the batch's
tensors in it, and sends the batch with their offsets in place of them. What does not fit is sent by value, and so are
the first batches, whose size is not known yet.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from packer.errors import InvalidRequest, PackerError
from packer.loading.batch_jobs import BatchJobs
from packer.loading.nested_tensors import mapped
from packer.loading.sampling import Step, Steps
from packer.system._torch_private import end_workers
from packer.system.buffer_pool import BufferPool, Bytes
from packer.system.shared_memory import Address, MappedBuffers, SharedBuffer, shared

_AHEAD = 2  # batches of each worker that are in the making, or wait
_PAGE = 1 << 16
_of_parents: list[Any] = []  # held for ever by a forked child, where their end would be that of the parent's workers


@dataclass(frozen=True)
class _Task:
    """One batch to make, and the buffer to lay it out in."""

    step: Step
    buffer: Address | None


class _WorkerDataset(Dataset[Any]):
    """The data set of the workers' DataLoader: a task's packed batch, or the PackerError that making it raised."""

    def __init__(self, new_jobs: Callable[..., BatchJobs]) -> None:
        self._new_jobs = new_jobs
        self._mappings: MappedBuffers | None = None

    def __getitem__(self, task: _Task) -> "PackedBatch | PackerError":
        layout = BatchLayout(self._mapped(task.buffer) if task.buffer is not None else None)
        try:
            return layout.packed(self._new_jobs(take=layout.take).make(task.step))
        except PackerError as error:
            return error
        except StopIteration as error:  # it would end the epoch in silence (PEP 479 has it the same way)
            raise RuntimeError("StopIteration was raised while a batch was made") from error

    def _mapped(self, buffer: Address) -> Bytes | None:
        """None where the system does not let a process see another's files: batches travel by value then."""
        self._mappings = self._mappings or MappedBuffers()
        try:
            return self._mappings.get(buffer)
        except OSError:
            return None


@dataclass
class _TaskSampler:
    """The DataLoader's sampler: the tasks of the current pass; each keeps its buffer until its batch has arrived."""

    pool: BufferPool[SharedBuffer]
    steps: Steps | None = None
    size: int = 0  # of a buffer; 0 while nobody knows how much a batch takes
    held: deque[SharedBuffer | None] = field(default_factory=deque)

    def __iter__(self) -> Iterator[_Task]:
        while self.held:  # DataLoader asks for the first task when no worker has an old one left
            if (unused := self.held.popleft()) is not None:
                self.pool.put_back(unused)
        while self.steps is not None and (step := self.steps.next()) is not None:
            buffer = self.pool.reserve(self.size) if self.size else None
            self.held.append(buffer)
            yield _Task(step, buffer.address if buffer is not None else None)


class WorkerPool:
    """Makes the batches of one pass at a time; processes are started for the first."""

    def __init__(self, new_jobs: Callable[..., BatchJobs], workers: int, *, seed: int) -> None:
        """new_jobs: makes BatchJobs, given `take`, which gives memory; it is pickled where workers are not forked.

        seed: of torch's, NumPy's and Python's generators in the workers.
        """
        self._numbers = count()
        self._make = _WorkerDataset(new_jobs)
        self._workers = workers
        self._seed = seed
        self._tasks = _TaskSampler(self._new_pool())
        self._loader: DataLoader[Any] | None = None
        self._running: Any = None
        self._pass_number = 0  # of the newest pass
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
        self._pass_number += 1
        return WorkerPass(self, self._pass_number)

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

    def take(self, pass_number: int) -> Any:
        """The next batch of that pass; raises StopIteration after the last, and what went wrong, in its turn."""
        if os.getpid() != self.pid:
            raise InvalidRequest("a Loader's iterator does not live on in a forked child; call iter(loader) there")
        if pass_number != self._pass_number:
            raise InvalidRequest(
                "a Loader with workers makes one pass at a time: a newer iter(loader) has ended this one"
            )
        if self._running is None:
            raise StopIteration
        try:
            sent = next(self._running)
            if isinstance(sent, PackerError):
                raise sent
            buffer = self._tasks.held.popleft()
            batch = sent.unpacked(self._tasks.pool.give(buffer, buffer.memory.size) if buffer is not None else None)
        except StopIteration:
            raise
        except (
            BaseException
        ):  # also Ctrl-C in the middle of a message or before its buffer was taken: all is out of step
            self.close()
            raise
        if hasattr(os, "memfd_create"):  # else the size stays unknown, and batches travel by value
            self._tasks.size = max(self._tasks.size, -(-sent.wanted // _PAGE) * _PAGE)
        return batch

    @property
    def buffer_bytes(self) -> int:
        """Bytes of shared memory that a worker gets for a batch; 0 while no batch has told."""
        return self._tasks.size

    def close(self) -> None:
        """End the processes; the next pass starts new ones."""
        if os.getpid() != self.pid:
            _of_parents.append(self._running)
        elif self._running is not None:  # not left to its end: a traceback may hold it, or a collection end its queues
            end_workers(self._running)
        self._loader = self._running = None
        self._tasks = _TaskSampler(self._new_pool(), size=self._tasks.size)  # nobody writes into this memory

    def _new_pool(self) -> BufferPool[SharedBuffer]:
        """A pool for the batches that are being made or sent, and for those that a caller keeps a little longer."""
        numbers = self._numbers
        return BufferPool(2 * (_AHEAD * self._workers + 2), new=lambda size: shared(size, next(numbers)))


class WorkerPass:
    """One pass over the steps of an epoch, made by a pool's workers."""

    def __init__(self, pool: WorkerPool, pass_number: int) -> None:
        self._pool = pool
        self._pass_number = pass_number
        self.pid = pool.pid

    def __iter__(self) -> "WorkerPass":
        return self

    def __next__(self) -> Any:
        return self.take()

    def take(self) -> Any:
        """As WorkerPool.take."""
        return self._pool.take(self._pass_number)

    @property
    def ready(self) -> int:
        """As ThreadEngine.ready: the worker processes make at most two batches each."""
        return 0

    def stop(self) -> None:
        """Does nothing: the processes wait for the next pass, and end with the loader."""


def _as_it_is(packed: Any) -> Any:
    return packed


# ---- a batch on its way from a worker

_ALIGNED = 64  # bytes, a cache line
_BY_VALUE = 4096  # up to so many bytes a tensor is sent itself


@dataclass(frozen=True)
class _Placed:
    """A tensor in the buffer. offset: bytes from its beginning; strides in numbers, as torch counts them."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, buffer: torch.Tensor) -> torch.Tensor:
        """The tensor over a flat uint8 tensor that holds the buffer."""
        whole = buffer[self.offset :]
        whole = whole[: len(whole) // self.dtype.itemsize * self.dtype.itemsize].view(self.dtype)
        return whole.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class _Value:
    """A tensor by value, without what torch does to share one."""

    array: npt.NDArray[Any]

    def tensor(self, buffer: torch.Tensor) -> torch.Tensor:  # as _Placed has it
        """The tensor, in memory of its own."""
        return torch.from_numpy(self.array)


@dataclass(frozen=True)
class PackedBatch:
    """A batch with _Placed and _Value in place of its tensors. wanted: bytes of a buffer that would hold them all."""

    form: Any
    wanted: int

    def unpacked(self, held: memoryview | None) -> Any:
        """The batch. held: of the buffer that the worker was given; it stays as long as a tensor over it lives."""
        buffer = torch.empty(0, dtype=torch.uint8) if held is None else torch.from_numpy(np.frombuffer(held, np.uint8))
        return mapped(self.form, lambda sent: sent.tensor(buffer), kinds=(_Placed, _Value))


class BatchLayout:
    """Where a worker lays out one batch: the buffer that it was given, or none."""

    def __init__(self, buffer: Bytes | None) -> None:
        self._buffer = buffer if buffer is not None else np.empty(0, np.uint8)
        self._start = self._buffer.ctypes.data
        self._used = 0

    def take(self, size: int) -> tuple[torch.Tensor, Bytes]:
        """Memory of the buffer while there is some left, else new; as BatchDecoder takes it."""
        fits = self._used + size <= self._buffer.size
        memory = self._room(size) if fits else np.empty(size, np.uint8)  # that is counted when it is packed
        return torch.from_numpy(memory), memory

    def _room(self, size: int) -> Bytes:
        """The next `size` bytes of the buffer, or fewer where it ends."""
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._buffer[start : start + size]

    def packed(self, batch: Any) -> PackedBatch:
        """The batch, ready to be sent."""
        form = mapped(batch, self._sent)
        return PackedBatch(form, self._used)

    def _sent(self, tensor: torch.Tensor) -> Any:
        plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout == torch.strided
        if not plain or tensor.dtype not in _NUMPY_HAS:
            return tensor  # as torch sends it
        tensor = tensor.detach().resolve_neg()
        offset = tensor.data_ptr() - self._start
        if tensor.numel() and 0 <= offset < self._buffer.size:
            return _Placed(offset, tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.nbytes > _BY_VALUE:
            shape, strides = tuple(tensor.shape), _dense(tensor)
            room = self._room(tensor.nbytes)
            if room.size == tensor.nbytes:
                torch.from_numpy(room).view(tensor.dtype).as_strided(shape, strides).copy_(tensor)
                return _Placed(room.ctypes.data - self._start, tensor.dtype, shape, strides)
        return _Value(tensor.numpy())


def _dense(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the same tensor without gaps: channels_last stays so, everything else is contiguous."""
    if tensor.ndim == len("NCHW") and tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.stride()
    return tuple(prod(tensor.shape[at + 1 :]) for at in range(tensor.ndim))


_NUMPY_HAS = {
    getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
