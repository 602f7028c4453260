"""Caffe LMDB: a Datum, and the pages of a file, compared with packer's reader of its own parts."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from packer.layouts import lmdb_reader
from packer.layouts.datum import parse
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.records._random_access_files import OpenFile
from packer.sources.records.caffe_lmdb import Source, pixels
from tests.fuzz import scratch, words
from tests.fuzz.checks import check_samples, tree_of
from tests.fuzz.target import Disagreement, refusable
from tests.support import foreign_files as foreign

TOKENS = (*words.LMDB, b"\x08\x03\x10\x02\x18\x02\x22\x0c")
MOST_BYTES = 1 << 15


def seeds() -> Iterator[bytes]:
    values = [foreign.datum(b"\xff\xd8\xff", -1, 3, 2, 2), foreign.datum(bytes(12), 1, 3, 2, 2, encoded=None)]
    yield from values
    yield foreign.delimited(6, bytes(8))
    with tempfile.TemporaryDirectory() as folder:
        for count in (3, 150):
            entries = {b"%08d" % at: values[at % 2] + foreign.delimited(12, bytes(at * 30)) for at in range(count)}
            path = foreign.lmdb_environment(Path(folder) / f"{count}.lmdb", entries, is_folder=False)
            yield path.read_bytes()[:MOST_BYTES]


def check(data: bytes) -> None:
    with refusable():
        found = parse(data)
        if not found.is_encoded and pixels(found).shape != (found.height, found.width, 3):
            raise Disagreement(f"{found}")
    path = scratch.written("fuzz.lmdb", data)
    with refusable():
        _compare(path, data)
        check_samples(Source(path))


def _compare(path: Path, data: bytes) -> None:
    """What is found one after the other is found by its key, too, where the other reader takes the file."""
    file = OpenFile(SourceRoot(path.parent), path.name)
    entries = list(lmdb_reader.entries(file))
    if not data:
        return
    with tree_of(data) as tree:
        for entry in entries[:200]:
            if tree.value_of(entry.key) != file.read(entry.offset, entry.size):
                raise Disagreement(f"{entry}")
