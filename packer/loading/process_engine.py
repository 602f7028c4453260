"""Worker processes: each makes complete batches of a loader, with the same batch jobs as threads.

torch's DataLoader starts, watches and ends the processes. It sends the steps of the sampling order to the workers, and
returns their batches. The processes stay alive between epochs.

The loader's process and the workers map the memory of the batches. The transport of torch would need a file descriptor
and a connection per tensor, and new memory per batch. The loader's process owns the buffers, and detects when a batch
is freed (packer.system.shared_memory). It sends the address of a free buffer to the worker. The worker puts the tensors
into the buffer, and sends the batch with their offsets. Tensors that do not fit are sent by value. The first batches
are sent by value, too, because their size is unknown.
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
from packer.loading.sample_order import Step
from packer.loading.tensor_pytree import mapped
from packer.loading.thread_engine import BatchSource
from packer.system._torch_private import end_workers
from packer.system.buffer_pool import BufferPool, Bytes
from packer.system.shared_memory import Address, MappedBuffers, SharedBuffer, shared

_AHEAD = 2  # batches of each worker that are being made or wait
_PAGE = 1 << 16
_of_parents: list[Any] = []  # iterators of the parent, which a forked child never frees: it would end the workers


@dataclass(frozen=True)
class _Task:
    """One batch to make, and the address of its buffer. If this is None, the batch is sent by value."""

    step: Step
    buffer: Address | None


class _WorkerDataset(Dataset[Any]):
    """The dataset of the workers' DataLoader. An item is a packed batch, or the PackerError that a batch raised."""

    def __init__(self, new_jobs: Callable[..., BatchJobs]) -> None:
        self._new_jobs = new_jobs
        self._mappings: MappedBuffers | None = None

    def __getitem__(self, task: _Task) -> "PackedBatch | PackerError":
        layout = BatchLayout(self._mapped(task.buffer) if task.buffer is not None else None)
        try:
            return layout.packed(self._new_jobs(take=layout.take).make(task.step))
        except PackerError as error:
            return error
        except StopIteration as error:  # it would end the epoch silently (see PEP 479)
            raise RuntimeError("StopIteration was raised while a batch was made") from error

    def _mapped(self, buffer: Address) -> Bytes | None:
        """Return the buffer, or None if the system hides the files of other processes."""
        self._mappings = self._mappings or MappedBuffers()
        try:
            return self._mappings.get(buffer)
        except OSError:
            return None


@dataclass
class _TaskSampler:
    """The sampler of the DataLoader. It yields the tasks of the current pass, and keeps the buffers in use."""

    pool: BufferPool[SharedBuffer]
    steps: Iterator[Step] | None = None
    size: int = 0  # of a buffer; 0 until the size of a batch is known
    held: deque[SharedBuffer | None] = field(default_factory=deque)

    def __iter__(self) -> Iterator[_Task]:
        while self.held:  # no worker has an old task when DataLoader starts a pass
            if (unused := self.held.popleft()) is not None:
                self.pool.put_back(unused)
        for step in self.steps or ():
            buffer = self.pool.reserve(self.size) if self.size else None
            self.held.append(buffer)
            yield _Task(step, buffer.address if buffer is not None else None)


class WorkerPool:
    """Worker processes that make the batches of one pass at a time. The first pass starts the processes."""

    def __init__(self, new_jobs: Callable[..., BatchJobs], workers: int, *, seed: int) -> None:
        """Create a pool without processes.

        Args:
            new_jobs: A function that returns BatchJobs. Its argument `take` is a function that returns memory for a
                batch. `new_jobs` is pickled if workers are not forked.
            workers: Number of processes.
            seed: Seed of the generators of torch, NumPy and Python in the workers.
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

    def begin(self, steps: Iterator[Step]) -> "WorkerPass":
        """End the previous pass, start a pass over these steps, and return an iterator of its batches."""
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
        generator = torch.Generator()  # the generator of the caller stays unchanged
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
        """Return the next batch of pass `pass_number`. Raises InvalidRequest if a newer pass has begun."""
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
        except BaseException:  # also Ctrl-C in the middle of a message: the order of buffers is unknown then
            self.close()
            raise
        if hasattr(os, "memfd_create"):  # otherwise batches are sent by value
            self._tasks.size = max(self._tasks.size, -(-sent.wanted // _PAGE) * _PAGE)
        return batch

    @property
    def buffer_bytes(self) -> int:
        """Size in bytes of the shared memory that a worker gets for a batch. 0 until the first batch is made."""
        return self._tasks.size

    def close(self) -> None:
        """End the processes. The next pass starts new processes."""
        if os.getpid() != self.pid:
            _of_parents.append(self._running)
        elif self._running is not None:  # a traceback may hold it, or a collection may end its queues first
            end_workers(self._running)
        self._loader = self._running = None
        self._tasks = _TaskSampler(self._new_pool(), size=self._tasks.size)  # the old memory is not written any more

    def _new_pool(self) -> BufferPool[SharedBuffer]:
        numbers = self._numbers
        return BufferPool(2 * (_AHEAD * self._workers + 2), new=lambda size: shared(size, next(numbers)))


class WorkerPass(BatchSource):
    """The batches of one pass of a pool. After the pass, the processes wait for the next pass."""

    def __init__(self, pool: WorkerPool, pass_number: int) -> None:
        super().__init__()
        self._pool = pool
        self._pass_number = pass_number

    def __next__(self) -> Any:
        return self._pool.take(self._pass_number)

    def stop(self) -> None:
        """Do nothing: the processes of the pool wait for the next pass."""


def _as_it_is(packed: Any) -> Any:
    return packed


# ---- a batch that a worker sends

_ALIGNED = 64  # bytes, a cache line
_BY_VALUE = 4096  # tensors up to this size in bytes are sent by value


@dataclass(frozen=True)
class _Placed:
    """A tensor in the buffer. `offset` is in bytes, `strides` are in elements."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, buffer: torch.Tensor) -> torch.Tensor:
        whole = buffer[self.offset :]
        whole = whole[: len(whole) // self.dtype.itemsize * self.dtype.itemsize].view(self.dtype)
        return whole.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class _Value:
    """A tensor that is sent by value, without torch's shared memory."""

    array: npt.NDArray[Any]

    def tensor(self, buffer: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.array)


@dataclass(frozen=True)
class PackedBatch:
    """A batch with a _Placed or _Value for each tensor. A buffer of `wanted` bytes has room for all tensors."""

    form: Any
    wanted: int

    def unpacked(self, held: memoryview | None) -> Any:
        """Return the batch. `held` is the memory of its buffer, which stays in use as long as one of the tensors."""
        buffer = torch.empty(0, dtype=torch.uint8) if held is None else torch.from_numpy(np.frombuffer(held, np.uint8))
        return mapped(self.form, lambda sent: sent.tensor(buffer), kinds=(_Placed, _Value))


class BatchLayout:
    """The memory of one batch in a worker: the shared `buffer`. If it is full or None, a tensor gets new memory."""

    def __init__(self, buffer: Bytes | None) -> None:
        self._buffer = buffer if buffer is not None else np.empty(0, np.uint8)
        self._start = self._buffer.ctypes.data
        self._used = 0

    def take(self, size: int) -> tuple[torch.Tensor, Bytes]:
        """Return (uint8 tensor, array) of `size` bytes over the same memory."""
        fits = self._used + size <= self._buffer.size
        memory = self._room(size) if fits else np.empty(size, np.uint8)  # `packed` counts the new memory
        return torch.from_numpy(memory), memory

    def _room(self, size: int) -> Bytes:
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._buffer[start : start + size]

    def packed(self, batch: Any) -> PackedBatch:
        """Return the batch, with each tensor replaced by its offset in the buffer or by its value."""
        form = mapped(batch, self._sent)
        return PackedBatch(form, self._used)

    def _sent(self, tensor: torch.Tensor) -> Any:
        plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout == torch.strided
        if not plain or tensor.dtype not in _NUMPY_HAS:
            return tensor  # torch sends it
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
    """Return strides of the tensor without gaps: those of channels_last if it has this format, else contiguous ones."""
    if tensor.ndim == len("NCHW") and tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.stride()
    return tuple(prod(tensor.shape[at + 1 :]) for at in range(tensor.ndim))


_NUMPY_HAS = {
    getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
