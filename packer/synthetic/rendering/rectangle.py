"""Rectangle: four corners as people mark them: whole pixels where possible, and as lines of text.

Corners are float64 (4, 2), x and y in px; p0 to p1 is the opening, p1 to p2 the jaw.
"""

from collections.abc import Sequence

import numpy as np

from packer.synthetic.rendering.grasp import Floats, Grasp


def snapped(grasp: Grasp, *, mirrored: bool) -> Floats:
    """The grasp's corners with p1 and p2 on whole pixels, p0 and p3 at right angles to them.

    p0 and p3 have a whole x and a y of 3 decimals, so that the shape is an exact parallelogram and nearly a rectangle.
    mirrored: go round the other way.
    """
    p0, p1, p2, p3 = grasp.corners()
    if mirrored:
        p0, p1, p2, p3 = p3, p2, p1, p0
    p1, p2 = np.rint(p1), np.rint(p2)
    jaw = p2 - p1
    length = float(np.hypot(*jaw))
    if length == 0:
        return np.stack([np.rint(p0), p1, p2, np.rint(p0)])
    normal = np.array([jaw[1], -jaw[0]]) / length
    if float(normal @ (p0 - p1)) < 0:
        normal = -normal
    start = p1 + normal * grasp.opening
    start = np.array([np.rint(start[0]), np.round(start[1], 3)])
    return np.stack([start, p1, p2, start + jaw])


def lines(rectangles: Sequence[Floats]) -> bytes:
    """4 lines `x y` per rectangle, a blank at the end of the first three; up to 3 decimals, NaN as `NaN`."""
    text = []
    for corners in rectangles:
        points = [f"{_number(x)} {_number(y)}" for x, y in corners.tolist()]
        text.append(" \n".join(points) + "\n")
    return "".join(text).encode()


def _number(value: float) -> str:
    return "NaN" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
