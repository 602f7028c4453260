"""Legend: what the colours of a sheet mean."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.inspect.contact_sheet.picture import value_colour
from packer.inspect.contact_sheet.shape_overlay import JAW_PX, OPENING_PX
from packer.inspect.palette import BOXES, GRASPS, GROUND, OUTLINES, POINTS, Colour, class_colour

_MOST_VALUES = 6  # of one mask
_MOST_MARKS = 12
_FORMS = ("line", "fill", "hatch", "")


class Mark(NamedTuple):
    """One entry. form: line, fill, hatch or nothing; thickness of a line in px."""

    text: str
    form: str = ""
    colour: Colour = GROUND
    thickness: int = 0


NO_DEPTH = Mark("no depth", "hatch")


def shape_marks(name: str, kind: str, rank: int) -> list[Mark]:
    """The entries of a field of grasps, boxes, outlines or points; rank: among those of its kind."""
    if kind == "grasps":
        opening, jaw = GRASPS[rank % len(GRASPS)]
        return [Mark(f"{name}: opening", "line", opening, OPENING_PX), Mark(f"{name}: jaw", "line", jaw, JAW_PX)]
    if kind == "boxes":
        return [Mark(name, "line", BOXES[rank % len(BOXES)], JAW_PX)]
    if kind == "outlines":
        return [Mark(name, "line", OUTLINES[rank % len(OUTLINES)], OPENING_PX)]
    return [Mark(name, "fill", POINTS[rank % len(POINTS)])]


def mask_marks(name: str, mask: npt.NDArray[Any]) -> list[Mark]:
    """An entry per value of a mask, or one for all that it has when it is object and background, soft, or many ids."""
    present = [value for value in np.unique(mask).tolist() if value]
    if mask.dtype != np.uint8:  # of 16 bit: ids
        if len(present) > _MOST_VALUES:
            return [Mark(f"{name}: a colour per value")]
        return [Mark(f"{name} {value}", "fill", class_colour(value)) for value in present]
    if present == [255] or len(present) > _MOST_VALUES:
        return [Mark(name, "fill", value_colour(255, []))]
    return [Mark(f"{name} {value}", "fill", value_colour(value, present)) for value in present]


def merged(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Every entry once, lines first, as many as a sheet has room for."""
    found = tuple(sorted(dict.fromkeys(marks), key=lambda mark: _FORMS.index(mark.form)))
    if len(found) <= _MOST_MARKS:
        return found
    return (*found[:_MOST_MARKS], Mark(f"and {len(found) - _MOST_MARKS} more"))
