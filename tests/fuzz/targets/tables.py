"""Forged interval tables over sound JPEGs: one that validation lets pass cuts where the markers are."""

import functools
from collections.abc import Iterator

import numpy as np

from packer.images import DecodeOptions, sniff, validate
from packer.images.region_decoder import decode_region
from packer.images.restart_interval_table import HEAD_BYTES, bounds
from tests.fuzz.target import Disagreement
from tests.support import restart_jpegs

_FORMS = (("420", 1), ("420", 5), ("444", 4))


@functools.cache
def _file(form: int) -> bytes:
    sampling, mcus = _FORMS[form]
    return restart_jpegs.jpeg(sampling, height=160, width=160, mcus=mcus, table=True, quality=10)


@functools.cache
def _whole(form: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    file = _file(form)
    return decode_region(file, sniff(file)).pixels.copy()


def seeds() -> Iterator[bytes]:
    """A form, a box in 255ths, then changes of three bytes: places of intervals set to those of others, or beside."""
    for form in range(len(_FORMS)):
        yield bytes((form, 0, 100, 60, 60))
        yield bytes((form, 100, 100, 60, 60, 3, 4, 0))
        yield bytes((form, 100, 100, 60, 60, 2, 3, 3, 5, 9, 1))


def check(data: bytes) -> None:
    if len(data) < 5 or data[0] >= len(_FORMS):
        return
    file, whole = _forged(_file(data[0]), data[5:]), _whole(data[0])
    found = sniff(file)
    top, left = data[1] * (found.height - 1) // 255, data[2] * (found.width - 1) // 255
    height, width = 1 + data[3] * (found.height - top - 1) // 255, 1 + data[4] * (found.width - left - 1) // 255
    validate(file, "image")
    region = decode_region(file, found, box=(top, left, height, width), options=DecodeOptions(trusted=True))
    shown = region.pixels[top - region.top :, left - region.left :][:height, :width]
    if not np.array_equal(shown, whole[top : top + height, left : left + width]):
        raise Disagreement(f"box {(top, left, height, width)} shows another place of {found}")


def _forged(file: bytes, changes: bytes) -> bytes:
    """The file with another table: (kind, i, j) sets the begin of i to that of j, of all from i on, or beside."""
    found = sniff(file)
    layout, places = found.intervals, bounds(file, found)
    if layout is None or places is None:
        return file
    places = places.copy()
    count = len(places) - 1
    for kind, i, j in zip(changes[::3], changes[1::3], changes[2::3], strict=False):
        i, j = i % count, j % count
        if kind % 3 == 0:
            places[i] = places[j]
        elif kind % 3 == 1:
            places[i:-1] = places[np.minimum(np.arange(i, count) + j, count)]
        else:
            places[i] += j - count // 2
    lengths = np.diff(places)
    size = file[layout.table_at + HEAD_BYTES - 1]
    if lengths.min() < 0 or lengths.max() >= 1 << 8 * size:
        return file
    at = layout.table_at + HEAD_BYTES
    return file[:at] + lengths.astype(f">u{size}").tobytes() + file[at + size * count :]
