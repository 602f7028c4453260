"""BMP: a folder of ordinary files per part. PIL, OpenCV and torchvision's ImageFolder read the images.

Layout of `part-00000/` (see also `_folder_part`):

| file                    | content                                                                                    |
|-------------------------|--------------------------------------------------------------------------------------------|
| `<field>/<key><suffix>` | the encoded value of each image, depth, mask and bytes field, unchanged. <key> is the      |
|                         | relative path of the sample, or a name from `FileNames`. The suffix is that of the file's  |
|                         | format (.bmp, .npy, .png ...), or .bin                                                     |
| values.npz              | `<field>`: every other field as in `_columns` (numbers, key, text, json, points)           |
|                         | `names/<field>`: the path of each file below <field>/, for fields kept in files            |
|                         | `sizes/<field>`: int64 [n], the size of each file in bytes                                 |

Small values are in arrays, because a file takes at least one block of the disk, which is 500 times a label.
A pack is one part unless the user sets --part-size, so that ImageFolder finds all files in one tree.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from packer.errors import InvalidRequest
from packer.files.safe_paths import components, folded
from packer.files.tree_writer import TreeWriter
from packer.formats import base
from packer.formats._folder_part import TABLE, FolderReader, FolderWriter, Tables
from packer.formats._folder_part_files import MOST_FILE_BYTES, PartFiles
from packer.schema import Field, FixedArray, Schema, StoredForm

SUFFIX = ""  # some tools treat a folder with the suffix of an image as an image
_NAMES, _SIZES = "names/", "sizes/"
_KINDS = ("image", "depth", "mask", "bytes")  # stored as files
_NO_SUFFIX = (".bin",)
_PATH = Field("path", "text", "text")  # below the folder of the field
_SIZE = Field("size", "number", "number", dtype="int64", shape=())


def _tables(schema: Schema) -> Tables:
    files = [field.name for field in schema if field.kind in _KINDS]
    return {
        "": schema.select([field.name for field in schema if field.kind not in _KINDS]),
        _NAMES: _table(_PATH, files, None),
        _SIZES: _table(_SIZE, files, ("int64", ())),
    }


def _table(like: Field, names: Sequence[str], array: FixedArray | None) -> Schema:
    form = StoredForm(array, suffixes=lambda value: ())
    return Schema(tuple(replace(like, name=name) for name in names), form_of=lambda field: form)


class Writer(FolderWriter):
    """Writes images, depth, masks and bytes into files immediately. Other values are collected until the end."""

    codecs = {"image": "bmp", "mask": "bmp", "depth": "npy"}
    one_part = True

    @classmethod
    def codec_of(cls, field: Field) -> str | None:
        return "npy" if field.is_wide_mask else super().codec_of(field)

    @classmethod
    def files(cls, schema: Schema) -> int:
        return sum(field.kind in _KINDS for field in schema)

    def _tables(self) -> Tables:
        return _tables(self.schema)

    def _begin(self, payload_bytes: int) -> None:
        self._folder = self._own(TreeWriter.at(self.path))
        self._in_files = {
            field.name: self.schema.stored_form(field.name) for field in self.schema if field.kind in _KINDS
        }
        self._names = FileNames()

    def _check(self, values: Mapping[str, bytes]) -> None:
        largest = max((len(values[name]) for name in self._in_files), default=0)
        if largest > MOST_FILE_BYTES:
            raise InvalidRequest(
                f"{self.path}: a value of {largest:,} bytes, expected at most {MOST_FILE_BYTES:,}; use hdf5"
            )

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        spools = self._open_spools()
        fitting = [form.suffixes(values[name]) or _NO_SUFFIX for name, form in self._in_files.items()]
        names = self._names.take(values.get("key", b"%d" % row), row, fitting)
        for field, name in zip(self._in_files, names, strict=True):
            self._folder.write((field.encode(), *components(name)), values[field])
            spools[_NAMES][field].add(name.encode("utf-8", "surrogateescape"))
            spools[_SIZES][field].add(len(values[field]).to_bytes(8, "little"))


class Reader(FolderReader):
    """Reads a file when its value is requested, and returns a copy. Other values are slices of values.npz."""

    is_mapped = False
    _files: PartFiles | None = None

    def _layouts(self) -> Sequence[Tables]:
        return [_tables(self.schema)]

    def _open(self, folder: int, layout: int, *, readahead: bool) -> None:
        self._files = PartFiles(self.path, folder)
        self._in_files = {field.name for field in self.schema if field.kind in _KINDS}

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        gathered = self._rows[""].read(row, [name for name in names if name not in self._in_files])
        return {name: self._file(row, name) if name in self._in_files else gathered[name] for name in names}

    def _file(self, row: int, name: str) -> memoryview:
        size_bytes = int.from_bytes(self._rows[_SIZES].values((row,), name)[0], "little", signed=True)
        path = self._path(row, name)
        if self._files is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        return self._files.read(path, size_bytes)

    def _path(self, row: int, name: str) -> bytes:
        return b"%s/%s" % (name.encode(), bytes(self._rows[_NAMES].values((row,), name)[0]))

    def files(self) -> Iterator[bytes]:
        yield TABLE.encode()
        for row in range(self.samples):
            for name in sorted(self._in_files):
                yield self._path(row, name)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        super().close()


# ---- names


class FileNames:
    """Chooses the names of the files of one part, row after row. It remembers 8 bytes per name.

    A name is the key. A suffix of the value's file format is added if the key ends with none. `~` and the row are added
    if the name could lead out of the folder, is too long, or is taken. A name is taken if a file system could regard
    it as equal to an earlier name.

        cat/a.jpg    ->  cat/a.jpg.bmp        cat/A.jpg  ->  cat/A.jpg~7.bmp       because cat/a.jpg is taken
        cat/<long>   ->  cat/~7.bmp           ../a.jpg   ->  ~7.bmp
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, key: bytes, row: int, wanted: Sequence[tuple[str, ...]]) -> list[str]:
        """Return the path of each file of a row, relative to the folder of the file's field. Raises InvalidRequest.

        Args:
            key: The key of the sample.
            row: The row of the sample.
            wanted: For each file, the suffixes of its file format. If the key ends with none of them, the first is
                added.
        """
        for path in _candidates(key.decode("utf-8", "surrogateescape"), row):
            found = [path if path.lower().endswith(fitting) else path + fitting[0] for fitting in wanted]
            marks = [marks for name in dict.fromkeys(found) if (marks := self._marks(name)) is not None]
            if len(marks) == len(set(found)):
                self._taken.update(*marks)
                return found
        raise InvalidRequest(f"row {row}: every name for its files is taken; use another format")

    def _marks(self, path: str) -> list[int] | None:
        """Return hashes of the path and of its folders that are new. Return None if the path is unsafe or taken."""
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
            if _mark(key[:at]) in self._taken:  # an earlier file has the name of the folder
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
    """Return 64 bits of a hash. Two paths may have one hash; the second path then gets a longer name."""
    raw = folded_path.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
