"""Label orientation: over which pixels the labels of an image lie that is not upright by its EXIF orientation.

A pack's labels are in pixels as they are stored. Those of a source may be, or in pixels of the image as viewers show
it: a source says which (`Source.frame`), or what size its label files state, which tells the two apart where the
orientation exchanges the sides. Of images and boxes that the user put beside (`Source.companions`) the user says it.
"""

from typing import NamedTuple

import numpy as np

from packer.errors import BadInput
from packer.geometry import Matrix, upright
from packer.schema import PIXEL_KINDS, Field
from packer.sources.base import Source

_LABELS = (*PIXEL_KINDS, "points", "boxes")
_FIRST_TRANSPOSED = 5  # EXIF orientations from here on exchange the sides
HOW_TO_FRAME = (
    ": say whether the masks, depth and boxes lie over the image as viewers show it (--exif rotate --sidecar-frame "
    "upright: labelme, CVAT, browsers), or over its pixels as stored (--sidecar-frame stored)"
)


class ImageFrame(NamedTuple):
    """What a sample's first image says of itself, and what its labels say of it. Sizes are (height, width) in px.

    stored: as its pixels lie in the file. stated: in a label file, where the source reads one; None where it has none.
    """

    stored: tuple[int, int]
    orientation: int
    stated: tuple[int, int] | None = None

    @property
    def is_transposed(self) -> bool:
        """Whether viewers show it with its sides exchanged."""
        return self.orientation >= _FIRST_TRANSPOSED

    @property
    def upright(self) -> tuple[int, int]:
        """The size that viewers show."""
        height, width = self.stored
        return (width, height) if self.is_transposed else (height, width)

    @property
    def from_upright(self) -> Matrix:
        """Upright pixels -> stored pixels, (2, 3)."""
        turned = upright(self.orientation, *self.stored)
        return np.linalg.inv(np.vstack([turned.array, [0, 0, 1]]))[:2]

    @property
    def doubt(self) -> str | None:
        """What is odd in the stated size of an image that is stored upright, whose labels lie over it all the same."""
        if self.stated is None or self.orientation != 1 or self.stated == self.stored:
            return None
        return f"its labels state {_size(self.stated)} px, the image has {_size(self.stored)}: they may be of another"


def lies_upright(source: Source, field: Field, image: ImageFrame, *, main: str, sidecar_frame: str | None) -> bool:
    """Whether the values of a field lie over the upright image; raises BadInput where it matters and nobody said.

    main: the sample's first image, which lies over itself.
    """
    if image.orientation == 1 or field.name == main or field.kind not in _LABELS:
        return False
    if field.name in source.companions:
        if sidecar_frame is None:
            raise BadInput(f"its image has EXIF orientation {image.orientation}{HOW_TO_FRAME}")
        return sidecar_frame == "upright"
    if source.frame == "stated":
        return _as_stated(image)
    return source.frame == "upright"


def _as_stated(image: ImageFrame) -> bool:
    """Whether the size that labels state is that of the upright image; raises BadInput where it does not tell."""
    fits_stored, fits_upright = image.stated == image.stored, image.stated == image.upright
    if fits_stored != fits_upright:
        return fits_upright
    stated = f"state {_size(image.stated)} px" if image.stated is not None else "state no size"
    raise BadInput(
        f"its image has EXIF orientation {image.orientation}, and is {_size(image.stored)} px as stored, "
        f"{_size(image.upright)} px as viewers show it; its labels {stated}, which does not tell over which of "
        "the two they lie: say --label-frame stored or --label-frame upright, or turn the image's pixels upright"
    )


def _size(size: tuple[int, int]) -> str:
    return f"{size[1]}x{size[0]}"
