"""Jacquard: rendered things seen from above, with grasps, in the layout of the Jacquard dataset.

    Jacquard_Dataset_K/<hash>/       K from 0 to 11; hash: 32 hex digits, sometimes 31
        <i>_<hash>_RGB.png           1024x1024 RGB, 8 bit
        <i>_<hash>_mask.png          0 and 255
        <i>_<hash>_perfect_depth.tiff    float32, depth along the optical axis in m, LZW, two rows per strip
        <i>_<hash>_stereo_depth.tiff     the same as a stereo pair sees it; -1.0 where it sees nothing
        <i>_<hash>_grasps.txt        CRLF; `x;y;theta;opening;jaw`, theta in degrees, lengths in px

The opening direction is (cos theta, sin theta) with y down. Rows that follow each other with equal x, y, theta and
opening are one grasp at the jaw sizes at which it fits, of 1, 1/2, 3/2, 2 and 3 times 2 cm. A thing has 5 views, or 3.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer.synthetic._rendering import Camera, Grain, Lamp, RenderedThing, concrete, draw, encode, lit
from packer.synthetic._scene_objects import (
    THINGS,
    Chords,
    Generator,
    Grasp,
    Mask,
    Picture,
    Plane,
    differ,
    fits,
    make,
    outline,
    place,
)
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, stream, write_samples

_SIDE = 1024
_FOCAL = 1920.0  # px: 2 cm are 25.6 px at 1.5 m
_CAMERA = Camera(
    1.4775, 0.2605, _FOCAL, (_SIDE, _SIDE)
)  # 10 degrees off the vertical; the table is 1.43 to 1.57 m away
_FALLOFF = np.array([[0.93, 0.99, 0.93], [0.97, 1.0, 0.97], [0.88, 0.92, 0.88]])  # light, darker towards the corners
_PARTS = 12
_FINGER = 0.02  # m, length of the default jaw
_WIDEST = 0.165  # m, the narrow side of a thing: the gripper opens to 270 px
_JAWS = (1.0, 0.5, 1.5, 2.0, 3.0)
_LONGEST = 270.0  # px, the widest opening
# LZW, two rows per strip, no predictor: TIFF 6.0 tags 259, 278 and 317
_LZW = (cv2.IMWRITE_TIFF_COMPRESSION, 5, cv2.IMWRITE_TIFF_ROWSPERSTRIP, 2, cv2.IMWRITE_TIFF_PREDICTOR, 1)
_STEP = np.float32(0.0064)  # 1/m between two disparities


@dataclass(frozen=True)
class _Studio:
    """What all views share: the floor and noise."""

    seed: int
    floor: Picture
    grain: Grain


@dataclass(frozen=True)
class JacquardView:
    """One sample: which thing it shows, under which hash, and the number of the view."""

    thing: int
    hash: str
    number: int


def write(folder: Path, *, samples: int, seed: int = 0, threads: int = 1, missing_grasps: bool = False) -> SetSummary:
    """Write `samples` views, thing by thing.

    missing_grasps: leave out the grasp file of the first view, as happens in the real set.
    Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    views = sample_views(samples, seed=seed)
    with publishing(folder) as partial_folder:
        random = stream(seed, 0)
        studio = _Studio(seed, concrete(random, _SIDE), Grain(random, (_SIDE, _SIDE), deviation=0.8))
        lacking = 0 if missing_grasps else None
        draw = partial(_draw, studio, views=views, lacking=lacking)
        return write_samples(draw, partial_folder, samples=samples, threads=threads)


def sample_views(samples: int, *, seed: int) -> list[JacquardView]:
    """The first `samples` views, in the order in which they are written."""
    views: list[JacquardView] = []
    thing = 0
    while len(views) < samples:
        random = stream(seed, 2, thing)
        name = random.bytes(16).hex()[: 31 if random.random() < 0.2 else 32]
        views += [JacquardView(thing, name, number) for number in range(3 if random.random() < 0.1 else 5)]
        thing += 1
    return views[:samples]


def _draw(studio: _Studio, index: int, *, views: list[JacquardView], lacking: int | None) -> DrawnSample:
    view = views[index]
    random = stream(studio.seed, 1, index)
    drawn = _drawn(studio, view, random=random)
    stem = f"Jacquard_Dataset_{view.thing % _PARTS}/{view.hash}/{view.number}_{view.hash}_"
    files = {
        f"{stem}RGB.png": encode(".png", studio.grain.add(drawn.picture, random)),
        f"{stem}mask.png": encode(".png", drawn.mask),
        f"{stem}perfect_depth.tiff": encode(".tiff", drawn.depth, *_LZW),
        f"{stem}stereo_depth.tiff": encode(".tiff", _stereo(drawn.depth, drawn.mask, random=random), *_LZW),
        f"{stem}grasps.txt": _rows(drawn.mask, drawn.depth, random=random),
    }
    if index == lacking:
        del files[f"{stem}grasps.txt"]
    return DrawnSample(files)


def _drawn(studio: _Studio, view: JacquardView, *, random: Generator) -> RenderedThing:
    kinds = tuple(THINGS)
    shape = stream(studio.seed, 3, view.thing)
    thing = make(kinds[shape.integers(len(kinds))], shape)
    scale = min(shape.uniform(1.0, 1.9), _WIDEST / float(np.ptp(outline(thing), axis=0).min()))
    x, y = random.uniform(-0.09, 0.09, 2).tolist()
    thing = place(thing, turn=random.uniform(0, 2 * math.pi), at=(x, y), scale=scale)
    lamp = Lamp(random.uniform(0, 2 * math.pi), random.uniform(0.85, 1.25), sky=0.9, softness=0.45)
    top, left = random.integers(0, _SIDE, 2).tolist()
    floor = np.rot90(np.roll(studio.floor, (top, left), (0, 1)), int(random.integers(4)))
    return draw(thing, _CAMERA, lamp, table=lit(np.ascontiguousarray(floor), _FALLOFF))


def _rows(mask: Mask, depth: Plane, *, random: Generator) -> bytes:
    """The grasp file."""
    wanted = int(np.clip(random.poisson(27), 9, 59))
    kept: list[Grasp] = []
    rows = []
    chords = Chords.through(mask, random, count=150, longest=_LONGEST, stride=2)
    for grasp in chords.grasps(random, longest=_LONGEST, gap=(3.0, 12.0), unit=1.5):
        if len(kept) == wanted or not all(differ(grasp, other, distance=6) for other in kept):
            continue
        jaw = _FINGER * _FOCAL / float(depth[round(grasp.y), round(grasp.x)])
        sized = [replace(grasp, jaw=jaw * factor) for factor in _JAWS]
        if fits(mask, sized[0].corners()):
            kept.append(grasp)
            rows += [_row(size) for size in sized if fits(mask, size.corners())]
    return "".join(rows).encode()


def _row(grasp: Grasp) -> str:
    theta = round(math.degrees(grasp.angle), 4)
    jaw = round(grasp.jaw, 4)
    return f"{round(grasp.x, 5)};{round(grasp.y, 5)};{90.0 if theta <= -90 else theta};{grasp.opening};{jaw}\r\n"


def _stereo(depth: Plane, mask: Mask, *, random: Generator) -> Plane:
    """Depth in the steps of a disparity, ragged at the steps; -1.0 along edges and at the left border."""
    noise = cv2.resize(random.standard_normal((256, 256), np.float32), (_SIDE, _SIDE), interpolation=cv2.INTER_LINEAR)
    inverse = 1 / depth
    stepped = np.rint(inverse / _STEP + np.float32(0.1) * noise) * _STEP
    seen = 1 / (np.float32(0.75) * stepped + np.float32(0.25) * inverse)
    edge = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 9), np.uint8))
    wrong = (edge > 0) & (noise > 1.3)
    seen[wrong] *= np.float32(random.uniform(1.0, 1.6))
    seen[(edge > 0) & (noise > -0.2) & (noise < 1.0)] = -1
    column, row = np.arange(_SIDE)[None, :], np.arange(_SIDE)[:, None]
    seen[(column < 2) & (noise[:, :1] > 0.1)] = -1
    seen[column + row < random.integers(8, 64)] = -1
    return np.asarray(seen)
