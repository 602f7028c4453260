"""Conversion: what a pack holds, what is refused, what stays behind."""

import inspect
import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np
import pytest
import torch

import packer
from packer import formats
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_build import estimate
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadInput, BadInputs, InvalidRequest, PackExists, WrongType
from packer.geometry import CenterCrop
from packer.images import sniff
from packer.pack import manifest as manifests
from packer.pack.verification import problems
from packer.sources._option_table import OPTIONS
from tests.support import source_trees
from tests.support.conversions import digest, opened, packed
from tests.support.source_trees import photos


def raw_values(pack: Path) -> list[dict[str, bytes]]:
    """Every record, read with nothing but lmdb and json."""
    manifest = json.loads((pack / "packer.json").read_bytes())
    names = [field["name"] for field in manifest["schema"]]
    records = []
    for part in manifest["parts"]:
        with lmdb.open(str(pack / part["name"]), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            for row in range(part["samples"]):
                keys = {name: (row * len(names) + at).to_bytes(8, "big") for at, name in enumerate(names)}
                records.append({name: txn.get(key) for name, key in keys.items()})
    return records


def test_a_folder_is_kept_byte_for_byte_and_in_order(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    summary = packed(root, tmp_path / "out.pack", part_bytes=9000)
    assert summary.samples == 12
    assert summary.parts > 1
    paths = sorted(root.rglob("*.jpg"))
    records = raw_values(tmp_path / "out.pack")
    for record, path in zip(records, paths, strict=True):
        assert record["key"].decode() == path.relative_to(root).as_posix()
        assert record["image"] == path.read_bytes()
        assert int.from_bytes(record["label"], "little") == int(path.parent.name[-1])
    crc32 = np.load(tmp_path / "out.pack/index/crc32.npy")
    assert crc32.tolist() == [[zlib.crc32(value) for value in record.values()] for record in records]
    labels = np.load(tmp_path / "out.pack/index/number-label.npy")
    assert labels.tolist() == [int.from_bytes(record["label"], "little") for record in records]
    assert list(problems(tmp_path / "out.pack", level="full")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.pack"]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_bytes_do_not_depend_on_threads(tmp_path: Path, threads: int) -> None:
    root = photos(tmp_path / "in", 70)
    packed(root, tmp_path / "one.pack", threads=1, resize="16", part_bytes=40_000)
    packed(root, tmp_path / "more.pack", threads=threads, resize="16", part_bytes=40_000)
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "more.pack")


def test_nothing_of_the_machine_is_in_a_pack(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        packed(photos(tmp_path / name / "in"), tmp_path / name / "out.pack")
    assert digest(tmp_path / "a/out.pack") == digest(tmp_path / "b/out.pack")
    text = (tmp_path / "a/out.pack/packer.json").read_text()
    assert str(tmp_path) not in text


def test_skipped_samples_are_listed_in_the_manifest(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 9)
    (root / "class1/0001.jpg").write_bytes(b"")
    summary = packed(root, tmp_path / "out.pack", on_error="skip")
    manifest = manifests.read(tmp_path / "out.pack")
    assert (summary.samples, manifest.samples) == (8, 8)
    assert [key for key, _ in manifest.skipped] == ["class1/0001.jpg"]
    assert str(tmp_path) not in manifest.skipped[0][1]
    assert manifest.source["samples"] == manifest.samples + len(manifest.skipped)
    assert "class1/0001.jpg" not in list(LMDBDataset(tmp_path / "out.pack").keys())


def test_a_set_without_a_single_good_sample_makes_no_pack(tmp_path: Path) -> None:
    root = source_trees.write(tmp_path / "in", {"a/x.jpg": b"", "a/y.jpg": b"nothing"})
    with pytest.raises(BadInputs, match="no sample"):
        packed(root, tmp_path / "out.pack", on_error="skip")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_pack_that_exists_is_replaced_with_overwrite_alone_and_nothing_else_is(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 4)
    packed(root, tmp_path / "out.pack")
    before = digest(tmp_path / "out.pack")
    with pytest.raises(PackExists, match="--overwrite"):
        packed(root, tmp_path / "out.pack", resize="8")
    assert digest(tmp_path / "out.pack") == before
    convert_source(opened(root), tmp_path / "out.pack", ConversionOptions(resize="8"), overwrite=True)
    assert manifests.read(tmp_path / "out.pack").options["resize"] == "8"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.pack"]
    (tmp_path / "out.pack/notes.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match=r"notes\.txt"):
        convert_source(opened(root), tmp_path / "out.pack", ConversionOptions(), overwrite=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidRequest, match="not a pack"):
        convert_source(opened(root), tmp_path / "folder", ConversionOptions(), overwrite=True)
    with pytest.raises(PackExists, match="an empty folder"):
        convert_source(opened(root), tmp_path / "folder", ConversionOptions())


@pytest.mark.parametrize("what", ["folder", "link", "file", "pack with a file of the user's"])
def test_what_takes_the_target_s_place_meanwhile_is_not_replaced(tmp_path: Path, what: str) -> None:
    """--overwrite was allowed for a pack; hours later something else is there."""
    root, target = photos(tmp_path / "in", 3), tmp_path / "out.pack"
    convert_source(opened(root), target, ConversionOptions())
    convert_source(opened(root), tmp_path / "other.pack", ConversionOptions())

    def exchange(samples: int, size: int) -> None:
        if what != "pack with a file of the user's":
            shutil.rmtree(target, ignore_errors=True)
        if what == "folder" and not target.exists():
            target.mkdir()
        elif what == "link" and not target.exists():
            target.symlink_to(tmp_path / "other.pack")
        elif what == "file":
            target.write_bytes(b"thesis")
        if target.is_dir() and not target.is_symlink():
            (target / "thesis.txt").write_text("mine")

    with pytest.raises(InvalidRequest, match=r"out\.pack") as caught:
        convert_source(opened(root), target, ConversionOptions(resize="8"), overwrite=True, progress=exchange)
    assert ".partial" not in str(caught.value)
    if what == "link":
        assert target.is_symlink() and manifests.read(tmp_path / "other.pack").samples == 3
    elif what == "file":
        assert target.read_bytes() == b"thesis"
    else:
        assert (target / "thesis.txt").read_text() == "mine"


@pytest.mark.one_in(12)
@pytest.mark.parametrize("format", formats.names())
def test_the_estimate_is_near_the_truth(tmp_path: Path, format: str) -> None:
    root = photos(tmp_path / "in", 60, height=90, width=120)
    for options in (
        ConversionOptions(to=format),
        ConversionOptions(to=format, resize="40"),
        ConversionOptions(to=format, part_bytes=100_000),
    ):
        guess = estimate(make_plan(opened(root), options)).pack_bytes
        target = tmp_path / f"{options.resize}-{options.part_bytes}.pack"
        truth = convert_source(opened(root), target, options).bytes_out
        assert 0.9 * truth < guess < 1.4 * truth


def test_parts_are_cut_by_source_bytes_alone(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    sizes = [path.stat().st_size for path in sorted(root.rglob("*.jpg"))]
    plan = make_plan(opened(root), ConversionOptions(part_bytes=5000))
    assert [number for part in plan.parts for number in part] == list(range(30))
    for part in plan.parts:
        assert len(part) == 1 or sum(sizes[part.start : part.stop]) <= 5000
    assert len(make_plan(opened(root), ConversionOptions(part_bytes=0)).parts) == 1


def test_resize_keeps_lossy_lossy_and_lossless_lossless(tmp_path: Path) -> None:
    jpegs = photos(tmp_path / "jpegs", 4)
    packed(jpegs, tmp_path / "jpegs.pack", resize="16x12")
    assert manifests.read(tmp_path / "jpegs.pack").schema["image"].codec == "jpeg:95"
    pngs = source_trees.write(tmp_path / "pngs", {f"a/{number}.png": source_trees.image(number) for number in range(3)})
    packed(pngs, tmp_path / "pngs.pack", resize="32x24")
    field = manifests.read(tmp_path / "pngs.pack").schema["image"]
    assert (field.codec, field.shape) == ("raw", (24, 32, 3))


def test_a_lossless_image_among_lossy_ones_is_not_made_lossy_unasked(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 8)
    (root / "class0/0003.jpg").write_bytes(source_trees.image(3, suffix=".png", height=24, width=32))
    packed(root, tmp_path / "kept.pack", resize="16x12")
    packed(root, tmp_path / "asked.pack", resize="16x12", codecs=(("image", "jpeg:95"),))
    kept = {record["key"]: record["image"] for record in raw_values(tmp_path / "kept.pack")}
    asked = {record["key"]: record["image"] for record in raw_values(tmp_path / "asked.pack")}
    assert kept[b"class0/0003.jpg"][:4] == b"\x89PNG"
    assert asked[b"class0/0003.jpg"][:2] == b"\xff\xd8"
    assert kept[b"class0/0000.jpg"][:2] == b"\xff\xd8"


def test_labels_move_with_the_pixels(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "full.pack")
    packed(root, tmp_path / "half.pack", resize="32x24")
    stored = raw_values(tmp_path / "half.pack")
    full, half = LMDBDataset(tmp_path / "full.pack"), LMDBDataset(tmp_path / "half.pack")
    for one, other in zip(full, half, strict=True):
        assert np.allclose((one["grasps"] + 0.5) * 0.5 - 0.5, other["grasps"], atol=1e-4)
        assert other["rgb"].shape == (3, 24, 32)
        assert other["depth"].shape == (1, 24, 32)
    for sample, record in zip(full, stored, strict=True):  # what is stored stays in source pixels
        assert record["grasps"] == sample["grasps"].numpy().tobytes()
    assert "grasps_file" not in manifests.read(tmp_path / "half.pack").schema
    assert half.column("source_size").tolist() == [[48, 64]] * len(half)


def exif(jpeg: bytes, orientation: int) -> bytes:
    """The file with an APP1 segment that says how to turn it."""
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + orientation.to_bytes(2, "big") + b"\0\0\0\0\0\0"
    body = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + jpeg[2:]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_is_recorded_and_ignored_or_baked_in(tmp_path: Path, orientation: int) -> None:
    plain = source_trees.image(1, suffix=".jpg")
    root = source_trees.write(tmp_path / "in", {"a.jpg": exif(plain, orientation), "b.jpg": plain})
    packed(root, tmp_path / "kept.pack")
    kept = LMDBDataset(tmp_path / "kept.pack", output="numpy")
    assert kept.column("orientation").tolist() == [orientation, 1]
    assert np.array_equal(kept[0]["image"], kept[1]["image"])
    packed(root, tmp_path / "turned.pack", exif="rotate", codecs=(("image", "raw"),))
    turned = LMDBDataset(tmp_path / "turned.pack", output="numpy")
    want = cv2.imdecode(np.frombuffer(exif(plain, orientation), np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.array_equal(turned[0]["image"], want)
    assert np.array_equal(turned[1]["image"], kept[1]["image"])
    corner = turned.column("matrix")[0] @ [0, 0, 1]
    x, y = (int(value) for value in corner)
    assert np.array_equal(turned[0]["image"][y, x], kept[0]["image"][0, 0])


def test_rotated_files_stay_files_in_a_kept_field(tmp_path: Path) -> None:
    plain = source_trees.image(1, suffix=".jpg")
    root = source_trees.write(
        tmp_path / "in", {"a.jpg": exif(plain, 6), "b.jpg": plain, "c.png": source_trees.image(2)}
    )
    packed(root, tmp_path / "out.pack", exif="rotate")
    values = [record["image"] for record in raw_values(tmp_path / "out.pack")]
    assert values[0][:2] == b"\xff\xd8"
    assert cv2.imdecode(np.frombuffer(values[0], np.uint8), cv2.IMREAD_UNCHANGED).shape == (64, 48, 3)
    assert values[1] == plain
    assert values[2] == (root / "c.png").read_bytes()


def test_fields_and_their_codecs_are_chosen(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", fields=("rgb",))
    assert manifests.read(tmp_path / "out.pack").schema.names == ("key", "rgb", "orientation")
    with pytest.raises(InvalidRequest, match="no field 'color'"):
        packed(root, tmp_path / "other.pack", fields=("color",))
    packed(root, tmp_path / "small.pack", codecs=(("rgb", "jpeg:80"), ("depth", "raw:float16")))
    packed(root, tmp_path / "exact.pack")
    small, exact = LMDBDataset(tmp_path / "small.pack"), LMDBDataset(tmp_path / "exact.pack")
    assert raw_values(tmp_path / "small.pack")[0]["rgb"][:2] == b"\xff\xd8"
    assert np.array_equal(small[0]["depth"], exact[0]["depth"].numpy().astype(np.float16).astype(np.float32))
    for codecs in ((("rgb", "jpeg:0"),), (("depth", "jpeg:90"),), (("nothing", "png"),), (("rgb", "webp"),)):
        with pytest.raises(InvalidRequest):
            packed(root, tmp_path / "bad.pack", codecs=codecs)


def test_splits_and_sidecars_come_along(tmp_path: Path) -> None:
    files = {f"{name}.jpg": source_trees.image(at, suffix=".jpg") for at, name in enumerate("abcd")}
    files |= {f"{name}_d.tiff": source_trees.depth(at) for at, name in enumerate("abcd")}
    root = source_trees.write(tmp_path / "in", files)
    (tmp_path / "train.txt").write_text("c.jpg\na.jpg\n")
    (tmp_path / "val.txt").write_text("d.jpg\n")
    splits = (f"train={tmp_path / 'train.txt'}", f"val={tmp_path / 'val.txt'}")
    request = SourceSpec(sidecars=("depth=_d.tiff:depth",), splits=splits)
    source, _ = request.open(root)
    summary = convert_source(source, tmp_path / "out.pack", ConversionOptions(source=request.to_json(source)))
    assert [key for key, _ in summary.skipped] == ["b.jpg"]
    train = LMDBDataset(tmp_path / "out.pack", split="train")
    val = LMDBDataset(tmp_path / "out.pack", split="val", output="numpy")
    assert list(train.keys()) == ["a.jpg", "c.jpg"]
    assert list(val.keys()) == ["d.jpg"]
    want = cv2.imdecode(np.frombuffer(files["d_d.tiff"], np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(val[0]["depth"], want)
    assert train.index_of("c.jpg") == 1
    assert str(tmp_path) not in (tmp_path / "out.pack/packer.json").read_text()


def test_header_validation_still_refuses_cut_files(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 5)
    data = (root / "class1/0001.jpg").read_bytes()
    (root / "class1/0001.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(BadInput):
        packed(root, tmp_path / "out.pack", validate="header")


@pytest.mark.parametrize(
    "name", sorted({*inspect.signature(packer.convert).parameters, *OPTIONS} - {"source", "source_options"})
)
def test_an_argument_of_another_type_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    wrong: list[Any] = [object(), [5], b"x", {"image": object()}] + [["image=png"]] * (name == "codecs")
    for value in wrong:
        with pytest.raises(WrongType, match=f"^{name}="):
            packer.convert(photos(tmp_path / "in", 1), **{"pack": tmp_path / "out.pack", name: value})
    assert not (tmp_path / "out.pack").exists()


def test_options_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    wrong = {"exif": "turn", "validate": "no", "on_error": "raise", "order": "a", "part_bytes": -1}
    for name, value in wrong.items():
        with pytest.raises(InvalidRequest, match=f"^{name}="):
            packer.convert(photos(tmp_path / "in", 1), tmp_path / "out.pack", **{name: value})  # type: ignore[arg-type]
    stored = replace(ConversionOptions(), codecs=(("a", "png"),)).to_json()
    assert (stored["codecs"], stored["on_error"]) == ({"a": "png"}, "raise")  # on_error: as in packs that exist
    with pytest.raises(TypeError, match="^color: "):
        packer.convert(photos(tmp_path / "in", 1), tmp_path / "out.pack", color="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("resize", ["256", "40x30", (40,), (4.0, 3.0), 3.5])
def test_a_resize_that_is_none_is_refused_before_anything_is_read(tmp_path: Path, resize: Any) -> None:
    with pytest.raises(InvalidRequest, match="^resize="):
        packer.convert(photos(tmp_path / "in", 2), tmp_path / "a.pack", resize=resize)
    assert not (tmp_path / "a.pack").exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("to", "label"), [("caffe-lmdb", 1 << 31), ("recordio", (1 << 24) + 1)])
def test_a_label_that_a_tool_cannot_hold_is_a_bad_sample(tmp_path: Path, to: str, label: int) -> None:
    samples = [{"image": source_trees.image(1), "label": number, "name": f"s{number}"} for number in (3, label, 5)]
    with pytest.raises(BadInputs) as caught:
        packer.convert(samples, tmp_path / "a.pack", to=to, key="name")
    (line,) = str(caught.value).splitlines()[1:]
    assert f"sample 1, field 'label'): label {label}: records of " in line and f"s{label}" in line
    assert ".partial" not in line
    summary = packer.convert(samples, tmp_path / "a.pack", to=to, key="name", on_error="skip")
    assert (summary.samples, len(summary.skipped)) == (2, 1)
    with packer.open(tmp_path / "a.pack") as dataset:
        assert sorted(int(sample["label"]) for sample in dataset) == [3, 5]
    packer.convert(samples, tmp_path / "b.pack", to="lmdb", key="name")
    with pytest.raises(BadInputs, match=rf"part-00000.lmdb.*: label {label}"):
        packer.convert(tmp_path / "b.pack", tmp_path / "c.pack", to=to)


def test_the_chroma_that_was_asked_for_is_stored_and_read_back(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 4)
    codec, size = "jpeg:95:444", (120, 160)
    packer.convert(root, tmp_path / "a.pack", resize=size, codecs={"image": codec})
    packer.convert(root, tmp_path / "halved.pack", resize=size, codecs={"image": "jpeg:95"})
    assert manifests.read(tmp_path / "a.pack").schema["image"].codec == codec
    assert list(problems(tmp_path / "a.pack")) == []
    with packer.open(tmp_path / "a.pack") as whole, packer.open(tmp_path / "halved.pack") as halved:
        assert not torch.equal(whole[0]["image"], halved[0]["image"])
        with packer.open(tmp_path / "a.pack", geometry=CenterCrop(40)) as crops:  # of restart intervals
            assert torch.equal(crops[0]["image"], whole[0]["image"][:, 40:80, 60:100])
    for record in raw_values(tmp_path / "a.pack"):
        assert sniff(record["image"]).scan.mcu == (8, 8) and sniff(record["image"]).intervals.table_at
