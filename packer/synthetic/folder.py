"""Folder: photos of objects on tables, as an ImageFolder tree of JPEG files: `<class>/<class>_<number>.jpg`.

A class is a kind of object. If there are more classes than kinds, a class is a combination of color and kind. The
classes are easy: a small network can learn them.
"""

import itertools
import math
from functools import partial
from pathlib import Path

from packer.errors import InvalidRequest
from packer.synthetic.drawing import (
    KINDS,
    PALETTE,
    Size,
    draw_object,
    draw_table,
    encode_photo,
    make_object,
    photograph,
)
from packer.synthetic.set_writer import DrawnSample, SetSummary, check_counts, check_size, stream, write_set

_SIZES = ((375, 500), (500, 375), (333, 500), (240, 320), (480, 640), (281, 500), (400, 400), (683, 1024))


def write_folder(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = (375, 500)
) -> SetSummary:
    """Write `samples` photos into a new or empty folder, evenly distributed over the classes. Return the counts.

    Args:
        size: (height, width) in px. None selects random sizes from 320x240 to 1024x683 px, portrait and landscape.

    Raises:
        InvalidRequest: An option is outside its limits.
        PackExists: The folder is not empty.
        StorageError: A file cannot be written.
    """
    check_counts(samples=samples, seed=seed)
    check_size(size, least=16, most=8192)
    draw = partial(_draw, seed, class_names(classes), _SIZES if size is None else (size,))
    return write_set(folder, draw, samples=samples, threads=threads)


def class_names(count: int) -> tuple[tuple[str, str | None], ...]:
    """Return (kind, color) of the first `count` classes. If the number of kinds is sufficient, all colors are None."""
    most = len(KINDS) * len(PALETTE)
    if not 1 <= count <= most:
        raise InvalidRequest(f"classes {count}: expected 1 to {most}; choose another number")
    if count <= len(KINDS):
        return tuple((kind, None) for kind in KINDS[:count])
    return tuple((kind, color) for color, kind in itertools.islice(itertools.product(PALETTE, KINDS), count))


def _draw(seed: int, classes: tuple[tuple[str, str | None], ...], sizes: tuple[Size, ...], index: int) -> DrawnSample:
    random = stream(seed, 1, index)
    kind, color = classes[index % len(classes)]
    height, width = size = sizes[random.integers(len(sizes))]
    image = draw_table(random, size)
    drawn = make_object(kind, random, color=color)
    scale = random.uniform(0.5, 0.85) * min(size) / (2 * drawn.radius)
    x, y = random.uniform(-0.1, 0.1, 2) * min(size)
    draw_object(image, drawn, at=(width / 2 + x, height / 2 + y), turn=random.uniform(0, 2 * math.pi), scale=scale)
    name = kind if color is None else f"{color}_{kind}"
    path = f"{name}/{name}_{index // len(classes):05d}.jpg"
    return DrawnSample({path: encode_photo(photograph(image, random, grain=5.6))})
