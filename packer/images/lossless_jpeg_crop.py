"""Lossless JPEG crop: make a smaller JPEG whose pixels are exactly those of a part of a JPEG's image.

**With restart intervals**, the part is a rectangle of complete intervals. The smaller file has the same header with
another height and width, the data of these intervals row by row, and renumbered markers. A restart marker also precedes
the end marker: libjpeg checks an interval for unused bytes when it searches the next marker. It does not report up to 8
unused bytes of the last interval.

**Without restart intervals**, the file is truncated below the part: it has another height in its frame. The decoder
skips the rest of the scan, and warns at the end marker. Rows above the part cannot be removed, because each MCU is
coded as a difference from the previous MCU. Most damage is reported at the end of the data, which a truncated file does
not reach. The bytes must therefore be verified by a checksum.

A pixel depends on its own MCU and, with subsampled chroma, on the next pixel. Fancy upsampling is a triangle filter
over the two nearest chroma samples (jdsample.c), at every scale except 1/8. One more pixel on each side, in px of the
scale, is therefore enough, with two exceptions. Components of 1 or 2 samples per row are upsampled by repetition, so a
crop needs 5 px per row or the full width. TurboJPEG expects a size instead of a scale, which is ambiguous below 8 px.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.images.file_types._header_record import Buffer, Header, Intervals
from packer.images.file_types.jpeg import END
from packer.images.restart_interval_table import Bounds, bounds, codes_before, disagreement, markers_before, pairs
from packer.system.thread_scratch import ThreadScratch

Box = tuple[int, int, int, int]

FULL_SCALE = 8  # eighths
MARGIN_PX = 1  # scaled
FEWEST_COLUMNS_PX = 5  # scaled: chroma of half the width has 3 samples
FEWEST_PX = 8
WORTH_PX = 16_384  # assembling a file takes about as long as decoding so many pixels


class Window(NamedTuple):
    """A rectangle of intervals: rows from `top` up to, not including, `bottom`, and columns from `left` up to `right`.

    Rows and columns are numbers of intervals. `interval` is the (height, width) of an interval in px.
    """

    top: int
    bottom: int
    left: int
    right: int
    interval: tuple[int, int]


def window(found: Header, box: Box, eighths: int) -> Window | None:
    """Return the intervals that a decoder needs for `box`, (top, left, height, width) in px of the full size.

    The scale is eighths / 8. Return None if the file cannot be cropped, or if the crop saves too little.
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
    """Return (first, end) of the restart intervals that contain the image from px `start` on, `length` px long.

    `eighths` is the scale of the decoder, such as 4 for half size. `step` is the length of an interval at that scale.
    """
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
    """Return height and width of the window `kept`, in px of the full size."""
    height, width = kept.interval
    return (
        min(kept.bottom * height, found.height) - kept.top * height,
        min(kept.right * width, found.width) - kept.left * width,
    )


def corner(kept: Window, eighths: int) -> tuple[int, int]:
    """Return top and left of the window `kept`, in px at scale eighths / 8."""
    height, width = kept.interval
    return kept.top * height * eighths // 8, kept.left * width * eighths // 8


def cut(
    buffer: Buffer, found: Header, kept: Window, scratch: ThreadScratch, *, table: bool = False
) -> memoryview | None:
    """Return the smaller JPEG with the window `kept`, in the memory of `scratch`. None if the markers are wrong.

    If `table` is True, use the table of intervals in the file (packer.images.restart_interval_table). Then raise
    DamagedImage if the table does not match the needed markers, because the file changed after it was checked.
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
    ends = np.add.accumulate(lengths)  # end of each run in the new file; all offsets count from the data of the scan
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
    """Return the values of each run of kept intervals: (runs, n + 1), in the memory of `values`.

    `values` has one value per interval, and one for the end. A run is n kept intervals that follow each other in the
    file: those of a row, or all if rows are complete. Its last value is that of the next interval.
    """
    columns = layout.columns
    if kept.right - kept.left == columns:
        return values[kept.top * columns : kept.bottom * columns + 1].reshape(1, -1)
    if kept.right < columns:
        return values[:-1].reshape(-1, columns)[kept.top : kept.bottom, kept.left : kept.right + 1]
    return values[1:].reshape(-1, columns)[kept.top : kept.bottom, kept.left - 1 :]


def _check(buffer: Buffer, found: Header, layout: Intervals, *, kept: Window, runs: Bounds) -> None:
    """Raise DamagedImage unless the expected restart marker precedes each offset in `runs`, the result of `_runs`."""
    expected = _runs(markers_before(layout.rows * layout.columns + 1), layout, kept)
    there = pairs(buffer, found)[runs]
    if kept.top == kept.left == 0:  # no marker precedes the first interval
        there[0, 0] = expected[0, 0]
    if kept.bottom == layout.rows and kept.right == layout.columns:  # the end marker, which was checked before
        there[-1, -1] = expected[-1, -1]
    if there.tobytes() != expected.tobytes():
        raise disagreement("its restart markers")


# ---- truncated below the part

_MOST_BYTES_PER_PX = 2  # longer files contain other data, which is not worth a copy


class TopRows(NamedTuple):
    """The upper rows of an image: their `height` in px of the full size, and the offset of the height in the file."""

    height: int
    size_at: int


def rows(buffer: Buffer, found: Header, box: Box, eighths: int) -> TopRows | None:
    """Return the rows that are decoded for a box, (top, left, height, width), at scale eighths / 8.

    Return None if the file cannot be truncated, has no end marker at its end, or if truncation saves too little.
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
    """Return the file truncated to the rows `kept`, in the memory of `scratch`."""
    size = len(buffer)
    file = scratch.file(size)[1][:size]
    file[:] = buffer
    file[kept.size_at : kept.size_at + 2] = kept.height.to_bytes(2, "big")
    return file
