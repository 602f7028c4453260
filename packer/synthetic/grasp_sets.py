"""Grasp sets: RGB-D images of an object with grasps, in the layouts of Cornell and Jacquard.

cornell: the sample ids are 0100-0949 and 1000-1034, as in the real data set. An object has 4 views. Successive objects
are in different folders, so that even a small set contains all folders. Some cneg files are empty, and a few depth
pixels are wrong, as in the real data set.

| file                            | content                                                                          |
|---------------------------------|----------------------------------------------------------------------------------|
| 01 to 10/pcdNNNNr.png           | 640x480 RGB, 8 bit                                                               |
| 01 to 10/pcdNNNNd.tiff          | float32 (480, 640), depth in m, uncompressed                                     |
| 01 to 10/pcdNNNNcpos.txt        | 4 lines `x y` per rectangle, a blank after lines 1-3; p0 to p1 is the opening    |
| 01 to 10/pcdNNNNcneg.txt        | rectangles at which a grasp fails, as in cpos                                    |
| processedData/z.txt             | `id object category background`, a line per rectangle                            |

jacquard: an object has 5 views. The opening direction is (cos theta, sin theta), y down. Consecutive rows with equal
x, y, theta and opening are one grasp with several jaw sizes: 1, 1/2, 3/2, 2 and 3 times 2 cm.

| file in Jacquard_Dataset_K/HASH | content (K from 0 to 11; HASH has 32 hex digits, sometimes 31)                   |
|---------------------------------|----------------------------------------------------------------------------------|
| I_HASH_RGB.png                  | 1024x1024 RGB, 8 bit                                                             |
| I_HASH_mask.png                 | 255 at the object, 0 elsewhere                                                   |
| I_HASH_perfect_depth.tiff       | float32, depth along the optical axis in m, LZW, two rows per strip              |
| I_HASH_stereo_depth.tiff        | depth as a stereo camera measures it; -1.0 for missing pixels                    |
| I_HASH_grasps.txt               | CRLF; `x;y;theta;opening;jaw`, theta in degrees, lengths in px                   |
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer.synthetic import drawing
from packer.synthetic.drawing import KINDS, Floats, Generator, Pixels, Plane, clouds, encode
from packer.synthetic.set_writer import DrawnSample, SetSummary, check_counts, stream, write_set

# --- grasps of an object, computed from a mask

_POINTS = 100
_DIRECTIONS = 24
_UNIT = 1.5  # px; every opening is a multiple of this length


@dataclass(frozen=True)
class DrawnGrasp:
    """A grasp rectangle with center (x, y), opening and jaw length in px, and angle in rad, in (-pi/2, pi/2].

    The gripper opens along (cos angle, sin angle), y down. The opening is the distance of the fingers, the jaw their
    length.
    """

    x: float
    y: float
    angle: float
    opening: float
    jaw: float

    def corners(self) -> Floats:
        """Return the corners p0 to p3 as float64 (4, 2), x and y. The side p0-p1 is the opening, p1-p2 the jaw."""
        c, s = math.cos(self.angle), math.sin(self.angle)
        along, across = np.array([c, s]) * self.opening / 2, np.array([-s, c]) * self.jaw / 2
        return np.stack([-along - across, along - across, along + across, across - along]) + [self.x, self.y]

    def fits(self, mask: Pixels) -> bool:
        """Return True if the center is on the object, and both fingers are inside the image and outside the object."""
        corners = self.corners()
        if corners.min() < 0 or (corners.max(0) > np.array(mask.shape[::-1]) - 1).any():
            return False
        steps = np.linspace(0, 1, int(self.jaw) + 2)[:, None]
        fingers = [corners[a] + steps * (corners[b] - corners[a]) for a, b in ((1, 2), (3, 0))]
        x, y = np.rint(np.concatenate([[[self.x, self.y]], *fingers])).astype(int).T
        return bool(mask[y[0], x[0]] and not mask[y[1:], x[1:]].any())

    def differs(self, other: "DrawnGrasp", *, distance: float) -> bool:
        """Return True if the centers differ by more than `distance` px, or the angles by more than 30 degrees."""
        turn = abs((self.angle - other.angle + math.pi / 2) % math.pi - math.pi / 2)
        return math.hypot(self.x - other.x, self.y - other.y) > distance or turn > math.pi / 6


def find_grasps(
    mask: Pixels, random: Generator, *, longest: int, jaw: float, distance: float
) -> tuple[list[DrawnGrasp], list[DrawnGrasp]]:
    """Return (grasps, misses): rectangles of successful and of failing grasps, at random points of an object.

    A grasp spans the object in a short direction, with both fingers 2 to 10 px outside the object. A miss is along a
    long direction, with both fingers on the object.

    Args:
        mask: bool (H, W), True on the object.
        longest: Largest opening of a grasp, in px.
        jaw: Length of the fingers of a grasp, in px.
        distance: Smallest distance of two grasps in px. Grasps whose angles differ by over 30 degrees may be closer.
    """
    grasps: list[DrawnGrasp] = []
    misses: list[DrawnGrasp] = []
    rows, columns = np.nonzero(mask)
    padded = np.pad(mask, longest)  # chords may leave the image
    for k in random.integers(0, len(rows), _POINTS if len(rows) else 0).tolist():
        x, y = float(columns[k]), float(rows[k])
        angles = (np.arange(1.0, _DIRECTIONS + 1) - random.random()) * (math.pi / _DIRECTIONS) - math.pi / 2
        before, after = (_reach(padded, x, y, angles + turn, longest) for turn in (math.pi, 0.0))
        short = int(np.argmin((before + after) * random.uniform(1, 1.08, _DIRECTIONS)))
        angle, shift = float(angles[short]), float(after[short] - before[short]) / 2
        opening = math.ceil((before[short] + after[short] + 2 * random.uniform(2, 10)) / _UNIT) * _UNIT
        grasp = DrawnGrasp(x + shift * math.cos(angle), y + shift * math.sin(angle), angle, opening, jaw)
        is_new = all(grasp.differs(other, distance=distance) for other in grasps)
        if is_new and opening <= longest and grasp.fits(mask):
            grasps.append(grasp)
        on_object = np.minimum(before, after)
        long = int(np.argmax(on_object))
        half = min(int(random.integers(4, 25)), int(0.8 * on_object[long]))
        if half >= 4:
            misses.append(DrawnGrasp(x, y, float(angles[long]), 2 * half, random.uniform(16, 60)))
    return grasps, misses


def _reach(padded: Pixels, x: float, y: float, angles: Floats, longest: int) -> Floats:
    """Return the distance in px from a point to the edge of the object for each angle, at most `longest`."""
    steps = np.arange(1, longest + 1)[:, None]
    columns = np.rint(x + longest + steps * np.cos(angles)).astype(int)
    rows = np.rint(y + longest + steps * np.sin(angles)).astype(int)
    free = ~padded[rows, columns]
    return np.where(free.any(0), free.argmax(0) + 0.5, float(longest))


# --- cornell

_CORNELL_VIEWS = 4  # per object
_CORNELL_SIZE = (480, 640)
_CORNELL_SCALE = 525.0  # px per m: the focal length of a Kinect, at a distance of 1 m
_CORNELL_LONGEST = 220  # px, largest opening
# uncompressed, in one strip
_PLAIN = (cv2.IMWRITE_TIFF_COMPRESSION, 1, cv2.IMWRITE_TIFF_ROWSPERSTRIP, _CORNELL_SIZE[0])
_DEPTH_STEP = np.float32(0.002)  # 1/m between two steps of depth: 2 mm at 1 m


def write_cornell(folder: Path, *, samples: int, seed: int = 0, threads: int = 1) -> SetSummary:
    """Write the first `samples` scenes of the cornell set, at most 885, into a new or empty folder. Return the counts.

    Raises:
        InvalidRequest: An option is outside its limits.
        PackExists: The folder is not empty.
        StorageError: A file cannot be written.
    """
    ids = scene_ids()
    check_counts(samples=samples, seed=seed, most=len(ids))
    return write_set(folder, partial(_cornell_scene, seed, ids), samples=samples, threads=threads)


def scene_ids() -> list[tuple[str, int]]:
    """Return (folder, id) of all scenes, in the order of the samples."""
    numbers = [*range(100, 950), *range(1000, 1035)]
    numbers.sort(key=lambda number: (number % 100 // _CORNELL_VIEWS, number))
    return [(f"{number // 100:02d}", number) for number in numbers]


def _cornell_scene(seed: int, ids: list[tuple[str, int]], index: int) -> DrawnSample:
    folder, number = ids[index]
    random, object_id = stream(seed, 1, number), number // _CORNELL_VIEWS
    form = stream(seed, 2, object_id)  # all views of an object show the same shape
    kind = KINDS[form.integers(len(KINDS))]
    image = drawing.draw_table(random, _CORNELL_SIZE, number=drawing.WHITE)
    at, turn = (random.uniform(240, 400), random.uniform(160, 320)), random.uniform(0, 2 * math.pi)
    heights = drawing.draw_object(image, drawing.make_object(kind, form), at=at, turn=turn, scale=_CORNELL_SCALE)
    depth = (
        np.linspace(1.09, 0.91, _CORNELL_SIZE[0], dtype=np.float32)[:, None] - heights
    )  # the camera looks down at an angle
    mask = heights > 0
    grasps, misses = find_grasps(mask, random, longest=_CORNELL_LONGEST, jaw=6, distance=12)
    positives = _cornell_positives(mask, grasps, random)
    negatives = [miss.corners() for miss in misses[: random.integers(0, 5)]]
    stem, background = f"{folder}/pcd{number:04d}", 2 + number % 12
    row = f"{number:04d} {object_id} {kind.capitalize()} pcdb_{background:04d}\n"
    files = {
        f"{stem}r.png": encode(".png", drawing.photograph(image, random, grain=3.2)),
        f"{stem}d.tiff": encode(".tiff", _measured(depth, random), *_PLAIN),
        f"{stem}cpos.txt": _cornell_lines(positives),
        f"{stem}cneg.txt": _cornell_lines(negatives),
    }
    return DrawnSample(files, {"processedData/z.txt": [row] * (len(positives) + len(negatives))})


def _cornell_positives(mask: Pixels, grasps: list[DrawnGrasp], random: Generator) -> list[Floats]:
    """Return 5 to 10 rectangles, with longer jaws if these fit. If there are fewer than 5 grasps, repeat rectangles."""
    corners = []
    for grasp in grasps:
        longer = replace(grasp, jaw=random.uniform(9, 34))
        both_ways = (longer if longer.fits(mask) else grasp).corners()[:: random.choice([-1, 1])]  # as people do
        corners.append(both_ways)
    return (corners * 5)[: random.integers(5, 11)]


def _measured(depth: Plane, random: Generator) -> Plane:
    steps = np.rint(1 / depth / _DEPTH_STEP + np.float32(0.25) * clouds(random, _CORNELL_SIZE, cells=70))
    measured = 1 / (steps * _DEPTH_STEP)
    measured[-3:, :2] = random.uniform(0.0323, 0.0353, (3, 2))
    return np.asarray(measured, np.float32)


def _cornell_lines(rectangles: list[Floats]) -> bytes:
    texts = (" \n".join(f"{x:.3f} {y:.3f}" for x, y in corners.tolist()) + "\n" for corners in rectangles)
    return "".join(texts).encode()


# --- jacquard

_JACQUARD_SIDE = 1024  # px
_JACQUARD_SCALE = 1280.0  # px per m, at a distance of 1.5 m
_JACQUARD_VIEWS = 5  # per object
_PARTS = 12
_FINGER = 0.02  # m, length of the default jaw
_JAWS = (1.0, 0.5, 1.5, 2.0, 3.0)
_JACQUARD_LONGEST = 270  # px, largest opening
# LZW, two rows per strip, no predictor: TIFF 6.0 tags 259, 278 and 317
_LZW = (cv2.IMWRITE_TIFF_COMPRESSION, 5, cv2.IMWRITE_TIFF_ROWSPERSTRIP, 2, cv2.IMWRITE_TIFF_PREDICTOR, 1)
_DISPARITY = np.float32(0.0064)  # 1/m between two disparities


def write_jacquard(folder: Path, *, samples: int, seed: int = 0, threads: int = 1) -> SetSummary:
    """Write `samples` views of the jacquard set into a new or empty folder, object by object. Return the counts.

    Raises:
        InvalidRequest: An option is outside its limits.
        PackExists: The folder is not empty.
        StorageError: A file cannot be written.
    """
    check_counts(samples=samples, seed=seed)
    return write_set(folder, partial(_jacquard_view, seed), samples=samples, threads=threads)


def _jacquard_view(seed: int, index: int) -> DrawnSample:
    object_id, view = divmod(index, _JACQUARD_VIEWS)
    random, form = stream(seed, 1, index), stream(seed, 3, object_id)
    name = form.bytes(16).hex()[: 31 if form.random() < 0.2 else 32]
    drawn, scale = (
        drawing.make_object(KINDS[form.integers(len(KINDS))], form),
        _JACQUARD_SCALE * form.uniform(0.9, 1.25),
    )
    image = drawing.draw_table(random, (_JACQUARD_SIDE, _JACQUARD_SIDE), number=drawing.GRAY)
    at, turn = (random.uniform(400, 620), random.uniform(400, 620)), random.uniform(0, 2 * math.pi)
    heights = drawing.draw_object(image, drawn, at=at, turn=turn, scale=scale)
    mask = heights > 0
    depth = (
        np.linspace(1.57, 1.43, _JACQUARD_SIDE, dtype=np.float32)[:, None] - heights
    )  # the camera looks down at an angle
    stem = f"Jacquard_Dataset_{object_id % _PARTS}/{name}/{view}_{name}_"
    files = {
        f"{stem}RGB.png": encode(".png", drawing.photograph(image, random, grain=0.9)),
        f"{stem}mask.png": encode(".png", np.where(mask, 255, 0).astype(np.uint8)),
        f"{stem}perfect_depth.tiff": encode(".tiff", depth, *_LZW),
        f"{stem}stereo_depth.tiff": encode(".tiff", _stereo(depth, mask, random), *_LZW),
    }
    grasps, _ = find_grasps(mask, random, longest=_JACQUARD_LONGEST, jaw=28, distance=8)
    files[f"{stem}grasps.txt"] = _jacquard_rows(grasps, mask, depth)
    return DrawnSample(files)


def _jacquard_rows(grasps: list[DrawnGrasp], mask: Pixels, depth: Plane) -> bytes:
    """Return the grasp file: for each grasp, one row per jaw size that fits, the default size first."""
    rows = []
    for grasp in grasps:
        jaw = _FINGER * _JACQUARD_SCALE * 1.5 / float(depth[round(grasp.y), round(grasp.x)])
        sized = [replace(grasp, jaw=round(jaw * factor, 4)) for factor in _JAWS]
        for each in sized if sized[0].fits(mask) else ():
            if each.fits(mask):
                theta = round(math.degrees(each.angle), 4)
                rows.append(f"{each.x:.5f};{each.y:.5f};{theta};{each.opening};{each.jaw}\r\n")
    return "".join(rows).encode()


def _stereo(depth: Plane, mask: Pixels, random: Generator) -> Plane:
    """Return depth as a stereo camera measures it. Pixels at some edges and in a corner of the image are -1."""
    noise = clouds(random, depth.shape, cells=256)
    stepped = np.rint(1 / depth / _DISPARITY + np.float32(0.1) * noise) * _DISPARITY
    seen = 1 / (np.float32(0.75) * stepped + np.float32(0.25) / depth)
    edge = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 9), np.uint8)) > 0
    seen[edge & (noise > 1.3)] *= np.float32(random.uniform(1.0, 1.6))
    seen[edge & (noise > -0.2) & (noise < 1.0)] = -1
    row, column = np.ogrid[:_JACQUARD_SIDE, :_JACQUARD_SIDE]
    seen[column + row < random.integers(8, 64)] = -1
    return np.asarray(seen, np.float32)
