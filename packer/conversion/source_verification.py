"""Source verification: encodes every sample of the source again, and compares the values with a pack.

Values must be equal. Resized, rotated and lossy pixels are an exception, because library versions may compute slightly
different pixels. Such pixels need a peak signal-to-noise ratio (PSNR) of at least 40 dB. The lowest PSNR of each field
is reported.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, sources
from packer.conversion.encode import SKIP_ADVICE, SampleEncoder
from packer.conversion.options import Orientation, recorded_options
from packer.conversion.plan import Plan
from packer.conversion.source_spec import SourceSpec, check_source
from packer.errors import BadInput, CorruptPack, InvalidRequest, PackerError, printable
from packer.files.safe_paths import components
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.pack.manifest import conversions
from packer.pack.reader import Pack
from packer.pack.source_paths import SELECTED, asked_of_source
from packer.pack.verification import EVERYTHING, Subset
from packer.schema import KEY, MOST_PIXELS, PIXEL_KINDS, ROW_KINDS, Field, Schema
from packer.sources._extend.mask_colors import MaskColors, add_mask_colors
from packer.sources._message_texts import listed, shown
from packer.sources._trees.file_tree import most_file_bytes
from packer.sources.base import Source
from packer.stores.url import URLPath

_LEAST_PSNR_DB = 40.0
_MOST_OTHER_HOLES = 0.01  # fraction of pixels that are finite on only one side
_TOLERANCE_PX = 1e-3  # of points and boxes, which machines compute differently
_SHOWN = 60  # characters of a value
_OURS = (KEY, "files", "orientation", "matrix", "source_size")  # fields that are not compared


@dataclass(frozen=True)
class Worst:
    """Lowest PSNR of a field, in dB, with the index and the key of the sample in which it occurs."""

    psnr_db: float
    index: int
    key: str


class Comparison:
    """Comparison of a pack with the source of the pack. `problems` compares, and sets the attributes.

    Attributes:
        compared: the number of compared values and extras.
        worst: the lowest PSNR of each field in which pixels differ.
        not_compared: for each field that is not compared, the reason.
    """

    def __init__(self, folder: Path, root: Path, *, subset: Subset = EVERYTHING) -> None:
        """Open the pack and its source.

        Args:
            folder: the folder of the pack.
            root: the source: a folder, an archive, a file that contains all samples, or a URL.
            subset: the samples of the pack to compare.

        Raises:
            InvalidRequest: `root` is a pack or absent, or the pack was made from Python objects or several folders.
            CorruptPack: the pack cannot be opened.
        """
        if os.path.lexists(root / manifests.NAME):
            raise InvalidRequest(f"{root}: is a pack; give the original data, which {folder} was made of")
        self.compared = 0
        self.worst: dict[str, Worst] = {}
        self.not_compared: dict[str, str] = {}
        self._root = root
        self._subset = subset
        self._pack = Pack(folder, isolate_damaged=True)
        self._conversions = conversions(self._pack.manifest.options)
        self._recorded = asked_of_source(self._pack.manifest.options)
        self._unopened = ""  # the reason
        try:
            spec, colors = self._recorded_spec(), self._recorded_colors()
            if not isinstance(root, URLPath) and not root.exists():
                check_source(root)
            try:
                source, _ = spec.open(root)
                self._source: Source | None = add_mask_colors(source, colors) if colors else source
            except (BadInput, InvalidRequest) as error:
                self._source, self._unopened = None, str(error)
        except PackerError:
            self._pack.close()
            raise
        self._moves = any(each.get("resize") or each.get("exif") == "rotate" for each in self._conversions)
        self._codecs = {field.name: codecs.make(field) for field in self._pack.schema if field.name not in _OURS}

    def problems(self) -> Iterator[str]:
        """Yield one line for each difference, and close the pack at the end."""
        with closing(self._pack):
            source = self._source
            if source is None:
                self.not_compared = dict.fromkeys(self._codecs, "the source does not open as it was packed")
                yield self._unopened
                return
            yield from self._fields(source.schema)
            names = [name for name in self._codecs if name not in self.not_compared]
            encoder = SampleEncoder(self._plan(source))
            rows, further = self._matched(source)
            for index, row in enumerate(rows.tolist()):
                if index in self._subset:
                    yield from self._sample(index, row, names, source, encoder)
            for key in further:
                yield f"{self._root}: sample {key!r} is not in the pack; pack again to have it"
            if not self.compared and len(self._pack):
                self.not_compared |= dict.fromkeys(names, "no sample of it could be read from the source")
            yield from self._extras(source)

    # ---- opening the source again

    def _recorded_spec(self) -> SourceSpec:
        """Return the source options in the manifest. It is untrusted: wrong types and unsafe paths raise an error."""
        folder, kind = self._pack.folder, str(self._pack.manifest.source.get("kind"))
        if kind not in sources.names():
            made_of = self._pack.manifest.source.get("of", kind)
            raise InvalidRequest(
                f"{folder}: was made of a Python object ({made_of}), which cannot be opened again; verify it "
                "without a source, or compare samples: packer.open"
            )
        if places := self._recorded.get("places"):
            raise InvalidRequest(
                f"{folder}: was made with files outside of the source ({', '.join(places)}), whose place a pack does "
                "not contain; verify it without a source"
            )
        given = self._recorded.get("options")
        defaults = {"missing": "", **sources.load(kind).Source.defaults()}  # --missing is also an option of sidecars
        options: dict[str, Any] = {}
        for name, value in (given if isinstance(given, dict) else {}).items():
            if name not in defaults:
                continue
            value = tuple(value) if isinstance(value, list) else value
            is_list = isinstance(value, tuple)
            if type(value) is not type(defaults[name]) or (
                is_list and not all(isinstance(each, str) for each in value)
            ):
                raise CorruptPack(
                    f"{folder}: the manifest has an ill-formed option {name!r} of its source: {value!r:.80}; pack "
                    "again from the source"
                )
            for path in value if name == "annotations" else ():
                components(path.removeprefix("./"))
            options[name] = value
        if self._recorded.get("splits") and "own_splits" in defaults:
            options["own_splits"] = False
        sidecars = self._recorded.get("sidecars")
        texts = tuple(map(str, sidecars)) if isinstance(sidecars, list) else ()
        return SourceSpec(kind, options, texts, labels_orientation=self._orientation, checks_folders=False)

    @property
    def _orientation(self) -> Orientation | None:
        recorded = self._conversions[0].get("labels_orientation")
        return "upright" if recorded == "upright" else "stored" if recorded == "stored" else None

    def _recorded_colors(self) -> list[MaskColors]:
        tables = self._recorded.get("mask_colors", {})
        try:
            return [MaskColors.from_json(name, table) for name, table in dict(tables).items()]
        except (InvalidRequest, TypeError, ValueError) as error:
            raise CorruptPack(f"{self._pack.folder}: the manifest has ill-formed mask_colors: {error}") from error

    def _plan(self, source: Source) -> Plan:
        options = replace(
            recorded_options(self._pack),
            validate="header",
            max_pixels=MOST_PIXELS,
            labels_orientation=self._orientation,
        )
        source.folder.most_bytes = most_file_bytes(max(field.pixel_limit for field in self._pack.schema))
        fields = [field for field in self._pack.schema if field.name in source.schema]
        images = {field.name for field in fields if options.resize and field.kind in PIXEL_KINDS}
        return Plan(
            source=source,
            options=options,
            schema=Schema(tuple(fields)),
            defaulted=frozenset(images - dict(options.codecs).keys()),
        )

    def _matched(self, source: Source) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Return the source index of each sample of the pack (-1 if absent), and keys that the pack wrongly lacks."""
        skipped = {key for key, _ in self._pack.manifest.skipped}
        is_selected = any(SELECTED in each.get("source", {}) for each in self._conversions)
        rows, further = np.full(len(self._pack), -1, np.int64), []
        for row in range(len(source)):
            key = source.key(row)
            if (index := self._pack.index.find(key)) is not None:
                rows[index] = row
            elif not is_selected and key not in skipped:
                further.append(key)
        return rows, further

    # ---- fields, samples, and extra files

    def _fields(self, theirs: Schema) -> Iterator[str]:
        """Yield a line for each field that only the source or the pack has, and for each field whose classes differ.

        `theirs` contains the fields of the source. The reasons why fields are not compared are added to `not_compared`.
        """
        for name in self._codecs:
            field = self._pack.schema[name]
            where = f"{self._root}: field {name!r}"
            if name == "split" and self._recorded.get("splits"):
                self.not_compared[name] = "was made by --split"
            elif name not in theirs:
                self.not_compared[name] = "the source does not have it"
                yield f"{where}: the pack has it, the source does not; was it packed from other files?"
            elif reason := _class_difference(field.classes, theirs[name].classes):
                self.not_compared[name] = "its classes differ"
                yield f"{where}: other classes: {reason}; pack again to have them"
            elif len(self._conversions) > 1 and field.kind in PIXEL_KINDS and not self._is_kept(field):
                self.not_compared[name] = "was encoded more than once; verify the pack that was made of the source"
        if any(each.get("fields") for each in self._conversions):
            return
        for field in theirs:
            is_dropped = field.hidden and field.kind == "bytes" and self._moves
            if field.name not in (*_OURS, *self._codecs) and not is_dropped:
                yield f"{self._root}: field {field.name!r}: the source has it, the pack does not; pack again to have it"

    def _sample(
        self, index: int, row: int, names: Sequence[str], source: Source, encoder: SampleEncoder
    ) -> Iterator[str]:
        """Yield a line for each field of a sample that differs. `row` is its index in the source, -1 if absent."""
        if row < 0:
            yield f"{self._root}: {self._pack.where(index, KEY)}: the source has no such sample"
            return
        try:
            sample = source[row]
            record = encoder.encode(row, sample)
        except PackerError as error:
            yield str(error).removesuffix(SKIP_ADVICE)
            return
        for name in names:
            self.compared += 1
            problem = self._difference(index, name, record.values[name], is_file=isinstance(sample[name], bytes))
            if problem is not None:
                yield f"{encoder.path(row, sample, name)}: {self._pack.where(index, name)}: {problem}"

    def _is_kept(self, field: Field) -> bool:
        return codecs.codec_class(field).verbatim and not (self._moves and field.kind in PIXEL_KINDS)

    def _difference(self, index: int, name: str, expected: bytes, *, is_file: bool) -> str | None:
        """Return how a value differs from `expected`, or None. `is_file` is true if the source has it as a file."""
        field, codec = self._pack.schema[name], self._codecs[name]
        try:
            with self._pack.record(index, (name,)) as record:
                found = record[name]
                if found == expected:
                    return None
                if is_file and self._is_kept(field):
                    return f"differs: the file has {len(expected)} bytes, the pack {len(found)}, expected the same"
                if field.kind in PIXEL_KINDS:
                    return self._pixel_difference(index, field, codec.decode(found), codec.decode(expected))
                return difference(field, codec.decode(found), codec.decode(expected))
        except PackerError as error:
            return str(error)

    def _pixel_difference(
        self, index: int, field: Field, found: npt.NDArray[Any], expected: npt.NDArray[Any]
    ) -> str | None:
        if found.shape != expected.shape:
            return f"differs: the source gives shape {expected.shape}, the pack {found.shape}"
        if np.array_equal(found, expected, equal_nan=True):
            return None
        if field.kind == "mask" or not (self._moves or self._codecs[field.name].lossy):
            return "differs: other pixels than the source's"
        psnr = psnr_db(expected, found)
        if field.name not in self.worst or psnr < self.worst[field.name].psnr_db:
            self.worst[field.name] = Worst(psnr, index, self._pack.index.key(index))
        if psnr < _LEAST_PSNR_DB or np.mean(np.isfinite(expected) != np.isfinite(found)) > _MOST_OTHER_HOLES:
            return f"differs: PSNR {psnr:.1f} dB, expected at least {_LEAST_PSNR_DB:.0f} dB"
        return None

    def _extras(self, source: Source) -> Iterator[str]:
        try:
            extras = ExtraFiles(self._pack.folder, self._pack.manifest)
        except PackerError as error:
            yield str(error)
            return
        for path, content in extras:
            self.compared += 1
            try:
                components(path)
                if source.folder.read(path, is_table=True) != content:
                    yield f"{self._root / path}: differs: the pack carries other bytes; expected the same"
            except PackerError as error:
                yield str(error)


def difference(field: Field, found: Any, expected: Any) -> str | None:
    """Return a description of the difference between two decoded values of a field, or None if the values are equal.

    Args:
        found: the value in the pack.
        expected: the value in the source.
    """
    if field.kind not in ROW_KINDS:
        return (
            None if bool(found == expected) else f"differs: the pack has {_text(found)}, the source {_text(expected)}"
        )
    one, other = np.asarray(found), np.asarray(expected)
    if one.shape != other.shape:
        is_longer = one.ndim == other.ndim and one.shape[1:] == other.shape[1:]
        here, there = (f"{len(one)} rows", str(len(other))) if is_longer else (f"shape {one.shape}", str(other.shape))
        return f"differs: the pack has {here}, the source {there}"
    tolerance = _TOLERANCE_PX if field.kind in ("points", "boxes") else 0.0
    unequal = ~np.isclose(one, other, rtol=0.0, atol=tolerance, equal_nan=True)
    if not unequal.any():
        return None
    at = tuple(int(place) for place in np.argwhere(unequal)[0])
    values = f"the pack has {_named(one[at].item(), field)}, the source {_named(other[at].item(), field)}"
    if not one.ndim:
        return f"differs: {values}"
    return f"differs in {int(unequal.sum())} of {one.size} numbers, first at {', '.join(map(str, at))}: {values}"


def _class_difference(found: Sequence[str] | None, expected: Sequence[str] | None) -> str:
    ours, theirs = found or (), expected or ()
    if tuple(ours) == tuple(theirs):
        return ""
    gone = [name for name in ours if name not in set(theirs)]
    new = [name for name in theirs if name not in set(ours)]
    lines = [f"the pack has {listed(gone)}, which the source does not have"] if gone else []
    lines += [f"the source has {listed(new)}, which the pack does not have"] if new else []
    return "; ".join(lines) or "the source has the same names in another order"


def _named(number: Any, field: Field) -> str:
    is_class = field.classes and isinstance(number, int) and 0 <= number < len(field.classes)
    return f"{number} ({shown(field.classes[number])})" if is_class and field.classes else f"{number}"


def _text(value: object) -> str:
    return printable(repr(value)[:_SHOWN])


def psnr_db(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """Return the PSNR in dB: 10 log10(peak^2 / mean squared error), or infinity without a difference.

    The peak is 255 for uint8, otherwise the largest magnitude in `expected`. Values that are not finite are ignored.
    """
    left, right = expected.astype(np.float64), found.astype(np.float64)
    valid = np.isfinite(left) & np.isfinite(right)
    if not valid.any():
        return math.inf
    error = float(np.mean((left[valid] - right[valid]) ** 2))
    peak = 255.0 if expected.dtype == np.uint8 else float(np.abs(left[valid]).max())
    return math.inf if not error else 10 * math.log10(max(peak * peak, 1e-300) / error)
