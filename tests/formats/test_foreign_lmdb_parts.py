"""Parts that are other tools' LMDBs: the bytes of their records, and what the bare library finds in them."""

import pickle
from pathlib import Path
from typing import Any

import lmdb
import pytest

from packer import formats
from packer.errors import StorageError
from packer.formats import _foreign_lmdb
from packer.layouts import datum, pickled
from tests.support import built_packs, source_trees
from tests.support import foreign_files as foreign
from tests.support.conversions import packed


def entries(path: Path, *, is_folder: bool) -> dict[bytes, bytes]:
    """As py-lmdb reads them, without a lock file."""
    with lmdb.open(str(path), subdir=is_folder, readonly=True, lock=False) as env, env.begin() as read:
        return dict(read.cursor())


def label(record: built_packs.Record) -> int:
    return int.from_bytes(record["label"], "little")


# ---- caffe-lmdb


def test_a_datum_and_a_pickle_are_the_golden_bytes() -> None:
    """Equal to protobuf's own output, a negative label and label 0 included."""
    value, at = datum.encoded(b"\xff\xd8jpeg", -3, size=(3, 480, 640))
    assert value.hex() == "080310e0031880052206ffd86a70656728fdffffffffffffffff013801"
    assert value[at:].startswith(b"\xff\xd8jpeg")
    assert datum.encoded(b"", 0, size=(3, 1, 1))[0].endswith(bytes.fromhex("28003801"))
    assert datum.encoded(b"x", 5, size=None)[0] == foreign.datum(b"x", 5)
    assert pickled.pair(b"\xff\xd8", 7)[0].hex() == "8003" + "42" + "02000000" + "ffd8" + "4a07000000" + "86" + "2e"


def test_a_caffe_part_holds_samples_alone(tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to="caffe-lmdb")
    part = tmp_path / "a.pack/part-00000"
    wanted = {
        b"%08d_%s" % (row, key.encode()): foreign.datum((photos / key).read_bytes(), int(key[5]), 3, 24, 32)
        for row, key in enumerate(sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg")))
    }
    assert entries(part, is_folder=True) == wanted
    assert sorted(path.name for path in part.iterdir()) == ["data.mdb", "values.npz"]


def test_long_keys_are_shortened_and_the_index_has_them_whole(tmp_path: Path) -> None:
    records = [built_packs.record(row, key="x" * 600 + str(row)) for row in range(12)]
    records.append(built_packs.record(12, key="\udcff\udcfe"))
    built_packs.write_part(tmp_path / "part", records, format="caffe-lmdb")
    found = sorted(entries(tmp_path / "part", is_folder=True))
    assert [len(key) for key in found] == [511] * 12 + [11]
    assert found[12] == b"00000012_\xff\xfe"
    assert len({key[-16:] for key in found[:12]}) == 12
    assert built_packs.read_records(tmp_path / "part", 13, "caffe-lmdb") == records


# ---- efficient-lmdb


@pytest.mark.parametrize("number", [0, -1, 1000, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 63) - 1, -(1 << 63)])
def test_pickles_are_what_pickle_reads(number: int) -> None:
    for data in (b"", b"\xff\xd8", bytes(70_000)):
        value, at = pickled.pair(data, number)
        assert pickle.loads(value) == (data, number) == pickled.loads(value)
        assert value[at : at + len(data)] == data
    if number >= 0:
        assert pickle.loads(pickled.pickled_count(number)) == number
    for count in (0, 1, 1500):
        assert pickle.loads(pickled.pickled_keys(count)) == [str(row).encode() for row in range(count)]


def test_an_efficient_part_is_what_xunges_reader_asks_for(tmp_path: Path) -> None:
    """That reader, typed anew: number of samples, list of keys, then pairs by key."""
    records = built_packs.records(1200)
    built_packs.write_part(tmp_path / "part", records, format="efficient-lmdb")
    found = entries(tmp_path / "part/data.lmdb", is_folder=False)
    assert pickle.loads(found[b"__len__"]) == 1200
    keys = pickle.loads(found[b"__keys__"])
    assert [pickle.loads(found[key]) for key in keys] == [(record["blob"], label(record)) for record in records]
    assert len(found) == 1202


# ---- basicsr-lmdb


def test_a_basicsr_part_has_bare_files_and_its_list(tmp_path: Path) -> None:
    root = source_trees.write(
        tmp_path / "in",
        {
            "low/a.b.png": source_trees.image(1, suffix=".png", height=5, width=7),
            "low/a_b.jpg": source_trees.image(2, suffix=".jpg", height=6, width=9),
            "top/c.png": source_trees.image(3, suffix=".png", height=5, width=7),
        },
    )
    packed(root, tmp_path / "a.pack", to="basicsr-lmdb")
    part = tmp_path / "a.pack/part-00000.lmdb"
    found = entries(part, is_folder=True)
    assert found == {
        b"low/a_b": (root / "low/a.b.png").read_bytes(),
        b"low/a_b~1": (root / "low/a_b.jpg").read_bytes(),
        b"top/c": (root / "top/c.png").read_bytes(),
    }
    lines = (part / "meta_info.txt").read_text().splitlines()
    assert lines == ["low/a_b.png (5,7,3) 1", "low/a_b~1.png (6,9,3) 1", "top/c.png (5,7,3) 1"]
    assert [line.split(".")[0].encode() for line in lines] == sorted(found)  # as BasicSR makes keys of them


def test_names_of_a_basicsr_part_are_keys_of_lmdb(tmp_path: Path) -> None:
    keys = ["x" * 700, "x" * 701, "", ".", "..", " ", "a\tb\n.jpg", "a.b", "a_b", "\udcff"]
    records = [built_packs.record(row, key=key, blob=b"\x89PNG") for row, key in enumerate(keys)]
    built_packs.write_part(tmp_path / "part.lmdb", records, format="basicsr-lmdb")
    found = entries(tmp_path / "part.lmdb", is_folder=True)
    assert len(found) == len(keys) and all(1 <= len(key) <= 511 for key in found)
    lines = (tmp_path / "part.lmdb/meta_info.txt").read_bytes().splitlines()
    assert [line.split(b".")[0] for line in lines] == sorted(found)
    assert all(line.endswith(b".png (0,0,0) 1") for line in lines)


# ---- all of them


@pytest.mark.parametrize("name", ["caffe-lmdb", "efficient-lmdb", "basicsr-lmdb"])
def test_a_file_that_is_not_what_was_written_is_no_part(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that does not give back what it took."""

    class Failing(_foreign_lmdb._WholeFile):
        def read(self, offset: int, size: int) -> bytes:
            return bytes(len(super().read(offset, size)))

    monkeypatch.setattr(_foreign_lmdb, "_WholeFile", Failing)
    writer: Any = formats.load(name).Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0)
    writer.write(built_packs.record(1))
    with pytest.raises(StorageError, match="disk.*failing"):
        writer.finish()
    assert not (tmp_path / "part/values.npz").exists()
