"""webdataset parts: the same tar whoever writes it, names that no reader takes apart, and what webdataset reads."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import packer
from packer import codecs
from packer.formats.webdataset import MemberNames
from packer.layouts import tar
from packer.schema import Field, Schema
from tests.support import built_packs, source_trees
from tests.support.conversions import packed
from tests.support.foreign_environments import said_by

FIELDS = codecs.described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("photo", "image", "encoded", slot="image"),
            Field("class_id", "number", "number", "uint8", (), slot="label"),
            Field("Depth", "depth", "raw", "float32", (2, 2)),
            Field("depth", "number", "number", "int64", ()),
            Field("caption", "text", "text"),
            Field("more", "json", "json"),
            Field("grasps", "points", "raw", "float32", (None, 4, 2)),
            Field("files", "json", "json", hidden=True),
        )
    )
)
DEPTH = np.asarray([[np.nan, -1], [0.1, -0.0]], "<f4")
RECORD = {
    "key": b"a.b/c d.seg.jpg",
    "photo": b"\xff\xd8\xff\xe0",
    "class_id": b"\xff",
    "Depth": DEPTH.tobytes(),
    "depth": (-3).to_bytes(8, "little", signed=True),
    "caption": "h\u00e9".encode(),
    "more": b'{"a":1}',
    "grasps": bytes(64),
    "files": b"{}",
}


def members(path: Path) -> dict[str, bytes]:
    """As the standard library reads them."""
    with tarfile.open(path, "r:") as archive:
        return {each.name: (archive.extractfile(each) or io.BytesIO()).read() for each in archive.getmembers()}


def test_each_field_is_a_member_that_its_suffix_describes(tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "part", [RECORD], "webdataset", FIELDS)
    found = members(tmp_path / "part/data.tar")
    assert list(found) == [
        "a_b/c_d_seg.caption.txt",
        "a_b/c_d_seg.cls",
        "a_b/c_d_seg.depth.npy",
        "a_b/c_d_seg.depth_.cls",
        "a_b/c_d_seg.grasps.bin",
        "a_b/c_d_seg.jpg",
        "a_b/c_d_seg.more.json",
    ]
    assert (found["a_b/c_d_seg.cls"], found["a_b/c_d_seg.depth_.cls"]) == (b"255", b"-3")
    assert np.load(io.BytesIO(found["a_b/c_d_seg.depth.npy"])).tobytes() == DEPTH.tobytes()
    assert built_packs.read_records(tmp_path / "part", 1, "webdataset", FIELDS) == [RECORD]


def test_a_header_is_what_the_standard_library_makes_of_it() -> None:
    header = tar.header(b"a/b.jpg", 12345)
    info = tarfile.TarInfo("a/b.jpg")
    info.size, info.mode, info.uname, info.gname = 12345, 0o644, "root", "root"
    assert len(header) == 512 and tar.is_header(header)
    assert header == info.tobuf(tarfile.USTAR_FORMAT)


def test_the_index_is_that_of_dali_and_names_the_data(tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "part", [RECORD, {**RECORD, "key": b"second"}], "webdataset", FIELDS)
    data = (tmp_path / "part/data.tar").read_bytes()
    first, *lines = (tmp_path / "part/data.idx").read_text().splitlines()
    assert first == "v1.2 2" and len(lines) == 2
    found = members(tmp_path / "part/data.tar")
    for line in lines:
        words = line.split(" ")
        for suffix, offset, size, name in zip(*(iter(words),) * 4, strict=True):
            assert int(offset) % 512 == 0 and name.endswith(f".{suffix}")
            assert data[int(offset) : int(offset) + int(size)] == found[name]
    shard = json.loads((tmp_path / "part/shardindex.json").read_text())
    assert shard["shardlist"] == [{"url": "data.tar", "nsamples": 2, "filesize": len(data)}]
    assert (shard["__kind__"], shard["wids_version"]) == ("wids-shard-index-v1", 1)


@pytest.mark.parametrize(
    "keys, names",
    [
        ((b"cat/a.b.jpg", b"cat/a.b.png"), (b"cat/a_b", b"cat/a_b-1")),
        ((b"../__x__.jpg", b"", b"."), (b"x/x__", b"sample-1", b"x")),
        ((b"/etc/passwd", b"a//b", "\u00e9 \u4e2d".encode(), b"A", b"a"), (b"etc/passwd", b"a/b", b"x", b"A", b"a")),
        ((b"a-1", b"a", b"a"), (b"a-1", b"a", b"a-2")),
        ((b"x", b"y", b"z", b"a-4", b"z"), (b"x", b"y", b"z", b"a-4", b"z-4")),
    ],
)
def test_names_are_taken_apart_by_no_reader(keys: tuple[bytes, ...], names: tuple[bytes, ...]) -> None:
    taker = MemberNames(most_suffix=10)
    assert tuple(taker.take(key, row) for row, key in enumerate(keys)) == names


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    taker = MemberNames(most_suffix=20)
    found = [taker.take(b"deep/" * 40 + b"%d.jpg" % row, row) for row in range(50)]
    assert len(set(found)) == 50 and max(map(len, found)) <= 80


READ = """
import hashlib, json, sys, webdataset
found = []
for sample in webdataset.WebDataset(sys.argv[1], shardshuffle=False):
    fields = {name: value for name, value in sample.items() if not name.startswith("__")}
    found.append([sample["__key__"], int(sample["cls"]), hashlib.sha256(sample["jpg"]).hexdigest(), sorted(fields)])
print(json.dumps(found))
"""


@pytest.mark.foreign
def test_webdataset_reads_the_parts(tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to="webdataset", order="shuffled")
    dataset = packer.open(tmp_path / "a.pack")
    wanted = []
    for at in range(12):
        digest = hashlib.sha256((photos / dataset.key(at)).read_bytes()).hexdigest()
        wanted.append([dataset.key(at).removesuffix(".jpg"), dataset[at]["label"], digest, ["cls", "jpg"]])
    assert json.loads(said_by("webdataset", READ, tmp_path / "a.pack/part-00000/data.tar")) == wanted


WIDS = """
import hashlib, json, random, sys, wids
dataset = wids.ShardListDataset(sys.argv[1], cache_dir=sys.argv[2], transformations=[])
order = list(range(len(dataset)))
random.Random(0).shuffle(order)
found = {}
for row in order:
    sample = dataset[row]
    image, label = (sample[suffix].read() for suffix in (".jpg", ".cls"))
    found[row] = [sample["__key__"], int(label), hashlib.sha256(image).hexdigest()]
print(json.dumps([found[row] for row in sorted(found)]))
"""


@pytest.mark.foreign
def test_wids_reads_the_parts_by_their_index_at_random(tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to="webdataset", order="shuffled", part_bytes=0)
    part, dataset = tmp_path / "a.pack/part-00000", packer.open(tmp_path / "a.pack")
    wanted = []
    for at in range(12):
        digest = hashlib.sha256((photos / dataset.key(at)).read_bytes()).hexdigest()
        wanted.append([dataset.key(at).removesuffix(".jpg"), int(dataset[at]["label"]), digest])
    (tmp_path / "cache").mkdir()
    assert json.loads(said_by("wids", WIDS, part / "shardindex.json", tmp_path / "cache")) == wanted
    assert sorted(path.name for path in part.iterdir()) == ["data.idx", "data.tar", "shardindex.json", "values.npz"]
