"""Table paths: what the path column of a table says, as the relative path of a file below the root; or why it is none.

A path is data: no URL is fetched, and nothing outside of the root is named. `\\` is the separator of Windows, `./` and
doubled slashes say nothing.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from packer.errors import InvalidRequest, printable
from packer.files.safe_paths import components
from packer.sources._parse.table_rows import Cell

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://|(?:data|file|https?):", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:/")
_PLACE = re.compile(r"\{([^{}]*)\}")
# what most paths are, in which nothing is to be judged: no part of it begins with a dot
_PLAIN = re.compile(r"[\w\- ][\w.\- ]*(?:/[\w\- ][\w.\- ]*)*", re.ASCII)
_MOST_PLAIN = 250
_SHOWN = 80


class TablePath(NamedTuple):
    """name: the relative path, empty where there is none. refused: then, why. is_windows: whether it has `\\` in it."""

    name: str
    refused: str = ""
    is_windows: bool = False


class PathPattern:
    """Where the path of a picture stands: in one column, or in a pattern of some, such as `train/{id}.jpg`."""

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        """Raises InvalidRequest for a column that is not there."""
        self._texts: list[str] = ["", ""]
        self.columns: tuple[str, ...] = (text,)
        if text not in columns and _PLACE.search(text):
            pieces = _PLACE.split(text)
            self._texts, self.columns = pieces[::2], tuple(pieces[1::2])
        missing = [name for name in self.columns if name not in columns]
        if missing:
            there = ", ".join(printable(name) for name in columns[:20])
            raise InvalidRequest(f"no column {printable(missing[0])!r}; there are: {there}")

    def path(self, cells: Sequence[Cell], folder: str) -> TablePath:
        """The path below the root. cells: of `columns`, in order. folder: that the table lies in."""
        if len(cells) == 1 and self._texts == ["", ""]:
            return checked(cells[0], folder)
        texts = [str(cell) if isinstance(cell, (str, int)) and cell != "" else None for cell in cells]
        if None in texts:
            return TablePath("", "an empty cell")
        pieces = [self._texts[0]]
        for text, behind in zip(texts, self._texts[1:], strict=True):
            pieces += [text or "", behind]
        return checked("".join(pieces), folder)


def checked(cell: Cell, folder: str) -> TablePath:
    """What a cell names, from the folder that its table lies in."""
    if cell is None or cell == "":
        return TablePath("", "an empty cell")
    if not isinstance(cell, str):
        return TablePath("", f"{type(cell).__name__}, no text")
    if len(cell) <= _MOST_PLAIN and _PLAIN.fullmatch(cell):
        return TablePath(f"{folder}/{cell}" if folder else cell)
    shown = printable(cell)[:_SHOWN]
    if _URL.match(cell):
        return TablePath("", f"{shown} (a URL: nothing is fetched)")
    is_windows = "\\" in cell
    text = cell.replace("\\", "/") if is_windows else cell
    if text.startswith("/") or _DRIVE.match(text):
        return TablePath("", f"{shown} (an absolute path)")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        return TablePath("", f"{shown} (leads out with ..)")
    name = "/".join([*([folder] if folder else []), *parts])
    try:
        if not parts:
            return TablePath("", f"{shown} (names no file)")
        components(name)
    except InvalidRequest as error:
        return TablePath("", printable(error.message))
    return TablePath(name, is_windows=is_windows)
