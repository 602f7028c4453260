"""Stored array: one array of a file or folder, whose first dimension counts the samples, read row by row.

| class         | how it is stored                                  | a row costs                               |
|---------------|---------------------------------------------------|-------------------------------------------|
| PlainArray    | in one piece, row after row                       | one pread(2)                              |
| BlockedArray  | in blocks of some rows, compressed or not         | its blocks, kept for the rows that follow |
| DeflatedArray | in one piece that is compressed                   | up to 16 MiB unpacked, kept likewise      |
| ColumnsArray  | in one piece, column after column (Fortran order) | the whole array once, at most 1 GiB       |
| TextArray     | an array of fixed texts in one of these ways      | as that                                   |

Values of one row: an array in native byte order, or a str. Arrays may be shared by threads and survive a fork; pickled
they are names and places, without what was read.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources.base import Extent
from packer.sources.records._random_access_files import PackedSpan, RecordFiles, UnpackedFile

MOST_BLOCK_BYTES = 512 << 20  # of the blocks that hold one row, unpacked
_MOST_WHOLE_BYTES = 1 << 30
_KEPT = 3  # blocks of rows
_MOST_MISSING = 1000  # blocks for each that is there
_Value = TypeVar("_Value")


class StoredArray(ABC):
    """One array; its rows are the samples'."""

    container: str  # relative path of the file, behind it the group; what arrays of one table have in common
    name: str  # in there
    dtype: np.dtype[Any]  # as stored
    shape: tuple[int, ...]
    missing_blocks: int = 0  # that were never written, and are zeros
    value_names: tuple[tuple[str, int], ...] = ()  # of an enumeration: what each number is called

    @property
    def path(self) -> str:
        """What messages call it."""
        return f"{self.container}/{self.name}" if self.container else self.name

    @property
    def is_text(self) -> bool:
        """Whether a row is one str."""
        return False

    @property
    def is_ragged(self) -> bool:
        """Whether rows differ in length: bytes, or numbers of `dtype`."""
        return False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, unpacked."""
        return int(np.prod(self.shape[1:], dtype=object)) * self.dtype.itemsize

    @abstractmethod
    def row(self, index: int) -> Any:
        """One row; raises BadInput."""

    @abstractmethod
    def extent(self, index: int) -> Extent:
        """Where the row lies; of what is compressed the file, and which of the unpacked bytes."""

    def files(self, index: int) -> tuple[str, ...]:
        """Relative paths of the files that hold the row."""
        return (self.extent(index).name,)

    def all_files(self) -> tuple[str, ...]:
        """Relative paths of every file of the array."""
        return (self.extent(0).name,) if self.shape[0] else ()

    @abstractmethod
    def forget(self) -> None:
        """Let go of what is kept open or unpacked."""


class Kept(Generic[_Value]):
    """The last few values of a function, made once each however many threads ask; empty after a fork or unpickling."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {"_most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._values: OrderedDict[int, _Value] = OrderedDict()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def get(self, key: int, make: Callable[[], _Value]) -> _Value:
        """The value of that key."""
        if self._pid != os.getpid():  # forked, maybe while a thread had the lock
            self._begin()
        with self._lock:
            if key not in self._values:
                while len(self._values) >= self._most:  # before the next is made: they may be large
                    self._values.popitem(last=False)
                self._values[key] = make()
            self._values.move_to_end(key)
            return self._values[key]

    def forget(self) -> None:
        """Let go of all."""
        self._begin()


class PlainArray(StoredArray):
    """Row after row, in one piece of a file."""

    def __init__(
        self,
        container: str,
        name: str,
        *,
        files: RecordFiles,
        number: int,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        """Raises BadInput where the array lies outside of the file."""
        self.container, self.name, self.dtype, self.shape = container, name, dtype, shape
        self._files, self._number, self._offset = files, number, offset
        size = shape[0] * self.row_bytes
        if not 0 <= offset <= files.files[number].size - size:
            raise BadInput(
                f"{files.path(number)}: {self.path} lies outside of the file: {size} bytes at {offset}, the file has "
                f"{files.files[number].size}; get the file again"
            )

    def row(self, index: int) -> Any:
        at = self.extent(index)
        data = self._files.read(self._number, at.offset, at.size)
        return np.frombuffer(data, self.dtype).reshape(self.shape[1:]).astype(self.dtype.newbyteorder("="), copy=False)

    def extent(self, index: int) -> Extent:
        size = self.row_bytes
        return Extent(self._files.files[self._number].name, self._offset + index * size, size)

    def forget(self) -> None:
        self._files.forget()


class BlockedArray(StoredArray):
    """In blocks, each with some rows of some columns; those of one stretch of rows are put together and kept."""

    def __init__(
        self, container: str, name: str, *, dtype: np.dtype[Any], shape: tuple[int, ...], block: tuple[int, ...]
    ) -> None:
        """block: its shape. Raises BadInput where the blocks of one row are too many bytes to be held."""
        self.container, self.name, self.dtype, self.shape, self.block = container, name, dtype, shape, block
        self._kept: Kept[npt.NDArray[Any]] = Kept(_KEPT)
        if self._rows_bytes > MOST_BLOCK_BYTES:
            raise BadInput(
                f"{self.path}: the blocks that hold one row have {self._rows_bytes} bytes, expected at most "
                f"{MOST_BLOCK_BYTES}: write it anew in blocks of fewer rows"
            )

    @property
    def _rows_bytes(self) -> int:
        return min(self.block[0], self.shape[0]) * self.row_bytes

    def _count_missing(self, where: Path, *, there: int) -> None:
        """Note how many blocks there are not; raises BadInput where hardly any is: rows of nothing have no end."""
        total = int(np.prod(self.grid, dtype=object))
        self.missing_blocks = total - there
        if self.missing_blocks > _MOST_MISSING * there:
            raise BadInput(
                f"{where}: {self.path}: {self.missing_blocks} of {total} blocks were never written; it is cut, or no "
                "data set"
            )

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of blocks along each dimension."""
        return tuple(-(-length // step) for length, step in zip(self.shape, self.block, strict=True))

    def places(self, number: int) -> Iterator[tuple[int, ...]]:
        """The places in the grid of the blocks of one stretch of rows."""
        return ((number, *rest) for rest in product(*(range(count) for count in self.grid[1:])))

    @abstractmethod
    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        """The block at a place in the grid, whole or cut at the edge of the array; None for one never written."""

    def row(self, index: int) -> Any:
        number, within = divmod(index, self.block[0])
        return self._kept.get(number, lambda: self._rows(number))[within].copy()

    def _rows(self, number: int) -> npt.NDArray[Any]:
        first = number * self.block[0]
        count = min(self.block[0], self.shape[0] - first)
        out = np.zeros((count, *self.shape[1:]), self.dtype.newbyteorder("="))
        for place in self.places(number):
            block = self._block(place)
            if block is None:
                continue
            starts = (0, *(at * step for at, step in zip(place[1:], self.block[1:], strict=True)))
            target = out[tuple(slice(start, start + step) for start, step in zip(starts, self.block, strict=True))]
            target[...] = block[tuple(slice(0, length) for length in target.shape)]
        return out

    def forget(self) -> None:
        self._kept.forget()


class DeflatedArray(StoredArray):
    """Row after row, in one piece that is compressed with deflate."""

    def __init__(
        self,
        container: str,
        name: str,
        *,
        files: RecordFiles,
        number: int,
        span: PackedSpan,
        data_at: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        """span: the compressed bytes. data_at: of the array's first byte among the unpacked ones."""
        self.container, self.name, self.dtype, self.shape = container, name, dtype, shape
        self._files, self._number, self._span = files, number, span
        self._data_at = data_at
        self._lock = threading.Lock()
        self._unpacked: tuple[int, UnpackedFile] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_unpacked")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()

    def row(self, index: int) -> Any:
        at = self.extent(index)
        if self._unpacked is not None and self._unpacked[0] != os.getpid():
            self.forget()
        with self._lock:
            data = self._open().read(at.offset, at.size)
        if len(data) != at.size:
            raise BadInput(f"{self._files.path(self._number)}: {self.path} ends before row {index}; get the file again")
        return np.frombuffer(data, self.dtype).reshape(self.shape[1:]).astype(self.dtype.newbyteorder("="), copy=False)

    def _open(self) -> UnpackedFile:
        if self._unpacked is None:
            self._unpacked = os.getpid(), UnpackedFile(self._files.open(self._number), self._span)
        return self._unpacked[1]

    def extent(self, index: int) -> Extent:
        size = self.row_bytes
        return Extent(self._files.files[self._number].name, self._data_at + index * size, size)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._unpacked = None


class ColumnsArray(StoredArray):
    """Column after column, as NumPy saves an array that was transposed; rows are spread over all of it."""

    def __init__(self, whole: StoredArray, shape: tuple[int, ...]) -> None:
        """whole: the bytes as an array whose rows are the columns here. Raises BadInput for one too large to hold."""
        self.container, self.name, self.dtype, self.shape = whole.container, whole.name, whole.dtype, shape
        self._whole = whole
        self._kept: Kept[npt.NDArray[Any]] = Kept(1)
        size = whole.shape[0] * whole.row_bytes
        if size > _MOST_WHOLE_BYTES:
            raise BadInput(
                f"{self.path}: {size} bytes in Fortran order, which have to be read at once, expected at most "
                f"{_MOST_WHOLE_BYTES}: save numpy.ascontiguousarray of it"
            )

    def row(self, index: int) -> Any:
        return self._kept.get(0, self._read)[index].copy()

    def _read(self) -> npt.NDArray[Any]:
        rows = [self._whole.row(number) for number in range(self._whole.shape[0])]
        whole: npt.NDArray[Any] = np.stack(rows).reshape(self._whole.shape).transpose()
        return whole

    def extent(self, index: int) -> Extent:
        start, size = self._whole.extent(0), self.row_bytes
        return Extent(start.name, start.offset + index * size, size)

    def forget(self) -> None:
        self._kept.forget()
        self._whole.forget()


class TextArray(StoredArray):
    """Texts of a fixed length, UTF-8 padded with zeros (`S`) or UCS-4 (`U`); blanks at their ends are theirs."""

    def __init__(self, stored: StoredArray) -> None:
        self.container, self.name, self.dtype, self.shape = stored.container, stored.name, stored.dtype, stored.shape
        self._stored = stored

    @property
    def is_text(self) -> bool:
        return True

    def row(self, index: int) -> str:
        value = self._stored.row(index)
        data: bytes = value.tobytes()
        try:
            if self.dtype.kind == "U":  # not by NumPy, which raises SystemError for what is no code point
                return data.decode("utf-32-be" if value.dtype.str[0] == ">" else "utf-32-le").rstrip("\0")
            return data.rstrip(b"\0").decode("utf-8")
        except ValueError as error:
            raise BadInput(f"{self.path}: row {index} is no text: {error}") from error

    def extent(self, index: int) -> Extent:
        return self._stored.extent(index)

    def forget(self) -> None:
        self._stored.forget()
