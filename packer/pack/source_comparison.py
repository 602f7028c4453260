"""Source comparison: a pack against the original files that it was made of.

Bytes that were kept must be the file's. Pixels that were encoded anew must be equal where nothing was lost; where
something was (JPEG, a smaller dtype, moved pixels) the peak signal-to-noise ratio says how much, and the worst sample
of each field is named. Pixels that were moved are compared with the original moved in one step by the stored matrix.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, images, sources
from packer.codecs.base import Buffer, Codec
from packer.errors import CorruptPack, InvalidRequest, PackerError, UnknownKey, printable
from packer.files.npy_arrays import npy_file
from packer.files.safe_paths import components
from packer.geometry import View
from packer.images.backends import pillow
from packer.pack.extra_files import ExtraFiles
from packer.pack.reader import Pack
from packer.pack.source_paths import SourcePath, SourcePaths, asked_of_source
from packer.schema import KEY, MOST_PIXELS, PIXEL_KINDS, Field
from packer.sources._extend.sidecars import Sidecar
from packer.sources._objects.object_source import KIND as OBJECT
from packer.sources._parse import folder_layout
from packer.sources._parse.sidecar_pattern import stored_path
from packer.sources._trees.open_tree import open_tree
from packer.sources.base import Source, place

_SHOWN = 60  # characters of a value


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
    """What differs between a pack and a folder; `worst` and `compared` are filled while `problems` is read."""

    def __init__(self, folder: Path, root: Path, *, subset: Subset = EVERYTHING) -> None:
        """folder: of the pack. root: of the original files, an archive of them, or the one file that holds all samples.

        Raises InvalidRequest, CorruptPack where it cannot be opened.
        """
        self.compared = 0
        self.worst: dict[str, Worst] = {}
        self._root = root
        self._subset = subset
        self._pack = Pack(folder, apart=True)
        self._origins = SourcePaths(self._pack)
        self._codecs: dict[str, Codec] = {}
        self._asked = asked_of_source(self._pack.manifest.options)
        given = self._asked.get("options")
        self._given: dict[str, Any] = given if isinstance(given, dict) else {}
        asked = self._asked.get("sidecars")
        parsed = [Sidecar.parse(str(text)) for text in asked] if isinstance(asked, list) else []
        self._sidecars = {sidecar.name: sidecar for sidecar in parsed}
        moved = "matrix" in self._pack.schema
        self._matrices = self._pack.index.column("matrix") if moved else None
        self._sizes = self._pack.index.column("source_size") if moved else None
        if self._pack.manifest.source.get("kind") == OBJECT:
            self._pack.close()
            raise InvalidRequest(
                f"{folder}: was made of a Python object ({self._pack.manifest.source.get('of')}), which lies nowhere "
                "to be compared with; verify it without a source, or compare samples: packer.open"
            )
        self._records: Source | None = None  # of a source whose files hold many samples each
        self._rows: dict[str, int] = {}
        kind = self._pack.manifest.source.get("kind")
        if kind in sources.names() and sources.load(str(kind)).Source.holds_records:
            self._records = self._source()
        if self._records is not None:
            self._folder = self._records.folder
            self._rows = {self._records.key(row): row for row in range(len(self._records))}
        else:
            takes_files = kind in sources.names() and sources.load(str(kind)).Source.takes_files
            follow_links = self._given.get("follow_links") is True
            self._folder = open_tree(root, follow_links=follow_links, takes_files=takes_files)

    def problems(self) -> Iterator[str]:
        """One line per problem; nothing is written. Closes the pack at the end."""
        try:
            for index in range(len(self._pack)):
                if index in self._subset:
                    yield from self._sample(index)
            yield from self._missing()
            yield from self._extras()
        finally:
            self._pack.close()

    def _sample(self, index: int) -> Iterator[str]:
        try:
            origins = self._origins.of(index)
        except CorruptPack as error:
            yield str(error)
            return
        for origin in origins:
            if origin.field is None:
                continue
            try:
                components(origin.path)
                original = self._original(index, origin)
                with self._pack.record(index, (origin.name,)) as record:
                    problem = self._compare(index, origin, original, record[origin.name])
            except PackerError as error:
                problem = str(error)
            self.compared += 1
            if problem:
                yield f"{self._root / origin.path}: {self._pack.where(index, origin.name)}: {problem}"
        yield from self._unnamed(index, {origin.name for origin in origins})

    def _unnamed(self, index: int, named: set[str]) -> Iterator[str]:
        """What differs in values of a record that have no path of their own, such as labels."""
        key = self._pack.index.key(index)
        if self._records is None or key not in self._rows:
            return
        renumbered = {"label"} if self._asked.get("classes_from") else set()  # by another pack
        passed_over = {KEY, *named, *renumbered}
        fields = [
            field
            for field in self._pack.schema
            if field.kind in ("number", "text", "json") and not field.hidden and field.name in self._records.schema
            if field.name not in passed_over
        ]
        if not fields:
            return
        try:
            sample = self._records[self._rows[key]]
        except PackerError as error:
            yield str(error)
            return
        for field in fields:
            expected = sample[field.name]
            try:
                with self._pack.record(index, (field.name,)) as record:
                    found = self._codec(field).decode(record[field.name])
            except PackerError as error:
                yield str(error)
                continue
            self.compared += 1
            if not _is_same(found, expected):
                yield (
                    f"{self._root}: {self._pack.where(index, field.name)}: differs: the pack has "
                    f"{printable(repr(found)[:_SHOWN])}, the source {printable(repr(expected)[:_SHOWN])}"
                )

    def _original(self, index: int, origin: SourcePath) -> bytes:
        """The file's bytes; where Pillow decoded it, its pixels as PNG, which is how they were packed."""
        if self._records is not None:
            return self._stored(self._records, index, origin)
        is_decoded = self._is_decoded(index, origin)
        path = origin.path.removesuffix(".png") if is_decoded else origin.path
        sidecar = self._sidecars.get(origin.name)
        if sidecar is not None and sidecar.outside is not None:
            above = sidecar.outside.removesuffix(stored_path(sidecar.outside))
            folder, inside = place(self._folder, (sidecar.outside,), above + path)
            given = folder.read(inside)
        else:
            given = self._folder.read(path)
        if not is_decoded or origin.field is None:
            return given
        return _as_png(origin.field, pillow.decode(given, path, origin.field.kind))

    def _stored(self, records: Source, index: int, origin: SourcePath) -> bytes:
        """What a record holds; pixels that were no file in it as PNG, depth as .npy."""
        key = self._pack.index.key(index)
        if key not in self._rows:
            raise InvalidRequest(f"{self._root}: there is no sample {key!r}; the pack was made of other files")
        value = records.content(self._rows[key], origin.name, origin.path)
        if isinstance(value, np.ndarray) and origin.field is not None and origin.field.kind == "depth":
            return npy_file(np.ascontiguousarray(value))
        if isinstance(value, np.ndarray) and origin.field is not None:
            return _as_png(origin.field, value)
        return value.encode() if isinstance(value, str) else bytes(value)

    def _is_decoded(self, index: int, origin: SourcePath) -> bool:
        """Whether Pillow decoded the file when it was packed; `.png` was put behind its name then."""
        if self._given.get("decode_with") != "pillow" or origin.field is None:
            return False
        sidecar = self._sidecars.get(origin.name)
        if sidecar is not None:
            return sidecar.needs_pillow
        return origin.path == f"{self._pack.index.key(index)}.png"

    def _compare(self, index: int, origin: SourcePath, original: bytes, value: Buffer) -> str | None:
        described = origin.field
        if origin.exact or described is None:
            if value == original or self._is_decoded_alike(index, origin, original, value):
                return None
            return f"differs: the file has {len(original)} bytes, the pack {len(value)}, expected the same bytes"
        codec = self._codec(described)
        if described.kind == "json":
            try:
                same = json.loads(original.decode("utf-8-sig")) == codec.decode(value)
            except (ValueError, RecursionError) as error:
                return f"the file is no JSON: {error}"
            return None if same else "differs: the file holds another value"
        if described.kind not in PIXEL_KINDS:
            return None  # numbers made of a file: there is nothing to compare them with
        return self._pixels(index, described, original, stored=codec.decode(value))

    def _is_decoded_alike(self, index: int, origin: SourcePath, original: bytes, value: Buffer) -> bool:
        """Whether a picture that Pillow decoded has the same pixels, in a PNG that another version wrote otherwise."""
        if origin.field is None or not self._is_decoded(index, origin):
            return False
        decoder = images.Decoder(origin.field.kind, wide=origin.field.is_wide_mask)
        return decoder(original).tobytes() == decoder(value).tobytes()

    def _pixels(self, index: int, field: Field, original: bytes, *, stored: npt.NDArray[Any]) -> str | None:
        view = None
        if self._matrices is not None and self._sizes is not None:
            if self._pack.manifest.options.get("sidecar_frame") == "upright" and field.name in self._companions:
                return None  # it was not moved by the matrix of the picture
            header = images.sniff(original, MOST_PIXELS)
            if (header.height, header.width) != tuple(self._sizes[index]):
                return None  # a picture of another size than the sample's main one was moved by its own matrix
            matrix = self._matrices[index].ravel().tolist()
            view = View(tuple(matrix), (stored.shape[0], stored.shape[1]))
        decoder = images.Decoder(field.kind, wide=field.is_wide_mask, invalid=field.invalid, max_pixels=MOST_PIXELS)
        wanted = decoder(original, view)
        if wanted.shape != stored.shape:
            return f"differs: the file gives shape {wanted.shape}, the pack {stored.shape}"
        if view is None and not self._codec(field).lossy and wanted.dtype == stored.dtype:
            same = wanted.tobytes() == stored.tobytes()
            return None if same else "differs: other pixels than the file's, although nothing was to be lost"
        found = psnr_db(wanted, stored)
        if field.name not in self.worst or found < self.worst[field.name].psnr_db:
            self.worst[field.name] = Worst(found, index, self._pack.index.key(index))
        return None

    @cached_property
    def _companions(self) -> frozenset[str]:
        """Fields whose values lie over the picture as the user said; lists the folder again."""
        source = self._records or self._source()
        return frozenset((*self._sidecars, *(source.companions if source is not None else ())))

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
                same = self._folder.read(path) == content
            except PackerError as error:
                yield str(error)
                continue
            if not same:
                yield f"{self._root / path}: differs: the pack carries other bytes; expected the same"

    def _missing(self) -> Iterator[str]:
        """Samples of the folder that the pack neither has nor lists as skipped."""
        try:
            source = self._records or self._source()
        except PackerError as error:
            yield str(error)
            return
        skipped = {key for key, _ in self._pack.manifest.skipped}
        for row in range(len(source) if source is not None else 0):
            key = source.key(row) if source is not None else ""
            try:
                self._pack.index.index_of(key)
            except UnknownKey:
                if key not in skipped:
                    yield f"{self._root}: sample {key!r} is not in the pack; pack again to have it"

    def _source(self) -> Source | None:
        """The folder as it was read when it was packed; None where the manifest names no source that is known here."""
        kind = self._pack.manifest.source.get("kind")
        if kind not in sources.names():
            return None
        made = sources.load(str(kind)).Source
        if self._asked.get("places") and not made.holds_records:
            return None  # files elsewhere name its samples, such as annotations, and no manifest says where they lie
        options: dict[str, Any] = {name: self._given[name] for name in made.options() if name in self._given}
        if "layout" in made.options():
            options.setdefault("layout", folder_layout.UNCHECKED)  # what was packed is packed
        if "ignore_suffixes" in made.options():
            options["ignore_suffixes"] = tuple(sidecar.suffix for sidecar in self._sidecars.values())
        # what holds records is opened before there is a folder; a lone file names the others
        by_path = made.holds_records or (self._root.is_file() and self._folder.contents is None)
        source: Source = made(self._root if by_path else self._folder, **options)
        return source


def _as_png(field: Field, pixels: npt.NDArray[Any]) -> bytes:
    """Pixels of an image or a mask as the file that packing makes of them."""
    dtype = "uint16" if field.is_wide_mask else "uint8"
    wide = pixels.astype(np.uint16) if field.is_wide_mask and pixels.dtype == np.uint8 else pixels
    return codecs.make(replace(field, codec="png", dtype=dtype, shape=(None, None, 3)[: pixels.ndim])).encode(wide)


def _is_same(found: Any, expected: Any) -> bool:
    """Whether two values are equal, numbers to the bit but for their byte order."""
    if isinstance(found, (np.ndarray, np.generic)):
        one, other = np.asarray(found), np.asarray(expected)
        is_float = one.dtype.kind == "f" and other.dtype.kind == "f"
        return one.shape == other.shape and np.array_equal(one, other, equal_nan=is_float)
    return bool(found == expected)


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
