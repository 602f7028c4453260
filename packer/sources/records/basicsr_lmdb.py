"""BasicSR LMDB: pixels or PNG files under names, as BasicSR, mmsr and PySODToolBox write them.

Fields: key (as in the LMDB), and one of the pictures: depth where they have 16 bit in one channel, image where they are
other PNG files or have 8 bit in one or three channels, else image as an array of numbers; `features` says it otherwise,
such as mask=value:mask. Pixels come as RGB; no label is stored. The order is that of the keys.
Layout: a folder with data.mdb; value = pixels (H, W, C) as OpenCV has them, blue first, uint8 or uint16
(little-endian), which their length alone tells; where the sizes are, tells the generation:
    key.meta              in the LMDB: ASCII `H,W,C`; `_keys_cache.p` beside it lists the keys (first BasicSR)
    meta_info.pkl         {'name', 'resolution': ['C_H_W', ...] or one for all, 'keys'} (mmsr, PySODToolBox); a
                          `resolution` that is a text is of sets whose keys have a frame behind them (vimeo90k, REDS)
    meta_info.txt         lines `key.png (h,w,c) level`: the values are PNG files (BasicSR 1.x)
The pickles are read without `pickle` (packer.layouts.pickled).
"""

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images import file_suffixes, sniff
from packer.schema import MOST_PIXELS, Field
from packer.sources import base
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources.records._lmdb_layout import META, SIDE_FILES, side_files
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_fields import RecordField, parse_fields
from packer.sources.records._record_source import is_path

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
VALUE = "value"  # what `features` calls the one entry of a record
_TEXT, _PICKLE, _CACHE = SIDE_FILES
_KINDS = ("image", "mask", "depth", "numbers")
_LINE = re.compile(r"(.+)\.png \(([0-9]+),([0-9]+),([0-9]+)\) ([0-9]+)")
_GRAY, _COLOUR, _MOST_CHANNELS = 1, 3, 4
_Size = tuple[int, int, int]  # height, width, channels; zeros for a picture file
_Form = tuple[Literal["uint8", "uint16", "file"], int]  # and how many channels, 0 for a file


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(LMDBSource):
    """One LMDB of this family, or a folder of them."""

    kind = "basicsr-lmdb"
    layout = "BasicSR's pictures under names"

    def __init__(
        self, root: Path, *, features: Sequence[str] = (), layout: str = "auto", follow_links: bool = False
    ) -> None:
        """Find every entry.

        Raises InvalidRequest where there is no such LMDB, and for pixels that are no one kind; BadInput for a damaged
        one, for damaged lists beside it, and for what git-lfs left.
        """
        asked = _asked(features)
        self._sides: list[str] = []
        files = self._list_all(root, follow_links=follow_links, layout=layout)
        self._take(files)
        names = [key.decode("utf-8", "surrogateescape") for key in self._raw_keys]
        del self._raw_keys
        self._sizes_of = array("i")
        places = [range(*bounds) for bounds in zip(self._firsts, [*self._firsts[1:], len(self)], strict=True)]
        for number, file in enumerate(files):
            for size in self._sizes_in(number, file.name, [names[row] for row in places[number]]):
                self._sizes_of.extend(size)
        if len(set(names)) < len(names):
            names = [f"{self._stems[number]}/{name}" for number, name in zip(self._numbers, names, strict=True)]
        self._names = names
        forms = Counter(self._form(row) for row in range(len(self)))
        if asked is None and set(forms) == {("file", 0)} and self._are_depth_files():
            asked = RecordField("depth", (VALUE,), "depth")
        self._field, field = _settled(asked, forms, shown(str(root)))
        self.decodes = any(form != ("file", 0) for form in forms) and field.kind != "number"
        self._fields = [self._field]
        self._settle([field], [name for name in self._others if name not in self._sides])
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), self.noun)}")
        found = listed(f"{_shown(form)}: {count}" for form, count in sorted(forms.items()))
        if self._field.kind == "depth" and ("file", 0) in forms:
            found += " (16 bit, 1 channel)"
        order = "; pixels are taken as blue, green, red, and given as RGB" if set(forms) != {("file", 0)} else ""
        self.notes.append(f"{found}{order}")
        how = "as asked" if features else "by their sizes; --features says it otherwise"
        self.notes.append(f"--features {shell_word(self._field.shown())} ({how})")

    @classmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        """Any bytes may be pixels: what lies beside the LMDB tells."""

    @classmethod
    def _is_metadata(cls, key: bytes) -> bool:
        return key.endswith(META)

    # ---- sizes

    def _sizes_in(self, number: int, name: str, keys: Sequence[str]) -> list[_Size]:
        """The size of each picture of an LMDB; raises BadInput, InvalidRequest."""
        beside = {PurePosixPath(side).name: side for side in side_files(self.folder, name)}
        self._sides.extend(beside.values())
        if _PICKLE in beside:
            sizes, named = self._of_pickle(beside[_PICKLE], keys)
        elif _TEXT in beside:
            sizes, named = [(0, 0, 0)] * len(keys), self._of_text(beside[_TEXT])
        else:
            sizes = [self._of_entry(number, key) for key in keys]
            named = self._of_cache(beside[_CACHE]) if _CACHE in beside else set(keys)
        there = {*keys, *map(_without_frame, keys)}
        lacking = sorted(named - there)
        if lacking:
            self.notes.append(f"{shown(name)}: {counted(len(lacking), 'key')} of its list not there: {listed(lacking)}")
        more = [key for key in keys if key not in named and _without_frame(key) not in named]
        if more:
            self.notes.append(f"{shown(name)}: {counted(len(more), 'key')} not in its list: {listed(more)}")
        return sizes

    def _of_pickle(self, name: str, keys: Sequence[str]) -> tuple[list[_Size], set[str]]:
        path = self.folder.root / name
        try:
            found = _unpickled(self.folder.read(name))
        except BadInput as error:
            raise BadInput(f"{path}: {error.message}") from error
        resolution = found.get("resolution") if isinstance(found, dict) else None
        named = found.get("keys", []) if isinstance(found, dict) else None
        texts = [resolution] if isinstance(resolution, str) else resolution
        if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(text, str) for text in texts):
            texts = []
        if not texts or not isinstance(named, (list, tuple)) or not all(isinstance(key, str) for key in named):
            raise BadInput(f"{path}: expected a dict with resolution, such as ['3_480_640'], and keys")
        sizes = [_size(text.split("_"), (1, 2, 0), path) for text in texts]
        if len(set(sizes)) == 1:
            return sizes[:1] * len(keys), set(named)
        if len(sizes) != len(named):
            raise BadInput(f"{path}: {len(sizes)} sizes for {len(named)} keys; expected one for each, or one for all")
        by_key: Mapping[str, _Size] = dict(zip(named, sizes, strict=True))
        return [by_key.get(key) or by_key.get(_without_frame(key)) or (0, 0, 0) for key in keys], set(named)

    def _of_text(self, name: str) -> set[str]:
        path = self.folder.root / name
        keys = set()
        for at, line in enumerate(self.folder.read(name).decode("utf-8", "surrogateescape").splitlines(), 1):
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise BadInput(f"{path}: line {at}: expected `name.png (h,w,c) level`, found {line[:80]!r}")
            keys.add(match[1])
        return keys

    def _of_cache(self, name: str) -> set[str]:
        path = self.folder.root / name
        try:
            found = _unpickled(self.folder.read(name))
        except BadInput as error:
            raise BadInput(f"{path}: {error.message}") from error
        if not isinstance(found, (list, tuple)) or not all(isinstance(key, (str, bytes)) for key in found):
            raise BadInput(f"{path}: expected a list of keys")
        texts = [key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key for key in found]
        return {text for text in texts if not text.endswith(META.decode())}

    def _of_entry(self, number: int, key: str) -> _Size:
        data = self._metadata.get((number, key.encode("utf-8", "surrogateescape") + META))
        if data is None:
            return 0, 0, 0
        return _size(
            data.decode("latin-1").replace(" ", "").split(","), (0, 1, 2), self.folder.root / f"{key}{META.decode()}"
        )

    def _form(self, row: int) -> _Form:
        """What a value is, as its length says."""
        height, width, channels = self._size_at(row)
        count = height * width * channels
        if count and self._sizes[row] in (count, 2 * count):
            return ("uint8" if self._sizes[row] == count else "uint16"), channels
        return "file", 0

    def _are_depth_files(self) -> bool:
        """Whether the first records and some others are files of 16 bit in one channel, as raw pixels may be."""
        found = set()
        for _, record in self._probes():
            try:
                header = sniff(record)
            except DamagedImage:
                continue  # the sample says it
            found.add((header.dtype, header.channels))
        return found == {("uint16", _GRAY)}

    def _size_at(self, row: int) -> _Size:
        height, width, channels = self._sizes_of[3 * row : 3 * row + 3]
        return height, width, channels

    # ---- samples

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._sides)

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            return {self._field.name: self._value(index, record)}
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error

    def _value(self, index: int, record: bytes) -> Any:
        height, width, channels = self._size_at(index)
        dtype, _ = self._form(index)
        kind = self._field.kind
        if dtype == "file":
            if not file_suffixes(record):
                size = f"{height} x {width} x {channels}" if channels else "of a size that is not known"
                raise BadInput(f"{len(record)} bytes are neither pixels {size} nor a picture file")
            if kind == "numbers":
                raise BadInput("a picture file, where others are pixels")
            return record
        pixels: npt.NDArray[Any] = np.frombuffer(record, "<u2" if dtype == "uint16" else "u1")
        pixels = pixels.reshape(height, width, channels).astype(dtype)
        if channels >= _COLOUR:  # blue, green, red, and alpha behind them
            pixels = pixels[:, :, [2, 1, 0, *range(_COLOUR, channels)]]
        if kind == "numbers" and dtype == self._field.dtype:
            return np.ascontiguousarray(pixels)
        if kind == "image" and dtype == "uint8" and channels in (_GRAY, _COLOUR):
            return np.ascontiguousarray(np.broadcast_to(pixels, (height, width, _COLOUR)))
        if channels == _GRAY and (dtype == self._field.dtype or (kind == "mask" and dtype == "uint8")):
            return np.ascontiguousarray(pixels[:, :, 0])
        raise BadInput(f"{_shown((dtype, channels))}, which is no {kind} of this set")

    def _paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """As the key says, which may have the suffix of the file that was read."""
        found = super()._paths(index, values)
        stem = PurePosixPath(self._names[index])
        if not found or not is_path(str(stem)) or stem.suffix.lower() not in (".jpg", ".png"):
            return found
        return {name: f"{stem.with_suffix('')}{PurePosixPath(path).suffix}" for name, path in found.items()}


def _asked(features: Sequence[str]) -> RecordField | None:
    """What the user says of the one entry; raises InvalidRequest."""
    fields = parse_fields(features)
    if not fields:
        return None
    if len(fields) > 1 or fields[0].entries != (VALUE,) or fields[0].kind not in _KINDS:
        raise InvalidRequest(
            f"option features: {','.join(field.shown() for field in fields)!r}: expected one FIELD={VALUE}:KIND, such "
            f"as mask={VALUE}:mask; kinds are {', '.join(_KINDS)}"
        )
    return fields[0]


def _settled(asked: RecordField | None, forms: Mapping[_Form, int], root: str) -> tuple[RecordField, Field]:
    """The field as typed and as the schema has it; raises InvalidRequest where values are no one kind."""
    dtypes = sorted({dtype for dtype, _ in forms if dtype != "file"})
    channels = {count for dtype, count in forms if dtype != "file"}
    if asked is None:
        if dtypes in ([], ["uint8"]) and channels <= {_GRAY, _COLOUR}:
            asked = RecordField("image", (VALUE,), "image")
        elif dtypes == ["uint16"] and channels == {_GRAY}:
            asked = RecordField("depth", (VALUE,), "depth")
        elif len(dtypes) == 1 and ("file", 0) not in forms:
            asked = RecordField("image", (VALUE,), "numbers")
        else:
            found = listed(f"{_shown(form)}: {count}" for form, count in sorted(forms.items()))
            raise InvalidRequest(f"{root}: pictures of several kinds in one LMDB: {found}; pack the original files")
    dtype = dtypes[-1] if dtypes else None
    if asked.kind == "numbers":
        typed = dtype or "uint8"
        shape = (None, None, None)
        return asked.with_dtype(typed), Field(asked.name, "number", f"raw:{typed}", dtype=typed, shape=shape)
    if asked.kind == "mask":
        return asked.with_dtype(asked.dtype or "uint8"), asked.field
    typed = "uint8" if asked.kind == "image" else dtype or "uint16"
    return asked.with_dtype(typed), Field(asked.name, asked.kind or "image", "encoded", invalid=asked.invalid)


def _without_frame(key: str) -> str:
    """The key without the number of a frame, which lists of vimeo90k leave out."""
    head, line, tail = key.rpartition("_")
    return head if line and tail.isdecimal() else key


def _size(numbers: Sequence[str], order: Sequence[int], path: Path) -> _Size:
    """Height, width and channels; order: where they stand. Raises BadInput."""
    if len(numbers) != len(order) or not all(number.isdecimal() and len(number) < 10 for number in numbers):
        raise BadInput(f"{path}: expected three lengths of a picture, found {'_'.join(numbers)[:60]!r}")
    height, width, channels = (int(numbers[at]) for at in order)
    if not 0 < height * width <= MOST_PIXELS or not 0 < channels <= _MOST_CHANNELS:
        raise BadInput(f"{path}: {height} x {width} x {channels}: expected a picture of 1 to 4 channels")
    return height, width, channels


def _shown(form: _Form) -> str:
    """For messages."""
    dtype, channels = form
    return "picture files" if dtype == "file" else f"{dtype} pixels of {counted(channels, 'channel')}"


def _unpickled(data: bytes) -> Any:
    from packer.layouts import pickled  # the table of all opcodes, which looking at a folder does without

    return pickled.loads(data)
