"""Labelled scenes: several things on one table, and for every pixel of the picture, which of them it shows.

What the writers of detection and segmentation sets share. Whatever a layout says of a thing, its box, its outline, its
mask, follows from the pixels in which it is seen, so that it is known exactly. A thing that others hide is no thing.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.synthetic._rendering import TABLES, Camera, Grain, Lamp, draw, encode, lit, spread
from packer.synthetic._scene_objects import THINGS, Generator, Picture, Thing, make, outline, place
from packer.synthetic.base import stream

Size = tuple[int, int]
Pixels = npt.NDArray[np.bool_]
Points = list[tuple[int, int]]

SIZE: Size = (240, 320)
CLASSES = tuple(THINGS)
_QUALITY = 90
_SIDE = 512  # of a table's texture, px
_SIZES = ((240, 320), (320, 240), (200, 300), (288, 288))
_LIMITS = (32, 4096)
_REACH = 0.2  # m from the middle of the table, where things stand
_SHOWN = 0.5  # m of the table along the picture's shorter side
_TRIES = 12  # places for a thing, among which one may be free
_EMPTY = 8  # every so many scenes one has no things
_HELD_OUT = 5  # every so many scenes one is for validation


@dataclass(frozen=True)
class LabelledThing:
    """A thing in a picture. label: the number of its class. pixels: where it is seen, (H, W)."""

    label: int
    pixels: Pixels

    @cached_property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom edge of its pixels."""
        rows, columns = np.flatnonzero(self.pixels.any(1)), np.flatnonzero(self.pixels.any(0))
        return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1

    def polygon(self) -> Points:
        """One closed line along the edges of its pixels, x and y: it goes around them an odd number of times.

        Where the thing has holes, or is seen in parts, the line goes there and comes back on the same way, as people
        do who have one polygon for a thing.
        """
        loops = _loops(self.pixels)
        start = loops[0][0]
        line = [*loops[0], start]
        for loop in loops[1:]:
            line += [*loop, loop[0], start]
        return line[:-1]


@dataclass(frozen=True)
class LabelledScene:
    """picture: uint8 (H, W, 3), RGB. things: those in it, the farther ones first."""

    picture: Picture
    things: tuple[LabelledThing, ...]

    @property
    def photo(self) -> bytes:
        """The picture as JPEG: baseline, 4:2:0, no EXIF."""
        return encode(".jpg", self.picture, cv2.IMWRITE_JPEG_QUALITY, _QUALITY)

    @property
    def class_mask(self) -> npt.NDArray[np.uint8]:
        """uint8 (H, W): 0 for the table, 1 + the number of the class for things."""
        return self._mask([1 + thing.label for thing in self.things])

    @property
    def object_mask(self) -> npt.NDArray[np.uint8]:
        """uint8 (H, W): 0 for the table, 1 + the place of the thing."""
        return self._mask(list(range(1, 1 + len(self.things))))

    def _mask(self, values: list[int]) -> npt.NDArray[np.uint8]:
        mask = np.zeros(self.picture.shape[:2], np.uint8)
        for thing, value in zip(self.things, values, strict=True):
            mask[thing.pixels] = value
        return mask


class SceneStudio:
    """What all scenes of a set share: textures, noise, the classes and the sizes."""

    def __init__(self, *, seed: int, classes: int, size: Size | None, most_things: int = 4) -> None:
        """size: (height, width) in px; None for several. most_things: with 1, every picture has exactly one.

        Raises InvalidRequest.
        """
        if not 1 <= classes <= len(CLASSES):
            raise InvalidRequest(f"classes {classes}: expected 1 to {len(CLASSES)}; choose another number")
        if size is not None and not all(_LIMITS[0] <= length <= _LIMITS[1] for length in size):
            raise InvalidRequest(
                f"size {size[1]}x{size[0]}: expected {_LIMITS[0]} to {_LIMITS[1]} px a side; choose another size"
            )
        self.classes = CLASSES[:classes]
        self._seed = seed
        self._sizes = _SIZES if size is None else (size,)
        self._most_things = most_things
        self._tables: dict[int, Picture] = {}
        random = stream(seed, 0)
        self._rough = Grain(random, (_SIDE, _SIDE), deviation=7.0)
        largest = max(height for height, _ in self._sizes), max(width for _, width in self._sizes)
        self._grain = Grain(random, largest, deviation=4.0, blur=0.6)

    def scene(self, index: int) -> LabelledScene:
        """The scene of that number."""
        random = stream(self._seed, 1, index)
        size = self._sizes[random.integers(len(self._sizes))]
        camera = _camera(random, size)
        lamp = Lamp(random.uniform(0, 2 * math.pi), random.uniform(0.7, 1.15), sky=random.uniform(0.4, 0.75))
        texture = self._table(int(random.integers(len(TABLES))))
        level = random.uniform(0.72, 1.0) + random.uniform(-0.13, 0.13, (3, 3, 1)) + random.uniform(-0.025, 0.025, 3)
        picture = lit(spread(texture, camera, turn=random.uniform(0, 2 * math.pi)), level)
        if self._most_things == 1:
            count = 1
        else:
            count = 0 if index % _EMPTY == _EMPTY - 1 else int(random.integers(1, self._most_things + 1))
        labels: list[int] = []
        masks: list[Pixels] = []
        for label, thing in self._things(random, count):
            drawn = draw(thing, camera, lamp, table=picture)
            picture, front = drawn.picture, drawn.mask > 0
            masks = [mask & ~front for mask in masks]
            labels.append(label)
            masks.append(front)
        seen = tuple(LabelledThing(label, mask) for label, mask in zip(labels, masks, strict=True) if mask.any())
        return LabelledScene(self._grain.add(picture, random), seen)

    def _table(self, number: int) -> Picture:
        """A table's texture, drawn when a scene first has it; two threads that need it draw the same."""
        if number not in self._tables:
            random = stream(self._seed, 2, number)
            self._tables[number] = self._rough.add(TABLES[number](random, _SIDE), random)
        return self._tables[number]

    def _things(self, random: Generator, count: int) -> list[tuple[int, Thing]]:
        """Things of random classes that stand apart from each other, the farther ones first."""
        standing: list[tuple[float, float, float, int, Thing]] = []  # y, x, radius
        for _ in range(count):
            label = int(random.integers(len(self.classes)))
            thing = make(self.classes[label], random)
            turn, scale = random.uniform(0, 2 * math.pi), random.uniform(0.7, 1.2)
            radius = scale * float(np.hypot(*outline(thing).T).max())
            reach = _REACH if self._most_things > 1 else _REACH / 4
            for x, y in random.uniform(-reach, reach, (_TRIES, 2)).tolist():
                if all(math.hypot(x - other[1], y - other[0]) > radius + other[2] for other in standing):
                    standing.append((y, x, radius, label, place(thing, turn=turn, at=(x, y), scale=scale)))
                    break
        standing.sort(key=lambda each: -each[0])
        return [(label, thing) for *_, label, thing in standing]


def split_of(index: int) -> str:
    """The split of a scene: train, or val, which the second one is of."""
    return "val" if index % _HELD_OUT == 1 else "train"


def splits_of(samples: int) -> tuple[str, ...]:
    """The splits that so many scenes have."""
    return ("train", "val") if samples > 1 else ("train",)


def _camera(random: Generator, size: Size) -> Camera:
    """A camera that sees half a metre of the table along its shorter side."""
    focal = 1.25 * max(size)
    distance = _SHOWN * focal / min(size)
    elevation = random.uniform(0.9, 1.4)
    return Camera(distance * math.sin(elevation), distance * math.cos(elevation), focal, size)


def _loops(pixels: Pixels) -> list[Points]:
    """The closed lines along the edges between these pixels and all others, each corner once."""
    inside = np.pad(pixels, 1)
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # walked with the thing on the right: to the right above it, down on its right, to the left below, up on its left
    for row_shift, column_shift, start, end in (
        (-1, 0, (0, 0), (1, 0)),
        (0, 1, (1, 0), (1, 1)),
        (1, 0, (1, 1), (0, 1)),
        (0, -1, (0, 1), (0, 0)),
    ):
        border = inside & ~np.roll(inside, (-row_shift, -column_shift), (0, 1))
        for row, column in (np.argwhere(border) - 1).tolist():
            edges.setdefault((column + start[0], row + start[1]), []).append((column + end[0], row + end[1]))
    loops = []
    for start in sorted(edges):
        while edges[start]:
            line, at = [start], edges[start].pop()
            while at != start:
                line.append(at)
                at = edges[at].pop()
            loops.append(_corners(line))
    return loops


def _corners(line: Points) -> Points:
    """The points of a closed line at which it turns."""
    around = zip([line[-1], *line], line, itertools.chain(line[1:], line[:1]), strict=False)
    return [at for before, at, after in around if (before[0] == at[0]) != (at[0] == after[0])]
