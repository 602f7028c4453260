"""Sidecars: files beside each sample of any source, as further fields: `a.jpg` and `a_d.tiff` give image and depth.

The user types NAME=SUFFIX:KIND, such as `depth=_d.tiff:depth`; the file is the sample's stem + SUFFIX. Pictures may be
any file that packer decodes, `.npy` too. Text is UTF-8; bytes are kept verbatim.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from packer.errors import BadInput, Refused
from packer.schema import Field
from packer.sources import base
from packer.sources.adding.wrapping import Addition, Wrapped
from packer.sources.parsing.input_folder import InputFolder
from packer.sources.parsing.scanning import counted, listed, scan, shown

_CODECS = {
    "image": "encoded",
    "depth": "encoded",
    "mask": "encoded",
    "bytes": "encoded",
    "text": "text",
    "json": "json",
}
_FILES = Field("files", "json", "json", hidden=True)


@dataclass(frozen=True)
class Sidecar:
    """One added field: its name, the suffix of its files, its kind (image, depth, mask, bytes, text or json)."""

    name: str
    suffix: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in _CODECS:
            raise Refused(f"sidecar {self.name!r}: unknown kind {self.kind!r}; expected one of {', '.join(_CODECS)}")
        if not self.suffix or "/" in self.suffix or "\0" in self.suffix:
            raise Refused(
                f"sidecar {self.name!r}: suffix {self.suffix!r} cannot end a file name; expected such as _d.tiff"
            )

    @classmethod
    def parse(cls, text: str) -> "Sidecar":
        """From what the user types, `NAME=SUFFIX:KIND`; raises Refused."""
        name, equals, rest = text.partition("=")
        suffix, colon, kind = rest.rpartition(":")
        if not (equals and colon):
            raise Refused(f"sidecar {text!r}: expected NAME=SUFFIX:KIND, such as depth=_d.tiff:depth")
        return cls(name, suffix, kind)

    @property
    def field(self) -> Field:
        """The field that the sidecar adds; raises Refused for a name that no field can have."""
        return Field(self.name, self.kind, _CODECS[self.kind])


def add_sidecars(source: base.Source, sidecars: Sequence[Sidecar], *, missing: str = "error") -> base.Source:
    """The source with a field per sidecar, and `files` (hidden: field -> relative path) where it had none.

    missing: what a sample without one of the files is: `error`, or `skip`: left out.
    A source that takes every picture for a sample must be told to ignore the suffixes (folder: ignore_suffixes).
    Raises BadInput, naming the samples, for files that are not there; Refused for a field name that is taken.
    """
    base.check_choice("missing", missing, ("error", "skip"))
    addition = _Files(source, sidecars)
    there = set(scan(source.root, follow_links=source.follow_links).names)
    lacking: dict[int, str] = {}
    for row in range(len(source)):
        stem = _relative(source.stem(row), source.root)
        absent = [stem + sidecar.suffix for sidecar in sidecars if stem + sidecar.suffix not in there]
        if absent:
            lacking[row] = ", ".join(absent)
    if lacking and missing == "error":
        raise BadInput(
            f"{shown(str(source.root))}: {counted(len(lacking), 'sample')} of {len(source)} lack a sidecar file: "
            f"{listed(lacking.values())}; get them, or say --missing skip, which leaves these samples out"
        )
    rows = (row for row in range(len(source)) if row not in lacking)
    left_out = [(source.key(row), f"no {absent}") for row, absent in lacking.items()]
    return Wrapped(source, addition, rows=rows, left_out=left_out, note=_note(sidecars))


class _Files(Addition):
    """Reads the sidecar files."""

    def __init__(self, source: base.Source, sidecars: Sequence[Sidecar]) -> None:
        self._sidecars = tuple(sidecars)
        self._names_files = _FILES.name in source.schema
        fields = tuple(sidecar.field for sidecar in sidecars)
        self.fields = fields if self._names_files else (*fields, _FILES)
        pictures = [field.name for field in source.schema if field.kind == "image"]
        self._main = pictures[0] if pictures else None

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        paths = dict(zip((sidecar.name for sidecar in self._sidecars), self.files(source, row), strict=True))
        files = {name: _relative(path, source.root) for name, path in paths.items()}
        if self._names_files:
            files = {**sample[_FILES.name], **files}
        elif self._main is not None:
            files = {self._main: _relative(source.files(row)[0], source.root), **files}
        read = {
            sidecar.name: _value(source.folder, _relative(paths[sidecar.name], source.root), sidecar.kind)
            for sidecar in self._sidecars
        }
        return {**read, _FILES.name: files}

    def files(self, source: base.Source, row: int) -> tuple[Path, ...]:
        stem = source.stem(row)
        return tuple(stem.with_name(stem.name + sidecar.suffix) for sidecar in self._sidecars)


def _note(sidecars: Sequence[Sidecar]) -> str:
    fields = ", ".join(f"{sidecar.name} ({shown(sidecar.suffix)})" for sidecar in sidecars)
    return f"fields from files beside the samples: {fields}"


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _value(folder: InputFolder, name: str, kind: str) -> Any:
    data, path = folder.read(name), folder.root / name
    try:
        if kind == "text":
            return data.decode("utf-8")
        if kind == "json":
            return json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{shown(str(path))}: cannot read as {kind}: {error}; mend the file or leave it out") from error
    return data


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON (RFC 8259, section 6)")
