"""NPZ and NPY of others: what NumPy saved is read without NumPy's reader; nothing is unpickled."""

import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.sources import base
from packer.sources._recognition import detect
from packer.sources.arrays import _stored_array as stored_array
from packer.sources.arrays.npy import Source as NpySource
from packer.sources.arrays.npz import Source
from packer.sources.records import _random_access_files
from tests.support.archives import zip_of
from tests.support.image_files import npy
from tests.support.source_trees import pasted_features, write

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 14, 3), np.uint8)
LABELS = np.arange(9, dtype=np.uint8).reshape(9, 1) % 4


def med(path: Path, *, is_compressed: bool) -> Path:
    """As MedMNIST's files are."""
    arrays = {}
    for split, count in (("train", 9), ("val", 2), ("test", 3)):
        arrays |= {f"{split}_images": PIXELS[:count], f"{split}_labels": LABELS[:count]}
    path.parent.mkdir(parents=True, exist_ok=True)
    (np.savez_compressed if is_compressed else np.savez)(path, **arrays)
    return path


@pytest.mark.parametrize("options", [{}, {"features": ("label=labels", "image=images:image")}])
def test_the_size_of_a_sample_is_its_image_whatever_is_named_first(tmp_path: Path, options: Any) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS[:4], labels=LABELS[:4])
    assert {Source(tmp_path / "a.npz", **options).entry(row).extent.size for row in range(4)} == {PIXELS[0].nbytes}


@pytest.mark.parametrize("is_compressed", [True, False])
def test_files_as_medmnist_has_them(is_compressed: bool, tmp_path: Path) -> None:
    root = med(tmp_path / "pathmnist.npz", is_compressed=is_compressed)
    with pytest.raises(InvalidRequest, match="test 3, train 9.*--named-splits"):
        Source(root)
    source = Source(root, named_splits=True)
    assert source.schema["split"].classes == ("train", "val", "test")
    assert [source.key(row) for row in (0, 9, 11)] == ["train/00000000", "val/00000000", "test/00000000"]
    for row in (8, *range(9)):
        assert np.array_equal(source[row]["image"], PIXELS[row])
        assert source[row]["label"] == LABELS[row, 0]
        assert source[row]["label"].shape == ()
    one = Source(root, features=("image=val_images", "label=val_labels"))
    assert len(one) == 2
    assert "images: assumed to be RGB" in source.notes
    packer.convert(root, tmp_path / "a.pack", named_splits=True)
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert all(np.array_equal(dataset[row]["image"], PIXELS[row]) for row in range(9))
    assert packer.verify(tmp_path / "a.pack", source=root).problems == ()
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert len(list((tmp_path / "out/train").glob("*.png"))) == 9


def test_x_train_and_y_train(tmp_path: Path) -> None:
    gray = PIXELS[..., 0]
    np.savez(tmp_path / "mnist.npz", x_train=gray, y_train=LABELS[:, 0], x_test=gray[:2], y_test=LABELS[:2, 0])
    source = Source(tmp_path, named_splits=True)
    assert len(source) == 11
    assert source.schema["split"].classes == ("train", "test")
    assert np.array_equal(source[3]["image"], np.repeat(gray[3][..., None], 3, 2))
    assert "x: gray: three equal channels" in source.notes


@pytest.mark.parametrize("is_compressed", [True, False])
@pytest.mark.parametrize("dtype", [">u2", "<f4", ">f8", "<f2"])
def test_numbers_of_every_kind(dtype: str, is_compressed: bool, tmp_path: Path) -> None:
    depth = (np.random.default_rng(1).random((4, 9, 10)) * 999).astype(dtype)
    score = np.arange(4).astype(dtype)
    save = np.savez_compressed if is_compressed else np.savez
    save(tmp_path / "a.npz", depth=depth, score=score, box=np.zeros((4, 2, 2), dtype), many=np.ones((4, 40), dtype))
    source = Source(tmp_path / "a.npz")
    native = depth.dtype.newbyteorder("=")
    for row in range(4):
        sample = source[row]
        assert np.asarray(sample["depth"]).tobytes() == depth[row].astype(native).tobytes()
        assert sample["score"] == score[row]
        assert sample["box"].shape == (2, 2)
        assert sample["many"].shape == (40,)
    assert source.schema["box"].is_column
    assert not source.schema["many"].is_column


@pytest.mark.parametrize("is_compressed", [True, False])
def test_arrays_in_fortran_order(is_compressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = np.savez_compressed if is_compressed else np.savez
    save(tmp_path / "a.npz", x=np.asfortranarray(PIXELS), y=np.asfortranarray(LABELS[:, :1]))
    np.save(tmp_path / "b.npy", np.asfortranarray(PIXELS))
    for source in (Source(tmp_path / "a.npz"), NpySource(tmp_path / "b.npy")):
        assert all(np.array_equal(source[row]["image"], PIXELS[row]) for row in range(9))
    monkeypatch.setattr(stored_array, "_MOST_FORTRAN_BYTES", 1000)
    with pytest.raises(BadInput, match="numpy.ascontiguousarray"):
        NpySource(tmp_path / "b.npy")


def test_members_larger_than_what_is_kept_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_random_access_files, "_BLOCK_BYTES", 700)
    np.savez_compressed(tmp_path / "a.npz", x=PIXELS, y=LABELS)
    source = Source(tmp_path / "a.npz")
    assert all(np.array_equal(source[row]["image"], PIXELS[row]) for row in (8, 0, 4, *range(9), 2))


def test_texts_are_classes_and_texts(tmp_path: Path) -> None:
    names = np.array(["ünï", "b", "b", "a"])
    np.savez(tmp_path / "a.npz", images=PIXELS[:4], labels=names, raw=np.array([b"x", b"yz", b"", b"q"]))
    source = Source(tmp_path / "a.npz")
    assert source.schema["label"].classes == ("a", "b", "ünï")
    assert [int(source[row]["label"]) for row in range(4)] == [2, 1, 1, 0]
    assert [source[row]["raw"] for row in range(4)] == ["x", "yz", "", "q"]
    kept = Source(tmp_path / "a.npz", features=("image=images", "label=labels:text"))
    assert kept[0]["label"] == "ünï"


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("number", [0x110000, 0xD800, 0xFFFFFFFF])
def test_a_text_with_what_is_no_character_is_damage(tmp_path: Path, order: str, number: int) -> None:
    names = np.array(["ab", "ünï", "c", ""], f"{order}U3")
    np.savez(tmp_path / "a.npz", images=PIXELS[:4], labels=names)
    assert Source(tmp_path / "a.npz", features=("image=images", "label=labels:text"))[1]["label"] == "ünï"
    names.view(f"{order}u4")[4] = number
    np.savez(tmp_path / "a.npz", images=PIXELS[:4], labels=names)
    with pytest.raises(BadInput, match="a.npz.*: row 1.*text"):
        Source(tmp_path / "a.npz")


def test_npy_files_of_one_folder_are_a_table(tmp_path: Path) -> None:
    for split, count in (("train", 5), ("test", 3)):
        for name, array in (("x", PIXELS), ("y", LABELS)):
            np.save(tmp_path / f"{name}_{split}.npy", array[:count])
    source = NpySource(tmp_path, named_splits=True)
    assert len(source) == 8
    assert [int(source[row]["label"]) for row in range(8)] == [0, 1, 2, 3, 0, 0, 1, 2]
    assert [path.name for path in base.file_paths(source, 6)] == ["x_test.npy", "y_test.npy"]
    assert np.array_equal(source[6]["image"], PIXELS[1])
    one = NpySource(tmp_path / "x_train.npy")
    assert one.schema.names == ("key", "image", "files")


# ---- what is refused


class Planted:
    """Says that it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise AssertionError('unpickled')",)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([Planted()] * 9, object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(BadInput, match="a.npy.*Python objects"):
        NpySource(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", x=PIXELS, y=objects)
    source = Source(tmp_path / "a.npz")
    assert any("skipped: a.npz/y.npy (it contains Python objects" in note for note in source.notes)
    with pytest.raises(InvalidRequest, match="no array 'y'"):
        Source(tmp_path / "a.npz", features=("image=x", "label=y"))


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_flipped_byte_is_found_by_the_crc32(is_compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if is_compressed else np.savez)(path, x=PIXELS, unused=np.arange(2))
    data = bytearray(path.read_bytes())
    data[2000] ^= 16
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match=r"a.npz.* (damaged|is cut)"):
        Source(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_flipped_bit_in_a_header_is_found_by_the_crc32(method: int, tmp_path: Path) -> None:
    """Before the header says that no field can hold the array, and the labels are left out."""
    sound = npy(LABELS)
    damaged = sound.replace(b"'shape'", b"'qhape'")
    data = zip_of({"x.npy": npy(PIXELS), "y.npy": damaged}, method=method)
    (tmp_path / "a.npz").write_bytes(data.replace(*(struct.pack("<I", zlib.crc32(npy)) for npy in (damaged, sound))))
    with pytest.raises(BadInput, match=r"y\.npy is damaged"):
        Source(tmp_path / "a.npz")


def lying(shape: str) -> bytes:
    """An .npy file whose header says that shape."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (117 - len(head)) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + b"ab"


REFUSED: dict[str, tuple[bytes, str]] = {
    "no zip": (b"GIF89a", "is not in the format .npz"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "cut": (zip_of({"x.npy": npy(PIXELS)})[:-30], "is damaged"),
    "another compression": (zip_of({"x.npy": npy(PIXELS)}, method=zipfile.ZIP_BZIP2), "compressed or encrypted"),
    "a shape beyond it": (zip_of({"x.npy": lying("(9, 9, 99999999999)")}), "is damaged"),
    "a shape short of it": (zip_of({"x.npy": lying("(1, 1)")}), "is damaged"),
    "code": (zip_of({"x.npy": lying("(__import__('os').system('id'),)")}), "does not describe"),
    "no array": (zip_of({"x.txt": b"a"}), "x.txt.*npy"),
    "labels alone": (zip_of({"y.npy": npy(LABELS)}), "y uint8"),
    "one image": (zip_of({"x.npy": npy(PIXELS[0])}), "x uint8.*--feature"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_no_data_set_is_refused(refused: str, tmp_path: Path) -> None:
    data, message = REFUSED[refused]
    write(tmp_path, {"a.npz": data})
    with pytest.raises(PackerError, match=message):
        Source(tmp_path / "a.npz")


def test_npy_files_that_are_cut_or_longer_are_damage(tmp_path: Path) -> None:
    data = npy(PIXELS)
    for changed in (data[:-1], data + b"x", data[:70]):
        write(tmp_path, {"a.npy": changed})
        with pytest.raises(BadInput, match="a.npy: "):
            NpySource(tmp_path / "a.npy")
    write(tmp_path, {"a.npy": b"GIF89a"})
    with pytest.raises(InvalidRequest, match="format .npy"):
        NpySource(tmp_path / "a.npy")


def test_many_arrays_that_may_be_one_sample_each_are_no_data_set(tmp_path: Path) -> None:
    for number in range(100):
        np.save(tmp_path / f"{number}.npy", PIXELS[0])
    with pytest.raises(InvalidRequest, match="no known"):
        detect(tmp_path)


@pytest.mark.parametrize("dtype", ["bool", "uint16", "float32", "int64"])
def test_masks_of_another_type_are_numbers(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, masks=np.ones((9, 12, 14), dtype), boxes=np.zeros((9, 4), np.float32))
    source = Source(tmp_path / "a.npz")
    assert (source.schema["masks"].kind, source.schema["boxes"].kind) == ("number", "number")


def typed_features(error: PackerError) -> tuple[str, ...]:
    """The fields of the first --feature in a message, and of those that follow it."""
    found = re.search(r"(--feature [^;\s]+ ?)+", str(error))
    assert found is not None
    return pasted_features(found[0])


@pytest.mark.parametrize("shape", [(12, 14, 9), (12, 14, 3, 9)])
def test_labels_that_count_another_axis_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.savez(tmp_path / "a.npz", images=pixels, labels=LABELS)
    with pytest.raises(InvalidRequest, match="first axis"):
        Source(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=np.moveaxis(pixels, -1, 0), labels=LABELS)
    assert len(Source(tmp_path / "b.npz")) == 9


def test_float_images_keep_their_name(tmp_path: Path) -> None:
    gray = np.random.default_rng(0).random((4, 9, 10), np.float32)
    np.savez(tmp_path / "a.npz", images=gray, depth=gray * 9)
    source = Source(tmp_path / "a.npz")
    assert (source.schema["images"].kind, source.schema["depth"].kind) == ("depth", "depth")
    assert np.array_equal(source[1]["depth"], gray[1] * 9)


def test_depths_without_a_value_for_missing_pixels_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS[:3], depth=np.full((3, 12, 14), 1000, np.uint16))
    made = packer.convert(tmp_path / "a.npz", tmp_path / "a.pack", resize=(8, 9))
    assert any("missing pixels" in note for note in made.notes)
    features = ("image=images:image", "depth=depth:depth:0")
    named = packer.convert(tmp_path / "a.npz", tmp_path / "b.pack", resize=(8, 9), features=features)
    assert not any("missing pixels" in note for note in named.notes)


def test_an_array_that_is_named_as_labels_is_a_mask(tmp_path: Path) -> None:
    masks = PIXELS[:4, :, :, 0] % 3 * 60
    for others in ({}, {"depth": np.ones((4, 12, 14), np.float32)}, {"images": PIXELS[:4]}):
        for name in ("mask", "seg", "msks", "labelmap", "inst"):
            np.savez(tmp_path / "a.npz", **{name: masks}, **others)  # type: ignore[arg-type]
            source = Source(tmp_path / "a.npz")
            assert source.schema[name].kind == "mask", (name, others.keys())
            assert np.array_equal(source[1][name], masks[1])
    np.savez(tmp_path / "a.npz", x=PIXELS[:4], y=masks)
    assert Source(tmp_path / "a.npz").schema["label"].kind == "mask"
    np.savez(tmp_path / "b.npz", images=PIXELS[:4], masks=PIXELS[:4] % 2)
    assert any("named as labels, taken as an image" in note for note in Source(tmp_path / "b.npz").notes)


def test_rows_of_one_image_are_no_images(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", PIXELS[number])
    with pytest.raises(InvalidRequest, match="numpy.stack"):
        NpySource(tmp_path)
    with pytest.raises(InvalidRequest, match="numpy.stack"):
        NpySource(tmp_path, features=("image=0",))


@pytest.mark.parametrize(("dtype", "kinds"), [("uint8", ["image", "mask"]), ("uint16", ["depth", "mask:uint16"])])
def test_planes_whose_name_says_neither_image_nor_mask_are_refused(
    tmp_path: Path, dtype: str, kinds: list[str]
) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, lesion=(PIXELS[..., 0] % 3 * 60).astype(dtype), labels=LABELS)
    with pytest.raises(InvalidRequest, match="lesion") as caught:
        Source(tmp_path / "a.npz")
    typed = typed_features(caught.value)
    assert typed[2] == f"lesion=lesion:{kinds[0]}"
    for kind in kinds:
        source = Source(tmp_path / "a.npz", features=(*typed[:2], f"lesion=lesion:{kind}"))
        assert source.schema["lesion"].kind == kind.partition(":")[0]


def test_verify_finds_values_that_changed_in_the_source(tmp_path: Path) -> None:
    values = {"labels": LABELS, "boxes": np.ones((9, 4), np.float32), "names": np.array(list("abcdefghi"))}
    np.savez(tmp_path / "a.npz", images=PIXELS, **values)  # type: ignore[arg-type]
    packer.convert(tmp_path / "a.npz", tmp_path / "a.pack")
    assert packer.verify(tmp_path / "a.pack", source=tmp_path / "a.npz").problems == ()
    for name, array in values.items():
        np.savez(tmp_path / "a.npz", images=PIXELS, **{**values, name: array[::-1]})  # type: ignore[arg-type]
        problems = packer.verify(tmp_path / "a.pack", source=tmp_path / "a.npz").problems
        assert len(problems) == int((array != array[::-1]).any(axis=tuple(range(1, array.ndim))).sum()), name
        assert all("differs: the pack has" in problem for problem in problems)


@pytest.mark.parametrize("options", [{}, {"resize": 8}, {"codecs": {"image": "raw"}}])
def test_arrays_beyond_the_limit_of_pixels_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS)
    with pytest.raises(BadInput, match="--max-pixels"):
        packer.convert(tmp_path / "a.npz", tmp_path / "a.pack", max_pixels=12 * 14 - 1, **options)
    packer.convert(tmp_path / "a.npz", tmp_path / "a.pack", max_pixels=12 * 14, **options)
    assert len(packer.open(tmp_path / "a.pack")[8]["image"])


# ---- files of one set that do not fit


def parts(folder: Path, *labels: Any, count: int = 4) -> Path:
    """A file of `count` images for each of these labels; None for a file without."""
    folder.mkdir()
    for number, values in enumerate(labels):
        arrays = {"images": PIXELS[:count]} | ({} if values is None else {"labels": values})
        np.savez(folder / f"p{number}.npz", **arrays)
    return folder


ROWS = np.arange(4)


@pytest.mark.parametrize(
    "options",
    [
        {"features": ("label=labels", "image=images")},
        {"features": ("image=images", "label=labels")},
    ],
)
def test_a_file_that_lacks_the_named_array_is_an_error(options: dict[str, Any], tmp_path: Path) -> None:
    root = parts(tmp_path / "in", ROWS, None, ROWS)
    with pytest.raises(InvalidRequest, match="'labels'.*p1.npz/images"):
        Source(root, **options)


def test_the_named_array_of_one_place_is_taken_alone(tmp_path: Path) -> None:
    root = parts(tmp_path / "in", ROWS, None)
    source = Source(root, features=("image=p0.npz/images", "label=p0.npz/labels"))
    assert len(source) == 4
    np.savez(root / "p1.npz", images=PIXELS[:4], labels=ROWS)
    np.savez(root / "stats.npz", mean=np.zeros(3))  # no part of the set: it has none of its arrays
    source = Source(root, features=("image=images", "label=labels"))
    assert len(source) == 8
    assert any("skipped: stats.npz/mean float64 (3,)" in note for note in source.notes)


def test_named_arrays_of_two_splits_are_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", test_images=PIXELS, train_labels=LABELS, train_other=LABELS)
    with pytest.raises(InvalidRequest, match="train_other"):
        Source(tmp_path / "a.npz", features=("image=images", "label=train_labels"))


def test_the_named_labels_of_other_images_are_an_error(tmp_path: Path) -> None:
    root = parts(tmp_path / "in", ROWS, ROWS[:3])
    with pytest.raises(InvalidRequest, match="p1.npz/labels.*3 rows.*p1.npz/images 4"):
        Source(root, features=("image=images", "label=labels"))
    np.savez(root / "p1.npz", images=PIXELS[:4, :9], labels=ROWS)
    with pytest.raises(BadInput, match=r"p1.npz/images uint8.*\(4, 9, 14, 3\)"):
        Source(root, features=("image=images", "label=labels"))
    alone = Source(root, features=("label=labels",))
    assert len(alone) == 8
    assert any(note.startswith("no image: p0.npz/labels int64 (4,)") for note in alone.notes)


def test_whole_numbers_of_any_width_are_one_label(tmp_path: Path) -> None:
    root = parts(tmp_path / "in", ROWS.astype(np.uint8), ROWS.reshape(4, 1) - 2, ROWS.astype(">u2"))
    for options in ({}, {"features": ("image=images", "label=labels")}):
        source = Source(root, **options)
        assert [int(source[row]["label"]) for row in range(12)] == [0, 1, 2, 3, -2, -1, 0, 1, 0, 1, 2, 3]
        assert source.schema["label"].dtype == "int64"
        assert not any("skipped" in note for note in source.notes)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "no array 'labels' next to p1.npz/images"),
        (ROWS / 2, "p1.npz/labels float64 (4,) and p0.npz/labels int64 (4,) cannot be one field"),
    ],
)
def test_labels_that_are_skipped_name_the_file_and_the_reason(other: Any, why: str, tmp_path: Path) -> None:
    source = Source(parts(tmp_path / "in", ROWS, other))
    assert "label" not in source.schema
    assert "no labels" in source.notes
    assert any(note.startswith(f"arrays skipped: p0.npz/labels int64 (4,): {why}") for note in source.notes)


def test_a_label_too_few_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="p0.npz/labels has 3 rows"):  # as many as there are colors
        Source(parts(tmp_path / "in", ROWS[:3]))


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_numbers_that_are_no_image_are_said(dtype: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS.astype(dtype), labels=np.arange(9))
    source = Source(tmp_path / "a.npz")
    assert any(note.startswith(f"no image: a.npz/images {dtype} (9, 12, 14, 3)") for note in source.notes)
    assert "no labels" not in source.notes
