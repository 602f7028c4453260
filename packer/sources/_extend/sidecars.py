"""Sidecars: files beside each sample of any source, as further fields: `a.jpg` and `a_d.tiff` give image and depth.

The user types NAME=SUFFIX:KIND, such as `depth=_d.tiff:depth`; the file is the sample's stem + SUFFIX. With a
placeholder it is a path from the source's folder, `mask=masks/{stem}.png:mask` (packer.sources._parse.sidecar_pattern).
Of a depth, `depth=_d.png:depth:0` also says which value is no measurement: it is never mixed into others. A mask has 8
bit, or 16 as `mask=_ids.png:mask:uint16`, which files of 8 bit are widened to.
Pictures may be any file that packer decodes, `.npy` too; images and masks in other formats are decoded by Pillow where
the user asks for that, as those of the source are. Text is UTF-8; bytes are kept verbatim. Boxes are lines of
`x0 y0 x1 y1` in px of the picture, a number is a file that holds one: int64 where all samples have whole ones.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images.backends import pillow
from packer.layouts.json_text import json_value
from packer.schema import MASK_DTYPES, Field
from packer.sources import base
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._name_words import has_labels
from packer.sources._parse.box_check import EXPECTED, box_edges
from packer.sources._parse.folder_listing import counted, listed, scan, shown
from packer.sources._parse.other_spelling import other_spelling
from packer.sources._parse.sidecar_pattern import Pattern, stored_path

_CODECS = {
    "image": "encoded",
    "depth": "encoded",
    "mask": "encoded",
    "bytes": "encoded",
    "text": "text",
    "json": "json",
    "boxes": "raw:float32",
    "number": "number",
}
_FILES = Field("files", "json", "json", hidden=True)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63
_EXACT_FLOAT = 2**53  # float64 holds every whole number up to it
_SIMILAR = 5  # names that a message offers


@dataclass(frozen=True)
class Sidecar:
    """One added field: its name, the suffix or pattern of its files, its kind.

    invalid: of a depth, the value of a pixel without a measurement. dtype: of a mask, uint8 or uint16; None is uint8.
    """

    name: str
    suffix: str
    kind: str
    invalid: float | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _CODECS:
            raise InvalidRequest(
                f"sidecar {self.name!r}: unknown kind {self.kind!r}; expected one of {', '.join(_CODECS)}"
            )
        if self.pattern is None and (not self.suffix or "/" in self.suffix or "\0" in self.suffix):
            raise InvalidRequest(
                f"sidecar {self.name!r}: suffix {self.suffix!r} cannot end a file name; expected such as _d.tiff, or "
                "masks/{stem}.png for files in a folder of their own"
            )

    @classmethod
    def parse(cls, text: str) -> "Sidecar":
        """From what the user types: `NAME=SUFFIX:KIND`, `NAME=SUFFIX:depth:INVALID` or `NAME=SUFFIX:mask:DTYPE`.

        Raises InvalidRequest.
        """
        name, equals, rest = text.partition("=")
        suffix, colon, kind = rest.rpartition(":")
        if not (equals and colon):
            raise InvalidRequest(
                f"sidecar {text!r}: expected NAME=SUFFIX:KIND, such as depth=_d.tiff:depth or "
                "mask=masks/{stem}.png:mask"
            )
        front, _, before = suffix.rpartition(":")
        if kind in _CODECS or not front or before not in _CODECS:
            return cls(name, suffix, kind)
        if before == "mask" and kind in MASK_DTYPES:
            return cls(name, front, before, dtype=kind)
        if before != "depth":
            raise InvalidRequest(
                f"sidecar {text!r}: {kind!r} behind {before}: only a depth has a value for missing pixels there, and "
                f"only a mask a dtype, {' or '.join(MASK_DTYPES)}; leave it out"
            )
        try:
            return cls(name, front, before, float(kind))
        except ValueError:
            raise InvalidRequest(
                f"sidecar {text!r}: expected behind depth the value of a missing pixel, such as 0 or -1, found {kind!r}"
            ) from None

    @property
    def text(self) -> str:
        """What the user types."""
        further = self.dtype if self.invalid is None else repr(self.invalid)
        return f"{self.name}={self.suffix}:{self.kind}" + (f":{further}" if further is not None else "")

    @property
    def field(self) -> Field:
        """The field that the sidecar adds; raises InvalidRequest for a name that no field can have."""
        codec = _CODECS[self.kind]
        if self.kind == "boxes":
            return Field(self.name, self.kind, codec, dtype="float32", shape=(None, 4))
        if self.kind == "number":
            return Field(self.name, self.kind, codec, dtype="float64", shape=())
        return Field(self.name, self.kind, codec, dtype=self.dtype, invalid=self.invalid)

    @cached_property
    def pattern(self) -> Pattern | None:
        """The pattern of its paths, None for a suffix."""
        return Pattern(self.suffix) if "{" in self.suffix else None

    @property
    def needs_pillow(self) -> bool:
        """Whether its files are pictures in a format that only Pillow reads."""
        return self.kind in ("image", "mask") and pillow.is_readable(f"x{self.suffix}")

    @property
    def outside(self) -> str | None:
        """The folder above the source that its files lie in, such as `../masks`."""
        return self.pattern.outside if self.pattern else None

    def path(self, source: base.Source, row: int) -> str:
        """The relative path of its file of a sample."""
        stem = _relative(source.stem(row), source.root)
        if self.pattern is None:
            return stem + self.suffix
        return self.pattern.path(_relative(source.files(row)[0], source.root), stem.rpartition("/")[2])

    def expected(self, source: base.Source, row: int) -> str:
        """What a message says of a file that is not there: its path, or which text the sample's path lacks."""
        stem = _relative(source.stem(row), source.root).rpartition("/")[2]
        unmet = self.pattern.unmet(_relative(source.files(row)[0], source.root), stem) if self.pattern else None
        return self.path(source, row) if unmet is None else f"a file of {source.key(row)}, where {unmet!r} is not found"


def add_sidecars(
    source: base.Source, sidecars: Sequence[Sidecar], *, missing: str = "error", decode_with: str = "none"
) -> base.Source:
    """The source with the fields of the sidecar files.

    missing: what a sample is that lacks a sidecar file: an `error`, or left out (`skip`). decode_with: `pillow`:
    pictures in formats that packer does not read are decoded by Pillow; `none`: they are refused.
    A source that takes every picture for a sample must be told to ignore the suffixes (folder: ignore_suffixes).
    Raises BadInput, naming the samples, for files that are not there; InvalidRequest for a field name that is taken,
    for a sidecar that no sample has, for one that only Pillow reads where nobody asked for it, and for a folder above
    the source that is not there or is named as one in it; MissingPackage where Pillow is asked for and is not there.
    """
    base.check_choice("missing", missing, ("error", "skip"))
    names = [sidecar.name for sidecar in sidecars]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"--sidecar {listed(twice)}: two of them have that name; rename one")
    taken = [name for name in names if name in source.schema]
    if taken:
        alone = "" if source.kind == "folder" else "; or say --from folder --classes none, which reads no annotations"
        raise InvalidRequest(
            f"--sidecar {listed(taken)}: source {source.kind!r} has a field of that name; call it otherwise, or leave "
            f"it out if it is the same{alone}"
        )
    _check_readable(sidecars, decode_with)
    addition = _Files(source, sidecars)
    files = scan(source.folder).names
    there = {*files, *_outside_names(source, sidecars, files)}
    lacking: dict[int, str] = {}
    absent_of: Counter[str] = Counter()
    for row in range(len(source)):
        absent = [sidecar for sidecar in sidecars if sidecar.path(source, row) not in there]
        if absent:
            lacking[row] = ", ".join(sidecar.expected(source, row) for sidecar in absent)
            absent_of.update(sidecar.name for sidecar in absent)
    for sidecar in sidecars:
        if len(source) and absent_of[sidecar.name] == len(source):
            raise InvalidRequest(f"{shown(str(source.root))}: {_matches_nothing(source, sidecar, there)}")
    _check_own(source, sidecars)
    if lacking and missing == "error":
        paths = (sidecar.path(source, row) for row in lacking for sidecar in sidecars)
        spelling = other_spelling([path for path in paths if path not in there], there)
        raise BadInput(
            f"{shown(str(source.root))}: {counted(len(lacking), 'sample')} of {len(source)} lack a sidecar file: "
            f"{listed(lacking.values())}{spelling}; get them, or say --missing skip, which leaves these samples out"
        )
    rows = [row for row in range(len(source)) if row not in lacking]
    addition.settle_numbers(source, rows)
    left_out = [(source.key(row), f"no {absent}") for row, absent in lacking.items()]
    return DerivedSource(source, addition, rows=rows, left_out=left_out, note=_note(sidecars))


def _check_own(source: base.Source, sidecars: Sequence[Sidecar]) -> None:
    """Raise InvalidRequest where several samples would have one file, although its name follows from theirs."""
    for sidecar in sidecars:
        if sidecar.pattern is not None and not {"{stem}", "{name}"} & set(re.findall(r"\{\w+\}", sidecar.suffix)):
            continue  # one file for a whole folder, which is meant
        first: dict[str, str] = {}
        for row in range(len(source)):
            path, key = sidecar.path(source, row), source.key(row)
            if path in first:
                raise InvalidRequest(
                    f"{shown(str(source.root))}: --sidecar {sidecar.name}={shown(sidecar.suffix)} gives "
                    f"{shown(first[path])} and {shown(key)} the same file {shown(path)}; tell them apart with "
                    "{folder}, {parent}, {top} or {name}"
                )
            first[path] = key


def _check_readable(sidecars: Sequence[Sidecar], decode_with: str) -> None:
    for sidecar in sidecars:
        if not sidecar.needs_pillow:
            continue
        if decode_with != "pillow":
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: packer does not read pictures that end in {shown(sidecar.suffix)}; say "
                "--decode-with pillow (of an image folder), or convert them to PNG"
            )
        pillow.check_installed([f"x{sidecar.suffix}"])


def _outside_names(source: base.Source, sidecars: Sequence[Sidecar], names: Sequence[str]) -> set[str]:
    """Relative paths, which begin with `../`, of all files in the folders above the source that sidecars name."""
    found: set[str] = set()
    tops = {name.partition("/")[0] for name in names}
    for sidecar in sidecars:
        if sidecar.outside is None:
            continue
        if source.folder.contents is not None:
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: {shown(str(source.root))} is an archive, above which there is no folder; "
                "unpack it, or leave ../ out"
            )
        folder = source.root / sidecar.outside
        if not folder.is_dir():
            raise InvalidRequest(f"sidecar {sidecar.name!r}: there is no folder {shown(str(folder))}; mend the path")
        stored = stored_path(sidecar.outside)
        others = {other.outside for other in sidecars if other.outside and stored_path(other.outside) == stored}
        if stored in tops or len(others) > 1:
            where = shown(str(source.root)) if stored in tops else "another sidecar"
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: {where} has a {shown(stored)} too, so that extract could not tell their "
                "files apart; rename one"
            )
        inner = scan(folder, follow_links=source.follow_links).names
        found.update(f"{sidecar.outside}/{name}" for name in inner)
    return found


def _matches_nothing(source: base.Source, sidecar: Sidecar, there: Iterable[str]) -> str:
    """What to say of a sidecar that no sample has, with names that may be meant."""
    expected = sidecar.path(source, 0)
    mains = {_relative(path, source.root) for row in range(len(source)) for path in source.files(row)}
    folder, _, stem = _relative(source.stem(0), source.root).rpartition("/")
    samples = {name for name in mains if name.rpartition("/")[0] == folder}  # these are no sidecars of each other
    similar = sorted(name for name in there if name.rpartition("/")[2].startswith(stem) and name not in samples)
    beside = sorted(name for name in there if name.rpartition("/")[0] == expected.rpartition("/")[0])
    offered = similar or [name for name in beside if name not in mains]
    like = f"files like these are there: {listed(offered[:_SIMILAR])}" if offered else "no file is named like it"
    return (
        f"--sidecar {sidecar.name}={shown(sidecar.suffix)} matches nothing: 0 of {counted(len(source), 'sample')} have "
        f"such a file, for {shown(source.key(0))} expected {shown(sidecar.expected(source, 0))}; {like}"
        f"{other_spelling([expected], there)}"
    )


class _Files(AddedFields):
    """Reads the sidecar files."""

    def __init__(self, source: base.Source, sidecars: Sequence[Sidecar]) -> None:
        self._sidecars = tuple(sidecars)
        self._whole: frozenset[str] = frozenset()  # number fields whose values are all whole
        self.sidecars = tuple(sidecar.name for sidecar in sidecars)
        self._names_files = _FILES.name in source.schema
        self.decodes = any(sidecar.needs_pillow for sidecar in sidecars)
        fields = tuple(sidecar.field for sidecar in sidecars)
        self.fields = fields if self._names_files else (*fields, _FILES)
        self.outside = tuple(dict.fromkeys(sidecar.outside for sidecar in sidecars if sidecar.outside))
        pictures = [field.name for field in source.schema if field.kind == "image"]
        self._main = pictures[0] if pictures else None

    def settle_numbers(self, source: base.Source, rows: Iterable[int]) -> None:
        """Make int64 of the number fields whose files all hold whole numbers that fit: float64 rounds large ones.

        A file that cannot be read says nothing here; it is named where its sample is read.
        """
        numbers = [sidecar for sidecar in self._sidecars if sidecar.kind == "number"]
        whole = {sidecar.name for sidecar in numbers}
        for row in rows if numbers else ():
            for sidecar in numbers:
                if sidecar.name in whole and not self._may_be_whole(source, row, sidecar):
                    whole.remove(sidecar.name)
        self._whole = frozenset(whole)
        self.fields = tuple(replace(field, dtype="int64") if field.name in whole else field for field in self.fields)

    def _may_be_whole(self, source: base.Source, row: int, sidecar: Sidecar) -> bool:
        try:
            value = _number(self._data(source, row, sidecar).decode("utf-8-sig").strip())
        except (BadInput, ValueError):
            return True
        return isinstance(value, int) and -_INT64 <= value < _INT64

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        paths = {sidecar.name: sidecar.path(source, row) for sidecar in self._sidecars}
        decoded = {sidecar.name: ".png" for sidecar in self._sidecars if sidecar.needs_pillow}
        files = {name: stored_path(path) + decoded.get(name, "") for name, path in paths.items()}
        if self._names_files:
            files = {**sample[_FILES.name], **files}
        elif self._main is not None:
            files = {self._main: _relative(source.files(row)[0], source.root), **files}
        read = {sidecar.name: self._value(source, row, sidecar) for sidecar in self._sidecars}
        return {**read, _FILES.name: files}

    def value(self, source: base.Source, row: int, name: str) -> Any:
        for sidecar in self._sidecars:
            if sidecar.name == name:
                return self._value(source, row, sidecar)
        return super().value(source, row, name)

    def invalid_option(self, name: str, values: Mapping[str, str]) -> str | None:
        found = next((sidecar for sidecar in self._sidecars if sidecar.name == name), None)
        return f"--sidecar {shell_word(f'{name}={found.suffix}:depth:{values[name]}')}" if found else None

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        return {**of_source, "sidecars": [*of_source["sidecars"], *(sidecar.text for sidecar in self._sidecars)]}

    def files(self, source: base.Source, row: int) -> tuple[Path, ...]:
        return tuple(source.root / sidecar.path(source, row) for sidecar in self._sidecars)

    def _value(self, source: base.Source, row: int, sidecar: Sidecar) -> Any:
        path = source.root / sidecar.path(source, row)
        data = self._data(source, row, sidecar)
        if sidecar.needs_pillow:
            return _decoded(data, path, sidecar.kind)
        return _value(data, path, sidecar.kind, is_whole=sidecar.name in self._whole)

    def _data(self, source: base.Source, row: int, sidecar: Sidecar) -> bytes:
        folder, name = base.place(source.folder, (*source.outside, *self.outside), sidecar.path(source, row))
        return folder.read(name)


def _note(sidecars: Sequence[Sidecar]) -> str:
    fields = ", ".join(f"{sidecar.name} ({shown(sidecar.suffix)})" for sidecar in sidecars)
    blurred = [shown(sidecar.name) for sidecar in sidecars if sidecar.kind == "mask" and _is_jpeg(sidecar)]
    lossy = f"; JPEG blurs the values of {', '.join(blurred)} around edges: threshold them, or convert to PNG"
    mixed = [shown(sidecar.name) for sidecar in sidecars if sidecar.kind == "image" and has_labels(sidecar.suffix)]
    colours = f"; {', '.join(mixed)}: named as labels, taken as images: geometries and --resize mix their colours"
    return f"fields from files beside the samples: {fields}{lossy if blurred else ''}{colours if mixed else ''}"


def _is_jpeg(sidecar: Sidecar) -> bool:
    return sidecar.suffix.lower().endswith((".jpg", ".jpeg"))


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _decoded(data: bytes, path: Path, kind: str) -> Any:
    try:
        return pillow.decode(data, path.name, kind)
    except DamagedImage as error:
        raise BadInput(f"{shown(str(path))}: {error.message}") from error


def _value(data: bytes, path: Path, kind: str, *, is_whole: bool) -> Any:
    try:
        if kind == "text":
            return data.decode("utf-8")
        if kind == "json":
            return json_value(data.decode("utf-8-sig"))
        if kind == "boxes":
            return _boxes(data.decode("utf-8-sig"))
        if kind == "number":
            return _stored(_number(data.decode("utf-8-sig").strip()), is_whole=is_whole)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown(str(path))}: cannot read as {kind}: {error}; mend the file or leave it out") from error
    return data


def _boxes(text: str) -> Any:
    """Lines of four numbers, separated by spaces or commas; blank lines are skipped."""
    rows, lines = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        row = [_number(word) for word in words]
        if len(row) != 4:
            raise ValueError(f"line {number}: found {shown(line[:80])!r}, {EXPECTED}")
        rows.append(row)
        lines.append(number)
    return box_edges(np.asarray(rows, np.float64).reshape(-1, 4), lambda row: f"line {lines[row]}")


def _number(word: str) -> int | float:
    """An int where the text is one."""
    value = float(word) if word.isascii() and "_" not in word else math.nan
    if not math.isfinite(value):
        raise ValueError(f"found {shown(word[:20])!r}, expected a number")
    return int(word) if _WHOLE.fullmatch(word) else value


def _stored(value: int | float, *, is_whole: bool) -> Any:
    if is_whole:
        if not isinstance(value, int) or not -_INT64 <= value < _INT64:
            raise ValueError(f"found {value}, expected a whole number of 64 bits: the file has changed")
        return np.int64(value)
    if isinstance(value, int) and abs(value) > _EXACT_FLOAT:
        raise ValueError(
            f"found {value}: float64, in which these numbers are stored as not all are whole and of 64 bits, rounds "
            "whole numbers beyond 2**53; take it as text"
        )
    return np.float64(value)
