"""Colour table: which value of a mask a colour stands for, and the files that people write such tables in.

A line is a class, and its number the place of the line, from 0, unless a column says another:

    64 128 64<TAB>Animal             CamVid's label_colors.txt: R G B NAME
    Animal 64 128 64                 the other way round, with spaces, tabs, commas or semicolons
    Animal:64,128,64::               CVAT's labelmap.txt
    name,r,g,b                       a first line that names the columns: r, g and b, or red, green and blue; name, or
                                     class; and id, for the value in the mask, where it is not the place of the line

Empty lines, and those that begin with #, say nothing. Pascal VOC's palette needs no file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from packer import images
from packer.errors import BadInput
from packer.schema import MOST_PIXELS
from packer.sources._parse.folder_listing import counted, shown

VOID = 255
Colour = tuple[int, int, int]

_VALUES = 256
_CHANNELS = 3
_MOST_VALUE = 0xFFFF  # of a mask of 16 bit
_MOST_BYTES = 1 << 22
_SHOWN = 80  # characters of a line
_COMPONENT = r"([0-9]{1,3})"
_TRIPLE = re.compile(rf"(?<![\w.]){_COMPONENT}\s*[\s,;]\s*{_COMPONENT}\s*[\s,;]\s*{_COMPONENT}(?![\w.])")
_AROUND = " \t,;:"
_NUMBER = re.compile(r"[0-9]{1,9}")
_COLUMNS = {
    "r": ("r", "red"),
    "g": ("g", "green"),
    "b": ("b", "blue"),
    "id": ("id", "value", "index"),
    "name": ("name", "class", "label", "class_name"),
}


@dataclass(frozen=True)
class ColourClass:
    """A line of a table. value: in the mask. name: empty where the table has none."""

    value: int
    colour: Colour
    name: str = ""


def read_colour_classes(data: bytes, where: str) -> tuple[ColourClass, ...]:
    """The classes of a table file, in its order; raises BadInput with the line.

    where: its path, for messages.
    """
    if len(data) > _MOST_BYTES:
        raise BadInput(f"{shown(where)}: {len(data)} bytes are no table of colours; expected lines of R G B NAME")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown(where)}: is no UTF-8: {error.reason}; save the table as text in UTF-8") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    rows = [(number, line) for number, line in lines if line and not line.startswith("#")]
    read: Callable[[str], tuple[Colour, str, int | None]] = _plain
    columns = _columns(rows[0][1]) if rows else None
    if columns is not None:
        read, rows = columns.read, rows[1:]
    found: list[ColourClass] = []
    first: dict[Colour, int] = {}
    for place, (number, line) in enumerate(rows):
        try:
            colour, name, value = read(line)
            value = place if value is None else value
            _check(colour, value)
            if colour in first:
                raise ValueError(f"the colour {_said(colour)} is that of line {first[colour]} already")
        except ValueError as error:
            raise BadInput(f"{shown(where)}: line {number}: {error}; mend the table") from error
        first[colour] = number
        found.append(ColourClass(value, colour, name))
    if not found:
        raise BadInput(f"{shown(where)}: has no colour; expected lines such as 64 128 64 Animal")
    return tuple(found)


def voc_palette() -> list[Colour]:
    """The colour of every value of a mask: bit 3k, 3k + 1 and 3k + 2 of the value are bit 7 - k of red, green, blue."""
    colours = []
    for value in range(_VALUES):
        channels = [
            sum((value >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3)) for channel in range(_CHANNELS)
        ]
        colours.append((channels[0], channels[1], channels[2]))
    return colours


def class_names(classes: Sequence[ColourClass]) -> tuple[str, ...] | None:
    """The names of the values 0, 1, ... but for 255; None where there are gaps, or a value has no name of its own."""
    names = {each.value: each.name for each in classes if each.value != VOID or len(classes) > VOID}
    texts = tuple(names[value] for value in sorted(names))
    is_whole = sorted(names) == list(range(len(names))) and len(set(texts)) == len(texts)
    return texts if texts and all(texts) and is_whole else None


def without_names(classes: Sequence[ColourClass]) -> str | None:
    """Why the names that a table has are no `class_names`; None where they are, and where it has none."""
    if class_names(classes) is not None or not any(each.name for each in classes):
        return None
    values = sorted({each.value for each in classes if each.value != VOID or len(classes) > VOID})
    if values != list(range(len(values))):
        return "the values are not 0, 1, 2, ..."
    return "not every value has a name of its own"


class ColourTable:
    """Which value of a mask a colour is."""

    def __init__(self, values: Mapping[Colour, int], where: str, *, unknown: int | None = None) -> None:
        """where: what says so, for messages. unknown: the value of all other colours; None where they are errors."""
        self._where = where
        self._unknown = unknown
        codes = _codes(np.asarray(list(values), np.uint8))
        order = np.argsort(codes)
        self._codes = codes[order]
        self.dtype = np.dtype("uint8" if max(values.values()) < _VALUES else "uint16")
        self._values = np.asarray(list(values.values()), self.dtype)[order]

    def values(self, data: bytes, path: Path) -> npt.NDArray[Any]:
        """The mask (H, W) of a picture file in colours, uint8, or uint16 where a value needs it.

        Raises BadInput for a file whose colours are not exact, and for a colour that stands for nothing.
        """
        codes = _codes(self._colours(data, path))
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        unknown = self._codes[places] != codes
        values = self._values[places]
        if unknown.any():
            if self._unknown is None:
                y, x = np.argwhere(unknown)[0].tolist()
                code = int(codes[y, x])
                raise BadInput(
                    f"{shown(str(path))}: the colour {code >> 16}, {code >> 8 & 255}, {code & 255} is of no class in "
                    f"{self._where}: pixel x {x}, y {y}, {counted(int(unknown.sum()), 'pixel')} of such colours in "
                    "all; mend one of them"
                )
            values[unknown] = self._unknown
        return values

    def _colours(self, data: bytes, path: Path) -> npt.NDArray[np.uint8]:
        try:
            header = images.sniff(data, MOST_PIXELS)
            if header.orientation != 1:
                raise BadInput(f"has EXIF orientation {header.orientation}: turn its pixels upright")
            if header.lossy:
                raise BadInput(f"is {header.format.upper()}, which changes colours: get it as it was drawn, as PNG")
            return images.decode(data, "image", header=header)
        except BadInput as error:
            raise BadInput(f"{shown(str(path))}: {error.message}") from error


class _NamedColumns:
    """Reads lines whose columns the first line names."""

    def __init__(self, places: Mapping[str, int], separator: str | None) -> None:
        self._places = places
        self._separator = separator

    def read(self, line: str) -> tuple[Colour, str, int | None]:
        """Colour, name, and value where a column has it; raises ValueError."""
        most = len(self._places) - 1 if self._separator is None else -1  # a name behind spaces may hold some
        cells = [cell.strip().strip('"') for cell in line.split(self._separator, most)]
        if len(cells) <= max(self._places.values()):
            raise ValueError(f"found {shown(line[:_SHOWN])!r}, fewer columns than the first line names")
        colour = tuple(_whole(cells[self._places[name]]) for name in "rgb")
        name = cells[self._places["name"]] if "name" in self._places else ""
        value = _whole(cells[self._places["id"]]) if "id" in self._places else None
        return (colour[0], colour[1], colour[2]), name, value


def _columns(line: str) -> _NamedColumns | None:
    """What the first line names; None where it is a class."""
    separator = next((each for each in ("\t", ",", ";") if each in line), None)
    words = [word.strip().strip('"').lower() for word in line.split(separator)]
    places = {
        name: place for name, known in _COLUMNS.items() for place, word in enumerate(words) if word in known
    }  # fmt: skip
    return _NamedColumns(places, separator) if {"r", "g", "b"} <= places.keys() else None


def _plain(line: str) -> tuple[Colour, str, None]:
    """Three numbers, and a name in front of them or behind; raises ValueError."""
    match = _TRIPLE.search(line)
    if match is None:
        raise ValueError(f"found {shown(line[:_SHOWN])!r}, expected R G B NAME")
    front, back = line[: match.start()].strip(_AROUND), line[match.end() :]
    if front and back.lstrip().startswith(":"):
        back = ""  # CVAT's parts and actions
    back = back.strip(_AROUND)
    if front and back:
        _unclear(line)
    words = (front or back).split()
    if words and (words[0].isdecimal() or words[-1].isdecimal()):
        _unclear(line)
    return (int(match[1]), int(match[2]), int(match[3])), (front or back).strip('"'), None


def _unclear(line: str) -> NoReturn:
    raise ValueError(
        f"found {shown(line[:_SHOWN])!r}: which numbers are the colour? Name the columns in the first line, such as id "
        "r g b name"
    )


def _whole(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"found {shown(text[:_SHOWN])!r}, expected a whole number")
    return int(text)


def _check(colour: Colour, value: int) -> None:
    if max(colour) >= _VALUES:
        raise ValueError(f"the colour {_said(colour)} has a number above 255")
    if not 0 <= value <= _MOST_VALUE:
        raise ValueError(f"the value {value} is above {_MOST_VALUE}, the largest that a mask has")


def _said(colour: Colour) -> str:
    return ", ".join(map(str, colour))


def _codes(colours: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """One number per colour, of (..., 3)."""
    wide = colours.astype(np.uint32)
    return np.asarray((wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2], np.uint32)
