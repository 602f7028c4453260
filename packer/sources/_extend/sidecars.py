"""Sidecars: files next to the files of a sample, added as fields to any source: `a_d.tiff` is a sidecar of `a.jpg`.

The user declares `NAME=SUFFIX:KIND`, such as `depth=_d.tiff:depth`. The path of the sidecar is the path of the sample
without suffix, followed by SUFFIX. A SUFFIX with a placeholder is a path pattern instead, as in
`mask=masks/{stem}.png:mask` (packer.sources._file_pattern).

Images may have any format that packer decodes, including `.npy`. With `--decode-with pillow`, Pillow decodes images and
masks in other formats. Text is UTF-8. Bytes are not changed. Files of boxes contain lines `x0 y0 x1 y1` in px of the
image. Numbers are int64 if all samples have integers, otherwise float64.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images.backends import pillow_other_formats as pillow
from packer.schema import Field
from packer.sources import base
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._file_pattern import Declaration, SidecarPattern, stored_path
from packer.sources._message_texts import counted, listed, shown
from packer.sources._text_value_parsers import INT64, number_of, text_value
from packer.sources._trees.folder_scan import scan

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
_FORMS: Mapping[str, dict[str, Any]] = {
    "boxes": {"dtype": "float32", "shape": (None, 4)},
    "number": {"dtype": "float64", "shape": ()},
}
_FILES = Field("files", "json", "json", hidden=True)


@dataclass(frozen=True)
class Sidecar:
    """The declaration of one field from sidecar files.

    Attributes:
        name: The name of the field.
        suffix: The suffix of the files, or a path pattern with placeholders.
        kind: The kind of the field, such as "image", "depth", "mask" or "text".
        invalid: The value of depth pixels without a measurement. None if not declared, and for other kinds.
        dtype: The dtype of a mask, uint8 or uint16. None if not declared, which is uint8, and for other kinds.
    """

    name: str
    suffix: str
    kind: str
    invalid: float | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is None and (not self.suffix or "/" in self.suffix or "\0" in self.suffix):
            raise InvalidRequest(
                f"sidecar {self.name!r}: {self.suffix!r} is not the end of a file name; expected such as _d.tiff, or "
                "masks/{stem}.png for files in another folder"
            )

    @classmethod
    def parse(cls, text: str) -> "Sidecar":
        """Parse `NAME=SUFFIX:KIND[:INVALID or DTYPE]`, such as `d=_d.tiff:depth:0`. Raise InvalidRequest if invalid."""
        parts = Declaration.parse("sidecar", text, _CODECS)
        return cls(parts.name, parts.pattern, parts.kind, parts.invalid, parts.dtype)

    @property
    def text(self) -> str:
        """The declaration as a text that `parse` accepts."""
        more = self.dtype if self.invalid is None else repr(self.invalid)
        return f"{self.name}={self.suffix}:{self.kind}" + (f":{more}" if more is not None else "")

    @property
    def field(self) -> Field:
        """The field that the sidecar adds. Raise InvalidRequest if the name is not valid for a field."""
        form = _FORMS.get(self.kind, {"dtype": self.dtype, "invalid": self.invalid})
        return Field(self.name, self.kind, _CODECS[self.kind], **form)

    @cached_property
    def pattern(self) -> SidecarPattern | None:
        """The pattern of the sidecars' paths if `suffix` is a pattern such as `masks/{stem}.png`, otherwise None."""
        return SidecarPattern(self.suffix) if "{" in self.suffix else None

    @property
    def needs_pillow(self) -> bool:
        """True if the files are images or masks in a format that only Pillow reads."""
        return self.kind in ("image", "mask") and pillow.is_readable(f"x{self.suffix}")

    @property
    def outside(self) -> str | None:
        """The folder with the files if it is outside of the source, such as `../masks`, else None."""
        return self.pattern.outside if self.pattern else None

    def path(self, source: base.Source, row: int) -> str:
        """Return the relative path of the sidecar file for the sample at position `row` of `source`."""
        entry = source.entry(row)
        if self.pattern is None:
            return entry.stem + self.suffix
        return self.pattern.path(entry.files[0], entry.stem.rpartition("/")[2])


def add_sidecars(
    source: base.Source, sidecars: Sequence[Sidecar], *, missing: str = "error", decode_with: str = "none"
) -> base.Source:
    """Return a source with the fields of `source` and the fields from sidecar files.

    If `source` is a folder, its option `ignore_suffixes` must exclude the sidecar files, or they are samples, too.

    Args:
        source: The source of the samples.
        sidecars: The declarations of the added fields.
        missing: For a sample without a sidecar file, `error` raises BadInput and `skip` skips the sample.
        decode_with: `pillow`: Pillow decodes formats that packer cannot read. `none`: these formats are errors.

    Raises:
        BadInput: Sidecar files are absent. The message contains the paths.
        InvalidRequest: A field exists already, no sample has a file, several samples share a file, or only Pillow reads
            a file. Or a folder outside of the source is absent or has the same name as a folder in the source.
        MissingPackage: Pillow is required and not installed.
    """
    base.check_choice("missing", missing, ("error", "skip"))
    where = shown(str(source.root))
    names = [sidecar.name for sidecar in sidecars]
    present = [name for at, name in enumerate(names) if name in source.schema or name in names[:at]]
    if present:
        alone = "" if source.kind == "folder" else ", or add --from folder --folders none to read no annotations"
        raise InvalidRequest(f"--sidecar {listed(present)}: there is a field of that name already; rename it{alone}")
    _check_readable(sidecars, decode_with)
    addition = _Files(source, sidecars)
    files = scan(source.folder).names
    available = {*files, *_outside_names(source, sidecars, files)}
    reasons: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for row in range(len(source)):
        absent = [sidecar for sidecar in sidecars if sidecar.path(source, row) not in available]
        if absent:
            reasons[row] = ", ".join(sidecar.path(source, row) for sidecar in absent)
            counts.update(sidecar.name for sidecar in absent)
    for sidecar in sidecars:
        if len(source) and counts[sidecar.name] == len(source):
            raise InvalidRequest(
                f"{where}: --sidecar {sidecar.name}={shown(sidecar.suffix)} matches nothing: for "
                f"{shown(source.key(0))} expected {shown(sidecar.path(source, 0))}; correct the pattern"
            )
    _check_own(source, sidecars)
    if reasons and missing == "error":
        raise BadInput(
            f"{where}: {counted(len(reasons), 'sample')} of {len(source)} lack a sidecar file: "
            f"{listed(reasons.values())}; get the files, or add --missing skip"
        )
    rows = [row for row in range(len(source)) if row not in reasons]
    addition.find_whole_numbers(source, rows)
    skipped = [(source.key(row), f"no {reason}") for row, reason in reasons.items()]
    return DerivedSource(source, addition, rows=rows, left_out=skipped, note=_note(sidecars))


def _check_own(source: base.Source, sidecars: Sequence[Sidecar]) -> None:
    """Raise InvalidRequest if two samples share a sidecar file, unless its pattern has neither {stem} nor {name}."""
    for sidecar in sidecars:
        if sidecar.pattern is not None and not {"{stem}", "{name}"} & set(re.findall(r"\{\w+\}", sidecar.suffix)):
            continue  # one file for a folder
        first: dict[str, str] = {}
        for row in range(len(source)):
            path, key = sidecar.path(source, row), source.key(row)
            if path in first:
                raise InvalidRequest(
                    f"{shown(str(source.root))}: --sidecar {sidecar.name}={shown(sidecar.suffix)}: "
                    f"{shown(first[path])} and {shown(key)} have the same file {shown(path)}; add {{folder}}, "
                    "{parent}, {top} or {name} to the pattern"
                )
            first[path] = key


def _check_readable(sidecars: Sequence[Sidecar], decode_with: str) -> None:
    for sidecar in sidecars:
        if not sidecar.needs_pillow:
            continue
        if decode_with != "pillow":
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: packer does not read images that end in {shown(sidecar.suffix)}; add "
                "--decode-with pillow (to an image folder), or convert them to PNG"
            )
        pillow.check_installed([f"x{sidecar.suffix}"])


def _outside_names(source: base.Source, sidecars: Sequence[Sidecar], names: Sequence[str]) -> set[str]:
    """Return the paths (`../masks/1.png`) of files in sidecar folders outside of a source with the files `names`."""
    found: set[str] = set()
    tops = {name.partition("/")[0] for name in names}
    for sidecar in sidecars:
        if sidecar.outside is None:
            continue
        folder = source.folder.root / sidecar.outside
        if source.folder.contents is not None or not folder.is_dir():
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: there is no folder {shown(str(folder))}; correct the path, or unpack the "
                "archive"
            )
        stored = stored_path(sidecar.outside)
        others = {other.outside for other in sidecars if other.outside and stored_path(other.outside) == stored}
        if stored in tops or len(others) > 1:
            raise InvalidRequest(
                f"sidecar {sidecar.name!r}: two folders have the name {shown(stored)} in the pack: "
                f"{shown(sidecar.outside)} and one in {shown(str(source.root))} or of another sidecar; rename one"
            )
        inner = scan(folder, follow_links=source.folder.follow_links).names
        found.update(f"{sidecar.outside}/{name}" for name in inner)
    return found


class _Files(AddedFields):
    def __init__(self, source: base.Source, sidecars: Sequence[Sidecar]) -> None:
        self._sidecars = {sidecar.name: sidecar for sidecar in sidecars}
        self._whole: frozenset[str] = frozenset()  # number fields whose values are all whole
        self.companions = tuple(self._sidecars)
        self._has_files = _FILES.name in source.schema
        self.changed = (_FILES,) if self._has_files else ()
        self.needs = (_FILES.name,) if self._has_files else ()
        self.decodes = any(sidecar.needs_pillow for sidecar in sidecars)
        fields = tuple(sidecar.field for sidecar in sidecars)
        self.fields = fields if self._has_files else (*fields, _FILES)
        self.outside = tuple(dict.fromkeys(sidecar.outside for sidecar in sidecars if sidecar.outside))
        self._main = next((field.name for field in source.schema if field.kind == "image"), None)

    def find_whole_numbers(self, source: base.Source, rows: Iterable[int]) -> None:
        """Change a number field to int64 if all its files contain integers, because float64 rounds large ones."""
        numbers = [sidecar for sidecar in self._sidecars.values() if sidecar.kind == "number"]
        whole = {sidecar.name for sidecar in numbers}
        for row in rows if numbers else ():
            for sidecar in numbers:
                if sidecar.name in whole and not self._may_be_whole(source, row, sidecar):
                    whole.remove(sidecar.name)
        self._whole = frozenset(whole)
        self.fields = tuple(replace(field, dtype="int64") if field.name in whole else field for field in self.fields)

    def _may_be_whole(self, source: base.Source, row: int, sidecar: Sidecar) -> bool:
        try:
            value = number_of(self._data(source, row, sidecar))
        except (BadInput, ValueError):
            return True  # reading the sample raises it
        return isinstance(value, int) and -INT64 <= value < INT64

    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        found = {name: self._value(source, row, sidecar) for name, sidecar in self._sidecars.items() if name in names}
        if _FILES.name not in names:
            return found
        files: dict[str, str] = {}
        if self._has_files:
            files = dict(sample[_FILES.name])
        elif self._main is not None:
            files = {self._main: source.entry(row).files[0]}
        for name, sidecar in self._sidecars.items():
            files[name] = stored_path(sidecar.path(source, row)) + (".png" if sidecar.needs_pillow else "")
        return {**found, _FILES.name: files}

    def _value(self, source: base.Source, row: int, sidecar: Sidecar) -> Any:
        where = str(source.folder.root / sidecar.path(source, row))
        data = self._data(source, row, sidecar)
        if not sidecar.needs_pillow:
            return text_value(data, where, sidecar.kind, is_whole=sidecar.name in self._whole)
        try:
            return pillow.decode(data, Path(where).name, sidecar.kind)
        except DamagedImage as error:
            raise BadInput(f"{shown(where)}: {error.message}") from error

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        texts = [sidecar.text for sidecar in self._sidecars.values()]
        return {**of_source, "sidecars": [*of_source["sidecars"], *texts]}

    def files(self, source: base.Source, row: int) -> tuple[str, ...]:
        return tuple(sidecar.path(source, row) for sidecar in self._sidecars.values())

    def _data(self, source: base.Source, row: int, sidecar: Sidecar) -> bytes:
        folder, name = base.place(source.folder, (*source.outside, *self.outside), sidecar.path(source, row))
        return folder.read(name)


def _note(sidecars: Sequence[Sidecar]) -> str:
    fields = ", ".join(f"{sidecar.name} ({shown(sidecar.suffix)})" for sidecar in sidecars)
    return f"fields from sidecar files: {fields}"
