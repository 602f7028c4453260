"""Formats of other tools, found by their slots: what their parts hold, give back, and refuse."""

import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest

import packer
from packer import formats, sources
from packer.conversion.convert import convert, dry_run
from packer.errors import CorruptPack, InvalidRequest
from packer.formats._foreign_part import ForeignLayout
from packer.pack.index_rebuild import reindex
from packer.pack.reader import Pack
from packer.pack.verification import problems
from tests.support import built_packs, source_trees
from tests.support.child_processes import child
from tests.support.conversions import digest, opened, packed
from tests.support.hostile_packs import in_index
from tests.support.part_damage import flips, read_all, small_pack
from tests.support.part_damage import opened as opened_part

FOREIGN = [name for name in formats.names() if formats.load(name).Writer.slots]
IN_A_FILE = [name for name in FOREIGN if formats.load(name).Reader.layout.has_places]  # the images' own bytes
of_files = pytest.mark.parametrize("name", IN_A_FILE)


@pytest.fixture(params=FOREIGN)
def name(request: pytest.FixtureRequest) -> str:
    """Each of them in turn."""
    found: str = request.param
    return found


@pytest.fixture
def module(name: str) -> ModuleType:
    return formats.load(name)


def layout(module: ModuleType) -> ForeignLayout:
    found: ForeignLayout = module.Reader.layout
    return found


def data_of(pack: Path, name: str) -> Path:
    """The tool's file of the first part."""
    return next(pack.glob("part-00000*")) / layout(formats.load(name)).data


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return source_trees.photos(tmp_path / "photos")


# ---- there and back


@of_files
def test_packers_own_source_reads_the_parts(name: str, photos: Path, tmp_path: Path) -> None:
    """The record of a number is the sample of that number; names are the keys of BasicSR, and LMDB sorts them."""
    assert name in sources.names()
    order = "stored" if name == "basicsr-lmdb" else "shuffled"
    packed(photos, tmp_path / "a.pack", to=name, part_bytes=0, order=order)
    source = opened(data_of(tmp_path / "a.pack", name), name)
    dataset = packer.open(tmp_path / "a.pack")
    assert len(source) == len(dataset) == 12
    for at in range(12):
        sample = source[at]
        assert sample["image"] == (photos / dataset.key(at)).read_bytes()
        assert name == "basicsr-lmdb" or int(sample["label"]) == dataset[at]["label"]


@pytest.mark.one_in(3)
@of_files
def test_a_pack_of_it_becomes_a_pack_of_any_format(name: str, photos: Path, tmp_path: Path) -> None:
    packed(photos, tmp_path / "a.pack", to=name)
    packed(photos, tmp_path / "plain.pack")
    packed(tmp_path / "a.pack", tmp_path / "b.pack", to="lmdb")
    assert all(field.slot is None for field in packer.open(tmp_path / "b.pack").schema)
    assert built_packs.values(tmp_path / "b.pack") == built_packs.values(tmp_path / "plain.pack")


# ---- order


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", [name for name in FOREIGN if formats.load(name).Writer.order == "shuffled"])
def test_samples_are_shuffled_unless_the_stored_order_is_asked_for(name: str, photos: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    convert(photos, tmp_path / "a.pack", to=name, on_note=notes.append)
    convert(photos, tmp_path / "again.pack", to=name, threads=1)
    convert(photos, tmp_path / "other.pack", to=name, order="shuffled", seed=5)
    convert(photos, tmp_path / "stored.pack", to=name, order="stored")
    keys = {
        which: [packer.open(tmp_path / f"{which}.pack").key(at) for at in range(12)]
        for which in ("a", "again", "other", "stored")
    }
    assert keys["stored"] == sorted(keys["stored"])
    assert keys["a"] == keys["again"] and digest(tmp_path / "a.pack") == digest(tmp_path / "again.pack")
    assert len({tuple(found) for found in keys.values()}) == 3
    assert {tuple(sorted(found)) for found in keys.values()} == {tuple(keys["stored"])}
    assert sum("--order stored" in note for note in notes) == 1


def test_an_unshuffled_format_takes_the_option_too(photos: Path, tmp_path: Path) -> None:
    convert(photos, tmp_path / "a.pack", order="shuffled")
    convert(photos, tmp_path / "b.pack", order="stored")
    convert(photos, tmp_path / "c.pack")
    keys = [[packer.open(tmp_path / f"{which}.pack").key(at) for at in range(12)] for which in "abc"]
    assert keys[0] != keys[1] == keys[2]
    assert digest(tmp_path / "b.pack") == digest(tmp_path / "c.pack")
    with pytest.raises(InvalidRequest, match="--seed.*--order shuffled"):
        convert(photos, tmp_path / "d.pack", seed=3)


# ---- slots


@pytest.mark.parametrize(
    "slots, reason",
    [
        ({"photo": "image"}, "has no slot 'photo'; it has: image"),
        ({"image": "photo"}, "no field 'photo'; there are: key, image"),
        ({"image": "key"}, "key is a field of kind text, expected an image"),
    ],
)
def test_a_slot_that_does_not_fit_is_refused(
    name: str, slots: dict[str, str], reason: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        convert(photos, tmp_path / "a.pack", to=name, export_as=slots)
    assert not (tmp_path / "a.pack").exists()


def test_a_slot_of_packers_own_format_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="'lmdb'.*slot 'image'"):
        convert(photos, tmp_path / "a.pack", export_as={"image": "image"})


def test_the_notes_say_what_the_tool_will_find(name: str, tmp_path: Path) -> None:
    notes: list[str] = []
    root = source_trees.jacquard(tmp_path / "in")
    dry_run(root, tmp_path / "a.pack", {"to": name, "export_as": {"image": "rgb"}}, notes.append)
    found = [note for note in notes if " will find: " in note]
    assert len(found) == 1 and "=rgb" in found[0]


# ---- what the tool opens


@of_files
def test_images_that_are_moved_are_files_for_the_tool(name: str, tmp_path: Path) -> None:
    """Lossless ones too, which packer's own formats hold as raw pixels then."""
    root = source_trees.write(tmp_path / "in", {f"{at}.png": source_trees.image(at) for at in range(3)})
    convert(root, tmp_path / "a.pack", to=name, resize=20)
    convert(root, tmp_path / "b.pack", resize=20)
    data = data_of(tmp_path / "a.pack", name).read_bytes()
    for sample in packer.open(tmp_path / "b.pack", output="numpy"):
        _, png = cv2.imencode(".png", sample["image"][..., ::-1])
        assert png.tobytes() in data


@of_files
def test_raw_pixels_that_were_asked_for_are_told_to_be_no_image(name: str, photos: Path, tmp_path: Path) -> None:
    for codec, count in (("raw", 1), ("png", 0), ("encoded", 0), ("jpeg:90", 0)):
        notes: list[str] = []
        dry_run(photos, tmp_path / "a.pack", {"to": name, "codecs": {"image": codec}}, notes.append)
        told = [note for note in notes if "cannot open image: pixels of codec raw are not a file" in note]
        assert len(told) == count


def test_a_pack_without_a_field_for_the_tool_is_refused(name: str, photos: Path, tmp_path: Path) -> None:
    """TFRecord has a feature for the key."""
    options = {"to": name, "fields": ["key"]}
    if name == "tfrecord":
        assert dry_run(photos, tmp_path / "a.pack", options, print).plan.schema.names[0] == "key"
    else:
        with pytest.raises(InvalidRequest, match="pack of keys|image as"):
            dry_run(photos, tmp_path / "a.pack", options, print)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["jacquard", "cornell"])
def test_labels_that_the_tool_would_find_off_the_image_are_refused(name: str, kind: str, tmp_path: Path) -> None:
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    options: dict[str, object] = {"to": name, "export_as": {"image": "rgb"}}
    notes = dry_run(root, tmp_path / "a.pack", options, print)
    shown = formats.load(name).Writer.shown(notes.plan.schema)
    options["resize"] = (32, 32)
    if "grasps" in shown:
        with pytest.raises(InvalidRequest, match="^grasps.*source.*--resize.*--fields"):
            dry_run(root, tmp_path / "b.pack", options, print)
    else:
        assert "grasps" in dry_run(root, tmp_path / "b.pack", options, print).plan.schema


def test_the_note_on_images_names_what_is_written(tmp_path: Path) -> None:
    root = source_trees.jacquard(tmp_path / "in")
    options = {"to": "webdataset", "export_as": {"image": "rgb"}, "fields": ["rgb", "mask", "depth"], "resize": 20}
    for codecs, mask in (({}, "mask.png=mask"), ({"mask": "raw"}, "mask.bin=mask")):
        made = convert(root, tmp_path / f"{len(codecs)}.pack", codecs=codecs, **options)  # type: ignore[arg-type]
        (note,) = (note for note in made.notes if "will find" in note)
        assert mask in note and ".depth.npy=depth" in note and "as its file" not in note
        with tarfile.open(data_of(tmp_path / f"{len(codecs)}.pack", "webdataset")) as archive:
            ends = {member.name.partition(".")[2] for member in archive}
        assert ends == {"png", "depth.npy", mask.partition("=")[0]}


@pytest.mark.parametrize("name", ["tfrecord", "webdataset"])
def test_raw_fields_of_a_pack_are_files_as_from_the_source(name: str, tmp_path: Path) -> None:
    root = source_trees.jacquard(tmp_path / "in")
    fields = ["rgb", "mask", "depth", "grasp_rows", "files"]
    notes = convert(root, tmp_path / "raw.pack", fields=fields, resize=20).notes
    assert any("grasp_rows: stored as they are: --resize" in note for note in notes)
    options = {"to": name, "export_as": {"image": "rgb"}}
    made = convert(tmp_path / "raw.pack", tmp_path / "pack", **options)  # type: ignore[arg-type]
    assert not [note for note in made.notes if "cannot open" in note]
    convert(root, tmp_path / "source", fields=fields, resize=20, **options)  # type: ignore[arg-type]
    found, wanted = (packer.open(tmp_path / each) for each in ("pack", "source"))
    assert found.schema["mask"].codec == "png" and found.schema["depth"].codec == "npy"
    assert data_of(tmp_path / "pack", name).read_bytes() == data_of(tmp_path / "source", name).read_bytes()
    assert len(found) == len(wanted)
    lines: list[str] = []
    dry_run(tmp_path / "raw.pack", tmp_path / "x", {"codecs": {"mask": "raw"}, **options}, lines.append)
    assert [line for line in lines if "cannot open mask: pixels of codec raw are not a file; --codec mask=png" in line]


# ---- damage


@pytest.mark.one_in(6)
@of_files
def test_a_cut_of_the_tools_file_is_refused(name: str, tmp_path: Path) -> None:
    records = [built_packs.record(row, blob=bytes([row]) * 300) for row in range(20)]
    built_packs.make_pack(tmp_path / "pack", records, format=name, parts=1)
    part = next((tmp_path / "pack").glob("part-*"))
    data = part / layout(formats.load(name)).data
    whole = data.read_bytes()
    for size in {0, 1, len(whole) // 2, len(whole) // 3}:
        data.write_bytes(whole[:size])
        outcome = child(opened_part(part, format=name, samples=20))
        assert outcome.kind == "error" or outcome.value, outcome
        assert outcome.error in ("CorruptPack", None), outcome
    data.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(CorruptPack, match=f"{data.name}: row .*outside"):
        Pack(tmp_path / "pack").record(0, ("blob",)).__enter__()


@pytest.mark.one_in(6)
@of_files
def test_a_flip_in_each_file_of_the_part_is_found(name: str, photos: Path, tmp_path: Path) -> None:
    packed(photos, tmp_path / "a.pack", to=name, part_bytes=0)
    part = next((tmp_path / "a.pack").glob("part-*"))
    files = [path for path in part.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"values.npz", layout(formats.load(name)).data, *others(name)}
    for path in files:
        built_packs.flip(path, path.stat().st_size // 2)
        found = list(problems(tmp_path / "a.pack"))
        assert any("damaged part" in problem for problem in found), path
        if path.name in others(name):  # no value is read from the tool's own index
            (problem,) = found
            assert "all its values are sound: other bytes differ, such as in" in problem
            assert path.name in problem and problem.endswith(f"packer convert {tmp_path / 'a.pack'} NEW --to {name}")
        built_packs.flip(path, path.stat().st_size // 2)
    assert list(problems(tmp_path / "a.pack")) == []
    files[0].with_name("lock.mdb").write_bytes(b"")
    assert list(problems(tmp_path / "a.pack")) != []


@pytest.mark.one_in(6)
@of_files
def test_a_flip_in_a_value_names_the_sample(name: str, photos: Path, tmp_path: Path) -> None:
    packed(photos, tmp_path / "a.pack", to=name, part_bytes=0)
    data, dataset = data_of(tmp_path / "a.pack", name), packer.open(tmp_path / "a.pack")
    image, whole = (photos / dataset.key(7)).read_bytes(), data.read_bytes()
    places = np.load(data.with_name("values.npz"))["foreign/places"][7].tolist()
    (start,) = (at for at, size in places if whole[at : at + size] == image)  # LMDB leaves old copies about
    built_packs.flip(data, start + 100)
    assert any("sample 7" in problem and "field 'image'" in problem for problem in problems(tmp_path / "a.pack"))


@pytest.mark.one_in(12)
@pytest.mark.parametrize("number", [60, pytest.param(3000, marks=pytest.mark.full)])
def test_a_flipped_byte_is_refused_or_without_effect(name: str, number: int, tmp_path: Path) -> None:
    small_pack(tmp_path / "pack", name)
    found = flips(tmp_path / "pack", number, seed=number)
    assert set(found) <= {"refused", "intact", "CorruptPack", "CorruptRecord"}, found
    assert found["refused"] + found["CorruptPack"] > number // 30, found  # tar and LMDB are full of padding


@pytest.mark.one_in(6)
@of_files
def test_parts_and_files_of_parts_that_were_exchanged_are_refused(name: str, tmp_path: Path) -> None:
    """Of equal sizes, and each a sound one: the crc32 of the values tell, and the digests."""
    built_packs.make_pack(tmp_path / "pack", SAMPLES_OF_ONE_SIZE, format=name, parts=2)
    data = layout(formats.load(name)).data
    for file in ("", data, "values.npz"):
        exchange(tmp_path / "pack", file)
        assert any("damaged part" in problem for problem in problems(tmp_path / "pack")), file
        assert read_all(tmp_path / "pack", SAMPLES_OF_ONE_SIZE) in ("refused", "CorruptPack"), file
        exchange(tmp_path / "pack", file)
    assert read_all(tmp_path / "pack", SAMPLES_OF_ONE_SIZE) == "intact"


SAMPLES_OF_ONE_SIZE = [built_packs.record(row, blob=bytes([row]) * 100) for row in range(10)]


def exchange(pack: Path, name: str) -> None:
    """The two parts, or a file of theirs, in each other's place."""
    one, other = sorted(path / name if name else path for path in pack.glob("part-*"))
    one.rename(pack / "aside")
    other.rename(one)
    (pack / "aside").rename(other)


@of_files
def test_an_index_that_says_another_sample_is_refused(name: str, tmp_path: Path) -> None:
    """The crc32 of two samples exchanged, all hashes right: whoever reads compares."""
    built_packs.make_pack(tmp_path / "pack", 6, format=name, parts=1)
    path = tmp_path / "pack/index/crc32.npy"
    found = np.load(path)
    data = bytearray(path.read_bytes())
    data[-found.nbytes :] = found[[0, 2, 1, 3, 4, 5]].tobytes()
    in_index("crc32.npy", bytes(data))(tmp_path / "pack")
    pack = Pack(tmp_path / "pack")
    for row in range(6):
        if row in (1, 2):
            with pytest.raises(CorruptPack, match=f"sample {row}"), pack.record(row, pack.schema.names):
                pass
        else:
            with pack.record(row, ("blob",)) as record:
                assert bytes(record["blob"]) == built_packs.record(row)["blob"]


@of_files
@pytest.mark.parametrize(
    "change, reason",
    [
        ((3, 0, -1), "outside the file"),
        ((3, 0, 1 << 62), "outside the file"),
        ((3, 1, 1 << 62), "outside the file"),
        ((3, 1, -(1 << 63)), "outside the file"),
        ((None, 1, None), "bytes together, the file"),
    ],
)
def test_places_that_lie_are_refused(
    name: str, change: Sequence[Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a part has them that somebody made by hand."""
    row, column, value = change
    module = formats.load(name)
    real = module.Writer._place

    def lying(writer: Any, spans: Sequence[tuple[int, int]]) -> None:
        found = np.asarray(spans, np.int64)
        if row is None:
            found[0] = (0, 5000)
        elif writer._rows_placed == row:
            found[0, column] = value
        writer._rows_placed += 1
        real(writer, found.tolist())

    monkeypatch.setattr(module.Writer, "_place", lying)
    monkeypatch.setattr(module.Writer, "_rows_placed", 0, raising=False)
    count = 300 if row is None else 9
    built_packs.write_part(tmp_path / "part", built_packs.records(count), format=name)
    with pytest.raises(CorruptPack, match=reason):
        module.Reader(tmp_path / "part", built_packs.SCHEMA, samples=count)


def others(name: str) -> tuple[str, ...]:
    return layout(formats.load(name)).others


# ---- what a tool leaves behind


@pytest.mark.one_in(2)
@pytest.mark.parametrize("to", ["caffe-lmdb", "bmp"])
def test_what_a_tool_leaves_in_a_part_is_named_and_no_damage(to: str, photos: Path, tmp_path: Path) -> None:
    packed(photos, tmp_path / "a.pack", to=to)
    part = tmp_path / "a.pack/part-00000"
    (part / "cache").mkdir()
    (part / "cache/index.txt").write_bytes(b"0\n")
    (part / "lock.mdb").write_bytes(bytes(8192))
    left = {f"{part / path}: unknown file" for path in ("lock.mdb", "cache", "cache/index.txt")}
    for level in ("quick", "default", "full"):
        found = list(problems(tmp_path / "a.pack", level=level))
        assert {line.partition(": the part")[0] for line in found} == left and len(found) == 3
    assert reindex(tmp_path / "a.pack", check=True) == []
    with packer.open(tmp_path / "a.pack", verify="open") as dataset:
        assert dataset[0]["image"].shape[0] == 3
    built_packs.flip(part / "values.npz", (part / "values.npz").stat().st_size // 2)
    assert any("damaged part: its sha256" in line for line in problems(tmp_path / "a.pack"))
