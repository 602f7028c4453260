"""Headers looked at once: whatever was seen before, what is told of a file is what its own bytes say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.errors import DamagedImage
from packer.images import Header, field_decoder, sniff
from packer.images.field_decoder import HeaderCache
from packer.system.parallel import ordered_map
from tests.support import image_files, restart_jpegs

KEPT = [image_files.jpeg(image_files.colors(seed, height=40 + seed, width=60)) for seed in range(4)]
PACKED = [restart_jpegs.packed(70 + 20 * seed, 200 + 40 * seed, seed=seed) for seed in range(4)]


def told(look: object, file: bytes) -> Header | str:
    """The header, or what is said of a file that has none."""
    try:
        found = look(file)  # type: ignore[operator]
    except DamagedImage as error:
        return str(error)
    assert isinstance(found, Header)
    return found


@settings(max_examples=5 * settings().max_examples)
@given(st.sampled_from([*KEPT, *PACKED]), st.data())
def test_a_file_that_differs_in_a_byte_is_looked_at_anew(file: bytes, data: st.DataObject) -> None:
    look = HeaderCache().of
    look(file)
    changed = bytearray(file)
    at = data.draw(st.integers(0, sniff(file).data_at - 1))
    changed[at] = data.draw(st.integers(0, 255))
    for other in (bytes(changed), file[:at], file[:at] + b"\0" + file[at:]):
        assert told(look, other) == told(sniff, other)


@pytest.mark.parametrize("files, times", [(KEPT[:1], 1), (PACKED[:1], 1), (KEPT + KEPT, 4), (PACKED + PACKED, 4)])
def test_what_begins_alike_is_looked_at_once(files: list[bytes], times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(field_decoder, "sniff", lambda buffer, *limit: seen.append(buffer) or sniff(buffer, *limit))
    look = HeaderCache().of
    for file in files * 3:
        look(file)
        look(file[: sniff(file).data_at] + b"other data")
    assert len(seen) == times


def test_tables_make_no_other_header_and_no_long_one() -> None:
    one, other = restart_jpegs.packed(96, 256, seed=1), restart_jpegs.packed(96, 256, seed=2)
    assert one[:200] != other[:200]
    look = HeaderCache().of
    assert look(one) is look(other)
    large = [restart_jpegs.packed(720, 1280, seed=seed) for seed in range(2)]
    assert sniff(large[0]).data_at > field_decoder._MOST_BYTES
    look = HeaderCache().of
    assert look(large[0]) is look(large[1])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_decoder, "_MOST_HEADERS", 8)
    kept = HeaderCache()
    at = KEPT[0].index(b"\xff\xc0") + 5
    for height in range(1, 100):
        file = KEPT[0][:at] + height.to_bytes(2, "big") + KEPT[0][at + 2 :]
        for comment in range(4):
            longer = file[:2] + b"\xff\xfe" + (2 + comment).to_bytes(2, "big") + bytes(comment) + file[2:]
            assert kept.of(longer) == sniff(longer)
    assert 1 <= len(kept.stats()) <= 2 and max(kept.stats()) <= 8
    long = KEPT[0][:2] + b"\xff\xfe" + (3000).to_bytes(2, "big") + bytes(2998) + KEPT[0][2:]
    before = kept.stats()
    assert kept.of(long) == sniff(long) and kept.stats() == before


def test_threads_get_what_each_asked_for() -> None:
    look = HeaderCache().of
    files = [*KEPT, *PACKED] * 100
    assert list(ordered_map(look, files, threads=4, window=8)) == list(map(sniff, files))
