"""Stored array: one array in a file or folder, whose first dimension counts the samples.

Subclasses implement `read`, which returns rows with the stored dtype. Threads may share an array, and an array remains
usable after a fork. A pickled array contains names and positions, but no cached rows.
"""

import math
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources.base import Extent
from packer.sources.records._random_access_files import RecordFiles

MOST_STRETCH_BYTES = 512 << 20  # limit for rows that are read together from blocks
_MOST_FORTRAN_BYTES = 1 << 30
_STRETCHES = 3  # number of stretches in memory
_MOST_MISSING = 1000  # limit of missing blocks per present block
_Value = TypeVar("_Value")


class Unread(NamedTuple):
    """An array that the source skips, with the reason. `path` names the array in messages."""

    path: str
    reason: str


class Kept(Generic[_Value]):
    """A thread-safe cache of the most recently used values of a function. Forking or unpickling empties the cache."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self._most,)

    def forget(self) -> None:
        self._values: OrderedDict[int, _Value] = OrderedDict()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def get(self, key: int, make: Callable[[], _Value]) -> _Value:
        """Return the value of `key`. If the value is not in the cache, call `make()` and cache the result."""
        if self._pid != os.getpid():  # after a fork, another thread may hold the lock
            self.forget()
        with self._lock:
            if key not in self._values:
                while len(self._values) >= self._most:  # before the next value is made: values may be large
                    self._values.popitem(last=False)
                self._values[key] = make()
            self._values.move_to_end(key)
            return self._values[key]


class ArrayForm(NamedTuple):
    """Position, dtype and shape of an array.

    Attributes:
        path: The relative path of the file, the group in the file, and the name of the array.
        files: The files that contain the rows.
        number: The position in `files` of the file with this array.
        dtype: The stored dtype. For texts, it is `S` (UTF-8) or `U`.
        shape: The shape of the array. The first dimension is the number of rows.
        offset: The offset of the first row in the file.
    """

    path: str
    files: RecordFiles
    number: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0


class StoredArray(ABC):
    """One array of a file or group. Row i belongs to sample i.

    Attributes:
        container: The relative path of the file, and of the group in the file.
        name: The name of the array in `container`.
        dtype: The stored dtype.
        shape: The shape. The first dimension is the number of rows.
        stretch: The number of rows that are read together.
        is_text: True if each row is a str.
        is_ragged: True if each row is bytes, or a 1-D array of any length.
        missing_blocks: The number of blocks that are absent from the file. Their values are zeros.
        value_names: Number -> name for an array of an HDF5 enumeration, sorted by number. Empty for other arrays.
    """

    stretch = 1
    is_ragged = False
    missing_blocks = 0
    value_names: Mapping[int, str] = MappingProxyType({})

    def __init__(self, form: ArrayForm) -> None:
        self.container, _, self.name = form.path.rpartition("/")
        self.dtype, self.shape, self.is_text = form.dtype, form.shape, form.dtype.kind in "SU"
        self._files, self._number, self._offset = form.files, form.number, form.offset
        self._kept: Kept[npt.NDArray[Any]] = Kept(_STRETCHES)

    @property
    def path(self) -> str:
        """Return the path of the file and the name of the array, for messages."""
        return f"{self.container}/{self.name}" if self.container else self.name

    @property
    def row_bytes(self) -> int:
        """Return the size of a row in memory, in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @abstractmethod
    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """Return `count` rows from row `first` on, with the stored dtype. `count` is at most `stretch`.

        Raises `BadInput` if the rows cannot be read.
        """

    def row(self, index: int) -> Any:
        """Return one row: an array in native byte order, or a str. Raises `BadInput` if the row cannot be read."""
        number, within = divmod(index, self.stretch)
        first = number * self.stretch
        if self.stretch == 1:
            rows = self.read(first, 1)
        else:
            count = min(self.stretch, self.shape[0] - first)
            rows = self._kept.get(number, lambda: self.read(first, count))
        row = rows[within : within + 1].reshape(self.shape[1:])
        row = row.astype(self.dtype.newbyteorder("="), order="C", copy=self.stretch > 1)
        return self._text(index, row.tobytes()) if self.is_text else row

    def _text(self, index: int, data: bytes) -> str:
        try:
            if self.dtype.kind == "U":  # NumPy raises SystemError for invalid code points
                return data.decode("utf-32-le" if sys.byteorder == "little" else "utf-32-be").rstrip("\0")
            return data.rstrip(b"\0").decode("utf-8")
        except ValueError as error:
            raise BadInput(f"{self.path}: row {index} is not a text: {error}") from error

    def extent(self, index: int) -> Extent:
        """Return file, offset and size of a row. For a compressed file, the offset counts decompressed bytes."""
        return Extent(self.files(index)[0], self._offset + index * self.row_bytes, self.row_bytes)

    def files(self, index: int | None = None) -> tuple[str, ...]:
        """Return the relative paths of the files that contain row `index`. None selects all rows."""
        return (self._files.files[self._number].name,)

    def forget(self) -> None:
        """Close all files and clear the cache of rows."""
        self._kept.forget()
        self._files.forget()


class SpanArray(StoredArray):
    """An array that is contiguous in one file. For Fortran order, all rows are read together."""

    def __init__(self, form: ArrayForm, *, is_fortran: bool = False) -> None:
        """Check the size. Raise BadInput if the file is too short, or for more than 1 GiB in Fortran order."""
        super().__init__(form)
        size, file = self.shape[0] * self.row_bytes, self._files.files[self._number]
        if not file.is_packed and not 0 <= self._offset <= file.size - size:
            raise BadInput(
                f"{self._files.path(self._number)}: {self.path} is not inside the file: {size} bytes at "
                f"{self._offset}, the file has {file.size}; get the file again"
            )
        self._is_fortran = is_fortran and len(self.shape) > 1
        if self._is_fortran:
            self.stretch = self.shape[0]
            if size > _MOST_FORTRAN_BYTES:
                raise BadInput(
                    f"{self.path}: {size} bytes in Fortran order, which have to be read together, expected at most "
                    f"{_MOST_FORTRAN_BYTES}: save numpy.ascontiguousarray of it"
                )

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        data = self._files.read(self._number, self._offset + first * self.row_bytes, count * self.row_bytes)
        values = np.frombuffer(data, self.dtype)
        return values.reshape((count, *self.shape[1:]), order="F" if self._is_fortran else "C")


class BlockedArray(StoredArray):
    """An array that is stored in blocks. A block contains some rows, and a part of each of these rows."""

    def __init__(self, form: ArrayForm, *, block: tuple[int, ...], present: int) -> None:
        """Check the number and size of the blocks.

        Args:
            form: Position, dtype and shape of the array.
            block: The shape of a block.
            present: The number of blocks that the files contain.

        Raises:
            BadInput: The blocks of one row have too many bytes, or almost all blocks are missing.
        """
        super().__init__(form)
        self.block, self.stretch = block, block[0]
        self.grid = tuple(-(-length // step) for length, step in zip(self.shape, block, strict=True))
        size, total = min(block[0], self.shape[0]) * self.row_bytes, math.prod(self.grid)
        if size > MOST_STRETCH_BYTES:
            raise BadInput(
                f"{self.path}: the blocks of one row have {size} bytes, expected at most {MOST_STRETCH_BYTES}: write "
                "blocks of fewer rows"
            )
        self.missing_blocks = total - present
        if self.missing_blocks > _MOST_MISSING * present:
            raise BadInput(f"{self.path}: {self.missing_blocks} of {total} blocks were never written; the array is cut")

    def places(self, number: int) -> Iterator[tuple[int, ...]]:
        """Yield the grid positions of all blocks that contain row `number * stretch`. `read` reads them together."""
        return product((number,), *map(range, self.grid[1:]))

    @abstractmethod
    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        """Return the block at a grid position, or None if it is absent. Blocks at the edge may be cut."""

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        out = np.zeros((count, *self.shape[1:]), self.dtype)
        for place in self.places(first // self.block[0]):
            block = self._block(place)
            if block is not None:
                starts = (0, *(at * step for at, step in zip(place[1:], self.block[1:], strict=True)))
                target = out[tuple(slice(start, start + step) for start, step in zip(starts, self.block, strict=True))]
                target[...] = block[tuple(slice(0, length) for length in target.shape)]
        return out
