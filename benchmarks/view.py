"""packer view over many samples: first grid, filters, histograms, sorting, thumbnails, comparison, memory.

With playwright and Chromium, it also measures the page, until all tiles of the window are drawn.
"""

import json
import re
import shutil
import signal
import statistics
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import base
import numpy as np

from packer import __version__, codecs
from packer.formats.lmdb import Writer
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from packer.pack.sample_index import ColumnEntries, PartIndex, merge
from packer.schema import Field, Schema

CONNECTIONS = 6  # of a browser to one server
TILES = 60  # of the first grid
THUMBNAILS = 10_000
WINDOW = {"width": 1200, "height": 800}
DRAWN = """() => {
  const isDrawn = (tile) => {
    const canvas = tile.querySelector("canvas");
    const pixel = canvas.getContext("2d").getImageData(canvas.width / 2, canvas.height / 2, 1, 1);
    return tile.getAttribute("aria-label") && pixel.data[3] > 0;
  };
  const tiles = [...document.querySelectorAll(".tile")];
  const seen = tiles.filter((tile) => tile.getBoundingClientRect().top < innerHeight);
  return seen.length > 0 && seen.every(isDrawn) && performance.now();
}"""
FILTERS = {
    "class": "label == 'class 3'",
    "range": "score > 0.25 and score <= 0.3",
    "class and range": "label in ('class 1', 'class 2') and score > 0.5",
    "text": "'red' in caption",
    "key": "'12345' in key",
    "class and width of a box": "any(box_labels == 'class 3' and boxes.width < 40)",
}
BOXES = 7  # of a sample, on average


def build(folder: Path, samples: int) -> None:
    """A pack of raw images of 8 x 8 px with a class, a number, a text, and boxes with classes."""
    classes = tuple(f"class {number}" for number in range(100))
    schema = codecs.described(
        Schema(
            (
                Field("key", "text", "text"),
                Field("image", "image", "raw", "uint8", (8, 8, 3)),
                Field("label", "number", "number", "int64", (), classes=classes),
                Field("score", "number", "number", "float32", ()),
                Field("caption", "text", "text"),
                Field("boxes", "boxes", "raw:float32", "float32", (None, 4)),
                Field("box_labels", "number", "raw:int64", "int64", (None,), classes=classes, of="boxes"),
            )
        )
    )
    random = np.random.default_rng(0)
    boxes = random.random((4096 * 4, 4), np.float32) * 300
    boxes[:, 2:] += boxes[:, :2]
    labels = random.integers(0, len(classes), len(boxes))
    counts = random.poisson(BOXES, samples).tolist()
    images = [image.tobytes() for image in np.random.default_rng(0).integers(0, 256, (4096, 192), dtype=np.uint8)]
    folder.mkdir()
    piece, columns, part = PartIndex(schema), ColumnEntries(schema), folder / "part-00000.lmdb"
    with Writer(part, schema, payload_bytes=samples * 256) as writer:
        for index in range(samples):
            number = index * 2654435761 % (1 << 32)
            rows = slice(number % 16_000, number % 16_000 + counts[index])
            record = {
                "key": b"sample/%08d" % index,
                "image": images[index % len(images)],
                "label": (number % 100).to_bytes(8, "little"),
                "score": struct.pack("<f", number / (1 << 32)),
                "caption": b"a small %s thing %d" % ((b"red", b"green", b"blue")[number % 3], index),
                "boxes": boxes[rows].tobytes(),
                "box_labels": labels[rows].tobytes(),
            }
            writer.write(record)
            entries = {file: entry for name in record for file, entry in columns.of(name, record[name]).items()}
            piece.add([zlib.crc32(value) for value in record.values()], entries)
        writer.finish()
    piece.save(folder.with_name("piece"))
    index = merge([folder.with_name("piece")], folder, schema)
    parts = (Part(part.name, samples, part.stat().st_size, "0" * 64),)
    manifest = Manifest("lmdb", samples, schema, {}, {"kind": "none"}, parts, index, f"packer {__version__}").sealed()
    (folder / manifests.NAME).write_bytes(manifest.to_bytes())


class Server:
    """A server that runs, and its answers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.pid = process.pid
        self.url = process.stdout.readline().strip()
        url = urlsplit(self.url)
        self.address = url.netloc
        with closing(HTTPConnection(self.address)) as connection:
            connection.request("GET", f"/?{url.query}")
            self.cookie = (connection.getresponse().getheader("Set-Cookie") or "").partition(";")[0]
        self.connection = HTTPConnection(self.address)

    def get(self, route: str, connection: HTTPConnection | None = None, **values: Any) -> bytes:
        connection = connection or self.connection
        connection.request("GET", f"/api/{route}?{urlencode(values)}", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{route} {values}: {answer.status} {content.decode()}")
        return content

    def images(self, rows: list[int]) -> None:
        """Thumbnails over the connections of a browser."""

        def some(number: int) -> None:
            with closing(HTTPConnection(self.address)) as connection:
                for row in rows[number::CONNECTIONS]:
                    self.get("image", connection, row=row, field="image", width=160)

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(some, range(CONNECTIONS)))

    def megabytes(self) -> dict[str, float]:
        """Anonymous memory belongs to the process. Rss also counts pages of mapped files, which are the page cache."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        found = dict(re.findall(r"^(Rss|Anonymous):\s+(\d+) kB", text, re.MULTILINE))
        return {name: int(kilobytes) / 1024 for name, kilobytes in found.items()}


@contextmanager
def served(*packs: Path) -> Iterator[Server]:
    command = [*base.PACKER, "view", *map(str, packs), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.send_signal(signal.SIGINT)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or None where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield None
        return
    if (path := shutil.which("chromium")) is None:
        yield None
        return
    with sync_playwright() as started:
        yield started.chromium.launch(executable_path=path, args=["--no-sandbox"])


def main() -> None:
    args = base.arguments(__doc__ or "", samples=1_000_000, rounds=5)
    times: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}

    def timed(name: str, route: str, **values: Any) -> None:
        started = time.perf_counter()
        server.get(route, **values)
        times.setdefault(name, []).append((time.perf_counter() - started) * 1e3)

    def weighed(name: str) -> None:
        for kind, found in server.megabytes().items():
            memory.setdefault(f"{name}, {kind}", []).append(found)

    with base.scratch() as scratch, chromium() as browser:
        pack = scratch / "many.pack"
        build(pack, args.samples)
        for _ in range(args.rounds):
            started = time.perf_counter()
            with served(pack) as server:
                weighed("at the start")
                opened = time.perf_counter()
                rows = json.loads(server.get("packs") and server.get("rows", count=TILES))["rows"]
                server.get("overlays", rows=",".join(map(str, rows)))
                server.images(rows)
                ended = time.perf_counter()
                times.setdefault("first grid, from the URL on", []).append((ended - opened) * 1e3)
                times.setdefault("first grid, from the command on", []).append((ended - started) * 1e3)
                for name, where in FILTERS.items():
                    timed(f"filter: {name}", "rows", where=where)
                    timed(f"its histogram: {name}", "histogram", where=where, column="score")
                for column in ("boxes.width", "box_labels"):
                    timed(
                        f"histogram of {column}", "histogram", where=FILTERS["class and width of a box"], column=column
                    )
                timed("sort by a number", "rows", sort="score")
                timed("sort by key, descending", "rows", sort="key", desc=1)
                weighed("after filters")
                started = time.perf_counter()
                server.images([row * 7919 % args.samples for row in range(THUMBNAILS)])
                times.setdefault(f"{THUMBNAILS} thumbnails", []).append((time.perf_counter() - started) * 1e3)
                weighed(f"after {THUMBNAILS} thumbnails")
            with served(pack, pack) as server:
                timed("comparison with itself", "differences")
                weighed("after a comparison")
            if browser is not None:
                with served(pack) as server, closing(browser.new_context(viewport=WINDOW)) as context:
                    page = context.new_page()
                    page.goto(server.url)
                    drawn = page.wait_for_function(DRAWN, polling="raf").json_value()
                    times.setdefault("first grid in Chromium", []).append(drawn)
    table = {name: base.spread(each, "ms", 1) for name, each in times.items()}
    table |= {f"memory {name}": base.spread(each, "MB", 0) for name, each in memory.items()}
    figures = {f"{name} ms": statistics.median(each) for name, each in times.items()}
    figures |= {f"memory {name} MB": statistics.median(each) for name, each in memory.items()}
    title = f"packer view over {args.samples} samples  (wanted: grid < 1 s, filter < 100 ms, Anonymous < 300 MB)"
    base.report(title, table, figures, args)


if __name__ == "__main__":
    main()
