"""Color table: converts masks stored as colors to class values, and parses the text files of color tables.

Each line of a file is a class. The value of a class is the position of its line, from 0, unless a column `id` has it:

* label_colors.txt of CamVid: `64 128 64<TAB>Animal`.
* The other order: `Animal 64 128 64`, with spaces, tabs, commas or semicolons.
* labelmap.txt of CVAT: `Animal:64,128,64::`.
* A first line with the names of the columns: `name,r,g,b`. Also allowed: red, green, blue, class, and id for the value.

Empty lines and lines that begin with # are ignored. `voc_palette` computes Pascal VOC's colors without a file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer import images
from packer.errors import BadInput
from packer.schema import MOST_PIXELS
from packer.sources._message_texts import counted, shown

VOID = 255
Color = tuple[int, int, int]

_VALUES = 256
_MOST_VALUE = 0xFFFF  # largest value of a mask of 16 bits
_MOST_BYTES = 1 << 22
_SHOWN = 80  # number of characters of a line in a message
_COMPONENT = r"([0-9]{1,3})"
_TRIPLE = re.compile(rf"(?<![\w.]){_COMPONENT}\s*[\s,;]\s*{_COMPONENT}\s*[\s,;]\s*{_COMPONENT}(?![\w.])")
_AROUND = " \t,;:"
_NUMBER = re.compile(r"[0-9]{1,9}")
_COLUMNS = {
    **dict.fromkeys(("r", "red"), "r"),
    **dict.fromkeys(("g", "green"), "g"),
    **dict.fromkeys(("b", "blue"), "b"),
    **dict.fromkeys(("id", "value", "index"), "id"),
    **dict.fromkeys(("name", "class", "label", "class_name"), "name"),
}


class ColorClass(NamedTuple):
    """A line of a color table: value in the mask, color (red, green, blue), and name. The name may be ""."""

    value: int
    color: Color
    name: str = ""


def read_color_classes(data: bytes, where: str) -> tuple[ColorClass, ...]:
    """Return the classes of the table file `where`, in order. The message of BadInput contains an invalid line."""
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{len(data)} bytes are not a table of colors")
        lines = [(number, line.strip()) for number, line in enumerate(data.decode("utf-8-sig").splitlines(), start=1)]
    except ValueError as error:
        raise BadInput(f"{shown(where)}: {error}; expected lines of R G B NAME in UTF-8") from error
    rows = [(number, line) for number, line in lines if line and not line.startswith("#")]
    separator, columns = _header(rows[0][1]) if rows else (None, {})
    if columns:
        rows = rows[1:]
    found: dict[Color, ColorClass] = {}
    for place, (number, line) in enumerate(rows):
        try:
            each = _column_line(line, separator, columns, place) if columns else _plain_line(line, place)
            if max(each.color) >= _VALUES or each.value > _MOST_VALUE:
                raise ValueError(f"a color above 255, or a value above {_MOST_VALUE}")
            if each.color in found:
                raise ValueError(f"the color {_text(each.color)} is already on an earlier line")
        except ValueError as error:
            raise BadInput(f"{shown(where)}: line {number}: found {shown(line[:_SHOWN])!r}: {error}") from error
        found[each.color] = each
    if not found:
        raise BadInput(f"{shown(where)}: has no color; expected lines such as 64 128 64 Animal")
    return tuple(found.values())


def voc_palette() -> list[Color]:
    """Return the 256 colors of Pascal VOC. Bits 3k, 3k + 1 and 3k + 2 of a value are bit 7 - k of red, green, blue."""
    channels = [
        [sum((value >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3)) for value in range(_VALUES)]
        for channel in range(3)
    ]
    return list(zip(*channels, strict=True))


def class_names(classes: Sequence[ColorClass]) -> tuple[str, ...] | None:
    """Return the class names, ordered by value. Value 255 (void) has no name unless there are more than 255 classes.

    Return None if values are not 0, 1, 2, ..., or if a name is empty or not unique.
    """
    names = {each.value: each.name for each in classes if each.value != VOID or len(classes) > VOID}
    texts = tuple(names[value] for value in sorted(names))
    is_complete = sorted(names) == list(range(len(names))) and len(set(texts)) == len(texts)
    return texts if texts and all(texts) and is_complete else None


class ColorTable:
    """A mapping from colors to values, which converts images in colors to masks."""

    def __init__(self, values: Mapping[Color, int], where: str, *, unknown: int | None = None) -> None:
        """Create the table `where`. Colors not in `values` get the value `unknown`, or raise BadInput if it is None."""
        self._where = where
        self._unknown = unknown
        codes = _codes(np.asarray(list(values), np.uint8))
        order = np.argsort(codes)
        self._codes = codes[order]
        self.dtype = np.dtype("uint8" if max(values.values()) < _VALUES else "uint16")
        self._values = np.asarray(list(values.values()), self.dtype)[order]

    def values(self, data: bytes, path: Path) -> npt.NDArray[Any]:
        """Return the mask (H, W) of an image file in colors: uint8, or uint16 if a value of the table is above 255.

        Raises BadInput with `path` for a lossy image, an EXIF orientation other than 1, or an unknown color.
        """
        try:
            header = images.sniff(data, MOST_PIXELS)
            if header.orientation != 1 or header.lossy:
                raise BadInput(
                    f"{header.format.upper()} with EXIF orientation {header.orientation}: masks in colors have to be "
                    "upright, and lossless such as PNG"
                )
            codes = _codes(images.decode(data, "image", header=header))
        except BadInput as error:
            raise BadInput(f"{shown(str(path))}: {error.message}") from error
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        unknown = self._codes[places] != codes
        values = self._values[places]
        if unknown.any() and self._unknown is None:
            y, x = np.argwhere(unknown)[0].tolist()
            code = int(codes[y, x])
            raise BadInput(
                f"{shown(str(path))}: color {_text((code >> 16, code >> 8 & 255, code & 255))} at pixel x {x}, y {y} "
                f"is not in {self._where}; {counted(int(unknown.sum()), 'pixel')} in all; fix the image or the table"
            )
        values[unknown] = self._unknown or 0
        return values


def _header(line: str) -> tuple[str | None, dict[str, int]]:
    separator = next((each for each in ("\t", ",", ";") if each in line), None)
    words = [word.strip().strip('"').lower() for word in line.split(separator)]
    columns = {_COLUMNS[word]: place for place, word in enumerate(words) if word in _COLUMNS}
    return separator, columns if {"r", "g", "b"} <= columns.keys() else {}


def _column_line(line: str, separator: str | None, columns: Mapping[str, int], place: int) -> ColorClass:
    most = len(columns) - 1 if separator is None else -1  # the last column may be a name with spaces
    cells = [cell.strip().strip('"') for cell in line.split(separator, most)]
    numbers = {name: cells[at] for name, at in columns.items() if at < len(cells) and name != "name"}
    if len(cells) <= max(columns.values()) or not all(map(_NUMBER.fullmatch, numbers.values())):
        raise ValueError("expected whole numbers in the columns of the first line")
    name = cells[columns["name"]] if "name" in columns else ""
    color = (int(numbers["r"]), int(numbers["g"]), int(numbers["b"]))
    return ColorClass(int(numbers.get("id", place)), color, name)


def _plain_line(line: str, place: int) -> ColorClass:
    match = _TRIPLE.search(line)
    front, back = (line[: match.start()].strip(_AROUND), line[match.end() :]) if match else ("", "")
    if front and back.lstrip().startswith(":"):
        back = ""  # `:PARTS:ACTIONS` of CVAT is not a name
    back = back.strip(_AROUND)
    words = (front or back).split()
    if match is None or (front and back) or (words and (words[0].isdecimal() or words[-1].isdecimal())):
        raise ValueError("expected R G B NAME, or a first line that names the columns, such as id r g b name")
    return ColorClass(place, (int(match[1]), int(match[2]), int(match[3])), (front or back).strip('"'))


def _text(color: Color) -> str:
    return ", ".join(map(str, color))


def _codes(colors: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the number 65536 red + 256 green + blue of each color, shape (...) for colors of shape (..., 3)."""
    wide = colors.astype(np.uint32)
    return np.asarray((wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2], np.uint32)
