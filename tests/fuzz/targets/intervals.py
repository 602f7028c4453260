"""Interval tables of JPEGs: what is cut with a table is what is cut by looking for the markers."""

from collections.abc import Iterator

from packer.errors import PackerError
from packer.images import lossless_jpeg_crop, sniff, validate
from packer.images.file_types._header_record import Header
from packer.images.restart_interval_table import bounds
from packer.system.thread_scratch import ThreadScratch
from tests.fuzz import words
from tests.fuzz.target import Disagreement
from tests.support import restart_jpegs

TOKENS = words.RESTARTS
_MOST_PX = 1 << 20
_scratch = ThreadScratch()


def seeds() -> Iterator[bytes]:
    yield restart_jpegs.jpeg("420", height=160, width=160, mcus=5, table=True, quality=10)
    yield restart_jpegs.jpeg("420", height=160, width=160, mcus=5, table=False, quality=10)
    yield restart_jpegs.jpeg("444", height=136, width=136, mcus=17, table=True, quality=10)


def check(data: bytes) -> None:
    found = sniff(data)
    if found.intervals is None or found.height * found.width > _MOST_PX:
        return
    sound = _is_sound(data)
    bounds(data, found)
    for box in _boxes(found):
        kept = lossless_jpeg_crop.window(found, box, 8)
        if kept is None:
            continue
        file = lossless_jpeg_crop.cut(data, found, kept, _scratch)
        if not (sound and found.intervals.table_at):
            continue
        cut = None if file is None else bytes(file)
        looked = found._replace(scan=found.scan._replace(intervals=found.intervals._replace(table_at=0)))  # type: ignore[union-attr]
        expected = lossless_jpeg_crop.cut(data, looked, kept, _scratch)
        if cut != (None if expected is None else bytes(expected)):
            raise Disagreement(f"{box} of a validated file is cut elsewhere by its table")


def _is_sound(data: bytes) -> bool:
    try:
        validate(data, "image")
    except PackerError:
        return False
    return True


def _boxes(found: Header) -> Iterator[tuple[int, int, int, int]]:
    height, width = max(1, found.height // 3), max(1, found.width // 3)
    for top in (0, height, found.height - height):
        for left in (0, found.width - width):
            yield top, left, height, width
