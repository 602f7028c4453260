"""Compressed and sparse files cost what their bytes cost: input is read and decoded once, holes are skipped."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import sources
from packer.layouts import tar
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources._trees.open_tree import open_tree
from packer.sources._trees.tar_tree import first_names
from packer.sources.records import _random_access_files
from packer.sources.records._random_access_files import open_records
from tests.support.archives import tar_of
from tests.support.source_trees import image

FILES = {"a/1.jpg": image(1, suffix=".jpg"), "b/2.jpg": image(2, suffix=".jpg")}


class Decoder:
    """A decoder of zlib that counts the bytes it is given."""

    given = 0

    def __init__(self, real: Any) -> None:
        self.real = real

    def decompress(self, data: bytes, most: int) -> bytes:
        Decoder.given += len(data)
        made: bytes = self.real.decompress(data, most)
        return made

    def copy(self) -> "Decoder":
        return Decoder(self.real.copy())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each pread returned; `Decoder.given` counts those that were decoded."""
    sizes: list[int] = []
    pread, decompressobj = os.pread, zlib.decompressobj

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(Decoder, "given", 0)
    monkeypatch.setattr(_random_access_files.os, "pread", counted)
    monkeypatch.setattr(_random_access_files.zlib, "decompressobj", lambda *form: Decoder(decompressobj(*form)))
    return sizes


@pytest.mark.one_in(2)
@pytest.mark.parametrize("inside", [b"", b"x", bytes(300), bytes(70_000)])
def test_input_of_many_gzip_members_is_read_and_decoded_once(tmp_path: Path, read: list[int], inside: bytes) -> None:
    member = gzip.compress(inside, mtime=0)
    count = 2_000_000 // max(len(member), len(inside) // 8)
    last = gzip.compress(np.random.default_rng(0).bytes(500_000))
    (tmp_path / "x.gz").write_bytes(member * count + last)
    _, file = open_records(SourceRoot(tmp_path), "x.gz", is_packed=True)
    size, start = 0, 0
    while piece := file.read(start, 1 << 20):
        size, start = size + len(piece), start + len(piece)
    assert size == len(inside) * count + 500_000
    on_disk = (tmp_path / "x.gz").stat().st_size
    assert sum(read) < 2 * on_disk
    assert Decoder.given < 20 * on_disk


def test_bytes_of_gzip_members_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    monkeypatch.setattr(_random_access_files, "_BLOCK_BYTES", 5_000)
    monkeypatch.setattr(_random_access_files, "_INPUT_BYTES", 700)
    pieces = [random.bytes(int(size)) * 3 for size in (0, 1, 4, 300, 5_000, 0, 9_000, 0, 0, 20_000, 3)]
    (tmp_path / "x.gz").write_bytes(b"".join(gzip.compress(piece) for piece in pieces))
    _, file = open_records(SourceRoot(tmp_path), "x.gz", is_packed=True)
    whole = b"".join(pieces)
    assert file.read(0, len(whole) + 10) == whole
    for start in random.integers(0, len(whole), 50).tolist():
        assert file.read(start, 6_000) == whole[start : start + 6_000]


def test_holes_behind_the_end_mark_are_skipped(tmp_path: Path, read: list[int]) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(FILES))
    os.truncate(path, 1 << 40)
    if path.stat().st_blocks > 1 << 20:
        pytest.skip("this file system has no holes")
    contents = open_tree(path).contents
    assert contents is not None and contents.names == list(FILES)
    assert len(sources.load("webdataset").Source(path)) == 2
    assert first_names(path, 10) == list(FILES)
    outer = tmp_path / "y.tar"
    outer.write_bytes(tar.header(b"x.tar", 4 << 30) + tar_of(FILES))
    os.truncate(outer, 512 + (4 << 30))
    with outer.open("ab") as file:
        file.write(tar.END)
    inner = open_tree(outer).contents
    assert inner is not None and inner.names == [f"x/{name}" for name in FILES]
    assert sum(read) < 4 << 20


def test_more_than_zeros_behind_a_hole_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(FILES))
    os.truncate(path, 1 << 30)
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(tar.BadInput, match="more than zeros"):
        open_tree(path)
