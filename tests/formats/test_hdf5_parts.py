"""HDF5 parts through the back door: h5py reads them as arrays, and the reader takes what h5py wrote, and no more."""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from packer import codecs
from packer.errors import InvalidRequest
from packer.formats.hdf5 import Reader, Writer
from packer.schema import DTYPES, Field, Schema
from tests.support import built_packs
from tests.support.child_processes import child
from tests.support.hostile_hdf5 import HOSTILE, NAMES, SCHEMA, end, layout, linked


def write(path: Path, records: Sequence[built_packs.Record], schema: Schema = SCHEMA) -> None:
    """A complete part."""
    with Writer(path, schema, payload_bytes=0) as writer:
        for record in records:
            writer.write(record)
        writer.finish()


def by_hand(path: Path, records: Sequence[built_packs.Record], **options: Any) -> None:
    """A part written by h5py alone."""
    with h5py.File(path, "w", **options) as file:
        for name, array in layout(records).items():
            file.create_dataset(name, data=array)
        file.attrs["packer"] = end(len(records))


@pytest.mark.parametrize("count", [0, 1, 300])
def test_h5py_reads_every_array_under_its_documented_name(tmp_path: Path, count: int) -> None:
    write(tmp_path / "a.h5", built_packs.records(count))
    with h5py.File(tmp_path / "a.h5") as file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
        assert json.loads(file.attrs["packer"]) == {"fields": NAMES, "samples": count}
    expected = layout(built_packs.records(count))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("options", [{}, {"libver": "latest"}], ids=str)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_part_that_h5py_wrote_is_read(tmp_path: Path, count: int, options: dict[str, Any]) -> None:
    by_hand(tmp_path / "a.h5", built_packs.records(count), **options)
    reader = Reader(tmp_path / "a.h5", SCHEMA, samples=count)
    assert [{name: bytes(value) for name, value in reader.read(row, NAMES).items()} for row in range(count)] == (
        built_packs.records(count)
    )
    reader.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)], ids=str)
def test_every_dtype_and_fixed_shape_is_an_array_of_that_kind(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    schema = codecs.described(Schema((Field("x", "number", "number", dtype=dtype, shape=shape),)))
    values = np.arange(4 * int(np.prod(shape)), dtype=np.uint8).reshape(4, *shape).astype(dtype)
    little = values.astype(values.dtype.newbyteorder("<"))
    write(tmp_path / "a.h5", [{"x": value.tobytes()} for value in little], schema)
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["x"].dtype, file["x"].shape) == (np.dtype(dtype), (4, *shape))
        assert np.array_equal(file["x"][()], values)
    reader = Reader(tmp_path / "a.h5", schema, samples=4)
    assert [bytes(reader.read(row, ("x",))["x"]) for row in range(4)] == [value.tobytes() for value in little]
    reader.close()


def test_raw_images_of_one_size_are_one_array_in_the_stored_dtype(tmp_path: Path) -> None:
    fields = (
        Field("image", "image", "raw", dtype="uint8", shape=(4, 5, 3)),
        Field("depth", "depth", "raw:float16", dtype="float32", shape=(4, 5)),
        Field("png", "image", "png", dtype="uint8", shape=(4, 5, 3)),
        Field("points", "points", "raw", dtype="float32", shape=(None, 2)),
    )
    record = {"image": bytes(range(60)), "depth": bytes(40), "png": b"abc", "points": bytes(24)}
    write(tmp_path / "a.h5", [record] * 2, codecs.described(Schema(fields)))
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["image"].shape, file["image"].dtype) == ((2, 4, 5, 3), np.uint8)
        assert file["image"][1].tobytes() == bytes(range(60))
        assert (file["depth"].shape, file["depth"].dtype) == ((2, 4, 5), np.float16)
        assert isinstance(file["png"], h5py.Group)
        assert file["points/offsets"][()].tolist() == [0, 24, 48]


def test_a_value_of_another_size_than_the_schema_says_is_refused_whole(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.h5", SCHEMA, payload_bytes=0) as writer:
        writer.write(built_packs.record(0))
        with pytest.raises(InvalidRequest, match=r"row 1, field 'pair': .*4 bytes.* 3"):
            writer.write({**built_packs.record(1), "pair": b"abc"})
        writer.write(built_packs.record(1))
        writer.finish()
    reader = Reader(tmp_path / "a.h5", SCHEMA, samples=2)
    assert {name: bytes(value) for name, value in reader.read(1, NAMES).items()} == built_packs.record(1)
    reader.close()


def test_the_file_has_no_filter_no_time_and_the_oldest_format(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", built_packs.records(3))
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
    write(tmp_path / "a.h5", built_packs.records(3))
    with (tmp_path / "a.h5").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Reader(tmp_path / "a.h5", SCHEMA, samples=3).close()


@pytest.mark.parametrize("locking", [False, True])
def test_a_part_that_this_process_has_open_in_h5py_is_read(tmp_path: Path, locking: bool) -> None:
    write(tmp_path / "a.h5", built_packs.records(3))
    with h5py.File(tmp_path / "a.h5", "r", locking=locking):
        Reader(tmp_path / "a.h5", SCHEMA, samples=3).close()


def test_more_field_names_than_an_attribute_holds_are_refused_at_once(tmp_path: Path) -> None:
    schema = codecs.described(Schema(tuple(Field(f"{'x' * 50}{number}", "text", "text") for number in range(1100))))
    with pytest.raises(InvalidRequest, match="1100 fields"):
        Writer(tmp_path / "a.h5", schema, payload_bytes=0)
    assert os.listdir(tmp_path) == []
