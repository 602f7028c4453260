"""Transforms: the geometries that users name. Each makes one matrix, a view, per sample.

Every class here that derives from `Geometry`, except `Compose`, can be written by its name: see
packer.geometry.parsing.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from packer.errors import BadInput, InvalidRequest
from packer.geometry.view import View, identity, resized_crop
from packer.system.argument_types import check_switches

MOST_PX = 1 << 20  # of a side
_TRIES = 10  # of RandomResizedCrop
_TEXT = re.compile(r"(?:([0-9]{1,5})x)?([0-9]{1,5})", re.IGNORECASE)
_QUARTERS = {0: (1.0, 0.0), 90: (0.0, 1.0), 180: (-1.0, 0.0), 270: (0.0, -1.0)}  # cos, sin without rounding


class Geometry(ABC):
    """Makes a view for each sample. Subclasses are frozen dataclasses of plain values.

    Attributes:
        draws: Number of random numbers of one view. The caller passes them, so that the same numbers give the same
            view in every thread and process; see `packer.geometry.draw`.
    """

    draws: int = 0  # subclasses do not annotate it: it is not a field of the dataclass

    @abstractmethod
    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size in px.

        Args:
            height: Height of the image.
            width: Width of the image.
            random: `draws` numbers, 0 <= r < 1.

        Raises:
            BadInput: The geometry cannot be applied to an image of this size.
        """


def as_size(size: object, what: str) -> tuple[int, int]:
    """Return (height, width) in px for a size that is one number or a pair; raise InvalidRequest for anything else."""
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
    """Return a pair (low, high) unchanged; raise InvalidRequest unless least <= low <= high <= most."""
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    numbers = [number for number in pair if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not least <= numbers[0] <= numbers[1] <= most:
        raise InvalidRequest(
            f"{what}: {given!r}: expected a pair (low, high) with {least:g} <= low <= high <= {most:g}"
        )
    return numbers[0], numbers[1]


class Compose(Geometry):
    """Several geometries, applied in order. Their matrices are multiplied, so that the image is warped only once."""

    def __init__(self, *geometries: Geometry) -> None:
        """Compose geometries.

        Args:
            geometries: The geometries in order; or one list of geometries, as in torchvision.

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
        """Return the product of the views; each geometry gets the size that the geometry before it returned."""
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
    """Crops the middle of the image; fills the border around a smaller image. The offset is that of torchvision.

    Attributes:
        size: Side in px, or (height, width).
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        as_size(self.size, "CenterCrop")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size; it uses no random number."""
        size = as_size(self.size, "CenterCrop")
        return _moved(_middle(height - size[0]), _middle(width - size[1]), size)


@dataclass(frozen=True)
class RandomCrop(Geometry):
    """Crops a part of the image at a random position.

    Attributes:
        size: Side in px, or (height, width).
        padding: Pixels of fill that are first added on every side.
    """

    size: int | tuple[int, int]
    padding: int = 0
    draws = 2

    def __post_init__(self) -> None:
        as_size(self.size, "RandomCrop")
        if self.padding < 0:
            raise InvalidRequest(f"RandomCrop: padding {self.padding}: expected 0 or more px")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size; raise BadInput if it is smaller than the part."""
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
    """Return the offset of a centered crop: half of the difference, rounded half to even, or down for padding."""
    return round(rest / 2) if rest >= 0 else -(-rest // 2)


@dataclass(frozen=True)
class RandomHorizontalFlip(Geometry):
    """Mirrors the image left to right with probability p; the pixels are exact."""

    p: float = 0.5
    draws = 1

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InvalidRequest(f"RandomHorizontalFlip: p={self.p}: expected 0 to 1")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size."""
        if random[0] >= self.p:
            return identity(height, width)
        return View((-1.0, 0.0, width - 1.0, 0.0, 1.0, 0.0), (height, width))


@dataclass(frozen=True)
class Resize(Geometry):
    """Scales the image to a size, as torchvision's Resize does. Smaller images are enlarged.

    Attributes:
        size: (height, width) in px; or the length of the shorter side. The aspect ratio is then kept: the longer side
            is int(length * size / shorter).
        antialias: See `View`.
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
        """Parse the text `N` (shorter side) or `WxH`; raise InvalidRequest."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"resize {text!r}: expected N (shorter side in px) or WxH, such as 256 or 640x480")
        height, width = int(match[2]), int(match[1]) if match[1] else None
        if 0 in (height, width):
            raise InvalidRequest(f"resize {text!r}: expected sides of at least 1 px, such as 256 or 640x480")
        return cls(height if width is None else (height, width))

    @property
    def fixed(self) -> tuple[int, int] | None:
        """(height, width) of every result; None if it depends on the image."""
        return None if isinstance(self.size, int) else as_size(self.size, "Resize")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size; it uses no random number."""
        if isinstance(self.size, int):
            shorter = self.size
            size = (shorter, width * shorter // height) if height <= width else (height * shorter // width, shorter)
        else:
            size = as_size(self.size, "Resize")
        return resized_crop(0, 0, height, width, size=size, antialias=self.antialias)


@dataclass(frozen=True)
class RandomResizedCrop(Geometry):
    """Crops a box of random area, aspect ratio and position, and scales it to `size`.

    The rule is that of Inception (Szegedy et al. 2015), as in torchvision. If none of ten boxes fits into the image, it
    is the largest box in the middle with an allowed ratio. With antialias, boxes at least twice as large as the output
    are aligned to 2, 4 or 8 px. A JPEG can then be decoded at a half, a quarter or an eighth of its size.

    Attributes:
        size: Side in px, or (height, width).
        scale: Least and greatest share of the image's area.
        ratio: Least and greatest ratio of width to height.
        antialias: See `View`.
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
        """((height, width), log of the least ratio, log of the greatest / least ratio, greatest - least scale)."""
        low = math.log(self.ratio[0])
        size = as_size(self.size, "RandomResizedCrop")
        return size, low, math.log(self.ratio[1]) - low, self.scale[1] - self.scale[0]

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size."""
        size = self._constants[0]
        h, w, is_random = self._box(height, width, random)
        top, left = int(random[-2] * (height - h + 1)), int(random[-1] * (width - w + 1))
        if not is_random:
            top, left = (height - h) // 2, (width - w) // 2
        if self.antialias and (shrink := min(h / size[0], w / size[1])) >= 2:
            grid = 1 << min(3, int(math.log2(shrink)))  # pixels that become one at the decoder's scale
            (top, h), (left, w) = _onto(grid, top, h, height), _onto(grid, left, w, width)
        return resized_crop(top, left, h, w, size=size, antialias=self.antialias)

    def _box(self, height: int, width: int, random: Sequence[float]) -> tuple[int, int, bool]:
        """Return (height, width, is_random): is_random is False for the fallback, which is centered."""
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
    """Return start and length of the interval, extended to multiples of `grid` inside `whole` px."""
    length = min(-(-length // grid) * grid, whole // grid * grid)
    start = min(start // grid * grid, (whole - length) // grid * grid)
    return start, length


@dataclass(frozen=True)
class RandomRotation(Geometry):
    """Rotates the image by a random angle in degrees, counter-clockwise, and keeps its size; fills the border.

    Quarter turns of square images are exact.

    Attributes:
        degrees: d for -d to d, or (low, high).
        choices: Angles to choose from instead, such as (0, 90, 180, 270).
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
        """Return the view for an image of a size."""
        if self.choices:
            return rotated(self.choices[int(random[0] * len(self.choices))], height, width)
        low, high = self._range()
        return rotated(low + random[0] * (high - low), height, width)

    def _range(self) -> tuple[float, float]:
        if isinstance(self.degrees, (int, float)):
            return -self.degrees, self.degrees
        return self.degrees


def rotated(degrees: float, height: int, width: int) -> View:
    """Return the view that rotates an image about its middle, counter-clockwise on the screen (y points down)."""
    angle = math.radians(degrees)
    cos, sin = _QUARTERS.get(degrees % 360, (math.cos(angle), math.sin(angle)))  # type: ignore[call-overload]
    x, y = (width - 1) / 2, (height - 1) / 2
    return View((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y), (height, width))


@dataclass(frozen=True)
class RandomZoom(Geometry):
    """Scales the middle of the image to the size of the image. The factor is random between low and high.

    A factor of 0.5 enlarges the middle half of both sides twice; 1 changes nothing. Above 1, the image shrinks and gets
    a border of fill.
    """

    low: float = 0.5
    high: float = 1.0
    draws = 1

    def __post_init__(self) -> None:
        as_range((self.low, self.high), "RandomZoom", least=1e-3, most=1e3)

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of a size."""
        return zoomed(self.low + random[0] * (self.high - self.low), height, width)


def zoomed(factor: float, height: int, width: int) -> View:
    """Return the view that scales the middle `factor` of both sides to the size of the image."""
    s = 1 / factor
    return View((s, 0.0, (1 - s) * (width - 1) / 2, 0.0, s, (1 - s) * (height - 1) / 2), (height, width))
