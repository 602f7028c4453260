"""Box rule: clips or removes boxes that a geometry moves completely or partly out of the image."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest

_SLACK_PX = 1e-3  # tolerance, because float32 rounding may move the edge of a box out of the image


@dataclass(frozen=True)
class BoxRule:
    """Rule for boxes that extend beyond the returned image. By default, boxes are unchanged.

    If a box is removed, its polygons and its rows of all related fields are also removed.

    Attributes:
        clip: True clips boxes to (0, 0, width, height). False returns boxes as they are.
        least_visible: Remove a box if less than this share of its area is inside the image (0 < share <= 1). A box with
            zero area is removed if its center is outside. A box with NaN or infinity is kept. None removes no box.
        min_side: Remove a box if a side is shorter than this length in px, after clipping. None removes no box. Most
            detectors fail for boxes with zero width.
    """

    clip: bool = False
    least_visible: float | None = None
    min_side: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.clip, bool):
            raise InvalidRequest(f"BoxRule: clip={self.clip!r}: expected True or False")
        share = self.least_visible
        if share is not None and (isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1):
            raise InvalidRequest(
                f"BoxRule: least_visible={share!r}: expected a share of the area, above 0 and at most 1, or None, "
                "which drops no box"
            )
        side = self.min_side
        is_length = isinstance(side, (int, float)) and not isinstance(side, bool) and 0 < side < math.inf
        if side is not None and not is_length:
            raise InvalidRequest(f"BoxRule: min_side={side!r}: expected px above 0, or None, which drops no box")

    def visible(self, boxes: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return bool (N,): True for boxes to keep, False for boxes to remove.

        Args:
            boxes: (N, 4), x0, y0, x1, y1 in px.
            size: (height, width) of the image in px.
        """
        stay: npt.NDArray[np.bool_] = np.ones(len(boxes), np.bool_)
        if self.min_side is not None:
            cut = np.asarray(self.clipped(boxes, size), np.float64).reshape(-1, 4)
            with np.errstate(invalid="ignore"):
                stay &= ~(cut[:, 2:] - cut[:, :2] < self.min_side).any(axis=1)
        if self.least_visible is None:
            return stay
        given = np.asarray(boxes, np.float64).reshape(-1, 4)
        ends = np.asarray((size[1], size[0]), np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            sides = np.maximum(given[:, 2:] - given[:, :2], 0)
            inside = np.minimum(given[:, 2:], ends + _SLACK_PX) - np.maximum(given[:, :2], -_SLACK_PX)
            area = sides.prod(axis=1)
            hidden = np.maximum(inside, 0).prod(axis=1) < self.least_visible * area
            centers = (given[:, :2] + given[:, 2:]) / 2
            outside = ((centers < 0) | (centers > ends)).any(axis=1)
        dropped = np.where(area > 0, hidden, outside) & np.isfinite(given).all(axis=1)
        stay &= ~dropped
        return stay

    def clipped(self, boxes: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
        """Return boxes (N, 4) clipped to an image of `size` (height, width), or unchanged if `clip` is False."""
        if not self.clip:
            return boxes
        height, width = size
        cut: npt.NDArray[Any] = np.clip(boxes, 0, np.asarray((width, height, width, height), boxes.dtype))
        return cut
