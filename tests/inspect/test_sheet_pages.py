"""Sheets as PNG and as HTML: nothing is cut, everything stands in its place, and no name of a pack does anything."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest

from packer.errors import InvalidRequest, UnknownKey, printable
from packer.files.terminal_output import shortened
from packer.inspect import palette, png_sheet
from packer.inspect.contact_sheet import Item, Row, Stack, Text, choose, layout
from packer.inspect.html_sheet import draw_html
from packer.inspect.png_sheet import GAP_PX, MARGIN_PX, broken, draw_png
from packer.pack.reader import Pack
from packer.schema import Field
from tests.support.array_packs import (
    DEPTH,
    GRASPS,
    IMAGE,
    LABEL,
    NOTE,
    RECTANGLE,
    SCORE,
    decoded,
    displayed,
    plain,
    sheet_of,
)

HOSTILE = (
    '"><script>alert(1)</script>',
    "<img src=x onerror=alert(1)>",
    "</style></h2><svg/onload=alert(1)>",
    "' onclick='x",
    "{title}{0}%s&lt;",
    "\x1b[31mred\x1b]0;title\x07",
    "a\u202egnp.exe",
    "new\nline\tand\0nul",
    "caf\u00e9/\u4e2d\u6587/\U0001f600",
    "\udcff\udc80 no UTF-8",
    "W" * 5000,
    "javascript:alert(1)//http://x",
)


def hostile_pack(folder: Path) -> Path:
    """A pack whose keys, texts and classes are hostile."""
    label = Field("label", "number", "number", "int64", (), classes=tuple(text.replace("\0", "") for text in HOSTILE))
    samples = [
        {"key": f"{number}{text}", "image": plain(30, 40), "label": number, "note": text}
        for number, text in enumerate(HOSTILE)
    ]
    return displayed(folder, [IMAGE, label, NOTE], samples)


@pytest.fixture
def grasping(tmp_path: Path) -> Path:
    """Four samples with image, depth and a grasp."""
    depth = np.tile(np.linspace(1, 3, 80, dtype=np.float32), (60, 1))
    samples = [{"image": plain(60, 80), "depth": depth, "grasps": np.float32([RECTANGLE])} for _ in range(4)]
    return displayed(tmp_path / "grasping.pack", [IMAGE, DEPTH, GRASPS], samples)


# ---- PNG


def test_every_image_stands_at_its_place_pixel_by_pixel(grasping: Path) -> None:
    sheet = sheet_of(grasping, width=160)
    page = decoded(draw_png(sheet))
    step = 2 * 160 + 6 + GAP_PX
    top = next(
        y for y in range(len(page)) if np.array_equal(page[y : y + 1, 24:184], sheet.tiles[0].panels[0].pixels[:1])
    )
    for column in (0, 1):
        left = MARGIN_PX + column * step
        for number, panel in enumerate(sheet.tiles[column].panels):
            x = left + number * 166
            assert np.array_equal(page[top : top + 120, x : x + 160], panel.pixels)
    assert page.shape[1] == 2 * MARGIN_PX + 2 * step - GAP_PX


def margins_are_empty(page: np.ndarray) -> bool:
    """Whether nothing reaches into the margin of a sheet."""
    edges = (page[:MARGIN_PX], page[-MARGIN_PX:], page[:, :MARGIN_PX], page[:, -MARGIN_PX:])
    return all((edge == 255).all() for edge in edges)


def test_no_text_is_cut_and_none_runs_into_its_neighbor(tmp_path: Path) -> None:
    pack = hostile_pack(tmp_path / ("long name " * 12))
    page = decoded(draw_png(sheet_of(pack, width=120)))
    assert margins_are_empty(page)
    top = MARGIN_PX + 60  # below title and legend
    across = (page.shape[1] - 2 * MARGIN_PX + GAP_PX) // (120 + GAP_PX)
    assert across > 1
    for column in range(1, across):
        right = MARGIN_PX + column * (120 + GAP_PX)
        assert (page[top:, right - GAP_PX + 1 : right - 1] == 255).all()


def words(*items: Item) -> list[str]:
    """The texts of items, in order."""
    found: list[str] = []
    for item in items:
        found += [item.text] if isinstance(item, Text) else []
        found += words(*item.items) if isinstance(item, Row | Stack) else []
    return found


def test_title_legend_range_and_captions_are_laid_out(grasping: Path) -> None:
    page = layout(sheet_of(grasping, count=1, width=240))
    assert words(page.title, page.legend) == [
        "grasping.pack: 1 of 4 samples, format lmdb",
        "grasps: opening",
        "grasps: jaw",
        "depth colors: 1st to 99th percentile of each image",
    ]
    assert words(*page.tiles) == ["image 80x60", "depth", "1.00", "3.00 m", "0", "grasps", "1"]


def test_scale_and_legend_have_the_colors_of_what_they_explain(grasping: Path) -> None:
    page = decoded(draw_png(sheet_of(grasping, count=1, width=240)))
    yellow, purple = (253, 231, 37), (68, 1, 84)  # the ends of viridis
    rows = [y for y in range(len(page)) if (page[y] == yellow).all(axis=1).any()]
    below = [y for y in rows if not (page[y, MARGIN_PX : MARGIN_PX + 200] != 255).any(axis=1).all()]
    assert len(below) == 7
    assert (page[below[0]] == purple).all(axis=1).any()
    page = decoded(draw_png(sheet_of(grasping, count=1)))
    legend = page[MARGIN_PX + 28 : MARGIN_PX + 44].reshape(-1, 3)
    for color, thickness in zip(palette.SHAPES["grasps"][0], (1, 2), strict=True):
        assert (legend == color).all(axis=1).sum() == 18 * thickness


def test_a_sheet_too_large_for_a_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png_sheet, "_MOST_PIXELS", 100_000)
    pack = displayed(tmp_path / "pack", [IMAGE], [{"image": plain(8, 8)}])
    with pytest.raises(InvalidRequest, match="too large"):
        draw_png(sheet_of(pack, width=1000))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 24])
def test_any_number_of_samples_makes_an_aligned_sheet(tmp_path: Path, count: int) -> None:
    pack = displayed(tmp_path / "pack", [IMAGE, SCORE], [{"image": plain(30, 40), "score": 0.5}] * count)
    page = decoded(draw_png(sheet_of(pack, width=64)))
    assert margins_are_empty(page)
    gray = (page == (130, 131, 132)).all(axis=2)
    assert gray.sum() == count * 48 * 64
    starts = np.flatnonzero(np.diff(gray.any(axis=0).astype(int)) == 1) + 1
    assert (np.diff(starts) == 64 + GAP_PX).all()
    assert starts[0] == MARGIN_PX


# ---- HTML


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


ALLOWED = {
    **{tag: set() for tag in ("head", "title", "style", "body", "h1", "main", "h2", "i", "b")},
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "div": {"class", "style"},
    "img": {"width", "height", "alt", "src"},
}


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    folder = hostile_pack(tmp_path / "<b>pack & more")
    text = draw_html(sheet_of(folder)).decode()
    page = Page(text)
    for tag, attributes in page.tags:
        assert set(attributes) <= ALLOWED[tag], (tag, attributes)
        assert "url" not in (attributes.get("style") or "")
    for number, name in enumerate(HOSTILE):
        assert shortened(f"{number}{name}") in page.texts
        assert any(shortened(name) in data for data in page.texts)
    assert page.texts.count("<b>pack & more: 12 of 12 samples, format lmdb") == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\ud800-\udfff]", text)


def test_a_page_holds_its_images_and_fetches_nothing(grasping: Path) -> None:
    sheet = sheet_of(grasping, width=160)
    text = draw_html(sheet).decode()
    page = Page(text)
    sources = [str(attributes["src"]) for tag, attributes in page.tags if tag == "img"]
    assert len(sources) == 2 + 4 * 3  # swatches of the legend; image, depth and the colors of its scale
    assert {source[: source.index(",")] for source in sources} == {"data:image/jpeg;base64", "data:image/png;base64"}
    sources = sources[2:]
    depth = decoded(base64.b64decode(sources[1].partition(",")[2]))
    assert np.array_equal(depth, sheet.tiles[0].panels[1].pixels)
    photo = decoded(base64.b64decode(sources[0].partition(",")[2]))
    assert cv2.PSNR(photo, np.ascontiguousarray(sheet.tiles[0].panels[0].pixels)) > 30
    without = re.sub(r"data:image/[a-z]+;base64,[A-Za-z0-9+/=]+", "", text)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in without
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|\bon\w+=", without)
    assert page.texts.count("1.00") == page.texts.count("3.00 m") == 4


def test_a_page_has_the_words_of_all_that_is_special(tmp_path: Path) -> None:
    empty = np.full((6, 8), -1.0, np.float32)
    samples = [{"image": plain(6, 8), "depth": empty, "label": 1, "score": 0.125}]
    sheet = sheet_of(displayed(tmp_path / "pack", [IMAGE, DEPTH, LABEL, SCORE], samples))
    texts = Page(draw_html(sheet).decode()).texts
    for wanted in ("no valid pixel", "dog", "0.125", "100.0%", "no depth", "image 8x6", "depth missing"):
        assert any(wanted == text.strip() for text in texts), wanted


# ---- text


def test_what_cannot_be_seen_is_shown_as_an_escape() -> None:
    assert printable("a\x1b[0m\n\u202e\udcff\u2028\u00ad") == "a\\x1b[0m\\n\\u202e\\udcff\\u2028\\xad"
    assert printable("caf\u00e9 \u4e2d") == "caf\u00e9 \u4e2d"
    assert shortened("x" * 1000) == "x" * 200 + "..." + "x" * 200


def test_text_is_broken_where_it_may_be() -> None:
    for text, room, lines in (
        ("abcdefghij", 10, ["abcdefghij"]),
        ("abcdefghijk", 10, ["abcdefghij", "k"]),
        ("abc", 0, ["a", "b", "c"]),
        ("folder/name_of_it.png", 12, ["folder/name_", "of_it.png"]),
        ("folder/name_of_it.png", 8, ["folder/", "name_of_", "it.png"]),
        ("aaaaaaaaaa", 4, ["aaaa", "aaaa", "aa"]),
        ("", 12, [""]),
    ):
        assert broken(text, room, len) == lines


# ---- which samples


def test_samples_are_spread_evenly_drawn_or_named(tmp_path: Path) -> None:
    opened = Pack(displayed(tmp_path / "pack", [NOTE], [{"note": ""}] * 100))
    assert choose(opened, count=4) == [0, 25, 50, 75]
    assert choose(opened, count=200) == list(range(100))
    drawn = choose(opened, count=4, seed=7)
    assert drawn == choose(opened, count=4, seed=7)
    assert drawn != choose(opened, count=4, seed=8)
    assert [index // 25 for index in drawn] == [0, 1, 2, 3]
    assert choose(opened, count=4, keys=["31", "2", "31"]) == [31, 2, 31]
    with pytest.raises(UnknownKey, match="key 'nine'"):
        choose(opened, count=4, keys=["nine"])
    opened.close()


def test_an_empty_pack_has_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no sample"):
        sheet_of(displayed(tmp_path / "pack", [IMAGE], []))
