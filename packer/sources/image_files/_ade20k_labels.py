"""ADE20K labels: the colors, tables and JSON of the full set. One image contains classes and instances.

The class of a pixel of `_seg.png` is R // 10 * 256 + G, and B counts the objects of the image.
The lines of `_atr.txt` (2017) are: number of the object # part level # occluded # name # name # "attributes". The first
name is a list of words of WordNet, the second is the annotator's. JSON (2020) contains more. Files are in UTF-8 or
ISO 8859-1.
Layout: github.com/CSAILVision/ADE20K, README and code of the tool kit.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import images
from packer.errors import BadInput, DamagedImage, printable
from packer.layouts.json_text import json_value

_COLUMNS = 6
_SPACED = re.compile(r"(?<=\s)#(?=\s|$)")  # a # in a name lacks a space on one side
_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"[0-9]{1,9}")
_SHOWN = 80


def classes_and_instances(data: bytes, where: str) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Return the class of each pixel of a `_seg.png`, 0 for none, and the number of its object, (H, W) each.

    Args:
        data: The bytes of the file.
        where: Its path, for messages.

    Raises:
        BadInput: The file is not a lossless RGB image.
    """
    try:
        header = images.sniff(data)
        if header.lossy or header.channels != 3 or header.dtype != "uint8" or header.palette:
            raise BadInput(
                f"{printable(where)}: expected an RGB PNG of 8 bit, found "
                f"{header.format.upper()} of {header.channels} channel(s) with {header.dtype} samples; get the "
                "published file"
            )
        colors = images.decode(data, "image", header=header)
    except DamagedImage as error:
        raise BadInput(f"{printable(where)}: {error.message}") from error
    classes = (colors[:, :, 0] // 10).astype(np.uint16) * 256 + colors[:, :, 1]
    return classes, np.ascontiguousarray(colors[:, :, 2])


def attribute_rows(data: bytes, where: str) -> list[dict[str, Any]]:
    """Return the objects and parts that an `_atr.txt` lists, in its order; raises BadInput with the line.

    Each has `object` (the value of B, or of a mask of parts), `part_level` (0 for an object), `is_occluded`, `names`
    (its two names) and `attributes`.
    """
    rows = []
    for number, line in enumerate(_LINE_END.split(_text(data)), start=1):
        if not line.strip():
            continue
        columns = [column.strip() for column in _SPACED.split(line)]
        if len(columns) == 1:  # written without spaces
            columns = [column.strip() for column in line.split("#")]
        if len(columns) != _COLUMNS or not all(map(_NUMBER.fullmatch, columns[:3])):
            raise BadInput(
                f"{printable(where)}: line {number}: found {printable(line[:_SHOWN])!r}, expected six columns "
                "separated by ' # ', the first three whole numbers; fix the file"
            )
        attributes = [word.strip() for word in columns[5].strip('"').split(",")]
        rows.append({
            "object": int(columns[0]),
            "part_level": int(columns[1]),
            "is_occluded": int(columns[2]) != 0,
            "names": columns[3:5],
            "attributes": [word for word in attributes if word],
        })  # fmt: skip
    return rows


def annotation(data: bytes, where: str) -> dict[str, Any]:
    """Return the content of a JSON file of 2020; raises BadInput if it is not a JSON object."""
    try:
        value = json_value(_text(data))
        if not isinstance(value, dict):
            raise ValueError(f"found a {type(value).__name__}, expected an object")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{printable(where)}: cannot read as JSON: {printable(str(error))}; fix the file") from error
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")
