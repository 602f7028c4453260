"""Index: keys, texts, numbers, sizes and checksums of all samples as mapped arrays, the same for every format.

The index contains no part numbers and no offsets: `reader.Pack.locate` computes the part of a sample, and the part
finds its records.

| file | dtype and shape | content |
|---|---|---|
| index/keys.npy | uint8 [k] | UTF-8 bytes of all keys, one after another |
| index/key_ends.npy | uint64 [n] | end of each key in keys.npy |
| index/key_order.npy | uint64 [n] | sample indices, sorted by the bytes of their keys |
| index/crc32.npy | uint32 [n, fields] | zlib.crc32 of each encoded value, fields in schema order |
| index/number-<field>.npy | [n] or [n, k] | values of a number field of fixed shape, flattened |
| index/values-<field>.npy | uint8 [k] | encoded values of a text, boxes or numbers of rows, one after another |
| index/value_ends-<field>.npy | uint64 [n] | end of each value in values-<field>.npy |
| index/size-<field>.npy | uint32 [n, 2] | height and width in px of the stored image, depth or mask |
| index/rows.npy | uint64 [n] | in a collection: the row of each sample, counted over all members |
| index/count-<field>.npy | uint32 [n] | number of rows of a field whose number of rows varies |

Numbers of rows have the shape (None,) and belong to the rows of another field, such as box_labels. Collections have
values of other fields, too. Earlier packs lack some files; packs of version 1 have the first five kinds only.
"""

import hashlib
import math
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import BadInput, CorruptPack, InvalidRequest, UnknownKey
from packer.files.digest import file_bytes
from packer.files.fsync import make_folder, sync_folder, write_file
from packer.files.npy_arrays import map_file, npy_header
from packer.files.storage_errors import failing
from packer.pack.manifest import INDEX, IndexFile, Manifest
from packer.schema import KEY, PIXEL_KINDS, Buffer, Field, Schema

ROWS = "rows"  # in a collection
_DATA = {"key_ends": "keys", "value_ends": "values"}


def _data_file(name: str) -> str | None:
    """Return the file whose values end where the file `name` shows, or None if that file contains no ends."""
    kind, dash, field = name.partition("-")
    return f"{_DATA[kind]}{dash}{field}" if kind in _DATA else None


def _ends_file(field: str) -> str:
    return "key_ends" if field == KEY else f"value_ends-{field}"


def file_dtypes(schema: Schema, listed: Collection[str] | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the files with one entry per sample: name without .npy -> dtype, and shape of one entry, such as ().

    Args:
        schema: the fields.
        listed: names of the files of an existing index, which may lack values, sizes and counts. None for a new index.
    """
    optional: dict[str, tuple[str, tuple[int, ...]]] = {}
    files: dict[str, tuple[str, tuple[int, ...]]] = {"key_ends": ("<u8", ()), "crc32": ("<u4", (len(schema),))}
    for field in schema:
        name = field.name
        if field.is_column:
            dtype = np.dtype(field.dtype).newbyteorder("<").str
            files[f"number-{name}"] = (dtype, (_width(field),) if field.shape else ())
        if field.kind in PIXEL_KINDS:
            optional[f"size-{name}"] = ("<u4", (2,))
        elif field.kind == "text" or field.is_row_column or listed is not None:
            optional[_ends_file(name)] = ("<u8", ())
        if field.has_rows:
            optional[f"count-{name}"] = ("<u4", ())
    return files | {name: form for name, form in optional.items() if listed is None or name in listed}


def _width(field: Field) -> int:
    return math.prod(length or 0 for length in field.shape or ())


def crc32_problem(found: int, expected: int) -> str:
    """Return the message for a value whose crc32 is not the expected one."""
    return f"damaged record: crc32 {found:08x}, the index has {expected:08x}; pack again from the source"


class IndexFiles(Mapping[str, npt.NDArray[Any]]):
    """The mapped files of an index: name without .npy -> read-only array.

    A file is checked when it is used first, because the index of a large pack is slow to read.
    """

    def __init__(self, folder: Path, files: Iterable[IndexFile]) -> None:
        """Map the files in `folder`; raises CorruptPack."""
        self._folder = folder
        self._files = {file.name.removesuffix(".npy"): file for file in files}
        self._mapped = {name: self._map(file) for name, file in self._files.items()}
        self._unchecked = set(self._files)

    def _map(self, file: IndexFile) -> tuple[npt.NDArray[Any], bytes | mmap]:
        path = self._folder / file.name
        if not os.path.lexists(path):
            raise CorruptPack(f"{path}: missing index file; run packer index, or copy the pack again")
        return map_file(path, file.bytes)

    def _check(self, name: str) -> None:
        file, (array, content) = self._files[name], self._mapped[name]
        found = zlib.crc32(content)
        if found != file.crc32:
            raise CorruptPack(
                f"{self._folder / file.name}: damaged index file: crc32 {found:08x}, the manifest has "
                f"{file.crc32:08x}; run packer index, or copy it again"
            )
        if (data := _data_file(name)) is not None:
            self._check_ends(name.partition("-")[2] or KEY, array, len(self._mapped[data][0]))
        elif name == "key_order" and (array >= len(array)).any():
            raise CorruptPack(f"{self._folder}: key order points outside the pack; run packer index, or pack again")
        self._unchecked.discard(name)

    def _check_ends(self, field: str, ends: npt.NDArray[np.uint64], size_bytes: int) -> None:
        """Raise CorruptPack unless the ends are in order and the last one is the size of the values."""
        bad = np.flatnonzero(ends[1:] < ends[:-1])
        if len(bad) or (int(ends[-1]) if len(ends) else 0) != size_bytes:
            at = int(bad[0]) + 1 if len(bad) else len(ends) - 1
            raise CorruptPack(f"{self._folder}: {field} ends are not in order at sample {at}; copy or pack it again")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        array, _ = self._mapped[name]
        if name in self._unchecked:
            self._check(name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def check_shapes(self, manifest: Manifest) -> None:
        """Raise CorruptPack unless these are the files of the pack, with their dtypes and shapes."""
        count = manifest.samples
        expected: dict[str, tuple[str, tuple[int, ...]]] = {"key_order": ("<u8", (count,))}
        if manifest.members:
            expected[ROWS] = ("<u8", (count,))
        for name, (dtype, shape) in file_dtypes(manifest.schema, self._files).items():
            expected[name] = (dtype, (count, *shape))
            if (data := _data_file(name)) is not None:
                length = self._mapped[data][0].shape[:1] if data in self._mapped else ()
                expected[data] = ("|u1", length)  # `_check_ends` compares the length with the ends
        found = {name: (array.dtype.str, array.shape) for name, (array, _) in self._mapped.items()}
        if found != expected:
            raise CorruptPack(f"{self._folder}: index files do not fit the schema; run packer index, or pack again")


class Index:
    """The index of one pack.

    Attributes:
        arrays: name of a file without .npy -> array.
        positions: field -> position in the schema.
        where: the folder, for messages.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], schema: Schema, count: int, where: Path | str) -> None:
        """Use arrays in memory, or mapped ones. An array is taken from the mapping when it is used first.

        Args:
            arrays: name of a file without .npy -> array, see the table of the module.
            schema: the fields.
            count: the number of samples.
            where: the folder, for messages.
        """
        self.arrays = arrays
        self.positions = {name: at for at, name in enumerate(schema.names)}
        self._schema = schema
        self._count = count
        self.where = where
        self._texts: dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]] = {}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> "Index":
        """Open the index of the pack in `folder`. Compares the sizes of the files; raises CorruptPack."""
        files = IndexFiles(folder / INDEX, manifest.index)
        files.check_shapes(manifest)
        return cls(files, manifest.schema, manifest.samples, folder / INDEX)

    @cached_property
    def _order(self) -> npt.NDArray[np.uint64]:
        return self.arrays["key_order"]

    @cached_property
    def _crc32(self) -> npt.NDArray[np.uint32]:
        return self.arrays["crc32"]

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> str:
        """Return the key of a sample, 0 <= index < len; raises CorruptPack."""
        return self.value(index, KEY).decode("utf-8", "surrogateescape")

    def has_values(self, name: str) -> bool:
        """Return True if the index contains the encoded values of the field. It always contains the keys."""
        return _ends_file(name) in self.arrays

    def contains(self, name: str) -> bool:
        """Return True if the index contains the values of the field: a column, or values for which `has_values`."""
        return f"number-{name}" in self.arrays or self.has_values(name)

    def encoded(self, index: int, name: str) -> bytes:
        """Return the encoded value of a field for which `contains` is true."""
        column = f"number-{name}"
        return self.arrays[column][index].tobytes() if column in self.arrays else self.value(index, name)

    def value(self, index: int, name: str) -> bytes:
        """Return the encoded value of a field for which `has_values` is true, 0 <= index < len.

        Raises UnknownKey for other fields, and CorruptPack.
        """
        data, ends = self.texts(name)
        return data[int(ends[index - 1]) if index else 0 : int(ends[index])].tobytes()

    def entry(self, index: int, file: str) -> bytes:
        """Return the entry of a sample in a file of `file_dtypes`, as `ColumnEntries.of` does; raises CorruptPack."""
        is_values, name = _data_file(file) is not None, file.partition("-")[2]
        return self.value(index, name or KEY) if is_values else self.arrays[file][index].tobytes()

    def texts(self, name: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        """Return the encoded values of a field, one after another, and the end of each value.

        Raises UnknownKey if `has_values` is false, and CorruptPack.
        """
        if name not in self._texts:
            if not self.has_values(name):
                raise self._absent("values", name)
            ends = _ends_file(name)
            self._texts[name] = self.arrays[str(_data_file(ends))], self.arrays[ends]
        return self._texts[name]

    def index_of(self, key: str) -> int:
        """Return the index of the sample with this key; raises UnknownKey, whose message suggests a similar key."""
        found = self.find(key)
        if found is None:
            raise UnknownKey(f"no sample with key {key!r}; {self._like(key)}packer info --keys lists them")
        return found

    def _like(self, text: str) -> str:
        """Return a sentence for the message that suggests the first key that contains the text, or ""."""
        data, ends = self.texts(KEY)
        wanted, keys = text.encode("utf-8", "surrogatepass"), data.tobytes()
        at = keys.find(wanted) if wanted else -1
        while at >= 0:
            key = self.key(int(np.searchsorted(ends, at, side="right")))
            if text in key:  # not across two keys
                return f"did you mean {key!r}? "
            at = keys.find(wanted, at + 1)
        return ""

    def find(self, key: str) -> int | None:
        """Return the index of the sample with this key, or None."""
        try:
            wanted = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a surrogate that no bytes decode to
            return None
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self.value(int(self._order[middle]), KEY) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < self._count and self.value(found := int(self._order[low]), KEY) == wanted:
            return found
        return None

    def describe(self, index: int, name: str) -> str:
        """Return "(sample INDEX, key KEY, field NAME)", for messages."""
        return f"(sample {index}, key {self.key(index)!r}, field {name!r})"

    def crc32(self, index: int, name: str) -> int:
        """Return the stored crc32 of one encoded value."""
        return int(self._crc32[index, self.positions[name]])

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a read-only array [n, *shape] of a number field of fixed shape; raises UnknownKey for other fields."""
        array = self.arrays.get(f"number-{name}")
        if array is None:
            columns = [field.name for field in self._schema if field.is_column]
            raise UnknownKey(f"no column {name!r}; columns: {', '.join(columns) or 'none'}")
        return array.reshape(self._count, *(length or 0 for length in self._schema[name].shape or ()))

    def sizes(self, name: str) -> npt.NDArray[np.uint32]:
        """Return height and width in px of each stored image, read-only uint32 [n, 2]; raises UnknownKey."""
        return self._computed("size", name)

    def counts(self, name: str) -> npt.NDArray[np.uint32]:
        """Return the number of rows of each value of a ragged field, read-only uint32 [n]; raises UnknownKey."""
        return self._computed("count", name)

    def _computed(self, kind: str, name: str) -> npt.NDArray[np.uint32]:
        array = self.arrays.get(f"{kind}-{name}")
        if array is None:
            raise self._absent(kind, name)
        return array

    def _absent(self, kind: str, name: str) -> UnknownKey:
        """Return the error for a field without a column. kind: the beginning of its file."""
        fields = [file.removeprefix(f"{kind}-") for file in self.arrays if file.startswith(f"{kind}-")]
        return UnknownKey(
            f"{self.where}: no column {kind}-{name}; fields with {kind}: {', '.join(fields) or 'none'}; packs of "
            "version 1 have none: packer convert OLD NEW adds them"
        )


# ---- writing: one piece for each part during the conversion, then `merge` creates the index
#
# A piece is one file. For keys, key_ends, crc32 and each column, in the order of `_names`, it contains the length in
# bytes (uint64, little-endian) and the data of the index file without its header.

_SIZE, _COUNT = Struct("<II"), Struct("<I")
_Step = Callable[[Buffer], Buffer]


class ColumnEntries:
    """Computes the entries of the columns from encoded values. Thread-safe."""

    def __init__(self, schema: Schema, listed: Collection[str] | None = None) -> None:
        """Prepare the columns of `file_dtypes`."""
        self._steps: dict[str, list[tuple[str, _Step]]] = {name: [] for name in (KEY, *schema.names)}
        for file in file_dtypes(schema, listed):
            kind, _, name = file.partition("-")
            if file != "crc32":
                self._steps[name or KEY].append((file, _step(kind, schema, name)))

    def of(self, name: str, value: Buffer) -> dict[str, Buffer]:
        """Return the entries of one field: file of `file_dtypes` -> entry, or the value where the file contains ends.

        Raises:
            BadInput, CorruptRecord: the value has no size.
        """
        return {file: step(value) for file, step in self._steps[name]}


def _step(kind: str, schema: Schema, name: str) -> _Step:
    """Return the function that computes the entry in a file of this kind from the encoded value of a field."""
    if kind not in ("size", "count"):
        return lambda value: value
    codec = codecs.make(schema[name])
    if kind == "size":
        return lambda value: _SIZE.pack(*codec.read_header(value).shape[:2])
    return lambda value: _COUNT.pack(codec.shape(value)[0])


class PartIndex:
    """Collects the index entries of one part in memory."""

    def __init__(self, schema: Schema, listed: Collection[str] | None = None) -> None:
        """Start with no sample; see `file_dtypes` for the arguments."""
        files = file_dtypes(schema, listed)
        self._texts = {name: data for name in files if (data := _data_file(name)) is not None}
        self._widths = {
            name: np.dtype(dtype).itemsize * math.prod(shape)
            for name, (dtype, shape) in files.items()
            if name not in self._texts and name != "crc32"
        }
        self._data = {name: bytearray() for name in _names(files)}
        self._crc32s = Struct(f"<{len(schema)}I")

    def add(self, crc32s: Sequence[int], entries: Mapping[str, Buffer]) -> None:
        """Add a sample; raises InvalidRequest for a number of another size.

        Args:
            crc32s: crc32 of each encoded value, in schema order.
            entries: the entries of all fields; see `ColumnEntries.of`.
        """
        self._data["crc32"] += self._crc32s.pack(*crc32s)
        for ends, data in self._texts.items():
            self._data[data] += entries[ends]
            self._data[ends] += len(self._data[data]).to_bytes(8, "little")
        for file, width in self._widths.items():
            if len(entries[file]) != width:
                name = file.partition("-")[2]
                raise InvalidRequest(f"field {name!r}: expected {width} bytes, found {len(entries[file])}")
            self._data[file] += entries[file]

    def save(self, path: Path) -> None:
        """Write the entries to a new file (a piece) and sync it; raises StorageError."""
        write_file(path, b"".join(len(data).to_bytes(8, "little") + data for data in self._data.values()))


def merge(
    pieces: Sequence[Path], folder: Path, schema: Schema, *, listed: Collection[str] | None = None
) -> tuple[IndexFile, ...]:
    """Write and sync `folder`/index.

    Args:
        pieces: the files that `PartIndex.save` wrote, in the order of the parts. The folder of an index is also one.
        folder: the folder of the pack.
        schema: the fields.
        listed: as in `file_dtypes`.

    Returns:
        The entries of the manifest.

    Raises:
        BadInput: two samples have the same key.
        StorageError: the files cannot be written.
    """
    target = folder / INDEX
    make_folder(target)
    columns = file_dtypes(schema, listed)
    sections = [_sections(piece, _names(columns)) for piece in pieces]
    files = []
    for name, (dtype, shape) in columns.items():
        blocks: Sequence[Any] = [section[name] for section in sections]
        if (data := _data_file(name)) is not None:
            ends = _joined_ends(blocks)
            blocks, texts = [ends], [section[data] for section in sections]
            if name == "key_ends":
                keys = b"".join(section.read() for section in texts)
                order = key_order(keys, ends)
                files.append(write_array(target / "key_order.npy", "<u8", order.shape, [order]))
            length = sum(section.size for section in texts)
            files.append(write_array(target / f"{data}.npy", "|u1", (length,), texts))
        files.append(write_array(target / f"{name}.npy", dtype, (len(ends), *shape), blocks))
    sync_folder(target)
    return tuple(sorted(files, key=lambda file: file.name))


def keys_in(piece: Path, schema: Schema) -> list[str]:
    """Return the keys in a piece, in order; raises StorageError. piece: as in `merge`."""
    sections = _sections(piece, _names(file_dtypes(schema)))
    keys, ends = sections["keys"].read(), np.frombuffer(sections["key_ends"].read(), "<u8").tolist()
    bounds = zip([0, *ends], ends, strict=False)
    return [keys[start:end].decode("utf-8", "surrogateescape") for start, end in bounds]


def _names(files: Iterable[str]) -> list[str]:
    """Return the sections of a piece. files: those of `file_dtypes`."""
    return [*filter(None, map(_data_file, files)), *files]


class _Section(NamedTuple):
    """A range of bytes in the file of a piece."""

    path: Path
    start: int
    size: int  # in bytes

    def read(self) -> bytes:
        with failing(self.path, "read"), self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


def _sections(piece: Path, names: Sequence[str]) -> dict[str, _Section]:
    if piece.is_dir():
        return {name: _data(piece / f"{name}.npy") for name in names}
    found, at = {}, 0
    for name in names:
        size = int.from_bytes(_Section(piece, at, 8).read(), "little")
        found[name] = _Section(piece, at + 8, size)
        at += 8 + size
    return found


def _data(path: Path) -> _Section:
    """Return the data of an index file, after its header."""
    size = file_bytes(path)
    array, _ = map_file(path, size)
    return _Section(path, size - array.nbytes, array.nbytes)


def _joined_ends(sections: Sequence[_Section]) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    ends = [np.frombuffer(section.read(), "<u8") for section in sections]
    starts = np.cumsum([0, *(int(part[-1]) if len(part) else 0 for part in ends)])
    joined = [part + np.uint64(start) for part, start in zip(ends, starts, strict=False)]
    return np.concatenate([np.empty(0, "<u8"), *joined])


def key_order(keys: bytes, ends: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Return the indices of keys in the order of their bytes; raises BadInput if two are equal."""
    bounds = [0, *ends.tolist()]
    names = [keys[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    order = sorted(range(len(names)), key=names.__getitem__)
    for one, other in zip(order, order[1:], strict=False):
        if names[one] == names[other]:
            text = names[one].decode("utf-8", "surrogateescape")
            raise BadInput(f"key {text!r}: samples {one} and {other} have it; rename one, or give prefixes")
    return np.asarray(order, "<u8")


def write_index(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], schema: Schema) -> tuple[IndexFile, ...]:
    """Write and sync the arrays of an index as the files of the new `folder`. Returns the entries of the manifest."""
    make_folder(folder)
    names = file_dtypes(schema, arrays)
    files = [*names, *filter(None, map(_data_file, names)), "key_order", ROWS]
    found = [write_array(folder / f"{name}.npy", (a := arrays[name]).dtype.str, a.shape, [a]) for name in sorted(files)]
    sync_folder(folder)
    return tuple(found)


class _Tee:
    """Writes to a file, and computes its entry in the manifest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.crc32 = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> None:
        self._file.write(data)
        self.size += memoryview(data).nbytes
        self.crc32 = zlib.crc32(data, self.crc32)
        self.sha256.update(data)


def write_array(path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterable[Any]) -> IndexFile:
    """Write a new .npy file, which the caller must sync; raises StorageError.

    Args:
        path: the new file.
        dtype: of the array.
        shape: of the array.
        blocks: the data in order: arrays, bytes, or sections of pieces.

    Returns:
        The entry of the manifest.
    """
    with failing(path, "write"), path.open("xb") as file:
        tee = _Tee(file)
        tee.write(npy_header(dtype, shape))
        for block in blocks:
            data = block.read() if isinstance(block, _Section) else block
            tee.write(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data)
    return IndexFile(path.name, tee.size, tee.crc32, tee.sha256.hexdigest())
