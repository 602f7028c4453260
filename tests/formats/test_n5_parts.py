"""N5 parts: which fields are arrays, what stands in the blocks, and what becomes of images of several sizes."""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.codecs import described
from packer.conversion.convert import convert
from packer.errors import BadInputs, CorruptPack, InvalidRequest
from packer.formats import n5
from packer.inspect.extraction import extract
from packer.schema import Field, Schema
from tests.support import built_packs, source_trees
from tests.support.conversions import packed
from tests.support.descriptors import open_files
from tests.support.foreign_environments import said_by
from tests.support.foreign_files import n5_dataset

ROWS = 150  # three blocks of images
SCHEMA = described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("photo", "image", "raw", "uint8", (6, 7, 3), slot="image"),
            Field("image", "mask", "raw", "uint8", (2, 3)),
            Field("depth", "depth", "raw", "float32", (4, 5), invalid=-1.0),
            Field("half", "depth", "raw:float16", "float16", (2, 2)),
            Field("distance", "depth", "raw", "uint16", (3, 2)),
            Field("label", "number", "number", "int64", (), slot="label"),
            Field("valid", "number", "number", "bool", ()),
            Field("pose", "number", "number", "float64", (2, 3)),
            Field("grasps", "points", "raw", "float32", (None, 4, 2)),
            Field("nothing", "number", "number", "uint8", (0,)),
            Field("secret", "number", "number", "uint32", (), hidden=True),
        )
    )
)


def record(row: int) -> dict[str, bytes]:
    """Values of every field, negative numbers and NaN among them."""
    drawn = np.random.default_rng(row)
    depth = drawn.uniform(-2, 2, (4, 5)).astype("<f4")
    depth[0, 0] = np.nan
    return {
        "key": b"%d" % row,
        "photo": drawn.integers(0, 256, (6, 7, 3), np.uint8).tobytes(),
        "image": bytes([row % 256] * 6),
        "depth": depth.tobytes(),
        "half": np.full((2, 2), row / 4, "<f2").tobytes(),
        "distance": np.arange(row, row + 6, dtype="<u2").tobytes(),
        "label": np.int64(row - 3).astype("<i8").tobytes(),
        "valid": bytes([row % 2]),
        "pose": drawn.normal(size=(2, 3)).astype("<f8").tobytes(),
        "grasps": bytes(32 * (row % 3)),
        "nothing": b"",
        "secret": np.uint32(row).astype("<u4").tobytes(),
    }


@pytest.fixture
def part(tmp_path: Path) -> Path:
    built_packs.write_records(tmp_path / "part", list(map(record, range(ROWS))), "n5", SCHEMA)
    return tmp_path / "part"


def test_all_values_are_read_as_they_were_written(part: Path) -> None:
    reader = n5.Reader(part, SCHEMA, samples=ROWS)
    for row in (0, 1, 63, 64, 127, 128, ROWS - 1):
        assert {name: bytes(value) for name, value in reader.read(row, SCHEMA.names).items()} == record(row)
    for name in SCHEMA.names:
        assert [bytes(value) for value in reader.values([9, 140, 9], name)] == [
            record(row)[name] for row in (9, 140, 9)
        ]
    reader.close()


def test_arrays_of_one_shape_are_in_the_container_and_the_rest_is_beside(part: Path) -> None:
    folders = [path for path in part.glob("data.n5/*") if path.is_dir()]
    found = {path.name: json.loads((path / "attributes.json").read_text()) for path in folders}
    assert {name: (said["dataType"], said["dimensions"], said["blockSize"]) for name, said in found.items()} == {
        "image": ("uint8", [3, 7, 6, ROWS], [3, 7, 6, 8322]),
        "image_": ("uint8", [3, 2, ROWS], [3, 2, 174762]),
        "depth": ("float32", [5, 4, ROWS], [5, 4, 13107]),
        "distance": ("uint16", [2, 3, ROWS], [2, 3, 87381]),
        "label": ("int64", [ROWS], [131072]),
        "valid": ("uint8", [ROWS], [1048576]),
        "pose": ("float64", [3, 2, ROWS], [3, 2, 21845]),
    }
    assert json.loads((part / "data.n5/attributes.json").read_text()) == {"n5": "4.0.0"}
    beside = set(np.load(part / "values.npz").files)
    assert {"half", "grasps.data", "nothing", "secret", "label", "valid", "pose", "key.data"} <= beside
    assert not {"photo", "image", "depth", "distance", "foreign/places"} & beside


@pytest.mark.parametrize(
    "shape, dtype, rows",
    [
        ((375, 500, 3), "uint8", 64),
        ((1024, 1024, 3), "uint8", 21),
        ((4000, 6000, 3), "uint8", 1),
        ((128, 128), "uint8", 64),
        ((64, 64), "uint8", 256),
        ((), "int64", 131072),
    ],
)
def test_a_block_has_64_rows_unless_they_are_large_or_small(shape: tuple[int, ...], dtype: str, rows: int) -> None:
    schema = described(Schema((Field("a", "number", "number", dtype, shape),)))
    assert n5.blocked(schema)["a"].rows == rows


def test_a_block_is_as_the_specification_draws_it(tmp_path: Path) -> None:
    schema = described(Schema((Field("a", "image", "raw", "uint8", (6, 7, 3)),)))
    built_packs.write_records(tmp_path / "part", [{"a": bytes([row]) * 126} for row in range(2)], "n5", schema)
    block = (tmp_path / "part/data.n5/a/0/0/0/0").read_bytes()
    assert block.hex().startswith("00000004" + "00000003" + "00000007" + "00000006" + "00000002" + "00")
    assert block[20:] == bytes(126) + b"\1" * 126


def test_the_blocks_are_those_that_a_hand_written_data_set_has(part: Path, tmp_path: Path) -> None:
    depth = np.frombuffer(b"".join(record(row)["depth"] for row in range(ROWS)), "<f4").reshape(ROWS, 4, 5)
    n5_dataset(tmp_path / "depth", depth.astype("f4"), block=(13107, 4, 5), compression="raw")
    assert (part / "data.n5/depth/0/0/0").read_bytes() == (tmp_path / "depth/0/0/0").read_bytes()


def test_a_block_at_the_edge_is_short(tmp_path: Path) -> None:
    schema = described(Schema((Field("a", "image", "raw", "uint8", (128, 128, 3)),)))
    values = [bytes([row]) * (128 * 128 * 3) for row in range(70)]
    built_packs.write_records(tmp_path / "part", [{"a": value} for value in values], "n5", schema)
    blocks = [tmp_path / f"part/data.n5/a/0/0/0/{number}" for number in range(2)]
    assert [struct.unpack_from(">I", block.read_bytes(), 16) for block in blocks] == [(64,), (6,)]
    assert [block.stat().st_size - 20 for block in blocks] == [64 * len(values[0]), 6 * len(values[0])]
    assert [found["a"] for found in built_packs.read_records(tmp_path / "part", 70, "n5", schema)] == values


def test_a_value_that_is_not_of_the_shape_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with n5.Writer(tmp_path / "part", SCHEMA, payload_bytes=0) as writer:
        writer.write(record(0))
        with pytest.raises(InvalidRequest, match="row 1, field 'depth': .*80 bytes.* 81"):
            writer.write({**record(1), "depth": bytes(81)})
        writer.write(record(1))
        writer.finish()
    assert built_packs.read_records(tmp_path / "part", 2, "n5", SCHEMA) == [record(0), record(1)]


def test_a_value_larger_than_a_block_is_refused(tmp_path: Path) -> None:
    schema = described(Schema((Field("a", "number", "number", "float64", (1 << 28,)),)))
    with pytest.raises(InvalidRequest, match="2,147,483,648 bytes.*block"):
        n5.Writer(tmp_path / "part", schema, payload_bytes=0)


# ---- damage


def test_blocks_stay_mapped_up_to_a_number_and_hold_no_descriptor(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a value of one that made room is still held."""
    monkeypatch.setattr(n5, "_MOST_MAPPED", 2)
    before = open_files()
    reader = n5.Reader(part, SCHEMA, samples=ROWS)
    reader.read(0, SCHEMA.names)
    held = reader.read(3, ("photo",))["photo"]
    for _ in range(3):
        for name in ("depth", "distance", "image", "photo"):
            assert bytes(reader.read(5, (name,))[name]) == record(5)[name]
    assert bytes(held) == record(3)["photo"]
    assert len(open_files()) - len(before) == 2  # values.npz, which Python maps, and the folder
    maps = Path("/proc/self/maps").read_text()
    assert sum(str(part / "data.n5") in line for line in maps.splitlines()) == 3
    reader.close()
    del held
    assert open_files() == before
    assert str(part) not in Path("/proc/self/maps").read_text()


DAMAGE: Mapping[str, tuple[Any, str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "file is cut or changed"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "file is cut or changed"),
    "gone": (lambda path: path.unlink(), "missing"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "expected a file, found a folder|cannot be opened"),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "expected a file, found a folder or a device"),
    "a link": (lambda path: path.symlink_to(path.rename(path.with_name("x")).name), "cannot be opened"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_block_that_is_not_what_it_should_be_is_named(damage: str, part: Path) -> None:
    change, reason = DAMAGE[damage]
    change(part / "data.n5/depth/0/0/0")
    reader = n5.Reader(part, SCHEMA, samples=ROWS)
    with pytest.raises(CorruptPack, match=rf"part/data.n5/depth/0/0/0: .*({reason})"):
        reader.read(3, ("depth",))
    assert bytes(reader.read(3, ("photo",))["photo"]) == record(3)["photo"]
    reader.close()


# ---- conversions


def test_images_of_one_size_become_their_pixels(tmp_path: Path) -> None:
    root = source_trees.photos(tmp_path / "photos", 70)
    notes: list[str] = []
    convert(root, tmp_path / "a.pack", to="n5", on_note=notes.append)
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert [dataset.key(row) for row in range(70)] == sorted(dataset.key(row) for row in range(70))
    assert dataset.schema["image"].shape == (24, 32, 3)
    for row in range(70):
        expected = packer.images.decode((root / dataset.key(row)).read_bytes(), "image")
        assert np.array_equal(dataset[row]["image"], expected)
    assert "N5 readers will find: image, label; in values.npz alone, which it does not read: key" in notes
    found = extract(tmp_path / "a.pack", tmp_path / "back")
    assert (found.exact, found.reencoded) == (0, 70)


def test_images_of_several_sizes_are_refused_with_what_would_be_lost(tmp_path: Path) -> None:
    root = source_trees.photos(tmp_path / "photos")
    (root / "class1/0004.jpg").write_bytes(source_trees.image(4, suffix=".jpg", height=30, width=32))
    with pytest.raises(InvalidRequest, match="--resize"):
        convert(root, tmp_path / "a.pack", to="n5")
    assert not (tmp_path / "a.pack").exists()
    convert(root, tmp_path / "a.pack", to="n5", resize=(20, 16))
    assert packer.open(tmp_path / "a.pack").schema["image"].shape == (20, 16, 3)
    notes: list[str] = []
    convert(root, tmp_path / "b.pack", to="n5", codecs={"image": "encoded"}, on_note=notes.append)
    assert "N5 readers will find: label; in values.npz alone, which it does not read: key, image" in notes
    extract(tmp_path / "b.pack", tmp_path / "back")
    assert source_trees.tree(tmp_path / "back") == source_trees.tree(root)


def test_one_that_differs_among_those_that_were_not_looked_at_is_a_bad_sample(tmp_path: Path) -> None:
    root = source_trees.photos(tmp_path / "photos", 40)
    (root / "class1/0001.jpg").write_bytes(source_trees.image(4, suffix=".jpg", height=30, width=32))
    with pytest.raises(BadInputs) as caught:
        convert(root, tmp_path / "a.pack", to="n5")
    (reason,) = caught.value.reasons
    assert "class1/0001.jpg" in reason and "(30, 32, 3), expected (24, 32, 3)" in reason
    assert convert(root, tmp_path / "a.pack", to="n5", on_error="skip").samples == 39


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", [{}, {"resize": (32, 24)}], ids=["kept", "of the size that they have"])
def test_raw_images_of_any_size_become_images_of_one(tmp_path: Path, change: dict[str, Any]) -> None:
    """A pack of images of any size stores the size before the pixels, and a block has none."""
    root = source_trees.photos(tmp_path / "photos", 40)
    packed(root, tmp_path / "a.pack", codecs=(("image", "raw"),))
    convert(tmp_path / "a.pack", tmp_path / "b.pack", to="n5", **change)
    convert(root, tmp_path / "c.pack", to="n5", **change)
    assert built_packs.values(tmp_path / "b.pack") == built_packs.values(tmp_path / "c.pack")
    (root / "class1/0001.jpg").write_bytes(source_trees.image(4, suffix=".jpg", height=30, width=32))
    packed(root, tmp_path / "d.pack", codecs=(("image", "raw"),))
    if change:
        assert convert(tmp_path / "d.pack", tmp_path / "e.pack", to="n5", **change).samples == 40
        return
    with pytest.raises(BadInputs) as caught:
        convert(tmp_path / "d.pack", tmp_path / "e.pack", to="n5")
    (reason,) = caught.value.reasons
    assert "d.pack" in reason and "class1/0001.jpg" in reason and "(30, 32, 3), expected (24, 32, 3)" in reason


def test_a_resize_of_the_shorter_side_and_turned_images_have_the_shape_that_is_stored(tmp_path: Path) -> None:
    root = source_trees.photos(tmp_path / "photos")
    convert(root, tmp_path / "a.pack", to="n5", resize=12)
    assert packer.open(tmp_path / "a.pack").schema["image"].shape == (12, 16, 3)
    for path in root.rglob("*.jpg"):
        path.write_bytes(turned(path.read_bytes()))
    convert(root, tmp_path / "b.pack", to="n5", exif="rotate")
    assert packer.open(tmp_path / "b.pack").schema["image"].shape == (32, 24, 3)
    convert(root, tmp_path / "c.pack", to="n5")
    assert packer.open(tmp_path / "c.pack").schema["image"].shape == (24, 32, 3)


def turned(jpeg: bytes) -> bytes:
    """The JPEG with EXIF orientation 6."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def test_depth_keeps_its_dtype(tmp_path: Path) -> None:
    root = source_trees.jacquard(tmp_path / "in")
    packed(root, tmp_path / "a.pack", to="n5", slots=(("image", "rgb"),))
    container = tmp_path / "a.pack/part-00000/data.n5"
    said = {path.parent.name: json.loads(path.read_text())["dataType"] for path in container.glob("*/attributes.json")}
    assert said == {"image": "uint8", "depth": "float32", "depth_stereo": "float32", "mask": "uint8"}


# ---- tensorstore

READS = """
import json, pathlib, sys, numpy, tensorstore
root = pathlib.Path(sys.argv[1])
for path in sorted(root.glob("*/attributes.json")):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path.parent)}}
    array = tensorstore.open(spec).result().read().result()
    numpy.save(sys.argv[2] + "/" + path.parent.name + ".npy", array.transpose())
"""
WRITES = """
import pathlib, sys, numpy, tensorstore
images = numpy.load(sys.argv[1])
for name, array in {"images": images, "labels": numpy.arange(len(images))}.items():
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": sys.argv[2] + "/" + name},
        "metadata": {
            "dimensions": array.shape[::-1],
            "blockSize": (*array.shape[:0:-1], 4),
            "dataType": array.dtype.name,
            "compression": {"type": sys.argv[3]},
        },
        "create": True,
    }
    tensorstore.open(spec).result().write(array.transpose()).result()
"""


@pytest.mark.foreign
def test_tensorstore_reads_what_packer_writes(part: Path, tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    said_by("tensorstore", READS, part / "data.n5", tmp_path / "read")
    fields = n5.blocked(SCHEMA)
    assert {path.stem for path in (tmp_path / "read").iterdir()} == {field.name for field in fields.values()}
    for name, field in fields.items():
        found = np.load(tmp_path / f"read/{field.name}.npy")
        assert found.shape == (ROWS, *field.shape)
        expected = b"".join(record(row)[name] for row in range(ROWS))
        assert found.astype(field.dtype).tobytes() == expected, name


@pytest.mark.foreign
def test_tensorstore_reads_photos_block_by_block(tmp_path: Path) -> None:
    packed(source_trees.photos(tmp_path / "photos", 150, height=130, width=140), tmp_path / "a.pack", to="n5")
    (tmp_path / "read").mkdir()
    said_by("tensorstore", READS, tmp_path / "a.pack/part-00000/data.n5", tmp_path / "read")
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    images, labels = (np.load(tmp_path / f"read/{name}.npy") for name in ("image", "label"))
    assert len(list((tmp_path / "a.pack/part-00000/data.n5/image/0/0/0").iterdir())) == 3
    for row in range(150):
        assert np.array_equal(images[row], dataset[row]["image"])
        assert labels[row] == dataset[row]["label"]


@pytest.mark.foreign
@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz"])
def test_what_tensorstore_writes_is_packed_and_written_again(compression: str, tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (10, 12, 14, 3), np.uint8)
    np.save(tmp_path / "images.npy", images)
    (tmp_path / "theirs").mkdir()
    said_by("tensorstore", WRITES, tmp_path / "images.npy", tmp_path / "theirs", compression)
    convert(tmp_path / "theirs", tmp_path / "a.pack", to="n5")
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert len(dataset) == 10
    assert np.array_equal(np.stack([dataset[row]["image"] for row in range(10)]), images)
    assert [int(dataset[row]["label"]) for row in range(10)] == list(range(10))
