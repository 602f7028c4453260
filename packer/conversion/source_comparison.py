"""Source comparison: a pack against the original data that it was made from.

The source is opened again with the options of the manifest, and each sample is encoded again as the conversion encoded
it (packer.conversion.reopened_source). Bytes that the pack keeps must be equal, and so must all other values. Points
and boxes may differ by rounding, and classes may be numbered differently if their names agree. Pixels are compared
after decoding: they must be equal if nothing was lost. If a codec loses something or pixels were moved, the peak
signal-to-noise ratio measures the loss, and the worst sample of each field is named.

Files that the pack names are compared one by one if the source cannot give their sample.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.codecs.base import Codec
from packer.conversion.reopened_source import NamedFiles, ReopenedSource
from packer.errors import CorruptPack, InvalidRequest, PackerError, printable
from packer.files.safe_paths import components
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.pack.reader import Pack
from packer.pack.source_paths import SourcePath, SourcePaths
from packer.pack.verification import EVERYTHING, Subset
from packer.schema import KEY, PIXEL_KINDS, ROW_KINDS, Buffer, Field
from packer.sources._message_texts import listed, shown
from packer.sources.base import Sample, Source
from packer.sources.objects._object_source import KIND as OBJECT

# For pixels in a lossless codec that were moved or narrowed once: other versions of libraries reach 48 dB.
_LEAST_PSNR_DB = 40.0
_MOST_OTHER_HOLES = 0.01
_SHOWN = 60  # characters of a value
_ULPS = 4  # of the largest number: sines and the like differ so much between machines
_FILES = "files"
_OURS = (KEY, _FILES, "orientation", "matrix", "source_size")  # fields that describe where the others come from


@dataclass(frozen=True)
class Worst:
    """The lossy value that is least like its original: 10 log10(peak^2 / mean squared error), and its sample."""

    psnr_db: float
    index: int
    key: str


class Comparison:
    """Differences between a pack and a source; reading `problems` fills `worst` and `compared`.

    not_compared: for each field without any compared value, the reason; complete after `problems` was read.
    """

    def __init__(self, folder: Path, root: Path, *, subset: Subset = EVERYTHING) -> None:
        """Open both.

        Args:
            folder: the pack.
            root: the original folder, an archive of it, or the one file that contains all samples.
            subset: which samples of the pack are compared.

        Raises:
            InvalidRequest: `root` is a pack or cannot be compared with.
            CorruptPack: the pack cannot be opened.
        """
        if os.path.lexists(root / manifests.NAME):
            raise InvalidRequest(f"{root}: is a pack; give the original data, which {folder} was made of")
        self.compared = 0
        self.worst: dict[str, Worst] = {}
        self.not_compared: dict[str, str] = {}
        self._root = root
        self._subset = subset
        self._seen: set[str] = set()  # names of fields with a compared value
        self._pack = Pack(folder, apart=True)
        try:
            if self._pack.manifest.source.get("kind") == OBJECT:
                raise InvalidRequest(
                    f"{folder}: was made of a Python object ({self._pack.manifest.source.get('of')}), which has no "
                    "files to compare with; verify it without a source, or compare samples: packer.open"
                )
            self._reopened = ReopenedSource(self._pack, root)
            self._source = self._reopened.source
            self._paths = SourcePaths(self._pack, needs_files=self._source is None)
            self._files = NamedFiles(self._pack, self._reopened)
            schema = self._pack.schema
            self._codecs = {field.name: codecs.make(field) for field in schema if field.name not in _OURS}
            self._named = self._reopened.encoders(self._files)
            self._made = None if self._source is None else self._reopened.encoders(self._source)
        except PackerError:
            self._pack.close()
            raise

    def problems(self) -> Iterator[str]:
        """Yield one line per problem; write nothing. Closes the pack at the end."""
        try:
            if self._source is None and self._reopened.problem:  # nothing else explains it
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
            for name in self._codecs if len(self._pack) else ():
                if name not in self._seen:
                    self.not_compared[name] = self._reopened.why_not(self._pack.schema[name])
        finally:
            self._pack.close()

    def _fields(self) -> Iterator[str]:
        """Yield the fields that only one side has, and classes with other names."""
        theirs = {field.name: field for field in self._source.schema} if self._source is not None else {}
        for name in self._codecs:
            field = self._pack.schema[name]
            if not self._reopened.is_ours(field):
                continue
            if name not in theirs:
                yield (
                    f"{self._root}: field {name!r}: the pack has it, the source does not give it (any more); was it "
                    "packed from other files?"
                )
            elif (differing := class_difference(field.classes, theirs[name].classes)) is not None:
                yield f"{self._root}: field {name!r}: other classes: {differing}; pack again to have them"
        for name, field in theirs.items():
            if name not in (*_OURS, *self._codecs) and not self._reopened.is_left_out(field):
                yield (
                    f"{self._root}: field {name!r}: the source gives it, the pack does not have it; pack again to have "
                    "it"
                )

    # ---- samples

    def _sample(self, index: int) -> Iterator[str]:
        try:
            origins = {origin.name: origin for origin in self._paths.of(index)}
        except CorruptPack as error:
            yield str(error)
            return
        row = self._reopened.row(index)
        sample, unread = self._read(row)
        done: set[str] = set()
        is_sound = True
        if self._source is not None and row is not None and sample is not None:
            names = [name for name in self._codecs if name in self._source.schema]
            done.update(names)
            for name, problem in self._compared(index, row, sample, names, self._source):
                is_sound = False
                path = origins[name].path if name in origins else ""
                yield f"{self._root / path}: {self._pack.where(index, name)}: {problem}"
        for line in self._named_files(index, [origin for name, origin in origins.items() if name not in done]):
            is_sound = False
            yield line
        if is_sound and self._source is not None and sample is None:
            yield unread or f"{self._root}: {self._pack.where(index, KEY)}: the source has no such sample (any more)"

    def _read(self, row: int | None) -> tuple[Sample | None, str]:
        """Return the sample as the source gives it; None and the reason if it cannot be read or does not exist."""
        if self._source is None or row is None:
            return None, ""
        try:
            return self._source[row], ""
        except PackerError as error:
            return None, str(error)

    def _named_files(self, index: int, origins: Sequence[SourcePath]) -> Iterator[str]:
        """Compare values with the files that the pack names; records have none."""
        sample: Sample = {}
        paths = {origin.name: origin.path for origin in origins}
        problems: dict[str, str] = {}
        for origin in () if self._reopened.holds_records else origins:
            if origin.field is None or not (origin.exact or origin.field.kind in ("json", *PIXEL_KINDS)):
                continue
            try:
                sample[origin.name] = self._files.read_origin(index, origin)
            except PackerError as error:
                self._note(origin.name)
                problems[origin.name] = str(error)
        problems.update(self._compared(index, index, sample, list(sample), self._files))
        for name, problem in problems.items():
            yield f"{self._root / paths[name]}: {self._pack.where(index, name)}: {problem}"

    def _note(self, name: str) -> None:
        self.compared += 1
        self._seen.add(name)

    def _compared(
        self, index: int, row: int, sample: Sample, names: Sequence[str], source: Source
    ) -> Iterator[tuple[str, str]]:
        """Yield the fields that differ, each with the difference."""
        encoder, as_packed = self._named if source is self._files or self._made is None else self._made
        encoded: list[str] = []
        for name in names:
            self._note(name)
            if not self._paths.is_exact(self._pack.schema[name]) or not isinstance(sample[name], bytes):
                encoded.append(name)
                continue
            try:
                with self._pack.record(index, (name,)) as record:
                    size, is_equal = len(record[name]), record[name] == sample[name]
            except PackerError as error:
                yield name, str(error)
                continue
            if not is_equal and source.decodes and self._pack.schema[name].kind in PIXEL_KINDS:
                encoded.append(name)  # another version of Pillow writes other bytes
            elif not is_equal:
                yield name, f"differs: the file has {len(sample[name])} bytes, the pack {size}, expected the same"
        for name, expected in encoder.encode_fields(row, sample, encoded) if encoded else ():
            if isinstance(expected, PackerError):
                yield name, f"differs: the source's value cannot be packed: {expected}"
                continue
            try:
                with self._pack.record(index, (name,)) as record:
                    problem = self._difference(index, source.schema[name], record[name], expected)
                    if problem and self._reopened.is_one_step and self._pack.schema[name].kind in PIXEL_KINDS:
                        again = dict(as_packed.encode_fields(row, sample, (name,)))
                        problem = None if again.get(name) == record[name] else problem
            except PackerError as error:
                problem = str(error)
            if problem:
                yield name, problem

    def _difference(self, index: int, of_source: Field, value: Buffer, expected: bytes) -> str | None:
        """Describe the difference between a stored value and the re-encoded one; None if they agree."""
        field = self._pack.schema[of_source.name]
        codec = self._codecs[field.name]
        if field.kind in PIXEL_KINDS:
            original = codecs.make(self._reopened.exact_field(field)).decode(expected)
            return self._pixel_difference(index, field, codec, original, codec.decode(value))
        if value == expected and (field.classes or ()) == (of_source.classes or ()):
            return None
        return difference(field, codec.decode(value), codec.decode(expected), classes=of_source.classes)

    def _pixel_difference(
        self, index: int, field: Field, codec: Codec, expected: npt.NDArray[Any], stored: npt.NDArray[Any]
    ) -> str | None:
        """Describe how stored pixels differ from the original ones; note the loss in `worst`."""
        if expected.shape != stored.shape:
            return f"differs: the source gives shape {expected.shape}, the pack {stored.shape}"
        with np.errstate(invalid="ignore", over="ignore"):
            narrowed = expected.astype(stored.dtype)
            is_held = np.array_equal(narrowed.astype(expected.dtype), expected, equal_nan=True)
        is_equal = np.array_equal(narrowed, stored, equal_nan=True)
        moves = self._reopened.moves_pixels
        if not moves and not codec.lossy and is_held:
            return None if is_equal else "differs: other pixels than the source's, although nothing was to be lost"
        found = psnr_db(expected, stored)
        if field.name not in self.worst or found < self.worst[field.name].psnr_db:
            self.worst[field.name] = Worst(found, index, self._pack.index.key(index))
        if codec.lossy or is_equal or not self._reopened.is_one_step:
            return None
        if field.kind == "mask":
            return "differs: other numbers than the source's, moved as the pack's pixels are"
        if found < _LEAST_PSNR_DB or np.mean(np.isfinite(expected) != np.isfinite(stored)) > _MOST_OTHER_HOLES:
            return f"differs: PSNR {found:.1f} dB, expected {_LEAST_PSNR_DB:.0f} dB of pixels that no codec changes"
        return None

    def _extras(self) -> Iterator[str]:
        """Yield the extra files whose bytes differ from those that the pack carries."""
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


# ---- differences between two values


def difference(field: Field, found: Any, expected: Any, *, classes: Sequence[str] | None = None) -> str | None:
    """Describe how two values differ; None if they are equal. Points and boxes may differ by rounding.

    Args:
        field: of the pack.
        found: the value in the pack.
        expected: the value of the source.
        classes: class names of the source; numbers are equal if their names are.
    """
    if field.kind not in ROW_KINDS:
        if bool(found == expected):
            return None
        return f"differs: the pack has {_shown(found)}, the source {_shown(expected)}"
    one, other = np.asarray(found), np.asarray(expected)
    if one.shape != other.shape:
        is_longer = one.ndim == other.ndim and one.shape[1:] == other.shape[1:]
        here, there = (f"{len(one)} rows", str(len(other))) if is_longer else (f"shape {one.shape}", str(other.shape))
        return f"differs: the pack has {here}, the source {there}"
    numbers = other if field.kind != "number" else renumbered(other, classes or (), field.classes or ())
    unequal = ~_equal(field, one, numbers)
    if not unequal.any():
        return None
    if not one.ndim:
        return f"differs: the pack has {_named(one.item(), field.classes)}, the source {_named(other.item(), classes)}"
    at = tuple(int(place) for place in np.argwhere(unequal)[0])
    return (
        f"differs in {int(unequal.sum())} of {one.size} numbers, first at {', '.join(map(str, at))}: the pack has "
        f"{_named(one[at].item(), field.classes)}, the source {_named(other[at].item(), classes)}"
    )


def renumbered(values: npt.NDArray[Any], given: Sequence[str], expected: Sequence[str]) -> npt.NDArray[Any]:
    """Return class numbers of one list of names as numbers of the other; a renamed class keeps its number."""
    if tuple(given) == tuple(expected) or not given or values.dtype.kind not in "iu":
        return values
    places = {name: number for number, name in enumerate(expected)}
    there = set(given)
    table = [
        places.get(name, number if number < len(expected) and expected[number] not in there else -1)
        for number, name in enumerate(given)
    ]
    is_class = (values >= 0) & (values < len(given))
    return np.where(is_class, np.asarray(table, np.int64)[np.where(is_class, values, 0)], values)


def class_difference(found: Sequence[str] | None, expected: Sequence[str] | None) -> str | None:
    """Describe how the class names of a pack and of its source differ; None if they are equal."""
    ours, theirs = found or (), expected or ()
    if tuple(ours) == tuple(theirs):
        return None
    gone = [name for name in ours if name not in set(theirs)]
    new = [name for name in theirs if name not in set(ours)]
    lines = [f"the pack has {listed(gone)}, which the source does not have"] if gone else []
    lines += [f"the source has {listed(new)}, which the pack does not have"] if new else []
    return "; ".join(lines) or "the source has the same names in another order"


def _equal(field: Field, one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    same = np.asarray(one == other)
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
        if field.kind in ("points", "boxes") and one.size:
            finite = np.isfinite(one) & np.isfinite(other)
            largest = np.float32(max(np.abs(one[finite]).max(initial=0), np.abs(other[finite]).max(initial=0)))
            with np.errstate(invalid="ignore"):
                same |= finite & (np.abs(one - other) <= _ULPS * np.spacing(largest))
    return same


def _named(number: Any, classes: Sequence[str] | None) -> str:
    """Return a number with its class."""
    is_class = classes and isinstance(number, int) and 0 <= number < len(classes)
    return f"{number} ({shown(classes[number])})" if is_class and classes else f"{number}"


def _shown(value: object) -> str:
    return printable(repr(value)[:_SHOWN])


def psnr_db(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """Return 10 log10(peak^2 / mean squared error); infinite if nothing differs.

    The peak is 255 for uint8, else the largest magnitude in `expected`. Values that are not finite are ignored.
    """
    left, right = expected.astype(np.float64), found.astype(np.float64)
    valid = np.isfinite(left) & np.isfinite(right)
    if not valid.any():
        return math.inf
    error = float(np.mean((left[valid] - right[valid]) ** 2))
    peak = 255.0 if expected.dtype == np.uint8 else float(np.abs(left[valid]).max())
    return math.inf if not error else 10 * math.log10(max(peak * peak, 1e-300) / error)
