"""Source label rules: convert the labels of each source to rectangles, and select the part of the image to show.

| source                                 | labels                                  | the item shows             |
|----------------------------------------|-----------------------------------------|----------------------------|
| jacquard                               | rows, scaled to the output              | the whole image            |
| grasp-anything                         | rows with a score, scaled to the output | the whole image            |
| cornell, graspnet-rect, ivalab,        | corners, not scaled                     | a window with the size of  |
| ocid-grasp, regrad, vmrd               |                                         | the output around all      |
| any other, with rows of five numbers   | as jacquard                             | as jacquard                |
| any other, with corners                | as cornell                              | as cornell                 |

If a pack was converted from another pack, its manifest contains the original source. The loaders of
andvg3/Grasp-Anything, a fork of GR-ConvNet (d7755f4, utils/data), assume fixed image sizes. With exact="fork", `bounds`
and `side` contain these sizes. For images of other sizes, its items differ from the items of exact=None.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.grasp import image_warp, targets
from packer.grasp.image_warp import SourceImage
from packer.pack.manifest import Manifest
from packer.schema import Schema

ROWS, CORNERS = "grasp_rows", "grasps"

Exact = Literal["fork"]


class PlacedLabels(NamedTuple):
    """Labels of an item, and the part of the image that the item shows.

    Attributes:
        points: Corners (N, 4, 2), row and column. If the item shows a window of the image, they are in px of the
            source. If it shows the complete image, they are in px of the output.
        frame: Size and position of the output in the source.
        source: Source image, and the part that the item shows.
    """

    points: targets.Floats
    frame: targets.Frame
    source: SourceImage


@dataclass(frozen=True)
class WholeImage:
    """Rule for labels that are rows of numbers. The item shows the complete image, to which labels are scaled.

    Args:
        columns: Positions of x, y, theta in degrees, opening and jaw in a row.
        side: Side in px of the square image to which the labels refer. None for the side of the source image.
    """

    columns: tuple[int, int, int, int, int]
    side: int | None = None
    field: ClassVar[str] = ROWS

    def place(self, rows: npt.NDArray[Any], height: int, width: int, size: int) -> PlacedLabels:
        """Return the labels of an image of `height` x `width` px, for an output of `size` x `size` px.

        `rows` are values of the field `grasp_rows`. If `side` is None, an image that is not square raises BadInput.
        """
        if self.side is None and height != width:
            raise BadInput(f"{width}x{height} px; expected a square, as the images of this set are")
        points = targets.of_rows(rows[:, self.columns], size / (self.side or height))
        return PlacedLabels(points, targets.around_middle(size), image_warp.whole(height, width))


@dataclass(frozen=True)
class AroundGrasps:
    """Rule for labels that are corners. The item shows a window around the mean of all corners, as large as the output.

    Args:
        bounds: (height, width) in px of the area that contains the window. None for the complete image.
    """

    bounds: tuple[int, int] | None = None
    field: ClassVar[str] = CORNERS

    def place(self, corners: npt.NDArray[Any], height: int, width: int, size: int) -> PlacedLabels:
        """Return the labels of an image of `height` x `width` px, for an output of `size` x `size` px.

        `corners` are values of the field `grasps`. Raises BadInput if the window is outside the image.
        """
        points = targets.of_corners(corners)
        frame = targets.around_grasps(points, height, width, size, bounds=self.bounds)
        source = image_warp.around_grasps(frame, height, width, bounds=self.bounds)
        if min(source.window[2:]) <= 0:
            raise BadInput(
                f"{width}x{height} px; the window of {size} px within {self.bounds} px (height, width) is outside it, "
                'and the fork stops; leave exact="fork" out'
            )
        return PlacedLabels(points, frame, source)


LabelRule = WholeImage | AroundGrasps

_JACQUARD_COLUMNS = (0, 1, 2, 3, 4)
_ANYTHING_COLUMNS = (1, 2, 5, 3, 4)  # score, x, y, opening, jaw, theta
_WINDOW = AroundGrasps()

RULES: Mapping[str, LabelRule] = {
    "jacquard": WholeImage(_JACQUARD_COLUMNS),
    "grasp-anything": WholeImage(_ANYTHING_COLUMNS),
    **dict.fromkeys(("cornell", "ocid-grasp", "vmrd", "ivalab", "graspnet-rect", "regrad"), _WINDOW),
}
FORK_RULES: Mapping[str, LabelRule] = {
    "jacquard": WholeImage(_JACQUARD_COLUMNS, side=1024),
    "grasp-anything": WholeImage(_ANYTHING_COLUMNS, side=416),
    "cornell": AroundGrasps((480, 640)),
    "ocid-grasp": AroundGrasps((480, 640)),
    "vmrd": AroundGrasps((756, 1008)),
}


def kind_of(manifest: Manifest) -> str:
    """Return the name of the source of the samples, such as "cornell"."""
    return str(manifest.source.get("kind"))


def rule_of(manifest: Manifest, where: object, *, exact: Exact | None = None) -> LabelRule:
    """Return the rule for the source of a pack. `where` is the path of the pack, for messages.

    Raises InvalidRequest if the pack does not have grasps. With exact="fork", also raises InvalidRequest if the fork of
    GR-ConvNet has no loader for the source.
    """
    schema = manifest.schema
    if exact is None:
        found = RULES.get(kind_of(manifest))
        return found if found is not None and found.field in schema else _by_fields(schema, where)
    rule = FORK_RULES.get(kind_of(manifest))
    if rule is None:
        raise InvalidRequest(
            f'{where}: made of {kind_of(manifest)}, exact="fork": the fork has loaders for {", ".join(FORK_RULES)}; '
            "leave exact= out"
        )
    if rule.field not in schema:
        raise InvalidRequest(f'{where}: no field {rule.field!r}, which exact="fork" reads; pack it with this field')
    return rule


def _by_fields(schema: Schema, where: object) -> LabelRule:
    rule = RULES["jacquard"]
    if ROWS in schema and (schema[ROWS].shape or ())[-1:] == (len(_JACQUARD_COLUMNS),):
        return rule
    if CORNERS in schema:
        return _WINDOW
    rows = f"{ROWS!r} of {len(_JACQUARD_COLUMNS)} columns" if ROWS in schema else f"{ROWS!r}"
    raise InvalidRequest(
        f"{where}: no field {rows} or {CORNERS!r}; pack a folder of {', '.join(RULES)}, with these fields"
    )


def of_label(values: npt.NDArray[Any], owner: npt.NDArray[Any], label: int) -> npt.NDArray[Any]:
    """Return the rows of `values` that belong to the label file `label`. `owner` is the label file of each row."""
    kept: npt.NDArray[Any] = values[np.asarray(owner) == label]
    return kept
