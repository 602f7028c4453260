"""Wording: the values of a sample in a few words; as the pack has them, nothing is escaped here."""

import math
from typing import Any

import numpy as np

from packer.schema import Field
from packer.sheets.overlay import Drawn


def value_text(field: Field, value: Any, drawn: Drawn | None = None) -> str:
    """A value that is no picture: the class instead of its number, how many shapes instead of the shapes."""
    if field.kind in ("points", "boxes"):
        return _count_text(len(value), drawn)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    if field.classes is not None and isinstance(value, int):
        return field.classes[value] if 0 <= value < len(field.classes) else f"{value}, which is no class"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count_text(count: int, drawn: Drawn | None) -> str:
    if drawn is None:
        return str(count)
    shown = str(count) if drawn.drawn == count else f"{drawn.drawn} of {count}"
    return f"{shown}, {drawn.impossible} not drawable" if drawn.impossible else shown


def share_text(share: float) -> str:
    """A share as a percentage; what is there is never rounded to nothing."""
    return f"{share:.1%}" if share >= 0.0005 or not share else "<0.1%"


def range_texts(low: float, high: float, unit: str) -> tuple[str, str]:
    """Both ends of a depth's scale, with as many digits as tell them apart."""
    if not unit and low == round(low) and high == round(high):
        return f"{low:.0f}", f"{high:.0f}"
    places = min(6, max(2, math.ceil(-math.log10(high - low)))) if high > low else 2
    return f"{low:.{places}f}", f"{high:.{places}f} {unit}".rstrip()
