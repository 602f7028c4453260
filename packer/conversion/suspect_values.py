"""Suspect values: masks of 1 bit, depth with holes, boxes outside of their pictures, counted and said at the end.

So are entries of records that are no field, since none of the records that the schema was settled by has them.

Not looked for: NaN, pictures of a single value, class numbers out of range. What is found refuses no sample, but for a
mask that lies in its alpha channel alone.

A finding is text, `WHAT:FIELD`, so that done-records keep the counts of parts that an earlier run has finished.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from packer.images import Header, loses_alpha
from packer.schema import Buffer
from packer.sources._parse.folder_listing import counted, listed, shown

_ONE_BIT, _MASKS, _ALPHA = "one-bit", "masks", "alpha"
_BOXED, _SHARES, _OUTSIDE = "boxed", "shares", "outside"
_UNREAD = "unread-depth"
_HOLES, _OTHER_SIZE = "holes", "other-size"
_UNTAKEN = "untaken"
_NAME_LENGTH = 80  # of such an entry, whose name may be of any length
_HOLE_SHARE = 0.01  # of a float depth's pixels that are 0: fewer may be measured, such as the least of a scaled one
_TOLERANCE_PX = 1.0  # boxes are rounded


def of_mask(name: str, file: Buffer, header: Header) -> Iterator[str]:
    """A mask whose two values are decoded as 0 and 255, and not as 0 and 1; one whose alpha is dropped and says more.

    Raises BadInput where alpha alone says anything.
    """
    yield f"{_MASKS}:{name}"
    if header.bits == 1 and header.channels == 1 and not header.palette:
        yield f"{_ONE_BIT}:{name}"
    if loses_alpha(file, header):
        yield f"{_ALPHA}:{name}"


def of_depth(name: str, depth: Any) -> Iterator[str]:
    """A depth, of which nobody said what a missing pixel is, with a value beside others that often stands for it.

    depth: (H, W). That is 0; -1 of signed numbers; and the largest of unsigned ones, 255 or 65535.
    """
    whole = depth.dtype.kind in "iu"
    last = int(np.iinfo(depth.dtype).max) if depth.dtype.kind == "u" else -1
    for value, at_least in ((0, 0 if whole else _HOLE_SHARE * depth.size), (last, 0)):
        count = int(np.count_nonzero(depth == value))
        if at_least < count < depth.size:
            yield f"{_HOLES}{value}:{name}"


def of_unread_depth(name: str) -> str:
    """A depth, of which nobody said what a missing pixel is, whose pixels were not looked at."""
    return f"{_UNREAD}:{name}"


def of_untaken(names: Iterable[str]) -> Iterator[str]:
    """Entries of a record that no record has which was looked at for the schema."""
    for name in names:
        yield f"{_UNTAKEN}:{name[:_NAME_LENGTH]}"


def of_size(name: str) -> Iterator[str]:
    """A picture of the shape of the sample's first, in another size."""
    yield f"{_OTHER_SIZE}:{name}"


def of_boxes(name: str, boxes: Any, height: int, width: int) -> Iterator[str]:
    """Boxes that are no pixels, or not those of their picture. boxes: (N, 4), in the frame of the picture's size."""
    if not len(boxes):
        return
    yield f"{_BOXED}:{name}"
    if boxes.min() >= 0 and boxes.max() <= 1:
        yield f"{_SHARES}:{name}"
    if boxes.min() < -_TOLERANCE_PX or (boxes[:, 2:] > (width + _TOLERANCE_PX, height + _TOLERANCE_PX)).any():
        yield f"{_OUTSIDE}:{name}"


def notes(counts: Mapping[str, int], invalid_option: Callable[[str, Mapping[str, str]], str | None]) -> list[str]:
    """A line for each finding that is worth one. invalid_option: what to type for a field's value, as of a source."""
    lines = []
    holes = [finding.removeprefix(_HOLES).partition(":") for finding in sorted(counts) if finding.startswith(_HOLES)]
    usual = {field: value for value, _, field in reversed(holes)}  # one line to type says all fields
    for finding, count in sorted(counts.items()):
        what, _, field = finding.partition(":")
        name, boxed = shown(field), counts.get(f"{_BOXED}:{field}", 0)
        if what == _ONE_BIT:
            lines.append(_about_one_bit(name, count, counts.get(f"{_MASKS}:{field}", count)))
        elif what == _ALPHA:
            lines.append(
                f"{name}: alpha channels are dropped, and in {counted(count, 'sample')} of "
                f"{counts.get(f'{_MASKS}:{field}', count)} pixels of one gray differ in it; where it says what they "
                "are, save it as a gray PNG"
            )
        elif what.startswith(_HOLES):
            value = what.removeprefix(_HOLES)
            typed = invalid_option(field, {**usual, field: value})
            others = [shown(name) for name in usual if name != field and f"{name}=" in (typed or "")]
            leave = f" (without the values of {', '.join(others)}, if these are measured)" if others else ""
            say = f"; where {value} is no measurement, say {typed}{leave}" if typed else ""
            lines.append(
                f"{name}: {counted(count, 'sample')} with pixels of {value} beside others: geometries and --resize mix "
                f"them in as a distance{say}"
            )
        elif what == _UNREAD:
            typed = invalid_option(field, {field: "0"})
            lines.append(
                f"{name}: not looked at for holes (--validate header); geometries and --resize mix a value for missing "
                f"pixels in as a distance, unless it is named, such as 0 by {typed}"
            )
        elif what == _OTHER_SIZE:
            lines.append(
                f"{name}: of another size than its picture in {counted(count, 'sample')}: geometries (a flip too) and "
                "--resize give all fields of a sample one size; where the sizes are to differ, as in super resolution, "
                "use neither, and crop in a transform"
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
    prefix = f"{_UNTAKEN}:"
    untaken = {
        finding.removeprefix(prefix): count for finding, count in sorted(counts.items()) if finding.startswith(prefix)
    }
    if untaken:
        lines.append(_about_untaken(untaken))
    return lines


def _about_untaken(counts: Mapping[str, int]) -> str:
    """counts: of each entry, how many samples have it."""
    names = listed(f"{name} ({counted(count, 'sample')})" for name, count in counts.items())
    return (
        f"not packed: {names}: none of the records that were looked at for the fields has a value of that name; to "
        "take one, give it to every record"
    )


def _about_one_bit(name: str, count: int, masks: int) -> str:
    pillow = "where Pillow's array has False and True"
    if count == masks:
        return (
            f"{name}: 1-bit pictures, values 0 and 255 ({counted(count, 'sample')}), {pillow}; divide by 255 for "
            "classes 0 and 1"
        )
    return (
        f"{name}: 1-bit pictures, values 0 and 255, in {count} of {counted(masks, 'sample')}, {pillow}; the others are "
        "of more bits with values of their own, which a division by 255 would make 0: convert them to one form first"
    )
