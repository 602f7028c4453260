"""Source comparison: a pack against the original files that it was made of.

Bytes that were kept must be the file's. Pixels that were encoded anew must be equal where nothing was lost; where
something was (JPEG, a smaller dtype, moved pixels) the peak signal-to-noise ratio says how much, and the worst sample
of each field is named. Pixels that were moved are compared with the original moved in one step by the stored matrix:
where one conversion moved them and the codec loses nothing, masks must be equal, and others nearly.

Everything else that the source makes of its files, such as boxes, masks, labels and texts, is made again by the source
(packer.pack.reopened_source) and compared value by value. Which fields could not be compared, and why, is said.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, images
from packer.codecs.base import Buffer, Codec
from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.files.npy_arrays import npy_file
from packer.files.safe_paths import components
from packer.geometry import View, move_values
from packer.images.backends import pillow
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.pack.label_orientation import PictureFrame, lies_upright
from packer.pack.reader import Pack
from packer.pack.reopened_source import ReopenedSource
from packer.pack.source_paths import SourcePath, SourcePaths
from packer.pack.value_difference import class_difference, difference
from packer.schema import KEY, MOST_PIXELS, PIXEL_KINDS, Field
from packer.sources._objects.object_source import KIND as OBJECT
from packer.sources._parse.sidecar_pattern import stored_path
from packer.sources.base import Sample, place

# of pixels that a lossless codec holds, moved or narrowed once: other versions of libraries come to 48 dB
_LEAST_PSNR_DB = 40.0
_MOST_OTHER_HOLES = 0.01
_FILES = "files"
_OURS = (KEY, _FILES, "orientation", "matrix", "source_size")  # fields that say where the others come from


@dataclass(frozen=True)
class Worst:
    """The lossy value that is least like its file: 10 log10(peak^2 / mean squared error), and which sample it is."""

    psnr_db: float
    index: int
    key: str


@dataclass(frozen=True)
class Subset:
    """Numbers number - 1, number - 1 + of, ...: one of `of` subsets, counted from 1, that together are everything."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InvalidRequest(f"subset {self.number}/{self.of}: expected N/M with N from 1 to M")

    @classmethod
    def parse(cls, text: str) -> "Subset":
        """From what the user types, `N/M`; raises InvalidRequest."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None:
            raise InvalidRequest(f"subset {text!r}: expected N/M, such as 1/10 for the first of ten")
        return cls(int(match[1]), int(match[2]))

    def __contains__(self, number: int) -> bool:
        return number % self.of == self.number - 1


EVERYTHING = Subset()


class Comparison:
    """What differs between a pack and a source; `worst` and `compared` are filled while `problems` is read.

    not_compared: by field why no value of it was, complete once `problems` was read.
    """

    def __init__(self, folder: Path, root: Path, *, subset: Subset = EVERYTHING) -> None:
        """folder: of the pack. root: of the original files, an archive of them, or the one file that holds all samples.

        Raises InvalidRequest, CorruptPack where it cannot be opened.
        """
        if os.path.lexists(root / manifests.NAME):
            raise InvalidRequest(f"{root}: is a pack; give the original data, which {folder} was made of")
        self.compared = 0
        self.worst: dict[str, Worst] = {}
        self.not_compared: dict[str, str] = {}
        self._root = root
        self._subset = subset
        self._codecs: dict[str, Codec] = {}
        self._seen: set[str] = set()  # names of fields of which a value was compared
        self._pack = Pack(folder, apart=True)
        try:
            if self._pack.manifest.source.get("kind") == OBJECT:
                raise InvalidRequest(
                    f"{folder}: was made of a Python object ({self._pack.manifest.source.get('of')}), which lies "
                    "nowhere to be compared with; verify it without a source, or compare samples: packer.open"
                )
            self._reopened = ReopenedSource(self._pack, root)
            self._origins = SourcePaths(self._pack, needs_files=self._reopened.source is None)
        except PackerError:
            self._pack.close()
            raise
        self._source = self._reopened.source
        self._main = next((field.name for field in self._pack.schema if field.kind in PIXEL_KINDS), "")
        moved = "matrix" in self._pack.schema
        self._matrices = self._pack.index.column("matrix") if moved else None
        self._sizes = self._pack.index.column("source_size") if moved else None
        self._made = [field for field in self._pack.schema if field.name not in _OURS and self._is_made(field.name)]

    def _is_made(self, name: str) -> bool:
        return self._source is not None and name in self._source.schema

    def problems(self) -> Iterator[str]:
        """One line per problem; nothing is written. Closes the pack at the end."""
        try:
            if self._source is None and self._reopened.problem:  # nothing else says what is the matter
                yield self._reopened.problem
            yield from self._fields()
            for index in range(len(self._pack)):
                if index in self._subset:
                    yield from self._sample(index)
            if self._source is not None and self._reopened.problem:
                yield self._reopened.problem
            for key in self._reopened.further():
                yield f"{self._root}: sample {key!r} is not in the pack; pack again to have it"
            yield from self._extras()
            self._say_what_was_not_compared()
        finally:
            self._pack.close()

    # ---- fields

    def _fields(self) -> Iterator[str]:
        """Fields that are made on one side only, and classes that are called otherwise."""
        ours = [field for field in self._pack.schema if field.name not in _OURS]
        for field in ours:
            if self._source is not None and field.name in self._source.schema:
                differing = class_difference(field.classes, self._source.schema[field.name].classes)
                if differing is not None and self._reopened.is_ours(field):
                    yield f"{self._root}: field {field.name!r}: other classes: {differing}; pack again to have them"
            elif self._reopened.is_ours(field):
                yield (
                    f"{self._root}: field {field.name!r}: the pack has it, the source does not give it (any more); was "
                    "it packed of other files?"
                )
        for field in self._source.schema if self._source is not None else ():
            if field.name not in (*_OURS, *self._pack.schema.names) and not self._reopened.is_left_out(field):
                yield (
                    f"{self._root}: field {field.name!r}: the source gives it, the pack does not have it; pack again "
                    "to have it"
                )

    def _say_what_was_not_compared(self) -> None:
        for field in self._pack.schema if len(self._pack) else ():
            if field.name not in (*_OURS, *self._seen):
                self.not_compared[field.name] = self._reopened.why_not(field)

    # ---- samples

    def _sample(self, index: int) -> Iterator[str]:
        try:
            origins = self._origins.of(index)
        except CorruptPack as error:
            yield str(error)
            return
        row = self._reopened.row(index)
        named = {origin.name for origin in origins}
        is_needed = self._matrices is not None or any(field.name not in named for field in self._made)
        # small files are read once: their bytes stand in the sample
        sample, unread = self._read(row) if is_needed or not self._reopened.holds_records else (None, "")
        is_sound = True
        done = set()
        for origin in origins:
            if origin.field is None or not (origin.exact or origin.field.kind in ("json", *PIXEL_KINDS)):
                continue
            try:
                components(origin.path)
                original = self._original(index, row, origin, sample)
                with self._pack.record(index, (origin.name,)) as record:
                    problem = self._compare(index, row, origin, original, record[origin.name], sample)
            except PackerError as error:
                problem = str(error)
            done.add(origin.name)
            self._note(origin.name)
            if problem:
                is_sound = False
                yield f"{self._root / origin.path}: {self._pack.where(index, origin.name)}: {problem}"
        if self._source is None:
            return
        if row is not None and sample is not None:
            yield from self._values(index, row, sample, done)
        elif is_sound and (unread or row is None):  # a file that is missing, or that cannot be read, was named above
            yield unread or f"{self._root}: {self._pack.where(index, KEY)}: the source has no such sample (any more)"

    def _note(self, name: str) -> None:
        self.compared += 1
        self._seen.add(name)

    def _read(self, row: int | None) -> tuple[Sample | None, str]:
        """The sample as the source gives it; None and why not where it cannot be read, or is not there."""
        if self._source is None or row is None:
            return None, ""
        try:
            return self._source[row], ""
        except PackerError as error:
            return None, str(error)

    def _values(self, index: int, row: int, sample: Sample, done: set[str]) -> Iterator[str]:
        """What differs in values that are no files as they are."""
        fields = [field for field in self._made if field.name not in done]
        for field in fields:
            try:
                with self._pack.record(index, (field.name,)) as record:
                    problem = self._value(index, row, field, sample, record[field.name])
            except PackerError as error:
                problem = str(error)
            self._note(field.name)
            if problem:
                path = self._root / sample.get(_FILES, {}).get(field.name, "")
                yield f"{path}: {self._pack.where(index, field.name)}: {problem}"

    def _value(self, index: int, row: int, field: Field, sample: Sample, value: Buffer) -> str | None:
        """What differs in one value that the source makes; None where nothing does."""
        expected = sample[field.name]
        codec = self._codec(field)
        if field.kind in PIXEL_KINDS and isinstance(expected, np.ndarray):
            original = _as_file(field, expected)
            return self._pixels(index, row, field, original, stored=codec.decode(value), sample=sample)
        if field.kind in PIXEL_KINDS:
            origin = SourcePath(field.name, "", field, exact=self._origins.is_exact(field))
            return self._compare(index, row, origin, expected, value, sample)
        of_source = self._source_field(field.name)
        if field.kind in ("points", "boxes") and len(expected):
            expected = self._placed(of_source, row, expected, sample)
        if of_source.codec != field.codec:
            try:
                expected = codec.decode(codec.encode(expected))
            except PackerError as error:
                return f"differs: the source gives what {field.codec} does not hold: {error}"
        found = bytes(value) if field.kind == "bytes" else codec.decode(value)
        return difference(field, found, expected, classes=of_source.classes)

    def _source_field(self, name: str) -> Field:
        if self._source is None:
            raise InvalidRequest(f"{self._root}: no source")
        return self._source.schema[name]

    # ---- where labels lie

    def _picture(self, row: int, sample: Sample) -> PictureFrame | None:
        """Size and orientation of the sample's first picture, and what its labels say of them; None without one."""
        value = sample.get(self._main)
        if value is None or self._source is None:
            return None
        if not isinstance(value, bytes):
            return PictureFrame((value.shape[0], value.shape[1]), 1)
        header = images.sniff(value, MOST_PIXELS)
        stated = self._source.stated_size(row) if self._source.frame == "stated" else None
        return PictureFrame((header.height, header.width), header.orientation, stated)

    def _placed(self, field: Field, row: int, values: Any, sample: Sample) -> Any:
        """Points or boxes in px of the picture as stored, as a conversion places them."""
        picture = self._picture(row, sample)
        if picture is None or not self._lies_upright(field, picture):
            return values
        return move_values(field, values, picture.from_upright)

    def _lies_upright(self, field: Field, picture: PictureFrame) -> bool:
        if self._source is None:
            return False
        frame = self._reopened.sidecar_frame
        if field.name in self._reopened.sidecars:  # of which the source knows but those that it makes
            return frame == "upright" and picture.orientation != 1
        return lies_upright(self._source, field, picture, main=self._main, sidecar_frame=frame)

    def _view(
        self, index: int, row: int | None, field: Field, header: images.Header, sample: Sample | None
    ) -> View | None:
        """Where the pixels of a field's own picture went; None where they stayed. Its size is then to be filled in."""
        if self._matrices is None or self._sizes is None:
            return None
        size, orientation = (header.height, header.width), 1
        picture = self._picture(row, sample) if row is not None and sample is not None else None
        if picture is not None and self._source is not None:
            is_beside = field.name in (*self._source.companions, *self._reopened.sidecars)
            is_turned_alike = field.name == self._main or (is_beside and header.orientation == picture.orientation)
            orientation = picture.orientation
            if orientation != 1 and not is_turned_alike and self._lies_upright(field, picture):
                return self._reopened.own_view(*size, orientation=1)
        elif self._reopened.is_turned and field.name in self._reopened.sidecars:
            return None  # its picture, which cannot be read, would say whether it was turned
        if size != tuple(self._sizes[index]):
            return self._reopened.own_view(*size, orientation=orientation)
        return View(tuple(self._matrices[index].ravel().tolist()), size)

    # ---- files

    def _original(self, index: int, row: int | None, origin: SourcePath, sample: Sample | None) -> bytes:
        """The file's bytes; where Pillow decoded it, its pixels as PNG, which is how they were packed."""
        if self._reopened.holds_records:
            return self._stored(index, row, origin)
        is_decoded = self._is_decoded(index, origin)
        path = origin.path.removesuffix(".png") if is_decoded else origin.path
        sidecar = self._reopened.sidecars.get(origin.name)
        if sidecar is not None and sidecar.outside is not None:
            above = sidecar.outside.removesuffix(stored_path(sidecar.outside))
            folder, inside = place(self._reopened.folder, (sidecar.outside,), above + path)
            given = folder.read(inside)
        elif sample is not None and sample.get(_FILES, {}).get(origin.name) == path and not is_decoded:
            value = sample[origin.name] if isinstance(sample.get(origin.name), bytes) else None
            given = self._reopened.folder.read(path) if value is None else value
        else:
            given = self._reopened.folder.read(path)
        if not is_decoded or origin.field is None:
            return given
        return _as_png(origin.field, pillow.decode(given, path, origin.field.kind))

    def _stored(self, index: int, row: int | None, origin: SourcePath) -> bytes:
        """What a record holds; pixels that were no file in it as PNG, depth as .npy."""
        if row is None or self._source is None:
            key = self._pack.index.key(index)
            raise InvalidRequest(f"{self._root}: there is no sample {key!r}; the pack was made of other files")
        value = self._source.content(row, origin.name, origin.path)
        if isinstance(value, np.ndarray) and origin.field is not None:
            return _as_file(origin.field, value)
        return value.encode() if isinstance(value, str) else bytes(value)

    def _is_decoded(self, index: int, origin: SourcePath) -> bool:
        """Whether Pillow decoded the file when it was packed; `.png` was put behind its name then."""
        if self._reopened.given.get("decode_with") != "pillow" or origin.field is None:
            return False
        sidecar = self._reopened.sidecars.get(origin.name)
        if sidecar is not None:
            return sidecar.needs_pillow
        return origin.path == f"{self._pack.index.key(index)}.png"

    def _compare(
        self, index: int, row: int | None, origin: SourcePath, original: bytes, value: Buffer, sample: Sample | None
    ) -> str | None:
        described = origin.field
        if origin.exact or described is None:
            if value == original or self._is_decoded_alike(index, origin, original, value):
                return None
            return f"differs: the file has {len(original)} bytes, the pack {len(value)}, expected the same bytes"
        codec = self._codec(described)
        if described.kind != "json":
            return self._pixels(index, row, described, original, stored=codec.decode(value), sample=sample)
        try:
            same = json.loads(original.decode("utf-8-sig")) == codec.decode(value)
        except (ValueError, RecursionError) as error:
            return f"the file is no JSON: {error}"
        return None if same else "differs: the file holds another value"

    def _is_decoded_alike(self, index: int, origin: SourcePath, original: bytes, value: Buffer) -> bool:
        """Whether a picture that Pillow decoded has the same pixels, in a PNG that another version wrote otherwise."""
        if origin.field is None or not self._is_decoded(index, origin):
            return False
        decoder = images.Decoder(origin.field.kind, wide=origin.field.is_wide_mask)
        return decoder(original).tobytes() == decoder(value).tobytes()

    def _pixels(
        self,
        index: int,
        row: int | None,
        field: Field,
        original: bytes,
        *,
        stored: npt.NDArray[Any],
        sample: Sample | None,
    ) -> str | None:
        """What differs between a picture file and stored pixels; lossy ones are noted in `worst`."""
        view = None
        if self._matrices is not None:
            view = self._view(index, row, field, images.sniff(original, MOST_PIXELS), sample)
            if view is None:
                return None
            view = view._replace(size=(stored.shape[0], stored.shape[1]))
        decoder = images.Decoder(field.kind, wide=field.is_wide_mask, invalid=field.invalid, max_pixels=MOST_PIXELS)
        wanted = decoder(original, view)
        if wanted.shape != stored.shape:
            return f"differs: the file gives shape {wanted.shape}, the pack {stored.shape}"
        keeps = not self._codec(field).lossy
        is_equal = wanted.astype(stored.dtype).tobytes() == stored.tobytes()
        if view is None and keeps and np.can_cast(wanted.dtype, stored.dtype, "safe"):
            return None if is_equal else "differs: other pixels than the file's, although nothing was to be lost"
        found = psnr_db(wanted, stored)
        if field.name not in self.worst or found < self.worst[field.name].psnr_db:
            self.worst[field.name] = Worst(found, index, self._pack.index.key(index))
        if not keeps or is_equal or not self._reopened.is_one_step:
            return None
        if field.kind == "mask":
            return "differs: other numbers than the file's, moved as the pack's pixels are"
        if found < _LEAST_PSNR_DB or np.mean(np.isfinite(wanted) != np.isfinite(stored)) > _MOST_OTHER_HOLES:
            return f"differs: PSNR {found:.1f} dB, expected {_LEAST_PSNR_DB:.0f} dB of pixels that no codec changes"
        return None

    def _codec(self, field: Field) -> Codec:
        if field.name not in self._codecs:
            self._codecs[field.name] = codecs.make(field)
        return self._codecs[field.name]

    def _extras(self) -> Iterator[str]:
        """Files of no sample that are not what the pack carries."""
        try:
            extras = ExtraFiles(self._pack.folder, self._pack.manifest)
        except PackerError as error:
            yield str(error)
            return
        for path, content in extras:
            self.compared += 1
            try:
                components(path)
                same = self._reopened.folder.read(path, is_table=True) == content
            except PackerError as error:
                yield str(error)
                continue
            if not same:
                yield f"{self._root / path}: differs: the pack carries other bytes; expected the same"


def _as_file(field: Field, pixels: npt.NDArray[Any]) -> bytes:
    """Pixels that are no file in the source as the file that holds them."""
    return npy_file(np.ascontiguousarray(pixels)) if field.kind == "depth" else _as_png(field, pixels)


def _as_png(field: Field, pixels: npt.NDArray[Any]) -> bytes:
    """Pixels of an image or a mask as the file that packing makes of them."""
    dtype = "uint16" if field.is_wide_mask else "uint8"
    wide = pixels.astype(np.uint16) if field.is_wide_mask and pixels.dtype == np.uint8 else pixels
    return codecs.make(replace(field, codec="png", dtype=dtype, shape=(None, None, 3)[: pixels.ndim])).encode(wide)


def psnr_db(wanted: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """10 log10(peak^2 / mean squared error); infinite where nothing differs.

    peak: 255 for uint8, else the largest magnitude that is wanted. Values that are not finite in either are left out.
    """
    left, right = wanted.astype(np.float64), found.astype(np.float64)
    valid = np.isfinite(left) & np.isfinite(right)
    if not valid.any():
        return math.inf
    error = float(np.mean((left[valid] - right[valid]) ** 2))
    peak = 255.0 if wanted.dtype == np.uint8 else float(np.abs(left[valid]).max())
    return math.inf if not error else 10 * math.log10(max(peak * peak, 1e-300) / error)
