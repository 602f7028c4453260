"""BMP: a folder of ordinary files per part, which PIL, OpenCV and torchvision's ImageFolder read.

Layout of `part-00000/`:
    <field>/<key><suffix>   the encoded value of each image, depth, mask and bytes field, as it is; <key> is the
                            relative path of the sample, the suffix tells what the file is (.bmp, .npy, .png ...;
                            .bin for what has no format). What cannot be a file name: see `FileNames`
    values.npz              written last; numpy.load opens it:
        packer.json             the end record, JSON {"fields": [names in order], "samples": n}
        <field>                 [n, *shape], for other fields whose encoded values all have one size (numbers)
        <field>.data            uint8: the encoded values end to end, for every other field (key, text, json, points)
        <field>.offsets         int64 [n + 1]: value i is data[offsets[i]:offsets[i + 1]]
        names/<field>.data      uint8, and .offsets: the path of each file below <field>/, for fields kept in files
        sizes/<field>           int64 [n]: the size of each file in bytes

Small values are gathered, since a file takes at least one block of the disk and four system calls: a label would
take 500 times its size. Arrays keep them exactly, and any NumPy reads them.
A pack is one part unless --part-size says otherwise, so that ImageFolder finds all of it in one tree.
A value is read by openat2, fstat, read and close; its size is compared first, so nothing that is cut is ever taken for
a value, and no link is followed. Mapping the file instead was not faster where it was measured (86 against 85 us for
274 KB from the page cache, decoding included), and a file that is cut while it is mapped would end the process.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from packer.errors import InvalidRequest, StorageError
from packer.files.safe_paths import components, folded
from packer.files.tree_writer import TreeWriter
from packer.formats import _zip_arrays as zip_arrays
from packer.formats import base
from packer.formats._columns import Array, MappedRecords, Spool, arrays, mapping, opening
from packer.formats._part_folder_reader import MOST_FILE_BYTES, PartFolderReader
from packer.schema import Field, FixedArray, Schema, StoredForm

SUFFIX = ""  # a folder with a suffix of images would be one for many a tool
_TABLE = "values.npz"
_KINDS = ("image", "depth", "mask", "bytes")  # what is a file of its own
_NO_SUFFIX = (".bin",)  # of a value that is no file that other programs know
_PATH = Field("path", "text", "text")  # of a file below its field's folder
_SIZE = Field("size", "number", "number", dtype="int64", shape=())  # of a file in bytes


class _Tables(NamedTuple):
    """What values.npz holds, by the folder in it."""

    gathered: Schema
    names: Schema
    sizes: Schema

    @classmethod
    def of(cls, schema: Schema) -> "_Tables":
        files = [field.name for field in schema if field.kind in _KINDS]
        return cls(
            schema.select([field.name for field in schema if field.kind not in _KINDS]),
            _table(_PATH, files, None),
            _table(_SIZE, files, ("int64", ())),
        )

    def named(self) -> Iterator[tuple[str, Schema]]:
        """Each with what the names of its arrays begin with."""
        return zip(("", "names/", "sizes/"), self, strict=True)


def _table(like: Field, names: Sequence[str], array: FixedArray | None) -> Schema:
    """Fields of these names, each like the other, of values that this format makes itself."""
    form = StoredForm(array, suffixes=lambda value: ())
    return Schema(tuple(replace(like, name=name) for name in names), form_of=lambda field: form)


class Writer(base.Writer):
    """Writes each file as its record comes, and spools the rest until the end."""

    codecs = {"image": "bmp", "mask": "bmp", "depth": "npy"}
    one_part = True

    @classmethod
    def codec_of(cls, field: Field) -> str | None:
        return "npy" if field.is_wide_mask else super().codec_of(field)

    @classmethod
    def files(cls, schema: Schema) -> int:
        return sum(field.kind in _KINDS for field in schema)

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._in_files = {field.name: schema.stored_form(field.name) for field in schema if field.kind in _KINDS}
        self._names = FileNames()
        self._samples = 0
        self._finished = False
        try:
            self._folder = TreeWriter.at(path, keep_open=True)
        except FileExistsError as error:
            raise InvalidRequest(f"{path}: a part must be new, found a file or folder; remove it") from error
        except OSError as error:
            raise StorageError(f"{path}: cannot make the part: {error.strerror}; choose another folder") from error
        self._spools: tuple[list[Spool], ...] | None = tuple(
            [Spool(table, name, path) for name in table.names] for table in _Tables.of(schema)
        )

    def write(self, record: base.Record) -> None:
        spools = self._checked()
        values = {name: bytes(record[name]) for name in self.schema.names}
        largest = max((len(values[name]) for name in self._in_files), default=0)
        if largest > MOST_FILE_BYTES:
            raise InvalidRequest(
                f"{self.path}: a value of {largest:,} bytes, expected at most {MOST_FILE_BYTES:,}; use hdf5"
            )
        fitting = [form.suffixes(values[name]) or _NO_SUFFIX for name, form in self._in_files.items()]
        names = self._names.take(values.get("key", b"%d" % self._samples), self._samples, fitting)
        gathered, named, sizes = spools
        try:
            for spool in gathered:
                spool.add(values[spool.field.name])
            for name, name_spool, size_spool in zip(names, named, sizes, strict=True):
                field = name_spool.field.name
                self._folder.write((field.encode(), *components(name)), values[field])
                name_spool.add(name.encode("utf-8", "surrogateescape"))
                size_spool.add(len(values[field]).to_bytes(8, "little"))
            for spool in (*gathered, *named, *sizes):
                spool.settle()
        except OSError as error:
            self.close()  # half a record is written: the part can only be written anew
            if isinstance(error, StorageError):  # of a file, which it names
                raise
            raise self._failure(error) from error
        self._samples += 1

    def finish(self) -> None:
        if self._finished:
            return
        spools = self._checked()
        contents = {}
        try:
            for (prefix, _), table in zip(_Tables.of(self.schema).named(), spools, strict=True):
                for spool in table:
                    for array, content in spool.contents(self._samples):
                        contents[f"{prefix}{array.name('.')}"] = (array, content)
            zip_arrays.save(self.path / _TABLE, contents, schema=self.schema, samples=self._samples)
        except OSError as error:
            raise self._failure(error) from error
        finally:
            self.close()
        self._finished = True

    def close(self) -> None:
        self._folder.close()
        for table in self._spools or ():
            for spool in table:
                spool.close()
        self._spools = None

    def _checked(self) -> tuple[list[Spool], ...]:
        if self._spools is None:
            raise InvalidRequest(f"{self.path}: the part is closed; write it anew")
        return self._spools

    def _failure(self, error: OSError) -> StorageError:
        cause = error.strerror or str(error)
        return StorageError(f"{self.path}: cannot write: {cause}; free space or choose another folder")


class Reader(base.Reader):
    """Maps values.npz, and reads each file when it is asked for."""

    is_folder = True
    is_mapped = False

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        with opening(path):
            self._folder = PartFolderReader(path)
            try:
                gathered, names, sizes = self._tables(readahead=readahead)
            except BaseException:
                self._folder.close()
                raise
        self._rows: MappedRecords | None = gathered
        self._names, self._sizes = names, sizes
        self._in_files = set(_Tables.of(schema).names.names)

    def _tables(self, *, readahead: bool) -> list[MappedRecords]:
        path = self.path / _TABLE
        tables = list(_Tables.of(self.schema).named())
        wanted: dict[str, Array] = {
            f"{prefix}{array.name('.')}": array
            for prefix, table in tables
            for name in table.names
            for array in arrays(table, name, self.samples)
        }
        with (
            os.fdopen(self._folder.open(_TABLE.encode()), "rb") as file,
            mapping(path, file.fileno(), readahead=readahead) as mapped,
        ):
            places = zip_arrays.places(path, mapped, file, wanted, schema=self.schema, samples=self.samples)
            found: list[MappedRecords] = []
            try:
                for prefix, table in tables:
                    every = (array for name in table.names for array in arrays(table, name, self.samples))
                    chosen = {array: places[f"{prefix}{array.name('.')}"] for array in every}
                    found.append(MappedRecords(path, mapped, schema=table, places=chosen))
            except BaseException:
                for rows in found:  # or the file could not be unmapped
                    rows.close()
                raise
            return found

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        rows = self._rows
        if rows is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        gathered = rows.read(row, [name for name in names if name not in self._in_files])
        return {name: self._file(row, name) if name in self._in_files else gathered[name] for name in names}

    def _file(self, row: int, name: str) -> memoryview:
        size_bytes = int.from_bytes(self._sizes.read(row, (name,))[name], "little", signed=True)
        return self._folder.read(self._path(row, name), size_bytes)

    def _path(self, row: int, name: str) -> bytes:
        return b"%s/%s" % (name.encode(), bytes(self._names.read(row, (name,))[name]))

    def files(self) -> Iterator[bytes]:
        yield _TABLE.encode()
        for row in range(self.samples):
            for name in sorted(self._in_files):
                yield self._path(row, name)

    def close(self) -> None:
        self._rows = None
        self._folder.close()
        for rows in (self._names, self._sizes):
            rows.close()


# ---- names


class FileNames:
    """The names of one part's files, in the order of its rows; 8 bytes are kept of each in a set.

    The key is the name, with a suffix that fits the value. Where that could lead out of the folder, is too long, or is
    what some file system takes for an earlier name (upper and lower case, composed accents), `~` and the row's number
    come in:

        cat/a.jpg    ->  cat/a.jpg.bmp        cat/A.jpg  ->  cat/A.jpg~7.bmp       because of the one before
        cat/<long>   ->  cat/~7.bmp           ../a.jpg   ->  ~7.bmp
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, key: bytes, row: int, wanted: Sequence[tuple[str, ...]]) -> list[str]:
        """The path of each of a row's files below the folder of its field; wanted: the suffixes that fit it."""
        for path in _candidates(key.decode("utf-8", "surrogateescape"), row):
            found = [path if path.lower().endswith(fitting) else path + fitting[0] for fitting in wanted]
            marks = [marks for name in dict.fromkeys(found) if (marks := self._marks(name)) is not None]
            if len(marks) == len(set(found)):
                self._taken.update(*marks)
                return found
        raise InvalidRequest(f"row {row}: no name is left for its files; use another format")

    def _marks(self, path: str) -> list[int] | None:
        """What stands for the path and its folders; None where it is unsafe or something is in its way."""
        try:
            components(path)
        except InvalidRequest:
            return None
        key = folded(path)
        file = _mark(key)
        if file in self._taken or _mark(f"{key}/") in self._taken:
            return None
        marks = [file]
        at = key.rfind("/")
        while at >= 0 and (folder := _mark(key[: at + 1])) not in self._taken:
            if _mark(key[:at]) in self._taken:  # a file lies where the folder should
                return None
            marks.append(folder)
            at = key.rfind("/", 0, at)
        return marks


def _candidates(path: str, row: int) -> Iterator[str]:
    folder, slash, _ = path.rpartition("/")
    yield from (path, f"{path}~{row}", f"{folder}{slash}~{row}")
    for tildes in count(1):
        yield f"{'~' * tildes}{row}"


def _mark(folded_path: str) -> int:
    """64 bits of a hash: should two paths ever share them, one gets another name than it needed to."""
    raw = folded_path.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
