"""Images per second of each loader: docs/images/headline.svg, drawn from a table of docs/understand/benchmarks.md.

scripts/images runs this. No figures are kept beside the table, so that image and table cannot differ. The colors are
readable on white and on black, because a README has both backgrounds.
"""

import html
import re
import sys
from pathlib import Path
from typing import NamedTuple

SECTION = "## Other loaders"
SHOWN = {  # the loader in the table -> its name in the image
    "packer Loader, codec jpeg:90": "packer, stored as jpeg:90",
    "packer Loader, original bytes": "packer, original files",
    "folder, OpenCV": "folder of files, OpenCV",
    "LitData 0.2.76, OpenCV": "LitData",
    "LMDB of files, OpenCV": "LMDB of the files, OpenCV",
    "WebDataset 1.0.2, OpenCV": "WebDataset",
    "MosaicML Streaming 0.13.0, OpenCV": "MosaicML Streaming",
    "FFCV 1.0.2": "FFCV",
}
_WIDTH, _NAMES, _BAR, _GAP = 720, 250, 22, 10  # px: the image, the column of names, a bar, between bars
_ORANGE, _GRAY, _TEXT = "#e1812c", "#8c8c8c", "#808080"


class Rate(NamedTuple):
    """A row of the table: images per second in the median round."""

    name: str
    rate: int
    is_ours: bool


def rates(page: str) -> list[Rate]:
    """The shown rows of the section's first table, the fastest first; raises ValueError where the page has none."""
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| (\d+) \(\d+ - \d+\) \|", section, re.MULTILINE)
    if not found:
        raise ValueError(f"expected a table of images/s below {SECTION!r}, found none")
    rows = {re.sub(r"[*`]", "", name): int(rate) for name, rate in found}
    shown = [Rate(name, rows[loader], is_ours=name.startswith("packer")) for loader, name in SHOWN.items()]
    return sorted(shown, key=lambda row: row.rate, reverse=True)


def drawing(rows: list[Rate]) -> str:
    """The image as SVG: a bar per loader with its name and rate."""
    scale = (_WIDTH - _NAMES - 60) / rows[0].rate
    height = len(rows) * (_BAR + _GAP) + _GAP
    label = "images per second: " + ", ".join(f"{row.name} {row.rate}" for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{html.escape(label)}" font-family="sans-serif" font-size="14">'
    ]
    for number, row in enumerate(rows):
        top = _GAP + number * (_BAR + _GAP)
        width, color = row.rate * scale, _ORANGE if row.is_ours else _GRAY
        weight = "bold" if row.is_ours else "normal"
        middle, end = top + _BAR * 0.7, _NAMES + width + 8
        lines += [
            f'<text x="{_NAMES - 10}" y="{middle:.1f}" text-anchor="end" fill="{_TEXT}" font-weight="{weight}">'
            f"{html.escape(row.name)}</text>",
            f'<rect x="{_NAMES}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{color}"/>',
            f'<text x="{end:.1f}" y="{middle:.1f}" fill="{_TEXT}" font-weight="{weight}">{row.rate}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    page, target = map(Path, sys.argv[1:])
    target.write_text(drawing(rates(page.read_text())))
