"""Pack: records by sample index, sizes before anything is mapped, checksums as asked for."""

import os
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import CorruptPack, CorruptRecord, InvalidRequest, StorageError
from packer.pack import manifest as manifests
from packer.pack import part_readers, reader
from packer.pack.manifest import Part
from packer.pack.part_readers import check_part
from packer.pack.reader import Pack
from packer.system.machine_limits import Machine
from tests.support import built_packs
from tests.support.child_processes import child


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pack of 10 samples in 3 parts."""
    built_packs.make_pack(tmp_path / "pack", 10, parts=3)
    return tmp_path / "pack"


def place(folder: Path, value: bytes) -> int:
    """Where the only part holds these bytes, once."""
    whole = (folder / "part-00000.lmdb").read_bytes()
    assert whole.count(value) == 1
    return whole.index(value)


@given(st.integers(0, 12), st.integers(0, 6))
def test_every_sample_is_found_however_the_parts_are_cut(
    tmp_path_factory: pytest.TempPathFactory, count: int, parts: int
) -> None:
    folder = tmp_path_factory.mktemp("x") / "pack"
    built_packs.make_pack(folder, count if parts else 0, parts=parts)
    assert built_packs.values(folder) == built_packs.records(count if parts else 0)


def test_a_pack_may_be_reached_through_a_link_and_a_relative_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("pack")
    monkeypatch.chdir(tmp_path)
    assert built_packs.values(tmp_path / "link") == built_packs.values(Path("pack")) == built_packs.records(10)


def test_an_unknown_way_to_verify_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="verify='sometimes': .*always"):
        Pack(folder, verify="sometimes")


def test_a_format_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("lmbd", "base", "__init__", "../lmdb", "os"):
        built_packs.make_pack(tmp_path / "pack", 3)
        manifest = manifests.read(tmp_path / "pack")
        other = manifests.Manifest(**{**vars(manifest), "format": name}).sealed()
        (tmp_path / "pack" / manifests.NAME).write_bytes(other.to_bytes())
        with pytest.raises(InvalidRequest, match="unknown format"):
            Pack(tmp_path / "pack")
        shutil.rmtree(tmp_path / "pack")


# ---- parts that are not what the manifest says


@pytest.mark.parametrize("change", [-1, 1, -10_000])
def test_a_part_of_another_size_is_refused_when_the_pack_is_opened(folder: Path, change: int) -> None:
    part = folder / "part-00001.lmdb"
    size = part.stat().st_size
    os.truncate(part, size + change)
    with pytest.raises(CorruptPack, match=f"part-00001.lmdb: .*{size} bytes, .* {size + change}"):
        Pack(folder)


def test_a_part_that_is_cut_after_the_pack_was_opened_is_refused_before_it_is_mapped(folder: Path) -> None:
    def read() -> None:
        pack = Pack(folder)
        os.truncate(folder / "part-00001.lmdb", 4096)
        with pack.record(4, ("key",)):
            pass

    outcome = child(read)
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome


def test_a_part_that_is_no_file_is_refused(folder: Path, tmp_path: Path) -> None:
    part = folder / "part-00001.lmdb"
    part.rename(tmp_path / "elsewhere")
    for make in (lambda: part.symlink_to(tmp_path / "elsewhere"), part.mkdir, lambda: os.mkfifo(part)):
        make()
        with pytest.raises(CorruptPack, match=r"part-00001\.lmdb: expected a file"):
            Pack(folder)
        part.rmdir() if part.is_dir() else part.unlink()


def test_a_file_system_that_does_not_answer_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(reader.os, "stat", fail)
    with pytest.raises(StorageError, match="part: .*Input/output error"):
        check_part(Path("part"), Part("part", 1, 1, ""))


def test_two_parts_that_changed_places_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    built_packs.make_pack(folder, 10, parts=2)
    one, other = folder / "part-00000.lmdb", folder / "part-00001.lmdb"
    assert one.stat().st_size == other.stat().st_size
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    with pytest.raises(CorruptRecord):
        built_packs.values(folder)


def test_a_pack_that_was_overwritten_under_an_open_one_is_not_mistaken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [built_packs.record(number, blob=b"old") for number in range(6)]
    new = [built_packs.record(number, blob=b"new") for number in range(6)]
    built_packs.make_pack(tmp_path / "pack", old, parts=3)
    built_packs.make_pack(tmp_path / "staged", new, parts=3)
    monkeypatch.setattr(part_readers.open_readers, "limit", 1)
    pack = Pack(tmp_path / "pack")
    for index in range(6):  # every checksum has been compared once
        with pack.record(index, ("blob",)) as record:
            assert bytes(record["blob"]) == b"old"
    built_packs.swap(tmp_path / "staged", tmp_path / "pack")
    with pytest.raises(CorruptPack, match="part was replaced"), pack.record(0, ("blob",)):
        pass
    with pack.record(5, ("blob",)) as record:  # still open, still the old one
        assert bytes(record["blob"]) == b"old"
    pack.close()


# ---- checksums


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A pack whose sample 4 has one byte flipped in its blob."""
    samples = [built_packs.record(number, blob=b"blob of sample %d" % number) for number in range(8)]
    built_packs.make_pack(tmp_path / "pack", samples, parts=1)
    built_packs.flip(tmp_path / "pack" / "part-00000.lmdb", place(tmp_path / "pack", b"blob of sample 4"))
    return tmp_path / "pack"


def test_a_damaged_value_does_not_keep_its_part_open(damaged: Path) -> None:
    before, pack = len(part_readers.open_readers), Pack(damaged)
    for _ in range(2):
        with pytest.raises(CorruptRecord), pack.record(4, ("blob",)):
            raise AssertionError("the block begins")
    assert len(part_readers.open_readers) == before + 1
    pack.close()
    assert len(part_readers.open_readers) == before


@pytest.mark.parametrize("verify", ["first", "always"])
def test_a_damaged_value_is_refused_with_part_sample_key_and_field(damaged: Path, verify: str) -> None:
    pack = Pack(damaged, verify=verify)
    for _ in range(2):
        with pytest.raises(CorruptRecord) as caught, pack.record(4, pack.schema.names):
            pass
        text = str(caught.value)
        assert f"{damaged}/part-00000.lmdb (sample 4, key 'sample-00004', field 'blob'): damaged record" in text
        assert "\n" not in text
    for index in (0, 3, 5, 7):
        with pack.record(index, pack.schema.names):
            pass
    with pack.record(4, ("key", "label")) as record:
        assert bytes(record["key"]) == b"sample-00004"
    pack.close()


def test_a_damaged_part_is_refused_before_its_first_value_where_asked(damaged: Path) -> None:
    pack = Pack(damaged, verify="open")
    for index in (0, 4):
        with (
            pytest.raises(CorruptPack, match=r"part-00000\.lmdb: .*sha256"),
            pack.record(index, ("key",)),
        ):
            pass
    pack.close()
    built_packs.flip(damaged / "part-00000.lmdb", place(damaged, b"lob of sample 4") - 1)  # whole again
    assert built_packs.values(damaged, verify="open")[4]["blob"] == b"blob of sample 4"


@pytest.mark.parametrize(("verify", "times"), [("first", 1), ("open", 1), ("always", 3), ("never", 0)])
def test_a_value_is_checked_as_often_as_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, verify: str, times: int
) -> None:
    pack = Pack(folder, verify=verify)
    found: Counter[bytes] = Counter()
    real = reader.zlib.crc32

    class Counted:
        @staticmethod
        def crc32(value: memoryview) -> int:
            found[bytes(value)] += 1
            return real(value)

    monkeypatch.setattr(reader, "zlib", Counted)
    for _ in range(3):
        for index in range(10):
            for name in ("key", "blob"):  # each field of a sample is counted
                with pack.record(index, (name,)):
                    pass
    values = [built_packs.record(index)[name] for index in range(10) for name in ("key", "blob")]
    expected = Counter(bytes(value) for value in values for _ in range(times))
    assert found == expected
    pack.close()


# ---- the machine


@pytest.mark.parametrize(
    ("available", "small", "expected"), [(None, 0, True), (1 << 40, 0, True), (1, 0, False), (1, None, True)]
)
def test_a_large_pack_of_more_than_half_the_memory_is_read_without_readahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch, available: int | None, small: int | None, expected: bool
) -> None:
    monkeypatch.setattr(Machine, "free_memory", lambda self: available)
    if small is not None:
        monkeypatch.setattr(reader, "_SMALL_BYTES", small)
    with closing(Pack(folder)) as pack:
        assert pack.readahead is expected


def test_a_pack_opens_nothing_before_it_is_read(folder: Path) -> None:
    before = len(part_readers.open_readers)
    pack = Pack(folder)
    assert len(part_readers.open_readers) == before
    pack.close()
    pack.close()


def test_a_pack_that_cannot_be_opened_owns_nothing(folder: Path) -> None:
    owners = part_readers.open_readers.owners()
    (folder / "part-00001.lmdb").unlink()
    for _ in range(2):
        with pytest.raises(CorruptPack, match=r"part-00001\.lmdb: .*missing"):
            Pack(folder)
    assert part_readers.open_readers.owners() == owners
