"""Mask colours: masks drawn in colours become masks of numbers by a table that the user names, in any source of files.

The user types FILE, or NAME=FILE where a source has several masks; the word `voc` is Pascal VOC's palette. Each pixel
is looked up exactly, whatever the file has: RGB, gray or a palette. The field is then a mask of 8 bit, or of 16 where a
value needs it, and the file itself stays as it is in the hidden field NAME_file, so that it can be extracted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._parse.colour_table import (
    VOID,
    ColourClass,
    ColourTable,
    class_names,
    read_colour_classes,
    voc_palette,
    without_names,
)
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.stores.url import path_or_url

VOC = "voc"
_FILES = "files"
_PALETTE = "Pascal VOC's palette"
_FROM_JSON = (int, int, int, int, str)


@dataclass(frozen=True)
class MaskColours:
    """The table of one mask. name: of the field; empty for the only one. where: what says so, for messages.

    unknown: what a colour that is not in the table is: an `error`, or `void`, 255.
    """

    name: str
    classes: tuple[ColourClass, ...]
    where: str
    unknown: str = "error"

    @classmethod
    def parse(cls, text: str, *, unknown: str = "error") -> "MaskColours":
        """From what the user types, `FILE`, `NAME=FILE` or `voc`; raises InvalidRequest, BadInput."""
        base.check_choice("unknown_colours", unknown, ("error", "void"))
        name, _, file = text.rpartition("=")
        if name and not name.isidentifier():  # a path with = in it
            name, file = "", text
        if file == VOC:
            return cls(name, _voc_classes(), _PALETTE, unknown)
        path = path_or_url(file)
        if not path.is_file():
            raise InvalidRequest(
                f"--mask-colours {shown(text)}: there is no file {shown(file)}; give a table with lines of R G B NAME, "
                f"or {VOC} for Pascal VOC's palette"
            )
        return cls(name, read_colour_classes(base.read_file(path), file), file, unknown)

    def to_json(self) -> dict[str, Any]:
        """As manifests state it: value, red, green, blue and name of each class, or `voc`."""
        rows = [[each.value, *each.colour, each.name] for each in self.classes]
        return {"classes": VOC if self.where == _PALETTE else rows, "unknown": self.unknown}

    @classmethod
    def from_json(cls, name: str, data: Any) -> "MaskColours":
        """The inverse of `to_json`; raises InvalidRequest."""
        rows = data.get("classes") if isinstance(data, dict) else None
        unknown = data.get("unknown") if isinstance(data, dict) else None
        if rows == VOC and unknown in ("error", "void"):
            return cls(name, _voc_classes(), _PALETTE, unknown)
        if not isinstance(rows, list) or not rows or not all(map(_is_row, rows)) or unknown not in ("error", "void"):
            raise InvalidRequest(f"mask_colours of {name!r:.80} is ill-formed: {data!r:.80}")
        classes = tuple(ColourClass(value, (red, green, blue), text) for value, red, green, blue, text in rows)
        return cls(name, classes, "the pack's table", unknown)


def _voc_classes() -> tuple[ColourClass, ...]:
    return tuple(ColourClass(value, colour) for value, colour in enumerate(voc_palette()))


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, list)
        and tuple(map(type, row)) == _FROM_JSON
        and 0 <= row[0] <= 0xFFFF
        and all(0 <= each <= 0xFF for each in row[1:4])
    )


def add_mask_colours(source: base.Source, tables: Sequence[MaskColours]) -> base.Source:
    """The source with masks of numbers in the place of those in colours.

    Raises InvalidRequest where it is not clear which mask a table is of, or where there is none that is a file.
    """
    masks = [field.name for field in source.schema if field.kind == "mask" and field.codec == "encoded"]
    named: dict[str, MaskColours] = {}
    for table in tables:
        name = table.name or (masks[0] if len(masks) == 1 else "")
        if name not in masks:
            computed = name in source.schema.names and source.schema[name].kind == "mask"
            found = f"masks that are files: {listed(masks)}" if masks else "no mask that is a file"
            raise InvalidRequest(
                f"{shown(str(source.root))}: --mask-colours {shown(table.where)}: "
                + (f"{name} is of numbers already; leave it out" if computed else f"{found}; say NAME=FILE for one")
                + ("" if masks or computed else ", after a --role or --sidecar of kind mask has made it")
            )
        if name in named:
            raise InvalidRequest(f"--mask-colours: two tables for {name}; leave one of them out")
        named[name] = table
    notes = [f"{name} ({_described(table)})" for name, table in named.items()]
    return DerivedSource(
        source,
        _ColourNumbers(source, named),
        rows=range(len(source)),
        left_out=(),
        note=f"masks in colours, by a table: {', '.join(notes)}",
    )


def _described(table: MaskColours) -> str:
    """Where a table is from, how long it is, and why its names are not in the field, where they are not."""
    reason = without_names(table.classes)
    missing = f"; no classes, since {reason}: its names stand in the manifest alone" if reason else ""
    return f"{table.where}, {counted(len(table.classes), 'colour')}{missing}"


class _ColourNumbers(AddedFields):
    """Looks the colours up."""

    decodes = True

    def __init__(self, source: base.Source, tables: Mapping[str, MaskColours]) -> None:
        self._given = dict(tables)
        self._tables = {
            name: ColourTable(
                {each.colour: each.value for each in table.classes},
                table.where,
                unknown=VOID if table.unknown == "void" else None,
            )
            for name, table in tables.items()
        }
        self.fields = tuple(Field(_verbatim(name), "bytes", "encoded", hidden=True) for name in tables)
        changed = [self._mask(source.schema[name]) for name in tables]
        self._names_files = _FILES in source.schema
        self.changed = (*changed, *([source.schema[_FILES]] if self._names_files else []))

    def _mask(self, field: Field) -> Field:
        dtype = self._tables[field.name].dtype.name
        return Field(field.name, "mask", "png", dtype=dtype, classes=class_names(self._given[field.name].classes))

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        found: base.Sample = {_verbatim(name): sample[name] for name in self._tables}
        found |= {name: self._numbers(name, sample[name], source, row, sample) for name in self._tables}
        if self._names_files:
            found[_FILES] = self._renamed(sample[_FILES])
        return found

    def value(self, source: base.Source, row: int, name: str) -> Any:
        if name == _FILES:
            return self._renamed(source.value(row, name))
        if name in self._tables:
            files = {_FILES: source.value(row, _FILES)} if self._names_files else {}
            return self._numbers(name, source.value(row, name), source, row, files)
        return source.value(row, next(mask for mask in self._tables if _verbatim(mask) == name))

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        return {**of_source, "mask_colours": {name: table.to_json() for name, table in self._given.items()}}

    def _numbers(self, name: str, data: Any, source: base.Source, row: int, sample: base.Sample) -> Any:
        where = Path(source.where(row, sample.get(_FILES, {}).get(name)))
        if not isinstance(data, bytes):
            raise BadInput(f"{shown(str(where))}: {name}: expected a picture file, whose colours a table explains")
        return self._tables[name].values(data, where)

    def _renamed(self, files: Mapping[str, str]) -> dict[str, str]:
        """What stands in the field `files`: the file is that of the field which keeps it."""
        return {_verbatim(name) if name in self._tables else name: path for name, path in files.items()}


def _verbatim(name: str) -> str:
    """The field that keeps the file of a mask in colours."""
    return f"{name}_file"
