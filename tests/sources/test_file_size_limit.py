"""The most bytes of a sample's file: one limit for folders, archives and records, compared before a byte is read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from packer import sources
from packer.conversion.convert import convert
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.errors import BadInput, BadInputs
from packer.layouts import tar
from packer.pack import manifest as manifests
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources._trees.open_tree import open_tree
from tests.support.archives import MAKERS
from tests.support.source_trees import BUILDERS, image, photos, write

HOLE_BYTES = 3 << 30
MOST_READ = 1 << 20
NAMES = ("a/0.jpg", "b/1.jpg")


def in_folder(root: Path) -> Path:
    write(root, dict.fromkeys(NAMES, image(1, suffix=".jpg")))
    os.truncate(root / NAMES[1], HOLE_BYTES)
    return root


def in_tar(root: Path) -> Path:
    data = image(1, suffix=".jpg")
    members = [tar.header(NAMES[0].encode(), len(data)) + data + tar.padding(len(data))]
    members.append(tar.header(NAMES[1].encode(), HOLE_BYTES) + data)
    path = root.with_suffix(".tar")
    path.write_bytes(b"".join(members))
    os.truncate(path, sum(map(len, members)) - len(data) + HOLE_BYTES)
    with path.open("ab") as file:
        file.write(tar.END)
    return path


@pytest.mark.parametrize(("make", "kind"), [(in_folder, "folder"), (in_tar, "folder"), (in_tar, "webdataset")])
def test_a_file_that_is_too_large_for_a_image_is_not_read(
    tmp_path: Path, make: Callable[[Path], Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    for name in ("read", "pread"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, real=real: read.append(given[1]) or real(*given))
    place = make(tmp_path / "in")
    with pytest.raises(BadInputs, match="--max-pixels") as caught:
        convert(place, tmp_path / "a.pack", kind=kind)
    assert "1 of 2" in str(caught.value)
    convert(place, tmp_path / "a.pack", kind=kind, on_error="skip")
    assert manifests.read(tmp_path / "a.pack").samples == 1
    assert max(read) < MOST_READ


@pytest.mark.parametrize("maker", MAKERS)
def test_a_member_that_is_too_large_is_not_unpacked(tmp_path: Path, maker: str) -> None:
    tree = open_tree(
        MAKERS[maker](write(tmp_path / "in", {"a/1.bin": bytes(5000), "a/2.bin": bytes(4000)}), tmp_path / "x")
    )
    tree.most_bytes = 4000
    assert tree.read("a/2.bin") == bytes(4000)
    with pytest.raises(BadInput, match=r"a/1\.bin.*5,000.*4,000"):
        tree.read("a/1.bin")


def test_max_pixels_raises_the_limit(tmp_path: Path) -> None:
    source = sources.load("folder").Source(photos(tmp_path / "in", 2))
    usual = source.folder.most_bytes
    assert make_plan(source, ConversionOptions(max_pixels=1000)).source.folder.most_bytes == usual
    assert make_plan(source, ConversionOptions(max_pixels=400_000_000)).source.folder.most_bytes > 3 * usual


@pytest.mark.parametrize("kind", ["coco", "table"])
def test_tables_and_extras_may_be_larger_than_a_sample(tmp_path: Path, kind: str) -> None:
    tree = SourceRoot(write(BUILDERS[kind](tmp_path / "in"), {"notes.txt": bytes(5000)}))
    tree.most_bytes = 10
    source = sources.load(kind).Source(tree)
    make_plan(source, ConversionOptions())
    tree.most_bytes = 10
    assert source.read_file("notes.txt", is_table=True) == bytes(5000)
    with pytest.raises(BadInput, match="--max-pixels"):
        source[0]
