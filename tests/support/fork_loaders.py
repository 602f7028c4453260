"""What the loaders of andvg3/Grasp-Anything (d7755f4, utils/data) make of a folder: its items, in our own words.

Written from a reading of vmrd_data.py, ocid_grasp_data.py and grasp_anything_data.py; the files are read here, without
packer. What the loaders stop at is not made: depth, whose files are never listed; a number of two digits behind a
image's name. VMRD's files, which they take in the order of the file system, are sorted.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from packer.grasp import GraspDataset
from tests.support import grasp_folders, slow_grasps

SIZE = 40
FORK: dict[str, Any] = {"exact": "fork", "style": "grconvnet", "include_depth": False, "items": "label"}
AUGMENTED = list(itertools.product((0.0, np.pi / 2, np.pi, 3 * np.pi / 2), (1.0, 0.7)))  # turn and zoom
ANYTHING_PX = 416
OCID_PX = (480, 640)
VMRD_PX = (756, 1008)


@dataclass(frozen=True)
class ForkItem:
    """name: the label file's. labels: rectangles as they are loaded, (row, column) of the image's pixels.

    bounds: what a window about the labels is kept within; None where the item shows the whole image.
    """

    name: str
    image: Any
    labels: Callable[[int], list[Any]]
    bounds: tuple[int, int] | None

    def window(self, size: int) -> tuple[Any, tuple[int, int, int, int]]:
        """What is turned about in the image, and top, left, height and width of what is cut out."""
        height, width = self.image.shape[:2]
        if self.bounds is None:
            return ((height - 1) / 2, (width - 1) / 2), (0, 0, height, width)
        points = np.asarray(self.labels(size), np.float64).reshape(-1, 2)
        row, column = (int(value) for value in points.mean(axis=0))
        top = max(0, min(row - size // 2, self.bounds[0] - size))
        left = max(0, min(column - size // 2, self.bounds[1] - size))
        bottom = min(self.bounds[0], top + size, height)  # the crop ends there, or where the image does
        right = min(self.bounds[1], left + size, width)
        return (row, column), (top, left, bottom - top, right - left)

    def rectangles(self, size: int, rot: float, zoom: float) -> list[Any]:
        """In px of the output."""
        center, (top, left, *_) = self.window(size)
        if self.bounds is None:
            center, top, left = (size // 2, size // 2), 0, 0
        found = []
        for corners in self.labels(size):
            turned = slow_grasps.turned(corners, rot, center)
            found.append(slow_grasps.zoomed([(r - top, c - left) for r, c in turned], zoom, size // 2))
        return found

    def look(self, size: int, rot: float, zoom: float) -> Any:
        """The image, float64 (size, size, 3)."""
        center, window = self.window(size)
        return grasp_folders.slow_look(self.image, center, rot, window, zoom, size)


def _image(path: Path) -> Any:
    return cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def _fixed(rectangles: list[Any]) -> Callable[[int], list[Any]]:
    return lambda size: rectangles


def ocid(root: Path) -> list[ForkItem]:
    """Four lines to a rectangle, `x y`, rounded."""
    found = []
    for path in sorted(root.glob("*/*/*/*/*/Annotations/*.txt"), key=str):
        points = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        rounded = [(round(y), round(x)) for x, y in points]
        rectangles = [rounded[at : at + 4] for at in range(0, len(rounded), 4)]
        image = _image(path.parents[1] / "rgb" / f"{path.stem}.png")
        found.append(ForkItem(path.stem, image, _fixed(rectangles), OCID_PX))
    return found


def vmrd(root: Path) -> list[ForkItem]:
    """A line to a rectangle, of which the first eight words are x and y in turn, rounded."""
    found = []
    for path in sorted(root.glob("Grasps/*.txt")):
        rectangles = []
        for line in path.read_text().splitlines():
            numbers = [round(float(word)) for word in line.split(" ")[:8]]
            rectangles.append([(numbers[at + 1], numbers[at]) for at in range(0, 8, 2)])
        image = _image(root / "JPEGImages" / f"{path.stem}.jpg")
        found.append(ForkItem(path.stem, image, _fixed(rectangles), VMRD_PX))
    return found


def anything(root: Path) -> list[ForkItem]:
    """A label file to an item; rows are scaled as if every image had 416 px both ways."""
    found = []
    for path in sorted(root.glob("grasp_label_positive/*_[0-9].pt"), key=str):
        rows = torch.load(path, weights_only=True).tolist()
        image = _image(root / "image" / f"{path.stem[:-2]}.jpg")
        jacquard = [(x, y, theta, opening, jaw) for _, x, y, opening, jaw, theta in rows]

        def scaled(size: int, jacquard: list[Any] = jacquard) -> list[Any]:
            return slow_grasps.loaded_jacquard(np.asarray(jacquard).reshape(-1, 5), size, ANYTHING_PX)

        found.append(ForkItem(path.stem, image, scaled, None))
    return found


def keys(dataset: GraspDataset) -> list[str]:
    return list(dataset.keys())


def assert_same_items(dataset: GraspDataset, items: list[ForkItem]) -> None:
    """Fail where the data set has other items than these, of SIZE px; images may differ as two ways to warp do."""
    assert [key.rpartition("/")[2] for key in keys(dataset)] == [item.name for item in items]
    for index, item in enumerate(items):
        for rot, zoom in AUGMENTED:
            expected = np.asarray(item.rectangles(SIZE, rot, zoom), np.int64).reshape(-1, 4, 2)
            np.testing.assert_array_equal(dataset.get_gtbb(index, rot, zoom), expected)
            difference = np.abs(dataset.get_rgb(index, rot, zoom, normalise=False) - item.look(SIZE, rot, zoom))
            assert difference[1:-1, 1:-1].max() <= 2  # at the border it matters what is cut before it is zoomed
        x, maps, at, rot, zoom = dataset[index]
        drawn, _ = slow_grasps.maps(item.rectangles(SIZE, rot, zoom), SIZE, SIZE / 2)
        assert [each.numpy().tobytes() for each in maps] == [each.tobytes() for each in drawn]
        assert (tuple(x.shape), at) == ((3, SIZE, SIZE), index)
