"""Assembly: one batch in the making, its pictures decoded straight into the batch's memory by any number of threads."""

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from packer.batching import Ragged, as_torch, channels_first
from packer.codecs.base import Buffer
from packer.errors import BadInput, CorruptRecord
from packer.formats.base import Record
from packer.geometry import Geometry, View
from packer.pack.samples import Look, SampleReader, Views
from packer.schema import PIXEL_KINDS, Field
from packer.slabs import Bytes, Slabs

_DTYPES = {"image": "uint8", "mask": "uint8", "depth": "float32"}

Take = Callable[[int], tuple[torch.Tensor, Bytes]]  # size -> a flat uint8 tensor, and an array over the same memory


def take_from(slabs: Slabs, size: int) -> tuple[torch.Tensor, Bytes]:
    """Memory that is used again when the last tensor over it is gone."""
    held = slabs.take(size)
    view: Any = held.obj
    return torch.from_numpy(np.frombuffer(held, np.uint8)), view.base[:size]  # the array keeps nothing back


def take_new(size: int) -> tuple[torch.Tensor, Bytes]:
    """Fresh memory of the process, for batches that nobody gives back."""
    tensor = torch.empty(size, dtype=torch.uint8)
    return tensor, tensor.numpy()


class Filler(Protocol):
    """A batch in the making: `fill` each slice once, from any thread, then ask for `fields`."""

    places: npt.NDArray[np.int64]

    @property
    def only_copies(self) -> bool:
        """Whether nothing is decoded: then large slices are better than small ones."""

    def fill(self, start: int, stop: int) -> None:
        """Make the samples at those positions; other threads may fill other slices meanwhile."""

    def fields(self) -> dict[str, Any]:
        """Name -> what the batch has."""


class Assembly:
    """The chosen fields of the samples at `places`, in that order. `fill` each slice once, then ask for `fields`."""

    def __init__(
        self,
        reader: SampleReader,
        places: npt.NDArray[np.int64],
        *,
        take: Take = take_new,
        geometry: Geometry | None = None,
        random: Sequence[Sequence[float]] = (),
    ) -> None:
        """places: sample indices of the pack. take: where memory comes from. random: numbers of each view."""
        self.places = places
        self._reader = reader
        self._geometry = geometry
        self._random = random
        self._slots = {
            field.name: _Slots(reader, field, len(places), take) for field in reader.schema if field.kind in PIXEL_KINDS
        }
        self._gathered = [field for field in reader.schema if geometry is None and reader.is_bare(field)]
        bare = {field.name for field in self._gathered}
        self._read = [name for name in reader.stored if name not in bare]
        self._lists: dict[str, list[Any]] = {
            name: [None] * len(places) for name in self._read if name not in self._slots
        }

    @property
    def only_copies(self) -> bool:
        """Whether nothing is decoded: then large slices are better than small ones."""
        return not self._read

    def fill(self, start: int, stop: int) -> None:
        """Decode the samples at those positions, in pack order; other threads may fill other slices meanwhile."""
        for field in self._gathered:
            self._slots[field.name].gather(start, stop, self.places[start:stop])
        if not self._read:
            return
        indices = self.places[start:stop].tolist()
        with self._reader.pack.records(indices, self._read) as records:
            # first what is Python for all of them, then what is pixels: after a picture the interpreter's own code and
            # data have left the caches, and come back once a slice instead of once a picture
            planned = [self._plan(start + at, index, records[at]) for at, index in enumerate(indices)]
            for at, (index, (looks, (main, others))) in enumerate(zip(indices, planned, strict=True)):
                for name, value in records[at].items():
                    view = others.get(name, main)
                    if name in self._slots:
                        self._slots[name].put(start + at, index, value, look=looks[name], view=view)
                    else:
                        field = self._reader.schema[name]
                        decoded = self._reader.decode(index, field, value, view=view)
                        self._lists[name][start + at] = as_torch(field, decoded)

    def _plan(self, position: int, index: int, record: Record) -> tuple[dict[str, Look], Views]:
        """The shape of each picture as stored, and the sample's views."""
        reader = self._reader
        looks = {name: reader.look(index, name, record[name]) for name in self._slots if name in record}
        random = self._random[position] if len(self._random) else ()
        return looks, reader.views(index, self._geometry, looks, random)

    def fields(self) -> dict[str, Any]:
        """Name -> tensor of the batch; a list of what has no one shape or is no number; Ragged for odd pictures."""
        return {field.name: self._field(field) for field in self._reader.schema}

    def _field(self, field: Field) -> Any:
        if field.name in self._slots:
            return self._slots[field.name].finished()
        if field.name in self._lists:
            return self._lists[field.name]
        if field.is_column:
            return torch.from_numpy(self._reader.column(field.name, self.places))
        return [self._reader.indexed(int(index), field) for index in self.places]


class _Slots:
    """The pictures of one field: decoded into one tensor while they have one shape, kept apart where they do not."""

    def __init__(self, reader: SampleReader, field: Field, count: int, take: Take) -> None:
        self._reader = reader
        self._field = field
        self._count = count
        self._take = take
        self._lock = threading.Lock()
        self._tensor = torch.empty(0)
        self._arrays: npt.NDArray[Any] | None = None
        self._odd: dict[int, torch.Tensor] = {}
        self._decoder = reader.decoder(field) if field.name in reader.stored else None

    def put(self, position: int, index: int, value: Buffer, *, look: Look, view: View | None) -> None:
        """Decode one picture into its place."""
        shape = look[0] if view is None else (*view.size, *look[0][2:])
        arrays = self._arrays if self._arrays is not None else self._allocated(shape)
        if arrays.shape[1:] != shape:
            odd = self._reader.decode(index, self._field, value, look=look, view=view)
            self._odd[position] = as_torch(self._field, odd)
        elif self._decoder is not None:
            try:
                self._decoder(value, view, arrays[position], header=look[1])
            except (BadInput, CorruptRecord) as error:
                raise self._reader.undecodable(index, self._field.name, error) from error
        else:
            self._reader.decode(index, self._field, value, arrays[position], look=look, view=view)

    def gather(self, start: int, stop: int, indices: npt.NDArray[np.int64]) -> None:
        """Copy pictures whose stored bytes are the pixels."""
        shape = tuple(length or 0 for length in self._field.shape or ())
        arrays = self._arrays if self._arrays is not None else self._allocated(shape)
        out = arrays[start:stop].reshape(stop - start, -1).view(np.uint8)
        self._reader.pack.gather(indices, self._field.name, out)

    def _allocated(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        with self._lock:
            if self._arrays is None:
                dtype, size = _DTYPES[self._field.kind], (self._count, *shape)
                tensor, memory = self._take(prod(size) * np.dtype(dtype).itemsize)
                self._tensor = tensor.view(getattr(torch, dtype)).view(size)
                self._arrays = memory.view(dtype).reshape(size)
            return self._arrays

    def finished(self) -> "torch.Tensor | Ragged":
        tensor = channels_first(self._field, self._tensor)
        if not self._odd:
            return tensor
        return Ragged(self._odd[at] if at in self._odd else tensor[at] for at in range(self._count))
