"""Sidecars: fields from files beside the samples of any source."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadIndex, BadInput, BadInputs, InvalidRequest
from packer.geometry import upright
from packer.geometry.warp import warp
from packer.inspect.extraction import extract
from packer.sources import base
from packer.sources._extend.sidecars import Sidecar, add_sidecars
from packer.sources._file_pattern import SidecarPattern
from packer.sources._trees.folder_tree import LinkLeadsOut
from packer.sources.image_files import folder
from tests.support.source_trees import depth, encoded, image, mask, write

DEPTH = Sidecar("depth", "_d.tiff", "depth")
CAPTION = Sidecar("caption", ".txt", "text")
META = Sidecar("meta", ".json", "json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b.c"):
        write(
            tmp_path / "x",
            {
                f"{name}.png": image(1),
                f"{name}_d.tiff": depth(1),
                f"{name}.txt": "häuser\n",
                f"{name}.json": '{"n": [1, 2.5, null]}',
                f"{name}_m.npy": b"\x93NUMPY...",
            },
        )
    return tmp_path


def images(root: Path) -> folder.Source:
    return folder.Source(root, ignore_suffixes=("_d.tiff",))


def test_parse_reads_name_suffix_and_kind() -> None:
    assert Sidecar.parse("depth=_d.tiff:depth") == DEPTH
    assert Sidecar.parse("m=.a:b=c.npy:mask") == Sidecar("m", ".a:b=c.npy", "mask")


@pytest.mark.parametrize(
    "text", ["", "depth", "depth=_d.tiff", "_d.tiff:depth", "d=:depth", "d=/x.png:mask", "d=x:polygons"]
)
def test_parse_refuses_what_is_no_sidecar(text: str) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        Sidecar.parse(text)


def test_fields_are_added_to_every_sample(root: Path) -> None:
    source = add_sidecars(images(root), [DEPTH, CAPTION, META, Sidecar("raw", "_m.npy", "bytes")])
    assert source.schema.names == ("key", "image", "label", "depth", "caption", "meta", "raw", "files")
    sample = source[1]
    assert sample["key"] == "x/b.c.png"
    assert sample["depth"] == depth(1)
    assert sample["caption"] == "häuser\n"
    assert sample["meta"] == {"n": [1, 2.5, None]}
    assert sample["raw"] == b"\x93NUMPY..."
    assert sample["files"] == {
        "image": "x/b.c.png",
        "depth": "x/b.c_d.tiff",
        "caption": "x/b.c.txt",
        "meta": "x/b.c.json",
        "raw": "x/b.c_m.npy",
    }
    assert [path.name for path in base.file_paths(source, 1)] == [
        "b.c.png",
        "b.c_d.tiff",
        "b.c.txt",
        "b.c.json",
        "b.c_m.npy",
    ]
    assert "depth (_d.tiff)" in source.notes[-1]
    assert source.kind == "folder"


def test_a_missing_partner_is_an_error_or_leaves_the_sample_out(root: Path) -> None:
    caption = (root / "x/b.c.txt").read_bytes()
    (root / "x/a_d.tiff").unlink()
    (root / "x/b.c.txt").unlink()
    with pytest.raises(BadInput, match=r"x/a_d.tiff, x/b.c.txt.*--missing skip"):
        add_sidecars(images(root), [DEPTH, CAPTION])
    (root / "x/b.c.txt").write_bytes(caption)
    source = add_sidecars(images(root), [DEPTH], missing="skip")
    assert len(source) == 1
    assert source.key(0) == source[0]["key"] == "x/b.c.png"
    assert source.left_out == [("x/a.png", "no x/a_d.tiff")]
    with pytest.raises(BadIndex):
        source[1]
    with pytest.raises(InvalidRequest, match="option missing"):
        add_sidecars(images(root), [DEPTH], missing="keep")


@pytest.mark.parametrize(
    ("sidecar", "data"),
    [
        (CAPTION, b"\xff"),
        (META, b"{"),
        (META, b'{"x": NaN}'),
        (META, b'{"a": 1, "a": 2}'),
        (META, b"\xff"),
        (META, b"[" * 100_000),
    ],
)
def test_a_file_of_another_kind_is_bad_input_with_its_path(root: Path, sidecar: Sidecar, data: bytes) -> None:
    (root / f"x/a{sidecar.suffix}").write_bytes(data)
    source = add_sidecars(images(root), [sidecar])
    with pytest.raises(BadInput, match=rf"x/a\{sidecar.suffix}: .*{sidecar.kind}"):
        source[0]
    assert source[1]["key"] == "x/b.c.png"


def test_a_field_name_that_is_taken_is_refused(root: Path) -> None:
    for name in ("image", "files", "key"):
        with pytest.raises(InvalidRequest, match="name"):
            add_sidecars(images(root), [Sidecar(name, ".txt", "bytes")])
    with pytest.raises(InvalidRequest, match="field name"):
        add_sidecars(images(root), [Sidecar("1x", ".txt", "bytes")])
    with pytest.raises(InvalidRequest, match="--sidecar caption"):
        add_sidecars(images(root), [CAPTION, Sidecar("caption", ".json", "bytes")])


def test_a_source_without_a_image_gets_the_paths_of_the_added_files_alone(root: Path) -> None:
    inner = images(root)
    inner.schema = inner.schema.select(["key", "label"])
    assert add_sidecars(inner, [CAPTION])[0]["files"] == {"caption": "x/a.txt"}


def paired(tmp_path: Path) -> Path:
    """Images and masks in folders of their own, one level deep."""
    files = {f"images/{n}.jpg": image(n, suffix=".jpg") for n in range(3)}
    return write(tmp_path / "set", {**files, **{f"masks/{n}.png": mask(n) for n in range(3)}})


def opened(root: Path, *sidecars: str, **options: Any) -> base.Source:
    return SourceSpec("folder", options, sidecars).open(root)[0]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("masks/{stem}.png", "masks/c.d.png"),
        ("masks/{name}.png", "masks/c.d.jpg.png"),
        ("{folder}/m/{stem}.png", "a/b/m/c.d.png"),
        ("m/{folder}/{stem}.png", "m/a/b/c.d.png"),
        ("{parent}_{stem}.txt", "b_c.d.txt"),
        ("../m/{stem}.png", "../m/c.d.png"),
    ],
)
def test_a_pattern_names_the_file_of_a_sample_and_knows_it(text: str, path: str) -> None:
    pattern = SidecarPattern(text)
    assert pattern.path("a/b/c.d.jpg", "c.d") == path
    assert pattern.matches(path)
    assert not pattern.matches("a/b/c.d.jpg")
    assert pattern.matches(pattern.path("c.d.jpg", "c.d"))


@pytest.mark.parametrize(
    "text",
    [
        "/etc/{stem}",
        "masks/{stme}.png",
        "masks/{stem}{",
        "masks/{stem:a=b}.png",
        "masks/../../{stem}",
        "{folder}/../{stem}",
        "../{stem}.png",
        "../{parent}/{stem}.png",
        "../../{stem}",
        "masks//{stem}",
        "./{stem}",
        "{stem}/",
        "a\0/{stem}",
    ],
)
def test_a_pattern_that_leads_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        Sidecar("mask", text, "mask")


def test_masks_in_a_folder_beside_the_images(tmp_path: Path) -> None:
    root = paired(tmp_path)
    source = opened(root, "mask=masks/{stem}.png:mask", folders="none")
    assert len(source) == 3
    assert [source[n]["mask"] for n in range(3)] == [mask(n) for n in range(3)]
    assert source[1]["files"] == {"image": "images/1.jpg", "mask": "masks/1.png"}
    assert source.extras == []
    write(root, {"cat/1.jpg": b"", "dog/2.jpg": b"", "masks/cat/1.png": b"", "masks/dog/2.png": b""})
    for n in range(3):
        (root / f"images/{n}.jpg").unlink()
    (root / "images").rmdir()
    classes = opened(root, "mask=masks/{folder}/{stem}.png:mask")
    assert classes.schema["label"].classes == ("cat", "dog")
    assert [path.name for path in base.file_paths(classes, 1)] == ["2.jpg", "2.png"]


def test_masks_above_the_source_are_packed_verified_and_extracted(tmp_path: Path) -> None:
    root = paired(tmp_path) / "images"
    (root.parent / "masks/2.png").unlink()
    (root.parent / "masks/2.png").symlink_to("1.png")
    request = SourceSpec("folder", {}, ("mask=../masks/{stem}.png:mask",))
    source, _ = request.open(root)
    convert_source(source, tmp_path / "pack", ConversionOptions(source=request.to_json(source)))
    assert list(Comparison(tmp_path / "pack", root).problems()) == []
    extract(tmp_path / "pack", tmp_path / "back")
    assert (tmp_path / "back/masks/0.png").read_bytes() == mask(0)
    assert (tmp_path / "back/masks/2.png").read_bytes() == mask(1)
    assert (tmp_path / "back/0.jpg").read_bytes() == image(0, suffix=".jpg")
    write(root.parent, {"masks/0.png": mask(7)})
    assert any("masks/0.png" in line for line in Comparison(tmp_path / "pack", root).problems())
    write(root.parent, {"masks/0.png": b"no image"})
    with pytest.raises(BadInput, match=r"images/\.\./masks/0\.png: cannot pack"):
        convert_source(request.open(root)[0], tmp_path / "other", ConversionOptions())


def test_links_out_of_a_folder_above_are_not_followed(tmp_path: Path) -> None:
    root = paired(tmp_path) / "images"
    secret = write(tmp_path, {"secret.png": mask(5)}) / "secret.png"
    (root.parent / "masks/1.png").unlink()
    (root.parent / "masks/1.png").symlink_to(secret)
    source = opened(root, "mask=../masks/{stem}.png:mask")
    with pytest.raises(LinkLeadsOut, match="masks/1.png: .*link"):
        source[1]
    with pytest.raises(BadInput, match="1 of 3.*\n.*link"):
        convert_source(source, tmp_path / "pack", ConversionOptions())
    assert opened(root, "mask=../masks/{stem}.png:mask", follow_links=True)[1]["mask"] == mask(5)


def test_folders_above_that_cannot_be_told_apart_or_are_not_there_are_refused(tmp_path: Path) -> None:
    root = paired(tmp_path) / "images"
    with pytest.raises(InvalidRequest, match="no folder"):
        opened(root, "mask=../mask/{stem}.png:mask")
    write(root, {"masks/x.txt": b""})
    with pytest.raises(InvalidRequest, match="two folders"):
        opened(root, "mask=../masks/{stem}.png:mask", folders="none")


def test_a_sidecar_that_matches_nothing_says_what_is_there(tmp_path: Path) -> None:
    root = paired(tmp_path)
    with pytest.raises(InvalidRequest, match="images/0.jpg .*masks/0_m.png"):
        opened(root, "mask=masks/{stem}_m.png:mask", folders="none", companions="samples", missing="skip")
    with pytest.raises(InvalidRequest, match="--sidecar depth=_d.tiff .*nothing"):
        folder_root = write(tmp_path / "flat", {"a.jpg": b"", "a_depth.tif": b"", "b.jpg": b""})
        add_sidecars(folder.Source(folder_root, ignore_suffixes=("_depth.tif",)), [DEPTH])


def test_keeping_samples_without_their_sidecar_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.jpg": b"", "a_d.tiff": b"", "b.jpg": b""})
    with pytest.raises(InvalidRequest, match="--missing keep.*label"):
        opened(root, "depth=_d.tiff:depth", missing="keep")


def test_boxes_and_numbers_are_read_from_text(tmp_path: Path) -> None:
    files = {
        "a.jpg": b"",
        "a.txt": "1 2 3 4.5\n\n5,6,7,8\n",
        "a.age": " 42.5\n",
        "b.jpg": b"",
        "b.txt": "",
        "b.age": "1",
    }
    options = ("boxes=.txt:boxes", "age=.age:number")
    source = opened(write(tmp_path, files), *options)
    sample = source[0]
    assert sample["boxes"].tolist() == [[1, 2, 3, 4.5], [5, 6, 7, 8]]
    assert (sample["boxes"].dtype, source[1]["boxes"].shape) == (np.float32, (0, 4))
    assert sample["age"] == 42.5
    assert source.value(1, "age") == 1
    for text in ("1 2 3", "3 2 1 4", "1 2 x 4", "1 2 nan 4", "1_0 2 30 4"):
        (tmp_path / "a.txt").write_text(text)
        with pytest.raises(BadInput, match="a.txt: .*boxes"):
            opened(tmp_path, *options)[0]
    (tmp_path / "b.age").write_text("1 2")
    with pytest.raises(BadInput, match="b.age: .*number"):
        opened(tmp_path, *options)[1]


def test_large_whole_numbers_stay_what_they_are(tmp_path: Path) -> None:
    ids = [2**53 + number for number in range(6)] + [-(2**63), 2**63 - 1]
    files = {f"{n}.png": image(n) for n in range(8)} | {f"{n}_id.txt": f"{value}\n" for n, value in enumerate(ids)}
    root = write(tmp_path / "data", files)
    request = SourceSpec("folder", {}, ("obj=_id.txt:number",), ("train=0.5", "val=0.5"), split_by="obj")
    source, _ = request.open(root)
    convert_source(source, tmp_path / "pack", ConversionOptions(source=request.to_json(source)))
    dataset = LMDBDataset(tmp_path / "pack")
    assert [dataset[n]["obj"] for n in range(8)] == dataset.column("obj").tolist() == ids
    assert np.bincount(dataset.column("split")).tolist() == [4, 4]
    assert list(Comparison(tmp_path / "pack", root).problems()) == []


@pytest.mark.parametrize("other", ["0.5", "12345678901234567890"])
def test_whole_numbers_that_float64_rounds_are_refused(tmp_path: Path, other: str) -> None:
    files = {"a.jpg": b"", "a.n": str(2**53 + 1), "b.jpg": b"", "b.n": other, "c.jpg": b"", "c.n": str(-(2**53))}
    source = opened(write(tmp_path, files), "n=.n:number")
    assert source.schema["n"].dtype == "float64"
    with pytest.raises(BadInput, match=r"a.n: .*9007199254740993.*2\*\*53"):
        source[0]
    assert source[2]["n"] == -(2.0**53)


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (("images/a/1.png", "images/b/1.png", "masks/1.png"), "masks/{stem}.png"),
        (("a.jpg", "a.png", "a_m.png"), "_m.png"),
    ],
)
def test_samples_do_not_share_a_file_by_habit(tmp_path: Path, names: tuple[str, ...], suffix: str) -> None:
    root = write(tmp_path, {name: image(1, suffix=Path(name).suffix) for name in names})
    with pytest.raises(InvalidRequest, match="same file"):
        opened(root, f"mask={suffix}:mask", folders="none", companions="samples")


def test_a_file_of_a_whole_folder_is_shared_as_it_is_meant(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {f"{top}/{number}.png": image(number) for top in "ab" for number in range(2)}
    root = write(tmp_path, {**files, "a/camera.json": "[1]", "b/camera.json": "[2]"})
    source = opened(root, "camera={folder}/camera.json:json", folders="none")
    assert [source[row]["camera"] for row in range(4)] == [[1], [1], [2], [2]]


def turned_set(root: Path, *, frame: str) -> Path:
    """Images of every EXIF orientation with a bright block, its mask and its box, drawn in that frame."""
    shown = np.zeros((64, 96, 3), np.uint8)
    shown[8:24, 8:40] = 255
    files: dict[str, bytes | str] = {}
    for orientation in range(1, 9):
        back = {6: 8, 8: 6}.get(orientation, orientation)
        stored = warp(shown, upright(back, 64, 96), "image")
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        Image.fromarray(stored).save(file, "PNG", exif=exif)
        seen = shown if frame == "upright" else stored
        rows, columns = np.nonzero(seen[:, :, 0])
        files[f"images/{orientation}.png"] = file.getvalue()
        files[f"masks/{orientation}.png"] = encoded(".png", np.ascontiguousarray(seen[:, :, 0]))
        box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        files[f"boxes/{orientation}.txt"] = " ".join(map(str, box))
    return write(root, files)


FRAMED = ("mask=masks/{stem}.png:mask", "boxes=boxes/{stem}.txt:boxes")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("resize", [None, "32"])
@pytest.mark.parametrize(("frame", "exif"), [("upright", "rotate"), ("stored", "rotate"), ("stored", "ignore")])
def test_masks_and_boxes_of_images_that_are_not_upright_fit_them(
    tmp_path: Path, frame: str, exif: str, resize: str | None
) -> None:
    root = turned_set(tmp_path / "in", frame=frame)
    request = SourceSpec("folder", {"folders": "none"}, FRAMED)
    source, _ = request.open(root)
    options = ConversionOptions(exif=exif, resize=resize, labels_orientation=frame, source=request.to_json(source))
    summary = convert_source(source, tmp_path / "out", options)
    assert (summary.samples, summary.skipped, summary.incomplete) == (8, (), ())
    dataset = LMDBDataset(tmp_path / "out")
    for sample in (dataset[index] for index in range(len(dataset))):
        bright = sample["image"][0] > 127
        assert bright.shape == sample["mask"].shape
        assert torch.equal(bright, sample["mask"] > 127)
        rows, columns = torch.nonzero(bright, as_tuple=True)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert sample["boxes"][0].tolist() == pytest.approx([int(edge) for edge in found], abs=1e-3)
    assert list(Comparison(tmp_path / "out", root).problems()) == []


@pytest.mark.parametrize("exif", ["ignore", "rotate"])
def test_without_a_frame_images_that_are_not_upright_are_errors(tmp_path: Path, exif: str) -> None:
    root = turned_set(tmp_path / "in", frame="upright")
    source = opened(root, *FRAMED, folders="none")
    with pytest.raises(BadInputs, match="EXIF orientation 2") as caught:
        convert_source(source, tmp_path / "out", ConversionOptions(exif=exif))
    assert "7 of 8" in str(caught.value)
    assert str(caught.value).count("choose the orientation of its masks, depth and boxes") == 1
    with pytest.raises(BadInputs, match="--exif rotate stores"):
        convert_source(source, tmp_path / "out", ConversionOptions(labels_orientation="upright"))


@pytest.mark.parametrize(("drawn", "said"), [("upright", "stored"), ("stored", "upright")])
def test_a_frame_that_the_shapes_contradict_is_an_error(tmp_path: Path, drawn: str, said: str) -> None:
    source = opened(turned_set(tmp_path / "in", frame=drawn), FRAMED[0], folders="none", missing="skip")
    options = ConversionOptions(exif="rotate", labels_orientation=said, on_error="skip")
    summary = convert_source(source, tmp_path / "out", options)
    assert [key for key, _ in summary.skipped] == [f"images/{orientation}.png" for orientation in (5, 6, 7, 8)]
    assert "other orientation" in summary.skipped[0][1]
