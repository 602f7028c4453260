"""Lists of samples and tables that users bring: splits, Cornell's z.txt, sidecars of JSON and text, typed options."""

from collections.abc import Iterator

from fuzz import scratch
from fuzz.target import Disagreement
from packer.errors import PackerError
from packer.sources import cornell
from packer.sources.adding import sidecars, splits
from packer.sources.parsing.input_folder import InputFolder

TOKENS = (
    b"# ",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\x85",
    b"NaN",
    b"1e999",
    b"[[[[[[[[",
    b"\\ud800",
    b"\xc2\xb2",
    b"=",
    b":depth",
    b"./",
)
MOST_BYTES = 6000


def seeds() -> Iterator[bytes]:
    yield b"# train\ncat/a.jpg\r\n./dog/b.jpg\n"
    yield b"100 7 cup 3\n101 7 cup 3\n102 8 pen 1\n"
    yield b'{"a": [1, 2.5, null, "x"]}'
    yield b"depth=_d.tiff:depth"


def check(data: bytes) -> None:
    folder = scratch.folder()
    opened, path = InputFolder(folder), folder / "file.txt"
    path.write_bytes(data)
    refusal: PackerError | None = None
    names = list(splits._lines(path))
    if any(not name or name.startswith("#") or "\n" in name for name in names):
        raise Disagreement(f"{names}")
    text = data.decode("utf-8", "replace")
    for read in (
        lambda: cornell._read_table(opened, ["file.txt"], strict=True),
        lambda: cornell._read_table(opened, ["file.txt"], strict=False),
        lambda: sidecars._value(opened, path.name, "json"),
        lambda: sidecars._value(opened, path.name, "text"),
        lambda: sidecars.Sidecar.parse(text).field,
        lambda: splits.Split.parse(text),
    ):
        try:
            read()
        except PackerError as error:
            refusal = error
    if refusal is not None:
        raise refusal
