"""Copies of packs with their images in another codec: what is in them, who gets them, and what stops their making."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import packer
from packer import formats
from packer.conversion import build_part, plan
from packer.copies import capacity, recoded_copy
from packer.copies.capacity import SpaceKept
from packer.copies.leased_folder import OwnedFolder
from packer.copies.recoded_copy import stage_recoded
from packer.copies.staged_copies import StagedCopy, copies, copies_of
from packer.copies.stager import Hooks, Staged, StageOptions, stage
from packer.errors import BadInputs, CorruptPack, InvalidRequest, Locked, StorageError
from packer.pack import manifest as manifests
from packer.pack.derived_pack import FolderRecipe
from packer.pack.verification import problems
from packer.system.machine_limits import Machine
from tests.support import built_packs, fault_injection, source_trees
from tests.support.command_line import run, run_here
from tests.support.conversions import digest, packed
from tests.support.small_disks import mounted, resize
from tests.support.source_trees import photos

CODEC = "ycc420"


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of twelve images in some parts."""
    packed(photos(tmp_path / "in", 12), tmp_path / "a.pack", part_bytes=9000)
    assert [part.samples for part in manifests.read(tmp_path / "a.pack").parts] == [5, 5, 2]
    return tmp_path / "a.pack"


def options(base: Path) -> StageOptions:
    """Into that folder, nothing kept for others."""
    return StageOptions(str(base), keep=SpaceKept())


def staged(pack: Path, base: Path, codec: str = CODEC, **hooks: Any) -> Staged:
    return stage_recoded(pack, codec, options(base), Hooks(**hooks))


def copied(pack: Path, base: Path, codec: str | None = CODEC) -> StagedCopy:
    """The copy of a pack, which need not be there."""
    return StagedCopy.of(OwnedFolder(base), manifests.read(pack), codec)


def converted(pack: Path, target: Path, codec: str = CODEC) -> Path:
    images = [field.name for field in manifests.read(pack).schema if field.kind == "image"]
    form = manifests.read(pack).format
    packer.convert(pack, target, to=form, codecs=dict.fromkeys(images, codec), order="stored")
    return target


# ---- what is in it


@pytest.mark.one_in(12)
@pytest.mark.parametrize("format", formats.names())
def test_its_records_are_those_of_convert_and_it_is_made_once(tmp_path: Path, base: Path, format: str) -> None:
    pack = tmp_path / "a"
    packed(photos(tmp_path / "in", 9), pack, to=format, part_bytes=9000)
    first = staged(pack, base)
    assert (first.how, first.path) == ("recoded", copied(pack, base).folder)
    assert first.parts == len(manifests.read(first.path).parts) > 1
    assert first.copied_bytes == sum(path.stat().st_size for path in first.path.rglob("*") if path.is_file())
    assert built_packs.values(first.path) == built_packs.values(converted(pack, tmp_path / "b"))
    assert list(problems(first.path, level="full")) == []
    before = built_packs.snapshot(base)
    again = staged(pack, base)
    assert (again.how, again.path, again.parts, again.copied_bytes) == ("there", first.path, first.parts, 0)
    assert built_packs.snapshot(base) == before
    assert sorted(os.listdir(first.path.parent))[:2] == [first.path.name, f"{first.path.name}.origin"]


def test_a_codec_of_two_arguments_names_a_copy(base: Path, pack: Path) -> None:
    codec = "jpeg:95:444"
    assert staged(pack, base, codec).how == "recoded"
    assert [copy.codec for copy in copies(OwnedFolder(base))] == [codec]
    with packer.open(pack, stage=base, stage_as=codec) as dataset:
        assert dataset.schema["image"].codec == codec


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [None, "40", "48x32"])
def test_all_but_images_stays_to_the_bit(tmp_path: Path, base: Path, size: str | None) -> None:
    packed(source_trees.BUILDERS["jacquard"](tmp_path / "in"), tmp_path / "a", kind="jacquard", resize=size)
    copy = staged(tmp_path / "a", base).path
    old, new = manifests.read(tmp_path / "a"), manifests.read(copy)
    images = {field.name for field in old.schema if field.kind == "image"}
    assert {"depth", "mask"} & {field.kind for field in old.schema}
    assert [field.codec for field in new.schema if field.name in images] == [CODEC] * len(images)
    for before, after in zip(built_packs.values(tmp_path / "a"), built_packs.values(copy), strict=True):
        assert {name for name in after if after[name] != before[name]} == images
    assert built_packs.values(copy) == built_packs.values(converted(tmp_path / "a", tmp_path / "b"))
    assert (new.source, new.incomplete, new.extras) == (old.source, old.incomplete, old.extras)


def test_what_is_raw_is_recoded_and_what_is_in_the_codec_is_refused(tmp_path: Path, base: Path, pack: Path) -> None:
    raw = converted(pack, tmp_path / "raw", "raw")
    assert built_packs.values(staged(raw, base).path) == built_packs.values(converted(raw, tmp_path / "b"))
    planar = converted(pack, tmp_path / "planar")
    with pytest.raises(InvalidRequest, match="ycc420 already"):
        staged(planar, base)
    built_packs.make_pack(tmp_path / "none")
    with pytest.raises(InvalidRequest, match="no field"):
        staged(tmp_path / "none", base)
    with pytest.raises(InvalidRequest, match="bytes of files"):
        staged(raw, base, "encoded")


# ---- who gets it


def test_a_data_set_gets_it_where_it_names_the_codec(
    tmp_path: Path, base: Path, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer.copies.staged_copies.Machine", lambda: Machine(shared_memory=base))
    own = [packer.open(pack)[index]["image"] for index in range(12)]
    with pytest.raises(InvalidRequest, match="packer stage.*--as ycc420$"):
        packer.open(pack, stage="auto", stage_as=CODEC)
    staged(pack, base)
    planes = packer.open(converted(pack, tmp_path / "b"))
    dataset = packer.open(pack, stage="auto", stage_as=CODEC)
    found = [dataset[index]["image"] for index in range(12)]
    assert all(torch.equal(planes[index]["image"], found[index]) for index in range(12))
    assert not all(torch.equal(*pair) for pair in zip(found, own, strict=True))
    assert f"read as ycc420 from {copied(pack, base).folder}" in repr(dataset)
    assert dataset.path == pack
    for unasked in (packer.open(pack, stage="auto"), packer.open(pack)):
        assert all(torch.equal(unasked[index]["image"], own[index]) for index in range(12))
        assert "read as" not in repr(unasked)
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[11]["image"], found[11])
    loader = DataLoader(dataset, batch_size=4, num_workers=2)
    assert torch.equal(torch.cat([batch["image"] for batch in loader]), torch.stack(found))
    for wrong in ({"stage": None}, {"stage_as": "../.."}, {"stage_as": "raw"}, {"stage": base / "none"}):
        with pytest.raises(InvalidRequest):
            packer.open(pack, **{"stage": "auto", "stage_as": CODEC, **wrong})  # type: ignore[arg-type]


def test_another_pack_in_the_place_of_the_original_has_no_copy(tmp_path: Path, base: Path, pack: Path) -> None:
    old = staged(pack, base).path
    plain = stage(pack, options(base), Hooks()).path
    shutil.rmtree(pack)
    packed(photos(tmp_path / "other", 5), pack)
    with pytest.raises(InvalidRequest, match="no copy.*ycc420"):
        packer.open(pack, stage=base, stage_as=CODEC)
    done = staged(pack, base)
    assert sum("removed" in note for note in done.notes) == 2
    assert (old.exists(), plain.exists()) == (False, False)
    assert [copy.folder for copy in copies(OwnedFolder(base))] == [done.path]
    packed(photos(tmp_path / "third", 4), tmp_path / "third.pack")
    shutil.copytree(done.path, copied(tmp_path / "third.pack", base).folder)
    with pytest.raises(CorruptPack, match="not made of"):
        packer.open(tmp_path / "third.pack", stage=base, stage_as=CODEC)


def test_it_is_not_released_under_a_reader(base: Path, pack: Path) -> None:
    def released(codec: str) -> int:
        place = OwnedFolder(base)
        with place.locked(None):
            return sum(copy.remove() for copy in copies_of(place, pack, codec))

    size = staged(pack, base).copied_bytes
    plain = stage(pack, options(base), Hooks())
    dataset = packer.open(pack, stage=base, stage_as=CODEC)
    first = dataset[0]["image"]
    with pytest.raises(Locked, match="--force"):
        released(CODEC)
    assert torch.equal(dataset[0]["image"], first)
    dataset.close()
    assert released(CODEC) == size
    assert [copy.folder for copy in copies(OwnedFolder(base))] == [plain.path]
    with pytest.raises(InvalidRequest, match="no copy.*ycc420"):
        packer.open(pack, stage=base, stage_as=CODEC)


def test_a_copy_that_is_cut_is_made_again(base: Path, pack: Path) -> None:
    copy = staged(pack, base).path
    clean = digest(copy)
    with (copy / "part-00001.lmdb").open("r+b") as file:
        file.truncate(4096)
    with pytest.raises(CorruptPack, match="part is cut"):
        packer.open(pack, stage=base, stage_as=CODEC)
    assert staged(pack, base).how == "recoded"
    assert digest(copy) == clean


# ---- what stops its making


class _Stop(KeyboardInterrupt):
    """Ctrl-C."""


def stopped(pack: Path, base: Path, samples: int) -> None:
    """A staging that is interrupted after so many samples."""
    done = 0

    def progress(count: int, _: int) -> None:
        nonlocal done
        done += count
        if done >= samples:
            raise _Stop

    with pytest.raises(_Stop):
        staged(pack, base, progress=progress)


def test_an_interrupted_one_goes_on_part_by_part(
    tmp_path: Path, base: Path, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = digest(staged(pack, base).path)
    shutil.rmtree(base / f"packer-{os.geteuid()}")
    stopped(pack, base, 9)
    (copy,) = copies(OwnedFolder(base))
    assert (copy.codec, copy.origin(), copy.folder.exists()) == (CODEC, pack, False)
    described = copy.describe()
    assert described["whole"] is False
    assert described["parts"] == 1
    assert described["bytes"] > 0
    written = []
    original = build_part.write_part

    def counted(*given: Any, **named: Any) -> Any:
        written.append(given[1])
        return original(*given, **named)

    monkeypatch.setattr("packer.conversion.pack_build.write_part", counted)
    done = staged(pack, base)
    assert written == [1, 2]
    assert digest(done.path) == clean
    left = [path.name for path in done.path.parent.iterdir() if not path.name.startswith("made-by-")]
    assert sorted(left) == [done.path.name, f"{done.path.name}.origin"]


def test_what_another_packer_has_begun_is_begun_anew(base: Path, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plan, "__version__", "0.0.9")
        stopped(pack, base, 9)
    assert staged(pack, base).how == "recoded"


def test_an_interrupted_one_is_released(base: Path, pack: Path) -> None:
    stopped(pack, base, 9)
    assert "0 parts" not in run_here("stage", "--list", "--to", base).stdout
    assert json.loads(run_here("stage", pack, "--release", "--to", base, "--json").stdout)["released"] == 1
    assert os.listdir(base) == []
    stopped(pack, base, 9)
    packed_anew = manifests.read(pack)
    shutil.rmtree(pack)
    packed(photos(pack.with_name("other"), 5), pack)
    assert manifests.read(pack) != packed_anew
    done = staged(pack, base)
    assert [copy.folder for copy in copies(OwnedFolder(base))] == [done.path]
    assert not [name for name in os.listdir(done.path.parent) if name.startswith(".")]


def test_one_that_was_killed_before_its_last_step_is_tidied(base: Path, pack: Path) -> None:
    stopped(pack, base, 9)
    partial = copied(pack, base).partial
    kept = partial.with_name("kept")
    partial.rename(kept)
    done = staged(pack, base)
    kept.rename(partial)
    assert (staged(pack, base).how, partial.exists()) == ("there", False)
    assert copied(pack, base).origin() == pack
    assert list(problems(done.path)) == []


def test_a_damaged_pack_is_not_staged(base: Path, pack: Path) -> None:
    part = pack / manifests.read(pack).parts[1].name
    at = part.read_bytes().index(b"\xff\xd8\xff")
    built_packs.flip(part, at + 700)
    with pytest.raises(BadInputs, match="damaged record"):
        staged(pack, base)
    assert os.listdir(base) == []


def test_room_is_looked_for_before_and_on_the_way(base: Path, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="does not fit.*nothing"):
        stage_recoded(pack, CODEC, StageOptions(str(base), keep=SpaceKept(bytes=1 << 60)), Hooks())
    assert os.listdir(base) == []
    asked: list[int] = []
    original = capacity.check

    def less(place: Path, need: capacity.SpaceNeeded, *given: Any, advice: str) -> None:
        asked.append(need.bytes)
        keep = SpaceKept(bytes=1 << 60) if len(asked) == 3 else SpaceKept()
        original(place, need, keep, given[1], advice=advice)

    monkeypatch.setattr(recoded_copy.capacity, "check", less)
    with pytest.raises(StorageError, match="not staged.*removed"):
        staged(pack, base)
    assert os.listdir(base) == []
    assert len(asked) == 3  # before anything is written, after 5 samples, after 10
    assert asked[0] > asked[1] > asked[2]


def test_a_pack_that_takes_the_place_while_it_is_opened_is_not_staged(
    tmp_path: Path, base: Path, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(photos(tmp_path / "other", 5), tmp_path / "b.pack")
    opened = recoded_copy.PackSource
    monkeypatch.setattr(recoded_copy, "PackSource", lambda _: opened(FolderRecipe(tmp_path / "b.pack")))
    with pytest.raises(CorruptPack, match="replaced"):
        staged(pack, base)
    assert os.listdir(base) == []


@pytest.mark.full
def test_a_tmpfs_that_is_full(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in", 60, height=120, width=160), tmp_path / "a.pack", part_bytes=40_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    words: list[str | Path] = ["stage", tmp_path / "a.pack", "--to", disk, "--leave-free", "0", "--as", CODEC]

    def others_take_it() -> None:
        fault_injection.in_one_thread()
        capacity.check = lambda *_, **__: None
        recoded_copy.convert_source.__globals__["ConversionRun"].check_space = lambda _: None

    def work() -> dict[str, Any]:
        resize(disk, 1 << 20)
        refused = fault_injection.run(words, tmp_path)
        refused_left = os.listdir(disk)
        full = fault_injection.run(words, tmp_path, prepare=others_take_it)
        full_left = os.listdir(disk)
        resize(disk, 4 << 20)
        done = fault_injection.run(words, tmp_path)
        return {
            "refused": [refused.code, "nothing was written" in refused.text, refused_left],
            "full": [full.code, "not staged as ycc420" in full.text, full_left],
            "done": [done.code, len(list(copies(OwnedFolder(disk))))],
        }

    outcome = mounted(disk, work)
    assert outcome.value == {"refused": [4, True, []], "full": [4, True, []], "done": [0, 1]}, outcome


# ---- the command


def test_the_command_says_what_it_did(base: Path, pack: Path) -> None:
    to = ["--to", base, "--leave-free", "0", "--as", CODEC]
    first = run("stage", pack, *to)
    assert (first.returncode, first.stdout) == (0, f"{copied(pack, base).folder}\n")
    assert "recoded: " in first.stderr
    data = json.loads(run_here("stage", pack, *to, "--json").stdout)
    assert (data["how"], data["copied_bytes"], data["path"]) == ("there", 0, first.stdout[:-1])
    (listed,) = json.loads(run_here("stage", "--list", "--to", base, "--json").stdout)
    assert (listed["origin"], listed["codec"], listed["whole"]) == (str(pack), CODEC, True)
    assert f"whole, as ycc420, of {pack}" in run_here("stage", "--list", "--to", base).stdout
    assert (
        json.loads(run_here("stage", pack, "--release", "--as", "raw", "--to", base, "--json").stdout)["released"] == 0
    )
    assert (
        json.loads(run_here("stage", pack, "--release", "--as", CODEC, "--to", base, "--json").stdout)["released"] == 1
    )
    assert os.listdir(base) == []
    for words in (["--parts", "0"], ["--warm"], ["--list"]):
        wrong = run_here("stage", pack, *to, *words)
        assert (wrong.returncode, "--as excludes" in wrong.stderr) == (2, True)
    unknown = run_here("stage", pack, "--to", base, "--as", "none")
    assert (unknown.returncode, "unknown codec" in unknown.stderr) == (2, True)
