"""Lists of samples and tables that users bring: splits, Cornell's z.txt, sidecars of JSON and text, typed options."""

from collections.abc import Iterator

from packer.sources._extend import sidecars, splits
from packer.sources._text_value_parsers import text_value
from packer.sources.grasp import cornell
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.TEXT, *words.JSON, b"# ", b"=", b":depth", b"./")


def seeds() -> Iterator[bytes]:
    yield b"# train\ncat/a.jpg\r\n./dog/b.jpg\n"
    yield b"100 7 cup 3\n101 7 cup 3\n102 8 pen 1\n"
    yield b'{"a": [1, 2.5, null, "x"]}'
    yield b"depth=_d.tiff:depth"
    yield b"mask=masks/{stem}.png:mask"
    yield b"train=0.9"
    yield b"1 2 30.5 40\n\n5,6,7,8\n"


def check(data: bytes) -> None:
    folder = scratch.folder()
    path = folder / "file.txt"
    path.write_bytes(data)
    names = list(splits._lines("train", path))
    if any(not name or name.startswith("#") or "\n" in name for name in names):
        raise Disagreement(f"{names}")
    text = data.decode("utf-8", "replace")
    for read in (
        lambda: cornell.read_table(data, path, strict=True),
        lambda: cornell.read_table(data, path, strict=False),
        lambda: text_value(data, str(path), "json"),
        lambda: text_value(data, str(path), "text"),
        lambda: text_value(data, str(path), "boxes"),
        lambda: text_value(data, str(path), "number"),
        lambda: text_value(data, str(path), "number", is_whole=True),
        lambda: sidecars.Sidecar.parse(text).field,
        lambda: splits.parse_splits([text]),
    ):
        with refusable():
            read()
