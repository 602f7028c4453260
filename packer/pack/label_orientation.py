"""Label orientation: the pixels that labels refer to if EXIF rotates an image, either stored or displayed pixels.

Labels of a pack refer to stored pixels. Labels of a source may refer to the image as viewers display it ("upright").
The source declares in `Source.frame` which of the two applies. With "stated", its label files contain the size of the
image, and this is compared with the stored and the displayed size. For masks, depth and boxes in sidecars
(`Source.companions`), the user sets the option labels_orientation.
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
    ": choose the orientation of its masks, depth and boxes: the image as viewers show it (--exif rotate "
    "--labels-orientation upright: labelme, CVAT, browsers), or its stored pixels (--labels-orientation stored)"
)


class ImageFrame(NamedTuple):
    """Size and orientation of the first image of a sample. Sizes are (height, width) in px.

    Attributes:
        stored: size of the stored pixels.
        orientation: EXIF orientation, 1 to 8. With 1, stored and displayed pixels are equal.
        stated: size of the image according to its label file. None: the file contains no size.
    """

    stored: tuple[int, int]
    orientation: int
    stated: tuple[int, int] | None = None

    @property
    def is_transposed(self) -> bool:
        """True if viewers exchange height and width."""
        return self.orientation >= _FIRST_TRANSPOSED

    @property
    def upright(self) -> tuple[int, int]:
        """Size of the displayed image."""
        height, width = self.stored
        return (width, height) if self.is_transposed else (height, width)

    @property
    def from_upright(self) -> Matrix:
        """Matrix float64 (2, 3) from displayed to stored pixels."""
        turned = upright(self.orientation, *self.stored)
        return np.linalg.inv(np.vstack([turned.array, [0, 0, 1]]))[:2]

    @property
    def size_note(self) -> str | None:
        """A note for the user if EXIF does not rotate the image and its label file states another size; else None."""
        if self.stated is None or self.orientation != 1 or self.stated == self.stored:
            return None
        return f"its labels state {_size(self.stated)} px, the image has {_size(self.stored)}: they may be of another"


def labels_are_upright(source: Source, field: Field, image: ImageFrame, *, main: str, orientation: str | None) -> bool:
    """Return True if the values of a field refer to displayed pixels, False if they refer to stored pixels.

    Args:
        main: name of the first image of a sample, which itself always gives False.
        orientation: the option labels_orientation, "stored" or "upright". None if the user did not set it.

    Raises:
        BadInput: EXIF rotates the image, and neither the source nor `orientation` determines the result.
    """
    if image.orientation == 1 or field.name == main or field.kind not in _LABELS:
        return False
    if field.name in source.companions:
        if orientation is None:
            raise BadInput(f"its image has EXIF orientation {image.orientation}{HOW_TO_FRAME}")
        return orientation == "upright"
    if source.frame == "stated":
        return _as_stated(image)
    return source.frame == "upright"


def _as_stated(image: ImageFrame) -> bool:
    """Return True if only the displayed image has the size `stated`, False if only the stored image has it.

    Raises BadInput if both images have this size, or none of them.
    """
    fits_stored, fits_upright = image.stated == image.stored, image.stated == image.upright
    if fits_stored != fits_upright:
        return fits_upright
    stated = f"state {_size(image.stated)} px" if image.stated is not None else "state no size"
    raise BadInput(
        f"its image has EXIF orientation {image.orientation}, and is {_size(image.stored)} px as stored, "
        f"{_size(image.upright)} px as viewers show it; its labels {stated}, so their orientation is unknown: add "
        "--labels-orientation stored or upright, or rotate the pixels of the image"
    )


def _size(size: tuple[int, int]) -> str:
    return f"{size[1]}x{size[0]}"
