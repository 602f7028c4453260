"""Mask colors: conversion of RGB masks to masks of class numbers with a color table, for any source of files.

The user declares FILE, or NAME=FILE if the source has several masks. `voc` instead of FILE is Pascal VOC's palette.
Each pixel of an RGB, gray or palette image must match a color exactly. The result is a uint8 mask, or uint16 if a value
exceeds 255. The hidden field NAME_file contains the bytes of the original file for extraction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._color_table import (
    VOID,
    ColorClass,
    ColorTable,
    class_names,
    read_color_classes,
    voc_palette,
)
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._message_texts import counted, listed, shown
from packer.stores.url import path_or_url

VOC = "voc"
_UNKNOWN = ("error", "void")
_FILES = "files"
_PALETTE = "Pascal VOC's palette"
_ROW_TYPES = (int, int, int, int, str)


@dataclass(frozen=True)
class MaskColors:
    """The color table of one mask field.

    Attributes:
        name: The name of the mask field. Empty: the only mask of the source.
        classes: The value, color and name of each class.
        where: The path or name of the table, for error messages.
        unknown: For colors that are not in the table, `error` raises BadInput, and `void` returns 255.
    """

    name: str
    classes: tuple[ColorClass, ...]
    where: str
    unknown: str = "error"

    @classmethod
    def parse(cls, text: str, *, unknown: str = "error") -> "MaskColors":
        """Parse `FILE`, `NAME=FILE`, `voc` or `NAME=voc`, and read the color table in FILE.

        `unknown` sets the attribute. Raise InvalidRequest for an absent file, and BadInput for an invalid table.
        """
        base.check_choice("unknown_colors", unknown, _UNKNOWN)
        name, _, file = text.rpartition("=")
        if name and not name.isidentifier():  # a path that contains =
            name, file = "", text
        if file == VOC:
            return cls(name, _voc_classes(), _PALETTE, unknown)
        path = path_or_url(file)
        if not path.is_file():
            raise InvalidRequest(
                f"--mask-colors {shown(text)}: there is no file {shown(file)}; give a table with lines of R G B NAME, "
                f"or {VOC} for Pascal VOC's palette"
            )
        return cls(name, read_color_classes(base.read_file(path), file), file, unknown)

    def to_json(self) -> dict[str, Any]:
        """Return the table for the manifest. `classes` is "voc" or a list of [value, red, green, blue, name]."""
        rows = [[each.value, *each.color, each.name] for each in self.classes]
        return {"classes": VOC if self.where == _PALETTE else rows, "unknown": self.unknown}

    @classmethod
    def from_json(cls, name: str, data: Any) -> "MaskColors":
        """Return the table of the mask field `name` from a result of `to_json`. Raise InvalidRequest if invalid."""
        values = data if isinstance(data, dict) else {}
        rows, unknown = values.get("classes"), values.get("unknown")
        if unknown in _UNKNOWN and rows == VOC:
            return cls(name, _voc_classes(), _PALETTE, unknown)
        if unknown not in _UNKNOWN or not isinstance(rows, list) or not rows or not all(map(_is_row, rows)):
            raise InvalidRequest(f"mask_colors of {name!r:.80} is ill-formed: {data!r:.80}")
        classes = tuple(ColorClass(value, (red, green, blue), text) for value, red, green, blue, text in rows)
        return cls(name, classes, "the pack's table", unknown)


def _voc_classes() -> tuple[ColorClass, ...]:
    return tuple(ColorClass(value, color) for value, color in enumerate(voc_palette()))


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or tuple(map(type, row)) != _ROW_TYPES:
        return False
    return 0 <= row[0] <= 0xFFFF and all(0 <= each <= 0xFF for each in row[1:4])


def add_mask_colors(source: base.Source, tables: Sequence[MaskColors]) -> base.Source:
    """Return a source in which masks of class numbers replace RGB masks.

    Raise InvalidRequest if a table does not belong to exactly one mask field with image files.
    """
    masks = [field.name for field in source.schema if field.kind == "mask" and field.codec == "encoded"]
    named: dict[str, MaskColors] = {}
    for table in tables:
        name = table.name or (masks[0] if len(masks) == 1 else "")
        if name not in masks or name in named:
            raise InvalidRequest(
                f"{shown(str(source.root))}: --mask-colors {shown(table.where)}: expected one NAME=FILE for each mask "
                f"that is a file: {listed(masks) or 'no mask is one; add it with --role or --sidecar of kind mask'}"
            )
        named[name] = table
    notes = [f"{name} ({_described(table)})" for name, table in named.items()]
    return DerivedSource(
        source,
        _ColorNumbers(source, named),
        rows=range(len(source)),
        left_out=(),
        note=f"masks in colors, by a table: {', '.join(notes)}",
    )


def _described(table: MaskColors) -> str:
    has_names = class_names(table.classes) is not None or not any(each.name for each in table.classes)
    reason = "" if has_names else "; no classes, because the values are not 0, 1, 2, ... with one name each"
    return f"{table.where}, {counted(len(table.classes), 'color')}{reason}"


class _ColorNumbers(AddedFields):
    """Masks of class numbers, and hidden fields `NAME_file` with the bytes of the RGB masks."""

    decodes = True

    def __init__(self, source: base.Source, tables: Mapping[str, MaskColors]) -> None:
        self._json = {name: table.to_json() for name, table in tables.items()}
        self._tables = {
            name: ColorTable(
                {each.color: each.value for each in table.classes},
                table.where,
                unknown=VOID if table.unknown == "void" else None,
            )
            for name, table in tables.items()
        }
        self._file_names = {f"{name}_file": name for name in tables}
        self.fields = tuple(Field(name, "bytes", "encoded", hidden=True) for name in self._file_names)
        has_paths = _FILES in source.schema
        self.needs = (*tables, *([_FILES] if has_paths else []))
        self.changed = tuple(
            Field(name, "mask", "png", dtype=self._tables[name].dtype.name, classes=class_names(table.classes))
            for name, table in tables.items()
        ) + ((source.schema[_FILES],) if has_paths else ())

    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        paths = sample.get(_FILES, {})
        found: base.Sample = {}
        for name in names:
            data = sample.get(self._file_names.get(name, name))
            if name in self._tables:
                where = base.sample_name(source, row, paths.get(name))
                if not isinstance(data, bytes):
                    raise BadInput(f"{shown(where)}: {name}: expected an image file with the colors of a table")
                found[name] = self._tables[name].values(data, Path(where))
            elif name in self._file_names:
                found[name] = data
            else:
                found[name] = {f"{mask}_file" if mask in self._tables else mask: path for mask, path in paths.items()}
        return found

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        return {**of_source, "mask_colors": self._json}
