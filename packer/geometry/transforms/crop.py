"""Crop: CenterCrop and RandomCrop, a part of the image without scaling."""

from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import BadInput, InvalidRequest
from packer.geometry.base import Geometry, as_size
from packer.geometry.view import View


@dataclass(frozen=True)
class CenterCrop(Geometry):
    """The middle of the image; what lies outside a smaller one is filled, as torchvision does.

    size: px, or (height, width). With an odd rest the part lies as torchvision's CenterCrop puts it.
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        as_size(self.size, "CenterCrop")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size; no random number is used."""
        size = as_size(self.size, "CenterCrop")
        return _moved(_middle(height - size[0]), _middle(width - size[1]), size)


@dataclass(frozen=True)
class RandomCrop(Geometry):
    """A part of the image at a random place.

    size: px, or (height, width). padding: px of fill that the image first gets on every side.
    """

    size: int | tuple[int, int]
    padding: int = 0
    draws = 2

    def __post_init__(self) -> None:
        as_size(self.size, "RandomCrop")
        if self.padding < 0:
            raise InvalidRequest(f"RandomCrop: padding {self.padding}: expected 0 or more px")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size; raises BadInput for one that is smaller than the part."""
        size = as_size(self.size, "RandomCrop")
        free = height + 2 * self.padding - size[0], width + 2 * self.padding - size[1]
        if min(free) < 0:
            raise BadInput(
                f"an image of {width}x{height} px is smaller than RandomCrop's {size[1]}x{size[0]}; "
                f"put Resize({max(size)}) before it in Compose, or pass padding"
            )
        top, left = (int(place * (rest + 1)) - self.padding for place, rest in zip(random, free, strict=True))
        return _moved(top, left, size)


def _moved(top: int, left: int, size: tuple[int, int]) -> View:
    return View((1.0, 0.0, float(-left), 0.0, 1.0, float(-top)), size)


def _middle(rest: int) -> int:
    """The offset of a centerd crop: half of the difference, rounded half to even, or down where it is padded."""
    return round(rest / 2) if rest >= 0 else -(-rest // 2)
