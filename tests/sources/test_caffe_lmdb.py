"""Caffe LMDB: what is read of Datum records, and what is said of LMDBs that are damaged or another tool's."""

import os
import random
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

import packer
from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, InvalidRequest
from packer.layouts import lmdb_reader
from packer.layouts.datum import parse
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.records._random_access_files import OpenFile
from packer.sources.records.caffe_lmdb import Source
from tests.support.conversions import packed
from tests.support.foreign_files import datum, delimited, lmdb_environment, varint
from tests.support.source_trees import caffe_lmdb, encoded, image, tree, write

# of the layout's description, which equals protobuf's writer
GOLDEN = "080310e0031880052206ffd86a70656728fdffffffffffffffff013801"


NAMES = ("00000000_cat/a b.jpg", "00000002_cat/ünï.png", "00000004_dog/a b.jpg")


def opened(root: Path, values: list[bytes], *, is_folder: bool = True) -> Source:
    entries = {f"{at:08d}".encode(): value for at, value in enumerate(values)}
    return Source(lmdb_environment(root, entries, is_folder=is_folder))


def raw(pixels: np.ndarray, label: int | None = 0, *, is_encoded: bool | None = False) -> bytes:
    """RGB pixels, (H, W, 3), in planes of blue, green, red."""
    height, width = pixels.shape[:2]
    planes = np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1))
    return datum(planes.tobytes(), label, 3, height, width, encoded=is_encoded)


def colors(height: int = 5, width: int = 7) -> np.ndarray:
    """Pixels that are different in each channel and place."""
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


# ---- records


def test_the_golden_record_is_read_and_written() -> None:
    assert datum(b"\xff\xd8jpeg", -3, 3, 480, 640) == bytes.fromhex(GOLDEN)
    found = parse(bytes.fromhex(GOLDEN))
    assert (found.data, found.label, found.is_encoded) == (b"\xff\xd8jpeg", -3, True)
    assert (found.channels, found.height, found.width) == (3, 480, 640)
    assert datum(b"", 0).hex().endswith("28003801")


def test_encoded_images_keep_their_bytes_and_labels(tmp_path: Path) -> None:
    source = Source(caffe_lmdb(tmp_path / "in"))
    assert [source.key(row) for row in range(3)] == [
        "00000000_cat/a b.jpg",
        "00000002_cat/ünï.png",
        "00000004_dog/a b.jpg",
    ]
    assert [int(source[row]["label"]) for row in range(3)] == [-1, 0, 1]
    assert [source[row]["files"]["image"] for row in range(3)] == ["cat/a b.jpg", "cat/ünï.png", "dog/a b.jpg"]
    assert source.extras == ["mean.txt"]
    assert not source.decodes


def test_records_may_have_fields_in_any_order_and_lack_sizes_labels_and_the_flag(tmp_path: Path) -> None:
    value = varint(7 << 3) + varint(1) + varint(5 << 3) + varint(9) + delimited(4, image(1)) + delimited(12, b"more")
    assert opened(tmp_path / "order", [value])[0]["image"] == image(1)
    assert parse(value).label == 9
    source = opened(tmp_path / "bare", [datum(image(number), None) for number in range(2)])
    assert source.schema.names == ("key", "image", "files")
    assert source[1]["image"] == image(1)
    assert "no labels" in source.notes
    source = opened(tmp_path / "flag", [datum(image(1), 1, 3, 48, 64, encoded=None), datum(image(1), 1, encoded=None)])
    assert [source[row]["image"] for row in range(2)] == [image(1)] * 2


def test_a_label_that_one_record_lacks_makes_it_bad(tmp_path: Path) -> None:
    source = opened(tmp_path / "in", [datum(image(1), 0), datum(image(2), None)])
    with pytest.raises(BadInput, match=r"data.mdb: .*\(00000001\): .*label"):
        source[1]
    assert source[0]["label"] == 0


@pytest.mark.parametrize("is_encoded", [False, None])
def test_raw_pixels_are_planes_of_blue_green_and_red(tmp_path: Path, is_encoded: bool | None) -> None:
    source = opened(tmp_path / "in", [raw(colors(), 3, is_encoded=is_encoded)])
    assert source.decodes
    assert np.array_equal(source[0]["image"], colors())
    assert source[0]["files"] == {"image": "00000000.png"}
    gray = datum(bytes(range(35)), 1, 1, 5, 7, encoded=is_encoded)
    expected = np.repeat(np.arange(35, dtype=np.uint8).reshape(5, 7, 1), 3, axis=2)
    assert np.array_equal(opened(tmp_path / "gray", [gray])[0]["image"], expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datum(bytes(10), 1, 3, 2, 2, encoded=False), "raw pixels of 3 x 2 x 2, but 10 bytes"),
        (datum(bytes(8), 1, 2, 2, 2, encoded=False), "2 channels"),
        (datum(bytes(4), 1, encoded=False), "0 channels"),
        (datum(b"", 1, 3, 1 << 30, 1 << 30, encoded=False), "expected 1 or 3 channels"),
        (delimited(6, bytes(8)) + varint(5 << 3) + varint(1), "float_data"),
        (varint(6 << 3 | 5) + bytes(4), "float_data"),
        (b"\xff" * 20, "no sound message"),
        (delimited(1, b"x"), "not a Datum"),
    ],
)
def test_a_record_that_is_no_image_is_bad_and_named(tmp_path: Path, value: bytes, message: str) -> None:
    source = opened(tmp_path / "in", [*[datum(image(at), 1) for at in range(2)], value])
    with pytest.raises(BadInput, match=rf"data.mdb: .*\(00000002\): .*{message}"):
        source[2]


# ---- through a pack


def test_raw_pixels_come_out_of_a_pack_and_of_extract_and_equal_the_records(tmp_path: Path) -> None:
    red = np.zeros((6, 6, 3), np.uint8)
    red[:, :, 0] = 255
    values = [raw(colors(), 0), raw(red, 1), datum(encoded(".png", red[:, :, ::-1].copy()), 2)]
    root = lmdb_environment(
        tmp_path / "in", {f"{at:08d}_a/{at}.png".encode(): value for at, value in enumerate(values)}
    )
    packed(root, tmp_path / "a.pack", kind="caffe-lmdb")
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert np.array_equal(dataset[0]["image"], colors())
    assert np.array_equal(dataset[1]["image"], red)
    assert np.array_equal(dataset[2]["image"], red)
    assert packer.verify(tmp_path / "a.pack", source=root).problems == ()
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    out = tree(tmp_path / "out")
    assert sorted(out) == [b"a/0.png", b"a/1.png", b"a/2.png"]
    assert np.array_equal(
        cv2.imdecode(np.frombuffer(out[b"a/0.png"], np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1], colors()
    )


# ---- LMDBs


def test_a_folder_and_a_single_file_are_read_and_named_as_typed(tmp_path: Path) -> None:
    folder = caffe_lmdb(tmp_path / "in")
    single = opened(tmp_path / "train.lmdb", [datum(image(1), 1)], is_folder=False)
    assert single[0]["label"] == 1
    assert not [name for name in Source(tmp_path / "in").extras if "lock" in name]
    with pytest.raises(InvalidRequest, match="--from caffe-lmdb"):
        packer.open(folder)
    with pytest.raises(InvalidRequest, match="did you mean.*caffe-lmdb"):
        sources.load("caffe_lmdb")


@pytest.mark.parametrize("count", [1, 2, 300, 5000])
def test_every_entry_is_found_in_order_whatever_the_depth(tmp_path: Path, count: int) -> None:
    drawn = random.Random(count)
    sizes = (0, 1, 100, 2000, 5000, 70_000) if count <= 300 else (0, 40)
    lengths = (1, 4, 20, 511) if count <= 300 else (8, 90)
    entries = {drawn.randbytes(drawn.choice(lengths)): drawn.randbytes(drawn.choice(sizes)) for _ in range(count)}
    path = lmdb_environment(tmp_path / "a.lmdb", entries, is_folder=False)
    file = OpenFile(SourceRoot(tmp_path), path.name)
    found = [(entry.key, file.read(entry.offset, entry.size)) for entry in lmdb_reader.entries(file)]
    assert found == sorted(entries.items())


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({b"a": image(1)}, "expected basicsr-lmdb"),
        ({b"0": b"\x80\x03C\x01aq\0."}, "expected basicsr-lmdb"),
        ({b"0": b""}, "expected basicsr-lmdb"),
    ],
)
def test_an_lmdb_of_another_tool_is_named(tmp_path: Path, entries: dict[bytes, bytes], said: str) -> None:
    root = lmdb_environment(tmp_path / "in", entries)
    with pytest.raises(InvalidRequest, match=f"LMDB of Caffe.*{said}"):
        SourceSpec("caffe-lmdb").open(root)
    for place in (root, root / "data.mdb"):
        with pytest.raises(InvalidRequest, match="found 2 files|is a file"):
            SourceSpec().open(place)


def test_files_that_are_no_lmdb_are_named(tmp_path: Path) -> None:
    root = write(tmp_path / "none", {"data.mdb": bytes(9000)})
    with pytest.raises(InvalidRequest, match="data.mdb: .*magic"):
        Source(root)
    with pytest.raises(InvalidRequest, match="no LMDBs.*data.mdb"):
        Source(write(tmp_path / "text", {"a.txt": ""}))


def test_named_databases_and_several_values_are_refused(tmp_path: Path) -> None:
    import lmdb  # noqa: PLC0415  only here: the reader does without

    for name, options in (("named", {}), ("several", {"dupsort": True})):
        with lmdb.open(str(tmp_path / name), max_dbs=1) as env:
            database = env.open_db(b"inner", **options)
            with env.begin(write=True, db=database) as begun:
                begun.put(b"a", b"1")
        with pytest.raises(BadInput, match="named databases.*b'inner'"):
            Source(tmp_path / name)
    flagged = lmdb_environment(tmp_path / "main", {b"a": b"1"}) / "data.mdb"
    data = bytearray(flagged.read_bytes())
    for meta in (0, os.sysconf("SC_PAGE_SIZE")):
        data[meta + 92] |= 4  # MDB_DUPSORT, which py-lmdb does not set there, and LMDB itself does
    flagged.write_bytes(data)
    with pytest.raises(BadInput, match="flags 0x4.*dupsort"):
        Source(tmp_path / "main")


def test_a_page_number_that_no_file_can_have_is_damage(tmp_path: Path) -> None:
    path = caffe_lmdb(tmp_path / "in") / "data.mdb"
    data = bytearray(path.read_bytes())
    for meta in (0, 4096):
        data[meta + 128 : meta + 136] = struct.pack("<Q", (1 << 64) - 2)  # the root
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match="outside the file"):
        Source(path.parent)


def test_values_that_lie_over_each_other_are_refused(tmp_path: Path) -> None:
    """Else a small file could hold an endless set."""
    large = datum(image(1), 1) + delimited(12, bytes(200_000))
    entries = {b"%08d" % at: datum(image(1), 1) if at else large for at in range(9)}
    root = lmdb_environment(tmp_path / "in", entries)
    data = bytearray((root / "data.mdb").read_bytes())
    leaf = 4096 * struct.unpack_from("<Q", data, 4096 + 128)[0]  # of the later meta page
    nodes = [leaf + struct.unpack_from("<H", data, leaf + 16 + 2 * at)[0] for at in range(9)]
    for node in nodes:  # size, 4 bytes more, the key's 8, then the first page of the value
        data[node : node + 4] = data[nodes[0] : nodes[0] + 4]
        data[node + 16 : node + 24] = data[nodes[0] + 16 : nodes[0] + 24]
    (root / "data.mdb").write_bytes(bytes(data))
    with pytest.raises(BadInput, match="its records have"):
        Source(root)
