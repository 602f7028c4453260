"""What hdf5 and pth share: arrays that h5py and torch read and write, spools, and the mapped rows."""

import json
import os
import random
import re
import resource
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer import codecs, formats
from packer.datasets.pack_dataset import HDF5Dataset, PthDataset
from packer.errors import CorruptPack, InvalidRequest, StorageError
from packer.formats._column_part import ArraySpan, MappedRecords, arrays, check_end, end_record, mapping
from packer.schema import DTYPES, Field, Schema
from tests.support import built_packs, hostile_hdf5, hostile_pth
from tests.support.child_processes import child
from tests.support.descriptors import open_files

BLOB = random.Random(0).randbytes(1 << 20)


@pytest.fixture(params=["hdf5", "pth"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def module(name: str) -> ModuleType:
    return formats.load(name)


# ---- the back door


def by_library(path: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """The end record, and every array by its name, as anybody reads them."""
    found: dict[str, Any] = {}
    if name == "pth":
        found = {key: tensor.numpy() for key, tensor in torch.load(path, weights_only=True, mmap=True).items()}
        return json.loads(found.pop("packer.json").tobytes()), found
    with h5py.File(path) as file:
        file.visititems(lambda key, item: found.update({key: item[()]}) if isinstance(item, h5py.Dataset) else None)
        return json.loads(file.attrs["packer"]), found


@pytest.mark.parametrize("count", [0, 1, 300])
def test_the_library_reads_every_array_under_its_documented_name(name: str, tmp_path: Path, count: int) -> None:
    records = built_packs.records(count)
    built_packs.write_records(tmp_path / "part", records, name)
    end, found = by_library(tmp_path / "part", name)
    assert end == {"fields": list(built_packs.SCHEMA.names), "samples": count}
    tensors = hostile_pth.layout(records).items()
    in_pth = {key: tensor.numpy() for key, tensor in tensors if key != "packer.json"}
    expected = in_pth if name == "pth" else hostile_hdf5.layout(records)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[key], array)


@pytest.mark.parametrize("count", [0, 1, 300])
@pytest.mark.parametrize("file", ["a.h5", "latest.h5", "a.pth", "é ü.pth"])
def test_a_part_that_the_library_wrote_is_read(tmp_path: Path, file: str, count: int) -> None:
    records = built_packs.records(count)
    if file.endswith(".pth"):
        torch.save(hostile_pth.layout(records), tmp_path / file)  # its folder in the archive has the file's name
    else:
        options = {"libver": "latest"} if file == "latest.h5" else {}
        hostile_hdf5.by_hand(tmp_path / file, records, **options)
    assert built_packs.read_records(tmp_path / file, count, "pth" if file.endswith(".pth") else "hdf5") == records


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)], ids=str)
def test_every_dtype_and_fixed_shape_is_an_array_of_that_kind(
    name: str, tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    schema = Schema((Field("x", "number", "number", dtype=dtype, shape=shape),))
    values = np.arange(4 * int(np.prod(shape)), dtype=np.uint8).reshape(4, *shape).astype(dtype)
    records = [{"x": value.tobytes()} for value in values.astype(values.dtype.newbyteorder("<"))]
    built_packs.write_records(tmp_path / "part", records, name, schema)
    found = by_library(tmp_path / "part", name)[1]["x"]
    assert (found.dtype, found.shape) == (np.dtype(dtype), (4, *shape))
    assert np.array_equal(found, values)
    assert built_packs.read_records(tmp_path / "part", 4, name, schema) == records


def test_a_value_of_another_size_than_the_schema_says_is_refused_whole(name: str, tmp_path: Path) -> None:
    with formats.load(name).Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0) as writer:
        writer.write(built_packs.record(0))
        with pytest.raises(InvalidRequest, match=r"row 1, field 'pair': .*4 bytes.* 3"):
            writer.write({**built_packs.record(1), "pair": b"abc"})
        writer.write(built_packs.record(1))
        writer.finish()
    assert built_packs.read_records(tmp_path / "part", 2, name) == built_packs.records(2)


def test_a_data_set_refuses_a_pack_of_another_format(tmp_path: Path) -> None:
    for made, name in ((HDF5Dataset, "pth"), (PthDataset, "hdf5")):
        built_packs.make_pack(tmp_path / f"{name}.pack", format=name)
        with pytest.raises(InvalidRequest, match=f"'{name}', {made.__name__} reads"):
            made(tmp_path / f"{name}.pack")


# ---- spools


def test_nothing_lies_beside_a_part_while_it_is_written_or_after(module: ModuleType, tmp_path: Path) -> None:
    before = open_files()
    with module.Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0) as writer:
        for number in range(5):
            writer.write(built_packs.record(number, blob=BLOB))
        assert os.listdir(tmp_path) == ["part"]
    assert os.listdir(tmp_path) == ["part"]
    assert open_files() == before
    assert (tmp_path / "part").stat().st_size == 0


def test_memory_does_not_grow_with_the_part(module: ModuleType, name: str, tmp_path: Path) -> None:
    """Anonymous memory: what is mapped of files is the kernel's to take back."""

    def anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

    def run() -> int:
        built_packs.write_records(tmp_path / "warm", built_packs.records(2), name)
        before = most = anonymous()
        with module.Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0) as writer:
            for number in range(60):
                writer.write(built_packs.record(number, blob=BLOB))
                most = max(most, anonymous())
            writer.finish()
        return max(most, anonymous()) - before

    outcome = child(run)
    assert outcome.kind == "value", outcome
    assert outcome.value < 16 << 20


def test_a_failed_write_is_made_up_for_when_there_is_space_again(module: ModuleType, name: str, tmp_path: Path) -> None:
    records = [built_packs.record(number, blob=BLOB) for number in range(9)]

    def run() -> bool:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = module.Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.RLIM_INFINITY))
        failed = 0
        for record in records:  # a record is taken even when the disk does not take it yet
            try:
                writer.write(record)
            except packer.errors.StorageError:
                failed += 1
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.finish()
        return built_packs.read_records(tmp_path / "part", 9, name) == records and failed == 1

    assert child(run).value is True


@pytest.mark.one_in(12)
@pytest.mark.parametrize("file_bytes", [0, 100, 1000, 2000, 4096, 6000])
@pytest.mark.parametrize("format", ["hdf5", "pth", "lmdb"])
def test_a_full_disk_at_the_end_is_an_error_and_the_writer_goes_on_later(
    format: str, tmp_path: Path, file_bytes: int
) -> None:
    module, path = formats.load(format), tmp_path / "part"

    def run() -> int | None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = module.Writer(path, built_packs.SCHEMA, payload_bytes=0)
        writer.write(built_packs.record(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
        try:
            writer.finish()
        except StorageError as error:
            assert re.search(r"part: cannot .*free space", str(error))
            assert "\n" not in str(error)
        else:  # it fits
            return None
        with pytest.raises(CorruptPack):
            module.Reader(path, built_packs.SCHEMA, samples=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.finish()
        return len(module.Reader(path, built_packs.SCHEMA, samples=1))

    outcome = child(run)
    part_bytes = path.stat().st_size
    assert (outcome.kind, outcome.value) == ("value", 1 if file_bytes < part_bytes else None), outcome


# ---- layout and rows


@given(
    codec=st.sampled_from(["number", "raw", "raw:float16", "png", "encoded", "json"]),
    shape=st.none() | st.lists(st.none() | st.integers(0, 4), max_size=3).map(tuple),
    dtype=st.none() | st.sampled_from(["uint8", "int64", "float32", "bool"]),
)
def test_a_field_has_one_size_only_where_the_schema_says_all_of_it(codec: str, shape: Any, dtype: Any) -> None:
    schema = codecs.described(Schema((Field("x", "number", codec, dtype=dtype, shape=shape),)))
    value = schema.stored_form("x").array
    known = shape is not None and None not in shape and (dtype is not None or ":" in codec)
    assert (value is not None) == (known and codec.partition(":")[0] in ("number", "raw"))
    if value is not None:
        assert value == ("float16" if ":" in codec else dtype, shape)
        (array,) = arrays(schema, "x", 5)
        assert array.dtype == np.dtype(value[0]).newbyteorder("<")
        assert array.size_bytes == 5 * array.dtype.itemsize * int(np.prod(shape))
    else:
        assert [array.name(".") for array in arrays(schema, "x", 5)] == ["x.data", "x.offsets"]


def test_an_array_of_what_is_no_number_is_refused() -> None:
    for codec in ("raw:foo", "number:O", "raw:S9", "raw:datetime64"):
        with pytest.raises(InvalidRequest, match=f"codec '{codec}': .*uint8"):
            codecs.stored_form(Field("x", "number", codec, shape=(2,)))


@given(found=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_an_end_record_of_any_other_bytes_is_refused(found: bytes) -> None:
    with pytest.raises(CorruptPack):
        check_end(Path("part"), found, schema=built_packs.SCHEMA, samples=3)
    check_end(Path("part"), end_record(built_packs.SCHEMA, 3), schema=built_packs.SCHEMA, samples=3)


@pytest.mark.parametrize(("offset", "size_bytes"), [(-8, 8), (0, 104), (96, 8), (1 << 62, 8), (200, 0)])
def test_an_array_outside_the_file_is_refused(tmp_path: Path, offset: int, size_bytes: int) -> None:
    (tmp_path / "part").write_bytes(bytes(100))
    schema = codecs.described(Schema((Field("x", "number", "number", dtype="uint8", shape=()),)))
    places = {arrays(schema, "x", size_bytes)[0]: ArraySpan(offset, size_bytes)}
    with (
        (tmp_path / "part").open("rb") as file,
        pytest.raises(CorruptPack, match="field 'x'.*outside"),
        mapping(tmp_path / "part", file.fileno(), readahead=True) as mapped,
    ):
        MappedRecords(tmp_path / "part", mapped, schema=schema, places=places)
    assert mapped.closed


def test_a_schema_without_fields_is_a_part_too(name: str, tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "part", [{}], name, Schema(()))
    assert built_packs.read_records(tmp_path / "part", 1, name, Schema(())) == [{}]
