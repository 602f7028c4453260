"""ADE20K labels: the colours, tables and JSON of the full set, in which one picture holds classes and instances.

A `_seg.png` is no label map: the class of a pixel is R // 10 * 256 + G, and B counts the objects of the picture.
The lines of `_atr.txt` (2017) are: number of the object # part level # occluded # name # name # "attributes", the one
name a list of WordNet's words and the other the annotator's. JSON (2020) says more of the same. Both were written by
people in UTF-8 or ISO 8859-1.
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
_SPACED = re.compile(r"(?<=\s)#(?=\s|$)")  # a # in a name has no space on one of its sides
_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"[0-9]{1,9}")
_SHOWN = 80


def classes_and_instances(data: bytes, where: str) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """The class of each pixel of a `_seg.png`, 0 for none, and the number of its object; (H, W) each.

    where: its path, for messages. Raises BadInput for what is no RGB picture without loss.
    """
    try:
        header = images.sniff(data)
        if header.lossy or header.channels != 3 or header.dtype != "uint8" or header.palette:
            raise BadInput(
                f"{printable(where)}: expected an RGB PNG of 8 bit, whose colours are classes and objects, found "
                f"{header.format.upper()} of {header.channels} channel(s) with {header.dtype} samples; get the file as "
                "it was published"
            )
        colours = images.decode(data, "image", header=header)
    except DamagedImage as error:
        raise BadInput(f"{printable(where)}: {error.message}") from error
    classes = (colours[:, :, 0] // 10).astype(np.uint16) * 256 + colours[:, :, 1]
    return classes, np.ascontiguousarray(colours[:, :, 2])


def attribute_rows(data: bytes, where: str) -> list[dict[str, Any]]:
    """The objects and parts that an `_atr.txt` lists, in its order.

    Each has `object` (the value of B, or of a mask of parts), `part_level` (0 for an object), `is_occluded`, `names`
    (its two names) and `attributes`. Raises BadInput with the line.
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
                f"{printable(where)}: line {number}: found {printable(line[:_SHOWN])!r}, expected six columns with ' # "
                "' between, the first three whole numbers; mend the file"
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
    """What a JSON file of 2020 says of its picture; raises BadInput for what is no JSON object."""
    try:
        found = json_value(_text(data))
        if not isinstance(found, dict):
            raise ValueError(f"found a {type(found).__name__}, expected an object")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{printable(where)}: cannot read as JSON: {printable(str(error))}; mend the file") from error
    return found


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")
