"""BasicSR's LMDBs: every generation gives the pixels that OpenCV read; lists and values that do not fit are named."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.errors import BadInput, InvalidRequest
from packer.sources._recognition import detect
from packer.sources.records.basicsr_lmdb import Source
from tests.sources.test_pickled import Evil
from tests.support.conversions import packed
from tests.support.foreign_files import lmdb_environment
from tests.support.source_trees import encoded, image, tree, write


def drawn(height: int, width: int, channels: int = 3, dtype: Any = np.uint8) -> np.ndarray:
    """Pixels as cv2.imread gives them: blue first, (H, W) for one channel."""
    values = np.random.default_rng(height).integers(
        0, np.iinfo(dtype).max, (height, width, channels), dtype, endpoint=True
    )
    return values if channels > 1 else values[:, :, 0]


def resolution(image: np.ndarray) -> str:
    """As mmsr and PySODToolBox write it."""
    height, width = image.shape[:2]
    return f"{image.shape[2] if image.ndim == 3 else 1}_{height}_{width}"


def mmsr(root: Path, images: dict[str, np.ndarray], sizes: Any = None, keys: list[str] | None = None) -> Path:
    """Raw pixels with meta_info.pkl; sizes: one for all where all are equal, as the tool has it."""
    found = [resolution(image) for image in images.values()]
    found = found[:1] if len(set(found)) == 1 else found
    meta = {
        "name": "set",
        "resolution": found if sizes is None else sizes,
        "keys": list(images) if keys is None else keys,
    }
    lmdb_environment(root, {key.encode(): image.tobytes() for key, image in images.items()})
    return write(root, {"meta_info.pkl": pickle.dumps(meta)})


def first_basicsr(root: Path, images: dict[str, np.ndarray]) -> Path:
    """Raw pixels with their sizes under key.meta, and the list of keys."""
    entries = {key.encode(): image.tobytes() for key, image in images.items()}
    metas = {
        f"{key}.meta".encode(): f"{image.shape[0]}, {image.shape[1]}, {resolution(image)[0]}".encode()
        for key, image in images.items()
    }
    lmdb_environment(root, {**entries, **metas})
    return write(root, {"_keys_cache.p": pickle.dumps([key.decode() for key in {**entries, **metas}])})


MIXED = {"a b": drawn(5, 7), "b": drawn(4, 9), "c": drawn(6, 6, 1)}


@pytest.mark.parametrize("writer", [mmsr, first_basicsr])
def test_raw_pixels_are_what_opencv_read(tmp_path: Path, writer: Any) -> None:
    root = writer(tmp_path / "in", MIXED)
    assert detect(root)[0] == detect(root / "data.mdb")[0] == "basicsr-lmdb"
    source = Source(root)
    assert [source.key(row) for row in range(len(source))] == list(MIXED)
    for row, pixels in enumerate(MIXED.values()):
        expected = pixels[:, :, ::-1] if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
        assert np.array_equal(source[row]["image"], expected)
    assert source.decodes
    packed(root, tmp_path / "a.pack", kind="basicsr-lmdb")
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert all(np.array_equal(dataset[row]["image"], source[row]["image"]) for row in range(len(source)))
    assert packer.verify(tmp_path / "a.pack", source=root).problems == ()
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert {b"a b.png", b"b.png", b"c.png"} <= set(tree(tmp_path / "out"))


def test_one_size_for_all_counts_for_all(tmp_path: Path) -> None:
    """PySODToolBox keeps suffixes in its keys; its own tester fails behind the first."""
    images = {f"{at}.jpg": drawn(6, 8) + np.uint8(at) for at in range(3)}
    source = Source(mmsr(tmp_path / "in", images))
    assert np.array_equal(source[2]["image"], images["2.jpg"][:, :, ::-1])
    assert source[2]["files"] == {"image": "2.png"}


def test_a_size_as_text_and_keys_without_frames_are_read(tmp_path: Path) -> None:
    """vimeo90k: the list has `00001_0001` for the keys `00001_0001_1` to `_7`."""
    images = {f"00001_0001_{frame}": drawn(4, 6) + np.uint8(frame) for frame in range(1, 4)}
    source = Source(mmsr(tmp_path / "in", images, "3_4_6", ["00001_0001"]))
    assert np.array_equal(source[2]["image"], images["00001_0001_3"][:, :, ::-1])
    sized = {"00001_0001_1": drawn(4, 6), "00001_0002_1": drawn(5, 6)}
    source = Source(mmsr(tmp_path / "two", sized, ["3_4_6", "3_5_6"], ["00001_0001", "00001_0002"]))
    assert [source[row]["image"].shape for row in range(2)] == [(4, 6, 3), (5, 6, 3)]


@pytest.mark.parametrize("channels", [3, 4])
def test_sixteen_bit_pixels_are_told_by_their_length_and_kept(tmp_path: Path, channels: int) -> None:
    images = {"a": drawn(4, 6, channels, np.uint16), "b": drawn(5, 6, channels, np.uint16)}
    root = mmsr(tmp_path / "in", images)
    source = Source(root)
    order = [2, 1, 0, 3][:channels]
    packed(root, tmp_path / "a.pack", kind="basicsr-lmdb")
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    for row, pixels in enumerate(images.values()):
        assert np.array_equal(source[row]["image"], pixels[:, :, order])
        assert np.array_equal(dataset[row]["image"], pixels[:, :, order])
        assert dataset[row]["image"].dtype == np.uint16


def test_sixteen_bit_gray_is_depth_in_pixels_and_in_files(tmp_path: Path) -> None:
    image = drawn(4, 6, 1, np.uint16)
    packed(mmsr(tmp_path / "raw", {"a": image}), tmp_path / "raw.pack", kind="basicsr-lmdb")
    assert np.array_equal(packer.open(tmp_path / "raw.pack", output="numpy")[0]["depth"], image)
    lmdb_environment(tmp_path / "in", {b"a": encoded(".png", image)})
    root = write(tmp_path / "in", {"meta_info.txt": "a.png (4,6,1) 1\n"})
    assert "image files: 1 (16 bit, 1 channel)" in Source(root).notes
    packed(root, tmp_path / "a.pack", kind="basicsr-lmdb")
    assert np.array_equal(packer.open(tmp_path / "a.pack", output="numpy")[0]["depth"], image)
    packer.convert(root, tmp_path / "b.pack", kind="basicsr-lmdb", features=("mask=value:mask:uint16",))
    assert np.array_equal(packer.open(tmp_path / "b.pack", output="numpy")[0]["mask"], image)


def test_features_say_what_the_pixels_are(tmp_path: Path) -> None:
    mask = drawn(4, 6, 1)
    root = mmsr(tmp_path / "in", {"a": mask})
    source = Source(root, features=("mask=value:mask",))
    assert np.array_equal(source[0]["mask"], mask)
    assert source[0]["files"] == {"mask": "a.png"}
    for features in (("a=b",), ("a=value:json",), ("a=value:mask", "b=value:mask")):
        with pytest.raises(InvalidRequest, match="option features: .*FIELD=value:KIND"):
            Source(root, features=features)


def test_png_files_keep_their_bytes(tmp_path: Path) -> None:
    lmdb_environment(tmp_path / "in", {b"baboon": image(1), b"comic": image(2, height=20)})
    root = write(tmp_path / "in", {"meta_info.txt": "baboon.png (48,64,3) 1\ncomic.png (20,64,3) 1\n"})
    source = Source(root)
    assert [source[row]["image"] for row in range(2)] == [image(1), image(2, height=20)]
    assert not source.decodes
    packed(root, tmp_path / "a.pack", kind="basicsr-lmdb")
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert tree(tmp_path / "out")[b"baboon.png"] == image(1)


def test_bare_image_files_are_taken_where_the_user_says_so(tmp_path: Path) -> None:
    root = lmdb_environment(tmp_path / "in", {b"a": image(1), b"b": encoded(".jpg", drawn(8, 8))})
    with pytest.raises(InvalidRequest, match="basicsr-lmdb"):
        detect(root)
    assert Source(root)[0]["image"] == image(1)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (pickle.dumps(Evil()), "a pickle that names"),
        (pickle.dumps(["3_4_5"]), "expected a dict with resolution"),
        (pickle.dumps({"resolution": [], "keys": []}), "expected a dict with resolution"),
        (pickle.dumps({"resolution": [3, 4], "keys": []}), "expected a dict with resolution"),
        (pickle.dumps({"resolution": "3_4", "keys": []}), "three lengths of an image, found '3_4'"),
        (pickle.dumps({"resolution": "9_4_5", "keys": []}), "4 x 5 x 9: expected an image of 1 to 4 channels"),
        (pickle.dumps({"resolution": "3_99999_99999", "keys": []}), "expected an image"),
        (pickle.dumps({"resolution": ["3_4_5", "3_5_5"], "keys": ["a"]}), "2 sizes for 1 keys"),
        (b"", "damaged"),
    ],
)
def test_lists_that_are_damaged_or_hostile_are_named(tmp_path: Path, meta: bytes, said: str) -> None:
    lmdb_environment(tmp_path / "in", {b"a": bytes(60)})
    with pytest.raises(BadInput, match=f"meta_info.pkl: .*{said}"):
        Source(write(tmp_path / "in", {"meta_info.pkl": meta}))


def test_a_damaged_size_is_named(tmp_path: Path) -> None:
    lmdb_environment(tmp_path / "meta", {b"a": bytes(60), b"a.meta": b"4,5"})
    with pytest.raises(BadInput, match="a.meta: .*lengths"):
        Source(tmp_path / "meta")


def test_values_that_are_no_image_of_that_size_are_bad_and_named(tmp_path: Path) -> None:
    images = {"a": drawn(4, 6), "b": drawn(4, 6), "c": drawn(4, 5)}
    source = Source(mmsr(tmp_path / "in", images, ["3_4_6"]))
    with pytest.raises(BadInput, match=r"data.mdb: .*\(c\): .*pixels"):
        source[2]
    with pytest.raises(BadInput, match="not known"):
        Source(mmsr(tmp_path / "two", images, ["3_4_6", "3_4_5"], ["x", "y"]))[0]


def test_eight_and_sixteen_bit_in_one_are_refused(tmp_path: Path) -> None:
    images = {"a": drawn(4, 6), "b": drawn(5, 6, 3, np.uint16)}
    with pytest.raises(InvalidRequest, match="several kinds.*uint16.*uint8"):
        Source(mmsr(tmp_path / "in", images))
