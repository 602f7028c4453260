"""Stage chart: nested bars, each stage of a sample as wide as its time, as PNG or as one HTML page without scripts."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import InvalidRequest
from packer.files.atomic_save import save
from packer.files.terminal_output import plot_label, shortened
from packer.tools import plotting
from packer.tools.profile import NAMES, STAGES, Profile

_COLOURS = dict(zip(STAGES, ("#56b4e9", "#b0b0b0", "#e69f00", "#d55e00", "#cc79a7", "#009e73", "#0072b2"), strict=True))
_LETTER = 0.0095  # of the whole width, at the size that labels have
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px sans-serif; margin: 2em; max-width: 70em }}
.row {{ position: relative; height: 2.2em; margin-bottom: 3px }}
.bar {{ position: absolute; height: 100%; overflow: hidden; white-space: nowrap; box-sizing: border-box;
 border: 1px solid #fff; border-radius: 3px; padding: .45em .3em; text-overflow: ellipsis }}
</style></head><body>
<h1 style="font-size: 1.2em">{title}</h1>
{rows}
<p>{verdict}</p>
</body></html>
"""


class Bar(NamedTuple):
    """start, width: of the whole, 0 to 1. level: 0 the sample, 1 its stages, 2 their fields."""

    level: int
    start: float
    width: float
    label: str
    milliseconds: float
    colour: str


def bars(found: Profile) -> list[Bar]:
    """The sample, its stages in order, and below each the fields that it is made of."""
    whole = sum(map(found.of, STAGES))
    made = [Bar(0, 0.0, 1.0, "one sample of the first epoch", whole, "#e8e8e8")]
    start = 0.0
    for stage in STAGES:
        width = found.of(stage) / whole
        if width == 0:
            continue
        made.append(Bar(1, start, width, NAMES.get(stage, stage), found.of(stage), _COLOURS[stage]))
        inner = start
        fields = {of: seconds for (name, of), seconds in found.seconds.items() if name == stage and of}
        for of, seconds in sorted(fields.items(), key=lambda pair: -pair[1]):
            milliseconds = seconds / found.samples * 1e3
            made.append(Bar(2, inner, milliseconds / whole, of, milliseconds, _COLOURS[stage]))
            inner += milliseconds / whole
        start += width
    return made


def check(path: Path) -> None:
    """Raise where the file cannot be made: before any work."""
    if path.suffix.lower() != ".html":
        try:
            plotting.check(path)
        except InvalidRequest as error:
            raise type(error)(f"{error}; or FILE.html, which needs nothing") from error


def draw(found: Profile, path: Path, *, title: str, verdict: str) -> None:
    """Write FILE.html, or a picture; raises MissingPackage, InvalidRequest, StorageError."""
    check(path)
    if path.suffix.lower() == ".html":
        save(path, page(bars(found), title=title, verdict=verdict).encode())
        return
    figure = plotting.new_figure(10, 2.6)
    axes = figure.add_subplot()
    for bar in bars(found):
        name = f"{bar.label} {bar.milliseconds:.3f} ms" if bar.level == 1 else None
        axes.barh(
            -bar.level,
            bar.width,
            left=bar.start,
            label=name,
            color=bar.colour,
            alpha=0.55 if bar.level == 2 else 1.0,
            edgecolor="white",
            height=0.94,
        )
        label = _fitting(bar)
        axes.text(bar.start + bar.width / 2, -bar.level, label, ha="center", va="center", fontsize="small")
    axes.set_xlim(0, 1)
    axes.set_axis_off()
    axes.set_title(plot_label(title), loc="left", fontsize="medium")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(STAGES), fontsize="small", frameon=False)
    figure.supxlabel(verdict, fontsize="small", wrap=True)
    plotting.save(figure, path)


def _fitting(bar: Bar) -> str:
    """The label with its milliseconds, the label alone, or nothing, as there is room."""
    for label in (f"{bar.label}  {bar.milliseconds:.3f} ms", bar.label):
        if len(label) * _LETTER <= bar.width:
            return label
    return ""


def page(found: Sequence[Bar], *, title: str, verdict: str) -> str:
    """The HTML page; every name in it is escaped, since names come from the pack."""
    rows = []
    for level in range(3):
        inner = "".join(_cell(bar) for bar in found if bar.level == level)
        rows.append(f'<div class="row">{inner}</div>')
    return _PAGE.format(title=html.escape(shortened(title)), rows="\n".join(rows), verdict=html.escape(verdict))


def _cell(bar: Bar) -> str:
    told = html.escape(f"{bar.label}: {bar.milliseconds:.3f} ms, {bar.width:.1%}", quote=True)
    style = f"left:{bar.start:.4%};width:{bar.width:.4%};background:{bar.colour}{'99' if bar.level == 2 else ''}"
    label = html.escape(f"{bar.label} {bar.milliseconds:.3f} ms") if bar.width > 0.02 else ""
    return f'<div class="bar" style="{style}" title="{told}">{label}</div>'
