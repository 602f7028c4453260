"""The contract of every format: found by listing the folder, so that a new one is tested with no edit here."""

import codecs
import hashlib
import multiprocessing
import os
import random
import resource
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import formats
from packer.codecs import described
from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.files.digest import part_bytes, part_sha256
from packer.formats.base import Reader
from packer.pack import part_readers
from packer.schema import Field, Schema
from tests.support import built_packs, part_damage
from tests.support.child_processes import child
from tests.support.descriptors import open_files
from tests.support.other_users import enter_the_clone

SCHEMA = built_packs.SCHEMA
NOBODY = 65534


def samples(labels: range) -> st.SearchStrategy[list[dict[str, bytes]]]:
    """Records of SCHEMA, with labels that a format holds."""
    numbers = st.integers(labels.start, labels.stop - 1)
    one = {
        "key": st.binary(max_size=12),
        "blob": st.binary(max_size=40) | st.just(b"") | st.integers(4080, 4110).map(lambda size: b"\xa5" * size),
        "label": numbers.map(lambda number: number.to_bytes(8, "little", signed=True)),
        "pair": st.binary(min_size=4, max_size=4),
    }
    return st.lists(st.fixed_dictionaries(one), max_size=12)


@pytest.fixture(params=formats.names(), scope="module")
def module(request: pytest.FixtureRequest) -> ModuleType:
    return formats.load(request.param)


def name_of(module: ModuleType) -> str:
    """As the user types it."""
    return module.__name__.rpartition(".")[2].replace("_", "-")


@pytest.fixture
def path(module: ModuleType, tmp_path: Path) -> Path:
    return tmp_path / f"part-00000{module.SUFFIX}"


def write(module: ModuleType, path: Path, records: Sequence[built_packs.Record], *, payload_bytes: int = 0) -> None:
    built_packs.write_records(path, records, name_of(module), payload_bytes=payload_bytes)


def records_of(module: ModuleType, path: Path, count: int) -> list[dict[str, bytes]]:
    return built_packs.read_records(path, count, name_of(module))


def read(reader: Reader, row: int, names: Sequence[str] = SCHEMA.names) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in reader.read(row, names).items()}


def content(path: Path) -> str:
    """Digest of a part, which may be one file or a folder of them."""
    return f"{part_bytes(path)} {part_sha256(path)}"


@pytest.fixture
def opened(module: ModuleType, path: Path) -> Iterator[Reader]:
    write(module, path, built_packs.records(10))
    reader = module.Reader(path, SCHEMA, samples=10)
    yield reader
    reader.close()


# ---- what was written is read


@pytest.mark.one_in(12)
@given(data=st.data())
@settings(max_examples=25)
def test_every_record_is_read_as_it_was_written(module: ModuleType, data: st.DataObject) -> None:
    records = data.draw(samples(module.Writer.labels))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"part{module.SUFFIX}"
        write(module, path, records, payload_bytes=sum(len(value) for record in records for value in record.values()))
        assert records_of(module, path, len(records)) == records


def test_a_part_without_samples_is_a_part(module: ModuleType, path: Path) -> None:
    write(module, path, [])
    assert records_of(module, path, 0) == []


def test_values_may_all_be_empty(module: ModuleType, path: Path) -> None:
    schema = Schema((Field("key", "text", "text"), Field("blob", "bytes", "encoded", slot="image")))
    built_packs.write_records(path, [{"key": b"", "blob": b""}] * 3, name_of(module), schema)
    assert built_packs.read_records(path, 3, name_of(module), schema) == [{"key": b"", "blob": b""}] * 3


def test_any_rows_may_be_read_in_any_order_and_named_fields_alone(opened: Reader) -> None:
    assert len(opened) == 10
    rows = [9, 0, 5, 5, 1, 9, 0]
    assert [read(opened, row) for row in rows] == [built_packs.record(row) for row in rows]
    assert list(opened.read(3, ("pair", "blob"))) == ["pair", "blob"]
    assert dict(opened.read(3, ())) == {}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("count", [257, 2500])
def test_many_samples_keep_their_order(module: ModuleType, path: Path, count: int) -> None:
    write(module, path, built_packs.records(count))
    assert records_of(module, path, count) == built_packs.records(count)


@pytest.mark.one_in(11)
def test_more_than_was_announced_fits_with_the_same_bytes_each_time(module: ModuleType, path: Path) -> None:
    blobs = [random.Random(number).randbytes(9 << 20) for number in range(10)]  # 90 MiB, more than was reserved
    records = [built_packs.record(number, blob=blob) for number, blob in enumerate(blobs)]
    again = path.with_name(f"again{module.SUFFIX}")
    for target in (path, again):
        write(module, target, records, payload_bytes=1)
    assert content(path) == content(again)
    assert records_of(module, path, len(records)) == records


@pytest.mark.one_in(11)
def test_one_value_may_be_larger_than_all_that_is_reserved(module: ModuleType, path: Path) -> None:
    blob = random.Random(0).randbytes(70 << 20)
    records = [built_packs.record(0), built_packs.record(1, blob=blob), built_packs.record(2)]
    write(module, path, records)
    assert records_of(module, path, 3) == records


@pytest.mark.one_in(7)
@pytest.mark.parametrize("payload_bytes", [0, 300_000, 1 << 28])
def test_the_same_records_give_the_same_bytes(module: ModuleType, tmp_path: Path, payload_bytes: int) -> None:
    found = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        write(module, folder / f"part{module.SUFFIX}", built_packs.records(300), payload_bytes=payload_bytes)
        found.add(content(folder / f"part{module.SUFFIX}"))
    assert len(found) == 1


def test_the_caller_may_reuse_a_buffer_after_write(module: ModuleType, path: Path) -> None:
    blob = bytearray(b"first")
    with module.Writer(path, SCHEMA, payload_bytes=0) as writer:
        writer.write({**built_packs.record(0), "blob": blob})
        blob[:] = b"later"
        writer.write({**built_packs.record(1), "blob": memoryview(blob)})
        blob[:] = b"never"
        writer.finish()
    assert [record["blob"] for record in records_of(module, path, 2)] == [b"first", b"later"]


# ---- complete, or not a part


def test_a_part_that_is_not_finished_never_opens(module: ModuleType, path: Path) -> None:
    with module.Writer(path, SCHEMA, payload_bytes=0) as writer:
        for record in built_packs.records(10):
            writer.write(record)
    for count in (0, 9, 10):
        with pytest.raises(PackerError):
            module.Reader(path, SCHEMA, samples=count)


@pytest.mark.one_in(12)
def test_a_writer_that_was_killed_leaves_no_part(module: ModuleType, path: Path) -> None:
    def write_and_die() -> None:
        writer = module.Writer(path, SCHEMA, payload_bytes=0)
        for number in range(40):
            writer.write(built_packs.record(number, blob=bytes(1 << 20)))
        os.kill(os.getpid(), 9)

    assert child(write_and_die).signal == 9
    assert os.listdir(path.parent) == [path.name]  # no temporary file either
    for count in (0, 16, 32, 40):
        assert child(lambda count=count: len(module.Reader(path, SCHEMA, samples=count))).kind == "error"


def test_an_existing_file_is_refused_and_left_as_it_is(module: ModuleType, path: Path) -> None:
    path.write_bytes(b"something else")
    with pytest.raises(InvalidRequest, match="must be new"):
        module.Writer(path, SCHEMA, payload_bytes=0)
    assert path.read_bytes() == b"something else"


def test_a_link_to_nowhere_is_refused_too(module: ModuleType, path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="must be new"):
        module.Writer(path, SCHEMA, payload_bytes=0)
    assert not (tmp_path / "elsewhere").exists()


def test_finish_and_close_may_be_called_twice(module: ModuleType, path: Path) -> None:
    writer = module.Writer(path, SCHEMA, payload_bytes=0)
    writer.write(built_packs.record(0))
    for _ in range(2):
        writer.finish()
        writer.close()
    before = content(path)
    writer.finish()
    assert content(path) == before


def test_a_closed_writer_does_not_pretend_to_finish(module: ModuleType, path: Path) -> None:
    writer = module.Writer(path, SCHEMA, payload_bytes=0)
    writer.write(built_packs.record(0))
    writer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        writer.finish()


def test_a_record_that_lacks_a_field_leaves_nothing_of_itself(module: ModuleType, path: Path) -> None:
    with module.Writer(path, SCHEMA, payload_bytes=0) as writer:
        writer.write(built_packs.record(0))
        with pytest.raises(KeyError):
            writer.write({"key": b"x", "blob": b"y"})
        writer.write(built_packs.record(1))
        writer.finish()
    assert records_of(module, path, 2) == built_packs.records(2)


@pytest.mark.parametrize("count", [0, 9, 11, 1 << 40])
def test_another_number_of_samples_than_the_manifest_says_is_refused(
    module: ModuleType, path: Path, count: int
) -> None:
    write(module, path, built_packs.records(10))
    with pytest.raises(CorruptPack, match=path.name):
        module.Reader(path, SCHEMA, samples=count)


@pytest.mark.parametrize("names", [("key",), ("blob", "key", "label", "pair"), ("key", "blob", "label", "more")])
def test_other_fields_than_the_manifest_says_are_refused(module: ModuleType, path: Path, names: Sequence[str]) -> None:
    write(module, path, built_packs.records(10))
    every = tuple(SCHEMA[name] if name in SCHEMA else Field(name, "text", "text") for name in names)
    schema = described(Schema(every))
    with pytest.raises(CorruptPack, match=path.name):
        module.Reader(path, schema, samples=10)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("data", [b"", b"x", bytes(5000), b"\xff" * 70_000])
def test_a_file_that_is_no_part_is_refused(module: ModuleType, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    outcome = child(lambda: len(module.Reader(path, SCHEMA, samples=1)))
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome


def test_a_missing_part_is_refused(module: ModuleType, path: Path) -> None:
    with pytest.raises(PackerError, match=path.name):
        module.Reader(path, SCHEMA, samples=1)
    assert not path.exists()


# ---- damage


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", [50, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_flipped_byte_is_refused_or_without_effect(module: ModuleType, tmp_path: Path, number: int) -> None:
    part_damage.small_pack(tmp_path / "pack", name_of(module))
    if module.Writer.slots:  # of other tools, whose tar and LMDB are full of padding
        number, least = min(number, 3000), min(number, 3000) // 30
    else:
        least = number // 4
    part_damage.check_flips(part_damage.flips(tmp_path / "pack", number, seed=number), least)


@pytest.mark.one_in(3)
def test_a_cut_is_refused_or_without_effect(module: ModuleType, path: Path) -> None:
    """A cut of what only another tool reads is without effect."""
    records = [built_packs.record(row, blob=bytes([row]) * 100) for row in range(8)]
    write(module, path, records)
    for file, size, outcome in part_damage.cuts(path, records, name_of(module)):
        is_refused = (outcome.kind, outcome.error) == ("error", "CorruptPack")
        assert is_refused or (module.Writer.slots and outcome.value is True), (file, size, outcome)


# ---- a reader takes nothing and leaves nothing


def test_a_reader_may_be_closed_twice_while_what_it_read_lives(opened: Reader) -> None:
    record = opened.read(6, SCHEMA.names)
    opened.close()
    opened.close()
    assert {name: bytes(value) for name, value in record.items()} == built_packs.record(6)
    assert all(memoryview(value).readonly for value in record.values())
    with pytest.raises(PackerError, match="closed"):
        opened.read(0, SCHEMA.names)


def test_a_reader_that_is_closed_or_could_not_be_opened_holds_no_file(module: ModuleType, path: Path) -> None:
    write(module, path, built_packs.records(10))
    before = open_files()
    kept = []
    for readahead in (True, False, False):
        reader = module.Reader(path, SCHEMA, samples=10, readahead=readahead)
        assert read(reader, 1) == built_packs.record(1)
        reader.close()
        kept.append(reader)
    assert open_files() == before
    errors = []
    for _ in range(3):
        with pytest.raises(CorruptPack) as caught:
            module.Reader(path, SCHEMA, samples=11)
        errors.append(caught.value)
    module.Reader(path, SCHEMA, samples=10).close()


def test_a_closed_writer_that_is_kept_holds_no_file(module: ModuleType, path: Path) -> None:
    before = open_files()
    writer = module.Writer(path, SCHEMA, payload_bytes=0)
    writer.write(built_packs.record(0))
    writer.finish()
    assert open_files() == before


@enter_the_clone
@pytest.mark.one_in(6)
def test_a_part_in_a_folder_that_cannot_be_written_is_read(
    module: ModuleType, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write(module, path, built_packs.records(10))
    base = tmp_path_factory.getbasetemp()
    if base.name.startswith("popen-"):  # a worker's, in the folder of the run
        base = base.parent
    for folder in path.parents:  # let another user in as far as this test owns the way
        ours = folder.is_relative_to(base) or folder.name.startswith("pytest-")
        if ours and folder.stat().st_uid == os.getuid():
            folder.chmod(0o755)
    path.chmod(path.stat().st_mode | 0o044)
    path.parent.chmod(0o555)
    codecs.lookup("cp437")  # zipfile's; another user may have no way to Python's own files

    def read_as_nobody() -> str:
        if os.getuid() == 0:
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
        reader = module.Reader(path, SCHEMA, samples=10)
        return read(reader, 4)["key"].decode()

    try:
        outcome = child(read_as_nobody)
        assert outcome.value == "sample-00004", outcome
        assert os.listdir(path.parent) == [path.name]
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize("lack", ["no descriptor", "no permission"])
def test_what_the_machine_lacks_is_not_called_damage(module: ModuleType, path: Path, lack: str) -> None:
    write(module, path, built_packs.records(10))
    codecs.lookup("cp437")  # zipfile's, as above

    def read_without() -> None:
        os.chdir(path.parent)  # no way leads another user here
        if lack == "no descriptor":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        else:
            for file in part_damage.files_of(Path(path.name)):
                file.chmod(0)
            if os.getuid() == 0:
                os.seteuid(NOBODY)
        read(module.Reader(Path(path.name), SCHEMA, samples=10), 4)

    outcome = child(read_without)
    assert (outcome.error, outcome.exit_code) == ("StorageError", 4), outcome
    assert ("ulimit -n" if lack == "no descriptor" else "permissions") in outcome.message


@pytest.mark.one_in(12)
@pytest.mark.parametrize("file_bytes", [0, 4096, 100_000, 1 << 20, 20 << 20])
def test_a_full_disk_is_an_error_with_exit_code_4(module: ModuleType, path: Path, file_bytes: int) -> None:
    is_file = name_of(module) == "bmp"  # each value
    blob = random.Random(0).randbytes(file_bytes + 1 if is_file else 1 << 20)

    def run() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        write(module, path, [built_packs.record(number, blob=blob) for number in range(30)])

    outcome = child(run)
    assert (outcome.error, outcome.exit_code) == ("StorageError", 4), outcome
    assert str(path) in outcome.message and "free" in outcome.message and "\n" not in outcome.message
    assert child(lambda: len(module.Reader(path, SCHEMA, samples=30))).kind == "error"


def test_a_part_is_no_program_and_reading_changes_nothing_on_disk(module: ModuleType, path: Path) -> None:
    write(module, path, built_packs.records(10))
    for file in part_damage.files_of(path):
        assert not stat.S_IMODE(file.stat().st_mode) & 0o111
    before = built_packs.snapshot(path.parent)
    reader = module.Reader(path, SCHEMA, samples=10)
    read(reader, 0)
    assert built_packs.snapshot(path.parent) == before
    reader.close()


# ---- threads and processes


@pytest.mark.one_in(3)
def test_four_threads_read_what_one_reads(opened: Reader) -> None:
    rows = [random.Random(0).randrange(10) for _ in range(400)]
    expected = [read(opened, row) for row in rows]
    found: list[list[dict[str, bytes]]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda out=out: out.extend(read(opened, row) for row in rows)) for out in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_reader_closes_after_other_threads_have_read(module: ModuleType, path: Path) -> None:
    write(module, path, built_packs.records(10))
    before = open_files()
    reader = module.Reader(path, SCHEMA, samples=10)
    may_end = threading.Event()
    have_read = threading.Barrier(4)

    def work() -> None:
        read(reader, 2)
        have_read.wait(30)
        may_end.wait(30)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    have_read.wait(30)
    reader.close()
    assert open_files() == before
    may_end.set()
    for thread in threads:
        thread.join()
    assert records_of(module, path, 10) == built_packs.records(10)


def test_two_users_of_one_part_share_a_reader(module: ModuleType, path: Path) -> None:
    write(module, path, built_packs.records(10))
    table, key = part_readers.ReaderCache(4), (0, 0)

    def make() -> Reader:
        reader: Reader = module.Reader(path, SCHEMA, samples=10)
        return reader

    with table.pinned(key, make) as one, table.pinned(key, make) as other:
        assert one is other
        assert read(one, 7) == built_packs.record(7)


@pytest.mark.one_in(6)
def test_a_forked_child_reads_what_the_parent_has_read(module: ModuleType, path: Path, tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 10, format=name_of(module))
    expected = built_packs.values(tmp_path / "pack")
    pack = built_packs.Pack(tmp_path / "pack")
    with pack.record(1, ("key",)) as record:
        assert bytes(record["key"]) == expected[1]["key"]
    outcome = child(lambda: built_packs.values(tmp_path / "pack") == expected)
    assert outcome.value is True, outcome
    with pack.record(9, ("key",)) as record:
        assert bytes(record["key"]) == expected[9]["key"]
    pack.close()


def digest_of(folder: str) -> str:
    """What a spawned child reads; at module level, for it is imported there."""
    return hashlib.sha256(repr(built_packs.values(Path(folder))).encode()).hexdigest()


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
def test_a_spawned_child_reads_what_the_parent_has_read(format: str, tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 10, format=format)
    expected = digest_of(str(tmp_path / "pack"))
    context: Any = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(digest_of, (str(tmp_path / "pack"),)) == expected
        pool.close()
        pool.join()
