"""Notebook: drawings of samples that Jupyter displays, and a table of fields in HTML."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from packer.errors import printable
from packer.files.storage_errors import failing
from packer.inspect.contact_sheet import SheetRequest, sheet_of
from packer.inspect.png_sheet import draw_png
from packer.pack.reader import Pack

WIDTH_PX, SMALL_PX = 480, 160  # of one image: shown alone, and next to others


class Drawing:
    """A PNG image of samples with their labels. Jupyter displays it, and `save` writes it to a file."""

    def __init__(self, title: str, png: bytes) -> None:
        self.title = title
        self.png = png

    def save(self, path: str | Path) -> None:
        """Write the PNG file. Raises StorageError."""
        with failing(Path(path), "write"):
            Path(path).write_bytes(self.png)

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return f"<{printable(self.title)}: PNG of {len(self.png):,} bytes; save(path) writes it>"


def draw_samples(pack: Pack, name: str, keys: Sequence[str], *, width_px: int = WIDTH_PX) -> Drawing:
    """Return a drawing of samples of an open pack, as they are stored. Raises UnknownKey, CorruptPack and StoreError.

    Args:
        pack: The pack. Parts of a remote pack are downloaded into its cache.
        name: Name of the pack, for the title.
        keys: Keys of the samples.
        width_px: Width in px of the box of one image.
    """
    sheet = sheet_of(pack, name, SheetRequest(keys=tuple(keys), width=width_px))
    return Drawing(sheet.title, draw_png(sheet))


def html_table(title: str, rows: Sequence[tuple[str, ...]], drawing: Drawing | None) -> str:
    """Return HTML: a title, a table with the texts in `rows`, and a drawing if there is one. All text is escaped."""
    lines = ("".join(f"<td>{_escaped(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    image = ""
    if drawing is not None:
        data = base64.b64encode(drawing.png).decode()
        image = f'<img style="max-width: 100%" src="data:image/png;base64,{data}">'
    return f"<div><b>{_escaped(title)}</b><table>{table}</table>{image}</div>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
