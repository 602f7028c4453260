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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer.synthetic.base import SetSummary, check_counts, publishing, stream, write_files, write_samples
from packer.synthetic.rendering import image
from packer.synthetic.rendering.catalogue import THINGS, Thing, make, place
from packer.synthetic.rendering.desk import Desk, Sheets, draw_desk, sheets
from packer.synthetic.rendering.grasp import Floats, Generator, Grasp, Mask, Search, differ, find, find_misses, fits
from packer.synthetic.rendering.part import Plane
from packer.synthetic.rendering.rectangle import lines, snapped
from packer.synthetic.rendering.scene import Rendering, Scene, render
from packer.synthetic.rendering.texture import Grain
from packer.system.parallel import ordered_map

FOLDERS = {"01": (100, 100), "02": (200, 100), "03": (300, 100), "04": (400, 100), "05": (500, 100)}
FOLDERS |= {"06": (600, 100), "07": (700, 100), "08": (800, 100), "09": (900, 50), "10": (1000, 35)}
SCENES = sum(count for _, count in FOLDERS.values())
_BACKGROUNDS = (2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13)
_LISTED = 1035  # ids in z.txt; those below 100 and from 950 to 999 have no files, in the real set too
_WITH_NAN = {102: (1,), 132: (2, 3), 165: (1,)}
_WITHOUT_NEGATIVES = (103, 154)
_VIEWS = 4  # per object
# the second is for things with few places; no thing of the catalogue is too wide for it
_SEARCHES = (
    Search(tries=72, longest=110, gap=(3.0, 9.0), jaw=(9.0, 34.0)),
    Search(tries=400, longest=220, gap=(4.0, 12.0), jaw=(9.0, 12.0)),
)
_STEP = np.float32(0.002)  # 1/m between two steps of depth: 2 mm at 1 m


@dataclass(frozen=True)
class _Studio:
    """What all scenes share: one desk per background, and noise."""

    seed: int
    desks: tuple[Desk, ...]
    grain: Grain


def write(folder: Path, *, samples: int, seed: int = 0, threads: int = 1) -> SetSummary:
    """Write the first `samples` scenes, at most 885; raises InvalidRequest, PackExists, StorageError."""
    check_counts(samples=samples, seed=seed, most=SCENES)
    ids = scene_ids()[:samples]
    with publishing(folder) as partial_folder:
        random = stream(seed, 0)
        draw = partial(_desk, seed, textures=sheets(random))
        desks = tuple(ordered_map(draw, range(len(_BACKGROUNDS)), threads=threads))
        studio = _Studio(seed, desks, Grain(random, (480, 640), deviation=2.8, blur=0.7))
        extra = _backgrounds(studio) | {"processedData/z.txt": _table(seed)}
        size_bytes = write_files(partial_folder, extra)
        done = write_samples(partial(_draw, studio, ids=ids), partial_folder, samples=samples, threads=threads)
        return SetSummary(samples, done.files + len(extra), done.size_bytes + size_bytes)


def _desk(seed: int, index: int, *, textures: Sheets) -> Desk:
    return draw_desk(stream(seed, 6, index), textures=textures)


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
        f"backgrounds/pcdb{number:04d}r.png": image.png(studio.grain.add(desk.picture, random))
        for number, desk in zip(_BACKGROUNDS, studio.desks, strict=True)
    }


def _draw(studio: _Studio, index: int, *, ids: list[tuple[str, int]]) -> dict[str, bytes]:
    folder, number = ids[index]
    plan = _plan(studio.seed, number)
    random = stream(studio.seed, 1, number)
    desk = studio.desks[plan.background]
    drawn = render(Scene(desk.camera, _posed(studio.seed, plan, random=random), desk.lamp), desk.picture)
    mask = drawn.full_mask()
    positives = _positives(mask, random, count=plan.positives)
    for lost in _WITH_NAN.get(number, ()):
        positives[lost][[0, 3]] = np.nan
    stem = f"{folder}/pcd{number:04d}"
    return {
        f"{stem}r.png": image.png(studio.grain.add(drawn.picture, random)),
        f"{stem}d.tiff": image.tiff(_measured(drawn, desk, random=random)),
        f"{stem}cpos.txt": lines(positives),
        f"{stem}cneg.txt": lines(_negatives(mask, random, count=plan.negatives)),
    }


def _posed(seed: int, plan: _Plan, *, random: Generator) -> Thing:
    thing = make(plan.kind, stream(seed, 5, plan.object_id))
    at = (random.uniform(-0.12, 0.08), random.uniform(-0.14, 0.04))
    return place(thing, turn=random.uniform(0, 2 * math.pi), at=at)


def _positives(mask: Mask, random: Generator, *, count: int) -> list[Floats]:
    """`count` rectangles that grasp, far from each other first; where a thing has fewer places, some come twice."""
    candidates = _candidates(mask, random)
    kept: list[tuple[Grasp, Floats]] = []
    for distance in (12.0, 5.0, 0.5):
        for grasp, corners in candidates:
            if len(kept) < count and all(differ(grasp, other, distance=distance) for other, _ in kept):
                kept.append((grasp, corners))
    return [kept[i % len(kept)][1].copy() for i in range(count)]


def _candidates(mask: Mask, random: Generator) -> list[tuple[Grasp, Floats]]:
    """Grasps that fit, with their rectangles."""
    for search in _SEARCHES:
        drawn = [
            (grasp, snapped(grasp, mirrored=random.random() < 0.75)) for grasp in find(mask, random, search=search)
        ]
        fitting = [(grasp, corners) for grasp, corners in drawn if fits(mask, corners)]
        if fitting:
            return fitting
    return drawn


def _negatives(mask: Mask, random: Generator, *, count: int) -> list[Floats]:
    found = find_misses(mask, random, search=_SEARCHES[0])
    return [snapped(grasp, mirrored=random.random() < 0.75) for grasp in found[:count]]


def _measured(drawn: Rendering, desk: Desk, *, random: Generator) -> Plane:
    """Distance from the camera in m, in the steps of a Kinect, with a few wrong pixels at the bottom left."""
    inverse = 1 / drawn.full_depth(desk.depth)
    noise = cv2.resize(random.standard_normal((60, 80), np.float32), (640, 480), interpolation=cv2.INTER_LINEAR)
    steps = np.rint(inverse / _STEP + np.float32(0.25) * noise)
    distance = desk.camera.ray_lengths() / (steps * _STEP)
    distance[-3:, :2] = random.uniform(0.0323, 0.0353, (3, 2))
    return np.asarray(distance, np.float32)
