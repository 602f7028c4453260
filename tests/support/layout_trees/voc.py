"""A tree as Pascal VOC's, made by code: images are noise, masks palette PNG, as VOCdevkit has them."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.support.source_trees import image, write

Box = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_COLORS = [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), *[(0, 0, 128)] * 251, (224, 224, 192)]


def annotated_object(name: str, box: Box, inner: str = "", *, flags: Mapping[str, int] | None = None) -> str:
    """One `<object>`; xmax stands before xmin, as in VOC2012."""
    xmin, ymin, xmax, ymax = box
    stated = "".join(f"<{flag}>{value}</{flag}>" for flag, value in (flags or {}).items())
    return (
        f"<object><name>{name}</name><bndbox><xmax>{xmax:g}</xmax><xmin>{xmin:g}</xmin><ymax>{ymax:g}</ymax>"
        f"<ymin>{ymin:g}</ymin></bndbox>{inner}{stated}<pose>Unspecified</pose></object>\n"
    )


def part(name: str, box: Box) -> str:
    """A `<part>` of an object."""
    corners = "".join(f"<{tag}>{value:g}</{tag}>" for tag, value in zip(_CORNERS, box, strict=True))
    return f"<part><name>{name}</name><bndbox>{corners}</bndbox></part>"


def annotation(objects: Sequence[str], *, filename: str = "", size: tuple[int, int] | None = (64, 48)) -> str:
    """An annotation file. size: width and height."""
    stated = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>" if size else ""
    named = f"<filename>{filename}</filename><path>C:\\someone\\else\\{filename}</path>" if filename else ""
    inner = "".join(objects)
    return f"<annotation><folder>VOC2012</folder>{named}{stated}<segmented>1</segmented>\n{inner}</annotation>"


def palette_mask(values: npt.NDArray[np.uint8]) -> bytes:
    """A palette PNG of these indices, in VOC's first colors."""
    image = Image.frombytes("P", values.shape[::-1], values.tobytes())
    image.putpalette([channel for color in _COLORS for channel in color])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def build(root: Path) -> Path:
    """Three images with masks and lists, one of them without an object; one with a part; CRLF, and a class list."""
    values = np.zeros((48, 64), np.uint8)
    values[10:20, 20:40], values[9, 20:40] = 2, 255
    person = annotated_object("person", (1, 2, 30, 40.5), part("head", (5.5, 6, 7.5, 8)), flags={"difficult": 1})
    files: dict[str, bytes | str] = {
        "Annotations/2007_000027.xml": annotation([person, annotated_object("cat", (3, 4, 64, 48))]),
        "Annotations/2007_000032.xml": annotation([], filename="another.jpg"),
        "Annotations/2008_000001.xml": annotation(
            [annotated_object("dog", (10, 10, 20, 20), flags={"truncated": 1, "occluded": 1})], size=None
        ),
        "ImageSets/Main/train.txt": "2007_000027\r\n2007_000032\r\n",
        "ImageSets/Main/val.txt": "2008_000001\n",
        "ImageSets/Main/trainval.txt": "2007_000027\n2007_000032\n2008_000001\n",
        "ImageSets/Main/aeroplane_train.txt": "2007_000027 -1\r\n2007_000032 -1\r\n",
        "README.md": "of no image",
    }
    for number, key in enumerate(("2007_000027", "2007_000032", "2008_000001")):
        files[f"JPEGImages/{key}.jpg"] = image(number, suffix=".jpg")
        files[f"SegmentationClass/{key}.png"] = palette_mask(np.roll(values, number))
        files[f"SegmentationObject/{key}.png"] = palette_mask(np.roll(values, number) // 2)
    return write(root, files)
