"""Shared memory: buffers that several processes map and write, and the rule by which they are reused.

The rule: a batch's memory is reused only when no process can see it any more. Whoever holds a tensor or an array over
it sees it: the process that trains, children that were forked while it held one, their children, and processes that it
was sent to.

SharedMemory: a worker of a stock DataLoader owns and fills the memory, and sends it as a tensor. The kernel says
whether it is free: every tensor holds one more open description of the file, through a descriptor or a mapping, and a
write lease is granted only to the last description (fcntl(2), F_SETLEASE). A forked child shares the descriptions of
its parent and keeps them open.

`shared`: the process that iterates Loader(num_workers=N) owns the memory and a worker fills it, without a system call
for a batch. packer.system.buffer_pool decides in the owner: it follows the views of its own process, and does not reuse
what was held when that process was forked. To torch these tensors are not shared: what it sends to another process is a
copy.

In both, no process reuses what it inherited through a fork. What a parent or a child writes into a batch that both see,
the other sees too, as with the batches of any DataLoader with workers.

New memory for each batch is slow: the kernel zeroes its pages and maps them one fault at a time, a third of the time of
a batch of JPEGs where it was measured (docs/benchmarks.md). Where there are no leases or no memfd, every batch gets new
memory, as torch does it.
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

_MOST_BUFFERS = (
    6  # what a loader keeps on the way from one worker with its usual prefetch_factor, and one in the making
)
_MOST_MAPPED = 64  # buffers of a loader that one of its workers has mapped
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # Linux, Python 3.10: pages are there before the first byte is written


def _memory_file(size: int) -> int:
    """A descriptor of a file of zeros that has no name; raises OSError where the system has no memory."""
    descriptor = os.memfd_create("packer", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# ---- owned by a worker, sent as tensors


class SharedMemory:
    """The shared buffers of one process. Not for several threads."""

    def __init__(self) -> None:
        self._buffers: list[_LeasedBuffer] = []
        self.made = 0  # buffers, those that were given up included
        self._calls = count()
        self._pid = os.getpid()

    def take(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.uint8]]:
        """A flat uint8 tensor in shared memory to send, and a writable array over the same memory to fill.

        The content is what was left in it: whoever takes it writes all of it.
        """
        storage, memory = self._take(size)
        return torch.empty(0, dtype=torch.uint8).set_(storage), memory

    def stats(self) -> list[bool]:
        """Of each buffer, in the order in which they were made, whether it is free."""
        return [buffer.is_free() for buffer in self._buffers]

    def _take(self, size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
        if not hasattr(os, "memfd_create"):
            return _fresh(size)
        if os.getpid() != self._pid:  # a forked child: its parent goes on with these buffers
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
        """A free buffer that is large enough and not wasteful."""
        fitting = (buffer for buffer in self._buffers if size <= buffer.memory.size <= 4 * size)
        return next((buffer for buffer in fitting if buffer.is_free()), None)

    def _least_needed(self) -> "_LeasedBuffer":
        """A free buffer, of another size than is wanted; else the one that is held for longest, and may be for ever.

        Its memory stays with those who hold it.
        """
        free = (buffer for buffer in self._buffers if buffer.is_free())
        return next(free, min(self._buffers, key=lambda buffer: buffer.last_taken))


class _LeasedBuffer:
    """One file in memory, mapped for as long as the object lives. last_taken: number of the last call that took it."""

    last_taken: int

    def __init__(self, size: int) -> None:
        anonymous = _memory_file(max(size, 1))
        try:
            # opened by name once more: only such a description counts as a writer, which is what a lease compares
            self._descriptor = os.open(f"/proc/self/fd/{anonymous}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(anonymous)
        self._path = f"/proc/self/fd/{self._descriptor}"
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(self._descriptor, 0), np.uint8)

    def storage(self, size: int) -> torch.UntypedStorage:
        """A storage over the first `size` bytes, with a description and a mapping of its own."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return storage_over_file(descriptor, size)
        finally:
            os.close(descriptor)

    def is_free(self) -> bool:
        """Whether no tensor over the buffer is left in any process."""
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:  # somebody holds it, or the system has no leases: then it is never used again
            return False
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True


def _fresh(size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
    storage = new_shared_storage(size)
    return storage, torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


# ---- owned by a loader, filled by its workers


class Address(NamedTuple):
    """Where other processes find a buffer: an in-memory file that `pid` has open. number: unique, never reused."""

    pid: int
    descriptor: int
    number: int
    size: int


@dataclass(eq=False)
class SharedBuffer(PooledBuffer):
    """Memory that other processes find at its address, for as long as the object lives."""

    address: Address


def shared(size: int, number: int) -> SharedBuffer:
    """A buffer that other processes can map; raises OSError where the system has no memfd, or no memory."""
    descriptor = _memory_file(size)
    try:
        file = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | _POPULATE)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(file, os.close, descriptor)
    return SharedBuffer(np.frombuffer(file, np.uint8), Address(os.getpid(), descriptor, number, size))


class _Mapping(NamedTuple):
    """A buffer that this process has mapped. path: of the owner's descriptor; file: what that was, device and inode."""

    memory: Bytes
    path: str
    file: tuple[int, int]

    @property
    def is_over(self) -> bool:
        """Whether the owner has closed the buffer."""
        try:
            return _identity(os.stat(self.path)) != self.file
        except OSError:
            return True


class MappedBuffers:
    """The loader's buffers that a worker has mapped."""

    def __init__(self) -> None:
        self._mappings: OrderedDict[int, _Mapping] = OrderedDict()

    def numbers(self) -> list[int]:
        """Numbers of the mapped buffers, the most recently used last."""
        return list(self._mappings)

    def get(self, address: Address) -> Bytes:
        """The buffer's memory; raises OSError where this process may not see it."""
        found = self._mappings.pop(address.number, None)
        if found is None:
            for number in [number for number, each in self._mappings.items() if each.is_over]:
                del self._mappings[number]  # this was the last process to hold it, maybe
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
