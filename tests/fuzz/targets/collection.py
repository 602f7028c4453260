"""Index and members of a collection that an attacker wrote, hashes right: opened, filtered, and collected again."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.conversion.derived_pack_writer import save_collection
from packer.pack import derived_pack, row_filter
from packer.pack.filter_columns import PackColumns
from packer.pack.manifest import NAME
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import Field, Schema
from tests.fuzz import scratch, words
from tests.support import built_packs, hostile_packs

_SCHEMA = Schema(
    (*built_packs.SCHEMA.fields, Field("caption", "text", "text"), Field("boxes", "boxes", "raw", "float32", (None, 4)))
)
_FILTER = row_filter.parse("key == 'a/sample-00001' or 'te' in caption or caption == 'text' or len(boxes) > 1")
_MEMBERS = "members"
TOKENS = (*words.NPY, b"(4,)", b"\xff" * 8, b"\x80" + bytes(7))
TOKENS += (b'"names":{"boxes":"pair"}', b'"samples":0', b'"path":"../b.pack"')


@functools.cache
def _collection() -> tuple[Path, dict[str, bytes]]:
    """A sound collection of two packs, and its index files."""
    for name in "ab":
        samples = [
            {**built_packs.record(number), "caption": b"text" * number, "boxes": bytes(16 * number)}
            for number in range(3)
        ]
        built_packs.make_pack(scratch.folder() / f"{name}.pack", samples, parts=1, schema=_SCHEMA)
    folder = scratch.folder() / "collection"
    packs = [Pack(scratch.folder() / f"{name}.pack") for name in "ab"]
    chosen = derived_pack.selected(derived_pack.joined(packs, ["a/", "b/"]), np.array([4, 0, 2, 1]))
    score = Field("score", "number", "number", dtype="float32", shape=())
    save_collection(derived_pack.with_field(chosen, score, [0.5, 1, 2, np.nan]), folder)
    files = {path.name: path.read_bytes() for path in sorted((folder / "index").iterdir())}
    return folder, files | {_MEMBERS: json.dumps(json.loads((folder / NAME).read_bytes())["members"]).encode()}


def seeds() -> Iterator[bytes]:
    """One byte that says which file, and its content."""
    for number, content in enumerate(_collection()[1].values()):
        yield bytes((number,)) + content


def check(data: bytes) -> None:
    folder, files = _collection()
    names = list(files)
    if not data or data[0] >= len(names):
        return
    changed = {**files, names[data[0]]: data[1:]}
    try:
        members = json.loads(changed.pop(_MEMBERS))
        hostile_packs.in_manifest(lambda manifest: manifest.update(members=members))(folder)
    except (ValueError, TypeError, RecursionError):  # nothing that has a canonical form
        return
    for name, content in changed.items():
        (folder / "index" / name).write_bytes(content)
    hostile_packs.reseal(folder)
    pack = Pack(folder)
    try:
        chosen = derived_pack.selected(pack, np.arange(len(pack))[::-1])  # first: what follows checks the texts
        for each in (chosen, derived_pack.joined([chosen, pack], ["c/", "d/"]), pack):
            samples = SampleDecoder(each, None)
            for index in range(len(each)):
                samples.sample(index)
                each.index.find(each.index.key(index))
            _FILTER.rows(PackColumns(each.schema, each.index))
        list(pack.unlike_members())
    finally:
        pack.close()
