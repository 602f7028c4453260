"""Staging: what is copied, found, read, kept for others, refused and removed."""

import os
import pickle
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import packer
from packer import formats
from packer.copies import capacity
from packer.copies.capacity import SpaceKept
from packer.copies.leased_folder import OwnedFolder
from packer.copies.recoded_copy import stage_recoded
from packer.copies.staged_copies import StagedCopy, copies, copies_of, open_staged
from packer.copies.stager import Hooks, Staged, StageOptions, stage, stage_or_warm, warmed
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import CorruptPack, CorruptRecord, InvalidRequest, Locked, PackerError, StorageError, UnsafePath
from packer.pack import manifest as manifests
from packer.pack.verification import problems
from packer.system.machine_limits import Machine, Mount
from tests.support import built_packs, warm_python
from tests.support.child_processes import child
from tests.support.conversions import digest, packed
from tests.support.machine_files import GB, made_up
from tests.support.source_trees import photos

each_format = pytest.mark.parametrize("format", formats.names())
NOTHING = SpaceKept()


@pytest.fixture(autouse=True)
def large_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 TiB free of as many, whatever the test's disk has."""
    free = os.statvfs_result((4096, 4096, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: free)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    built_packs.make_pack(tmp_path / "pack")
    return tmp_path / "pack"


def staged(pack: Path, base: Path, **options: Any) -> Staged:
    return stage(pack, StageOptions(str(base), **{"keep": NOTHING, **options}), Hooks())


def copied(pack: Path, base: Path) -> StagedCopy:
    """The copy of a pack, which need not be there."""
    return StagedCopy.of(OwnedFolder(base), manifests.read(pack))


def released(pack: Path, base: Path, **options: Any) -> int:
    place = OwnedFolder(base)
    with place.locked(None):
        return sum(copy.remove(**options) for copy in copies_of(place, pack))


def values(pack: Path, base: Path, **options: Any) -> list[dict[str, bytes]]:
    """Every record, read where it is staged."""
    opened = open_staged(pack, stage=str(base), **options)
    try:
        found = []
        for index in range(len(opened)):
            with opened.record(index, opened.schema.names) as record:
                found.append({name: bytes(value) for name, value in record.items()})
        return found
    finally:
        opened.close()


def size_of(pack: Path) -> int:
    return sum(path.stat().st_size for path in pack.rglob("*") if path.is_file())


# ---- copying and finding


@pytest.mark.one_in(6)
@each_format
def test_a_copy_is_the_pack_byte_for_byte_and_made_once(tmp_path: Path, base: Path, format: str) -> None:
    built_packs.make_pack(tmp_path / "pack", 40, format=format, parts=3)
    first = staged(tmp_path / "pack", base)
    assert (first.how, first.parts, first.copied_bytes) == ("copied", 3, size_of(tmp_path / "pack"))
    assert first.path.parent == base / f"packer-{os.geteuid()}"
    assert digest(first.path) == digest(tmp_path / "pack")
    assert sorted(path.name for path in first.path.rglob("*")) == sorted(
        path.name for path in (tmp_path / "pack").rglob("*")
    )
    assert list(problems(first.path, level="full")) == []
    before = built_packs.snapshot(base)
    again = staged(tmp_path / "pack", base)
    assert (again.how, again.path, again.copied_bytes) == ("there", first.path, 0)
    assert built_packs.snapshot(base) == before
    assert first.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.one_in(12)
@each_format
def test_parts_are_staged_a_few_at_a_time(tmp_path: Path, base: Path, format: str) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 40, format=format, parts=4)
    expected = built_packs.values(pack)
    some = staged(pack, base, parts=(1, 2, 1))
    assert (some.how, some.path, some.parts) == ("copied", pack, 2)
    part = manifests.read(pack).parts[1].name
    (pack / part).rename(tmp_path / "away")  # so it can only be read from the copy
    assert values(pack, base) == expected
    with pytest.raises(CorruptPack, match="missing"):
        built_packs.values(pack)
    (tmp_path / "away").rename(pack / part)
    assert not (copied(pack, base).folder / manifests.NAME).exists()
    assert staged(pack, base, parts=(2,)).how == "there"
    rest = staged(pack, base, parts=(0, 3))
    assert (rest.how, rest.parts, rest.path) == ("copied", 4, copied(pack, base).folder)
    assert digest(rest.path) == digest(pack)


def test_files_of_no_sample_and_empty_folders_go_along(tmp_path: Path, base: Path) -> None:
    source = photos(tmp_path / "in", 4)
    (source / "notes.txt").write_text("a table")
    packed(source, tmp_path / "a.pack")
    done = staged(tmp_path / "a.pack", base)
    assert digest(done.path) == digest(tmp_path / "a.pack")
    assert (done.path / "extras").is_dir()
    built_packs.make_pack(tmp_path / "none", 0, parts=1)
    assert digest(staged(tmp_path / "none", base).path) == digest(tmp_path / "none")


def test_parts_that_a_pack_does_not_have_are_refused(pack: Path, base: Path) -> None:
    with pytest.raises(InvalidRequest, match="part 2: .*0 to 1"):
        staged(pack, base, parts=(0, 2))
    assert os.listdir(base) == []


def test_a_copy_of_what_the_pack_was_before_is_not_read_and_goes(tmp_path: Path, base: Path) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 6)
    old = staged(pack, base).path
    shutil.rmtree(pack)
    built_packs.make_pack(pack, [built_packs.record(number, blob=b"new") for number in range(6)])
    assert {record["blob"] for record in values(pack, base)} == {b"new"}
    done = staged(pack, base)
    assert done.path != old
    assert not old.exists()
    assert any("removed" in note for note in done.notes)
    assert [copy.folder for copy in copies(OwnedFolder(base))] == [done.path]


def test_a_copy_of_what_the_pack_was_before_stays_while_it_is_read(tmp_path: Path, base: Path) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 6)
    old = staged(pack, base).path
    reading = open_staged(pack, stage=str(base))
    shutil.rmtree(pack)
    built_packs.make_pack(pack, 7)
    assert any("kept" in note for note in staged(pack, base).notes)
    with reading.record(5, ["key"]) as record:
        assert bytes(record["key"]) == b"sample-00005"
    reading.close()
    shutil.rmtree(pack)
    built_packs.make_pack(pack, 8)
    assert sum("removed" in note for note in staged(pack, base).notes) == 2
    assert not old.exists()


def test_a_part_of_a_copy_that_is_cut_is_copied_again(tmp_path: Path, base: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 20, format="hdf5")
    done = staged(tmp_path / "pack", base)
    part = done.path / "part-00001.h5"
    with part.open("r+b") as file:
        file.truncate(100)
    again = staged(tmp_path / "pack", base)
    assert (again.how, again.copied_bytes) == ("copied", part.stat().st_size)
    assert digest(again.path) == digest(tmp_path / "pack")


def test_a_byte_of_a_copy_that_changes_is_found_when_it_is_read(tmp_path: Path, base: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", [built_packs.record(0, blob=b"<a blob to change>")], parts=1)
    part = staged(tmp_path / "pack", base).path / "part-00000.lmdb"
    built_packs.flip(part, part.read_bytes().index(b"<a blob"))
    with pytest.raises(CorruptRecord, match=str(part)):
        values(tmp_path / "pack", base)


# ---- damaged packs


@each_format
def test_a_damaged_pack_is_not_staged(tmp_path: Path, base: Path, format: str) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 30, format=format, parts=2)
    path = pack / manifests.read(pack).parts[1].name
    built_packs.flip(path / "values.npz" if path.is_dir() else path, 70)
    with pytest.raises(CorruptPack, match="damaged: .*sha256"):
        staged(pack, base)
    assert os.listdir(base) == []


def test_a_cut_pack_is_refused_before_anything_is_written(
    pack: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (pack / "part-00001.lmdb").open("r+b") as file:
        file.truncate(4096)
    monkeypatch.setattr(OwnedFolder, "new_file", None)  # nothing may even be tried
    with pytest.raises(CorruptPack, match="part is cut"):
        staged(pack, base)
    assert os.listdir(base) == []


@pytest.mark.parametrize("grown", [1, 1 << 40])
def test_a_file_that_has_grown_takes_no_more_than_was_counted(pack: Path, base: Path, grown: int) -> None:
    """Of the index: parts are looked at before. A hole of a terabyte would else be copied as its zeros."""
    path = pack / "index/keys.npy"
    size = path.stat().st_size
    os.truncate(path, size + grown)
    with pytest.raises(CorruptPack, match=f"{size:,} bytes.* {size + grown:,}"):
        staged(pack, base)
    assert os.listdir(base) == []


# ---- reading


@pytest.mark.one_in(12)
@each_format
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_data_sets_read_the_copy_in_workers_too(tmp_path: Path, base: Path, format: str, method: str) -> None:
    pack = tmp_path / "a.pack"
    packed(photos(tmp_path / "in", 12), pack, to=format, part_bytes=3000)
    expected = [packer.open(pack)[index]["image"] for index in range(12)]
    staged(pack, base)
    for part in manifests.read(pack).parts:
        (pack / part.name).rename(tmp_path / part.name)  # so it can only be read from the copy
    dataset = packer.open(pack, stage=base)
    assert all(torch.equal(dataset[index]["image"], expected[index]) for index in range(12))
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[11]["image"], expected[11])
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=method)
    assert torch.equal(torch.cat([batch["image"] for batch in loader]), torch.stack(expected))
    batches = [batch["image"].clone() for batch in packer.Loader(dataset, 4, threads=2)]
    assert torch.equal(torch.cat(batches), torch.stack(expected))
    with pytest.raises(CorruptPack, match="missing"):
        packer.open(pack)


def test_auto_looks_into_shared_memory(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.copies.staged_copies.Machine", lambda: Machine(shared_memory=base))
    pack = tmp_path / "pack"
    packed(photos(tmp_path / "in", 4), pack)
    assert len(LMDBDataset(pack, stage="auto")) == 4  # there is no copy
    staged(pack, base)
    (pack / "part-00000.lmdb").unlink()
    assert len(LMDBDataset(pack, stage="auto")[3]["key"]) > 0
    monkeypatch.setattr("packer.copies.staged_copies.Machine", lambda: Machine(shared_memory=base / "none"))
    with pytest.raises(CorruptPack, match="missing"):
        LMDBDataset(pack, stage="auto")
    with pytest.raises(InvalidRequest, match="no such folder"):
        LMDBDataset(pack, stage=base / "none")


# ---- leases and releasing


def test_a_copy_that_is_read_is_released_only_by_force(tmp_path: Path, base: Path) -> None:
    pack = tmp_path / "pack"
    packed(photos(tmp_path / "in", 6), pack)
    size = staged(pack, base).copied_bytes
    dataset = LMDBDataset(pack, stage=base)
    first = dataset[0]["image"]
    with pytest.raises(Locked, match="--force") as error:
        released(pack, base)
    assert error.value.exit_code == 5
    assert copied(pack, base).describe()["in_use"] is True
    assert released(pack, base, force=True) == size
    assert os.listdir(base) == []
    assert torch.equal(dataset[0]["image"], first)
    del dataset
    staged(pack, base)
    assert copied(pack, base).describe()["in_use"] is False
    assert released(pack, base) == size
    assert os.listdir(base) == []
    assert torch.equal(LMDBDataset(pack, stage=base)[0]["image"], first)  # the pack itself


def test_a_lease_ends_with_its_process_however_it_ends(pack: Path, base: Path) -> None:
    staged(pack, base)

    def killed() -> None:
        kept = open_staged(pack, stage=str(base))
        assert copied(pack, base).describe()["in_use"] is True
        os.kill(os.getpid(), 9)
        kept.close()

    assert child(killed).signal == 9
    assert released(pack, base) > 0


def test_a_child_that_inherits_a_lease_holds_it_until_it_opens_its_own(tmp_path: Path, base: Path) -> None:
    pack = tmp_path / "pack"
    packed(photos(tmp_path / "in", 6), pack)
    staged(pack, base)
    datasets = [LMDBDataset(pack, stage=base)]

    def work() -> list[object]:
        (dataset,) = datasets
        datasets[0][0]  # in a reader of its own
        held = os.listdir("/proc/self/fd")
        dataset._sample_decoder_or_none = None
        return [len(held) > len(os.listdir("/proc/self/fd")), copied(pack, base).describe()["in_use"]]

    assert child(work).value == [True, True]  # the parent reads
    datasets.clear()
    assert child(lambda: copied(pack, base).describe()["in_use"]).value is False
    assert released(pack, base) > 0


def test_a_release_finds_copies_by_digest_by_origin_and_by_their_own_path(
    tmp_path: Path, pack: Path, base: Path
) -> None:
    shutil.copytree(pack, tmp_path / "same")
    staged(pack, base)
    assert released(tmp_path / "same", base) > 0
    staged(pack, base)
    shutil.rmtree(pack)
    assert released(tmp_path / "other", base) == 0
    assert released(pack, base) > 0
    path = staged(tmp_path / "same", base).path
    assert released(path, base) > 0
    assert os.listdir(base) == []


def test_a_listing_tells_of_every_copy(tmp_path: Path, base: Path) -> None:
    built_packs.make_pack(tmp_path / "one", 5)
    built_packs.make_pack(tmp_path / "two", 9, parts=3)
    whole = staged(tmp_path / "one", base)
    staged(tmp_path / "two", base, parts=(1,))
    reading = open_staged(tmp_path / "two", stage=str(base))
    found = {copy.describe()["origin"]: copy.describe() for copy in copies(OwnedFolder(base))}
    reading.close()
    one, two = found[str(tmp_path / "one")], found[str(tmp_path / "two")]
    assert (one["path"], one["bytes"], one["whole"]) == (str(whole.path), size_of(tmp_path / "one"), True)
    assert (one["parts"], one["in_use"]) == (2, False)
    assert (two["parts"], two["whole"], two["in_use"]) == (1, False, True)


# ---- places that are not this user's own


def refused(pack: Path, base: Path) -> Iterator[str]:
    """Messages of all that look at a place."""
    for look in (lambda: staged(pack, base), lambda: values(pack, base), lambda: released(pack, base)):
        with pytest.raises(InvalidRequest) as error:
            look()
        assert error.value.exit_code == 2
        yield str(error.value)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path, pack: Path, base: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (base / f"packer-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    assert all("a link or a file is in its place" in text for text in refused(pack, base))
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_and_a_folder_that_others_may_enter_are_refused(pack: Path, base: Path) -> None:
    folder = base / f"packer-{os.geteuid()}"
    folder.write_bytes(b"")
    assert all("a link or a file" in text for text in refused(pack, base))
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o755)
    assert all("its mode is 755" in text for text in refused(pack, base))
    assert os.listdir(folder) == []


def test_a_folder_of_another_user_is_refused(pack: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base / "packer-4711"
    folder.mkdir(0o700)
    if os.geteuid() == 0:
        os.chown(folder, 4712, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert all("belongs to user" in text for text in refused(pack, base))
    assert os.listdir(folder) == []


def test_a_copy_that_is_a_link_is_refused(tmp_path: Path, pack: Path, base: Path) -> None:
    path = staged(pack, base).path
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(InvalidRequest, match="found a link"):
        values(pack, base)


@pytest.mark.parametrize("mode", [0o770, 0o775, 0o2775, 0o777])
def test_a_base_where_a_group_or_anybody_may_rename_is_refused(pack: Path, base: Path, mode: int) -> None:
    base.chmod(mode)
    assert all("may rename files there: chmod +t" in text for text in refused(pack, base))
    assert os.listdir(base) == []
    base.chmod(mode | 0o1000)
    assert staged(pack, base).how == "copied"


def test_what_is_no_folder_is_no_base(tmp_path: Path, pack: Path) -> None:
    assert all("no such folder" in text for text in refused(pack, tmp_path / "none"))
    (tmp_path / "file").write_bytes(b"")
    assert all("found a file" in text for text in refused(pack, tmp_path / "file"))


def test_a_base_of_another_user_is_refused_sticky_or_not(
    pack: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns a sticky folder may rename what others made in it."""
    if os.geteuid() == 0:
        os.chown(base, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    for mode in (0o1777, 0o755):
        base.chmod(mode)
        assert all("who may rename files there" in text for text in refused(pack, base))
    assert os.listdir(base) == []


def test_a_place_that_came_with_an_archive_is_not_read(pack: Path, base: Path) -> None:
    """A copy with other values under the digest of a pack: its folder is a copy, and has no marker of its own."""
    place = staged(pack, base).path.parent
    place.rename(base / "shipped")
    shutil.copytree(base / "shipped", place)
    place.chmod(0o700)
    before = built_packs.snapshot(place)
    assert all("marker of another folder" in text for text in refused(pack, base))
    assert built_packs.snapshot(place) == before


def test_a_copy_with_a_file_of_a_stranger_is_not_removed(pack: Path, base: Path) -> None:
    copy = staged(pack, base).path
    (copy / "mine.txt").write_text("mine")
    before = built_packs.snapshot(copy)
    with pytest.raises(UnsafePath, match=r"mine\.txt: .*did not make"):
        released(pack, base)
    assert built_packs.snapshot(copy) == before


def test_where_another_user_took_the_place_auto_reads_the_pack_and_says_so(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, machine = tmp_path / "pack", Machine(shared_memory=base)
    packed(photos(tmp_path / "in", 4), pack)
    expected = LMDBDataset(pack)[3]["image"]
    (base / f"packer-{os.geteuid()}").mkdir(0o755)  # another's, or one that others may enter: neither is used
    monkeypatch.setattr("packer.copies.staged_copies.Machine", lambda: machine)
    with pytest.warns(RuntimeWarning, match="from memory: .*stage into") as told:
        dataset = LMDBDataset(pack, stage="auto")
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert torch.equal(dataset[3]["image"], expected)
    with pytest.raises(UnsafePath, match="stage into"):
        LMDBDataset(pack, stage=base)
    options = StageOptions(machine=replace(machine, proc=made_up(tmp_path / "m").proc))
    monkeypatch.setattr(Machine, "mount", lambda self, path: Mount("tmpfs" if path == base else "ext4", frozenset()))
    done = stage_or_warm(pack, options, Hooks())
    assert (done.how, done.path) == ("warmed", pack)
    assert "not a folder to stage into" in done.reason


# ---- room


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 200, parts=4)
    size = size_of(pack) + 20 * (4096 + 1024)  # whole pages, and what the kernel takes per file
    limited = {"memory.current": "0", "memory.max": str(size // 2)}
    cases: dict[str, tuple[Machine, SpaceKept | None]] = {
        "memory (MemAvailable)": (made_up(tmp_path / "1", available=size // 2), NOTHING),
        "cgroup": (made_up(tmp_path / "2", files=limited), NOTHING),
        "and 13,743,895,347 stay free": (made_up(tmp_path / "3", available=13 * GB - GB // 4), None),
        f"and {GB:,} stay free": (made_up(tmp_path / "4", total=4 * GB, available=GB + size // 2), None),
        "and 2,147,483,648": (made_up(tmp_path / "5", available=2 * GB + size // 2), SpaceKept(bytes=2 * GB)),
        "and 34,359,738,368": (made_up(tmp_path / "6", available=32 * GB), SpaceKept(share=0.5)),
    }
    for text, (machine, keep) in cases.items():
        with pytest.raises(StorageError, match="nothing was written") as error:
            stage(pack, StageOptions(str(machine.shared_memory), keep=keep, machine=machine), Hooks())
        assert text in str(error.value)
        assert error.value.exit_code == 4
        assert os.listdir(machine.shared_memory) == []


def test_what_fits_barely_is_staged(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 200, parts=4)
    size = size_of(tmp_path / "pack") + 20 * (4096 + 1024)
    limited = {"a/memory.current": str(GB), "a/memory.max": str(GB + size), "a/memory.stat": "inactive_file 0"}
    machine = made_up(tmp_path / "m", available=size, membership="0::/a", files=limited)
    done = stage(tmp_path / "pack", StageOptions(str(machine.shared_memory), keep=NOTHING, machine=machine), Hooks())
    assert done.how == "copied"
    assert done.notes == ()


def test_a_disk_is_not_limited_by_memory(tmp_path: Path, pack: Path) -> None:
    machine = made_up(tmp_path / "m", available=0, kind="xfs")
    (tmp_path / "disk").mkdir()
    done = stage(pack, StageOptions(str(tmp_path / "disk"), machine=machine), Hooks())
    assert done.how == "copied"


def test_a_file_system_without_room_for_more_files_is_refused(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_packs.make_pack(tmp_path / "pack", 30, format="bmp")
    monkeypatch.setattr(capacity, "free_files", lambda path: 30)
    with pytest.raises(StorageError, match="30 more"):
        staged(tmp_path / "pack", base)
    assert os.listdir(base) == []


# ---- the page cache


def auto(pack: Path, machine: Machine, **options: Any) -> Staged:
    return stage_or_warm(pack, StageOptions(machine=machine, **options), Hooks())


def test_auto_stages_where_it_fits_and_warms_where_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 100, parts=3)
    size = sum(part.bytes for part in manifests.read(pack).parts)
    roomy = made_up(tmp_path / "roomy")
    monkeypatch.setattr(Machine, "mount", not_for(pack))
    assert auto(pack, roomy).how == "copied"
    full = made_up(tmp_path / "full")
    monkeypatch.setattr(capacity, "check", no_room)
    done = auto(pack, full)
    assert (done.how, done.path, done.parts, done.copied_bytes) == ("warmed", pack, 3, size)
    assert "no room" in done.reason
    assert os.listdir(full.shared_memory) == []
    for kind, text in (("ext4", "not in memory"), ("overlay", "not in memory")):
        assert text in auto(pack, made_up(tmp_path / kind, kind=kind)).reason


def not_for(pack: Path) -> Any:
    """Machine.mount, as if the pack lay on a disk."""
    mount = Machine.mount
    return lambda self, path: None if path == pack else mount(self, path)


def no_room(*_: object) -> None:
    raise StorageError("no room")


def test_a_pack_that_lies_in_memory_is_left_where_it_is(tmp_path: Path, pack: Path) -> None:
    done = auto(pack, made_up(tmp_path / "m"))
    assert (done.how, done.path, done.copied_bytes) == ("in memory", pack, 0)


@pytest.mark.one_in(3)
@each_format
def test_warming_reads_what_fits_and_says_so(tmp_path: Path, format: str) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, 100, format=format, parts=3)
    manifest = manifests.read(pack)
    index = sum(file.bytes for file in manifest.index)
    two = index + manifest.parts[0].bytes + manifest.parts[1].bytes
    done: list[tuple[int, int]] = []
    hooks = Hooks(progress=lambda samples, size: done.append((samples, size)))
    machine = made_up(tmp_path / "m", available=two + 1023)  # told in kB
    found = warmed(pack, StageOptions(keep=NOTHING, machine=machine), hooks)
    assert (found.parts, found.copied_bytes) == (2, two - index)
    assert found.notes == ("only 2 of 3 parts fit into the free memory",)
    assert done == [(part.samples, part.bytes) for part in manifest.parts[:2]]


def test_warming_a_damaged_pack_says_so(pack: Path) -> None:
    with (pack / "part-00001.lmdb").open("r+b") as file:
        file.truncate(4096)
    with pytest.raises(CorruptPack, match="part is cut"):
        warmed(pack, StageOptions(), Hooks())


def test_the_page_on_staging_runs(tmp_path: Path, base: Path) -> None:
    packed(photos(tmp_path / "in", 6), tmp_path / "photos.pack")
    page = (Path(__file__).parents[2] / "docs/train/staging.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    stage_recoded(tmp_path / "photos.pack", "ycc420", StageOptions(str(base), keep=NOTHING), Hooks())
    # what others on this machine staged is theirs: a shared memory of the test's own
    here = "from pathlib import Path; from packer.system.machine_limits import Machine; "
    here += "from packer.copies import staged_copies"
    here += f"; staged_copies.Machine = lambda: Machine(shared_memory=Path({str(base)!r}))"
    warm_python.run("\n".join([here, *blocks]), strict=True, folder=tmp_path)


def test_errors_are_packer_s_own(tmp_path: Path, base: Path) -> None:
    for look in (lambda: staged(tmp_path / "none", base), lambda: auto(tmp_path / "none", made_up(tmp_path / "m"))):
        with pytest.raises(PackerError, match="not a pack"):
            look()
    with suppress(FileNotFoundError):
        assert os.listdir(base) == []
