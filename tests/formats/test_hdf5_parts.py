"""HDF5 parts through the back door: h5py reads them as arrays, and the reader takes what h5py wrote, and no more."""

import fcntl
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from packer import codecs
from packer.errors import InvalidRequest
from packer.formats.hdf5 import Reader, Writer
from packer.schema import Field, Schema
from tests.support import built_packs
from tests.support.child_processes import child
from tests.support.hostile_hdf5 import HOSTILE, SCHEMA, by_hand, layout, linked


def test_raw_images_of_one_size_are_one_array_in_the_stored_dtype(tmp_path: Path) -> None:
    fields = (
        Field("image", "image", "raw", dtype="uint8", shape=(4, 5, 3)),
        Field("depth", "depth", "raw:float16", dtype="float32", shape=(4, 5)),
        Field("png", "image", "png", dtype="uint8", shape=(4, 5, 3)),
        Field("points", "points", "raw", dtype="float32", shape=(None, 2)),
    )
    record = {"image": bytes(range(60)), "depth": bytes(40), "png": b"abc", "points": bytes(24)}
    built_packs.write_records(tmp_path / "a.h5", [record] * 2, "hdf5", Schema(fields))
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["image"].shape, file["image"].dtype) == ((2, 4, 5, 3), np.uint8)
        assert file["image"][1].tobytes() == bytes(range(60))
        assert (file["depth"].shape, file["depth"].dtype) == ((2, 4, 5), np.float16)
        assert isinstance(file["png"], h5py.Group)
        assert file["points/offsets"][()].tolist() == [0, 24, 48]


def test_the_file_has_no_filter_no_time_and_the_oldest_format(tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "a.h5", built_packs.records(3), "hdf5")
    assert (tmp_path / "a.h5").read_bytes()[:9] == b"\x89HDF\r\n\x1a\n\0"  # version 0 of the superblock
    with h5py.File(tmp_path / "a.h5") as file:
        for name in layout([]):
            options = file[name].id.get_create_plist()
            assert options.get_layout() == h5py.h5d.CONTIGUOUS
            assert options.get_nfilters() == 0
            assert h5py.h5o.get_info(file[name].id).mtime == 0


# ---- what the reader refuses, one file per rule


@pytest.mark.one_in(6)
@pytest.mark.parametrize("what", HOSTILE)
def test_anything_but_the_layout_is_refused(tmp_path: Path, what: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret bytes of this machine" * 10)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.zeros(3, "<i8")
    path = tmp_path / "a.h5"
    by_hand(path, built_packs.records(3))
    with h5py.File(path, "r+") as file:
        HOSTILE[what](file)
    outcome = child(lambda: len(Reader(path, SCHEMA, samples=3)))
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome
    assert str(path) in outcome.message
    assert "\n" not in outcome.message
    assert len(outcome.message) < 1000


def test_no_file_but_the_part_is_opened(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.zeros(3, "<i8")
    by_hand(tmp_path / "a.h5", built_packs.records(3))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        linked("label", h5py.ExternalLink("other.h5", "secret"))(file)
    os.remove(tmp_path / "other.h5")
    os.mkfifo(tmp_path / "other.h5")  # who opens it waits for ever
    outcome = child(lambda: len(Reader(tmp_path / "a.h5", SCHEMA, samples=3)), timeout_seconds=20)
    assert outcome.error == "CorruptPack", outcome


def test_a_part_that_another_program_has_locked_is_read(tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "a.h5", built_packs.records(3), "hdf5")
    with (tmp_path / "a.h5").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Reader(tmp_path / "a.h5", SCHEMA, samples=3).close()


@pytest.mark.parametrize("locking", [False, True])
def test_a_part_that_this_process_has_open_in_h5py_is_read(tmp_path: Path, locking: bool) -> None:
    built_packs.write_records(tmp_path / "a.h5", built_packs.records(3), "hdf5")
    with h5py.File(tmp_path / "a.h5", "r", locking=locking):
        Reader(tmp_path / "a.h5", SCHEMA, samples=3).close()


def test_more_field_names_than_an_attribute_holds_are_refused_at_once(tmp_path: Path) -> None:
    schema = codecs.described(Schema(tuple(Field(f"{'x' * 50}{number}", "text", "text") for number in range(1100))))
    with pytest.raises(InvalidRequest, match="1100 fields"):
        Writer(tmp_path / "a.h5", schema, payload_bytes=0)
    assert os.listdir(tmp_path) == []
