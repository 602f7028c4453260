"""recordio parts: byte for byte what MXNet writes, labels that float32 holds, and images with the magic in them."""

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from packer import codecs
from packer.errors import CorruptPack, InvalidRequest
from packer.formats import recordio
from packer.layouts.recordio_frames import frames, image_header, magic_places, unframed, unpacked
from packer.schema import Field, Schema
from tests.support import built_packs
from tests.support import foreign_files as foreign
from tests.support.foreign_environments import said_by

KEY = struct.pack("<I", 0xCED7230A)
LABELS = codecs.described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("image", "image", "encoded", slot="image"),
            Field("corners", "number", "number", "float32", (2, 2), slot="label"),
        )
    )
)


def framed(data: bytes) -> bytes:
    return b"".join(frames(data, magic_places(data)))


def test_frames_are_the_golden_bytes_and_hold_any_record() -> None:
    assert framed(b"abcd" + KEY + b"efgh").hex() == "0a23d7ce04000020616263640a23d7ce0400006065666768"
    record = framed(image_header(3.0, 7) + bytes.fromhex("ffd86a7067"))
    assert record.hex() == (
        "0a23d7ce1d000000" + "00000000" + "00004040" + "0700000000000000" + "0000000000000000" + "ffd86a7067" + "000000"
    )
    rng = random.Random(0)
    pieces = [KEY, KEY[:3], b"\0", b"ab", b"abcd", b""]
    for _ in range(3000):
        data = b"".join(rng.choices(pieces, k=rng.randrange(8)))
        assert framed(data) == foreign.recordio_frame(data)
        assert unframed(framed(data)) == data
        assert len(framed(data)) % 4 == 0 and all(data[at : at + 4] == KEY for at in magic_places(data))


def image(row: int) -> bytes:
    """Images that hold the magic, at a multiple of 4 of the record or not, and an empty one."""
    return (b"", b"x" * row, KEY, b"a" + KEY, b"abcd" + KEY * 3 + b"e", b"z" * 8 + KEY)[row % 6]


def test_a_part_is_what_im2rec_writes(tmp_path: Path) -> None:
    records = [built_packs.record(row, blob=image(row)) for row in range(24)]
    built_packs.write_part(tmp_path / "part", records, format="recordio")
    wanted = [foreign.recordio_image(image(row), float(row % 2), row) for row in range(24)]
    assert (tmp_path / "part/data.rec").read_bytes() == foreign.recordio(wanted)
    assert (tmp_path / "part/data.idx").read_text() == foreign.recordio_index(wanted, range(24))
    lines = [f"{row}\t{row % 2}.000000\tsample-{row:05d}\n" for row in range(24)]
    assert (tmp_path / "part/data.lst").read_text() == "".join(lines)
    assert built_packs.read_records(tmp_path / "part", 24, "recordio") == records


def test_a_image_in_pieces_that_do_not_join_is_refused(tmp_path: Path) -> None:
    built_packs.write_part(tmp_path / "part", [built_packs.record(0, blob=b"abcd" + KEY + b"e")], format="recordio")
    path = tmp_path / "part/data.rec"
    path.write_bytes(path.read_bytes().replace(KEY, b"none"))
    with pytest.raises(CorruptPack, match=r"data\.rec: row 0: .*start"):
        built_packs.read_records(tmp_path / "part", 1, "recordio")


def test_numbers_of_one_shape_are_the_labels_of_a_record(tmp_path: Path) -> None:
    corners = np.asarray([[0.5, np.nan], [-1, 3e9]], "<f4")
    record = {"key": b"a\tb", "image": b"\xff\xd8", "corners": corners.tobytes()}
    built_packs.write_records(tmp_path / "part", [record], "recordio", LABELS)
    labels, found = unpacked(unframed((tmp_path / "part/data.rec").read_bytes()))
    assert labels.tobytes() == corners.tobytes() and found == b"\xff\xd8"
    assert (tmp_path / "part/data.lst").read_text() == "0\t0.5\tnan\t-1.000000\t3000000000.000000\t00000000\n"


def test_a_record_that_is_too_large_has_no_frames() -> None:
    with pytest.raises(ValueError, match="at most 536870911"):
        frames(bytes(1 << 29), ())


def test_a_schema_without_a_image_is_refused(tmp_path: Path) -> None:
    schema = codecs.described(Schema((Field("key", "text", "text"),)))
    with pytest.raises(InvalidRequest, match="--export-as image=FIELD"):
        recordio.Writer(tmp_path / "part", schema, payload_bytes=0)


WRITE = """
import sys, json, mxnet as mx
records = json.loads(open(sys.argv[1]).read())
file = mx.recordio.MXIndexedRecordIO(sys.argv[2] + ".idx", sys.argv[2] + ".rec", "w")
for row, (label, image) in enumerate(records):
    file.write_idx(row, mx.recordio.pack(mx.recordio.IRHeader(0, label, row, 0), bytes.fromhex(image)))
file.close()
"""

READ = """
import sys, json, mxnet as mx
file = mx.recordio.MXIndexedRecordIO(sys.argv[1] + ".idx", sys.argv[1] + ".rec", "r")
found = []
for key in file.keys:
    header, image = mx.recordio.unpack(file.read_idx(key))
    found.append([float(header.label), image.hex()])
print(json.dumps(found))
"""


@pytest.mark.foreign
def test_mxnet_writes_the_same_bytes_and_reads_ours(tmp_path: Path) -> None:
    records = [built_packs.record(row, blob=image(row)) for row in range(24)]
    built_packs.write_part(tmp_path / "part", records, format="recordio")
    wanted = [[float(row % 2), image(row).hex()] for row in range(24)]
    (tmp_path / "records.json").write_text(json.dumps(wanted))
    said_by("mxnet", WRITE, tmp_path / "records.json", tmp_path / "theirs")
    for suffix in (".rec", ".idx"):
        assert (tmp_path / f"part/data{suffix}").read_bytes() == (tmp_path / f"theirs{suffix}").read_bytes()
    assert json.loads(said_by("mxnet", READ, tmp_path / "part/data")) == wanted
