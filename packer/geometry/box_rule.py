"""Box rule: clips or drops boxes that a geometry moves out of the image, completely or in part."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest

_SLACK_PX = 1e-3  # rounding of float32 may move the edge of a box past the edge of the image


@dataclass(frozen=True)
class BoxRule:
    """Rule for boxes that extend beyond the returned image. Without a rule, boxes stay as they are.

    A dropped box takes its row of every related field and its polygons with it.

    Attributes:
        clip: Clip boxes to 0, 0, width, height.
        least_visible: Drop boxes with a smaller share of their area inside the image, 0 < share <= 1. A box without
            area is dropped if its center is outside. A box that is not finite is kept. None drops no box.
        min_side: Drop boxes with a shorter side in px, after clipping. Most detectors fail on a box without width.
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
        """Return bool (N,), True for boxes that stay.

        Args:
            boxes: (N, 4), x0, y0, x1, y1.
            size: (height, width) of the image.
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
        """Return the boxes in the same dtype, clipped to an image of `size` (height, width) if `clip` is set."""
        if not self.clip:
            return boxes
        height, width = size
        cut: npt.NDArray[Any] = np.clip(boxes, 0, np.asarray((width, height, width, height), boxes.dtype))
        return cut
