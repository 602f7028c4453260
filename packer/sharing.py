"""Shared memory that a worker process decodes batches into, used again as soon as nobody holds it.

A fresh shared tensor per batch is dear: the kernel zeroes its pages and maps them one fault at a time, a third of the
time of a batch of JPEGs where it was measured (docs/benchmarks.md). Here a worker keeps a few slabs mapped, and sends
each batch as a tensor over a slab. A slab is free again when the kernel says so: every tensor over it holds one more
open description of the file, in whatever process, through its descriptor or its mapping, and the kernel grants a write
lease only to the last one (fcntl(2), F_SETLEASE). Where there are no leases or no memfd, every batch gets new memory,
as torch does it.
"""

import fcntl
import mmap
import os
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_MOST_SLABS = 6  # what a loader keeps on the way from one worker with its usual prefetch_factor, and one in the making


class SharedMemory:
    """The slabs of one process. Not for several threads."""

    def __init__(self) -> None:
        self._slabs: list[_Slab] = []

    def take(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.uint8]]:
        """A flat uint8 tensor in shared memory to send, and a writable array over the same memory to fill.

        The content is what was left in it: whoever takes it writes all of it.
        """
        storage, memory = self._take(size)
        return torch.empty(0, dtype=torch.uint8).set_(storage), memory

    def _take(self, size: int) -> tuple[torch.UntypedStorage, npt.NDArray[np.uint8]]:
        if not hasattr(os, "memfd_create"):
            return _fresh(size)
        slab = self._free(size)
        if slab is None:
            slab = _Slab(size)
            if len(self._slabs) < _MOST_SLABS or self._drop_one():
                self._slabs.append(slab)
        return slab.storage(size), slab.memory[:size]

    def _free(self, size: int) -> "_Slab | None":
        """A free slab that is large enough and not wasteful."""
        fitting = (slab for slab in self._slabs if size <= slab.memory.size <= 4 * size)
        return next((slab for slab in fitting if slab.is_free()), None)

    def _drop_one(self) -> bool:
        """Let go of a slab of another size; False where all are in use: then the new one is used only once."""
        for slab in self._slabs:
            if slab.is_free():
                self._slabs.remove(slab)
                return True
        return False


class _Slab:
    """One file in memory, mapped for as long as the object lives."""

    def __init__(self, size: int) -> None:
        anonymous = os.memfd_create("packer", os.MFD_CLOEXEC)
        try:
            os.ftruncate(anonymous, max(size, 1))
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
            storages: Any = torch.UntypedStorage
            storage: torch.UntypedStorage = storages._new_shared_fd_cpu(descriptor, size)  # as torch receives one
            return storage
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
    make: Any = torch.UntypedStorage._new_shared
    storage: torch.UntypedStorage = make(size, device="cpu")
    return storage, torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
