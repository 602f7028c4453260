"""What hdf5 and pth share: spools, the mapped rows, and that data sets over them give what lmdb gives."""

import hashlib
import itertools
import os
import pickle
import random
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import packer
from packer import codecs, formats
from packer.datasets.pack_dataset import BMPDataset, HDF5Dataset, LMDBDataset, PthDataset
from packer.errors import CorruptPack, CorruptRecord, InvalidRequest, StorageError
from packer.formats._columns import ArraySpan, MappedRecords, arrays, check_end, end_record, mapping
from packer.pack.verification import problems
from packer.schema import Field, Schema
from tests.support import built_packs, source_trees
from tests.support.child_processes import child
from tests.support.conversions import digest, packed
from tests.support.descriptors import open_files
from tests.support.part_damage import check_flips, cuts, flips, small_pack
from tests.support.sample_digests import digest_of

SETS = {"lmdb": LMDBDataset, "hdf5": HDF5Dataset, "pth": PthDataset, "bmp": BMPDataset}
BLOB = random.Random(0).randbytes(1 << 20)


@pytest.fixture(params=["hdf5", "pth"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    """Each format of columns."""
    return formats.load(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One set in every format, with jpeg, raw of a fixed size and of float16, png, text, json and number fields."""
    root = tmp_path_factory.mktemp("sets")
    source_trees.cornell(root / "in")
    options: dict[str, Any] = {"resize": "32x24", "part_bytes": 60_000}
    options["codecs"] = (("rgb", "jpeg:95"), ("depth", "raw:float16"))
    for name in SETS:
        packed(root / "in", root / f"{name}.pack", to=name, **options)
        packed(root / "in", root / f"{name}-kept.pack", to=name)
    yield root


@pytest.mark.one_in(2)
@pytest.mark.parametrize("end", [".pack", "-kept.pack"])
def test_every_format_gives_the_same_samples(folder: Path, end: str) -> None:
    found = set()
    for name, made in SETS.items():
        dataset = made(folder / f"{name}{end}")
        assert isinstance(packer.open(folder / f"{name}{end}"), made)
        assert len(dataset) == 4
        found.add(digest_of(dataset))
        found.add(digest_of(pickle.loads(pickle.dumps(dataset))))  # noqa: S301
        every = made(folder / f"{name}{end}", dataset.sample_decoder().pack.schema.names, output="numpy")
        assert every[0]["files"]["rgb"] == "01/pcd0100r.png"
    assert len(found) == 1


@pytest.mark.full
def test_every_format_gives_the_same_batches_in_workers(folder: Path) -> None:
    found = set()
    ways = [*itertools.product(SETS.items(), ["fork"]), (("hdf5", HDF5Dataset), "spawn")]
    for (name, made), method in ways:
        dataset = made(folder / f"{name}.pack")
        dataset[0]
        loader = DataLoader(dataset, batch_size=3, num_workers=1, multiprocessing_context=method)
        found.add(digest_of(loader))
    assert len(found) == 1


@pytest.mark.parametrize("name", ["hdf5", "pth", "bmp"])
def test_a_conversion_gives_the_same_bytes_again_and_verifies(folder: Path, tmp_path: Path, name: str) -> None:
    packed(folder / "in", tmp_path / "again.pack", to=name, threads=1)
    assert digest(tmp_path / "again.pack") == digest(folder / f"{name}-kept.pack")
    assert list(problems(tmp_path / "again.pack", level="full")) == []


def test_a_data_set_refuses_a_pack_of_another_format(folder: Path) -> None:
    for made, name in ((HDF5Dataset, "pth"), (PthDataset, "hdf5")):
        with pytest.raises(InvalidRequest, match=f"format is '{name}', {made.__name__} reads"):
            made(folder / f"{name}.pack")


@pytest.mark.parametrize("name", ["hdf5", "pth"])
def test_a_flipped_value_is_named(tmp_path: Path, name: str) -> None:
    built_packs.make_pack(tmp_path / "pack", 10, format=name, parts=1)
    (part,) = (tmp_path / "pack").glob("part-*")
    built_packs.flip(part, part.read_bytes().index(b"sample-00007") + 3)
    with pytest.raises(CorruptRecord, match=r"part-00000.*sample 7, .*'key'"):
        built_packs.values(tmp_path / "pack")


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


def test_a_writer_that_is_killed_leaves_nothing_beside_the_part(module: ModuleType, tmp_path: Path) -> None:
    def write_and_die() -> None:
        writer = module.Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0)
        for number in range(5):
            writer.write(built_packs.record(number, blob=BLOB))
        os.kill(os.getpid(), 9)

    assert child(write_and_die).signal == 9
    assert os.listdir(tmp_path) == ["part"]


def test_memory_does_not_grow_with_the_part(module: ModuleType, tmp_path: Path) -> None:
    """Anonymous memory: what is mapped of files is the kernel's to take back."""

    def anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

    def run() -> int:
        built_packs.write_part(tmp_path / "warm", built_packs.records(2), format=module.__name__.rpartition(".")[2])
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


@pytest.mark.one_in(8)
@pytest.mark.parametrize("file_bytes", [100_000, 1 << 20, 6 << 20, 20 << 20])
def test_a_full_disk_is_an_error_with_exit_code_4(module: ModuleType, tmp_path: Path, file_bytes: int) -> None:
    path = tmp_path / "part"

    def run() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        with module.Writer(path, built_packs.SCHEMA, payload_bytes=0) as writer:
            for number in range(30):
                writer.write(built_packs.record(number, blob=BLOB))
            writer.finish()

    outcome = child(run)
    assert (outcome.error, outcome.exit_code) == ("StorageError", 4), outcome
    assert str(path) in outcome.message
    assert "free space" in outcome.message
    assert "\n" not in outcome.message
    assert child(lambda: len(module.Reader(path, built_packs.SCHEMA, samples=30))).error == "CorruptPack"


def test_a_failed_write_is_made_up_for_when_there_is_space_again(module: ModuleType, tmp_path: Path) -> None:
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
        reader = module.Reader(tmp_path / "part", built_packs.SCHEMA, samples=9)
        same = [bytes(reader.read(row, ("blob",))["blob"]) for row in range(9)] == [BLOB] * 9
        return same and failed == 1

    assert child(run).value is True


@pytest.mark.one_in(12)
@pytest.mark.parametrize("file_bytes", [0, 100, 1000, 2000, 4096, 6000])
def test_a_full_disk_at_the_end_is_an_error_and_the_writer_goes_on_later(
    module: ModuleType, tmp_path: Path, file_bytes: int
) -> None:
    path = tmp_path / "part"

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


@pytest.mark.parametrize("rights", ["no descriptor", "no permission"])
def test_what_the_machine_lacks_is_not_called_damage(module: ModuleType, tmp_path: Path, rights: str) -> None:
    with module.Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0) as writer:
        writer.write(built_packs.record(0))
        writer.finish()

    def run() -> None:
        os.chdir(tmp_path)
        if rights == "no descriptor":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        else:
            os.chmod("part", 0)
            if os.getuid() == 0:
                os.seteuid(65534)
        module.Reader(Path("part"), built_packs.SCHEMA, samples=1)

    outcome = child(run)
    assert (outcome.error, outcome.exit_code) == ("StorageError", 4), outcome


# ---- damage


@pytest.mark.one_in(2)
def test_a_part_is_refused_at_every_cut(module: ModuleType, tmp_path: Path) -> None:
    name = module.__name__.rpartition(".")[2]
    part = small_pack(tmp_path / "pack", name)
    for size, outcome in cuts(part, format=name, samples=40):
        assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), (size, outcome)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [50, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_flipped_byte_is_refused_or_without_effect(module: ModuleType, tmp_path: Path, number: int) -> None:
    small_pack(tmp_path / "pack", module.__name__.rpartition(".")[2])
    check_flips(flips(tmp_path / "pack", number, seed=number), number)


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
        with pytest.raises(InvalidRequest, match=f"codec '{codec}': expected one of uint8"):
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
        pytest.raises(CorruptPack, match="field 'x' is outside the file"),
        mapping(tmp_path / "part", file.fileno(), readahead=True) as mapped,
    ):
        MappedRecords(tmp_path / "part", mapped, schema=schema, places=places)
    assert mapped.closed


def test_what_was_read_lives_on_when_the_reader_is_closed(module: ModuleType, tmp_path: Path) -> None:
    built_packs.write_part(tmp_path / "part", built_packs.records(9), format=module.__name__.rpartition(".")[2])
    before = open_files()
    reader = module.Reader(tmp_path / "part", built_packs.SCHEMA, samples=9, readahead=False)
    record = reader.read(8, built_packs.SCHEMA.names)
    assert all(value.readonly for value in record.values())
    reader.close()
    assert hashlib.sha256(record["blob"]).digest() == hashlib.sha256(built_packs.record(8)["blob"]).digest()
    del record
    assert open_files() == before


def test_a_schema_without_fields_is_a_part_too(module: ModuleType, tmp_path: Path) -> None:
    with module.Writer(tmp_path / "part", Schema(()), payload_bytes=0) as writer:
        writer.write({})
        writer.finish()
    reader = module.Reader(tmp_path / "part", Schema(()), samples=1)
    assert dict(reader.read(0, ())) == {}
    reader.close()
