"""Cornell: RGB-D scenes with grasp rectangles, in the layout of the Cornell Grasping Dataset.

    01 ... 10/pcdNNNNr.png       640x480 RGB, 8 bit
              pcdNNNNd.tiff      float32 (480, 640), distance from the camera in m, uncompressed
              pcdNNNNcpos.txt    4 lines `x y` per rectangle, a blank after lines 1-3; p0 to p1 is the opening
              pcdNNNNcneg.txt    the same, rectangles that do not grasp; may be empty
    backgrounds/pcdbNNNNr.png    the empty table, 11 times
    processedData/z.txt          `id object category background`, a line per rectangle

The ids are those of the real set (0100-0949 and 1000-1034, 885 in all). Samples come object by object, 4 views each,
one object from each folder in turn, so that a small set has every folder. Some rectangles are NaN and some cneg files
are empty, as in the real set: NaN in 0102, 0132 and 0165, empty in 0103 and 0154.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer.synthetic._rendering import Camera, Grain, Lamp, board, clouds, coloured, draw, encode, lit, spread
from packer.synthetic._scene_objects import (
    THINGS,
    Chords,
    Floats,
    Generator,
    Grasp,
    Mask,
    Picture,
    Plane,
    differ,
    fits,
    make,
    place,
)
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, stream, write_files, write_samples
from packer.system.parallel import ordered_map

FOLDERS = {"01": (100, 100), "02": (200, 100), "03": (300, 100), "04": (400, 100), "05": (500, 100)}
FOLDERS |= {"06": (600, 100), "07": (700, 100), "08": (800, 100), "09": (900, 50), "10": (1000, 35)}
SCENES = sum(count for _, count in FOLDERS.values())
_BACKGROUNDS = (2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13)
_LISTED = 1035  # ids in z.txt; those below 100 and from 950 to 999 have no files, in the real set too
_WITH_NAN = {102: (1,), 132: (2, 3), 165: (1,)}
_WITHOUT_NEGATIVES = (103, 154)
_VIEWS = 4  # per object
_SIZE = (480, 640)
_LONGEST = 220.0  # px, the widest opening
_FLOOR = 0.24  # m below the board
# uncompressed, in one strip
_PLAIN = (cv2.IMWRITE_TIFF_COMPRESSION, 1, cv2.IMWRITE_TIFF_ROWSPERSTRIP, _SIZE[0])
_STEP = np.float32(0.002)  # 1/m between two steps of depth: 2 mm at 1 m


@dataclass(frozen=True)
class _Desk:
    """A white board with a back wall on a carpeted floor, as a Kinect above it sees it; the board is the table, z = 0.

    depth: float32 (480, 640), along the optical axis in m.
    """

    camera: Camera
    lamp: Lamp
    picture: Picture
    depth: Plane


@dataclass(frozen=True)
class _Studio:
    """What all scenes share: one desk per background, and noise."""

    seed: int
    desks: tuple[_Desk, ...]
    grain: Grain


def write(folder: Path, *, samples: int, seed: int = 0, threads: int = 1) -> SetSummary:
    """Write the first `samples` scenes, at most 885; raises InvalidRequest, PackExists, StorageError."""
    check_counts(samples=samples, seed=seed, most=SCENES)
    ids = scene_ids()[:samples]
    with publishing(folder) as partial_folder:
        random = stream(seed, 0)
        draw_desk = partial(_desk, seed, board(random, 768))
        desks = tuple(ordered_map(draw_desk, range(len(_BACKGROUNDS)), threads=threads))
        studio = _Studio(seed, desks, Grain(random, _SIZE, deviation=2.8, blur=0.7))
        extra = _backgrounds(studio) | {"processedData/z.txt": _table(seed)}
        size_bytes = write_files(partial_folder, extra)
        done = write_samples(partial(_draw, studio, ids=ids), partial_folder, samples=samples, threads=threads)
        return SetSummary(samples, done.files + len(extra), done.size_bytes + size_bytes)


def _desk(seed: int, sheet: Picture, index: int) -> _Desk:
    """A new desk: light, camera and how far the board goes differ a little from desk to desk."""
    random = stream(seed, 6, index)
    camera = Camera(random.uniform(0.86, 0.93), random.uniform(0.44, 0.5), 525.0, _SIZE, random.uniform(-0.06, 0.06))
    lamp = Lamp(random.uniform(-2.6, -0.5), random.uniform(1.05, 1.25), sky=random.uniform(0.8, 1.1), softness=0.5)
    left, right, back = random.uniform(-0.7, -0.6), random.uniform(0.44, 0.5), random.uniform(0.30, 0.36)
    pile = 0.45 + 0.15 * clouds(random, 640, first=160, octaves=3, fall=1.0) + 0.05 * clouds(random, 640)
    floor = coloured(pile, (34, 25, 22), (122, 98, 86))[: _SIZE[0]]
    plain = np.full_like(floor, (172, 168, 165))
    white = spread(np.roll(sheet, tuple(random.integers(0, 768, 2).tolist()), (0, 1)), camera)
    # the floor lies below the board, so further away along every ray; the wall stands at the back of the board
    table = np.broadcast_to(camera.table_depth(), _SIZE)
    (cos, sin), down = camera.tilt, (np.arange(480)[:, None] - 239.5) / camera.focal
    upright = np.broadcast_to((back + camera.back) / (cos - down * sin), _SIZE)
    picture, depth = floor.copy(), table * np.float32((camera.height + _FLOOR) / camera.height)
    end = right - random.uniform(0.15, 0.24)
    for corners, paint, distance in (
        ([[left, back, 0], [left, back, 0.4], [end, back, 0.4], [end, back, 0]], plain, upright),
        ([[left, back, 0], [right, back, 0], [right, -0.7, 0], [left, -0.7, 0]], white, table),
    ):
        area = cv2.fillPoly(np.zeros(_SIZE, np.uint8), [np.rint(camera.project(np.array(corners))).astype(np.int32)], 1)
        picture[area > 0], depth[area > 0] = paint[area > 0], distance[area > 0]
    level = np.array([[0.86, 0.9, 0.84], [0.94, 1.0, 0.96], [0.95, 1.02, 0.99]]) + random.uniform(-0.03, 0.03, (3, 3))
    return _Desk(camera, lamp, lit(picture, level), depth)


def scene_ids() -> list[tuple[str, int]]:
    """(folder, id) of all scenes, in the order in which they are written."""
    order = [
        (view // _VIEWS, folder, first + view) for folder, (first, count) in FOLDERS.items() for view in range(count)
    ]
    return [(folder, number) for _, folder, number in sorted(order)]


@dataclass(frozen=True)
class _Plan:
    """What is known of a scene before it is drawn."""

    object_id: int
    kind: str
    background: int  # index of _BACKGROUNDS
    positives: int
    negatives: int


def _plan(seed: int, number: int) -> _Plan:
    """Scenes with ids that follow each other share an object."""
    object_id = number // _VIEWS
    kinds = tuple(THINGS)
    kind = kinds[stream(seed, 2, object_id).integers(len(kinds))]
    random = stream(seed, 3, number)
    positives = int(np.clip(random.poisson(3.6) + 1, 2, 10))
    negatives = int(random.choice(5, p=(0.04, 0.1, 0.16, 0.6, 0.1)))
    if number in _WITH_NAN:
        positives = max(5, positives)
    if number in _WITHOUT_NEGATIVES:
        negatives = 0
    return _Plan(object_id, kind, number * len(_BACKGROUNDS) // _LISTED, positives, negatives)


def _table(seed: int) -> bytes:
    """z.txt: all ids, a line per rectangle."""
    lines = []
    for number in range(_LISTED):
        plan = _plan(seed, number)
        line = f"{number:04d} {plan.object_id} {plan.kind.capitalize()} pcdb_{_BACKGROUNDS[plan.background]:04d}\n"
        lines += [line] * (plan.positives + plan.negatives)
    return "".join(lines).encode()


def _backgrounds(studio: _Studio) -> dict[str, bytes]:
    random = stream(studio.seed, 4)
    return {
        f"backgrounds/pcdb{number:04d}r.png": encode(".png", studio.grain.add(desk.picture, random))
        for number, desk in zip(_BACKGROUNDS, studio.desks, strict=True)
    }


def _draw(studio: _Studio, index: int, *, ids: list[tuple[str, int]]) -> DrawnSample:
    folder, number = ids[index]
    plan = _plan(studio.seed, number)
    random = stream(studio.seed, 1, number)
    desk = studio.desks[plan.background]
    thing = make(plan.kind, stream(studio.seed, 5, plan.object_id))
    at = (random.uniform(-0.12, 0.08), random.uniform(-0.14, 0.04))
    thing = place(thing, turn=random.uniform(0, 2 * math.pi), at=at)
    drawn = draw(thing, desk.camera, desk.lamp, table=desk.picture, depth=desk.depth)
    chords = Chords.through(drawn.mask, random, count=110, longest=_LONGEST, stride=2)
    positives = _positives(drawn.mask, chords, random, count=plan.positives)
    misses = chords.misses(random, longest=_LONGEST / 2)
    for lost in _WITH_NAN.get(number, ()):
        positives[lost][[0, 3]] = np.nan
    stem = f"{folder}/pcd{number:04d}"
    return DrawnSample({
        f"{stem}r.png": encode(".png", studio.grain.add(drawn.picture, random)),
        f"{stem}d.tiff": encode(".tiff", _measured(drawn.depth, desk.camera, random=random), *_PLAIN),
        f"{stem}cpos.txt": _lines(positives),
        f"{stem}cneg.txt": _lines([_snapped(miss, random) for miss in misses[: plan.negatives]]),
    })  # fmt: skip


def _positives(mask: Mask, chords: Chords, random: Generator, *, count: int) -> list[Floats]:
    """`count` rectangles that grasp, far from each other first; where a thing has fewer places, some come twice."""
    grasps = chords.grasps(random, longest=_LONGEST, gap=(3.0, 9.0), unit=0.5)
    kept: list[tuple[Grasp, Floats]] = []
    # long jaws first: beside a bent thing, or inside a ring, only short ones fit
    for distance, widest_jaw in ((12.0, 34.0), (5.0, 20.0), (0.5, 9.0)):
        for grasp in grasps:
            if len(kept) < count and all(differ(grasp, other, distance=distance) for other, _ in kept):
                corners = _snapped(replace(grasp, jaw=random.uniform(9, widest_jaw)), random)
                if fits(mask, corners):
                    kept.append((grasp, corners))
    kept = kept or [(grasp, _snapped(grasp, random)) for grasp in grasps]  # too narrow a place even for short jaws
    return [kept[i % len(kept)][1].copy() for i in range(count)]


def _measured(depth: Plane, camera: Camera, *, random: Generator) -> Plane:
    """Distance from the camera in m, in the steps of a Kinect, with a few wrong pixels at the bottom left."""
    noise = cv2.resize(random.standard_normal((60, 80), np.float32), _SIZE[::-1], interpolation=cv2.INTER_LINEAR)
    steps = np.rint(1 / depth / _STEP + np.float32(0.25) * noise)
    distance = camera.ray_lengths() / (steps * _STEP)
    distance[-3:, :2] = random.uniform(0.0323, 0.0353, (3, 2))
    return np.asarray(distance, np.float32)


def _snapped(grasp: Grasp, random: Generator) -> Floats:
    """The grasp's corners as people mark them, going round either way.

    p1 and p2 are whole pixels, p0 and p3 have a whole x and a y of 3 decimals: an exact parallelogram, nearly a
    rectangle.
    """
    corners = grasp.corners()
    p0, p1, p2, _ = corners[::-1] if random.random() < 0.75 else corners
    p1, p2 = np.rint(p1), np.rint(p2)
    jaw = p2 - p1
    across = np.array([jaw[1], -jaw[0]]) * grasp.opening / np.hypot(*jaw)
    start = p1 + across * np.sign(across @ (p0 - p1))
    start = np.array([np.rint(start[0]), np.round(start[1], 3)])
    return np.stack([start, p1, p2, start + jaw])


def _lines(rectangles: list[Floats]) -> bytes:
    """4 lines `x y` per rectangle, a blank at the end of the first three; up to 3 decimals, NaN as `NaN`."""
    points = [[" ".join(map(_number, point)) for point in corners.tolist()] for corners in rectangles]
    return "".join(" \n".join(four) + "\n" for four in points).encode()


def _number(value: float) -> str:
    return "NaN" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
