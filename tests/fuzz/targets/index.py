"""Index files that an attacker wrote, their sizes and hashes right: keys, order, crc32, texts and columns."""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.pack import row_filter
from packer.pack.derived_pack import selected
from packer.pack.filter_columns import PackColumns
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import Field, Schema
from tests.fuzz import scratch, words
from tests.support import built_packs, hostile_packs

_SAMPLES = 3
_SCHEMA = Schema(
    (
        *built_packs.SCHEMA.fields,
        Field("caption", "text", "text"),
        Field("boxes", "boxes", "raw", "float32", (None, 4)),
        Field("box_labels", "number", "raw", "int64", (None,), of="boxes"),
    )
)
TOKENS = (*words.NPY, b"(3, 6)", b"\xff" * 8, b"\x80" + bytes(7))


@functools.cache
def _pack() -> tuple[Path, dict[str, bytes]]:
    """A sound pack, and its index files."""
    folder = scratch.folder() / "indexed"
    samples = [
        {
            **built_packs.record(number),
            "caption": b"text" * number,
            "boxes": bytes(16 * number),
            "box_labels": bytes(8 * number),
        }
        for number in range(_SAMPLES)
    ]
    built_packs.make_pack(folder, samples, parts=1, schema=_SCHEMA)
    return folder, {path.name: path.read_bytes() for path in sorted((folder / "index").iterdir())}


def seeds() -> Iterator[bytes]:
    """One byte that says which file, and its content."""
    for number, content in enumerate(_pack()[1].values()):
        yield bytes((number,)) + content


def check(data: bytes) -> None:
    folder, files = _pack()
    names = list(files)
    if not data or data[0] >= len(names):
        return
    for name, content in files.items():
        (folder / "index" / name).write_bytes(data[1:] if name == names[data[0]] else content)
    hostile_packs.reseal(folder)
    pack = Pack(folder)
    try:
        samples = SampleDecoder(pack, None)
        for key in ("sample-00000", "sample-00002", "", "\x7f", "sample-00001"):
            try:
                pack.index.index_of(key)
            except KeyError:
                continue
        for index in range(len(pack)):
            samples.sample(index)
        columns, rows = PackColumns(pack.schema, pack.index), np.arange(len(pack))
        row_filter.parse("any(boxes.area < 9 and box_labels == 0)").rows(columns)
        selected(pack, rows[::-2]).index.arrays["box_size-boxes"]
        for name, kind in columns.kinds.items():
            columns.ordered(rows, name)
            if kind == "text":
                columns.equals(name, ["texttext", ""])
                columns.contains(name, "tt")
    finally:
        pack.close()
