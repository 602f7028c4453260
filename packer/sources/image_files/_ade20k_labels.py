"""ADE20K labels: parsers for the label files of the full ADE20K data set: RGB masks, object tables and JSON.

The class of a pixel in `_seg.png` is R // 10 * 256 + G. B is the number of the object in the image.
A line of `_atr.txt` (2017) is: object number # part level # occluded # name # name # "attributes". The first name is a
list of WordNet words, the second is the annotator's name for the object. Texts are UTF-8 or ISO 8859-1.
The layout is defined by the README and the tool kit of github.com/CSAILVision/ADE20K.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import images
from packer.errors import BadInput, DamagedImage, printable
from packer.layouts.json_text import json_value

_COLUMNS = 6
_SPACED = re.compile(r"(?<=\s)#(?=\s|$)")  # a separator; a # in a name has no space on one side
_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"[0-9]{1,9}")
_SHOWN = 80


def classes_and_instances(data: bytes, where: str) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Return (class, object number) of each pixel of a `_seg.png`, uint16 and uint8 (H, W). 0: the pixel has no object.

    Args:
        data: The bytes of the file.
        where: The path of the file, for error messages.

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
    """Return one dict for each object and part in an `_atr.txt`, in the order of the lines.

    The members are `object` (number in `_seg.png`, or in a mask of parts), `part_level` (0 for an object),
    `is_occluded`, `names` (two texts) and `attributes` (texts). An invalid line raises BadInput. `where` is the path
    for its message.
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
    """Return the content of a JSON file of 2020. Raise BadInput for other data. `where` is the path for its message."""
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
