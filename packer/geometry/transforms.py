"""Transforms: the geometries that users select. A geometry computes one view (a matrix and an output size) per sample.

`packer.geometry.parsing` accepts the names of all subclasses of `Geometry` in this module except `Compose`.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.geometry.view import View, identity, resized_crop
from packer.system.argument_types import check_switches

MOST_PX = 1 << 20  # largest side of an output image
_TRIES = 10  # number of random boxes of RandomResizedCrop
_TEXT = re.compile(r"(?:([0-9]{1,5})x)?([0-9]{1,5})", re.IGNORECASE)
_QUARTERS = {0: (1.0, 0.0), 90: (0.0, 1.0), 180: (-1.0, 0.0), 270: (0.0, -1.0)}  # degrees -> exact (cos, sin)


class Geometry(ABC):
    """Base class of rules that compute a view for each sample. Subclasses are frozen dataclasses of plain values.

    Attributes:
        draws: Number of random numbers that `view` needs. `packer.geometry.draw` returns suitable numbers. Equal
            numbers give equal views in every thread and process.
        usage: Advice for a user whose argument is not a geometry.
    """

    usage: ClassVar[str] = (
        "write Compose(RandomResizedCrop(224), RandomHorizontalFlip()) with classes of packer.geometry; give "
        "transforms of torchvision as transform="
    )

    draws: int = 0  # not annotated in subclasses, so that `draws` is not a field of the dataclass

    @abstractmethod
    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px.

        Args:
            random: `draws` random numbers r, 0 <= r < 1.

        Raises:
            BadInput: The geometry cannot be applied to an image of this size.
        """


def as_size(size: object, what: str) -> tuple[int, int]:
    """Return `size`, an int or a pair, as (height, width) in px. The message of InvalidRequest begins with `what`."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    lengths = [length for length in pair if isinstance(length, int) and 1 <= length <= MOST_PX]
    if len(pair) != 2 or len(lengths) != 2:
        raise InvalidRequest(
            f"{what}: size {size!s:.80}: expected a whole number of px, at least 1 and at most {MOST_PX}, or a pair of "
            "them, (height, width)"
        )
    return lengths[0], lengths[1]


def as_range(
    given: object, what: str, *, least: float = float("-inf"), most: float = float("inf")
) -> tuple[float, float]:
    """Return `given`, a pair with least <= first <= second <= most. Messages of InvalidRequest begin with `what`."""
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    numbers = [number for number in pair if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not least <= numbers[0] <= numbers[1] <= most:
        raise InvalidRequest(
            f"{what}: {given!r}: expected a pair (low, high) with {least:g} <= low <= high <= {most:g}"
        )
    return numbers[0], numbers[1]


class Compose(Geometry):
    """Several geometries, applied in order. The matrices are multiplied, so that the image is warped only once."""

    def __init__(self, *geometries: Geometry) -> None:
        """Compose geometries.

        Args:
            geometries: The geometries in order, or one list of geometries as in torchvision.

        Raises:
            InvalidRequest: A value is not a geometry.
        """
        given = tuple(geometries[0]) if len(geometries) == 1 and isinstance(geometries[0], list) else geometries
        for geometry in given:
            if not isinstance(geometry, Geometry):
                raise InvalidRequest(
                    f"Compose: expected geometries, such as Resize(256), found {type(geometry).__name__}"
                )
        self.geometries: tuple[Geometry, ...] = given
        self.draws = sum(geometry.draws for geometry in given)

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return one view that applies the views of all geometries in order to an image of `height` x `width` px."""
        view = None
        size = (height, width)
        start = 0
        for geometry in self.geometries:
            stop = start + geometry.draws
            found = geometry.view(*size, random[start:stop])
            size, start = found.size, stop
            view = found if view is None else view.then(found)
        return view or identity(height, width)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compose) and self.geometries == other.geometries

    def __hash__(self) -> int:
        return hash(self.geometries)

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.geometries))})"


@dataclass(frozen=True)
class CenterCrop(Geometry):
    """Crop of the center of the image, as in torchvision's CenterCrop. Smaller images get a border of fill values.

    Attributes:
        size: Side of a square in px, or (height, width).
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        as_size(self.size, "CenterCrop")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px. `random` is ignored."""
        size = as_size(self.size, "CenterCrop")
        return _moved(_middle(height - size[0]), _middle(width - size[1]), size)


@dataclass(frozen=True)
class RandomCrop(Geometry):
    """Crop of the image at a random position.

    Attributes:
        size: Side of a square in px, or (height, width).
        padding: Width in px of a border of fill values that is added on every side before the crop.
    """

    size: int | tuple[int, int]
    padding: int = 0
    draws = 2

    def __post_init__(self) -> None:
        as_size(self.size, "RandomCrop")
        if self.padding < 0:
            raise InvalidRequest(f"RandomCrop: padding {self.padding}: expected 0 or more px")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px. Raises BadInput for an image smaller than the crop."""
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
    """Return the offset of a centered crop. `rest` is image side - crop side in px. Rounds as torchvision does."""
    return round(rest / 2) if rest >= 0 else -(-rest // 2)


@dataclass(frozen=True)
class RandomHorizontalFlip(Geometry):
    """Horizontal flip of the image with probability `p`, without interpolation."""

    p: float = 0.5
    draws = 1

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InvalidRequest(f"RandomHorizontalFlip: p={self.p}: expected 0 to 1")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px."""
        if random[0] >= self.p:
            return identity(height, width)
        return View((-1.0, 0.0, width - 1.0, 0.0, 1.0, 0.0), (height, width))


@dataclass(frozen=True)
class Resize(Geometry):
    """Scaling of the image to a size, as in torchvision's Resize. Smaller images are enlarged.

    Attributes:
        size: (height, width) in px, or the length of the shorter side in px. A single length keeps the aspect ratio:
            the longer side becomes int(longer * size / shorter).
        antialias: True filters an image that becomes smaller. False interpolates between four pixels only.
    """

    size: int | tuple[int, int]
    antialias: bool = True

    def __post_init__(self) -> None:
        as_size(self.size, "Resize")
        if not isinstance(self.antialias, bool):  # Resize(224, 320), say
            raise InvalidRequest(
                f"Resize({self.size!r:.40}, {self.antialias!r:.40}): expected one size, (height, width) for both: "
                f"Resize(({self.size!r:.40}, {self.antialias!r:.40}))"
            )

    @classmethod
    def parse(cls, text: str) -> "Resize":
        """Return a Resize from the text `N` (shorter side in px) or `WxH`. Raises InvalidRequest for other texts."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"resize {text!r}: expected N (shorter side in px) or WxH, such as 256 or 640x480")
        height, width = int(match[2]), int(match[1]) if match[1] else None
        if 0 in (height, width):
            raise InvalidRequest(f"resize {text!r}: expected sides of at least 1 px, such as 256 or 640x480")
        return cls(height if width is None else (height, width))

    @property
    def fixed(self) -> tuple[int, int] | None:
        """(height, width) of all output images in px, or None if the output size depends on the image."""
        return None if isinstance(self.size, int) else as_size(self.size, "Resize")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px. `random` is ignored."""
        if isinstance(self.size, int):
            shorter = self.size
            size = (shorter, width * shorter // height) if height <= width else (height * shorter // width, shorter)
        else:
            size = as_size(self.size, "Resize")
        return resized_crop(0, 0, height, width, size=size, antialias=self.antialias)


@dataclass(frozen=True)
class RandomResizedCrop(Geometry):
    """Crop of a box with random area, aspect ratio and position, scaled to `size`.

    The box is drawn as in torchvision and Inception (Szegedy et al. 2015). If none of ten random boxes fits into the
    image, the largest centered box with an allowed ratio is used. With antialias, boxes at least twice as large as the
    output are aligned to 2, 4 or 8 px. A JPEG can then be decoded at 1/2, 1/4 or 1/8 scale.

    Attributes:
        size: Side of a square in px, or (height, width).
        scale: Smallest and largest area of the box as a share of the image area.
        ratio: Smallest and largest aspect ratio (width / height) of the box.
        antialias: True filters a box that becomes smaller. False interpolates between four pixels only.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    antialias: bool = True
    draws = 2 * _TRIES + 2

    def __post_init__(self) -> None:
        as_size(self.size, "RandomResizedCrop")
        as_range(self.scale, "RandomResizedCrop: scale", least=1e-6, most=1.0)
        as_range(self.ratio, "RandomResizedCrop: ratio", least=1e-3, most=1e3)
        check_switches({"antialias": self.antialias})

    @cached_property
    def _constants(self) -> tuple[tuple[int, int], float, float, float]:
        """((height, width), log of the smallest ratio, log of largest / smallest ratio, largest - smallest scale)."""
        low = math.log(self.ratio[0])
        size = as_size(self.size, "RandomResizedCrop")
        return size, low, math.log(self.ratio[1]) - low, self.scale[1] - self.scale[0]

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px."""
        size = self._constants[0]
        h, w, is_random = self._box(height, width, random)
        top, left = int(random[-2] * (height - h + 1)), int(random[-1] * (width - w + 1))
        if not is_random:
            top, left = (height - h) // 2, (width - w) // 2
        if self.antialias and (shrink := min(h / size[0], w / size[1])) >= 2:
            grid = 1 << min(3, int(math.log2(shrink)))  # px per decoded px
            (top, h), (left, w) = _onto(grid, top, h, height), _onto(grid, left, w, width)
        return resized_crop(top, left, h, w, size=size, antialias=self.antialias)

    def _box(self, height: int, width: int, random: Sequence[float]) -> tuple[int, int, bool]:
        """Return (height, width, is_random) of a box. If no random box fits, it is the largest centered box."""
        _, low, logarithms, scales = self._constants
        for at in range(0, 2 * _TRIES, 2):
            area = height * width * (self.scale[0] + random[at] * scales)
            ratio = math.exp(low + random[at + 1] * logarithms)
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return h, w, True
        if width / height < self.ratio[0]:
            return max(1, min(height, round(width / self.ratio[0]))), width, False
        if width / height > self.ratio[1]:
            return height, max(1, min(width, round(height * self.ratio[1]))), False
        return height, width, False


def _onto(grid: int, start: int, length: int, whole: int) -> tuple[int, int]:
    """Extend an interval of `length` px from `start` to multiples of `grid`, but not beyond 0 or `whole`."""
    length = min(-(-length // grid) * grid, whole // grid * grid)
    start = min(start // grid * grid, (whole - length) // grid * grid)
    return start, length


@dataclass(frozen=True)
class RandomRotation(Geometry):
    """Counter-clockwise rotation about the center by a random angle. The image size is kept, and the border filled.

    Rotations of square images by multiples of 90 degrees do not interpolate.

    Attributes:
        degrees: Range (low, high) of the angle in degrees. A number d selects the range (-d, d).
        choices: Possible angles in degrees, such as (0, 90, 180, 270). If `choices` is not empty, `degrees` is ignored.
    """

    degrees: float | tuple[float, float] = 180.0
    choices: tuple[float, ...] = ()
    draws = 1

    def __post_init__(self) -> None:
        as_range(self._range(), "RandomRotation: degrees", least=-1e6, most=1e6)
        angles = self.choices if isinstance(self.choices, (tuple, list)) else (None,)
        if not all(isinstance(angle, (int, float)) and math.isfinite(angle) for angle in angles):
            raise InvalidRequest(
                f"RandomRotation: choices {self.choices!r}: expected angles in degrees, such as (0, 90)"
            )

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px."""
        if self.choices:
            return rotated(self.choices[int(random[0] * len(self.choices))], height, width)
        low, high = self._range()
        return rotated(low + random[0] * (high - low), height, width)

    def _range(self) -> tuple[float, float]:
        if isinstance(self.degrees, (int, float)):
            return -self.degrees, self.degrees
        return self.degrees


def rotated(degrees: float, height: int, width: int) -> View:
    """Return the view that rotates an image about the image center, counter-clockwise as displayed (y points down)."""
    angle = math.radians(degrees)
    cos, sin = _QUARTERS.get(degrees % 360, (math.cos(angle), math.sin(angle)))  # type: ignore[call-overload]
    x, y = (width - 1) / 2, (height - 1) / 2
    return View((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y), (height, width))


@dataclass(frozen=True)
class RandomZoom(Geometry):
    """Zoom into the center of the image by a random factor between `low` and `high`. The image size is kept.

    The factor 0.5 enlarges the central half of both sides to the full image. The factor 1 does not change the image. A
    factor above 1 shrinks the image and fills the border.
    """

    low: float = 0.5
    high: float = 1.0
    draws = 1

    def __post_init__(self) -> None:
        as_range((self.low, self.high), "RandomZoom", least=1e-3, most=1e3)

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px."""
        return zoomed(self.low + random[0] * (self.high - self.low), height, width)


def zoomed(factor: float, height: int, width: int) -> View:
    """Return the view that scales the central `factor` * height x `factor` * width px to the size of the image."""
    s = 1 / factor
    return View((s, 0.0, (1 - s) * (width - 1) / 2, 0.0, s, (1 - s) * (height - 1) / 2), (height, width))
