"""LMDB parts through the back door: any LMDB library reads them, and the reader takes what one wrote."""

import json
import random
import resource
import signal
from pathlib import Path

import lmdb
import pytest

from packer.errors import CorruptPack, StorageError
from packer.formats.lmdb import Reader, Writer
from tests.support import built_packs
from tests.support.child_processes import child
from tests.support.hostile_lmdb import NAMES, SCHEMA, WHOLE, WRONG, by_hand, layout, without
from tests.support.part_damage import check_flips, flips


def items(path: Path) -> list[tuple[bytes, bytes]]:
    """Everything in a part, read by the bare library with its own defaults."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
        return list(transaction.cursor())


@pytest.mark.parametrize("count", [0, 1, 300])
def test_the_bare_library_reads_every_value_under_its_documented_key(tmp_path: Path, count: int) -> None:
    built_packs.write_records(tmp_path / "a.lmdb", built_packs.records(count), "lmdb")
    expected = layout(built_packs.records(count))
    found = dict(items(tmp_path / "a.lmdb"))
    assert found.keys() == expected.keys()
    assert list(found)[-1] == b"packer"
    assert json.loads(found.pop(b"packer")) == json.loads(expected.pop(b"packer"))
    assert found == expected


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_part_that_the_bare_library_wrote_is_read(tmp_path: Path, count: int) -> None:
    by_hand(tmp_path / "a.lmdb", layout(built_packs.records(count)))
    assert built_packs.read_records(tmp_path / "a.lmdb", count, "lmdb") == built_packs.records(count)


def test_the_format_is_the_one_that_every_lmdb_reads_and_reserves_no_space(tmp_path: Path) -> None:
    built_packs.write_records(tmp_path / "a.lmdb", built_packs.records(3), "lmdb")
    head = (tmp_path / "a.lmdb").read_bytes()[:24]
    assert int.from_bytes(head[16:20], "little") == 0xBEEFC0DE  # lmdb: mdb.c, MDB_MAGIC behind the 16 byte page header
    assert int.from_bytes(head[20:24], "little") == 1  # MDB_DATA_VERSION
    built_packs.write_records(tmp_path / "b.lmdb", built_packs.records(10), "lmdb", payload_bytes=1 << 30)
    assert (tmp_path / "b.lmdb").stat().st_size < 1 << 20


# ---- what the reader relies on


@pytest.mark.parametrize("what", WRONG)
def test_a_part_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path, what: str) -> None:
    by_hand(tmp_path / "a.lmdb", WRONG[what])
    with pytest.raises(CorruptPack, match=r"a\.lmdb") as caught:
        Reader(tmp_path / "a.lmdb", SCHEMA, samples=3)
    assert len(str(caught.value)) < 1000


def test_a_row_whose_entry_has_another_key_is_refused_when_it_is_read(tmp_path: Path) -> None:
    entries = without(WHOLE, (5).to_bytes(8, "big"))
    by_hand(tmp_path / "a.lmdb", {**entries, (99).to_bytes(8, "big"): b"stray"})
    reader = Reader(tmp_path / "a.lmdb", SCHEMA, samples=3)
    assert bytes(reader.read(0, ("blob",))["blob"]) == built_packs.record(0)["blob"]
    with pytest.raises(CorruptPack, match="row 1.*'blob'"):
        reader.read(1, NAMES)
    reader.close()


# ---- no space


def test_a_writer_goes_on_when_there_is_space_again(tmp_path: Path) -> None:
    path = tmp_path / "a.lmdb"

    def write_twice() -> int:
        writer = Writer(path, SCHEMA, payload_bytes=0)
        writer.write(built_packs.record(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(StorageError):
            writer.finish()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.finish()
        reader = Reader(path, SCHEMA, samples=1)
        return len(reader)

    def run() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return write_twice()

    assert child(run).value == 1


def test_a_folder_that_cannot_be_written_is_an_error_with_exit_code_4(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no-folder/a\.lmdb: .*make"):
        Writer(tmp_path / "no-folder" / "a.lmdb", SCHEMA, payload_bytes=0)


# ---- damage


def often_in_a_page_header(rng: random.Random, size: int) -> int:
    """Every other time in the first 64 bytes of a page, where the tree is held together."""
    return rng.randrange(size) if rng.randrange(2) else rng.randrange(size // 4096) * 4096 + rng.randrange(64)


def of_many_sizes() -> list[built_packs.Record]:
    """Records whose values stand in leaves and in overflow pages."""
    return [built_packs.record(row, blob=bytes([row]) * (5000 if row % 4 else 1900)) for row in range(40)]


@pytest.mark.parametrize("number", [100, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_flipped_byte_is_refused_or_without_effect(tmp_path: Path, number: int) -> None:
    built_packs.make_pack(tmp_path / "pack", of_many_sizes(), parts=1)
    check_flips(flips(tmp_path / "pack", number, seed=number, place=often_in_a_page_header), number // 4)


def test_no_flip_passes_where_a_part_is_hashed_before_it_is_mapped(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", of_many_sizes(), parts=1)
    found = flips(tmp_path / "pack", 40, seed=3, place=often_in_a_page_header, verify="open")
    assert found == {"refused": 40}
