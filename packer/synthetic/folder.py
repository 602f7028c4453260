"""Photos of things on tables: an ImageFolder tree of JPEG files, `<class>/<class>_<number>.jpg`.

The class is what stands in the picture; with more classes than kinds of thing, its colour too. A small network learns
the classes in minutes. JPEG: baseline, 4:2:0, quality 90, no EXIF.
"""

import itertools
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer.errors import InvalidRequest
from packer.synthetic._rendering import TABLES, Camera, Grain, Lamp, draw, encode, lit, spread
from packer.synthetic._scene_objects import PALETTE, THINGS, Picture, Thing, make, outline, place
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, stream, write_samples

Size = tuple[int, int]

_QUALITY = 90
_SIDE = 768  # of a table's texture, px
_SIZES = ((375, 500), (500, 375), (333, 500), (240, 320), (480, 640), (281, 500), (400, 400), (683, 1024))
_LIMITS = (16, 8192)


@dataclass(frozen=True)
class _Studio:
    """What all photos share: textures, noise, the classes and the sizes."""

    seed: int
    tables: tuple[Picture, ...]
    grain: Grain
    classes: tuple[tuple[str, str | None], ...]  # kind, colour
    sizes: tuple[Size, ...]


def write(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = (375, 500)
) -> SetSummary:
    """Write `samples` photos, evenly over the classes.

    size: (height, width) in px; None: sizes from 320x240 to 1024x683 px, portrait and landscape.
    Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    chosen = class_names(classes)
    if size is not None and not all(_LIMITS[0] <= length <= _LIMITS[1] for length in size):
        raise InvalidRequest(
            f"size {size[1]}x{size[0]}: expected {_LIMITS[0]} to {_LIMITS[1]} px a side; choose another size"
        )
    with publishing(folder) as partial_folder:
        sizes = _SIZES if size is None else (size,)
        random = stream(seed, 0)
        largest = max(height for height, _ in sizes), max(width for _, width in sizes)
        rough = Grain(random, (_SIDE, _SIDE), deviation=7.0)
        tables = tuple(rough.add(texture(random, _SIDE), random) for texture in TABLES)
        studio = _Studio(seed, tables, Grain(random, largest, deviation=4.0, blur=0.6), chosen, sizes)
        return write_samples(partial(_draw, studio), partial_folder, samples=samples, threads=threads)


def class_names(count: int) -> tuple[tuple[str, str | None], ...]:
    """The first `count` classes: kind of thing, and its colour where there are more classes than kinds."""
    kinds = tuple(THINGS)
    if not 1 <= count <= len(kinds) * len(PALETTE):
        raise InvalidRequest(f"classes {count}: expected 1 to {len(kinds) * len(PALETTE)}; choose another number")
    if count <= len(kinds):
        return tuple((kind, None) for kind in kinds[:count])
    return tuple((kind, colour) for colour, kind in itertools.islice(itertools.product(PALETTE, kinds), count))


def _draw(studio: _Studio, index: int) -> DrawnSample:
    random = stream(studio.seed, 1, index)
    kind, colour = studio.classes[index % len(studio.classes)]
    size = studio.sizes[random.integers(len(studio.sizes))]
    thing = make(kind, random, colour=colour)
    camera = _camera(thing, random, size=size)
    x, y = random.uniform(-0.1, 0.1, 2) * min(size) * camera.height / camera.focal
    # half its height up, a thing appears further back: it is moved forward, so that it is centred in the picture
    y -= max(piece.top for piece in thing) / 2 * camera.back / camera.height
    thing = place(thing, turn=random.uniform(0, 2 * math.pi), at=(float(x), float(y)))
    lamp = Lamp(random.uniform(0, 2 * math.pi), random.uniform(0.7, 1.15), sky=random.uniform(0.4, 0.75))
    texture = studio.tables[random.integers(len(studio.tables))]
    level = random.uniform(0.72, 1.0) + random.uniform(-0.13, 0.13, (3, 3, 1)) + random.uniform(-0.025, 0.025, 3)
    table = lit(spread(texture, camera, turn=random.uniform(0, 2 * math.pi)), level)
    picture = draw(thing, camera, lamp, table=table).picture
    name = kind if colour is None else f"{colour}_{kind}"
    number = index // len(studio.classes)
    photo = encode(".jpg", studio.grain.add(picture, random), cv2.IMWRITE_JPEG_QUALITY, _QUALITY)
    return DrawnSample({f"{name}/{name}_{number:05d}.jpg": photo})


def _camera(thing: Thing, random: np.random.Generator, *, size: Size) -> Camera:
    """A camera that sees the thing at 50 to 85 % of the picture's shorter side."""
    reach = math.hypot(np.hypot(*outline(thing).T).max(), 0.6 * max(piece.top for piece in thing))
    focal = 1.25 * max(size)
    distance = focal * 2 * reach / (random.uniform(0.5, 0.85) * min(size))
    elevation = random.uniform(0.72, 1.35)
    return Camera(distance * math.sin(elevation), distance * math.cos(elevation), focal, size)
