"""Batch decoder: decodes the samples of one batch into its tensors. Several threads may share the work."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer.codecs.base import Buffer, StoredImage
from packer.datasets.batch import Ragged, bytes_of, channels_first
from packer.errors import BadInput, CorruptRecord
from packer.formats.base import Record
from packer.geometry import Geometry, View
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field
from packer.system.buffer_pool import BufferPool, Bytes, PooledBuffer

_MAPPED, _READ = 32, 8  # samples that are read before they are decoded: of mapped parts, and of parts read into memory

Take = Callable[[int], tuple[torch.Tensor, Bytes]]  # size -> a flat uint8 tensor, and an array over the same memory
CollateFields = Callable[[dict[str, Any]], Any]  # batched fields by name -> the batch


def take_from(pool: BufferPool[PooledBuffer], size: int) -> tuple[torch.Tensor, Bytes]:
    """Reserve memory of a pool. Return a flat uint8 tensor of `size` bytes and an array over the same memory.

    The pool reuses the memory when the last tensor over it is freed, even if the array still exists.
    """
    buffer = pool.reserve(size)
    return torch.from_numpy(np.frombuffer(pool.give(buffer, size), np.uint8)), buffer.memory[:size]


def take_new(size: int) -> tuple[torch.Tensor, Bytes]:
    """Allocate memory. Return a flat uint8 tensor of `size` bytes and an array over the same memory."""
    tensor = torch.empty(size, dtype=torch.uint8)
    return tensor, tensor.numpy()


class BatchDecoder(ABC):
    """Decodes one batch. First call `fill` for each slice of the batch, in any threads, then `finish` or `fields`."""

    only_copies = False  # True if all values are copied without decoding: one thread is the fastest then
    at_once = _READ  # the number of samples that are read before the first of them is decoded

    def __init__(self, indices: npt.NDArray[np.int64], collate: CollateFields = dict) -> None:
        """Create a decoder for one batch.

        Args:
            indices: Rows of the pack, int64, in the order of the batch.
            collate: A function that returns the batch for a dict of the batched fields.
        """
        self.indices = indices
        self.given_up = False  # set to True if the batch is not needed any more: `fill` returns early then
        self._collate = collate

    def __len__(self) -> int:
        return len(self.indices)

    def slice(self, threads: int) -> int:
        """Return how many samples each slice contains, so that `threads` threads have equal work.

        This is at most the attribute `at_once`. But if all values are copied without decoding, one slice contains the
        complete batch.
        """
        if self.only_copies:
            return len(self)
        rounds = -(-len(self) // (threads * self.at_once))
        return -(-len(self) // (threads * rounds))

    @abstractmethod
    def fill(self, start: int, stop: int) -> None:
        """Decode the samples at positions `start` to `stop` - 1. Threads may fill different slices at once."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the batched values by the names of their fields."""

    def finish(self) -> tuple[Any, int]:
        """Return the batch and its size in bytes."""
        batch = self._collate(self.fields())
        return batch, bytes_of(batch)


class PackBatchDecoder(BatchDecoder):
    """Decodes one batch of the fields that `sample_decoder` selects."""

    def __init__(
        self,
        sample_decoder: SampleDecoder,
        indices: npt.NDArray[np.int64],
        *,
        take: Take = take_new,
        geometry: Geometry | None = None,
        random: Sequence[Sequence[float]] = (),
        collate: CollateFields = dict,
    ) -> None:
        """Create a decoder for one batch.

        Args:
            sample_decoder: Decodes values of the pack.
            indices: Rows of the pack, int64, in the order of the batch.
            take: A function of a size in bytes. It returns memory for images, as `take_new` does.
            geometry: Warps the samples. None returns the stored pixels and labels.
            random: For each sample, as many random numbers as the geometry draws.
            collate: A function that returns the batch for a dict of the batched fields.
        """
        super().__init__(indices, collate)
        self.at_once = _MAPPED if sample_decoder.pack.is_mapped else _READ
        self._sample_decoder = sample_decoder
        self._geometry = geometry
        self._random = random
        self._slots = {
            field.name: _FieldBatch(sample_decoder, field, len(indices), take)
            for field in sample_decoder.schema.fields
            if field.kind in PIXEL_KINDS
        }
        self._gathered = [
            field for field in sample_decoder.schema.fields if geometry is None and sample_decoder.is_fixed_size(field)
        ]
        gathered = {field.name for field in self._gathered}
        self._read = [name for name in sample_decoder.stored if name not in gathered]
        self._lists: dict[str, list[Any]] = {
            field.name: [None] * len(indices)
            for field in sample_decoder.schema.fields
            if field.name not in self._slots and not sample_decoder.is_column(field)
        }
        self.only_copies = not self._read and not self._lists

    def fill(self, start: int, stop: int) -> None:
        """Decode the samples at positions `start` to `stop` - 1 of the batch."""
        for field in self._gathered:
            self._slots[field.name].gather(start, stop, self.indices[start:stop])
        for begin in () if self.only_copies else range(start, stop, self.at_once):
            self._fill(begin, min(begin + self.at_once, stop))

    def _fill(self, start: int, stop: int) -> None:
        chosen = self.indices[start:stop].tolist()
        with self._sample_decoder.pack.records(chosen, self._read) as records:
            # All images are decoded after the Python code of all samples. Each image evicts the interpreter's code from
            # the caches, which is loaded again once per slice and not once per image.
            images: list[Callable[[], object]] = []
            for at, (index, record) in enumerate(zip(chosen, records, strict=True)):
                images += self._planned(start + at, index, record)
            for decode in images:
                if self.given_up:
                    return
                decode()

    def _planned(self, position: int, index: int, record: Record) -> Iterator[Callable[[], object]]:
        """Decode all values of a sample but images, and yield for each image a function that decodes it later."""
        sample_decoder = self._sample_decoder
        stored = {
            name: sample_decoder.stored_image(index, name, record[name]) for name in self._slots if name in record
        }
        random = self._random[position] if len(self._random) else ()
        main, others = sample_decoder.views(index, self._geometry, stored, random)
        for name, image in stored.items():
            view = others.get(name, main)
            yield self._slots[name].prepared(position, index, record[name], stored=image, view=view)
        for name, filled in self._lists.items():
            field = sample_decoder.schema[name]
            value = record[name] if name in record else sample_decoder.pack.index.value(index, name)
            found = sample_decoder.decode(index, field, value, view=main)
            filled[position] = torch.from_numpy(found) if isinstance(found, np.ndarray) else found
        if sample_decoder.relations is not None and sample_decoder.images:
            values = {name: self._lists[name][position].numpy() for name in sample_decoder.relations.names}
            size = sample_decoder.shown_size(stored, main)
            for name, kept in sample_decoder.ruled(index, sample_decoder.relations, values, size).items():
                self._lists[name][position] = torch.from_numpy(kept)

    def fields(self) -> dict[str, Any]:
        """Return name -> a tensor, Ragged for images of different sizes, or for other kinds a list of the values."""
        return {field.name: self._field(field) for field in self._sample_decoder.schema.fields}

    def _field(self, field: Field) -> Any:
        if field.name in self._slots:
            return self._slots[field.name].finished()
        if field.name in self._lists:
            return self._lists[field.name]
        found = self._sample_decoder.column(field, self.indices)
        return torch.from_numpy(found) if isinstance(found, np.ndarray) else found


class _FieldBatch:
    """The images of one field in one batch.

    Images with the shape of the first image share one tensor. Each other image has a tensor of its own.
    """

    def __init__(self, sample_decoder: SampleDecoder, field: Field, count: int, take: Take) -> None:
        self._sample_decoder = sample_decoder
        self._field = field
        self._count = count
        self._take = take
        self._lock = threading.Lock()
        self._tensor = torch.empty(0)
        self._arrays: npt.NDArray[Any] | None = None
        self._odd: dict[int, torch.Tensor] = {}
        self._decoder = sample_decoder.decoder(field) if field.name in sample_decoder.stored else None

    def prepared(
        self, position: int, index: int, value: Buffer, *, stored: StoredImage, view: View | None
    ) -> Callable[[], object]:
        """Return a function that decodes `value` to `position` in the batch. Errors name the sample of row `index`."""
        shape = stored.shape if view is None else (*view.size, *stored.shape[2:])
        arrays = self._arrays if self._arrays is not None else self._allocated(shape)
        if arrays.shape[1:] != shape:
            decode = partial(self._sample_decoder.decode, index, self._field, value, stored=stored, view=view)
            return partial(self._put_odd, position, decode)
        if self._decoder is None:
            return partial(
                self._sample_decoder.decode, index, self._field, value, arrays[position], stored=stored, view=view
            )
        prepare = partial(self._decoder.prepare, value, view, arrays[position], header=stored.header)
        return partial(self._run, index, self._run(index, prepare))

    def _run(self, index: int, step: Callable[[], Any]) -> Any:
        """Run a step of a decoder. The message of an error names the sample of row `index`."""
        try:
            return step()
        except (BadInput, CorruptRecord) as error:
            raise self._sample_decoder.undecodable(index, self._field.name, error) from error

    def _put_odd(self, position: int, decode: Callable[[], Any]) -> None:
        self._odd[position] = channels_first(self._field, torch.from_numpy(decode()))

    def gather(self, start: int, stop: int, indices: npt.NDArray[np.int64]) -> None:
        """Copy uncompressed images, of the rows `indices` of the pack, to the positions `start` to `stop` - 1."""
        shape = tuple(length or 0 for length in self._field.shape or ())
        arrays = self._arrays if self._arrays is not None else self._allocated(shape)
        out = arrays[start:stop].reshape(stop - start, -1).view(np.uint8)
        self._sample_decoder.pack.gather(indices, self._field.name, out)

    def _allocated(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        with self._lock:
            if self._arrays is None:
                dtype, size = self._sample_decoder.pixel_dtypes[self._field.name], (self._count, *shape)
                tensor, memory = self._take(prod(size) * np.dtype(dtype).itemsize)
                self._tensor = tensor.view(getattr(torch, dtype)).view(size)
                self._arrays = memory.view(dtype).reshape(size)
            return self._arrays

    def finished(self) -> "torch.Tensor | Ragged":
        tensor = channels_first(self._field, self._tensor)
        if not self._odd:
            return tensor
        return Ragged(self._odd[at] if at in self._odd else tensor[at] for at in range(self._count))
