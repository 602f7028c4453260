"""Packs of arrays, for what shows or measures them: every value is known, and nothing is lost on the way."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.inspect.contact_sheet import Sheet, SheetRequest, make_sheet
from packer.schema import Field, Schema
from tests.support import built_packs

KEY = Field("key", "text", "text")
IMAGE = Field("image", "image", "raw", "uint8", (None, None, 3))
DEPTH = Field("depth", "depth", "raw:float32", "float32", (None, None), invalid=-1.0)
MASK = Field("mask", "mask", "raw", "uint8", (None, None))
IDS = Field("ids", "mask", "raw", "uint16", (None, None))
GRASPS = Field("grasps", "points", "raw:float32", "float32", (None, 4, 2))
NEGATIVES = Field("negatives", "points", "raw:float32", "float32", (None, 4, 2))
BOXES = Field("boxes", "boxes", "raw:float32", "float32", (None, 4))
DOTS = Field("dots", "points", "raw:float32", "float32", (None, 2))
LABEL = Field("label", "number", "number", "int64", (), classes=("cat", "dog"))
SCORE = Field("score", "number", "number", "float32", ())
NOTE = Field("note", "text", "text")

GRAY = (130, 131, 132)
RECTANGLE = ((20, 10), (60, 10), (60, 30), (20, 30))  # opening along x, 40 px; jaw along y, 20 px

Array = npt.NDArray[Any]


def plain(height: int, width: int, color: tuple[int, int, int] = GRAY) -> Array:
    """An image of one color."""
    return np.full((height, width, 3), color, np.uint8)


def displayed(
    folder: Path, fields: Sequence[Field], samples: Sequence[Mapping[str, Any]], *, format: str = "lmdb", **members: Any
) -> Path:
    """A pack of these values; keys are 0, 1, ... where a sample has none. members: those of the manifest."""
    schema = Schema((KEY, *fields))
    records = [built_packs.encoded(schema, {"key": str(number), **each}) for number, each in enumerate(samples)]
    built_packs.make_pack(folder, records, format=format, schema=schema, parts=1, **members)
    return folder


def sheet_of(folder: Path, **wanted: Any) -> Sheet:
    """The sheet of a pack."""
    return make_sheet(folder, SheetRequest(**wanted))


def decoded(png: bytes) -> npt.NDArray[np.uint8]:
    """uint8 (H, W, 3), RGB, of a PNG."""
    return np.ascontiguousarray(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1])
