"""BasicSR LMDB: pixels or PNG files with names as keys, as BasicSR, mmsr and PySODToolBox write them.

Fields: key (as in the LMDB), and depth or image. Depth has one channel of 16 bits. An image is a PNG file, or pixels of
8 bits in one or three channels. Other pixels become an array of numbers. `features` declares another kind, such as
mask=value:mask. Pixels are RGB. The LMDB does not contain labels. Samples are sorted by key.

Layout: a folder with data.mdb. A value is pixels (H, W, C) in OpenCV's channel order (BGR), or a PNG file. The length
of the value shows whether the dtype is uint8 or uint16 (little-endian). The tools store the image sizes differently:
* First BasicSR: an entry `key.meta` with ASCII `H,W,C`. `_keys_cache.p` next to the LMDB lists the keys.
* mmsr, PySODToolBox: meta_info.pkl, {'name', 'resolution', 'keys'}. `resolution` is a list of texts `C_H_W`. If it is
  one text for all images, a frame number follows each key (vimeo90k, REDS).
* BasicSR 1.x: meta_info.txt, lines `key.png (h,w,c) level`. The values are PNG files.

The pickles are read without `pickle` (packer.layouts.pickled).
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images import file_suffixes, sniff
from packer.schema import MOST_PIXELS, Field
from packer.sources._message_texts import counted, listed, shown
from packer.sources.records._lmdb_source import META, SIDE_FILES, LMDBSource, side_files
from packer.sources.records._random_access_files import OpenFile, UnpackedFile
from packer.sources.records._record_fields import RecordField

SPECIFICITY = -1
VALUE = "value"  # the entry of a record in `features`
_TEXT, _PICKLE, _ = SIDE_FILES
_KINDS = ("image", "mask", "depth", "numbers")
_GRAY, _COLOR, _MOST_CHANNELS = 1, 3, 4
_NO_SIZE = (0, 0, 0)
_Size = tuple[int, int, int]  # height, width, channels; zeros for an image file
_Form = tuple[Literal["uint8", "uint16", "file"], int]  # dtype and number of channels; 0 channels for a file
_FILE: _Form = ("file", 0)


class Source(LMDBSource):
    """An LMDB of BasicSR or a related tool, or a folder of LMDBs."""

    kind = "basicsr-lmdb"
    title = "LMDB of BasicSR's images under names"
    is_numbered = False
    guessed = "by their sizes; --feature declares it"

    def __init__(
        self, root: Path, *, features: Sequence[str] = (), named_splits: bool = False, follow_links: bool = False
    ) -> None:
        """Find all records. Raises BadInput for a damaged LMDB.

        Raises InvalidRequest for another layout and for pixels of several kinds. If `named_splits` is false, files of
        several splits raise it, too.
        """
        self._dimensions = array("i")  # height, width and channels of each record
        self._list(root, features=features, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def parse(cls, value: bytes) -> bytes:
        return value  # any bytes can be pixels

    @classmethod
    def is_metadata(cls, key: bytes) -> bool:
        return key.endswith(META)

    # ---- sizes

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        first = len(self)
        super().find(name, file, size)
        keys = self._names[first:]
        tables = {PurePosixPath(side).name: self._table(side) or b"" for side in side_files(self.folder, name)}
        if _PICKLE in tables:
            path = self.folder.root / PurePosixPath(name).with_name(_PICKLE)
            sizes = _pickled_sizes(tables[_PICKLE], keys, path)
        else:
            sizes = [_NO_SIZE if _TEXT in tables else self._stored_size(key) for key in keys]
        for each in sizes:
            self._dimensions.extend(each)

    def _stored_size(self, key: str) -> _Size:
        data = self._metadata.get(key.encode("utf-8", "surrogateescape") + META)
        if data is None:
            return _NO_SIZE
        path = self.folder.root / f"{key}{META.decode()}"
        return _size(data.decode("latin-1").replace(" ", "").split(","), (0, 1, 2), path)

    def _size_at(self, row: int) -> _Size:
        height, width, channels = self._dimensions[3 * row : 3 * row + 3]
        return height, width, channels

    def _form(self, row: int) -> _Form:
        """Return dtype and channels of pixels if the length of a value fits its image size, otherwise `_FILE`."""
        height, width, channels = self._size_at(row)
        count = height * width * channels
        if count and self._sizes[row] in (count, 2 * count):
            return ("uint8" if self._sizes[row] == count else "uint16"), channels
        return _FILE

    # ---- the field

    def choose_fields(self) -> Sequence[Field]:
        self._name_by_file()
        forms = Counter(self._form(row) for row in range(len(self)))
        found = listed(f"{_shown(form)}: {count}" for form, count in sorted(forms.items()))
        dtypes = sorted({dtype for dtype, _ in forms if dtype != "file"})
        field = self._declared() or self._by_sizes(forms, dtypes)
        if field is None:
            raise InvalidRequest(
                f"{shown(str(self.root))}: images of several kinds in one LMDB: {found}; pack the original files"
            )
        if field.kind == "depth" and _FILE in forms:
            found += " (16 bit, 1 channel)"
        if dtypes:
            found += "; pixels are taken as blue, green, red, and given as RGB"
        self.notes.append(found)
        self.decodes = bool(dtypes) and field.kind != "numbers"
        usual = {"image": "uint8", "mask": field.dtype or "uint8", "depth": dtypes[-1] if dtypes else "uint16"}
        dtype = usual.get(str(field.kind), dtypes[-1] if dtypes else "uint8")
        self._fields = [replace(field, dtype=dtype, dimensions=_COLOR)]
        return [self._fields[0].field if field.kind == "numbers" else field.field]

    def _declared(self) -> RecordField | None:
        """Return the field that the user declared, or None. Raise InvalidRequest if it does not fit this layout."""
        if not self._asked:
            return None
        field, *more = self._asked
        if more or field.entries != (VALUE,) or field.kind not in _KINDS:
            raise InvalidRequest(
                f"option features: {', '.join(each.shown() for each in self._asked)}: expected one "
                f"FIELD={VALUE}:KIND, such as mask={VALUE}:mask; kinds are {', '.join(_KINDS)}"
            )
        return field

    def _by_sizes(self, forms: Counter[_Form], dtypes: Sequence[str]) -> RecordField | None:
        """Return the field for values of these `forms` and dtypes, or None for values of several kinds."""
        channels = {count for dtype, count in forms if dtype != "file"}
        if set(forms) == {_FILE} and self._are_depth_files():
            return RecordField("depth", (VALUE,), "depth")
        if dtypes in ([], ["uint8"]) and channels <= {_GRAY, _COLOR}:
            return RecordField("image", (VALUE,), "image")
        if dtypes == ["uint16"] and channels == {_GRAY}:
            return RecordField("depth", (VALUE,), "depth")
        return RecordField("image", (VALUE,), "numbers") if len(dtypes) == 1 and _FILE not in forms else None

    def _are_depth_files(self) -> bool:
        """Return whether all of a few inspected records are files with one channel of 16 bits."""
        found = set()
        for _, record in self._probes():
            try:
                header = sniff(record)
            except DamagedImage:
                continue  # packing the sample reports the error
            found.add((header.dtype, header.channels))
        return found == {("uint16", _GRAY)}

    # ---- samples

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        return {VALUE: self._pixels(index, record)}

    def _pixels(self, index: int, record: bytes) -> Any:
        height, width, channels = self._size_at(index)
        dtype, _ = self._form(index)
        kind, expected = self._fields[0].kind, self._fields[0].dtype
        if dtype == "file":
            if not file_suffixes(record):
                size = f"{height} x {width} x {channels}" if channels else "of a size that is not known"
                raise BadInput(f"{len(record)} bytes are neither pixels {size} nor an image file")
            if kind == "numbers":
                raise BadInput("an image file, where others are pixels")
            return record
        pixels: npt.NDArray[Any] = np.frombuffer(record, "<u2" if dtype == "uint16" else "u1")
        pixels = pixels.reshape(height, width, channels).astype(dtype)
        if channels >= _COLOR:  # blue, green, red, and alpha after them
            pixels = pixels[:, :, [2, 1, 0, *range(_COLOR, channels)]]
        if kind == "numbers" and dtype == expected:
            return np.ascontiguousarray(pixels)
        if kind == "image" and dtype == "uint8" and channels in (_GRAY, _COLOR):
            return np.ascontiguousarray(np.broadcast_to(pixels, (height, width, _COLOR)))
        if kind != "image" and channels == _GRAY and (dtype == expected or (kind == "mask" and dtype == "uint8")):
            return np.ascontiguousarray(pixels[:, :, 0])
        raise BadInput(f"{_shown((dtype, channels))}: not a {kind} of this set")

    def path_stem(self, index: int) -> str:
        """Return the key without the suffix of the original file."""
        return re.sub(r"(?i)(?<=[^/])\.(?:jpg|png)$", "", self._names[index])


def _pickled_sizes(data: bytes, keys: Sequence[str], path: Path) -> Sequence[_Size]:
    """Return the image size of each of `keys` from meta_info.pkl."""
    from packer.layouts import pickled  # the table of all opcodes, which recognition does not need

    try:
        found = pickled.loads(data)
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}") from error
    found = found if isinstance(found, dict) else {}
    texts, named = found.get("resolution"), found.get("keys", [])
    texts = [texts] if isinstance(texts, str) else texts
    if not _are_texts(texts) or not texts or not _are_texts(named):
        raise BadInput(f"{path}: expected a dict with resolution, such as ['3_480_640'], and keys")
    sizes = [_size(text.split("_"), (1, 2, 0), path) for text in texts]
    if len(set(sizes)) == 1:
        return sizes[:1] * len(keys)
    if len(sizes) != len(named):
        raise BadInput(f"{path}: {len(sizes)} sizes for {len(named)} keys; expected one for each, or one for all")
    by_key = dict(zip(named, sizes, strict=True))
    return [by_key.get(key) or by_key.get(_without_frame(key)) or _NO_SIZE for key in keys]


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _without_frame(key: str) -> str:
    """Return the key without the frame number. Key lists of vimeo90k do not contain the number."""
    head, line, tail = key.rpartition("_")
    return head if line and tail.isdecimal() else key


def _size(numbers: Sequence[str], order: Sequence[int], path: Path) -> _Size:
    """Return (height, width, channels). `order` contains the positions of these three in `numbers`."""
    if len(numbers) != len(order) or not all(number.isdecimal() and len(number) < 10 for number in numbers):
        raise BadInput(f"{path}: expected three lengths of an image, found {'_'.join(numbers)[:60]!r}")
    height, width, channels = (int(numbers[at]) for at in order)
    if not 0 < height * width <= MOST_PIXELS or not 0 < channels <= _MOST_CHANNELS:
        raise BadInput(f"{path}: {height} x {width} x {channels}: expected an image of 1 to 4 channels")
    return height, width, channels


def _shown(form: _Form) -> str:
    dtype, channels = form
    return "image files" if dtype == "file" else f"{dtype} pixels of {counted(channels, 'channel')}"
