"""HTML sheet: a contact sheet as one page that holds everything, pictures as PNG and JPEG inside it; no script.

Names and values of a pack may be hostile: each is made printable, then escaped, and stands between tags only, never in
an attribute. A content security policy forbids whatever might slip through: only inline styles and pictures show.
"""

import base64
import html

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.files.terminal_output import shortened
from packer.inspect.contact_sheet.legend import Mark
from packer.inspect.contact_sheet.sheet import Sheet
from packer.inspect.contact_sheet.tile import Panel, Tile, range_texts
from packer.inspect.palette import GROUND, HATCH, HATCH_PX, INK, MUTED, PAPER, Colour, viridis

_JPEG_QUALITY = 92
_STOPS = 9  # of the scale's colours

Pixels = npt.NDArray[np.uint8]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
<ul class="legend">
{legend}
</ul>
<main>
{tiles}
</main>
</body>
</html>
"""

_STYLE = """body {{ margin: 24px; background: {paper}; color: {ink}; font: 13px/1.4 system-ui, sans-serif; }}
h1 {{ font-size: 19px; margin: 0 0 6px; overflow-wrap: anywhere; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 2px 24px; list-style: none; margin: 0 0 20px; padding: 0; }}
.legend, i, .name {{ color: {muted}; font-style: normal; }}
.swatch {{ display: inline-block; width: 18px; height: 10px; margin-right: 6px; }}
.line {{ height: 0; vertical-align: middle; border-top: 1px solid; }}
.thick {{ border-top-width: 3px; }}
.hatch {{ background: repeating-linear-gradient(135deg, {even} 0 {stripe}px, {odd} {stripe}px {stripes}px); }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, {width}px); gap: 20px; align-items: start; }}
article {{ width: {width}px; }}
.pictures {{ display: flex; gap: 6px; }}
figure {{ margin: 0; width: {box_width}px; }}
.place {{ display: flex; height: {box_height}px; align-items: center; justify-content: center; background: {ground}; }}
img {{ display: block; }}
figcaption {{ display: flex; justify-content: space-between; gap: 8px; overflow-wrap: anywhere; font-size: 12px; }}
.scale {{ white-space: nowrap; }}
.bar {{ display: inline-block; width: 60px; height: 7px; margin: 0 4px; background: linear-gradient(90deg, {ramp}); }}
h2 {{ font-size: 14px; margin: 2px 0 0; overflow-wrap: anywhere; }}
p {{ margin: 0; overflow-wrap: anywhere; }}
p span {{ margin-right: 12px; }}"""


def draw_html(sheet: Sheet) -> bytes:
    """The sheet as an HTML file, UTF-8."""
    legend = [_mark(mark) for mark in (*sheet.marks, *([Mark(sheet.note)] if sheet.note else []))]
    page = _PAGE.format(
        title=_escaped(sheet.title),
        style=_style(sheet),
        legend="\n".join(legend),
        tiles="\n".join(_tile(tile) for tile in sheet.tiles),
    )
    return page.encode()


def _escaped(text: str) -> str:
    return html.escape(shortened(text))


def _style(sheet: Sheet) -> str:
    ramp = viridis()[np.arange(_STOPS) * 255 // (_STOPS - 1)].tolist()
    return _STYLE.format(
        paper=_css(PAPER),
        ink=_css(INK),
        muted=_css(MUTED),
        ground=_css(GROUND),
        even=_css(HATCH[0]),
        odd=_css(HATCH[1]),
        stripe=HATCH_PX,
        stripes=2 * HATCH_PX,
        width=max(1, sheet.columns) * (sheet.box[1] + 6) - 6,
        box_width=sheet.box[1],
        box_height=sheet.box[0],
        ramp=", ".join(_css((red, green, blue)) for red, green, blue in ramp),
    )


def _css(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _mark(mark: Mark) -> str:
    swatch = ""
    if mark.form == "line":
        thick = " thick" if mark.thickness > 1 else ""
        swatch = f'<span class="swatch line{thick}" style="border-color: {_css(mark.colour)}"></span>'
    elif mark.form == "fill":
        swatch = f'<span class="swatch" style="background: {_css(mark.colour)}"></span>'
    elif mark.form == "hatch":
        swatch = '<span class="swatch hatch"></span>'
    return f"<li>{swatch}{_escaped(mark.text)}</li>"


def _tile(tile: Tile) -> str:
    pictures = "".join(_figure(panel) for panel in tile.panels)
    items = " ".join(f"<span><i>{_escaped(name)}</i> {_escaped(value)}</span>" for name, value in tile.items)
    inner = f'<div class="pictures">{pictures}</div>' if pictures else ""
    return f"<article>{inner}<h2>{_escaped(tile.key)}</h2><p>{items}</p></article>"


def _figure(panel: Panel) -> str:
    height, width = panel.pixels.shape[:2]
    image = f'<img width="{width}" height="{height}" alt="" src="{_source(panel)}">'
    name = _escaped(panel.name if panel.scale is not None else f"{panel.name} {panel.size[1]}x{panel.size[0]}")
    caption = f'<span class="name">{name}</span>{_scale(panel)}'
    return f'<figure><div class="place">{image}</div><figcaption>{caption}</figcaption></figure>'


def _scale(panel: Panel) -> str:
    if panel.scale is None:
        return ""
    if panel.scale.low is None or panel.scale.high is None:
        return '<span class="scale">no valid pixel</span>'
    low, high = range_texts(panel.scale.low, panel.scale.high, panel.unit)
    return f'<span class="scale">{low}<span class="bar"></span>{high}</span>'


def _source(panel: Panel) -> str:
    """The picture as a data URI: JPEG, but PNG for depth, whose colours are a scale."""
    suffix = ".jpg" if panel.scale is None else ".png"
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] if panel.scale is None else []
    done, data = cv2.imencode(suffix, cv2.cvtColor(panel.pixels, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise InvalidRequest(
            f"OpenCV cannot encode a picture of {panel.pixels.shape[1]}x{panel.pixels.shape[0]} px; use .png"
        )
    kind = "jpeg" if panel.scale is None else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data.tobytes()).decode('ascii')}"
