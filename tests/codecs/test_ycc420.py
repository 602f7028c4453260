"""Codec ycc420: its bytes, that other software opens them, what it refuses, and its way from files into batches."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

import packer
from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop, draw
from packer.images import sniff
from packer.images.planar_420 import half, jpeg_planes
from packer.schema import Field
from tests.support import grasp_folders, image_files, source_trees

pytestmark = pytest.mark.jpeg

SHAPE = (None, None, 3)
HEAD = b"YUV4MPEG2 W00067 H00041 F1:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\nFRAME\n"
GRAY = HEAD.replace(b"C420jpeg", b"Cmono XY")


def codec(shape: Any = SHAPE) -> Codec:
    return codecs.make(Field("image", "image", "ycc420", dtype="uint8", shape=shape))


def photos(root: Path, count: int = 10) -> Path:
    """4:2:0 JPEGs of two odd sizes, a gray one, and one that is lossless."""
    files: dict[str, bytes | str] = {}
    for number in range(count - 2):
        pixels = image_files.colors(number, height=41 + number % 2, width=67)
        files[f"{number % 2}/{number:02}.jpg"] = image_files.jpeg(pixels)
    files["0/gray.jpg"] = image_files.jpeg(image_files.grays())
    files["1/png.png"] = image_files.with_pillow(image_files.colors(9), "PNG")
    return source_trees.write(root, files)


# ---- bytes


@pytest.mark.parametrize("size", [(41, 67), (40, 66), (1, 1)])
def test_a_jpeg_comes_back_as_its_planes_to_the_bit(size: tuple[int, int]) -> None:
    file = image_files.jpeg(image_files.colors(height=size[0], width=size[1]))
    stored = codec().encode_file(file, sniff(file))
    planes = jpeg_planes(file, sniff(file))
    assert stored is not None and planes is not None and planes.cb is not None and planes.cr is not None
    head = HEAD.replace(b"W00067 H00041", f"W{size[1]:05} H{size[0]:05}".encode())
    assert stored == head + planes.y.tobytes() + planes.cb.tobytes() + planes.cr.tobytes()
    rows, columns = half(*size)
    assert len(stored) == len(head) + size[0] * size[1] + 2 * rows * columns


def test_a_gray_image_has_one_plane_and_loses_nothing() -> None:
    gray = image_files.grays()
    pixels = np.repeat(gray[:, :, None], 3, axis=2)
    assert codec().encode(pixels) == GRAY + gray.tobytes()
    assert np.array_equal(codec().decode(GRAY + gray.tobytes()), pixels)
    file = image_files.jpeg(pixels)  # of three components, the second and third all 128
    stored = codec().encode_file(file, sniff(file))
    assert stored is not None and stored.startswith(GRAY) and len(stored) == len(GRAY) + gray.size


def test_other_jpegs_go_through_their_pixels() -> None:
    file = image_files.jpeg(sampling="444")
    assert codec().encode_file(file, sniff(file)) is None


@pytest.mark.parametrize("size", [(48, 80), (41, 67)])
def test_ffmpeg_reads_the_planes(size: tuple[int, int], tmp_path: Path) -> None:
    """As OpenCV brings it: its own conversion to BGR, which enlarges chroma otherwise."""
    pixels = cv2.GaussianBlur(image_files.colors(height=size[0], width=size[1]), (0, 0), 5)
    stored = codec().encode(pixels)
    path = tmp_path / "image.y4m"
    path.write_bytes(stored)
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    if not video.isOpened():
        pytest.skip("this build of OpenCV has no FFmpeg, which reads the file here")
    read, found = video.read()
    video.release()
    assert read and found.shape == pixels.shape
    difference = np.abs(found[:, :, ::-1].astype(int) - codec().decode(stored))
    assert difference.mean() <= 2.5 and difference.max() <= 24


def test_what_is_lost_is_stated_and_no_more() -> None:
    """Smooth colors come back within rounding; the noise of single pixels keeps its luma."""
    smooth = cv2.GaussianBlur(image_files.colors(height=96, width=128), (0, 0), 7)
    assert np.abs(codec().decode(codec().encode(smooth)).astype(int) - smooth).max() <= 4
    rough = image_files.colors(height=96, width=128)
    gray, kept = (cv2.cvtColor(each, cv2.COLOR_RGB2GRAY) for each in (rough, codec().decode(codec().encode(rough))))
    assert np.abs(gray.astype(int) - kept).mean() < 1


# ---- what is refused


STORED = HEAD + bytes(41 * 67 + 2 * 21 * 34)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        HEAD[:-1],
        HEAD,
        STORED[:-1],
        STORED + b"\0",
        STORED.replace(b"C420jpeg", b"Cmono XY"),
        STORED.replace(b"C420jpeg", b"C420mpeg"),
        STORED.replace(b"W00067", b"W99999").replace(b"H00041", b"H99999"),
        STORED.replace(b"W00067", b"W00000"),
        STORED.replace(b"W00067", b"W-0067"),
        STORED.replace(b"W00067", b"W   67"),
        STORED.replace(b"W00067", "W\u0661\u0661\u0661".encode()[:6]),
        STORED.replace(b"FRAME\n", b"FRAME "),
        GRAY + bytes(41 * 67 - 1),
        b"\xff" * len(STORED),
    ],
)
def test_bytes_that_it_did_not_make_are_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptRecord, match="field 'image'.*pack again"):
        codec().decode(damaged)
    with pytest.raises(CorruptRecord):
        codec().shape(damaged)


def test_another_size_than_the_field_has_is_refused() -> None:
    assert codec((41, 67, 3)).shape(STORED) == (41, 67, 3)
    for shape in ((42, 67, 3), (41, 66, 3)):
        with pytest.raises(CorruptRecord, match="field has"):
            codec(shape).decode(STORED)


@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0, 3), (1, 100_000, 3)])
def test_a_size_that_the_header_cannot_hold_is_bad_input(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="use codec raw"):
        codec().encode(np.zeros(shape, np.uint8))


def test_other_dtypes_and_kinds_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="uint8"):
        codecs.make(Field("image", "image", "ycc420", dtype="uint16", shape=SHAPE))
    with pytest.raises(InvalidRequest, match="cannot hold kind"):
        codecs.make(Field("mask", "mask", "ycc420"))


# ---- packs


def test_a_pack_keeps_the_planes(tmp_path: Path) -> None:
    packer.convert(photos(tmp_path / "photos"), tmp_path / "p", codecs={"image": "ycc420"})
    packer.verify(tmp_path / "p", level="full")
    packer.extract(tmp_path / "p", tmp_path / "extracted")
    with packer.open(tmp_path / "p", fields=("key", "image")) as found:
        for sample in found:
            (file,) = (path for path in tmp_path.glob("photos/*/*") if path.stem == Path(sample["key"]).stem)
            encoded = file.read_bytes()
            stored = codec().encode_file(encoded, sniff(encoded))
            pixels = sample["image"].permute(1, 2, 0).numpy()
            if stored is not None:
                assert np.array_equal(pixels, codec().decode(stored))
            image = cv2.imread(str(tmp_path / "extracted" / file.relative_to(tmp_path / "photos").with_suffix(".png")))
            assert np.array_equal(image[:, :, ::-1], pixels), "a PNG file of what is read"


def test_a_pack_of_kept_files_becomes_planes_to_the_bit(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    packer.convert(root, tmp_path / "direct", codecs={"image": "ycc420"}, order="stored")
    packer.convert(root, tmp_path / "kept", order="stored")
    packer.convert(tmp_path / "kept", tmp_path / "again", codecs={"image": "ycc420"}, order="stored")
    with packer.open(tmp_path / "direct") as one, packer.open(tmp_path / "again") as other:
        assert all(torch.equal(one[index]["image"], other[index]["image"]) for index in range(len(one)))
    packer.verify(tmp_path / "again", level="full", source=root)


def test_a_resized_pack_has_planes_of_one_size(tmp_path: Path) -> None:
    packer.convert(photos(tmp_path / "photos"), tmp_path / "p", codecs={"image": "ycc420"}, resize=(31, 33))
    with packer.open(tmp_path / "p") as found:
        assert found.schema["image"].shape == (31, 33, 3)
        assert {tuple(sample["image"].shape) for sample in found} == {(3, 31, 33)}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.full)])
def test_batches_of_crops_are_views_of_the_stored_values(workers: int, tmp_path: Path) -> None:
    packer.convert(photos(tmp_path / "photos"), tmp_path / "p", codecs={"image": "ycc420"}, order="stored")
    geometry = Compose(RandomResizedCrop(24), RandomHorizontalFlip())
    options: dict[str, Any] = {"num_workers": workers} if workers else {"threads": 2}
    with packer.open(tmp_path / "p", fields=("image",), geometry=geometry) as found:
        with packer.Loader(found, 4, shuffle=False, seed=5, **options) as loader:
            batches = torch.cat([batch["image"].clone() for batch in loader])
        pack = found.sample_decoder().pack
        for index in range(len(found)):
            with pack.record(index, ("image",)) as record:
                stored = bytes(record["image"])
            height, width, _ = codec().shape(stored)
            view = geometry.view(height, width, draw(5, 0, np.array([index]), geometry.draws)[0].tolist())
            assert np.array_equal(batches[index].permute(1, 2, 0).numpy(), codec().decode(stored, view))


def test_a_grasp_item_is_near_that_of_kept_files(tmp_path: Path) -> None:
    """Of a set whose images are 4:2:0 JPEGs: within 2 gray levels of 255."""
    root = grasp_folders.vmrd(tmp_path / "vmrd")
    items = []
    for name, asked in (("kept", {}), ("planes", {"rgb": "ycc420"})):
        packer.convert(root, tmp_path / name, codecs=asked, order="stored")
        items.append(packer.grasp.GraspDataset(tmp_path / name, 40, include_depth=False, seed=3))
    for index in range(len(items[0])):
        one, other = (grasp_folders.flat(found[index])[0] for found in items)
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 2.01 / 255
