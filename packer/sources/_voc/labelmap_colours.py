"""Labelmap colours: names and colours of classes in `labelmap.txt`, and masks in such colours as class numbers.

CVAT and datumaro write masks as RGB and say in `labelmap.txt`, lines `label:r,g,b:parts:actions`, which colour is which
label; the number of a label is its line. Where there is no such file, and for numbers of objects, the colours are those
of Pascal VOC's palette, in which 255 is void.
"""

from collections.abc import Mapping, Sequence

from packer.sources._parse.colour_table import VOID, Colour, ColourTable, voc_palette
from packer.sources._trees.file_tree import FileTree

LABEL_MAP = "labelmap.txt"
_VALUES = 256
_CHANNELS = 3


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
