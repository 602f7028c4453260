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
from packer.synthetic.base import SetSummary, check_counts, publishing, stream, write_samples
from packer.synthetic.rendering import image
from packer.synthetic.rendering.camera import Camera
from packer.synthetic.rendering.catalogue import PALETTE, THINGS, Thing, make, place
from packer.synthetic.rendering.scene import Scene, render
from packer.synthetic.rendering.shadow import Lamp
from packer.synthetic.rendering.texture import TABLES, Grain, Picture

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
        tables = tuple(rough.add(texture(random, _SIDE), random) for texture in TABLES.values())
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


def _draw(studio: _Studio, index: int) -> dict[str, bytes]:
    random = stream(studio.seed, 1, index)
    kind, colour = studio.classes[index % len(studio.classes)]
    size = studio.sizes[random.integers(len(studio.sizes))]
    thing = make(kind, random, colour=colour)
    camera = _camera(thing, random, size=size)
    shift = random.uniform(-0.1, 0.1, 2) * min(size) * camera.height / camera.focal
    # half its height up, a thing appears further back: it is moved forward, so that it is centred in the picture
    shift[1] -= max(part.corners[:, 2].max() for part in thing) / 2 * camera.back / camera.height
    thing = place(thing, turn=random.uniform(0, 2 * math.pi), at=(float(shift[0]), float(shift[1])))
    lamp = Lamp(random.uniform(0, 2 * math.pi), random.uniform(0.7, 1.15), sky=random.uniform(0.4, 0.75))
    table = _table(studio.tables[random.integers(len(studio.tables))], camera, random=random)
    picture = render(Scene(camera, thing, lamp, step=2 if min(size) >= 200 else 1), table).picture
    name = kind if colour is None else f"{colour}_{kind}"
    number = index // len(studio.classes)
    photo = image.jpeg(studio.grain.add(picture, random), quality=_QUALITY)
    return {f"{name}/{name}_{number:05d}.jpg": photo}


def _camera(thing: Thing, random: np.random.Generator, *, size: Size) -> Camera:
    """A camera that sees the thing at 45 to 80 % of the picture's shorter side."""
    reach = float(np.linalg.norm(np.concatenate([part.corners * [1, 1, 0.6] for part in thing]), axis=1).max())
    focal = 1.25 * max(size)
    distance = focal * 2 * reach / (random.uniform(0.45, 0.8) * min(size))
    elevation = random.uniform(0.72, 1.35)
    return Camera(distance * math.sin(elevation), distance * math.cos(elevation), focal, size)


def _table(texture: Picture, camera: Camera, *, random: np.random.Generator) -> Picture:
    """The empty table as the camera sees it, under uneven and slightly tinted light."""
    size = (camera.size[1], camera.size[0])
    to_picture = camera.table_to_picture()
    rim = np.array([[0, 0, 1], [size[0], 0, 1], [0, size[1], 1], [size[0], size[1], 1.0]]) @ np.linalg.inv(to_picture).T
    ground = rim[:, :2] / rim[:, 2:]
    middle = ground.mean(0)
    # the texture is turned at random and must still cover the picture: OpenCV is 10 times slower at a real border
    radius = np.linalg.norm(ground - middle, axis=1).max() * 1.02
    angle, half = random.uniform(0, 2 * math.pi), texture.shape[0] / 2
    c, s = radius / half * math.cos(angle), radius / half * math.sin(angle)
    left, top = middle - np.array([c * half - s * half, s * half + c * half])
    placed = to_picture @ np.array([[c, -s, left], [s, c, top], [0, 0, 1.0]])
    table = cv2.warpPerspective(texture, placed, size, flags=cv2.INTER_LINEAR)
    level = random.uniform(0.72, 1.0) + random.uniform(-0.13, 0.13, (3, 3, 1)) + random.uniform(-0.025, 0.025, 3)
    light = cv2.resize(np.clip(level * 255, 0, 255).astype(np.uint8), size, interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.multiply(table, light, scale=1 / 255))
