"""Grasp: where a two-finger gripper fits across a thing, found in its mask.

A grasp has a centre, the angle of its opening direction (cos, sin) in the picture with y down, the opening (the
distance of the fingers) and the jaw (the length of a finger's plate), in px. It fits where the centre lies on the
thing and both jaws lie beside it, all along.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

_BEYOND = 1e6  # px: the thing goes on for longer than was looked


@dataclass(frozen=True)
class Grasp:
    """One grasp; see the module's text. angle in rad, in (-pi/2, pi/2]."""

    x: float
    y: float
    angle: float
    opening: float
    jaw: float

    def corners(self) -> Floats:
        """(4, 2) x, y: p0 to p1 is the opening, p1 to p2 the jaw."""
        along = np.array([math.cos(self.angle), math.sin(self.angle)]) * self.opening / 2
        across = np.array([-along[1], along[0]]) / self.opening * self.jaw
        centre = np.array([self.x, self.y])
        return np.stack(
            [centre - along - across, centre + along - across, centre + along + across, centre - along + across]
        )


@dataclass(frozen=True)
class Search:
    """How to look for grasps.

    tries: starting points. longest: largest opening in px. gap: (least, most) px between a finger and the thing.
    jaw: (least, most) in px. unit: openings are multiples of it, in px.
    angles: how many per point. stride: px from one look at the mask to the next.
    """

    tries: int
    longest: float
    gap: tuple[float, float]
    jaw: tuple[float, float]
    unit: float = 0.5
    angles: int = 24
    stride: int = 1


def find(mask: Mask, random: Generator, *, search: Search) -> list[Grasp]:
    """Grasps across the thing of a mask, uint8 (H, W) with 0 beside it, in random order; may be empty.

    Both ends of a grasp's axis lie beside the thing and its centre on it; whether the jaws do, see `fits`.
    """
    starts, angles, before, after = _chords(mask, random, search=search)
    chord = before + after
    found = []
    for i, k in enumerate(_narrow(chord, random)):
        angle = float(angles[i, k])
        opening = math.ceil((chord[i, k] + 2 * random.uniform(*search.gap)) / search.unit) * search.unit
        shift = (after[i, k] - before[i, k]) / 2
        x, y = starts[i] + shift * np.array([math.cos(angle), math.sin(angle)])
        if opening <= search.longest:
            found.append(Grasp(float(x), float(y), _folded(angle), opening, random.uniform(*search.jaw)))
    return found


def find_misses(mask: Mask, random: Generator, *, search: Search) -> list[Grasp]:
    """Rectangles that do not grasp: along the thing instead of across it, with both ends on it; may be empty."""
    starts, angles, before, after = _chords(mask, random, search=search)
    shorter = np.minimum(before, after)
    shorter[shorter >= _BEYOND] = search.longest
    found = []
    for i, k in enumerate(shorter.argmax(axis=1)):
        opening = min(random.uniform(7, 48), 1.6 * shorter[i, k])
        if opening >= 7:
            angle = _folded(float(angles[i, k]))
            x, y = starts[i].tolist()
            found.append(Grasp(x, y, angle, opening, random.uniform(16, 60)))
    return found


def fits(mask: Mask, corners: Floats) -> bool:
    """Whether a rectangle's centre lies on the thing, and both jaws (p1 p2 and p3 p0) beside it and in the picture."""
    height, width = mask.shape
    if corners.min() < 0 or (corners.max(0) > np.array([width - 1, height - 1])).any():
        return False
    steps = np.linspace(0, 1, int(np.abs(corners[2] - corners[1]).max()) + 2)[:, None]
    jaws = [corners[a] + steps * (corners[b] - corners[a]) for a, b in ((1, 2), (3, 0))]
    x, y = np.rint(np.concatenate(jaws)).astype(int).T
    column, row = np.rint(corners.mean(0)).astype(int)
    return bool(mask[row, column]) and not mask[y, x].any()


def differ(a: Grasp, b: Grasp, *, distance: float) -> bool:
    """Whether two grasps are `distance` px or 30 degrees apart."""
    turn = abs((a.angle - b.angle + math.pi / 2) % math.pi - math.pi / 2)
    return math.hypot(a.x - b.x, a.y - b.y) > distance or turn > math.pi / 6


def _chords(mask: Mask, random: Generator, *, search: Search) -> tuple[Floats, Floats, Floats, Floats]:
    """Random points (N, 2) of the thing, angles (N, A), and how far it goes backwards and forwards there (N, A)."""
    rows, columns = np.nonzero(mask)
    chosen = random.integers(0, max(1, len(rows)), search.tries if len(rows) else 0)
    angles = (np.arange(search.angles) + random.random((len(chosen), 1))) * (math.pi / search.angles)
    starts = np.stack([columns[chosen], rows[chosen]], 1).astype(np.float64)
    steps = np.arange(1, int(search.longest) + 1, search.stride, dtype=np.float32)
    reach = []
    for sign in (-1, 1):
        across, down = (sign * f(angles).astype(np.float32)[..., None] * steps for f in (np.cos, np.sin))
        x = (across + starts[:, 0, None, None].astype(np.float32) + np.float32(0.5)).astype(np.int32)
        y = (down + starts[:, 1, None, None].astype(np.float32) + np.float32(0.5)).astype(np.int32)
        np.clip(x, 0, mask.shape[1] - 1, out=x)
        np.clip(y, 0, mask.shape[0] - 1, out=y)
        free = mask.ravel()[y * np.int32(mask.shape[1]) + x] == 0
        reach.append(np.where(free.any(-1), free.argmax(-1) * search.stride + 0.5, _BEYOND))
    return starts, angles, reach[0], reach[1]


def _narrow(chord: Floats, random: Generator) -> npt.NDArray[np.intp]:
    """For each start, the angle of one of its shortest chords: across the thing there."""
    shortest = chord.min(axis=1, keepdims=True) if chord.size else chord
    return np.asarray(((chord <= shortest * 1.08) * (random.random(chord.shape) + 0.01)).argmax(axis=1))


def _folded(angle: float) -> float:
    """The same line's angle in (-pi/2, pi/2]."""
    return math.pi / 2 - (math.pi / 2 - angle) % math.pi
