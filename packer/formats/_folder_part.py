"""Folder part: base of the formats whose part is a folder with values.npz and with files that other programs open.

values.npz is written last; numpy.load opens it:

| name                | content                                                                                       |
|---------------------|-----------------------------------------------------------------------------------------------|
| `packer.json`       | the end record, JSON {"fields": [names in order], "samples": n}                               |
| `<prefix><field>...`| the arrays of each field of each table, one `.npy` file each; `_columns` describes the arrays |

A table is a group of fields, and the names of its arrays begin with the prefix of the table. The table with the prefix
"" has the fields that no other file contains. Other tables contain what the format needs, such as the paths and sizes
of its files.

Layout: packer.layouts.zip_archive; numpy/lib/format.py, version 1.0. A header must be exactly what `header` returns.
"""

import mmap
import os
import stat
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, TypeVar

from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.files.npy_arrays import npy_header_of_size
from packer.files.safe_paths import open_beneath
from packer.formats import base
from packer.formats._column_part import (
    MOST_END_BYTES,
    Array,
    ArraySpan,
    Content,
    MappedRecords,
    Spool,
    all_arrays,
    check_end,
    end_record,
    mapping,
    opening,
    reason,
    writing,
)
from packer.layouts.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.schema import Schema

TABLE = "values.npz"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Tables = Mapping[str, Schema]  # prefix of the names of arrays -> the fields
_END = "packer.json"
_LEAST_HEADER_BYTES = 128  # size of the header of every array with one dimension


class Closable(Protocol):
    """A file or another object whose `close` may be called twice."""

    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class FolderWriter(base.Writer):
    """Creates the folder and writes values.npz. A subclass implements the methods that write the other files."""

    @abstractmethod
    def _tables(self) -> Tables:
        """Return prefix -> fields of each table. The records fill the table "", and `_append` fills the others."""

    @abstractmethod
    def _begin(self, payload_bytes: int) -> None:
        """Create the format's files in the new folder; raises OSError, StorageError, InvalidRequest."""

    def _check(self, values: Mapping[str, bytes]) -> None:
        """Raise InvalidRequest for a record that the format cannot hold, before any of it is written."""

    @abstractmethod
    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        """Append a record to the format's files, and to each table except "". Raises OSError, PackerError."""

    def _complete(self) -> None:
        """Complete the format's files after the last record; raises OSError, StorageError. Default: do nothing."""

    def _own(self, opened: Opened) -> Opened:
        """Return `opened`, and close it before values.npz is written, or in `close`."""
        self._owned.append(opened)
        return opened

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._samples = 0
        self._finished = False
        self._owned: list[Closable] = []
        self._spools: dict[str, dict[str, Spool]] | None = None
        try:
            os.mkdir(path)
        except FileExistsError as error:
            raise InvalidRequest(f"{path}: a part must be new, found a file or folder; remove it") from error
        except OSError as error:
            raise StorageError(f"{path}: cannot make the part: {error.strerror}; choose another folder") from error
        self._spools = {
            prefix: {name: Spool(table, name, path) for name in table.names} for prefix, table in self._tables().items()
        }
        with self._failing():
            self._begin(payload_bytes)

    def write(self, record: base.Record) -> None:
        spools = self._open_spools()
        values = {name: bytes(record[name]) for name in self.schema.names}
        self._check(values)
        with self._failing():
            self._append(self._samples, values)
            for name, spool in spools[""].items():
                spool.add(values[name])
            for table in spools.values():
                for spool in table.values():
                    spool.flush_if_large()
        self._samples += 1

    def finish(self) -> None:
        if self._finished:
            return
        spools = self._open_spools()
        try:
            with self._failing():
                self._complete()
                for each in self._owned:
                    each.close()
                contents = {
                    f"{prefix}{array.name('.')}": (array, content)
                    for prefix, table in spools.items()
                    for spool in table.values()
                    for array, content in spool.contents(self._samples)
                }
                save(self.path / TABLE, contents, schema=self.schema, samples=self._samples)
        finally:
            self.close()
        self._finished = True

    def close(self) -> None:
        for each in self._owned:
            with suppress(OSError):  # a full disk; the part is incomplete, or `finish` has closed the file before
                each.close()
        for table in (self._spools or {}).values():
            for spool in table.values():
                spool.close()
        self._spools = None

    def _open_spools(self) -> dict[str, dict[str, Spool]]:
        if self._spools is None:
            raise InvalidRequest(f"{self.path}: the part is closed; write a new one")
        return self._spools

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Return a `with` block like that of `writing`. An error also closes the part: its last record may be cut."""
        try:
            with writing(self.path):
                yield
        except PackerError:
            self.close()
            raise


class FolderReader(base.Reader):
    """Maps values.npz. The method `_open` of a subclass opens the other files."""

    is_folder = True
    main_file = TABLE

    @abstractmethod
    def _layouts(self) -> Sequence[Tables]:
        """Return the tables of each version of values.npz. The names of its arrays show the version."""

    @abstractmethod
    def _open(self, folder: int, layout: int, *, readahead: bool) -> None:
        """Open the format's files; raises OSError, CorruptPack.

        Args:
            folder: Descriptor of the folder, valid only during this call.
            layout: Index in `_layouts()` of the tables that values.npz contains.
            readahead: True if the kernel may read ahead, False for random reads.
        """

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        self._rows: dict[str, MappedRecords] = {}
        with opening(path), _opened(path) as folder:
            try:
                layout = self._map_tables(folder, readahead=readahead)
                self._open(folder, layout, readahead=readahead)
            except BaseException:
                self.close()
                raise

    def _map_tables(self, folder: int, *, readahead: bool) -> int:
        path = self.path / TABLE
        layouts = self._layouts()
        named = [
            {
                f"{prefix}{array.name('.')}": array
                for prefix, table in layout.items()
                for array in all_arrays(table, self.samples)
            }
            for layout in layouts
        ]
        with (
            open_file(folder, TABLE) as file,
            mapping(path, file.fileno(), readahead=readahead) as mapped,
        ):
            at, spans = find_arrays(path, mapped, file, named, schema=self.schema, samples=self.samples)
            try:
                for prefix, table in layouts[at].items():
                    places = {array: spans[f"{prefix}{array.name('.')}"] for array in all_arrays(table, self.samples)}
                    self._rows[prefix] = MappedRecords(path, mapped, schema=table, places=places)
            except BaseException:
                self.close()  # or the file could not be unmapped
                raise
        return at

    def close(self) -> None:
        for rows in self._rows.values():
            rows.close()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(folder: int, name: str) -> IO[bytes]:
    """Open the regular file `name` in the folder with the descriptor `folder`. Raises OSError, CorruptPack."""
    file = os.fdopen(open_beneath(folder, name.encode()), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CorruptPack(f"{name}: expected a file, found a folder or a device; copy the pack again")
    return file


# ---- values.npz


def header(array: Array, length: int) -> bytes:
    """Return the header of the array's .npy file. If the array's shape contains None, `length` replaces it."""
    shape = tuple(length if known is None else known for known in array.shape)
    return npy_header_of_size(array.dtype, shape, least_bytes=_LEAST_HEADER_BYTES)


def save(path: Path, contents: Mapping[str, tuple[Array, Content]], *, schema: Schema, samples: int) -> None:
    """Write values.npz: the end record and `contents`, name -> (array, bytes). After an error, the file is empty."""
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, _END, end_record(schema, samples))
                for name, (array, content) in contents.items():
                    _add(archive, f"{name}.npy", header(array, len(content)), content)
        except BaseException:
            with suppress(OSError):  # an incomplete file may look complete
                os.truncate(path, 0)
            raise


def _add(archive: zipfile.ZipFile, name: str, *blocks: Content | bytes) -> None:
    entry = zipfile.ZipInfo(name)  # its time and permissions are constant
    with archive.open(entry, "w", force_zip64=True) as file:
        for block in blocks:
            with memoryview(block) as view:
                file.write(view)


def find_arrays(
    path: Path,
    mapped: mmap.mmap,
    file: IO[bytes],
    layouts: Sequence[Mapping[str, Array]],
    *,
    schema: Schema,
    samples: int,
) -> tuple[int, dict[str, ArraySpan]]:
    """Find the arrays in values.npz.

    Args:
        path: The file, for messages.
        mapped: The mapped file.
        file: The same file, open.
        layouts: Arrays by name (without .npy) for each version of the file. The names in the file show the version.
        schema: The fields of the manifest.
        samples: The number of samples in the manifest.

    Returns:
        The index of the version in `layouts`, and name -> offset and size of the array's numbers.

    Raises:
        CorruptPack: The file does not have the names, headers or sizes that `save` writes for one of `layouts`.
    """
    named = [{_END, *(f"{name}.npy" for name in arrays)} for arrays in layouts]
    in_all = set.intersection(*named)
    try:
        entries = Archive(mapped, file, wanted=in_all, others=set.union(*named) - in_all).places()
        at = next((at for at, names in enumerate(named) if names == entries.keys()), None)
        if at is None:
            raise ValueError(f"its entries are not those of a part: {', '.join(sorted(entries)):.200}")
    except ZIP_ERRORS as error:
        raise CorruptPack(f"{path}: not an .npz file: {reason(error)}; copy or pack it again") from error
    end = entries[_END]
    found = mapped[end.offset : end.offset + min(end.size_bytes, MOST_END_BYTES + 1)]
    check_end(path, found, schema=schema, samples=samples)
    return at, {name: _numbers(path, mapped, array, entries[f"{name}.npy"]) for name, array in layouts[at].items()}


def _numbers(path: Path, mapped: mmap.mmap, array: Array, entry: ArchiveEntry) -> ArraySpan:
    """Return offset and size of the numbers in a .npy entry. Raise CorruptPack if its header or its size is wrong."""
    length = max(0, entry.size_bytes - _LEAST_HEADER_BYTES)
    start = header(array, length)
    size_bytes = entry.size_bytes - len(start)
    if mapped[entry.offset : entry.offset + len(start)] != start or array.size_bytes not in (None, size_bytes):
        raise CorruptPack(
            f"{path}: {array.name('.')} does not match the schema: expected {array.dtype} of shape {array.shape} in "
            f"{entry.size_bytes} bytes; copy or pack it again"
        )
    return ArraySpan(entry.offset + len(start), size_bytes)
