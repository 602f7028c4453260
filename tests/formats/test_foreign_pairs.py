"""From one tool's files into another's: every source of record files and arrays, into every format of another tool."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer import formats, sources
from packer.inspect.extraction import extract
from packer.sources.base import Source
from tests.support import source_trees
from tests.support.conversions import opened, packed

SOURCES = [name for name in source_trees.BUILDERS if sources.load(name).Source.holds_records]
TARGETS = [name for name in formats.names() if formats.load(name).Writer.slots]
RENAMING = ("basicsr-lmdb",)  # whose keys are names, and LMDB sorts them
# what brings the tree back: a tool that has a place for the path of an image
WITH_PATHS = ("basicsr-lmdb", "caffe-lmdb", "recordio", "webdataset")


def data_of(pack: Path, name: str) -> Path:
    """The tool's file, or folder of files, of the only part."""
    (part,) = pack.glob("part-*")
    found: Path = part / formats.load(name).Reader.layout.data
    return found


def pixels(value: Any) -> Any:
    return packer.images.decode(value, "image") if isinstance(value, bytes) else value


def same_image(before: Any, after: Any, *, keeps_bytes: bool) -> bool:
    """The very bytes where there are some on both sides, else the pixels."""
    if keeps_bytes and isinstance(before, bytes):
        return bool(before == after)
    return bool(np.array_equal(pixels(before), pixels(after)))


def rows(source: Source, name: str) -> list[Any]:
    return [source.value(row, name) for row in range(len(source))]


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("name", "target"), [
    pytest.param(name, target, marks=() if (at + number) % 3 == 0 else pytest.mark.full)
    for at, name in enumerate(SOURCES) for number, target in enumerate(TARGETS)
])  # fmt: skip
def test_images_and_labels_of_one_tool_are_those_of_the_other(name: str, target: str, tmp_path: Path) -> None:
    before = opened(source_trees.BUILDERS[name](tmp_path / "in"), name)
    packed(tmp_path / "in", tmp_path / "a.pack", kind=name, to=target, part_bytes=0)
    after = opened(data_of(tmp_path / "a.pack", target), target)
    assert len(before) == len(after) > 0
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    order = [dataset.index_of(before.key(row)) for row in range(len(before))]
    assert order == list(range(len(before)))
    images = rows(after, "image")
    if target in RENAMING:
        held = [bytes(value) for value in rows(before, "image") if isinstance(value, bytes)]
        assert sorted(held) == (sorted(images) if held else [])
        expected = {pixels(value).tobytes() for value in rows(before, "image")}
        assert expected == {pixels(value).tobytes() for value in images}
        return
    keeps_bytes = formats.load(target).Reader.layout.has_places
    for one, other in zip(rows(before, "image"), images, strict=True):
        assert same_image(one, other, keeps_bytes=keeps_bytes)
    if "label" in before.schema and before.schema["label"].shape == ():
        assert [int(label) for label in rows(before, "label")] == [int(label) for label in rows(after, "label")]


@pytest.mark.parametrize("name", [name for name in TARGETS if formats.load(name).Reader.layout.has_places])
def test_photos_come_back_through_the_tools_file_alone(name: str, tmp_path: Path) -> None:
    """Not through the pack that packer wrote: through what the tool would have kept of it."""
    root = source_trees.photos(tmp_path / "photos", 6)
    packed(root, tmp_path / "a.pack", to=name, part_bytes=0)
    packed(data_of(tmp_path / "a.pack", name), tmp_path / "b.pack", kind=name)
    found = extract(tmp_path / "b.pack", tmp_path / "back")
    assert found.reencoded == 0
    before, after = source_trees.tree(root), source_trees.tree(tmp_path / "back")
    images = {path: data for path, data in after.items() if path.endswith(b".jpg")}
    assert sorted(before.values()) == sorted(images.values())
    if name in WITH_PATHS:
        assert before == images
