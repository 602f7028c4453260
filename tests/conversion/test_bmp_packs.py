"""bmp packs: ImageFolder over one is ImageFolder over the source; what is on the disk, and what does not belong."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion import pack_build
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_build import estimate
from packer.conversion.plan import make_plan
from packer.datasets.pack_dataset import BMPDataset
from packer.errors import InvalidRequest, StorageError
from packer.files import fsync
from packer.pack.verification import problems
from tests.support import source_trees
from tests.support.conversions import opened, packed
from tests.support.source_trees import photos

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def image_folder(root: Path) -> list[tuple[Path, int]]:
    """What torchvision's ImageFolder lists: class by class, folder by folder, file by file, all sorted."""
    found = []
    for label, name in enumerate(sorted(entry.name for entry in os.scandir(root) if entry.is_dir())):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            found += [(Path(folder, file), label) for file in sorted(files) if file.lower().endswith(EXTENSIONS)]
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of lossless images of odd widths, gray ones among them, with names of every kind."""
    root = source_trees.image_folder(tmp_path_factory.mktemp("in") / "root")
    for width in range(1, 9):
        (root / f"cat/width {width}.png").write_bytes(source_trees.image(width, height=3, width=width))
    gray = np.arange(15, dtype=np.uint8).reshape(3, 5)
    (root / "Zebra/gray.png").write_bytes(source_trees.encoded(".png", gray))
    (root / "Zebra/UPPER.BMP").write_bytes(source_trees.image(3, suffix=".bmp", height=1, width=1))
    for path in [*root.rglob("*.jpg"), *root.rglob("*.JPEG"), *root.rglob("*.webp")]:
        path.unlink()  # other decoders give other pixels for lossy files
    return root


def test_image_folder_over_a_pack_is_image_folder_over_the_source(root: Path, tmp_path: Path) -> None:
    packed(root, tmp_path / "a.pack", to="bmp")
    source, inside = image_folder(root), image_folder(tmp_path / "a.pack/part-00000/image")
    dataset = BMPDataset(tmp_path / "a.pack", as_tuple=("image", "label"), output="numpy")
    assert len(inside) == len(source) == len(dataset) == 13
    for (path, label), (original, expected), (pixels, number) in zip(inside, source, dataset, strict=True):
        assert label == expected == number
        with Image.open(path) as found, Image.open(original) as wanted:
            assert (found.format, found.mode) == ("BMP", "RGB")
            assert np.array_equal(np.asarray(found), np.asarray(wanted.convert("RGB")))
            assert np.array_equal(np.asarray(found), pixels)
        colors = cv2.imread(os.fspath(path), cv2.IMREAD_UNCHANGED)
        assert colors is not None and np.array_equal(colors[:, :, ::-1], pixels)


def test_depth_masks_and_labels_are_files_of_their_kinds(tmp_path: Path) -> None:
    source_trees.jacquard(tmp_path / "in")
    packed(tmp_path / "in", tmp_path / "a.pack", to="bmp")
    left = packer.open(tmp_path / "a.pack", output="numpy")
    part = tmp_path / "a.pack/part-00000"
    key = f"0_{source_trees.HASH_32}"
    depth = np.load(part / f"depth/{key}.npy")
    assert (depth.dtype, depth.shape) == (np.float32, (48, 64))
    assert np.array_equal(depth, left[left.index_of(key)]["depth"])
    with Image.open(part / f"mask/{key}.bmp") as mask:
        assert mask.mode == "L"
        assert np.array_equal(np.asarray(mask), left[left.index_of(key)]["mask"])
    verbatim = next((tmp_path / "in").rglob(f"{key}_grasps.txt")).read_bytes()
    assert (part / f"grasps_file/{key}.bin").read_bytes() == verbatim


def test_a_codec_that_is_asked_for_is_used(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 4)
    packed(root, tmp_path / "a.pack", to="bmp", codecs=(("image", "encoded"),))
    for (path, _), (original, _) in zip(
        image_folder(tmp_path / "a.pack/part-00000/image"), image_folder(root), strict=True
    ):
        assert (path.name, path.read_bytes()) == (original.name, original.read_bytes())


def test_a_pack_is_one_part_unless_parts_are_asked_for(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    summary = packed(root, tmp_path / "a.pack", to="bmp")
    assert summary.parts == 1
    assert summary.bytes_out == sum(file.stat().st_size for file in (tmp_path / "a.pack").rglob("*") if file.is_file())
    assert packed(root, tmp_path / "b.pack", to="bmp", part_bytes=9000).parts > 3
    inside = [len(image_folder(part / "image")) for part in sorted((tmp_path / "b.pack").glob("part-*"))]
    assert sum(inside) == 30


# ---- the disk


def test_a_part_is_on_disk_before_its_record_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "in", 12)
    synced = []

    def note(path: Path) -> None:
        assert not (tmp_path / f".a.pack.partial/done/{path.name}.json").exists()
        synced.append(path.name)

    monkeypatch.setattr(fsync, "sync_file_system", note)
    summary = packed(root, tmp_path / "a.pack", to="bmp", part_bytes=9000)
    assert sorted(synced) == [f"part-{number:05d}" for number in range(summary.parts)]

    def fail(path: Path) -> None:
        raise StorageError(f"{path}: cannot sync to disk: Input/output error")

    monkeypatch.setattr(fsync, "sync_file_system", fail)
    with pytest.raises(StorageError, match="cannot sync"):
        packed(root, tmp_path / "b.pack", to="bmp")
    assert not (tmp_path / "b.pack").exists()


def test_the_estimate_counts_files_and_the_disk_must_take_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(opened(photos(tmp_path / "in", 40, height=64, width=64)), ConversionOptions(to="bmp"))
    assert 40 * (64 * 64 * 3 + 54) < estimate(plan).pack_bytes < 1.25 * 40 * (64 * 64 * 3 + 54)
    monkeypatch.setattr(pack_build, "free_files", lambda path: 39)
    with pytest.raises(StorageError, match="40 files"):
        convert_source(plan.source, tmp_path / "a.pack", plan.options)
    assert not (tmp_path / "a.pack").exists()


# ---- what does not belong, and what is missing


def test_a_foreign_file_in_a_part_is_found_and_never_removed(root: Path, tmp_path: Path) -> None:
    packed(root, tmp_path / "a.pack", to="bmp")
    for name in ("part-00000/image/cat/mine.bmp", "part-00000/mine", "part-00000/new/mine"):
        mine = tmp_path / "a.pack" / name
        mine.parent.mkdir(exist_ok=True)
        mine.write_bytes(b"")
        assert any(f"{name}: unknown file" in line for line in problems(tmp_path / "a.pack"))
        with pytest.raises(InvalidRequest, match="did not write"):
            convert_source(opened(root), tmp_path / "a.pack", ConversionOptions(to="bmp"), overwrite=True)
        mine.unlink()
    (tmp_path / "a.pack/part-00000/new").rmdir()
    assert list(problems(tmp_path / "a.pack")) == []
    convert_source(opened(root), tmp_path / "a.pack", ConversionOptions(to="bmp"), overwrite=True)
    assert list(problems(tmp_path / "a.pack")) == []


def test_a_quick_look_finds_missing_and_cut_files(root: Path, tmp_path: Path) -> None:
    packed(root, tmp_path / "a.pack", to="bmp")
    path = next((tmp_path / "a.pack/part-00000").rglob("gray*"))
    whole = path.read_bytes()
    for change in (path.unlink, lambda: path.write_bytes(whole[:-1]), lambda: path.write_bytes(whole + b"x")):
        change()
        (line,) = problems(tmp_path / "a.pack", level="quick")
        assert "cut, changed or missing files" in line
    path.write_bytes(whole)
    assert list(problems(tmp_path / "a.pack", level="quick")) == []
