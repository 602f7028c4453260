"""Append: the pack holds the old and the new samples, what is open keeps the old ones, and nothing else changes."""

import importlib
import os
import pickle
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import packer
from packer import formats
from packer.conversion import encode
from packer.conversion.append import append
from packer.errors import BadInputs, CorruptPack, Interrupted, InvalidRequest
from packer.pack import manifest as manifests
from packer.pack.index_rebuild import reindex
from packer.pack.sample_index import file_forms
from packer.pack.verification import problems
from tests.support import built_packs, source_trees
from tests.support.command_line import called
from tests.support.command_runs import load_everything
from tests.support.conversions import digest, packed
from tests.support.fault_injection import Run
from tests.support.source_trees import photos

_PART = 5000
_SIZED = {"resize": "16x16"}  # all formats take images of one size


def two_days(folder: Path, *, first: int = 9, count: int = 12) -> tuple[Path, Path]:
    """The photos of two days, in two folders with keys of their own."""
    photos(folder / "all", count)
    for path in (folder / "all").rglob("*.jpg"):
        target = folder / ("one" if int(path.stem) < first else "two") / path.relative_to(folder / "all")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return folder / "one", folder / "two"


def by_key(pack: Path) -> dict[bytes, dict[str, bytes]]:
    return {record["key"]: record for record in built_packs.values(pack)}


def state(pack: Path) -> tuple[str, list[str]]:
    return digest(pack), sorted(os.listdir(pack.parent))


# ---- every format


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", formats.names())
def test_the_pack_holds_what_one_conversion_of_all_holds(tmp_path: Path, format: str) -> None:
    one, two = two_days(tmp_path)
    options = {"to": format, "part_bytes": _PART, **_SIZED}
    packed(tmp_path / "all", tmp_path / "whole", **options)
    packed(one, tmp_path / "out", **options)
    old_parts = {part.name: part.sha256 for part in manifests.read(tmp_path / "out").parts}
    summary = append(tmp_path / "out", two)
    assert (summary.appended, summary.samples) == (3, 12)
    assert by_key(tmp_path / "out") == by_key(tmp_path / "whole")
    found = manifests.read(tmp_path / "out")
    assert old_parts.items() < {part.name: part.sha256 for part in found.parts}.items()
    assert summary.pack_id == found.pack_id
    assert list(problems(tmp_path / "out", level="full")) == []
    assert reindex(tmp_path / "out", check=True) == []
    after = state(tmp_path / "out")
    assert append(tmp_path / "out", tmp_path / "all").appended == 0
    assert state(tmp_path / "out") == after
    assert after[1] == ["all", "one", "out", "two", "whole"]
    packer.convert(tmp_path / "out", tmp_path / "again", to=format, order="stored")
    assert by_key(tmp_path / "again") == by_key(tmp_path / "whole")


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", formats.names())
def test_equal_input_gives_equal_bytes_and_a_pack_grows_again(tmp_path: Path, format: str) -> None:
    one, two = two_days(tmp_path)
    three = photos(tmp_path / "three", 14)
    packed(one, tmp_path / "a", to=format, **_SIZED)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for pack, threads in ((tmp_path / "a", 1), (tmp_path / "b", 2)):
        append(pack, two, threads=threads)
        assert append(pack, three, threads=threads).appended == 2
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert [part.samples for part in manifests.read(tmp_path / "a").parts] == [9, 3, 2]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", formats.names())
def test_what_is_open_keeps_its_samples(tmp_path: Path, format: str) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out", to=format, part_bytes=3000, **_SIZED)
    before = packer.open(tmp_path / "out")
    touched, untouched = packer.open(tmp_path / "out"), packer.open(tmp_path / "out", verify="never")
    want = [before[index]["image"] for index in range(9)]
    touched[0], untouched[0]  # the other parts are opened after the swap
    before.close()
    append(tmp_path / "out", two)
    for dataset in (touched, untouched):
        assert len(dataset) == 9
        assert all((dataset[index]["image"] == want[index]).all() for index in range(9))
    fresh = packer.open(tmp_path / "out")
    assert len(fresh) == 12
    assert all((fresh[index]["image"] == want[index]).all() for index in range(9))


@pytest.mark.parametrize("format", ["lmdb", "bmp"])
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_workers_that_start_after_the_swap_read_the_old_samples(tmp_path: Path, format: str, method: str) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out", to=format, part_bytes=3000, **_SIZED)
    dataset = packer.open(tmp_path / "out")
    want = [dataset[index]["key"] for index in range(9)]
    append(tmp_path / "out", two)
    assert [sample["key"] for sample in pickle.loads(pickle.dumps(dataset))] == want
    loader = DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=method)
    assert [key for batch in loader for key in batch["key"]] == want
    packed(one, tmp_path / "other", to=format, resize="8x8")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "other").rename(tmp_path / "out")
    with pytest.raises(CorruptPack, match="replaced"):
        list(loader)


def test_a_converted_copy_is_not_what_a_dataset_was_opened_on(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    dataset = packer.open(tmp_path / "out")
    append(tmp_path / "out", two)
    packer.convert(packer.open(tmp_path / "out"), tmp_path / "copy")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "copy").rename(tmp_path / "out")
    dataset.close()
    with pytest.raises(CorruptPack, match="replaced"):
        dataset[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("format", ["lmdb", "bmp"])
def test_old_parts_are_links_or_copies_where_links_are_refused(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "a", to=format)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "a").rglob("*") if path.is_file()}
    append(tmp_path / "a", two)
    parts = [path for path in (tmp_path / "a").rglob("*") if path.is_file() and "part-00000" in str(path)]
    assert parts
    assert all(path.stat().st_ino == inodes[path.name] and path.stat().st_nlink == 1 for path in parts)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    append(tmp_path / "b", two)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


# ---- what is new


def test_a_sample_with_other_content_is_refused_by_its_key(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    shutil.copytree(one, tmp_path / "mixed")
    shutil.copytree(two, tmp_path / "mixed", dirs_exist_ok=True)
    (tmp_path / "mixed/class0/0000.jpg").write_bytes(source_trees.image(99, suffix=".jpg", height=24, width=32))
    before = state(tmp_path / "out")
    with pytest.raises(BadInputs, match="other content") as caught:
        append(tmp_path / "out", tmp_path / "mixed")
    assert len(caught.value.reasons) == 1
    assert "class0/0000.jpg" in caught.value.reasons[0]
    assert "image" in caught.value.reasons[0]
    assert state(tmp_path / "out") == before
    result = called("append", tmp_path / "out", one)
    assert result.exit_code == 0, result
    assert "nothing to append" in result.stdout


def test_known_images_that_are_kept_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    full: list[bool] = []
    real = encode.images.validate

    def validate(*values: Any, **options: Any) -> None:
        full.append(options["full"])
        real(*values, **options)

    monkeypatch.setattr(encode.images, "validate", validate)
    append(tmp_path / "out", tmp_path / "all", threads=1)
    assert full == [False] * 9 + [True] * 3


def test_a_skipped_sample_that_was_repaired_is_skipped_no_longer(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    whole = (root / "class0/0003.jpg").read_bytes()
    (root / "class0/0003.jpg").write_bytes(whole[:200])
    (root / "class1/0001.jpg").write_bytes(b"")
    packed(root, tmp_path / "out", on_error="skip")
    (root / "class0/0003.jpg").write_bytes(whole)
    summary = append(tmp_path / "out", root)
    assert summary.appended == 1
    found = manifests.read(tmp_path / "out")
    assert [key for key, _ in found.skipped] == ["class1/0001.jpg"]
    assert packer.open(tmp_path / "out")[4]["key"] == "class0/0003.jpg"


def test_bad_files_leave_the_pack_as_it_is(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    next(two.rglob("*.jpg")).write_bytes(b"\xff\xd8\xff")
    before = state(tmp_path / "out")
    with pytest.raises(BadInputs, match="1 of 3"):
        append(tmp_path / "out", two)
    assert state(tmp_path / "out") == before


# ---- fields and classes


def test_classes_are_matched_by_name_and_new_ones_come_last(tmp_path: Path) -> None:
    image = source_trees.image(1, suffix=".jpg")
    one = source_trees.write(tmp_path / "one", {"cat/1.jpg": image, "dog/2.jpg": image})
    two = source_trees.write(tmp_path / "two", {"ant/3.jpg": image, "dog/4.jpg": image})
    packed(one, tmp_path / "out")
    notes: list[str] = []
    append(tmp_path / "out", two, on_note=notes.append)
    dataset = packer.open(tmp_path / "out")
    assert dataset.schema["label"].classes == ("cat", "dog", "ant")
    assert [sample["label"] for sample in dataset] == [0, 1, 2, 1]
    assert any("1 class that the pack does not have yet: ant" in note for note in notes)
    with pytest.raises(packer.errors.BadInput, match="--classes-from"):
        append(
            tmp_path / "out", source_trees.write(tmp_path / "x", {"bee/5.jpg": image}), classes_from=tmp_path / "out"
        )


def test_splits_are_matched_by_name(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packer.convert(one, tmp_path / "out", splits={"train": 0.5, "val": 0.5})
    with pytest.raises(InvalidRequest, match="field 'split'.*source does not"):
        append(tmp_path / "out", two)
    append(tmp_path / "out", two, splits={"val": 1})
    dataset = packer.open(tmp_path / "out")
    assert dataset.splits == ("train", "val")
    assert [sample["split"] for sample in dataset][9:] == [1, 1, 1]
    assert len(packer.open(tmp_path / "out", split="train")) == 4
    with pytest.raises(InvalidRequest, match="--seed is for"):
        append(tmp_path / "out", two, seed=3)


def test_a_field_that_differs_is_named_with_both_values(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out", codecs=(("image", "jpeg:90"),), to="hdf5", resize="16x16")
    with pytest.raises(InvalidRequest, match="field 'label'.*source does not"):
        append(tmp_path / "out", two, folders="none")
    packed(one, tmp_path / "flat", fields=("image",))
    assert append(tmp_path / "flat", two).appended == 3  # the fields are those of the pack
    packed(one, tmp_path / "raw", to="n5")
    small = photos(tmp_path / "small", 3, height=20, width=20)
    (small / "class0/0000.jpg").rename(small / "class0/new.jpg")
    with pytest.raises(InvalidRequest, match=r"field 'image': .*\[20, 20, 3\].*\[24, 32, 3\]"):
        append(tmp_path / "raw", small)


def test_masks_with_other_classes_are_refused(tmp_path: Path) -> None:
    mask = source_trees.encoded(".png", np.zeros((24, 32, 3), np.uint8))
    tables = source_trees.write(tmp_path, {"one.txt": "0 0 0 sky\n9 9 9 road\n", "two.txt": "0 0 0 sky\n9 9 9 car\n"})
    options: dict[str, Any] = {"folders": "none", "sidecars": {"mask": "_mask.png:mask"}}
    for number in range(2):
        files = {f"{number}.jpg": source_trees.image(number, suffix=".jpg", height=24, width=32)}
        source_trees.write(tmp_path / f"in{number}", {**files, f"{number}_mask.png": mask})
    packer.convert(tmp_path / "in0", tmp_path / "out", mask_colors=tables / "one.txt", **options)
    with pytest.raises(InvalidRequest, match="field 'mask'.*car"):
        append(tmp_path / "out", tmp_path / "in1", mask_colors=tables / "two.txt", **options)
    assert append(tmp_path / "out", tmp_path / "in1", mask_colors=tables / "one.txt", **options).appended == 1


def test_the_options_are_those_of_all_conversions_of_the_pack(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "first", resize="20", codecs=(("image", "jpeg:80"),))
    packer.convert(tmp_path / "first", tmp_path / "out", to="hdf5")
    append(tmp_path / "out", two)
    packed(two, tmp_path / "two.pack", resize="20", codecs=(("image", "jpeg:80"),))
    want, found = by_key(tmp_path / "two.pack"), by_key(tmp_path / "out")
    assert {key: found[key] for key in want} == want


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{"codecs": 3}, {"resize": []}, {"exif": 5, "max_pixels": "x"}, {"slots": [1]}])
def test_malformed_options_are_an_error_of_the_pack(tmp_path: Path, options: dict[str, Any]) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    manifest = manifests.read(tmp_path / "out")
    manifest.options.update(options)
    (tmp_path / "out/packer.json").write_bytes(manifest.sealed().to_bytes())
    with pytest.raises((CorruptPack, InvalidRequest)):
        append(tmp_path / "out", two)


def test_what_the_manifest_says_about_the_sources(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    old = manifests.read(tmp_path / "out")
    append(tmp_path / "out", two)
    new = manifests.read(tmp_path / "out")
    packed(two, tmp_path / "two.pack")
    described = manifests.read(tmp_path / "two.pack").source
    assert new.source["appended"] == [described]
    assert [new.source[name] for name in ("samples", "files")] == [12, 12]
    assert new.source["digest"] not in (old.source["digest"], described["digest"])
    assert new.earlier_ids == [old.pack_id]
    assert "appended=1 sources" in called("info", tmp_path / "out").stdout


# ---- other sources


def test_packs_and_python_objects_are_appended(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    packed(two, tmp_path / "two.pack", to="hdf5")
    assert append(tmp_path / "out", tmp_path / "two.pack").appended == 3
    packed(tmp_path / "all", tmp_path / "whole")
    assert by_key(tmp_path / "out") == by_key(tmp_path / "whole")
    packed(photos(tmp_path / "more", 14), tmp_path / "more.pack", validate="header")
    with pytest.raises(InvalidRequest, match="--validate"):
        append(tmp_path / "out", tmp_path / "more.pack")
    rows = [{"image": source_trees.image(number), "label": number} for number in range(4)]
    fields = {"image": "image", "label": "number"}
    packer.convert(rows[:2], tmp_path / "rows", fields=fields, key=["a", "b"])
    assert append(tmp_path / "rows", rows[2:], fields=fields, key=["c", "d"]).appended == 2
    assert [sample["label"] for sample in packer.open(tmp_path / "rows")] == [0, 1, 2, 3]


def test_a_pack_is_not_appended_to_itself_nor_at_a_url(tmp_path: Path) -> None:
    one, _ = two_days(tmp_path)
    packed(one, tmp_path / "out")
    with pytest.raises(InvalidRequest, match="source itself"):
        append(tmp_path / "out", tmp_path / "out")
    with pytest.raises(InvalidRequest, match="packer stage"):
        append("s3://bucket/out", one)
    with pytest.raises(InvalidRequest, match="not a pack"):
        append(one, one)
    assert not list(tmp_path.glob(".*"))


# ---- interruptions


def test_an_interrupted_append_continues_after_its_finished_parts(tmp_path: Path) -> None:
    one, two = two_days(tmp_path, first=4, count=24)
    packed(one, tmp_path / "clean", part_bytes=3000)
    shutil.copytree(tmp_path / "clean", tmp_path / "out")
    append(tmp_path / "clean", two)
    before = digest(tmp_path / "out")

    def stop(now: Any) -> None:
        if now.samples > 12:
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        append(tmp_path / "out", two, progress=stop)
    assert digest(tmp_path / "out") == before
    summary = append(tmp_path / "out", two)
    assert summary.resumed_samples > 0
    assert digest(tmp_path / "out") == digest(tmp_path / "clean")


def test_a_pack_that_changes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    packed(one, tmp_path / "other", resize="8x8")

    def change(now: Any) -> None:
        if now.samples == 3:
            shutil.rmtree(tmp_path / "out")
            (tmp_path / "other").rename(tmp_path / "out")

    before = digest(tmp_path / "other")
    with pytest.raises((InvalidRequest, packer.errors.StorageError, CorruptPack)):
        append(tmp_path / "out", two, progress=change)
    assert digest(tmp_path / "out") == before


# ---- at the same time


def test_of_rivals_each_appends_all_or_ends_because_of_the_lock(tmp_path: Path) -> None:
    load_everything()
    packed(photos(tmp_path / "in", 3), tmp_path / "out")
    image = source_trees.image(7, suffix=".jpg", height=24, width=32)
    sources = [source_trees.write(tmp_path / f"in{n}", {f"class{n % 3}/new{n}.jpg": image}) for n in range(4)]
    runs = [Run(["append", tmp_path / "out", source], lambda: None) for source in sources]
    for run in runs:
        run.go()
    codes = [run.wait().code for run in runs]
    assert set(codes) <= {0, 5}
    assert codes.count(0) >= 1
    assert manifests.read(tmp_path / "out").samples == 3 + codes.count(0)
    assert list(problems(tmp_path / "out", level="full")) == []
    assert not list(tmp_path.glob(".*"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("format", ["lmdb", "bmp", "n5"])
def test_readers_that_open_the_pack_while_it_grows(tmp_path: Path, format: str) -> None:
    packed(photos(tmp_path / "in", 6), tmp_path / "out", to=format, part_bytes=3000, **_SIZED)
    want = [sample["image"] for sample in packer.open(tmp_path / "out")]
    counts: set[int] = set()
    ends = threading.Event()

    def read() -> None:
        while not ends.is_set():
            dataset = packer.open(tmp_path / "out")
            assert all((dataset[index]["image"] == want[index]).all() for index in range(6))
            counts.add(sum(1 for _ in dataset))
            dataset.close()

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for count in (7, 9, 12, 14):
                append(tmp_path / "out", photos(tmp_path / "in", count))
        finally:
            ends.set()
        for reader in readers:
            reader.result()
    assert counts <= {6, 7, 9, 12, 14}


def test_a_pack_without_the_present_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = two_days(tmp_path)
    packed(one, tmp_path / "out")
    columns = {**file_forms(manifests.read(tmp_path / "out").schema), "area-image": ("<u4", ())}
    monkeypatch.setattr(importlib.import_module(append.__module__), "file_forms", lambda schema: columns)
    with pytest.raises(InvalidRequest, match="earlier version"):
        append(tmp_path / "out", two)
