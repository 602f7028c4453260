"""Worker transport: a batch on its way from a worker process, its tensors in memory that both processes have mapped.

torch's own way costs a descriptor and a connection per tensor, and new memory per batch. Here the loader's process owns
the memory, and knows by itself when nobody holds a batch any more (packer.system.shared_memory has the rule). It tells
the worker where a slab is; the worker lays the batch's tensors into it, and sends the form of the batch with places in
it. What does not fit, and the first batches, whose size nobody knows yet, travels by value.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer.loading.nested_tensors import mapped
from packer.system.buffer_pool import Bytes

_ALIGNED = 64  # bytes, a cache line
_BY_VALUE = 4096  # up to so many bytes a tensor is sent itself


@dataclass(frozen=True)
class _Placed:
    """A tensor in the slab. offset: bytes from its beginning; strides in numbers, as torch counts them."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, slab: torch.Tensor) -> torch.Tensor:
        """The tensor over a flat uint8 tensor that holds the slab."""
        whole = slab[self.offset :]
        whole = whole[: len(whole) // self.dtype.itemsize * self.dtype.itemsize].view(self.dtype)
        return whole.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class _Value:
    """A tensor by value, without what torch does to share one."""

    array: npt.NDArray[Any]

    def tensor(self, slab: torch.Tensor) -> torch.Tensor:  # as _Placed has it
        """The tensor, in memory of its own."""
        return torch.from_numpy(self.array)


@dataclass(frozen=True)
class PackedBatch:
    """The form of a batch, with _Placed and _Value for its tensors. wanted: bytes of a slab that would hold them."""

    form: Any
    wanted: int

    def unpacked(self, held: memoryview | None) -> Any:
        """The batch. held: of the slab that the worker was given; it stays as long as a tensor over it lives."""
        slab = torch.empty(0, dtype=torch.uint8) if held is None else torch.from_numpy(np.frombuffer(held, np.uint8))
        return mapped(self.form, lambda sent: sent.tensor(slab), kinds=(_Placed, _Value))


class BatchLayout:
    """Where a worker lays out one batch: the slab that it was given, or none."""

    def __init__(self, slab: Bytes | None) -> None:
        self._slab = slab if slab is not None else np.empty(0, np.uint8)
        self._start = self._slab.ctypes.data
        self._used = 0

    def take(self, size: int) -> tuple[torch.Tensor, Bytes]:
        """Memory of the slab, while there is some, else of the process; as Assembly takes it."""
        fits = self._used + size <= self._slab.size
        memory = self._room(size) if fits else np.empty(size, np.uint8)  # that is counted when it is packed
        return torch.from_numpy(memory), memory

    def _room(self, size: int) -> Bytes:
        """The next bytes of the slab: as many as are wanted, or fewer where it ends."""
        start = self._used
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return self._slab[start : start + size]

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
        if tensor.numel() and 0 <= offset < self._slab.size:
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
