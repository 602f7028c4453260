"""Labels of images that are not upright by their EXIF orientation: stored, upright or stated by a label file.

The oracle is the image: Pillow turns it upright, and each object's color says where its box, its polygons and its
keypoints must be.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

import packer
from packer.errors import BadInput
from packer.schema import Field, Schema
from packer.sources.base import Frame, Sample
from packer.system.parallel import usable_cores
from tests.support import annotated_source
from tests.support.annotated_source import AnnotatedSource

OBJECTS = [(2, 3, 12, 13), (20, 5, 36, 25), (44, 20, 58, 38)]
SIZE = (40, 60)


def tree(root: Path, orientation: int, **options: Any) -> Path:
    return annotated_source.write(root, {"a": (SIZE, OBJECTS)}, orientation=orientation, **options)


def extents(pixels: npt.NDArray[Any]) -> list[list[int]]:
    """The edges of each object's pixels."""
    found = []
    for place in range(len(OBJECTS)):
        rows, columns = np.nonzero(pixels[..., 0] == annotated_source.color(place))
        found.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    return [[int(edge) for edge in each] for each in found]


def assert_over_pixels(sample: dict[str, Any]) -> None:
    """All labels of a sample (numpy) lie over the objects in its image."""
    wanted = extents(sample["image"])
    assert np.abs(sample["boxes"] - wanted).max() < 1e-4
    for place, (x0, y0, x1, y1) in enumerate(wanted):
        runs = np.split(sample["polygons"], sample["polygon_starts"])[1:]
        points = np.concatenate([run for run, box in zip(runs, sample["polygon_box"], strict=True) if box == place])
        assert np.abs([*points.min(axis=0) - (x0, y0), *points.max(axis=0) - (x1, y1)]).max() < 1e-4
        ends = sample["keypoints"][place]
        assert np.abs([*ends.min(axis=0) - (x0, y0), *ends.max(axis=0) - (x1 - 1, y1 - 1)]).max() < 1e-4


def test_the_trees_images_are_what_pillow_shows_upright(tmp_path: Path) -> None:
    for orientation in range(1, 9):
        file = tree(tmp_path / str(orientation), orientation) / "a.png"
        shown = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file.read_bytes()))))
        assert np.array_equal(shown, annotated_source.drawn(SIZE, OBJECTS)), orientation


@pytest.mark.one_in(4)
@pytest.mark.parametrize("exif", ["ignore", "rotate"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_labels_lie_over_the_pixels_that_are_packed(tmp_path: Path, orientation: int, exif: Any) -> None:
    source = AnnotatedSource(tree(tmp_path / "set", orientation), frame="upright")
    packer.convert(source, tmp_path / "pack", exif=exif)
    dataset = packer.open(tmp_path / "pack", output="numpy")
    assert_over_pixels(dataset[0])
    flipped = packer.open(tmp_path / "pack", output="numpy", geometry=packer.geometry.RandomHorizontalFlip(1.0))
    assert_over_pixels(flipped[0])


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_stated_size_tells_upright_labels(tmp_path: Path, orientation: int) -> None:
    source = AnnotatedSource(tree(tmp_path / "set", orientation), frame="stated")
    packer.convert(source, tmp_path / "pack")
    assert_over_pixels(packer.open(tmp_path / "pack", output="numpy")[0])


@pytest.mark.parametrize(("frame", "stated"), [("stored", None), ("stated", {"a": (60, 40)})])
def test_labels_over_stored_pixels_stay(
    tmp_path: Path, frame: Frame, stated: dict[str, tuple[int, int]] | None
) -> None:
    source = AnnotatedSource(tree(tmp_path / "set", 6, stated=stated), frame=frame)
    packer.convert(source, tmp_path / "pack")
    sample = packer.open(tmp_path / "pack", output="numpy")[0]
    assert sample["boxes"].tolist() == [list(each) for each in OBJECTS]
    assert np.array_equal(sample["polygons"], source[0]["polygons"])


@pytest.mark.parametrize(
    ("orientation", "stated", "message"),
    [
        (3, (40, 60), "60x40 px as stored, 60x40 px as viewers show it; its labels state 60x40 px"),
        (6, (41, 60), "40x60 px as stored, 60x40 px as viewers show it; its labels state 60x41 px"),
    ],
)
def test_a_stated_size_that_tells_nothing_is_refused(
    tmp_path: Path, orientation: int, stated: tuple[int, int], message: str
) -> None:
    source = AnnotatedSource(tree(tmp_path / "set", orientation, stated={"a": stated}), frame="stated")
    with pytest.raises(BadInput, match=rf"a\.png.*'boxes'.*EXIF orientation {orientation}.*{message}"):
        packer.convert(source, tmp_path / "pack")


def test_a_turned_image_without_labels_needs_no_frame(tmp_path: Path) -> None:
    root = annotated_source.write(tmp_path / "set", {"a": (SIZE, [])}, orientation=3)
    packer.convert(AnnotatedSource(root, frame="stated"), tmp_path / "pack")
    assert packer.open(tmp_path / "pack")[0]["boxes"].shape == (0, 4)


def test_another_stated_size_of_an_upright_image_is_noted(tmp_path: Path) -> None:
    source = AnnotatedSource(tree(tmp_path / "set", 1, stated={"a": (41, 60)}), frame="stated")
    summary = packer.convert(source, tmp_path / "pack", threads=min(2, usable_cores()))
    ((key, note),) = summary.incomplete
    assert key == "a"
    assert note == "its labels state 60x41 px, the image has 60x40: they may be of another"
    assert packer.open(tmp_path / "pack", output="numpy")[0]["boxes"].tolist() == [list(each) for each in OBJECTS]


def test_the_samples_of_a_wrapped_source_keep_their_frame(tmp_path: Path) -> None:
    root = annotated_source.write(
        tmp_path / "set", {"a": (SIZE, OBJECTS), "b": (SIZE, OBJECTS), "c": (SIZE, OBJECTS)}, orientation=6
    )
    packer.convert(AnnotatedSource(root, frame="stated"), tmp_path / "pack", order="shuffled", seed=3)
    dataset = packer.open(tmp_path / "pack", output="numpy")
    for index in range(3):
        assert_over_pixels(dataset[index])


class WithMask(AnnotatedSource):
    """The same with a mask of the objects, a file over the image as viewers show it."""

    def __init__(self, root: Path, *, frame: Frame = "upright") -> None:
        super().__init__(root, frame=frame)
        self.schema = Schema((*self.schema, Field("mask", "mask", "encoded")))

    def read(self, index: int, names: Sequence[str]) -> Sample:
        file = io.BytesIO()
        Image.fromarray(annotated_source.drawn(SIZE, OBJECTS)[..., 0]).save(file, "png")
        return {**super().read(index, names), "mask": file.getvalue()}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("to", ["lmdb", "n5"])  # n5 wants to know the shape before
@pytest.mark.parametrize(
    ("frame", "orientation"),  # a stated size tells where the sides are exchanged
    [*(("upright", number) for number in range(2, 9)), *(("stated", number) for number in range(5, 9))],
)
def test_an_upright_mask_lies_over_the_upright_image(tmp_path: Path, orientation: int, to: str, frame: Frame) -> None:
    source = WithMask(tree(tmp_path / "set", orientation), frame=frame)
    packer.convert(source, tmp_path / "pack", to=to, exif="rotate", order="stored")
    sample = packer.open(tmp_path / "pack", output="numpy")[0]
    assert np.array_equal(sample["mask"], sample["image"][..., 0])
    assert_over_pixels(sample)


def test_an_upright_mask_needs_an_upright_image(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'mask'.*EXIF orientation 6.*--exif rotate"):
        packer.convert(WithMask(tree(tmp_path / "set", 6)), tmp_path / "pack")
    packer.convert(WithMask(tree(tmp_path / "plain", 1)), tmp_path / "pack")
