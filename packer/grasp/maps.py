"""Maps: quality, cos 2 theta, sin 2 theta and width of the grasps at each pixel, what the grasp networks learn."""

import numpy as np
import numpy.typing as npt

from packer.grasp.filling import fill
from packer.grasp.labels import Ints, drawn

MAPS = ("quality", "cos", "sin", "width")
_BACKGROUND = (0.0, 1.0, 0.0, 0.0)  # angle 0 where there is no grasp

Maps = npt.NDArray[np.float32]


def draw(points: Ints, owner: Ints, widest: float, out: Maps) -> None:
    """Draw rectangles into the maps of their samples; where they overlap, the last one counts.

    points: int64 (N, 4, 2), row and column, from `labels.moved`. owner: int64 (N,), ascending: whose they are.
    widest: the opening in px at which the width is 1; wider ones are 1 too.
    out: float32 (4, samples, S, S), C-contiguous; all of it is written, in the order of MAPS.
    """
    for each, background in zip(out, _BACKGROUND, strict=True):
        each.fill(background)
    if not len(points):
        return
    height, width = out.shape[2:]
    found = drawn(points)
    runs = fill(*found.polygons(), height, width)
    pixels, number = runs.pixels(width, owner[runs.polygon] * (height * width))
    values = (np.cos(2 * found.angle), np.sin(2 * found.angle), np.clip(found.opening, 0.0, widest) / widest)
    quality, *others = (each.reshape(-1) for each in out)
    quality[pixels] = 1
    for each, value in zip(others, values, strict=True):
        # NumPy assigns in order: of equal places the last one stays
        each[pixels] = value.astype(np.float32)[number]
