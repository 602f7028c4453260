"""Label map: names and colours of classes in `labelmap.txt`, and masks that show classes in colours as class numbers.

CVAT and datumaro write masks as RGB and say in `labelmap.txt`, lines `label:r,g,b:parts:actions`, which colour is which
label; the number of a label is its line. Where there is no such file, and for numbers of objects, the colours are those
of Pascal VOC's palette, in which 255 is void.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer import images
from packer.errors import BadInput
from packer.sources._parse.listing import shown
from packer.sources._trees.file_tree import FileTree

LABEL_MAP = "labelmap.txt"
VOID = 255
_VALUES = 256
_CHANNELS = 3

Colour = tuple[int, int, int]


def read_label_maps(tree: FileTree, names: Sequence[str]) -> dict[str, Colour | None]:
    """Label -> colour, None where the line has none, in order; lines that begin with # say nothing. Raises BadInput."""
    found: dict[str, Colour | None] = {}
    for name in names:
        text = tree.read(name).decode("utf-8-sig", errors="surrogateescape")
        for line in text.splitlines():
            label, _, rest = line.partition(":")
            if label.strip() and not line.startswith("#"):
                found.setdefault(label.strip(), _colour(rest.partition(":")[0]))
    return found


def _colour(text: str) -> Colour | None:
    words = [word.strip() for word in text.split(",")]
    if len(words) != _CHANNELS or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    red, green, blue = (int(word[:4]) for word in words)
    return (red, green, blue) if max(red, green, blue) < _VALUES else None


def voc_palette() -> list[Colour]:
    """The colour of every value of a mask: bit 3k, 3k + 1 and 3k + 2 of the value are bit 7 - k of red, green, blue."""
    colours = []
    for value in range(_VALUES):
        channels = [
            sum((value >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3)) for channel in range(_CHANNELS)
        ]
        colours.append((channels[0], channels[1], channels[2]))
    return colours


class ColourTable:
    """Which value of a mask a colour is."""

    def __init__(self, values: Mapping[Colour, int], where: str) -> None:
        """where: what says so, for messages."""
        self._where = where
        codes = _codes(np.asarray(list(values), np.uint8))
        order = np.argsort(codes)
        self._codes = codes[order]
        self._values = np.asarray(list(values.values()), np.uint8)[order]

    def values(self, data: bytes, path: Path) -> npt.NDArray[np.uint8]:
        """The mask (H, W) of a picture file in colours; raises BadInput for a colour that stands for nothing."""
        codes = _codes(images.decode(data, "image"))
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        unknown = self._codes[places] != codes
        if unknown.any():
            code = int(codes[unknown][0])
            raise BadInput(
                f"{shown(str(path))}: the colour {code >> 16}, {code >> 8 & 255}, {code & 255} is of no class in "
                f"{self._where}; mend one of them"
            )
        return np.asarray(self._values[places], np.uint8)


def class_colours(labels: Mapping[str, Colour | None]) -> ColourTable:
    """The colours of a label map, of Pascal VOC's palette where it has none."""
    palette = voc_palette()
    if not any(colour is not None for colour in labels.values()):
        return ColourTable({colour: value for value, colour in enumerate(palette)}, "Pascal VOC's palette")
    values = {colour: value for value, colour in enumerate(labels.values()) if colour is not None and value < VOID}
    return ColourTable({**values, palette[VOID]: VOID}, LABEL_MAP)


def object_colours() -> ColourTable:
    """Numbers of objects by the colours of Pascal VOC's palette."""
    return class_colours({})


def _codes(colours: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """One number per colour, of (..., 3)."""
    wide = colours.astype(np.uint32)
    return np.asarray((wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2], np.uint32)
