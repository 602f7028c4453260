"""The labels of training items the slow way: pixel by pixel and rectangle by rectangle, from the description alone.

Written from specs of GG-CNN's and GR-ConvNet's label rule, shares no code with packer. `polygon` may be replaced by
skimage.draw.polygon, which it is to equal. Points are (row, column).
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

Point = tuple[float, float]
Fill = Callable[[Sequence[float], Sequence[float], tuple[int, int]], tuple[Any, Any]]


def polygon(rows: Sequence[float], columns: Sequence[float], shape: tuple[int, int]) -> tuple[Any, Any]:
    """Rows and columns of the pixels in a polygon."""
    r_low, c_low = int(max(0, min(rows))), int(max(0, min(columns)))
    r_high, c_high = min(shape[0] - 1, math.ceil(max(rows))), min(shape[1] - 1, math.ceil(max(columns)))
    found = [
        (r, c)
        for r in range(r_low, r_high + 1)
        for c in range(c_low, c_high + 1)
        if is_inside([float(x) - c for x in columns], [float(y) - r for y in rows])
    ]
    return np.asarray([r for r, _ in found], int), np.asarray([c for _, c in found], int)


def is_inside(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Whether the origin is in the polygon."""
    right = left = False
    for at in range(len(xs)):
        x0, y0, x1, y1 = xs[at], ys[at], xs[at - 1], ys[at - 1]
        if abs(x0) < 1e-12 and abs(y0) < 1e-12:
            return True
        crosses_right, crosses_left = (y0 > 0) != (y1 > 0), (y0 < 0) != (y1 < 0)
        if not (crosses_right or crosses_left):
            continue
        t = (x0 * y1 - x1 * y0) / (y1 - y0)
        if crosses_right and t > 0:
            right = not right
        if crosses_left and t < 0:
            left = not left
    return right or right != left


def corners(center: Point, angle: float, opening: float, jaw: float) -> list[Point]:
    """The four corners of a rectangle."""
    xo, yo = np.cos(angle), np.sin(angle)
    r, c = center
    ya, xa, yb, xb = r + opening / 2 * yo, c - opening / 2 * xo, r - opening / 2 * yo, c + opening / 2 * xo
    dy, dx = jaw / 2 * xo, jaw / 2 * yo
    return [(ya - dy, xa - dx), (yb - dy, xb - dx), (yb + dy, xb + dx), (ya + dy, xa + dx)]


def truncated(point: Point) -> tuple[int, int]:
    return int(point[0]), int(point[1])


def loaded_cornell(given: Any) -> list[list[Point]]:
    """Corners x, y in px of the image."""
    return [[(round(float(y)), round(float(x))) for x, y in rectangle] for rectangle in given]


def loaded_jacquard(given: Any, size: int, side: int = 1024) -> list[list[Point]]:
    """Rows x, y, theta, opening, jaw in px of the image."""
    factor = size / side
    found = []
    for x, y, theta, opening, jaw in np.asarray(given, np.float64):
        points = corners((y, x), -theta / 180.0 * np.pi, opening, jaw)
        found.append(points if factor == 1 else [(r * factor, c * factor) for r, c in points])
    return found


def turned(points: list[Point], rot: float, center: Point) -> list[tuple[int, int]]:
    m, n = np.cos(-rot), np.sin(-rot)
    r0, c0 = center
    return [truncated((m * (r - r0) + n * (c - c0) + r0, -n * (r - r0) + m * (c - c0) + c0)) for r, c in points]


def zoomed(points: Sequence[Point], zoom: float, middle: int) -> list[tuple[int, int]]:
    k = 1 / zoom
    return [truncated((k * (r - middle) + middle, k * (c - middle) + middle)) for r, c in points]


def cornell(given: Any, size: int, rot: float, zoom: float, shape: tuple[int, int] = (480, 640)) -> list[Any]:
    """Rectangles of a Cornell item, in px of the output."""
    rectangles = loaded_cornell(given)
    every = [point for rectangle in rectangles for point in rectangle]
    center = truncated((sum(r for r, _ in every) / len(every), sum(c for _, c in every) / len(every)))
    top = max(0, min(center[0] - size // 2, shape[0] - size))
    left = max(0, min(center[1] - size // 2, shape[1] - size))
    found = []
    for rectangle in rectangles:
        points = turned(rectangle, rot, center)
        found.append(zoomed([(r - top, c - left) for r, c in points], zoom, size // 2))
    return found


def jacquard(given: Any, size: int, rot: float, zoom: float, side: int = 1024) -> list[Any]:
    """Rectangles of a Jacquard item, in px of the output."""
    middle = size // 2
    rectangles = loaded_jacquard(given, size, side)
    return [zoomed(turned(points, rot, (middle, middle)), zoom, middle) for points in rectangles]


def maps(rectangles: list[Any], size: int, widest: float, fill: Fill = polygon) -> Any:
    """Quality, cos, sin and width, float32 (4, size, size), and the width in px before it is clipped, float64."""
    quality, angles, widths = np.zeros((3, size, size))
    for p0, p1, p2, p3 in rectangles:
        center = truncated((sum(p[0] for p in (p0, p1, p2, p3)) / 4, sum(p[1] for p in (p0, p1, p2, p3)) / 4))
        angle = (np.arctan2(-(p1[0] - p0[0]), p1[1] - p0[1]) + np.pi / 2) % np.pi - np.pi / 2
        opening = np.sqrt((p1[0] - p0[0]) ** 2 + (p1[1] - p0[1]) ** 2)
        jaw = np.sqrt((p2[0] - p1[0]) ** 2 + (p2[1] - p1[1]) ** 2)
        outline = corners(center, angle, opening / 3, jaw)
        where = fill([r for r, _ in outline], [c for _, c in outline], (size, size))
        quality[where], angles[where], widths[where] = 1, angle, opening
    drawn = [quality, np.cos(2 * angles), np.sin(2 * angles), np.clip(widths, 0, widest) / widest]
    return np.asarray(drawn).astype(np.float32), widths


def scikit() -> Any:
    """skimage.draw.polygon, or a skip that says what was not compared."""
    try:
        return importlib.import_module("skimage.draw").polygon
    except ModuleNotFoundError:
        pytest.skip("scikit-image is not installed: the slow rule of slow_grasps is not compared with its polygon")
