"""Notebook: samples of a pack as an image that displays itself, and a table of fields in HTML."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from packer.errors import printable
from packer.files.storage_errors import failing
from packer.inspect.contact_sheet import Sheet, SheetRequest, make_sheet, sheet_of
from packer.inspect.png_sheet import draw_png
from packer.pack.reader import Pack

_WIDTH_PX = 480
_SMALL_PX = 160


class Drawing:
    """A PNG image of samples with their labels. Jupyter displays it; `save` writes it to a file."""

    def __init__(self, title: str, png: bytes) -> None:
        self.title = title
        self.png = png

    def save(self, path: str | Path) -> None:
        """Write the PNG file; raises StorageError."""
        with failing(Path(path), "write"):
            Path(path).write_bytes(self.png)

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return f"<{printable(self.title)}: PNG of {len(self.png):,} bytes; save(path) writes it>"


def draw_samples(folder: Path, keys: Sequence[str], *, width_px: int = _WIDTH_PX) -> Drawing:
    """Draw the samples with these keys, as they are stored; raises UnknownKey, CorruptPack."""
    return _drawn(make_sheet(folder, SheetRequest(keys=tuple(keys), width=width_px)))


def draw_open_samples(pack: Pack, name: str, keys: Sequence[str]) -> Drawing:
    """Draw samples of an open pack, as `draw_samples`; a pack at a URL downloads their parts into its cache."""
    return _drawn(sheet_of(pack, name, SheetRequest(keys=tuple(keys), width=_WIDTH_PX)))


def _drawn(sheet: Sheet) -> Drawing:
    return Drawing(sheet.title, draw_png(sheet))


def html_table(title: str, rows: Sequence[tuple[str, ...]], folder: Path, keys: Sequence[str]) -> str:
    """Return a title, a table of fields and the samples with these keys as HTML; all text is escaped."""
    lines = ("".join(f"<td>{_escaped(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    image = ""
    if keys:
        data = base64.b64encode(draw_samples(folder, keys, width_px=_SMALL_PX).png).decode()
        image = f'<img style="max-width: 100%" src="data:image/png;base64,{data}">'
    return f"<div><b>{_escaped(title)}</b><table>{table}</table>{image}</div>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
