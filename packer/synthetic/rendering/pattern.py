"""Pattern: where a part shows its second colour.

Each pattern takes local points, divided by the half extents so that they lie in [-1, 1], and returns a bool array.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.float32]
Cover = npt.NDArray[np.bool_]


def _plain(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.zeros(x.shape, bool)


def _label(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray((np.abs(z) < 0.62) & ~((np.abs(z) > 0.5) & (np.abs(z) < 0.56)))


def _rings(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.sin(z * 14) > 0.35)


def _ribs(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.sin(np.arctan2(y, x) * 12) > 0.4)


def _patches(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.sin(6.5 * x + 1) * np.sin(6.5 * y + 2) * np.sin(6.5 * z) > 0.12)


def _segments(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.sin(np.arctan2(y, x) * 4) > 0)


def _buttons(x: Plane, y: Plane, z: Plane) -> Cover:
    rows, columns = (x + 0.1) * 5, y * 1.9 + 0.5
    near = (rows - np.round(rows)) ** 2 + ((columns - np.round(columns)) * 1.3) ** 2 < 0.1
    return np.asarray(near & (x > -0.85) & (x < 0.7) & (np.abs(y) < 0.78) & (z > 0.9))


def _screen(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray((np.abs(x - 0.18) < 0.66) & (np.abs(y) < 0.82) & (z > 0.9))


def _print(x: Plane, y: Plane, z: Plane) -> Cover:
    title = (np.abs(y - 0.45) < 0.2) & (np.abs(x) < 0.7) & (np.sin(x * 17) > -0.4)
    lines = (y < -0.1) & (y > -0.8) & (x < 0.1) & (x > -0.75) & (np.sin(y * 32) > 0.2)
    stain = (x - 0.45) ** 2 + (y + 0.4) ** 2 < 0.09
    return np.asarray(title | lines | stain)


def _hoop(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.abs(x) > 0.72)


def _grain(x: Plane, y: Plane, z: Plane) -> Cover:
    return np.asarray(np.sin(9 * y + 3 * np.sin(2 * x + z) + 7 * z) > 0.55)


PATTERNS: dict[str, Callable[[Plane, Plane, Plane], Cover]] = {
    "plain": _plain,
    "label": _label,
    "rings": _rings,
    "ribs": _ribs,
    "patches": _patches,
    "segments": _segments,
    "buttons": _buttons,
    "screen": _screen,
    "print": _print,
    "hoop": _hoop,
    "grain": _grain,
}
