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
| index/values-<field>.npy | uint8 [k] | UTF-8 bytes of all values of a text field, one after another |
| index/value_ends-<field>.npy | uint64 [n] | end of each value in values-<field>.npy |
| index/size-<field>.npy | uint32 [n, 2] | height and width in px of the stored image, depth or mask |
| index/count-<field>.npy | uint32 [n] | number of rows of a field whose number of rows varies |
| index/row_values-<field>.npy | [rows] | numbers of all rows of all samples, such as those of box_labels |
| index/box_size-<field>.npy | float32 [rows, 2] | height and width of all boxes in px of the stored image |
| index/rows.npy | uint64 [n] | in a collection: the row of each sample, counted over all members |

Row values have the shape (None,) and belong to the rows of another field. In a collection, files of values also contain
the encoded values of other fields. Earlier packs lack some files; packs of version 1 have the first five kinds only.
"""

import hashlib
import math
import os
import zlib
from bisect import bisect_left
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import BadInput, CorruptPack, InvalidRequest, UnknownKey
from packer.files.digest import file_bytes
from packer.files.fsync import make_folder, sync_folder, write_file
from packer.files.npy_arrays import map_file, npy_header
from packer.files.storage_errors import failing
from packer.pack.manifest import INDEX, IndexFile, Manifest
from packer.schema import KEY, MATRIX, PIXEL_KINDS, Buffer, Field, Schema

ROWS = "rows"  # in a collection
_BOUNDS = {"keys": "key_ends", "values": "value_ends", "row_values": "count", "box_size": "count"}
_Array = npt.NDArray[Any]
_Form = tuple[str, tuple[int, ...]]


def bounds_of(file: str) -> str | None:
    """Return the file with the ends of the entries of each sample in `file`. None if each sample has one entry."""
    kind, dash, field = file.partition("-")
    return f"{_BOUNDS[kind]}{dash}{field}" if kind in _BOUNDS else None


def ends_in(arrays: Mapping[str, _Array], file: str) -> npt.NDArray[np.uint64]:
    """Return the end of the entries of each sample in `file`, for which `bounds_of` is not None."""
    bounds = str(bounds_of(file))
    return arrays[bounds] if is_ends(bounds) else np.cumsum(arrays[bounds], dtype="<u8")


def is_ends(file: str) -> bool:
    """Return True if a file contains ends of texts: key_ends or value_ends."""
    return file.startswith(("key_ends", "value_ends-"))


def _values_file(field: str) -> str:
    return "keys" if field == KEY else f"values-{field}"


def file_forms(schema: Schema, listed: Collection[str] | None = None) -> dict[str, _Form]:
    """Return name of a file without .npy -> (dtype, shape of one entry, such as ()). key_order is not included.

    Args:
        schema: the fields.
        listed: names of the files of an existing index, which may lack some. None for a new index.
    """
    files: dict[str, _Form] = {"keys": ("|u1", ()), "key_ends": ("<u8", ()), "crc32": ("<u4", (len(schema),))}
    for field in schema:
        if field.is_column:
            width = math.prod(length or 0 for length in field.shape or ())
            files[f"number-{field.name}"] = (_dtype(field), (width,) if field.shape else ())
        for group, is_new in _optional_files(field):
            if is_new if listed is None else all(name in listed for name in group):
                files |= group
    return files


def _optional_files(field: Field) -> Iterator[tuple[dict[str, _Form], bool]]:
    """Yield (files that an index either has or lacks together, True if a new index has them)."""
    name = field.name
    count: dict[str, _Form] = {f"count-{name}": ("<u4", ())}
    if field.kind in PIXEL_KINDS:
        yield {f"size-{name}": ("<u4", (2,))}, True
    elif name != KEY:
        yield {f"values-{name}": ("|u1", ()), f"value_ends-{name}": ("<u8", ())}, field.kind == "text"
    if field.has_rows:
        yield count, True
    if (field.kind, field.shape) == ("boxes", (None, 4)):
        yield {**count, f"box_size-{name}": ("<f4", (2,))}, True
    elif (field.kind, field.shape) == ("number", (None,)):
        yield {**count, f"row_values-{name}": (_dtype(field), ())}, field.is_row_column


def _dtype(field: Field) -> str:
    return np.dtype(field.dtype).newbyteorder("<").str


def crc32_problem(found: int, expected: int) -> str:
    """Return a message for a value with the crc32 `found` instead of `expected`."""
    return f"damaged record: crc32 {found:08x}, the index has {expected:08x}; pack again from the source"


class IndexFiles(UserDict[str, _Array]):
    """The mapped files of an index: name without .npy -> read-only array.

    The content of a file is checked at its first use, because the index of a large pack is slow to read.
    """

    def __init__(self, folder: Path, files: Iterable[IndexFile]) -> None:
        """Map the files in `folder`; raises CorruptPack."""
        super().__init__()
        self._folder = folder
        self._files = {file.name.removesuffix(".npy"): file for file in files}
        self._unchecked: dict[str, bytes | mmap] = {}  # the content
        for name, file in self._files.items():
            self.data[name], self._unchecked[name] = self._map(file)

    def _map(self, file: IndexFile) -> tuple[npt.NDArray[Any], bytes | mmap]:
        path = self._folder / file.name
        if not os.path.lexists(path):
            raise CorruptPack(f"{path}: missing index file; run packer index, or copy the pack again")
        return map_file(path, file.bytes)

    def _check(self, name: str, content: bytes | mmap) -> None:
        file, array = self._files[name], self.data[name]
        found = zlib.crc32(content)
        if found != file.crc32:
            raise CorruptPack(
                f"{self._folder / file.name}: damaged index file: crc32 {found:08x}, the manifest has "
                f"{file.crc32:08x}; run packer index, or copy it again"
            )
        for data in (file for file in self._files if bounds_of(file) == name):
            self._check_ends(data, ends_in({name: array}, data), len(self.data[data]))
        if name == "key_order" and (array >= len(array)).any():
            raise CorruptPack(f"{self._folder}: key order points outside the pack; run packer index, or pack again")
        self._unchecked.pop(name, None)

    def _check_ends(self, file: str, ends: npt.NDArray[np.uint64], length: int) -> None:
        """Raise CorruptPack unless the ends are in order and the last one is the length of the file."""
        bad = np.flatnonzero(ends[1:] < ends[:-1])
        if len(bad) or (int(ends[-1]) if len(ends) else 0) != length:
            at = int(bad[0]) + 1 if len(bad) else len(ends) - 1
            raise CorruptPack(f"{self._folder}: ends in {file} are not in order at sample {at}; copy or pack it again")

    def __getitem__(self, name: str) -> _Array:
        if (content := self._unchecked.get(name)) is not None:
            self._check(name, content)
        return self.data[name]

    def check_shapes(self, manifest: Manifest) -> None:
        """Raise CorruptPack unless the files have the names, dtypes and shapes that the manifest implies."""
        count = manifest.samples
        expected: dict[str, _Form] = {"key_order": ("<u8", (count,))}
        if manifest.members:
            expected[ROWS] = ("<u8", (count,))
        for name, (dtype, shape) in file_forms(manifest.schema, self._files).items():
            length: tuple[int, ...] = (count,)
            if bounds_of(name) is not None and name in self.data:  # `_check_ends` compares it with the ends
                length = self.data[name].shape[:1]
            expected[name] = (dtype, (*length, *shape))
        found = {name: (array.dtype.str, array.shape) for name, array in self.data.items()}
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
        """Use arrays in memory, or mapped files. An array is not looked up in `arrays` before its first use.

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
        self._used: dict[str, tuple[_Array, npt.NDArray[np.uint64] | None]] = {}
        files = {name: (_values_file(name), f"number-{name}") for name in (KEY, *schema.names)}
        self._files = {name: file for name, several in files.items() for file in several if file in arrays}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> "Index":
        """Open the index of the pack in `folder`. Raises CorruptPack if a file does not have its expected size."""
        files = IndexFiles(folder / INDEX, manifest.index)
        files.check_shapes(manifest)
        return cls(files, manifest.schema, manifest.samples, folder / INDEX)

    @cached_property
    def _crc32(self) -> npt.NDArray[np.uint32]:
        return self.arrays["crc32"]

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> str:
        """Return the key of a sample, 0 <= index < len; raises CorruptPack."""
        return self.text(index, KEY)

    def text(self, index: int, name: str) -> str:
        """Return the value of a text field for which `contains` is true. Errors are those of `value`."""
        return self.value(index, name).decode("utf-8", "surrogateescape")

    def contains(self, name: str) -> bool:
        """Return True if the index contains the values of the field. It always contains the keys."""
        return name in self._files

    def value(self, index: int, name: str) -> bytes:
        """Return the encoded value of a field for which `contains` is true, 0 <= index < len.

        Raises UnknownKey for other fields, and CorruptPack.
        """
        return self.entry(index, self._files.get(name) or f"values-{name}")

    def entry(self, index: int, file: str) -> bytes:
        """Return the bytes of the entries of a sample in a file of `file_forms`; raises CorruptPack."""
        data, ends = self._used.get(file) or self._with_ends(file)
        entry = data[index] if ends is None else data[ends.item(index - 1) if index else 0 : ends.item(index)]
        return bytes(entry.tobytes())

    def texts(self, name: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        """Return the values of a text field, one after another, and the end of each value.

        Raises UnknownKey if the index does not contain the texts, and CorruptPack.
        """
        data, ends = self._with_ends(_values_file(name))
        return data, np.asarray(ends)

    def texts_at(self, indices: Iterable[int], name: str) -> list[str]:
        """Return the values of a text field of the samples `indices`."""
        data, ends = (array.data for array in self.texts(name))
        return [
            str(data[ends[index - 1] if index else 0 : ends[index]], "utf-8", "surrogateescape") for index in indices
        ]

    def _with_ends(self, file: str) -> tuple[_Array, npt.NDArray[np.uint64] | None]:
        if file not in self._used:
            if file not in self.arrays:
                kind = file.partition("-")[0]
                fields = [name.removeprefix(f"{kind}-") for name in self.arrays if name.startswith(f"{kind}-")]
                raise UnknownKey(
                    f"{self.where}: no column {file}; fields with {kind}: {', '.join(fields) or 'none'}; packs of "
                    "version 1 have none: packer convert OLD NEW adds them"
                )
            ends = None if bounds_of(file) is None else ends_in(self.arrays, file)
            self._used[file] = self.arrays[file], ends
        return self._used[file]

    def matrix(self, index: int) -> bytes:
        """Return the encoded value of the field matrix; b"" if the schema has no such field."""
        return self.value(index, MATRIX.name) if MATRIX.name in self._schema else b""

    def index_of(self, key: str) -> int:
        """Return the index of the sample with this key. The message of UnknownKey suggests a similar key."""
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
        order = self._with_ends("key_order")[0].data  # its numbers are Python integers, which are fast
        keys, ends = (array.data for array in self.texts(KEY))

        def name(place: int) -> bytes:
            index = order[place]
            return bytes(keys[ends[index - 1] if index else 0 : ends[index]])

        place = bisect_left(range(self._count), wanted, key=name)
        return order[place] if place < self._count and name(place) == wanted else None

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
        return self._with_ends(f"size-{name}")[0]

    def counts(self, name: str) -> npt.NDArray[np.uint32]:
        """Return the number of rows of each value of a field, if it varies, uint32 [n]; else raise UnknownKey."""
        return self._with_ends(f"count-{name}")[0]


# ---- writing: one piece for each part during the conversion, then `merge` creates the index
#
# A piece is one file. For each file of `file_forms`, it contains the length in bytes (uint64, little-endian) and the
# data of the index file without its header.

_SIZE, _COUNT = Struct("<II"), Struct("<I")
_Step = Callable[[Buffer, Buffer], Buffer]


class ColumnEntries:
    """Functions that compute the entries of a sample in the index from its encoded values. Thread-safe.

    Attributes:
        steps: for each file: the field, the file, and the function that `of` calls with `value` and `matrix`.
    """

    def __init__(self, schema: Schema, listed: Collection[str] | None = None) -> None:
        """Prepare the functions for the files that `file_forms` returns for these arguments."""
        self._of_field: dict[str, list[tuple[str, _Step]]] = {name: [] for name in (KEY, *schema.names)}
        for file in file_forms(schema, listed):
            kind, _, name = file.partition("-")
            if file != "crc32" and not is_ends(file):
                self._of_field[name or KEY].append((file, _step(kind, schema, name or KEY)))
        self.steps = [(name, file, step) for name, steps in self._of_field.items() for file, step in steps]

    def of(self, name: str, value: Buffer, matrix: Buffer = b"") -> dict[str, Buffer]:
        """Return file of the index -> entry of one field, without crc32 and ends.

        Args:
            name: the field.
            value: its encoded value.
            matrix: the encoded value of the field `matrix`. b"" if the schema has no such field.

        Raises:
            BadInput, CorruptRecord: the size of the value cannot be read.
        """
        return {file: step(value, matrix) for file, step in self._of_field[name]}


def _step(kind: str, schema: Schema, name: str) -> _Step:
    """Return the function that computes the entry in a file of this kind from the encoded value of a field."""
    if kind not in ("size", "count", "row_values", "box_size"):
        return lambda value, _: value
    field, codec = schema[name], codecs.make(schema[name])
    if kind == "size":
        return lambda value, _: _SIZE.pack(*codec.read_header(value).shape[:2])
    if kind == "count":
        return lambda value, _: _COUNT.pack(codec.shape(value)[0])
    if kind == "row_values":
        is_bare = codec.list_dtype(field) == field.dtype
        return lambda value, _: value if is_bare else codec.decode(value).astype(_dtype(field)).tobytes()
    if MATRIX.name not in schema:
        return lambda value, _: _box_sizes(codec.decode(value), None)
    matrices = codecs.make(MATRIX)
    return lambda value, matrix: _box_sizes(codec.decode(value), matrices.decode(matrix))


def _box_sizes(boxes: _Array, matrix: _Array | None) -> bytes:
    """Return height and width of boxes in stored pixels. `matrix` maps pixels of the boxes to stored pixels."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.abs(np.subtract(boxes[:, 2:], boxes[:, :2], dtype=np.float64))
        if matrix is not None:
            sizes = sizes @ np.abs(matrix[:, :2]).T
        return sizes[:, ::-1].astype("<f4").tobytes()


class PartIndex:
    """The index entries of one part, collected in memory."""

    def __init__(self, schema: Schema, listed: Collection[str] | None = None) -> None:
        """Start with no sample. The arguments are those of `file_forms`."""
        files = file_forms(schema, listed)
        self._data = {file: bytearray() for file in files}
        self._ends = [(str(ends), file) for file in files if is_ends(str(ends := bounds_of(file)))]
        self._widths = [
            (file, np.dtype(dtype).itemsize * math.prod(shape))
            for file, (dtype, shape) in files.items()
            if file.startswith("number-")
        ]
        self._crc32s = Struct(f"<{len(schema)}I")

    def add(self, crc32s: Sequence[int], entries: Mapping[str, Buffer]) -> None:
        """Add a sample. Raises InvalidRequest if the value of a number field has another size than its shape.

        Args:
            crc32s: crc32 of each encoded value, in schema order.
            entries: the results of `ColumnEntries.of` for all fields.
        """
        data = self._data
        for file, width in self._widths:
            if len(entries[file]) != width:
                name = file.partition("-")[2]
                raise InvalidRequest(f"field {name!r}: expected {width} bytes, found {len(entries[file])}")
        for file, entry in entries.items():
            data[file] += entry
        for ends, file in self._ends:
            data[ends] += len(data[file]).to_bytes(8, "little")
        data["crc32"] += self._crc32s.pack(*crc32s)

    def save(self, path: Path) -> None:
        """Write the entries to a new file (a piece) and sync it; raises StorageError."""
        write_file(path, b"".join(len(data).to_bytes(8, "little") + data for data in self._data.values()))


def merge(
    pieces: Sequence[Path], folder: Path, schema: Schema, *, listed: Collection[str] | None = None
) -> tuple[IndexFile, ...]:
    """Write and sync `folder`/index.

    Args:
        pieces: the files that `PartIndex.save` wrote, in the order of the parts. A piece may also be the folder of an
            index.
        folder: the folder of the pack.
        schema: the fields.
        listed: names of the files to write, if some are absent. None for all.

    Returns:
        The entries of the manifest.

    Raises:
        BadInput: two samples have the same key.
        StorageError: the files cannot be written.
    """
    target = folder / INDEX
    make_folder(target)
    forms = file_forms(schema, listed)
    arrays = [_flat(piece, forms) for piece in pieces] or [{name: np.empty(0, forms[name][0]) for name in forms}]
    ends = concatenated(arrays, "key_ends")
    order = key_order(concatenated(arrays, "keys").tobytes(), ends)
    files = [write_array(target / "key_order.npy", "<u8", order.shape, [order])]
    for name, (dtype, shape) in forms.items():
        data = concatenated(arrays, name)
        count = len(ends) if bounds_of(name) is None else data.size // math.prod(shape)
        files.append(write_array(target / f"{name}.npy", dtype, (count, *shape), [data]))
    sync_folder(target)
    return tuple(sorted(files, key=lambda file: file.name))


def keys_in(piece: Path, schema: Schema) -> list[str]:
    """Return the keys in `piece`, a file or folder that `merge` accepts, in order; raises StorageError."""
    found = _flat(piece, file_forms(schema))
    keys, ends = found["keys"].tobytes(), found["key_ends"].tolist()
    return [keys[start:end].decode("utf-8", "surrogateescape") for start, end in pairwise([0, *ends])]


def _flat(piece: Path, forms: Mapping[str, _Form]) -> dict[str, _Array]:
    if piece.is_dir():
        paths = {name: piece / f"{name}.npy" for name in forms}
        return {name: map_file(path, file_bytes(path))[0].ravel() for name, path in paths.items()}
    with failing(piece, "read"):
        content = piece.read_bytes()
    found, at = {}, 0
    for name, (dtype, _) in forms.items():
        start = at + 8
        at = start + int.from_bytes(content[at:start], "little")
        found[name] = np.frombuffer(memoryview(content)[start:at], dtype)
    return found


def concatenated(parts: Sequence[Mapping[str, _Array]], file: str) -> _Array:
    """Return the array of the file `file` for all samples of several indexes, one index after another."""
    arrays = [part[file] for part in parts]
    if is_ends(file):
        return np.cumsum(np.concatenate([lengths(ends) for ends in arrays]), dtype="<u8")
    return np.concatenate(arrays)


def lengths(ends: _Array) -> npt.NDArray[np.int64]:
    """Return the number of entries of each sample from the ends of the entries."""
    return np.asarray(np.diff(ends.astype(np.int64), prepend=0), np.int64)


def key_order(keys: bytes, ends: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Return the indices of keys in the order of their bytes; raises BadInput if two are equal."""
    names = [keys[start:end] for start, end in pairwise([0, *ends.tolist()])]
    order = sorted(range(len(names)), key=names.__getitem__)
    for one, other in pairwise(order):
        if names[one] == names[other]:
            text = names[one].decode("utf-8", "surrogateescape")
            raise BadInput(f"key {text!r}: samples {one} and {other} have it; rename one, or give prefixes")
    return np.asarray(order, "<u8")


def write_index(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], schema: Schema) -> tuple[IndexFile, ...]:
    """Write and sync the arrays of an index as files of a new folder. Returns their entries for the manifest."""
    make_folder(folder)
    files = [*file_forms(schema, arrays), "key_order", ROWS]
    found = [write_array(folder / f"{name}.npy", (a := arrays[name]).dtype.str, a.shape, [a]) for name in sorted(files)]
    sync_folder(folder)
    return tuple(found)


class _Tee:
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
    """Write a new .npy file and return its entry of the manifest; raises StorageError. The file is not synced.

    `blocks` contains the data in order, as arrays or bytes.
    """
    with failing(path, "write"), path.open("xb") as file:
        tee = _Tee(file)
        tee.write(npy_header(dtype, shape))
        for block in blocks:
            tee.write(np.ascontiguousarray(block).data if isinstance(block, np.ndarray) else block)
    return IndexFile(path.name, tee.size, tee.crc32, tee.sha256.hexdigest())
