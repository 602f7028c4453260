"""Shared memory: buffers that several processes map, write and reuse for batches.

The memory of a batch is reused only when no process references the batch. The training process, its forked children,
and processes that received the batch may have tensors or arrays over the memory. There are two kinds of buffers:

* `SharedMemory`: a worker of a stock DataLoader owns and fills the memory, and sends a tensor. Every tensor has its own
  open file description of the memory file, through a descriptor or a mapping. The kernel grants a write lease only if
  no other description exists (fcntl(2), F_SETLEASE). A granted lease therefore proves that the memory is free. A forked
  child shares the descriptions of its parent and keeps these descriptions open.
* `shared`: the process that iterates Loader(num_workers=N) owns the memory, and a worker fills the memory. No system
  call per batch is necessary, because packer.system.buffer_pool tracks the references in the owner. The pool does not
  reuse memory that was in use when the owner forked. torch does not recognize these tensors as shared. If the user
  sends one to another process, torch sends a copy.

No process reuses memory that was inherited through a fork. Parent and child see each other's writes into a batch that
both use, as with any DataLoader with workers.

New memory for each batch is slow, because the kernel clears and maps each page in a separate page fault. On systems
without leases or memfd, every batch gets new memory, as in torch.
"""

import fcntl
import mmap
import os
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from packer.system._torch_private import new_shared_storage, storage_over_file
from packer.system.buffer_pool import Bytes, PooledBuffer

_MOST_BUFFERS = 6  # number of batches in flight per worker with the default prefetch_factor, plus one
_MOST_MAPPED = 64  # number of buffers that one worker maps
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # Linux: allocate pages at once


def _memory_file(size: int) -> int:
    """Return a descriptor of an unnamed file in memory with `size` zero bytes. Raises OSError without free memory."""
    descriptor = os.memfd_create("packer", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# ---- owned by a worker, sent as tensors


class SharedMemory:
    """Reusable shared memory buffers of one process. Not thread-safe."""

    def __init__(self) -> None:
        self._buffers: list[_LeasedBuffer] = []
        self.made = 0  # number of buffers ever made
        self._calls = count()
        self._pid = os.getpid()

    def take(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.uint8]]:
        """Return (tensor, array) over the same `size` bytes: a uint8 tensor to send, a uint8 array to fill.

        Both have the shape (size,). The content is undefined: the caller must overwrite all bytes.
        """
        storage, memory = self._take(size)
        return torch.empty(0, dtype=torch.uint8).set_(storage), memory

    def stats(self) -> list[bool]:
        """Return one bool per buffer, oldest first: True if no process uses the buffer."""
        return [buffer.is_free() for buffer in self._buffers]

    def _take(self, size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
        if not hasattr(os, "memfd_create"):
            return _fresh(size)
        if os.getpid() != self._pid:  # this process is a forked child: the parent uses the old buffers
            self._buffers, self._pid = [], os.getpid()
        buffer = self._free(size)
        if buffer is None:
            buffer = _LeasedBuffer(size)
            if len(self._buffers) >= _MOST_BUFFERS:
                self._buffers.remove(self._least_needed())
            self._buffers.append(buffer)
            self.made += 1
        buffer.last_taken = next(self._calls)
        return buffer.storage(size), buffer.memory[:size]

    def _free(self, size: int) -> "_LeasedBuffer | None":
        """Return a free buffer of `size` to 4 * `size` bytes, or None."""
        fitting = (buffer for buffer in self._buffers if size <= buffer.memory.size <= 4 * size)
        return next((buffer for buffer in fitting if buffer.is_free()), None)

    def _least_needed(self) -> "_LeasedBuffer":
        """Return a free buffer. If all buffers are in use, return the least recently taken buffer."""
        free = (buffer for buffer in self._buffers if buffer.is_free())
        return next(free, min(self._buffers, key=lambda buffer: buffer.last_taken))


class _LeasedBuffer:
    """One mapped file in memory. `last_taken` is the number of the `SharedMemory.take` call that used it last."""

    last_taken: int

    def __init__(self, size: int) -> None:
        anonymous = _memory_file(max(size, 1))
        try:
            # opened again by name, because leases ignore the description that memfd_create returns
            self._descriptor = os.open(f"/proc/self/fd/{anonymous}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(anonymous)
        self._path = f"/proc/self/fd/{self._descriptor}"
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(self._descriptor, 0), np.uint8)

    def storage(self, size: int) -> torch.UntypedStorage:
        """Return a storage over the first `size` bytes, with a separate file description and mapping."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return storage_over_file(descriptor, size)
        finally:
            os.close(descriptor)

    def is_free(self) -> bool:
        """Return True if no process has a tensor over the buffer. Always False on systems without leases."""
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:  # the buffer is in use, or the system does not support leases
            return False
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True


def _fresh(size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
    storage = new_shared_storage(size)
    return storage, torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


# ---- owned by a loader, filled by its workers


class Address(NamedTuple):
    """Address of a buffer for other processes: open descriptor of process `pid`, unique number, and size in bytes."""

    pid: int
    descriptor: int
    number: int
    size: int


@dataclass(eq=False)
class SharedBuffer(PooledBuffer):
    """Memory that other processes can map by `address`, until this object is freed."""

    address: Address


def shared(size: int, number: int) -> SharedBuffer:
    """Return a buffer that other processes can map. `number` must be unique. Raises OSError without memfd or memory."""
    descriptor = _memory_file(size)
    try:
        file = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | _POPULATE)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(file, os.close, descriptor)
    return SharedBuffer(np.frombuffer(file, np.uint8), Address(os.getpid(), descriptor, number, size))


class _Mapping(NamedTuple):
    """A mapped buffer. `path` is the owner's descriptor in /proc, `file` its (device, inode) when it was mapped."""

    memory: Bytes
    path: str
    file: tuple[int, int]

    @property
    def is_over(self) -> bool:
        """True if the owner has closed the buffer, or has ended."""
        try:
            return _identity(os.stat(self.path)) != self.file
        except OSError:
            return True


class MappedBuffers:
    """Cache of the `shared` buffers that a worker process has mapped. `get` unmaps buffers that their owner closed."""

    def __init__(self) -> None:
        self._mappings: OrderedDict[int, _Mapping] = OrderedDict()

    def numbers(self) -> list[int]:
        """Return `Address.number` of all mapped buffers. The most recently used buffer is last."""
        return list(self._mappings)

    def get(self, address: Address) -> Bytes:
        """Return the memory of a buffer as uint8 (size,), mapped at the first call. Raises OSError if mapping fails."""
        found = self._mappings.pop(address.number, None)
        if found is None:
            for number in [number for number, each in self._mappings.items() if each.is_over]:
                del self._mappings[number]  # the memory is freed if no other process maps it
            found = _mapped(address)
        self._mappings[address.number] = found
        if len(self._mappings) > _MOST_MAPPED:
            self._mappings.popitem(last=False)
        return found.memory


def _mapped(address: Address) -> _Mapping:
    path = f"/proc/{address.pid}/fd/{address.descriptor}"
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        file = mmap.mmap(descriptor, address.size, flags=mmap.MAP_SHARED | _POPULATE)
        return _Mapping(np.frombuffer(file, np.uint8), path, _identity(os.fstat(descriptor)))
    finally:
        os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
