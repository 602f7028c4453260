"""Collections on disk: kills at every system call, full disks, rivals, and members that are missing or changed."""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.conversion import derived_pack_writer
from packer.errors import CorruptPack, CorruptRecord, InvalidRequest, PackExists, UnknownKey
from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.pack.sample_index import write_array, write_index
from scripts import make_golden
from tests.support import built_packs, fault_injection, hostile_packs
from tests.support.command_line import called
from tests.support.conversions import digest, packed
from tests.support.object_server import ObjectServer
from tests.support.source_trees import photos


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two packs, and a collection of some of their samples."""
    folder = tmp_path_factory.mktemp("pair")
    for name, count in (("a", 9), ("b", 10)):
        packed(photos(folder / f"{name}-photos", count), folder / f"{name}.pack")
    with packer.concat(*(packer.open(folder / f"{name}.pack") for name in "ab"), prefixes=["a/", "b/"]) as both:
        both.where(np.arange(19) % 3 > 0).with_column("score", np.arange(12.0)).save(folder / "c.pack")
    return folder


@pytest.fixture
def pair(original: Path, tmp_path: Path) -> Path:
    """A copy of the folder, which a test may change."""
    return shutil.copytree(original, tmp_path / "pair")


def damages(folder: Path) -> list[str]:
    return list(packer.verify(folder, level="full").problems)


# ---- writing


@pytest.mark.one_in(2)
@pytest.mark.skipif(bool(fault_injection.why_no_strace()), reason=fault_injection.why_no_strace())
@pytest.mark.parametrize("what", ["signal=KILL", "error=ENOSPC"])
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.full)])
def test_a_fault_at_any_call_leaves_no_collection_or_a_whole_one(pair: Path, what: str, step: int) -> None:
    words: list[str | Path] = ["collect", pair / "d.pack", pair / "a.pack", "--sample", "0.5"]
    calls = fault_injection.calls(words, pair)
    shutil.rmtree(pair / "d.pack")
    for call in [call for call in calls if not call.path][::step]:  # a path contains an inode number
        fault = fault_injection.Fault(call, what)
        fault_injection.run(words, pair, fault=fault)
        if (pair / "d.pack").exists():
            assert damages(pair / "d.pack") == [], call
            shutil.rmtree(pair / "d.pack")
    ended = fault_injection.run(words, pair)
    assert ended.code == 0, ended
    assert damages(pair / "d.pack") == []
    assert sorted(path.name for path in pair.iterdir() if path.name.startswith(".")) == []


def test_equal_choices_give_equal_bytes(pair: Path) -> None:
    for name in ("one", "two"):
        packer.open(pair / "a.pack").sample(5).save(pair / f"{name}.pack")
    assert digest(pair / "one.pack") == digest(pair / "two.pack")
    packer.open(pair / "a.pack").sample(5, seed=1).save(pair / "three.pack")
    sources = [manifests.read(pair / f"{name}.pack").options["source"] for name in ("one", "three")]
    assert [each["options"] for each in sources] == [manifests.read(pair / "a.pack").options] * 2
    assert sources[0] != sources[1]


def test_a_pack_of_version_1_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="version 1: packer convert"):
        packer.open(make_golden.GOLDEN / "lmdb/pack").save(tmp_path / "d.pack")
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_kept(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = packer.open(pair / "a.pack").sample(5)
    (pair / "link").symlink_to("nowhere")
    there = {path.name for path in pair.iterdir()}
    for name in ("a.pack", "link"):
        with pytest.raises(PackExists, match="another name"):
            one.save(pair / name)
    assert {path.name for path in pair.iterdir()} == there

    def with_a_rival(*args: Any) -> Any:
        (pair / "d.pack").mkdir(exist_ok=True)
        return write_index(*args)

    with monkeypatch.context() as patch:
        patch.setattr(derived_pack_writer, "write_index", with_a_rival)
        with pytest.raises(PackExists):
            one.save(pair / "d.pack")
    (pair / "d.pack").rmdir()  # it is empty
    one.save(pair / "d.pack")  # over the unfinished work
    one.save(pair / "e.pack")
    assert digest(pair / "d.pack") == digest(pair / "e.pack")
    assert {path.name for path in pair.iterdir()} == {*there, "d.pack", "e.pack"}


def test_a_collection_that_nobody_could_read_is_not_written(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = manifests.read(pair / "a.pack")
    most = max(len(manifests.canonical(each)) for each in (read.options, read.source))
    monkeypatch.setattr(manifests, "MOST_OPTIONS_BYTES", most)
    with pytest.raises(InvalidRequest, match="of options"):
        packer.open(pair / "a.pack").save(pair / "d.pack")
    assert not (pair / "d.pack").exists()


# ---- members


def test_a_collection_moves_with_its_packs(pair: Path) -> None:
    before = [sample["score"] for sample in packer.open(pair / "c.pack")]
    shutil.copytree(pair, pair.with_name("moved"))
    shutil.rmtree(pair)
    moved = packer.open(pair.with_name("moved") / "c.pack")
    assert [sample["score"] for sample in moved] == before
    assert damages(pair.with_name("moved") / "c.pack") == []
    shutil.move(pair.with_name("moved"), pair)


def test_paths_of_members_go_through_no_link(pair: Path) -> None:
    (pair / "one/two").mkdir(parents=True)
    (pair / "link").symlink_to("one/two")
    (pair / "one/link").symlink_to(pair)
    packer.open(pair / "one/link/a.pack").rename(image="photo").save(pair / "link/d.pack")
    packer.open(pair / "link/d.pack").rename(photo="picture").save(pair / "e.pack")
    paths = [manifests.read(pair / name).members[0].path for name in ("one/two/d.pack", "e.pack")]
    assert paths == ["../../../a.pack", "../a.pack"]
    assert packer.open(pair / "e.pack")[0]["picture"].shape == packer.open(pair / "a.pack")[0]["image"].shape


def test_extra_files_are_those_of_the_members(pair: Path) -> None:
    (pair / "a-photos/notes.txt").write_text("one")
    packed(pair / "a-photos", pair / "d.pack")
    assert manifests.read(pair / "d.pack").extras
    packer.open(pair / "d.pack").save(pair / "e.pack")
    assert manifests.read(pair / "e.pack").extras == ()
    assert damages(pair / "e.pack") == []


def test_a_missing_or_another_member_is_named(pair: Path) -> None:
    (pair / "b.pack").rename(pair / "gone.pack")
    with pytest.raises(CorruptPack, match="b.pack is missing"):
        packer.open(pair / "c.pack")
    assert any("b.pack" in line for line in damages(pair / "c.pack"))
    shutil.copytree(pair / "a.pack", pair / "b.pack")
    with pytest.raises(CorruptPack, match="b.pack.*another"):
        packer.open(pair / "c.pack")


def test_a_collection_of_a_grown_pack_keeps_its_samples(pair: Path) -> None:
    before = {each["key"]: each["image"] for each in packer.open(pair / "c.pack")}
    chosen = packer.open(pair / "b.pack").with_column("score", np.arange(10.0))
    packer.append(pair / "b.pack", renamed(photos(pair / "more", 12)))
    after = {each["key"]: each["image"] for each in packer.open(pair / "c.pack")}
    assert before.keys() == after.keys()
    assert all((after[key] == image).all() for key, image in before.items())
    assert damages(pair / "c.pack") == []
    chosen.close()
    assert [each["score"] for each in chosen] == list(range(10))


def renamed(folder: Path) -> Path:
    """Return the folder of images after all of them got other names."""
    for path in sorted(folder.rglob("*.jpg")):
        path.rename(path.with_name(f"new-{path.name}"))
    return folder


@pytest.mark.parametrize("step", [61, pytest.param(7, marks=pytest.mark.full)])
def test_every_flipped_byte_of_a_collection_is_noticed(pair: Path, step: int) -> None:
    reference = [(each["key"], each["score"]) for each in packer.open(pair / "c.pack")]
    for path in sorted((pair / "c.pack").rglob("*")):
        for at in range(0, path.stat().st_size if path.is_file() else 0, step):
            built_packs.flip(path, at, 1 << (at % 8))
            try:
                opened = packer.open(pair / "c.pack")
                found = [(each["key"], each["score"]) for each in opened]
                assert found == reference
                assert damages(pair / "c.pack") or not found
            except (CorruptPack, InvalidRequest):
                pass
            built_packs.flip(path, at, 1 << (at % 8))
    assert damages(pair / "c.pack") == []


def test_a_damaged_part_of_a_member_is_never_a_wrong_sample(pair: Path) -> None:
    part = next((pair / "a.pack").glob("part-*"))
    sound = {each["key"]: each["image"] for each in packer.open(pair / "c.pack")}
    for at in range(0, part.stat().st_size, 997):
        built_packs.flip(part, at, 1)
        try:
            for each in packer.open(pair / "c.pack"):
                assert (each["image"] == sound[each["key"]]).all()
        except CorruptPack:
            pass
        built_packs.flip(part, at, 1)


# ---- hostile collections


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "absolute path": lambda data: data["members"][0].update(path="/etc"),
    "no path": lambda data: data["members"][0].update(path=""),
    "itself": lambda data: data["members"][0].update(path="."),
    "a link above": lambda data: data["members"][0].update(path="../" * 40 + "proc/self/root"),
    "another id": lambda data: data["members"][0].update(pack_id="0" * 64),
    "another count": lambda data: data["members"][0].update(samples=1),
    "an unknown field": lambda data: data["members"][0].update(names={"image": "nothing"}),
    "names that are no texts": lambda data: data["members"][0].update(names={"image": 3}),
    "parts, too": lambda data: data.update(
        parts=[{"name": "part-00000", "samples": 12, "bytes": 1, "sha256": "0" * 64}]
    ),
    "a format with parts": lambda data: data.update(format="lmdb"),
    "no members": lambda data: data.update(members=[]),
    "a list of members of itself": lambda data: data["members"].append([]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_collection_is_refused(pair: Path, what: str) -> None:
    hostile_packs.in_manifest(HOSTILE[what])(pair / "c.pack")
    with pytest.raises((CorruptPack, CorruptRecord, InvalidRequest, UnknownKey)):
        [each for each in packer.open(pair / "c.pack")]
    assert damages(pair / "c.pack")


def test_rows_outside_the_members_are_refused(pair: Path) -> None:
    path = pair / "c.pack" / "index" / "rows.npy"
    path.unlink()
    entry = write_array(path, "<u8", (12,), [np.full(12, 1 << 40, "<u8")])
    old = manifests.read(pair / "c.pack")
    files = tuple(entry if file.name == entry.name else file for file in old.index)
    (pair / "c.pack" / manifests.NAME).write_bytes(replace(old, index=files).sealed().to_bytes())
    with pytest.raises(CorruptPack, match="outside"):
        Pack(pair / "c.pack")


# ---- other commands


def test_commands_that_need_parts_refuse_a_collection(pair: Path) -> None:
    for words in (["index"], ["stage", "--to", pair / "staged"]):
        ended = fault_injection.run([words[0], pair / "c.pack", *words[1:]], pair)
        assert ended.code == 2, ended
        assert "a collection" in ended.text
    assert damages(pair / "c.pack") == []


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_collection_converts_to_a_pack_of_the_same_samples(pair: Path, is_saved: bool) -> None:
    one = packer.open(pair / "c.pack")
    chosen = one.where("score > 3").rename(image="photo").with_column("score", np.arange(8.0) / 2)
    if is_saved:
        chosen.save(pair / "d.pack")
    packer.convert(pair / "d.pack" if is_saved else chosen, pair / "flat.pack", to="hdf5")
    check_flat(chosen, pair / "flat.pack")
    source = manifests.read(pair / "flat.pack").options["source"]
    ids = [manifests.read(pair / name).pack_id for name in (["d.pack"] if is_saved else ["a.pack", "b.pack"])]
    assert source["pack_id"] == "+".join(ids)


def check_flat(one: Any, flat: Path) -> None:
    other = packer.open(flat)
    assert len(other) == len(one)
    for at, expected in enumerate(one):
        found = other[other.index_of(one.key(at))]
        assert found.keys() == expected.keys()
        assert all(
            (found[name] == expected[name]).all() if name == "photo" else found[name] == expected[name]
            for name in found
        )
    assert damages(flat) == []


def test_the_command_line_tells_members_and_adds_classes(pair: Path) -> None:
    first, second = list(packer.open(pair / "a.pack").keys())[:2]
    (pair / "drop.txt").write_text(f"{first} \n\n")
    (pair / "keys.txt").write_text(f"{second}\t\n{first}\r\n")
    (pair / "new.csv").write_text(f"key,label\n{second},mug\n")
    called("collect", pair / "d.pack", pair / "a.pack", "--drop", pair / "drop.txt", "--rename", "image=photo")
    one = packer.open(pair / "d.pack").rename(photo="image")
    packer.concat(one, packer.open(pair / "a.pack"), prefixes=["d/", ""]).save(pair / "e.pack")
    assert [line.split()[1:4] for line in called("info", pair / "e.pack").stdout.splitlines()[2:4]] == [
        ["8", "of", "9"],
        ["9", "of", "9"],
    ]
    assert "photo is its image" in called("info", pair / "d.pack").stdout
    label = ["--column", f"label={pair / 'new.csv'}"]
    words: list[object] = ["collect", pair / "f.pack", pair / "a.pack", "--keys", pair / "keys.txt"]
    assert "--new-class" in str(called(*words, *label).exception)
    assert "--column label=FILE" in str(called(*words, "--new-class", "label=mug").exception)
    called(*words, *label, "--new-class", "label=mug")
    chosen = packer.open(pair / "f.pack")
    assert [chosen.classes[number] for number in chosen.targets][0] == "mug"
    assert list(chosen.keys()) == [second, first]


def test_the_text_of_a_dataset_names_its_packs(pair: Path) -> None:
    a, b = (packer.open(pair / f"{name}.pack") for name in "ab")
    assert f"{str(pair / 'a.pack')!r}: 4 of 9 samples" in repr(a.sample(4))
    both = repr(packer.concat(a, b, prefixes=["a/", "b/"]))
    assert f"{str(pair / 'a.pack')!r}, {str(pair / 'b.pack')!r}: 19 samples" in both
    assert f"{str(pair / 'c.pack')!r}: 12 samples" in repr(packer.open(pair / "c.pack"))


# ---- URLs


@pytest.fixture
def remote(pair: Path, object_server: ObjectServer) -> Path:
    """The folder of `pair`, whose packs are behind the URL s3://b/set, too."""
    for name in ("a.pack", "b.pack", "c.pack"):
        object_server.put_folder(pair / name, f"set/{name}/")
    (pair / "cache").mkdir()
    return pair


def scores(dataset: Any) -> list[Any]:
    return [(each["key"], each["score"], each["image"].numpy().tobytes()) for each in dataset]


def test_packs_behind_urls_are_members(remote: Path) -> None:
    cache = remote / "cache"
    a, b = (packer.open(f"s3://b/set/{name}.pack", cache=cache) for name in "ab")
    both = packer.concat(a, b, prefixes=["a/", "b/"])
    chosen = both.where(np.arange(19) % 3 > 0).with_column("score", np.arange(12.0))
    assert scores(pickle.loads(pickle.dumps(chosen))) == scores(packer.open(remote / "c.pack"))
    chosen.save(remote / "d.pack")
    assert [member.path for member in manifests.read(remote / "d.pack").members] == [
        "s3://b/set/a.pack",
        "s3://b/set/b.pack",
    ]
    shutil.rmtree(cache)
    cache.mkdir()
    saved = packer.open(remote / "d.pack", cache=cache)
    assert scores(saved) == scores(packer.open(remote / "c.pack"))
    assert list(packer.Loader(saved.with_(fields=["key"]), 5, num_workers=1))[0]["key"] == list(saved.keys())[:5]
    packer.convert(saved, remote / "flat.pack")
    assert scores(packer.open(remote / "flat.pack")) == scores(saved)


def test_a_collection_behind_a_url_finds_its_packs_next_to_it(remote: Path) -> None:
    opened = packer.open("s3://b/set/c.pack", cache=remote / "cache")
    assert scores(opened) == scores(packer.open(remote / "c.pack"))
    part = opened.where("score < 3").with_(fields=["key"])
    assert [batch["key"] for batch in packer.Loader(part, 2)] == [list(part.keys())[:2], list(part.keys())[2:]]


def test_members_behind_urls_are_refused_without_a_cache_or_as_other_packs(
    remote: Path, object_server: ObjectServer
) -> None:
    a = packer.open("s3://b/set/a.pack", cache=remote / "cache")
    a.sample(4).save(remote / "d.pack")
    for call in (packer.open, packer.verify):
        with pytest.raises(InvalidRequest, match="cache="):
            call(remote / "d.pack")
    with pytest.raises(InvalidRequest, match="leave them out"):
        packer.open(remote / "c.pack", cache=remote / "cache")
    object_server.put_folder(remote / "b.pack", "set/a.pack/")
    with pytest.raises(CorruptPack, match="another pack"):
        packer.open(remote / "d.pack", cache=remote / "cache")
    HOSTILE["a link above"](data := json.loads((remote / "c.pack" / manifests.NAME).read_bytes()))
    del data["sha256"]
    object_server.put("set/c.pack/packer.json", manifests.hashed(data))
    with pytest.raises(InvalidRequest, match="between the slashes"):
        packer.open("s3://b/set/c.pack", cache=remote / "cache")
