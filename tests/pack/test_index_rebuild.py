"""index: what the parts say is made again, byte for byte, and nothing else is touched."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from packer.errors import CorruptPack, InvalidRequest, Locked, StorageError
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import work_folder
from packer.pack import index_rebuild
from packer.pack import manifest as manifests
from packer.pack.index_rebuild import reindex
from packer.pack.reader import Pack
from packer.pack.verification import problems
from scripts import make_golden
from tests.support import built_packs, source_trees
from tests.support.command_line import run
from tests.support.conversions import digest, packed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pack of 9 samples in 3 parts."""
    built_packs.make_pack(tmp_path / "pack", 9, parts=3)
    return tmp_path / "pack"


def names(folder: Path) -> list[str]:
    return sorted(f"index/{path.name}" for path in (folder / "index").iterdir())


@pytest.mark.one_in(10)
@pytest.mark.parametrize("kind", source_trees.BUILDERS)
def test_a_sound_pack_is_left_as_it_is_and_a_lost_index_comes_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    packed(source_trees.BUILDERS[kind](tmp_path / "in"), tmp_path / "out.pack", kind=kind, resize="32", part_bytes=9000)
    before = built_packs.snapshot(tmp_path / "out.pack")
    assert reindex(tmp_path / "out.pack") == []
    assert reindex(tmp_path / "out.pack", check=True) == []
    assert built_packs.snapshot(tmp_path / "out.pack") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.pack"]
    whole = digest(tmp_path / "out.pack")
    every = names(tmp_path / "out.pack")
    for name in every:
        (tmp_path / "out.pack" / name).unlink()
    (tmp_path / "out.pack/index").rmdir()
    assert reindex(tmp_path / "out.pack") == every
    assert digest(tmp_path / "out.pack") == whole
    assert list(problems(tmp_path / "out.pack", level="full")) == []


@pytest.mark.parametrize("name", ["lmdb", "version-2"])
def test_the_index_of_each_version_comes_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    shutil.copytree(make_golden.GOLDEN / name / "pack", tmp_path / "pack")
    before, every = digest(tmp_path / "pack"), names(tmp_path / "pack")
    assert reindex(tmp_path / "pack", check=True) == []
    shutil.rmtree(tmp_path / "pack/index")
    assert reindex(tmp_path / "pack") == every
    assert digest(tmp_path / "pack") == before


def test_a_conversion_of_a_pack_of_version_1_writes_version_2(tmp_path: Path) -> None:
    old = make_golden.GOLDEN / "lmdb/pack"
    packed(old, tmp_path / "new.pack")
    manifest = manifests.read(tmp_path / "new.pack")
    assert (manifests.read(old).version, manifest.version) == (1, 2)
    assert built_packs.values(tmp_path / "new.pack") == built_packs.values(old)
    assert list(problems(tmp_path / "new.pack", level="full")) == []


@pytest.mark.parametrize("parts", [0, 1])
def test_a_pack_without_samples_has_an_index_too(tmp_path: Path, parts: int) -> None:
    built_packs.make_pack(tmp_path / "pack", 0, parts=parts)
    before = digest(tmp_path / "pack")
    (tmp_path / "pack/index/crc32.npy").unlink()
    assert reindex(tmp_path / "pack") == ["index/crc32.npy"]
    assert digest(tmp_path / "pack") == before


def test_every_damaged_file_is_replaced_and_no_other(folder: Path) -> None:
    (folder / "index/mine.npy").write_bytes(b"mine")
    sound = digest(folder)
    before = built_packs.snapshot(folder)
    built_packs.flip(folder / "index/keys.npy", 140)
    os.truncate(folder / "index/crc32.npy", 10)
    (folder / "index/key_order.npy").unlink()
    os.mkfifo(folder / "index/key_order.npy")
    (folder / "index/number-label.npy").unlink()
    (folder / "index/number-label.npy").symlink_to(folder.parent / "elsewhere")
    stale = ["index/crc32.npy", "index/key_order.npy", "index/keys.npy", "index/number-label.npy"]
    damaged = built_packs.snapshot(folder)
    assert reindex(folder, check=True) == stale
    assert built_packs.snapshot(folder) == damaged
    assert os.listdir(folder.parent) == ["pack"]
    assert reindex(folder) == stale
    assert digest(folder) == sound
    after = built_packs.snapshot(folder)
    assert {name for name in before if before[name] != after[name]} - {"index", "."} == set(stale)
    assert not (folder.parent / "elsewhere").exists()


def test_a_manifest_that_names_another_index_is_corrected(folder: Path) -> None:
    """As a faulty version might have written it: consistent in itself, but not what the parts hold."""
    sound = manifests.read(folder)
    wrong = tuple(replace(file, crc32=1, sha256="0" * 64) if file.name == "crc32.npy" else file for file in sound.index)
    (folder / "packer.json").write_bytes(replace(sound, index=wrong).sealed().to_bytes())
    assert reindex(folder) == ["packer.json"]
    assert manifests.read(folder) == sound
    with pytest.raises(InvalidRequest, match="not a pack"):
        reindex(folder.parent)


def test_a_damaged_part_or_manifest_makes_no_index(folder: Path) -> None:
    (folder / "index/keys.npy").unlink()
    part = folder / "part-00001.lmdb"
    built_packs.flip(part, part.stat().st_size // 2)
    for check in (True, False):
        with pytest.raises(CorruptPack, match=r"part-00001\.lmdb: damaged part"):
            reindex(folder, check=check)
    assert not (folder / "index/keys.npy").exists()
    assert sorted(os.listdir(folder.parent)) == ["pack"]
    built_packs.flip(folder / "packer.json", 40)
    with pytest.raises(CorruptPack, match=r"packer\.json: damaged"):
        reindex(folder)


def test_parts_with_one_key_twice_make_no_index(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 2)
    other = [built_packs.record(0), built_packs.record(1, key="sample-00000")]
    folder = tmp_path / "pack"
    manifest = manifests.read(folder)
    (folder / "part-00000.lmdb").unlink()
    built_packs.write_part(folder / "part-00000.lmdb", other)
    data = (folder / "part-00000.lmdb").read_bytes()
    part = replace(manifest.parts[0], samples=2, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    wrong = replace(manifest, parts=(part,)).sealed()
    (folder / "packer.json").write_bytes(wrong.to_bytes())
    with pytest.raises(CorruptPack, match="contradict each other"):
        reindex(folder)


def test_parts_without_keys_make_no_index(tmp_path: Path) -> None:
    schema = replace(
        built_packs.SCHEMA, fields=(replace(built_packs.SCHEMA["key"], name="renamed"), *built_packs.SCHEMA.fields[1:])
    )
    built_packs.make_pack(tmp_path / "pack", [{**built_packs.record(0), "renamed": b"a"}], schema=schema, parts=1)
    with pytest.raises(CorruptPack, match="no field 'key'"):
        reindex(tmp_path / "pack")


def test_an_index_folder_that_is_a_link_is_refused(folder: Path) -> None:
    (folder / "index").rename(folder.parent / "moved")
    (folder / "index").symlink_to(folder.parent / "moved")
    with pytest.raises(InvalidRequest, match="found a link"):
        reindex(folder)


def test_a_pack_that_this_process_reads_is_indexed(folder: Path) -> None:
    pack = Pack(folder)
    with pack.record(0, ("key",)):
        pass
    (folder / "index/keys.npy").unlink()
    assert reindex(folder) == ["index/keys.npy"]
    assert pack.index.key(8) == "sample-00008"
    pack.close()


def test_a_pack_is_named_from_inside_and_through_a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    for name in (Path("."), Path("index/.."), folder.parent / "link"):
        (folder / "index/keys.npy").unlink()
        assert reindex(name) == ["index/keys.npy"]
    assert list(problems(folder)) == []


def test_two_at_once_are_kept_apart_and_leftovers_swept(folder: Path) -> None:
    work = folder.with_name(".pack.index")
    with work_folder(work, index_rebuild.NAMES):
        with pytest.raises(Locked):
            reindex(folder)
        source_trees.write(work, {"piece-0": b"old", "index/keys.npy": b"old"})
    (folder / "index/keys.npy").unlink()
    reindex(folder)
    assert list(problems(folder)) == []
    assert not work.exists()


def test_a_run_that_fails_in_between_is_mended_by_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = digest(folder)
    for name in names(folder):
        built_packs.flip(folder / name, 130)
    real = FolderHandle.replace
    count = 0

    def fail(staged: FolderHandle, name: str, target: FolderHandle, new_name: str) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise StorageError("planted")
        real(staged, name, target, new_name)

    with monkeypatch.context() as patch:
        patch.setattr(FolderHandle, "replace", fail)
        with pytest.raises(StorageError, match="planted"):
            reindex(folder)
    assert sorted(os.listdir(folder.parent)) == ["pack"]
    assert len(reindex(folder)) == len(names(folder)) - 2
    assert digest(folder) == sound


def test_the_command_compares_makes_again_and_says_so(folder: Path) -> None:
    assert run("index", folder, "--check").stdout.endswith("ok\n")
    built_packs.flip(folder / "index/keys.npy", 140)
    bad = run("index", folder, "--check")
    assert bad.returncode == 3
    assert "index/keys.npy: differs from the parts" in bad.stderr
    done = run("index", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "index/keys.npy: made again" in done.stdout
    assert json.loads(run("index", folder, "--json").stdout)["files"] == []
    assert run("verify", folder).returncode == 0
