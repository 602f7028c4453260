"""Lossless JPEG crop: make a smaller JPEG whose pixels are exactly those of a part of a JPEG's image.

**With restart intervals** the part is a rectangle of whole intervals. The smaller file has the same header with another
height and width, the data of those intervals row by row, and the markers between them numbered anew. A restart marker
stands before the end marker too: libjpeg notes bytes that an interval did not use when it comes to the next one, and
only warns of them when it has to look for a marker, which that makes it do once more. What is left of the last
interval, up to 8 bytes, stays unseen.

**Without** them the file is truncated below the part: the same with another height in its frame. libjpeg decodes as
many rows of MCUs, passes over the rest of the scan, and warns of that when it finds the end marker. Rows above the part
cannot be left out: each MCU is coded as a difference from the one before it. What libjpeg says of a whole file when its
data is damaged, it says most often at the end: bytes are left, or missing. A truncated file does not get there, so this
is for bytes that a checksum vouches for.

What libjpeg-turbo makes of a pixel depends on its own MCU, and with subsampled chroma on the pixel beside it: fancy
upsampling is a triangle filter over the two nearest chroma samples (jdsample.c), at every scale but 1/8. One pixel
more on each side, in pixels of the scale, is therefore enough, with two exceptions. Components of 1 or 2 samples a row
are upsampled by repeating them, so a cut has 5 px a row or the whole width. And TurboJPEG is told a size, not a scale,
which names one scale only where a side has 8 px or more.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.images.headers._header_record import Buffer, Header, Intervals
from packer.images.headers.jpeg import END
from packer.images.restart_interval_table import Bounds, bounds, codes_before, disagreement, markers_before, pairs
from packer.system.thread_scratch import ThreadScratch

Box = tuple[int, int, int, int]

FULL_SCALE = 8  # eighths
MARGIN_PX = 1  # scaled
FEWEST_COLUMNS_PX = 5  # scaled: chroma of half the width has 3 samples
FEWEST_PX = 8
WORTH_PX = 16_384  # assembling a file takes as long as decoding about so many


class Window(NamedTuple):
    """Intervals that are kept: rows top to bottom, columns left to right, the last ones not included.

    interval: (height, width) of one in px.
    """

    top: int
    bottom: int
    left: int
    right: int
    interval: tuple[int, int]


def window(found: Header, box: Box, eighths: int) -> Window | None:
    """The intervals that show `box`, (top, left, height, width) in px of the full size, at scale eighths / 8.

    None where the file cannot be cut or too little would be cut away.
    """
    layout = found.scan.intervals if found.scan is not None else None
    if layout is None:
        return None
    top, left, height, width = box
    first, last = span(top, height, layout.size[0] * eighths // 8, eighths=eighths)
    last = min(last, layout.rows)
    while first and min(last * layout.size[0], found.height) - first * layout.size[0] < FEWEST_PX:
        first -= 1
    begin, end = span(left, width, layout.size[1] * eighths // 8, eighths=eighths)
    begin, end = _widened(begin, min(end, layout.columns), found=found, layout=layout, eighths=eighths)
    kept = Window(first, last, begin, end, layout.size)
    shown = size(found, kept)
    return kept if found.height * found.width - shown[0] * shown[1] >= WORTH_PX else None


def span(start: int, length: int, step: int, *, eighths: int) -> tuple[int, int]:
    """The first interval of `step` scaled px that is touched along one axis, and the one after the last."""
    first = start * eighths // 8 - MARGIN_PX
    last = -(-(start + length) * eighths // 8) + MARGIN_PX
    return max(first, 0) // step, -(-last // step)


def _widened(begin: int, end: int, *, found: Header, layout: Intervals, eighths: int) -> tuple[int, int]:
    step = layout.size[1]
    while begin > 0 or end < layout.columns:
        width = min(end * step, found.width) - begin * step
        if width >= FEWEST_PX and width * eighths > 8 * (FEWEST_COLUMNS_PX - 1):
            break
        begin, end = max(begin - 1, 0), min(end + 1, layout.columns)
    return begin, end


def size(found: Header, kept: Window) -> tuple[int, int]:
    """Height and width of the window, in px of the full size."""
    height, width = kept.interval
    return (
        min(kept.bottom * height, found.height) - kept.top * height,
        min(kept.right * width, found.width) - kept.left * width,
    )


def corner(kept: Window, eighths: int) -> tuple[int, int]:
    """Top and left of the window, in px at the scale."""
    height, width = kept.interval
    return kept.top * height * eighths // 8, kept.left * width * eighths // 8


def cut(
    buffer: Buffer, found: Header, kept: Window, scratch: ThreadScratch, *, table: bool = False
) -> memoryview | None:
    """The smaller JPEG, in the scratch's memory; None where the markers of the file are not as they should be.

    table: use the file's table of intervals, see packer.images.restart_interval_table. Raises DamagedImage where it
    does not agree with the markers that are needed: it was compared with all of them once, and the bytes have changed
    since.
    """
    scan, layout = found.scan, found.intervals
    every = bounds(buffer, found, table=table)
    if scan is None or layout is None or every is None:
        return None
    runs = _runs(every, layout, kept)
    if table and layout.table_at:
        _check(buffer, found, layout, kept=kept, runs=runs)
    starts, stops = runs[:, 0], runs[:, -1]
    lengths = stops - starts
    ends = np.add.accumulate(lengths)  # of each run in the new file, from the scan's data on, as all offsets here
    at, whole = found.data_at, int(ends[-1])
    array, file = scratch.file(at + whole + len(END))
    source = memoryview(buffer)
    file[:at] = source[:at]
    height, width = size(found, kept)
    file[scan.size_at : scan.size_at + 4] = (height << 16 | width).to_bytes(4, "big")
    old, new = source[at:], file[at:]
    places = zip(starts.tolist(), stops.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True)
    for start, stop, begin, end in places:
        new[begin:end] = old[start:stop]
    codes = runs[:, 1:] + (ends - stops - 1)[:, None]
    array[at:][codes] = codes_before(codes.size + 1)[1:].reshape(codes.shape)
    new[whole : whole + len(END)] = END
    return file[: at + whole + len(END)]


def _runs(values: npt.NDArray[Any], layout: Intervals, kept: Window) -> npt.NDArray[Any]:
    """(runs, intervals + 1), a view: of one value for each interval and one more, those from each kept run's first on.

    A run is kept intervals that follow each other in the file: those of a row, or all of them where rows are whole. The
    last value of a run is that of the interval after it.
    """
    columns = layout.columns
    if kept.right - kept.left == columns:
        return values[kept.top * columns : kept.bottom * columns + 1].reshape(1, -1)
    if kept.right < columns:
        return values[:-1].reshape(-1, columns)[kept.top : kept.bottom, kept.left : kept.right + 1]
    return values[1:].reshape(-1, columns)[kept.top : kept.bottom, kept.left - 1 :]


def _check(buffer: Buffer, found: Header, layout: Intervals, *, kept: Window, runs: Bounds) -> None:
    """Raise DamagedImage unless the expected restart marker stands before each offset in `runs`."""
    expected = _runs(markers_before(layout.rows * layout.columns + 1), layout, kept)
    there = pairs(buffer, found)[runs]
    if kept.top == kept.left == 0:  # nothing stands before the first interval
        there[0, 0] = expected[0, 0]
    if kept.bottom == layout.rows and kept.right == layout.columns:  # the end marker, which was looked at
        there[-1, -1] = expected[-1, -1]
    if there.tobytes() != expected.tobytes():
        raise disagreement("its restart markers")


# ---- truncated below the part

_MOST_BYTES_PER_PX = 2  # of a file that is copied; there is something else in longer ones


class TopRows(NamedTuple):
    """The upper rows of an image: their number in px of the full height, and the offset of the height in the file."""

    height: int
    size_at: int


def rows(buffer: Buffer, found: Header, box: Box, eighths: int) -> TopRows | None:
    """The rows that have to be decoded for a box, (top, left, height, width), at scale eighths / 8.

    None where the file cannot be truncated or too little would be left out, and where it does not end with an end
    marker: it lacks one, or has a tail that would be copied for nothing.
    """
    scan = found.scan
    if scan is None or scan.intervals is not None or buffer[-2:] != END:
        return None
    if len(buffer) > _MOST_BYTES_PER_PX * found.height * found.width:
        return None
    _, last = span(box[0], box[2], scan.mcu[0] * eighths // 8, eighths=eighths)
    kept = last * scan.mcu[0]
    return TopRows(kept, scan.size_at) if (found.height - kept) * found.width >= WORTH_PX else None


def truncated(buffer: Buffer, kept: TopRows, scratch: ThreadScratch) -> memoryview:
    """The file truncated to these rows, in the scratch's memory."""
    size = len(buffer)
    file = scratch.file(size)[1][:size]
    file[:] = buffer
    file[kept.size_at : kept.size_at + 2] = kept.height.to_bytes(2, "big")
    return file
