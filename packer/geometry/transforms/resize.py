"""Resize: scales to a given size, in training and in `packer convert --resize`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import InvalidRequest
from packer.geometry.base import Geometry, as_size
from packer.geometry.view import View, resized_crop

_WANTED_SIZE = re.compile(r"(?:([0-9]{1,5})x)?([0-9]{1,5})", re.IGNORECASE)


@dataclass(frozen=True)
class Resize(Geometry):
    """Scale to a size, as torchvision's Resize does.

    size: (height, width) in px, exactly; or one number, to which the shorter side is scaled with the aspect ratio kept:
    the longer side is then int(length * size / shorter). Smaller images are enlarged. antialias: see View.
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
        """From what the user types: `N` (shorter side) or `WxH`; raises InvalidRequest."""
        match = _WANTED_SIZE.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"resize {text!r}: expected N (shorter side in px) or WxH, such as 256 or 640x480")
        height, width = int(match[2]), int(match[1]) if match[1] else None
        if 0 in (height, width):
            raise InvalidRequest(f"resize {text!r}: expected sides of at least 1 px, such as 256 or 640x480")
        return cls(height if width is None else (height, width))

    @property
    def fixed(self) -> tuple[int, int] | None:
        """(height, width) of every result; None where they follow from the image."""
        return None if isinstance(self.size, int) else as_size(self.size, "Resize")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size; no random number is used."""
        if isinstance(self.size, int):
            shorter = self.size
            size = (shorter, width * shorter // height) if height <= width else (height * shorter // width, shorter)
        else:
            size = as_size(self.size, "Resize")
        return resized_crop(0, 0, height, width, size=size, antialias=self.antialias)
