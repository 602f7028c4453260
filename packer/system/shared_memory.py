"""Shared memory: all memory that packer lets several processes map and write, and the rule for using it again.

The rule: memory that a batch was given out in is used again only when no process can see it any more. A batch is seen
by whoever holds a tensor or an array over it: the process that trains, children that were forked while it held one,
their children, and processes that it was sent to.

SharedMemory: a worker of a stock DataLoader owns and fills it, and sends it as a tensor. The kernel decides: every
tensor holds one more open description of the file, through a descriptor or a mapping, and a write lease is granted only
to the last description (fcntl(2), F_SETLEASE). A forked child shares the descriptions of its parent and keeps them
open.

`shared`: the process that iterates Loader(num_workers=N) owns it, a worker fills it, and nothing is asked of the kernel
for a batch. packer.system.buffer_pool decides, in the owner: it follows the views of its own process, and retires what
was given out when that process is forked. To torch these tensors are not shared: what it sends to another process is a
copy.

In both, no process uses again what it inherited through a fork. What a parent or a child writes into a batch that both
see, the other sees too, as with the batches of any DataLoader with workers.

New memory for each batch is dear: the kernel zeroes its pages and maps them one fault at a time, a third of the time of
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
from packer.system.buffer_pool import Bytes, Slab

_MOST_SLABS = 6  # what a loader keeps on the way from one worker with its usual prefetch_factor, and one in the making
_MOST_MAPPED = 64  # slabs of a loader that one of its workers has mapped
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
    """The slabs of one process. Not for several threads."""

    def __init__(self) -> None:
        self._slabs: list[_SharedBuffer] = []
        self._turns = count()
        self._pid = os.getpid()

    def take(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.uint8]]:
        """A flat uint8 tensor in shared memory to send, and a writable array over the same memory to fill.

        The content is what was left in it: whoever takes it writes all of it.
        """
        storage, memory = self._take(size)
        return torch.empty(0, dtype=torch.uint8).set_(storage), memory

    def stats(self) -> list[bool]:
        """Of each slab, whether it is free."""
        return [slab.is_free() for slab in self._slabs]

    def _take(self, size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
        if not hasattr(os, "memfd_create"):
            return _fresh(size)
        if os.getpid() != self._pid:  # a forked child: its parent goes on with these slabs
            self._slabs, self._pid = [], os.getpid()
        slab = self._free(size)
        if slab is None:
            slab = _SharedBuffer(size)
            if len(self._slabs) >= _MOST_SLABS:
                self._slabs.remove(self._least_needed())
            self._slabs.append(slab)
        slab.turn = next(self._turns)
        return slab.storage(size), slab.memory[:size]

    def _free(self, size: int) -> "_SharedBuffer | None":
        """A free slab that is large enough and not wasteful."""
        fitting = (slab for slab in self._slabs if size <= slab.memory.size <= 4 * size)
        return next((slab for slab in fitting if slab.is_free()), None)

    def _least_needed(self) -> "_SharedBuffer":
        """A free slab, of another size than is wanted; else the one that is held for longest, and may be for ever.

        Its memory stays with those who hold it.
        """
        free = (slab for slab in self._slabs if slab.is_free())
        return next(free, min(self._slabs, key=lambda slab: slab.turn))


class _SharedBuffer:
    """One file in memory, mapped for as long as the object lives. turn: when it was taken last."""

    turn: int

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
        """Whether no tensor over the slab is left in any process."""
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
    """Where other processes find a slab: a file of memory that `pid` has open. number: its own, never used again."""

    pid: int
    descriptor: int
    number: int
    size: int


@dataclass(eq=False)
class SharedSlab(Slab):
    """Memory that other processes find at its address, for as long as the object lives."""

    address: Address


def shared(size: int, number: int) -> SharedSlab:
    """A slab that other processes can map; raises OSError where the system has no memfd, or no memory."""
    descriptor = _memory_file(size)
    try:
        file = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | _POPULATE)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(file, os.close, descriptor)
    return SharedSlab(np.frombuffer(file, np.uint8), Address(os.getpid(), descriptor, number, size))


class _Mapping(NamedTuple):
    """A slab that this process has mapped. path: of the owner's descriptor; file: what that was, device and inode."""

    memory: Bytes
    path: str
    file: tuple[int, int]

    @property
    def is_over(self) -> bool:
        """Whether the owner has closed it, and will not ask for it again."""
        try:
            return _identity(os.stat(self.path)) != self.file
        except OSError:
            return True


class MappedBuffers:
    """The slabs that a worker has mapped."""

    def __init__(self) -> None:
        self._mappings: OrderedDict[int, _Mapping] = OrderedDict()

    def numbers(self) -> list[int]:
        """Of the slabs that are mapped, the one that was asked for last at the end."""
        return list(self._mappings)

    def get(self, address: Address) -> Bytes:
        """The slab's memory; raises OSError where this process may not see it."""
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
