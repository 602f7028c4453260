"""Suspect labels: masks of 1 bit, boxes outside of their pictures and the like, counted and said at the end.

A finding is text, `WHAT:FIELD`, so that the journal keeps the counts of parts that an earlier run has finished.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from packer.images import Header
from packer.sources._parse.listing import counted, shown

_ONE_BIT, _BOXED, _SHARES, _OUTSIDE = "one-bit", "boxed", "shares", "outside"
_TOLERANCE_PX = 1.0  # boxes are rounded


def of_mask(name: str, header: Header) -> Iterator[str]:
    """A mask whose two values are decoded as 0 and 255, and not as 0 and 1."""
    if header.bits == 1 and header.channels == 1:
        yield f"{_ONE_BIT}:{name}"


def of_boxes(name: str, boxes: Any, height: int, width: int) -> Iterator[str]:
    """Boxes that are no pixels, or not those of their picture. boxes: (N, 4), in the frame of the picture's size."""
    if not len(boxes):
        return
    yield f"{_BOXED}:{name}"
    if boxes.min() >= 0 and boxes.max() <= 1:
        yield f"{_SHARES}:{name}"
    if boxes.min() < -_TOLERANCE_PX or (boxes[:, 2:] > (width + _TOLERANCE_PX, height + _TOLERANCE_PX)).any():
        yield f"{_OUTSIDE}:{name}"


def notes(counts: Mapping[str, int]) -> list[str]:
    """A line for each finding that is worth one."""
    lines = []
    for finding, count in sorted(counts.items()):
        what, _, field = finding.partition(":")
        name, boxed = shown(field), counts.get(f"{_BOXED}:{field}", 0)
        if what == _ONE_BIT:
            lines.append(
                f"{name}: 1-bit pictures, values 0 and 255 ({counted(count, 'sample')}), where Pillow's array has "
                "False and True; divide by 255 for classes 0 and 1"
            )
        elif what == _SHARES and count == boxed:
            lines.append(
                f"{name}: all boxes lie within 0 to 1 ({counted(count, 'sample')}): shares of the sides, as of YOLO? "
                "Kind boxes is x0 y0 x1 y1 in px of the picture; multiply them by width and height"
            )
        elif what == _OUTSIDE:
            lines.append(
                f"{name}: boxes reach out of their pictures in {counted(count, 'sample')} of {boxed} with boxes"
            )
    return lines
