"""tfrecord parts: the bytes of frames, Examples and the index, and what vahidk's tfrecord reads in them."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import packer
from packer import codecs
from packer.formats import tfrecord
from packer.layouts import example
from packer.layouts.tfrecord_frames import frame
from packer.schema import Field, Schema
from tests.support import built_packs, source_trees
from tests.support import foreign_files as foreign
from tests.support.conversions import opened, packed
from tests.support.foreign_environments import said_by

GOLDENS = Path(__file__).resolve().parents[1] / "golden"

GOLDEN = bytes.fromhex(  # of specs: written by hand, equal to what TensorFlow's protobuf gives
    "40000000000000002817f4950a3e0a170a0d696d6167652f656e636f64656412060a040a02ffd80a230a11696d6167652f636c6173732f6c61"
    "62656c120e1a0c0a0affffffffffffffffff01edfb7d8c"
)


def test_an_example_and_its_frame_are_the_golden_bytes() -> None:
    """But for the order of the features, which the map leaves free: packer writes them by name."""
    features = {"image/encoded": foreign.bytes_list(b"\xff\xd8"), "image/class/label": foreign.int64_list([-1])}
    assert foreign.tfrecord_frame(foreign.example(features)) == GOLDEN
    data, places = example.encoded({"image/encoded": b"\xff\xd8", "image/class/label": np.asarray([-1])})
    head, tail = frame(data)
    assert head + data + tail == foreign.tfrecord_frame(foreign.example(dict(sorted(features.items()))))
    assert len(head + data + tail) == len(GOLDEN)
    assert data[places["image/encoded"] :][:2] == b"\xff\xd8"


def test_an_example_is_parsed_as_it_was_written() -> None:
    floats = np.asarray([0.5, np.nan, -1, np.inf], np.float32)
    numbers = np.asarray([0, -1, 127, 128, (1 << 63) - 1, -(1 << 63)], np.int64)
    data, places = example.encoded({"b": b"\0" * 300, "": b"", "f": floats, "n": numbers, "no": numbers[:0]})
    found = example.parse(data).features
    many = np.tile(numbers, 3000)  # more than are encoded at once
    assert example.encoded({"n": many})[0] == foreign.example({"n": foreign.int64_list(many.tolist())})
    assert found["b"] == [b"\0" * 300] and found[""] == [b""]
    assert np.asarray(found["f"]).tobytes() == floats.tobytes()
    assert np.array_equal(np.asarray(found["n"]), numbers) and len(found["no"]) == 0
    assert data[places["f"] : places["f"] + 16] == floats.tobytes()


def test_a_part_is_what_the_records_say(tmp_path: Path) -> None:
    built_packs.write_part(tmp_path / "part", built_packs.records(9), format="tfrecord")
    examples = []
    for record in built_packs.records(9):
        label = int.from_bytes(record["label"], "little")
        examples.append(
            foreign.example(
                {
                    "image/class/label": foreign.int64_list([label]),
                    "image/encoded": foreign.bytes_list(record["blob"]),
                    "key": foreign.bytes_list(record["key"]),
                }
            )
        )
    assert (tmp_path / "part/data.tfrecord").read_bytes() == foreign.tfrecord(examples)
    assert (tmp_path / "part/data.tfrecord.idx").read_text() == foreign.tfrecord_index(examples)
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == [
        "data.tfrecord",
        "data.tfrecord.idx",
        "values.npz",
    ]


FIELDS = codecs.described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("depth", "depth", "raw", "float32", (2, 2)),
            Field("half", "number", "number", "float16", (2,)),
            Field("double", "number", "number", "float64", ()),
            Field("big", "number", "number", "uint64", (2,)),
            Field("flag", "number", "number", "bool", ()),
            Field("pixels", "image", "raw", "uint8", (1, 1, 3), slot="image"),
        )
    )
)


def test_numbers_are_lists_where_these_hold_them_exactly(tmp_path: Path) -> None:
    """float32 with NaN and -1 bit by bit; float16 and float64 would change, pixels would grow: they are bytes."""
    depth = np.asarray([[np.nan, -1], [0.1, -0.0]], "<f4")
    depth.view("<u4")[0, 0] = 0x7F800001  # a signalling NaN
    record = {
        "key": b"a",
        "depth": depth.tobytes(),
        "half": np.asarray([0.5, np.nan], "<f2").tobytes(),
        "double": np.asarray(0.1, "<f8").tobytes(),
        "big": np.asarray([0, (1 << 64) - 1], "<u8").tobytes(),
        "flag": b"\1",
        "pixels": b"\1\2\3",
    }
    built_packs.write_records(tmp_path / "part", [record], "tfrecord", FIELDS)
    data = (tmp_path / "part/data.tfrecord").read_bytes()
    found = example.parse(data[12:-4]).features
    assert np.asarray(found["depth"]).tobytes() == record["depth"]
    assert (found["half"], found["double"], found["image/encoded"]) == (
        [record["half"]],
        [record["double"]],
        [b"\1\2\3"],
    )
    assert np.asarray(found["big"]).tolist() == [0, -1] and np.asarray(found["flag"]).tolist() == [1]
    assert built_packs.read_records(tmp_path / "part", 1, "tfrecord", FIELDS) == [record]


READ = """
import json, sys, hashlib
from tfrecord.reader import tfrecord_loader
kinds = {"image/encoded": "byte", "image/class/label": "int", "key": "byte"}
found = [
    [bytes(record["key"]).decode(), int(record["image/class/label"][0]),
     hashlib.sha256(bytes(record["image/encoded"])).hexdigest()]
    for record in tfrecord_loader(sys.argv[1], sys.argv[2] or None, kinds, shard=(0, 1) if sys.argv[2] else None)
]
print(json.dumps(found))
"""

INDEX = """
import json, sys
from tfrecord.tools.tfrecord2idx import create_index
create_index(sys.argv[1], sys.argv[2])
print(json.dumps(open(sys.argv[2]).read()))
"""


@pytest.mark.foreign
def test_the_tfrecord_package_reads_the_parts(tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to="tfrecord", order="shuffled")
    part, dataset = tmp_path / "a.pack/part-00000", packer.open(tmp_path / "a.pack")
    wanted = [
        [dataset.key(at), dataset[at]["label"], hashlib.sha256((photos / dataset.key(at)).read_bytes()).hexdigest()]
        for at in range(12)
    ]
    data, index = part / "data.tfrecord", part / "data.tfrecord.idx"
    assert json.loads(said_by("tfrecord", READ, data, "")) == wanted
    assert json.loads(said_by("tfrecord", READ, data, index)) == wanted
    assert json.loads(said_by("tfrecord", INDEX, data, tmp_path / "own.idx")) == index.read_text()


TENSORFLOW = """
import hashlib, json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
features = {
    "image/encoded": tf.io.FixedLenFeature((), tf.string),
    "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    "key": tf.io.FixedLenFeature((), tf.string),
}
samples = tf.data.TFRecordDataset(sys.argv[1:]).map(lambda record: tf.io.parse_single_example(record, features))
print(json.dumps([
    [bytes(sample["key"]).decode(), int(sample["image/class/label"]),
     hashlib.sha256(bytes(sample["image/encoded"])).hexdigest()]
    for sample in samples.as_numpy_iterator()
]))
"""


@pytest.mark.foreign
def test_tensorflow_reads_the_parts_and_compares_their_checksums(tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to="tfrecord", part_bytes=8000)
    files, dataset = sorted((tmp_path / "a.pack").glob("part-*/data.tfrecord")), packer.open(tmp_path / "a.pack")
    assert len(files) > 1
    wanted = [
        [dataset.key(at), dataset[at]["label"], hashlib.sha256((photos / dataset.key(at)).read_bytes()).hexdigest()]
        for at in range(12)
    ]
    assert json.loads(said_by("tensorflow", TENSORFLOW, *files)) == wanted
    built_packs.flip(files[0], files[0].stat().st_size // 2)
    with pytest.raises(AssertionError, match="corrupted record"):
        said_by("tensorflow", TENSORFLOW, *files)


WRITES = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
def feature(**values):
    return tf.train.Feature(**values)
with tf.io.TFRecordWriter(sys.argv[1], tf.io.TFRecordOptions(compression_type=sys.argv[2])) as writer:
    for number, path in enumerate(sys.argv[3:]):
        example = tf.train.Example(features=tf.train.Features(feature={
            "image/encoded": feature(bytes_list=tf.train.BytesList(value=[open(path, "rb").read()])),
            "image/class/label": feature(int64_list=tf.train.Int64List(value=[number - 2])),
            "box": feature(float_list=tf.train.FloatList(value=[0.5, number / 3])),
        }))
        writer.write(example.SerializeToString())
"""


@pytest.mark.foreign
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_writes_is_packed_as_it_is(compression: str, tmp_path: Path) -> None:
    photos = sorted(source_trees.photos(tmp_path / "photos").rglob("*.jpg"))
    (tmp_path / "theirs").mkdir()
    said_by("tensorflow", WRITES, tmp_path / "theirs/a.tfrecord", compression, *photos)
    source = opened(tmp_path / "theirs", "tfrecord")
    assert len(source) == 12
    for number, path in enumerate(photos):
        sample = source[number]
        assert (sample["image"], int(sample["label"])) == (path.read_bytes(), number - 2)
        assert np.array_equal(sample["box"], np.float32([0.5, number / 3]))


def test_the_line_for_dali_needs_the_one_import_that_it_names(tmp_path: Path) -> None:
    made = packer.convert(source_trees.photos(tmp_path / "in"), tmp_path / "a.pack", to="tfrecord")
    (note,) = (note for note in made.notes if "DALI" in note)
    assert "(from nvidia.dali import tfrecord)" in note
    names = SimpleNamespace(string="s", int64="i", float32="f", FixedLenFeature=lambda *words: words)
    features = eval(note.partition("features=")[2], {"tfrecord": names})
    assert features == {"key": ((), "s", ""), "image/encoded": ((), "s", ""), "image/class/label": ([1], "i", 0)}


READ_LISTS = """
import json, sys
from tfrecord.reader import tfrecord_loader
kinds = {"kp": "float", "ids": "int"}
print(json.dumps([
    [record["kp"].tobytes().hex(), record["ids"].tolist()] for record in tfrecord_loader(sys.argv[1], None, kinds)
]))
"""


@pytest.mark.foreign
def test_the_tfrecord_package_reads_lists_of_any_length(tmp_path: Path) -> None:
    records = [list_record(f"k{count}", count) for count in (0, 1, 5, 100)]
    built_packs.write_records(tmp_path / "part", records, "tfrecord", LISTS)
    wanted = [[record["kp"].hex(), np.frombuffer(record["ids"], "<i8").tolist()] for record in records]
    assert json.loads(said_by("tfrecord", READ_LISTS, tmp_path / "part/data.tfrecord")) == wanted


LISTS = codecs.described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("kp", "number", "raw:float32", "float32", (None,)),
            Field("ids", "number", "raw:int64", "int64", (None,)),
            Field("small", "number", "raw:int32", "int32", (None,)),
            Field("rows", "number", "raw:float32", "float32", (None, 2)),
        )
    )
)


def list_record(key: str, count: int) -> dict[str, bytes]:
    random = np.random.default_rng(count)
    return {
        "key": key.encode(),
        "kp": random.integers(0, 256, 4 * count, np.uint8).tobytes(),  # any bits, also of NaN
        "ids": random.integers(-(1 << 62), 1 << 62, count).astype("<i8").tobytes(),
        "small": random.integers(-9, 9, count).astype("<i4").tobytes(),
        "rows": random.random((count, 2), np.float32).tobytes(),
    }


def test_lists_of_any_length_are_what_they_become_when_they_are_read_and_others_are_told(tmp_path: Path) -> None:
    records = [list_record(f"k{count}", count) for count in (0, 1, 5, 100)]
    built_packs.write_records(tmp_path / "part", records, "tfrecord", LISTS)
    data, lines = (tmp_path / "part/data.tfrecord").read_bytes(), (tmp_path / "part/data.tfrecord.idx").read_text()
    for record, line in zip(records, lines.splitlines(), strict=True):
        at, size = map(int, line.split())
        features = {
            "ids": foreign.int64_list(np.frombuffer(record["ids"], "<i8").tolist()),
            "key": foreign.bytes_list(record["key"]),
            "kp": foreign.delimited(2, foreign.delimited(1, record["kp"])),
            "rows": foreign.bytes_list(record["rows"]),
            "small": foreign.bytes_list(record["small"]),
        }
        assert data[at : at + size] == foreign.tfrecord_frame(foreign.example(features))
    assert built_packs.read_records(tmp_path / "part", len(records), "tfrecord", LISTS) == records
    (note,) = (note for note in tfrecord.Writer.notes(LISTS) if "FloatList" in note)
    assert note.startswith("small, rows: bytes")


def test_parts_whose_lists_were_bytes_are_read_as_ever() -> None:
    """Written before lists were features of their own type; the fields and the index are those of today."""
    pack = GOLDENS / "tfrecord-lists-as-bytes/pack"
    data = (pack / "part-00000/data.tfrecord").read_bytes()
    at, size = map(int, (pack / "part-00000/data.tfrecord.idx").read_text().splitlines()[2].split())
    found = example.parse(data[at + 12 : at + size - 4]).features
    ids, kp = [2, -1, 1 << 40], [-2.0, -1.5, -1.0, -0.5]
    assert found["ids"] == [np.asarray(ids, "<i8").tobytes()] and found["kp"] == [np.asarray(kp, "<f4").tobytes()]
    assert packer.verify(pack, level="full").ok
    with packer.open(pack) as dataset:
        assert (dataset[2]["ids"].tolist(), dataset[2]["kp"].tolist()) == (ids, kp)
        assert len(dataset[0]["kp"]) == 0


def test_lists_come_back_from_a_tfrecord_file_with_their_types(tmp_path: Path) -> None:
    lists = [foreign.float_list([0.5] * count) for count in range(4)]
    numbers = [foreign.int64_list([count, -1] * count) for count in range(4)]
    records = [
        foreign.example({"ids": ids, "kp": kp, "label": foreign.int64_list([3])})
        for ids, kp in zip(numbers, lists, strict=True)
    ]
    root = source_trees.write(tmp_path / "in", {"a.tfrecord": foreign.tfrecord(records)})
    made = packer.convert(root, tmp_path / "a.pack", to="tfrecord", order="stored", fields=("ids", "kp"))
    (dali,) = (note for note in made.notes if "DALI" in note)
    assert "'ids': tfrecord.VarLenFeature(tfrecord.int64, 0)" in dali
    assert "'kp': tfrecord.VarLenFeature(tfrecord.float32, 0.0)" in dali
    data = (tmp_path / "a.pack/part-00000/data.tfrecord").read_bytes()
    keys = [foreign.bytes_list(b"%08d" % row) for row in range(4)]
    theirs = [foreign.example({"ids": numbers[row], "key": keys[row], "kp": lists[row]}) for row in range(4)]
    assert data == foreign.tfrecord(theirs)
