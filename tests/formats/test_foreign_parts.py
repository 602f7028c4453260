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
from packer import formats
from packer.conversion.convert import convert, dry_run
from packer.errors import CorruptPack, InvalidRequest
from packer.formats._foreign_part import ForeignLayout
from packer.pack.index_rebuild import reindex
from packer.pack.verification import problems
from tests.support import built_packs, source_trees
from tests.support.conversions import digest, packed
from tests.support.part_damage import files_of

FOREIGN = [name for name in formats.names() if formats.load(name).Writer.slots]
IN_A_FILE = [name for name in FOREIGN if formats.load(name).Reader.layout.has_places]  # the images' own bytes
of_files = pytest.mark.parametrize("name", IN_A_FILE)


@pytest.fixture(params=FOREIGN)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def module(name: str) -> ModuleType:
    return formats.load(name)


def data_of(pack: Path, name: str) -> Path:
    """The tool's file of the first part."""
    return next(pack.glob("part-00000*")) / files_of_tool(name)[0]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return source_trees.photos(tmp_path / "photos")


# ---- there and back


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
def test_a_flip_in_each_file_of_the_part_is_found(name: str, photos: Path, tmp_path: Path) -> None:
    packed(photos, tmp_path / "a.pack", to=name, part_bytes=0)
    part, (data, others) = next((tmp_path / "a.pack").glob("part-*")), files_of_tool(name)
    files = files_of(part)
    assert {path.relative_to(part).parts[0] for path in files} == {"values.npz", data, *others}
    for path in files:
        built_packs.flip(path, path.stat().st_size // 2)
        found = list(problems(tmp_path / "a.pack"))
        assert any("damaged part" in problem for problem in found), path
        if path.name in (*others, "attributes.json"):  # no value is read from the tool's own index
            (problem,) = found
            assert "all its values are sound: other bytes differ, such as in" in problem
            assert path.name in problem and problem.endswith(f"packer convert {tmp_path / 'a.pack'} NEW --to {name}")
        built_packs.flip(path, path.stat().st_size // 2)
    assert list(problems(tmp_path / "a.pack")) == []
    for folder in {path.parent for path in files}:
        (folder / "9").write_bytes(b"")
        assert [str(folder / "9") in problem for problem in problems(tmp_path / "a.pack")] == [True]
        (folder / "9").unlink()


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


def files_of_tool(name: str) -> tuple[str, tuple[str, ...]]:
    found: ForeignLayout = formats.load(name).Reader.layout
    return found.data, found.others


def label(number: int) -> dict[str, bytes]:
    return {"label": number.to_bytes(8, "little", signed=True)}


@pytest.mark.parametrize(
    ("name", "limit", "change", "reason"),
    [
        ("tfrecord", ("tfrecord._MOST_BYTES", 1000), {"blob": bytes(1000)}, "1,0.. bytes.*1,000"),
        ("recordio", ("recordio.MOST_BYTES", 1000), {"blob": bytes(977)}, "1,001 bytes.*1,000"),
        (
            "webdataset",
            ("webdataset.tar.MOST_MEMBER_BYTES", (1 << 20) + 1000),
            {"blob": bytes(1001)},
            "1,001 bytes.*8 GiB",
        ),
        *(("caffe-lmdb", None, label(n), "-2,147,483,648 to 2,147,483,647") for n in (1 << 31, -(1 << 31) - 1)),
        *(("recordio", None, label(n), "-16,777,216 to 16,777,216") for n in ((1 << 24) + 1, -(1 << 24) - 1)),
    ],
)
def test_what_the_tool_cannot_hold_is_refused_and_the_part_goes_on(
    name: str,
    limit: tuple[str, int] | None,
    change: dict[str, bytes],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if limit:
        monkeypatch.setattr(f"packer.formats.{limit[0]}", limit[1])
    edge = {**built_packs.record(1), **label(1 << 24)}
    with formats.load(name).Writer(tmp_path / "part", built_packs.SCHEMA, payload_bytes=0) as writer:
        with pytest.raises(InvalidRequest, match=reason):
            writer.write({**built_packs.record(0), **change})
        writer.write(edge)
        writer.finish()
    assert built_packs.read_records(tmp_path / "part", 1, name) == [edge]


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
