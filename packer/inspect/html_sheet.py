"""HTML sheet: a contact sheet as one page, without scripts. It contains its images as PNG and JPEG.

Names and values of a pack may be hostile: each is printable and escaped, and appears between tags only, never in an
attribute. A content security policy allows inline styles and images only.
"""

import base64
import html

from packer.inspect.contact_sheet import Image, Item, Row, Sheet, Stack, Style, Text, layout
from packer.inspect.palette import INK, MUTED, PAPER, as_hex
from packer.inspect.value_drawing import jpeg_bytes, png_bytes

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ margin: 24px; background: {paper}; color: {ink}; font: 13px/1.4 system-ui, sans-serif; }}
h1 {{ font-size: 19px; margin: 0 0 6px; }}
h2 {{ font-size: 14px; margin: 2px 0 0; }}
h1, h2, i, b {{ overflow-wrap: anywhere; min-width: 0; }}
i {{ color: {muted}; font-style: normal; }}
b {{ font-weight: normal; }}
img {{ display: block; flex: none; }}
.row {{ display: flex; flex-wrap: wrap; align-items: center; }}
.column {{ align-self: flex-start; }}
.spread {{ justify-content: space-between; }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, {width}px); gap: 20px; margin-top: 20px; }}
</style>
</head>
<body>
{heading}
{legend}
<main>
{tiles}
</main>
</body>
</html>
"""

_TAGS: dict[Style, str] = {"title": "h1", "key": "h2", "label": "i", "value": "b"}


def draw_html(sheet: Sheet) -> bytes:
    """Return the sheet as an HTML file, UTF-8."""
    page = layout(sheet)
    text = _PAGE.format(
        title=html.escape(page.title.text),
        paper=as_hex(PAPER),
        ink=as_hex(INK),
        muted=as_hex(MUTED),
        width=page.tile_width_px,
        heading=_markup(page.title),
        legend=_markup(page.legend),
        tiles="\n".join(map(_markup, page.tiles)),
    )
    return text.encode()


def _markup(item: Item) -> str:
    match item:
        case Text():
            tag = _TAGS[item.style]
            return f"<{tag}>{html.escape(item.text)}</{tag}>"
        case Image():
            kind, data = ("jpeg", jpeg_bytes(item.pixels)) if item.is_photo else ("png", png_bytes(item.pixels))
            height, width = item.pixels.shape[:2]
            source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
            return f'<img width="{width}" height="{height}" alt="" src="{source}">'
        case Stack():
            return f'<div class="column" style="width: {item.width_px}px">{"".join(map(_markup, item.items))}</div>'
        case Row():
            classes = "row" + " spread" * item.spread
            inner = "".join(map(_markup, item.items))
            return f'<div class="{classes}" style="column-gap: {item.gap_px}px">{inner}</div>'
