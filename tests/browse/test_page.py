"""The page of packer view, in Chromium: every filter, every key, both themes, a million rows, hostile texts."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest

from packer.pack import row_filter
from packer.schema import Field
from tests.support import array_packs as arrays
from tests.support import warm_python

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright and Chromium")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

HOSTILE = "<img src=x onerror=\"document.title='attacked'\">"
SPLIT = Field("split", "number", "number", "int64", (), classes=("train", "val"))
BOX_LABELS = Field("box_labels", "number", "raw:int64", "int64", (None,), classes=("cup", HOSTILE), of="boxes")
FIELDS = [
    arrays.IMAGE, arrays.DEPTH, arrays.MASK, arrays.GRASPS, arrays.BOXES, BOX_LABELS,
    arrays.LABEL, arrays.SCORE, arrays.NOTE, SPLIT,
]  # fmt: skip
MANY = 1_000_000
COUNT = 40
MOST_MS = 120_000  # of a wait: a busy machine is no failure
LISTEN = """
addEventListener("securitypolicyviolation", (event) => console.error("CSP", event.blockedURI));
"""


def sample(number: int) -> dict[str, Any]:
    """Values that depend on the number: 10 dogs, scores 0 to 39, 0 to 3 boxes, every fifth sample in val."""
    image = arrays.plain(60, 80, (number * 5, 90, 160))
    boxes = np.array([[5 + at, 5, 25 + at, 20] for at in range(number % 4)], np.float32).reshape(-1, 4)
    return {
        "key": HOSTILE if number == 7 else f"shelf/{number:05}.png",
        "image": image,
        "depth": np.full((60, 80), 1 + number / 4, np.float32),
        "mask": np.pad(np.full((20, 20), 1, np.uint8), ((20, 20), (30, 30))),
        "grasps": np.array([arrays.RECTANGLE], np.float32),
        "boxes": boxes,
        "box_labels": np.arange(len(boxes), dtype=np.int64) % 2,
        "label": np.int64(number % 4 == 0),
        "score": np.float32(number),
        "note": HOSTILE if number == 7 else "a note",
        "split": np.int64(number % 5 == 0),
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("page")
    samples = [sample(number) for number in range(COUNT)]
    lists = {"skipped": [("lost.png", HOSTILE)], "incomplete": [("shelf/00003.png", "depth: absent")]}
    one = arrays.displayed(root / "one.pack", FIELDS, samples, **lists)
    samples[5] = {**samples[5], "image": arrays.plain(60, 80, (35, 90, 160))}
    fields = [*FIELDS[:-1], replace(SPLIT, classes=("train", "test"))]
    return one, arrays.displayed(root / "other.pack", fields, samples[:-2])


@pytest.fixture(scope="module")
def url(folders: tuple[Path, Path]) -> Iterator[str]:
    program = "from packer.cli import run; run()"
    words = ("view", *map(str, folders), "--no-browser")
    with warm_python.started(program, *words, torch=False) as server:
        yield server.line()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=MOST_MS)
    # in /dev/shm, which is small in a container, a page may find no room: it ends, and some calls never return
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options, timeout=MOST_MS)
        yield browser
        browser.close()


class Tab:
    """The page in a window, and what went wrong in it."""

    def __init__(self, browser: Any, url: str, **window: Any) -> None:
        self.page = browser.new_context(viewport={"width": 1200, "height": 800}, **window).new_page()
        self.page.set_default_timeout(MOST_MS)
        self.problems: list[str] = []
        self.origin = "http://" + urlsplit(url).netloc
        self.page.add_init_script(LISTEN)
        self.page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.is_own(request.url) or self.problems.append(request.url))
        self.page.goto(url)
        self.wait("#total", "all")

    def is_own(self, url: str) -> bool:
        return url.startswith((f"{self.origin}/", f"blob:{self.origin}/"))

    def open(self, **state: Any) -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.origin}/#{urlencode(state)}")

    def wait(self, selector: str, text: str) -> None:
        playwright.expect(self.page.locator(selector).first).to_contain_text(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def state(self, name: str) -> str | None:
        found: str | None = self.page.evaluate("name => new URLSearchParams(location.hash.slice(1)).get(name)", name)
        return found

    def becomes(self, name: str, value: str | None) -> None:
        condition = "([name, value]) => new URLSearchParams(location.hash.slice(1)).get(name) === value"
        self.page.wait_for_function(condition, arg=[name, value])

    def drawing(self, canvas: Any) -> str:
        playwright.expect(canvas).to_have_attribute("style", re.compile("width"))
        pixels: str = canvas.evaluate("(canvas) => canvas.toDataURL()")
        return pixels

    def changes(self, canvas: Any, before: str) -> None:
        condition = "([canvas, before]) => canvas.toDataURL() !== before"
        self.page.wait_for_function(condition, arg=[canvas.element_handle(), before])

    def total(self, number: int) -> None:
        text = f"all {COUNT}" if number == COUNT else f"{number} of {COUNT}"
        playwright.expect(self.page.locator("#total")).to_have_text(text)

    def filter(self, text: str) -> None:
        self.page.locator("#where").fill(text)
        self.press("Enter")

    def section(self, name: str) -> Any:
        section = self.page.locator("#filters > details").filter(has=self.page.get_by_text(name, exact=True)).first
        section.evaluate("(element) => { element.open = true; }")
        return section


FOUND: list[tuple[str, str, str, Any]] = [
    ("1 <= score < 5", "score", "range", {"low": 1, "isAbove": False, "high": 5, "isBelow": True}),
    (
        "score > 1 and label == 'a' and score <= 5.5",
        "score",
        "range",
        {"low": 1, "isAbove": True, "high": 5.5, "isBelow": False},
    ),
    ("len( boxes )==2", "len(boxes)", "range", {"low": 2, "isAbove": False, "high": 2, "isBelow": False}),
    ("label in ('a', \"it's\", 'b\\\\c',)", "label", "values", ["a", "it's", "b\\c"]),
    ("label == 'x and y'", "label", "values", ["x and y"]),
    ("'(or' in key", "key", "search", "(or"),
    ("label == 'a' or score > 2", "label", "values", None),
    ("not label == 'a'", "label", "values", None),
    ("(score > 1) and width > 2", "width", "range", {"low": 2, "isAbove": True}),
    ("any(boxes.width < 4 and box_labels == 'cup') and score > 1", "box_labels", "values", ["cup"]),
    ("any(peaks == 1) and any (boxes.width < 4)", "boxes.width", "range", {"high": 4, "isBelow": True}),
    ("not any(boxes.width < 4)", "boxes.width", "range", None),
    ("any(boxes.width < 4)", "width", "range", None),
]
ROWS = ["boxes.width", "box_labels"]  # names of values of boxes
REPLACED = [
    ("", "score > 3", "score > 3"),
    ("label == 'a' or label == 'b'", "score > 3", "(label == 'a' or label == 'b') and score > 3"),
    ("score > 1 and label == 'a' and score < 5", "score > 3", "score > 3 and label == 'a'"),
    ("score == 1 and not score == 2", "", "not score == 2"),
    ("1 < score < 2", "", ""),
]
REPLACED_IN_ANY = [
    ("score > 1", "boxes.width < 9", "score > 1 and any(boxes.width < 9)"),
    (
        "any(box_labels == 'a' and boxes.width > 1) and score > 1",
        "boxes.width < 9",
        "any(box_labels == 'a' and boxes.width < 9) and score > 1",
    ),
    (
        "any(peaks == 1) and any(box_labels == 'a')",
        "boxes.width < 9",
        "any(peaks == 1) and any(box_labels == 'a' and boxes.width < 9)",
    ),
    (
        "any(boxes.width > 1 or boxes.height > 2)",
        "boxes.width < 9",
        "any((boxes.width > 1 or boxes.height > 2) and boxes.width < 9)",
    ),
    ("any(boxes.width > 1) and score > 1", "", "score > 1"),
]


@pytest.fixture
def tab(browser: Any, url: str) -> Iterator[Tab]:
    tab = Tab(browser, url)
    yield tab
    tab.page.wait_for_load_state("networkidle")
    assert tab.problems == []
    assert tab.page.title() != "attacked"
    tab.page.context.close()


def test_the_first_window_asks_once_for_each_answer(tab: Tab) -> None:
    asked = "performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/api/'))"
    for route, least in (("image", 5), ("histogram", 2)):
        several = f"([route, least]) => {asked}.filter((name) => name.includes(route)).length > least"
        tab.page.wait_for_function(several, arg=[f"/api/{route}", least])
    names = tab.page.evaluate(asked)
    assert sorted(names) == sorted(set(names))


@pytest.mark.full
def test_text_filters_and_their_errors(tab: Tab) -> None:
    for text, number in (("label == 'dog'", 10), ("score >= 30 or len(boxes) == 0", 18), ("split in ('val',)", 8)):
        tab.filter(text)
        tab.total(number)
        assert tab.state("where") == text
    tab.filter("label == 'do")
    tab.wait("#problem", "close the quote")
    playwright.expect(tab.page.locator("#total")).to_have_text("–")
    assert tab.problems and all("400" in problem for problem in tab.problems)
    tab.problems.clear()
    tab.page.locator("#clear").click()
    tab.total(COUNT)
    playwright.expect(tab.page.locator("#problem")).to_be_empty()
    tab.page.go_back()
    tab.becomes("where", "label == 'do")
    tab.page.go_back()
    tab.total(8)
    tab.problems.clear()


@pytest.mark.full
def test_the_panel_reads_and_replaces_conditions(tab: Tab) -> None:
    find = "async (values) => (await import('/page/terms.js')).find(...values) ?? null"
    for text, name, kind, found in FOUND:
        row_filter.parse(text)
        assert tab.page.evaluate(find, [text, name, kind, ROWS if name in ROWS else None]) == found, text
    replace = "async (values) => (await import('/page/terms.js')).replace(...values)"
    for text, term, replaced in REPLACED:
        assert tab.page.evaluate(replace, [text, "score", "range", term]) == replaced, text
    for text, term, replaced in REPLACED_IN_ANY:
        assert tab.page.evaluate(replace, [text, "boxes.width", "range", term, ROWS]) == replaced, text
        row_filter.parse(replaced)


def test_the_panel_writes_the_filter_and_the_filter_moves_the_panel(tab: Tab) -> None:
    where = tab.page.locator("#where")
    classes = tab.section("label")
    classes.get_by_role("button", name="dog").click()
    tab.total(10)
    playwright.expect(where).to_have_value("label == 'dog'")
    classes.get_by_role("button", name="cat").click()
    tab.total(COUNT)
    playwright.expect(where).to_have_value("label in ('dog', 'cat')")
    tab.section("split").get_by_role("button", name="val").click()
    tab.total(8)
    classes.locator("summary button").click()
    playwright.expect(where).to_have_value("split == 'val'")
    tab.filter("12 <= score <= 20 and split == 'train'")
    tab.total(7)
    score = tab.section("score")
    playwright.expect(score.locator("input").first).to_have_value("12")
    playwright.expect(tab.section("split").locator("[aria-pressed=true]")).to_contain_text("train")
    score.locator("input").last.fill("15")
    tab.press("Enter")
    tab.becomes("where", "12 <= score <= 15 and split == 'train'")
    score.get_by_role("button", name="≤").last.click()
    tab.becomes("where", "12 <= score < 15 and split == 'train'")
    playwright.expect(score.get_by_role("button", name="<")).to_have_count(1)
    tab.filter("")
    tab.section("key").locator("input").fill("onerror")
    tab.press("Escape")
    tab.becomes("where", "'onerror' in key")
    tab.total(1)
    playwright.expect(tab.section("key").locator("input")).to_have_value("onerror")


def test_a_class_of_boxes_and_a_range_of_their_width_are_one_condition(tab: Tab) -> None:
    labels, widths = tab.section("box_labels"), tab.section("boxes.height")
    labels.get_by_role("button", name="cup").click()
    tab.becomes("where", "any(box_labels == 'cup')")
    tab.total(30)
    playwright.expect(labels.get_by_role("button", name="cup")).to_contain_text("40")  # boxes
    widths.locator("input").last.fill("20")
    tab.press("Enter")
    tab.becomes("where", "any(box_labels == 'cup' and boxes.height <= 20)")
    tab.section("label").get_by_role("button", name="dog").click()
    tab.total(0)
    tab.filter("any(boxes.width < 30 and box_labels == 'cup') and score >= 30")
    playwright.expect(tab.section("boxes.width").locator("input").last).to_have_value("30")
    labels.locator("summary button").click()
    tab.becomes("where", "any(boxes.width < 30) and score >= 30")
    tab.filter("boxes.width < 30")
    tab.wait("#problem", "write any(boxes.width < 30)")
    tab.problems.clear()


@pytest.mark.full
def test_the_grid_is_sorted(tab: Tab) -> None:
    tab.page.get_by_label("Sort by").select_option("score")
    tab.wait("#tile-0", "0 · 80 × 60")
    tab.page.get_by_label("Order").select_option("descending")
    tab.becomes("desc", "1")
    tab.wait("#tile-0", "39 · 80 × 60")
    tab.page.locator("#to-copy").click()
    tab.wait("#copy-note", f"{COUNT} keys")
    assert tab.page.locator("textarea").first.input_value().startswith("shelf/00039.png\nshelf/00038.png\n")
    tab.page.get_by_label("first").fill("2")
    tab.wait("#copy-note", f"2 of {COUNT} keys")
    assert tab.page.locator("textarea").first.input_value() == "shelf/00039.png\nshelf/00038.png\n"
    tab.press("Escape")
    tab.page.get_by_label("Order").select_option("ascending")
    tab.wait("#tile-0", "shelf/00000.png")
    tab.page.get_by_label("Sort by").select_option("key")
    tab.becomes("sort", "key")
    assert tab.state("desc") is None
    tab.page.get_by_label("Size of a tile").fill("400")
    tab.becomes("size", "400")


@pytest.mark.full
def test_a_brushed_histogram_filters(tab: Tab) -> None:
    bars = tab.section("score").locator(".bars")
    playwright.expect(bars.locator("span")).to_have_count(COUNT)
    box = bars.bounding_box()
    tab.page.mouse.move(box["x"] + 1, box["y"] + 20)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.24, box["y"] + 20, steps=3)
    tab.page.mouse.up()
    tab.becomes("where", "0 <= score < 9.75")
    tab.total(10)
    playwright.expect(bars.locator(".marked")).to_have_count(10)
    boxes = tab.section("len(boxes)").locator(".bars")
    playwright.expect(boxes.locator("span")).to_have_count(4)
    boxes.locator("span").last.click()
    tab.becomes("where", "0 <= score < 9.75 and len(boxes) == 3")
    tab.total(2)


@pytest.mark.full
def test_incomplete_and_skipped_samples(tab: Tab) -> None:
    section = tab.section("incomplete")
    tab.becomes("toggled", "incomplete")
    bars = section.locator(".bars span")
    playwright.expect(bars).to_have_count(2)
    bars.last.click()
    tab.becomes("where", "incomplete == 1")
    tab.total(1)
    tab.wait(".tile", "incomplete")
    tab.page.reload()
    playwright.expect(bars).to_have_count(2)  # the section is open
    tab.page.locator(".tile").first.click()
    tab.wait("#sample h2", "depth: absent")
    tab.press("g")
    tab.wait("#filters", HOSTILE)


def test_every_key(tab: Tab) -> None:
    page = tab.page
    steps = {"j": "1", "ArrowRight": "2", "k": "1", "ArrowLeft": None, "End": str(COUNT - 1), "Home": None}
    for key, place in steps.items():
        tab.press(key)
        tab.becomes("at", place)
    tab.press("ArrowDown")
    columns = int(tab.state("at") or 0)
    assert columns > 2
    tab.press("PageDown")
    further = "least => Number(new URLSearchParams(location.hash.slice(1)).get('at')) > least"
    tab.page.wait_for_function(further, arg=2 * columns)
    tab.press("PageUp", "ArrowUp")
    tab.becomes("at", None)
    for number, name in enumerate(("mask", "grasps", "boxes"), 1):
        tab.press(str(number))
        tab.becomes("off", name)
        tab.press(str(number))
        tab.becomes("off", None)
    tab.press("/", *"score<3", "Enter", "Escape")
    tab.total(3)
    tab.press("f")
    playwright.expect(page.locator("#filters")).to_be_hidden()
    tab.press("?")
    playwright.expect(page.locator("#help")).to_be_visible()
    tab.press("Escape")
    playwright.expect(page.locator("#help")).to_be_hidden()
    tab.press("Enter")
    tab.wait("#sample h2", "shelf/00000.png")
    tab.press("j")
    tab.wait("#sample h2", "shelf/00001.png")
    tab.wait("#place", "2 of 3")
    tab.press("k")
    tab.wait("#sample h2", "shelf/00000.png")
    tab.press("Escape")
    playwright.expect(page.locator("#grid")).to_be_visible()
    tab.press("c")
    tab.wait("#compare", "1 of 38 differ")
    tab.press("g")
    tab.becomes("view", None)


def test_a_sample_shows_its_values(tab: Tab) -> None:
    tab.open(view="sample", row=7)
    tab.wait("#sample h2", HOSTILE)
    tab.wait("#sample aside", HOSTILE)
    canvases = tab.page.locator(".panel canvas")
    playwright.expect(canvases).to_have_count(3)
    before = [tab.drawing(canvas) for canvas in canvases.all()][0]
    tab.page.get_by_label("depth of").hover()
    tab.wait(".panel:nth-child(2) output", "2.7500")
    tab.page.locator(".shapes li").first.hover()
    tab.changes(canvases.first, before)
    tab.page.get_by_role("button", name="As trained").click()
    tab.page.get_by_label("geometry").fill("CenterCrop(32)")
    tab.press("Enter")
    tab.becomes("geometry", "CenterCrop(32)")
    tab.wait("aside details:nth-child(2) li", "-19.0, -9.0  20.0 × 15.0")  # 24 and 14 px of 80x60 are cut
    tab.page.get_by_label("seed").fill("1")
    tab.press("Enter")
    tab.becomes("seed", "1")
    tab.page.get_by_role("button", name="Stored").click()
    tab.becomes("show", None)


@pytest.mark.full
def test_a_kept_file_is_explained_where_there_is_none(tab: Tab) -> None:
    tab.open(view="sample", row=1, show="original")
    tab.wait(".panel .failure", "does not keep files")
    tab.page.wait_for_load_state("networkidle")
    assert all("404" in problem for problem in tab.problems)
    tab.problems.clear()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mode", ["side", "flicker", "difference"])
def test_a_comparison(tab: Tab, mode: str) -> None:
    tab.open(view="compare", row=5, mode=mode)
    tab.wait("#compare aside", "1 of 38 differ")
    tab.wait("#compare aside", "2 only in one.pack")
    tab.wait("#compare aside", "split: other classes")
    tab.wait("#compare ol .pair", "image")
    tab.wait("figure", "4\u2009800 px differ (100.00 %), median 10, largest 10")
    tab.wait(".columns .note", "absolute difference" if mode == "difference" else "one.pack")
    tab.wait(".field", "image")
    tab.open(view="compare", row=6, mode=mode)
    tab.wait("figure", "equal pixels")
    tab.page.locator(f"button[value={mode}]").click()
    tab.page.locator("#compare ol .pair").first.click()
    tab.wait("figure", "px differ")
    tab.press("j", "k")
    tab.becomes("row", "5")


@pytest.mark.full
def test_the_differences_in_one_field(tab: Tab) -> None:
    tab.open(view="compare", row=5)
    cause = tab.page.locator("#compare .pair.bar")
    playwright.expect(cause).to_have_text(["in any field1", "image1"])
    cause.last.click()
    tab.becomes("field", "image")
    playwright.expect(cause.last).to_have_attribute("aria-pressed", "true")
    cause.first.click()
    tab.becomes("field", None)


@pytest.mark.full
def test_the_keys_of_one_pack_and_the_differences(tab: Tab) -> None:
    tab.open(view="compare", row=5)
    tab.wait("#compare aside", "1 of 38 differ")
    tab.page.locator("#to-copy").click()
    tab.wait("#copy-note", "1 keys")
    assert tab.page.locator("textarea").first.input_value() == "shelf/00005.png\n"
    tab.press("Escape")
    canvas = tab.page.get_by_label("image of one.pack")
    before = tab.drawing(canvas)
    tab.press("3")
    tab.becomes("off", "boxes")
    tab.changes(canvas, before)
    tab.page.get_by_text("2 only in one.pack").click()
    tab.page.get_by_role("button", name="shelf/00039.png").click()
    tab.wait("#sample h2", "shelf/00039.png")
    tab.becomes("where", "key == 'shelf/00039.png'")
    tab.wait("#place", "1 of 1")


@pytest.mark.full
def test_one_image_is_enlarged(tab: Tab) -> None:
    tab.open(view="sample", row=1)
    canvas = tab.page.get_by_label("image of")
    playwright.expect(canvas).to_have_attribute("style", re.compile("width"))
    before = canvas.bounding_box()["width"]
    tab.page.get_by_role("button", name="enlarge").first.click()
    tab.page.wait_for_function(
        "before => document.querySelector('.panel canvas').clientWidth > 1.3 * before", arg=before
    )


def test_what_is_copied(tab: Tab) -> None:
    tab.filter("label == 'dog' and score > 30")
    tab.total(2)
    tab.page.locator("#to-copy").click()
    tab.wait("#copy-note", "2 keys")
    keys, command, code = (text.input_value() for text in tab.page.locator("textarea").all())
    assert keys == "shelf/00032.png\nshelf/00036.png\n"
    assert command.startswith("packer collect ") and "--where" in command and "\npacker ls " in command
    assert code.startswith("packer.open(") and ".where(" in code
    tab.page.locator("#copy section button").first.click()
    playwright.expect(tab.page.locator("#copy section button").first).not_to_have_text("Copy")
    tab.press("Escape")
    tab.page.locator("#to-copy").click()
    playwright.expect(tab.page.locator("#copy section button").first).to_have_text("Copy")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)])
def test_themes_and_narrow_windows(browser: Any, url: str, scheme: str, width: int) -> None:
    tab = Tab(browser, url, color_scheme=scheme)
    tab.page.set_viewport_size({"width": width, "height": 800})
    paper = "(element) => getComputedStyle(element).backgroundColor"
    assert (tab.page.locator("header").evaluate(paper) == "rgb(255, 255, 255)") == (scheme == "light")
    for view in ("grid", "sample", "compare"):
        tab.open(view=view)
        playwright.expect(tab.page.locator(f"#{view}")).to_be_visible()
        overflow = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        tab.page.wait_for_function(f"({overflow})() === 0")
    assert tab.problems == []
    tab.page.context.close()


@pytest.mark.full
def test_a_million_rows_scroll_from_end_to_end(tab: Tab) -> None:
    """The server has few rows. Here it answers for a million: row r is row r % COUNT."""

    def answer(route: Any) -> None:
        parts = urlsplit(route.request.url)
        values = {name: value for name, (value,) in parse_qs(parts.query, keep_blank_values=True).items()}
        if parts.path == "/api/rows":
            start, count = int(values["offset"]), int(values["count"])
            route.fulfill(json={"total": MANY, "rows": list(range(start, min(MANY, start + count)))})
        elif "rows" in values:
            rows = [int(row) for row in values["rows"].split(",")]
            found = route.fetch(url=f"{tab.origin}/api/overlays?p=0&rows=0", max_retries=3).json()["samples"][0]
            route.fulfill(json={"samples": [{**found, "row": row, "key": f"row {row}"} for row in rows]})
        else:
            query = urlencode({**values, "row": int(values["row"]) % COUNT})
            route.fulfill(response=route.fetch(url=f"{tab.origin}{parts.path}?{query}", max_retries=3))

    for name in ("rows", "overlays", "image"):
        tab.page.route(re.compile(f"/api/{name}[?]"), answer)
    tab.open()
    tab.wait("#tiles", "row 0")
    grid = tab.page.locator("#grid")
    assert tab.page.locator("#spacer").evaluate("(element) => element.offsetHeight") == 10_000_000
    for share in (0.25, 0.5, 0.75):
        grid.evaluate("(grid, share) => { grid.scrollTop = share * (grid.scrollHeight - grid.clientHeight); }", share)
        tab.page.wait_for_function(
            "share => Math.abs(Number(new URLSearchParams(location.hash.slice(1)).get('at')) / 1e6 - share) < 0.001",
            arg=share,
        )
        assert tab.page.locator(".tile").count() < 100
    place = int(tab.state("at") or 0)
    grid.hover()
    tab.page.mouse.wheel(0, 400)
    tab.page.wait_for_function(
        "place => Number(new URLSearchParams(location.hash.slice(1)).get('at')) > place", arg=place
    )
    assert int(tab.state("at") or 0) - place < 100
    tab.press("End")
    tab.wait("#tiles", f"row {MANY - 1}")
    playwright.expect(tab.page.locator(".tile").filter(has_text=f"row {MANY - 1}")).to_be_in_viewport()
    grid.evaluate("(grid) => { grid.scrollTop = 0; }")
    tab.press("Home")
    playwright.expect(tab.page.locator("#tile-0")).to_be_in_viewport()
    tab.page.unroute_all(behavior="wait")
