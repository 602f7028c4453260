"""Speed against stored bytes: docs/images/sizes.png, drawn from the table of docs/dev/benchmarks.md by scripts/images.

Of rows that read the same bytes the fastest is shown, and its lowest and highest round as a line. No figures are kept
beside the table, so that image and table cannot differ.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

SECTION = "### Planes instead of pixels: `ycc420`"
OURS = ("raw", "ycc420", "jpeg:90", "kept bytes")
_BLUE, _ORANGE, _GRAY = "#3274a1", "#e1812c", "#8c8c8c"
_LINE = 0.05  # of the height of the image, for a name


class SizeRow(NamedTuple):
    """A row of the table: images/s in the median, lowest and highest round, and KB stored for an image."""

    name: str
    rate: float
    lowest: float
    highest: float
    kb: float

    @property
    def stored(self) -> str:
        """What is read: the first word of the name."""
        return self.name.partition(",")[0]


def rows(page: str) -> list[SizeRow]:
    """The rows of the section's first table; raises ValueError where the page has none."""
    section = page.partition(SECTION)[2].partition("\n![")[0]
    pattern = r"^\| (.+?) \| (\d+) \((\d+) - (\d+)\) \|.*\| (\d+) \|$"
    found = re.findall(pattern, section, re.MULTILINE)
    if not found:
        raise ValueError(f"expected a table of images/s and stored KB below {SECTION!r}, found none")
    return [SizeRow(re.sub(r"[*`]", "", name), *map(float, numbers)) for name, *numbers in found]


def fastest(given: list[SizeRow]) -> list[SizeRow]:
    """Of rows that read the same, the fastest; the smallest rate first."""
    best: dict[str, SizeRow] = {}
    for row in sorted(given, key=lambda row: row.rate):
        best[row.stored if row.stored in OURS else row.name] = row
    return sorted(best.values(), key=lambda row: row.rate)


def draw(given: list[SizeRow], path: Path) -> None:
    """Write the image; needs matplotlib (extra `plot`)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    top = max(row.highest for row in given) * 1.05
    name_at = 0.0
    for row in fastest(given):
        ours = row.stored in OURS
        color = _ORANGE if ours else _GRAY if row.name == "limit" else _BLUE
        name = "limit: decode, cut, resize" if row.name == "limit" else f"packer, {row.name}" if ours else row.name
        axes.vlines(row.kb, row.lowest, row.highest, color=color, alpha=0.25, linewidth=3)
        axes.plot(row.kb, row.rate, "o", color=color, markersize=8)
        name_at = max(row.rate, name_at + top * _LINE)  # names of those that are equally fast stand above each other
        axes.annotate(
            f"{name}: {row.rate:.0f}/s",
            (row.kb, row.rate),
            (row.kb * 0.92 if row.kb > 200 else 57, name_at),
            horizontalalignment="right" if row.kb > 200 else "left",
            verticalalignment="center",
            color="0.2",
            arrowprops={
                "arrowstyle": "-",
                "color": "0.8",
                "linewidth": 0.8,
                "relpos": (float(row.kb > 200), 0.5),
            },
        )
    axes.set(xscale="log", xlim=(38, 700), ylim=(0, top), xlabel="KB stored for an image", ylabel="crops a second")
    axes.set_xticks(sorted({row.kb for row in given if row.kb > 100 or row.kb == 49} | {44}))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.minorticks_off()
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        "Random crops of 224 px from photos of 500x375, 2 cores: median, lowest, highest round", loc="left", fontsize=10
    )
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw(rows(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
