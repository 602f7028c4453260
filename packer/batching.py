"""Batch: the samples of one batch, decoded into one tensor per field; what `__getitems__` returns.

A stock DataLoader hands a data set that has `__getitems__` all indices of a batch, and what comes back to the collate
function. Batch is a sequence of samples there, so that any collate function works, and torch's own finds the finished
tensors: its table of collate functions, which torch documents as the place for new types, gets two entries here.
In a worker process the tensors lie in shared memory from the start: nothing is copied on the way to the trainer.
"""

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from packer.codecs.base import Buffer
from packer.errors import Refused
from packer.pack.samples import SampleReader
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field
from packer.sharing import SharedMemory

_DTYPES = {"image": torch.uint8, "mask": torch.uint8, "depth": torch.float32}


class Row(dict[str, Any]):
    """One sample of a Batch, its tensors views of the batch's."""


class TupleRow(tuple[Any, ...]):
    """One sample of a Batch as the tuple that `as_tuple` asked for."""

    __slots__ = ()


class Batch(Sequence[Any]):
    """Samples of one batch. `fields`: a tensor per field, or a list where lengths differ or values are no numbers."""

    def __init__(self, fields: dict[str, Any], count: int, as_tuple: tuple[str, ...] | None) -> None:
        self.fields = fields
        self.as_tuple = as_tuple
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, position: int) -> Any: ...
    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...
    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(self._count))]
        if not -self._count <= position < self._count:
            raise IndexError(f"position {position} is outside a batch of {self._count}")
        row = {name: _plain(values[position]) for name, values in self.fields.items()}
        return Row(row) if self.as_tuple is None else TupleRow(row[name] for name in self.as_tuple)

    def collated(self) -> Any:
        """What torch's default collate returns: a dict of batched values, or a list of them with `as_tuple`."""
        for name, values in self.fields.items():
            if isinstance(values, Ragged):
                values.refuse(name)
        if self.as_tuple is None:
            return self.fields
        return [self.fields[name] for name in self.as_tuple]


class Ragged(list[Any]):
    """Pictures of different sizes: fine one by one, but no batch."""

    def refuse(self, name: str) -> None:
        """Raise the error that tells what to do."""
        sizes = sorted({f"{value.shape[-2]}x{value.shape[-1]}" for value in self})
        raise Refused(
            f"field {name!r}: pictures of {len(sizes)} sizes in one batch ({', '.join(sizes[:3])} ...): "
            "pack them with --resize, or pass a transform or a collate_fn that makes them equal"
        )


def _plain(value: Any) -> Any:
    """A number of a batched column as a Python number, as `dataset[i]` gives it."""
    return value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Batch):
        return batch.collated()
    kind = tuple if isinstance(batch[0], tuple) else dict  # rows that a collate function has put in a list of its own
    return torch.utils.data.default_collate([kind(row) for row in batch])


default_collate_fn_map[Row] = _collate
default_collate_fn_map[TupleRow] = _collate


def allocate(
    field: Field, count: int, shape: tuple[int, ...], *, shared: SharedMemory | None
) -> tuple[torch.Tensor, npt.NDArray[Any]]:
    """A tensor (count, *shape) for a pixel field, its content undefined, and the array to fill it through.

    shared: where the tensor's memory comes from in a worker process; None for ordinary memory.
    """
    dtype = _DTYPES[field.kind]
    size = (count, *shape)
    if shared is None:
        tensor = torch.empty(size, dtype=dtype)
        return tensor, tensor.numpy()
    storage, memory = shared.take(math.prod(size) * dtype.itemsize)
    tensor = torch.empty(0, dtype=dtype).set_(storage).view(size)
    return tensor, memory.view(str(dtype).removeprefix("torch.")).reshape(size)


def as_torch(field: Field, value: Any) -> Any:
    """A decoded value in torch's layout: image (3, H, W) and depth (1, H, W) as views, arrays as tensors."""
    if not isinstance(value, np.ndarray):
        return value
    return channels_first(field, torch.from_numpy(value))


def channels_first(field: Field, tensor: torch.Tensor) -> torch.Tensor:
    """(..., H, W, 3) -> (..., 3, H, W) for images and (..., H, W) -> (..., 1, H, W) for depth; a view."""
    if field.kind == "image":
        return tensor.movedim(-1, -3)
    return tensor.unsqueeze(-3) if field.kind == "depth" else tensor


def as_pil(field: Field, value: Any) -> Any:
    """Pictures as PIL images (RGB, F or L), other values as they are; needs Pillow."""
    if field.kind not in _DTYPES:
        return value
    image: Any = import_or_explain("PIL.Image", 'output="pil"')
    return image.fromarray(np.ascontiguousarray(value))


class _Slots:
    """The pictures of one field: decoded into one tensor while they have one shape, kept apart where they do not."""

    def __init__(self, reader: SampleReader, field: Field, count: int, *, shared: SharedMemory | None) -> None:
        self._reader = reader
        self._field = field
        self._count = count
        self._shared = shared
        self._tensor: torch.Tensor | None = None
        self._arrays: npt.NDArray[Any] | None = None
        self._odd: dict[int, torch.Tensor] = {}

    def put(self, position: int, index: int, value: Buffer) -> None:
        shape = self._reader.shape(self._field, value)
        if self._arrays is None:
            self._tensor, self._arrays = allocate(self._field, self._count, shape, shared=self._shared)
        if self._arrays.shape[1:] == shape:
            self._reader.decode(index, self._field, value, self._arrays[position])
        else:
            self._odd[position] = as_torch(self._field, self._reader.decode(index, self._field, value))

    def finished(self) -> "torch.Tensor | Ragged":
        tensor = channels_first(self._field, self._tensor if self._tensor is not None else torch.empty(0))
        if not self._odd:
            return tensor
        return Ragged(self._odd.get(position, tensor[position]) for position in range(self._count))


def read_batch(reader: SampleReader, places: npt.NDArray[np.int64], *, shared: SharedMemory | None) -> dict[str, Any]:
    """The chosen fields of the samples at `places` (indices into the pack), in that order; read in pack order."""
    schema = reader.schema
    slots = {
        field.name: _Slots(reader, field, len(places), shared=shared) for field in schema if field.kind in PIXEL_KINDS
    }
    lists: dict[str, list[Any]] = {name: [None] * len(places) for name in reader.stored if name not in slots}
    for position in np.argsort(places, kind="stable").tolist():
        index = int(places[position])
        with reader.pack.record(index, reader.stored) as record:
            for name, value in record.items():
                if name in slots:
                    slots[name].put(position, index, value)
                else:
                    lists[name][position] = as_torch(schema[name], reader.decode(index, schema[name], value))
    return {field.name: _gathered(reader, field, places, slots, lists) for field in schema}


def _gathered(
    reader: SampleReader, field: Field, places: npt.NDArray[np.int64], slots: dict[str, _Slots], lists: dict[str, Any]
) -> Any:
    if field.name in slots:
        return slots[field.name].finished()
    if field.name in lists:
        return lists[field.name]
    if field.is_column:
        return torch.from_numpy(reader.column(field.name, places))
    return [reader.indexed(int(index), field) for index in places]
