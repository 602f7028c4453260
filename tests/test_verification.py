"""verify: every kind of damage is listed, several at once, with key and field; nothing on disk changes."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import packs
import pytest
from children import child

from packer.errors import CorruptPack, Refused
from packer.pack import manifest as manifests
from packer.pack import storage
from packer.pack.opening import Pack
from packer.pack.verification import DEPTHS, problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pack of 9 samples in 3 parts, each blob once in its part."""
    samples = [packs.record(number, blob=b"<blob of sample %d>" % number * 3) for number in range(9)]
    packs.make_pack(tmp_path / "pack", samples, parts=3)
    return tmp_path / "pack"


def flip_value(folder: Path, sample: int, text: bytes) -> None:
    """Flip the first byte of a value in the part that holds it."""
    path = folder / f"part-{sample // 3:05d}.lmdb"
    packs.flip(path, path.read_bytes().index(text))


def flip_blob(folder: Path, sample: int) -> None:
    """Flip one byte of a sample's blob."""
    flip_value(folder, sample, b"<blob of sample %d>" % sample)


def found(folder: Path, depth: str = "default") -> list[str]:
    """All problems, found in a child, with a look at the disk before and after."""
    before = packs.snapshot(folder)
    outcome = child(lambda: list(problems(folder, depth=depth)))
    assert outcome.kind == "value", outcome
    assert packs.snapshot(folder) == before
    lines: list[str] = outcome.value
    assert all("\n" not in line and str(folder) in line for line in lines)
    return lines


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_sound_pack_has_no_problems(folder: Path, depth: str) -> None:
    assert found(folder, depth) == []


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_pack_without_samples_has_no_problems(tmp_path: Path, depth: str, parts: int) -> None:
    packs.make_pack(tmp_path / "empty", 0, parts=parts)
    assert found(tmp_path / "empty", depth) == []


def test_an_unknown_depth_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="depth='deep': expected one of quick, default, data"):
        list(problems(folder, depth="deep"))


def test_a_folder_that_is_no_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not a pack"):
        list(problems(tmp_path))


def test_a_pack_that_can_only_be_read_is_verified(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert found(folder, "data") == []
    finally:
        for path in (folder, folder / "index"):
            path.chmod(0o755)


# ---- one damage at a time

Damage = Callable[[Path], object]
QUICK: dict[str, tuple[Damage, list[str]]] = {
    "a cut part": (
        lambda folder: os.truncate(folder / "part-00001.lmdb", 5000),
        [r"part-00001\.lmdb: part is cut.*expected \d+ bytes, found 5000"],
    ),
    "an empty part": (lambda folder: os.truncate(folder / "part-00001.lmdb", 0), [r"part-00001\.lmdb: .*found 0"]),
    "a missing part": (
        lambda folder: (folder / "part-00001.lmdb").unlink(),
        [r"part-00001\.lmdb: part is missing"],
    ),
    "an unknown file": (
        lambda folder: (folder / "notes.txt").write_bytes(b"x"),
        [r"notes\.txt: unknown file"],
    ),
    "an unknown file in the index": (
        lambda folder: (folder / "index" / "more.npy").write_bytes(b"x"),
        [r"index/more\.npy: unknown file"],
    ),
    "an unknown folder": (lambda folder: (folder / "more").mkdir(), [r"more: unknown file"]),
    "a flipped index file": (
        lambda folder: packs.flip(folder / "index" / "crc32.npy", 130),
        [r"index/crc32\.npy: damaged index file: its sha256"],
    ),
    "a cut index file": (
        lambda folder: os.truncate(folder / "index" / "keys.npy", 130),
        [r"index/keys\.npy: damaged index file: 130 bytes, expected \d+"],
    ),
    "two missing index files": (
        lambda folder: [(folder / "index" / name).unlink() for name in ("keys.npy", "crc32.npy")],
        [r"index/crc32\.npy: missing", r"index/keys\.npy: missing"],
    ),
    "a flipped manifest": (lambda folder: packs.flip(folder / "packer.json", 40), [r"packer\.json: damaged"]),
    "a cut manifest": (lambda folder: os.truncate(folder / "packer.json", 40), [r"packer\.json: damaged"]),
    "a part that is a link": (
        lambda folder: [
            (folder / "part-00001.lmdb").rename(folder.parent / "away"),
            (folder / "part-00001.lmdb").symlink_to(folder.parent / "away"),
        ],
        [r"part-00001\.lmdb: expected a file, found a link"],
    ),
    "an index file that is a FIFO": (
        lambda folder: [(folder / "index" / "keys.npy").unlink(), os.mkfifo(folder / "index" / "keys.npy")],
        [r"index/keys\.npy: expected a file"],
    ),
}


def matches(lines: list[str], patterns: list[str]) -> bool:
    """Whether each line fits its pattern, none too many."""
    return len(lines) == len(patterns) and all(map(re.search, patterns, lines))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("what", QUICK)
def test_damage_to_names_sizes_or_index_is_found_at_every_depth(folder: Path, what: str, depth: str) -> None:
    damage, patterns = QUICK[what]
    damage(folder)
    lines = found(folder, depth)
    assert matches(lines, patterns), lines


def test_a_flipped_value_is_named_by_part_sample_key_and_field(folder: Path) -> None:
    flip_blob(folder, 4)
    assert found(folder, "quick") == []
    for depth in ("default", "data"):
        lines = found(folder, depth)
        assert matches(
            lines,
            [
                r"part-00001\.lmdb: damaged part: its sha256",
                r"part-00001\.lmdb \(sample 4, key 'sample-00004', field 'blob'\): damaged record: crc32 [0-9a-f]{8}, ",
            ],
        ), lines


def test_a_flipped_byte_outside_all_values_is_found_by_the_hash_of_the_part(folder: Path) -> None:
    part = folder / "part-00002.lmdb"
    packs.flip(part, part.stat().st_size - 4096 + 20)  # in a page, but in no value: two bytes of padding or pointers
    lines = found(folder)
    assert lines
    assert re.search(r"part-00002\.lmdb: damaged part", lines[0])


def test_a_value_that_cannot_be_read_is_named(folder: Path) -> None:
    flip_value(folder, 1, (1 * 4 + 1).to_bytes(8, "big"))  # the key of the record in the tree
    lines = found(folder)
    assert re.search(r"part-00000\.lmdb: damaged part", lines[0])
    assert any(re.search(r"\(sample 1, key 'sample-00001', field 'blob'\): cannot be read: ", line) for line in lines)


def test_a_value_that_does_not_decode_is_found_only_when_values_are_decoded(tmp_path: Path) -> None:
    samples = packs.records(4)
    samples[2] = {**samples[2], "key": b"ok"}
    packs.make_pack(tmp_path / "pack", samples)
    manifest = manifests.read(tmp_path / "pack")
    fields = tuple(
        replace(field, kind="json", codec="json") if field.name == "blob" else field for field in packs.SCHEMA
    )
    other = replace(manifest, schema=manifests.Schema(fields)).sealed()
    (tmp_path / "pack" / manifests.NAME).write_bytes(other.to_bytes())
    assert found(tmp_path / "pack") == []
    lines = found(tmp_path / "pack", "data")
    assert [re.search(r"sample (\d)", line)[1] for line in lines] == ["0", "1", "2", "3"]  # type: ignore[index]
    assert all(re.search(r"field 'blob'\): does not decode: ", line) for line in lines)


# ---- several at once


def test_all_damage_is_listed_in_one_run(folder: Path) -> None:
    flip_blob(folder, 0)
    flip_blob(folder, 7)
    flip_blob(folder, 8)
    (folder / "part-00001.lmdb").unlink()
    (folder / "stray").write_bytes(b"")
    lines = found(folder)
    assert matches(
        lines,
        [
            "stray: unknown file",
            r"part-00000\.lmdb: damaged part",
            r"part-00000\.lmdb \(sample 0, .*'blob'\): damaged record",
            r"part-00001\.lmdb: part is missing",
            r"part-00002\.lmdb: damaged part",
            r"part-00002\.lmdb \(sample 7, .*'blob'\): damaged record",
            r"part-00002\.lmdb \(sample 8, .*'blob'\): damaged record",
        ],
    ), lines


def test_damaged_parts_are_named_also_where_the_index_is_damaged(folder: Path) -> None:
    packs.flip(folder / "index" / "keys.npy", 130)
    packs.flip(folder / "index" / "crc32.npy", 130)
    flip_blob(folder, 4)
    lines = found(folder)
    assert matches(
        lines,
        [r"crc32\.npy: damaged index file", r"keys\.npy: damaged index file", r"part-00001\.lmdb: damaged part"],
    ), lines


def test_an_index_that_does_not_fit_is_a_problem_though_its_hashes_do(folder: Path) -> None:
    manifest = manifests.read(folder)
    other = replace(manifest, index=manifest.index[:-1]).sealed()
    (folder / manifests.NAME).write_bytes(other.to_bytes())
    lines = found(folder)
    assert matches(lines, [r"number-pair\.npy: unknown file", r"index: index files do not fit the schema"]), lines


# ---- a pack in use


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pack_that_this_process_is_reading_is_verified(folder: Path, depth: str) -> None:
    pack = Pack(folder)
    for index in range(9):
        with pack.record(index, ("key",)):
            pass
    assert list(problems(folder, depth=depth)) == []
    flip_blob(folder, 4)
    assert len(list(problems(folder, depth=depth))) == (0 if depth == "quick" else 2)
    with pack.record(3, ("key",)) as record:
        assert bytes(record["key"]) == b"sample-00003"
    pack.close()


def test_a_disk_that_fails_to_read_is_a_problem_and_the_rest_is_still_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = storage.open_file

    def fail(path: Path) -> object:
        if path.name == "part-00000.lmdb":
            raise CorruptPack(f"{path}: cannot read: Input/output error")
        return real(path)

    flip_blob(folder, 8)
    monkeypatch.setattr(storage, "open_file", fail)
    lines = list(problems(folder))
    assert matches(lines, [r"part-00000\.lmdb: cannot read", r"part-00002\.lmdb: damaged part", r"sample 8"]), lines


@pytest.mark.parametrize("what", ["flip", "cut"])
def test_a_copy_with_any_changed_byte_is_found(tmp_path: Path, what: str) -> None:
    packs.make_pack(tmp_path / "pack", 4, parts=1)
    files = [path for path in sorted((tmp_path / "pack").rglob("*")) if path.is_file()]
    for path in files:
        size = path.stat().st_size
        for at in range(0, size, max(1, size // 12)):
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "pack", copy)
            target = copy / path.relative_to(tmp_path / "pack")
            if what == "flip":
                packs.flip(target, at, 1 << (at % 8))
            else:
                os.truncate(target, at)
            outcome = child(lambda copy=copy: next(problems(copy), None))
            assert outcome.kind == "value", (path, at, outcome)
            assert outcome.value, (path, at)
            assert path.name in outcome.value
            shutil.rmtree(copy)


def test_a_flipped_byte_never_makes_verification_raise(folder: Path) -> None:
    packs.flip(folder / "packer.json", 3)
    with pytest.raises(CorruptPack):
        manifests.read(folder)
    assert len(list(problems(folder))) == 1
