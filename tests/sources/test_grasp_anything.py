"""Grasp-Anything: its files read by torch, pickle, NumPy and Pillow, and the traps of its layout."""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput
from packer.sources._recognition import detect
from packer.sources.grasp.grasp_anything import Source
from tests.support.layout_trees import grasp_anything
from tests.support.layout_trees.grasp_anything import GRASPS, TEXT, A, B, C, npy, rows, saved, square
from tests.support.source_trees import image, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return grasp_anything.build(tmp_path / "set")


def loaded(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """A label file as the loader of the networks reads it."""
    with path.open("rb") as file:
        return np.asarray(torch.load(file, weights_only=True).numpy())


def test_values_are_those_of_the_files(root: Path, tmp_path: Path) -> None:
    summary = convert(root, tmp_path / "out.pack")
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    assert list(dataset.keys()) == [A, B, C]
    for sample in map(dataset.__getitem__, range(len(dataset))):
        key, numbers = sample["key"], sorted(GRASPS[sample["key"]])
        with Image.open(root / f"image/{key}.jpg") as image:
            assert np.abs(sample["rgb"].astype(int) - np.asarray(image)).max() <= 3  # of two JPEG decoders
        files = [loaded(root / f"grasp_label_positive/{key}_{number}.pt") for number in numbers]
        expected = np.concatenate([np.zeros((0, 6), np.float32), *files])
        assert sample["grasp_rows"].dtype == np.float32 and np.array_equal(sample["grasp_rows"], expected)
        assert np.array_equal(sample["grasp_scores"], expected[:, 0])
        of_each = [number for number, file in zip(numbers, files, strict=True) for _ in file]
        assert sample["grasp_objects"].tolist() == of_each
        assert [sample["label_keys"][row] for row in sample["grasp_labels"]] == [f"{key}_{k}" for k in of_each]
        assert sample["label_keys"] == [f"{key}_{number}" for number in numbers]
        negative = [loaded(root / f"grasp_label_negative/{key}_{number}.pt") for number in numbers[:1]]
        assert np.array_equal(sample["grasp_rows_negative"], np.concatenate([expected[:0], *negative]))
        assert sample["grasp_objects_negative"].tolist() == [0, 0] * len(negative)
        with (root / f"scene_description/{key}.pkl").open("rb") as file:
            assert (sample["text"], sample["queries"]) == pickle.load(file)
        drawn = np.zeros((48, 64), int)
        for number in numbers:  # of one size, so that the later lie on top
            drawn[np.load(root / f"mask/{key}_{number}.npy")] = number + 1
        assert np.array_equal(sample["mask"], drawn)
    assert [key for key, _ in summary.incomplete] == [C]


def test_an_image_whose_name_ends_in_a_number_keeps_its_label_files(root: Path) -> None:
    write(root, {f"image/{A}_10.jpg": image(7, suffix=".jpg"), f"grasp_label_positive/{A}_10_4.pt": saved(rows(5, 2))})
    source = Source(root)
    assert [source.key(index) for index in range(4)] == [A, f"{A}_10", B, C]
    assert source[1]["label_keys"] == [f"{A}_10_4"] and source[1]["grasp_objects"].tolist() == [4, 4]
    assert source[0]["label_keys"][-1] == f"{A}_10"


def test_a_grasp_by_hand(root: Path) -> None:
    made = np.array([[0.5, 20, 30, 10, 6, 0], [0.25, 20, 30, 10, 6, 90]], np.float32)
    (root / f"grasp_label_positive/{B}_3.pt").write_bytes(saved(made))
    assert Source(root)[1]["grasps"] == pytest.approx(
        np.array([[[15, 27], [25, 27], [25, 33], [15, 33]], [[23, 25], [23, 35], [17, 35], [17, 25]]]), abs=1e-4
    )


def test_the_scores_and_numbers_are_exact(root: Path) -> None:
    made = np.array([[1e-30, 1 / 3, 2 / 3, 4.1, 5.3, -89.99999]], np.float32)
    (root / f"grasp_label_positive/{B}_3.pt").write_bytes(saved(made))
    source = Source(root)
    assert source[1]["grasp_rows"].tobytes() == made.tobytes() and source.missing(1) is None
    (root / f"grasp_label_positive/{B}_3.pt").write_bytes(saved(made.astype(np.float64) + 1e-12))
    assert "float64" in str(Source(root).missing(1))


class Evil:
    """A value that makes a folder if pickle loads it."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (saved(Evil()), r"posix\.mkdir"),
        (pickle.dumps(Evil()), "torch.save"),
        (saved([[0.5] * 6]), "list"),
        (saved(torch.zeros(2, 5)), r"found float32 \(2, 5\)"),
        (saved(torch.tensor(1.0)), r"found float32 \(\)"),
        (saved(torch.zeros(6)), r"found float32 \(6,\)"),
        (saved(torch.zeros(2, 6, dtype=torch.int64)), "found int64"),
        (saved(rows(1, 2))[:-9], "damaged"),
    ],
)
def test_a_file_without_a_tensor_of_rows_is_an_error_or_skipped(
    root: Path, data: bytes, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    (root / f"grasp_label_positive/{B}_3.pt").write_bytes(data)
    with pytest.raises(BadInput, match=rf"grasp_label_positive/{B}_3\.pt: .*{word}"):
        Source(root)[1]
    source = Source(root, bad_labels="skip")
    assert len(source[1]["grasps"]) == 0 and source[1]["label_keys"] == [f"{B}_0", f"{B}_3"]
    assert re.search(rf"grasp_label_positive/{B}_3\.pt: .*{word}", str(source.missing(1)))
    assert not (root / "evil").exists()


def test_rows_that_are_not_finite_are_skipped(root: Path) -> None:
    made = rows(1, 4)
    made[1, 0], made[2, 4] = np.nan, np.inf
    (root / f"grasp_label_positive/{B}_3.pt").write_bytes(saved(made))
    source = Source(root)
    assert np.array_equal(source[1]["grasp_rows"], made[[0, 3]])
    assert "2 of 4 grasps" in str(source.missing(1))


@pytest.mark.parametrize("empty", [torch.zeros(0, 6), torch.tensor([])])
def test_a_label_file_without_grasps(root: Path, empty: torch.Tensor) -> None:
    for number in (0, 3):
        (root / f"grasp_label_positive/{B}_{number}.pt").write_bytes(saved(empty))
    source = Source(root)
    assert source[1]["grasps"].shape == (0, 4, 2) and source[1]["label_keys"] == [f"{B}_0", f"{B}_3"]
    assert source.missing(1) == "no grasps"


def test_images_without_labels(root: Path) -> None:
    assert Source(root)[2]["label_keys"] == []
    assert any("1 image without label files" in note for note in Source(root).notes)
    source = Source(root, missing="skip")
    assert [source.key(index) for index in range(len(source))] == [A, B]
    assert [key for key, _ in source.left_out] == [C]
    assert {f"image/{C}.jpg", f"scene_description/{C}.pkl"} <= set(source.extras)


def test_labels_of_no_image_are_an_error_or_skipped(root: Path) -> None:
    (root / f"image/{B}.jpg").unlink()
    with pytest.raises(BadInput, match=rf"{B} \(no image"):
        Source(root)
    source = Source(root, missing="skip")
    assert [key for key, _ in source.left_out] == [B, C] and len(source) == 1
    assert f"grasp_label_positive/{B}_3.pt" in source.extras


@pytest.mark.parametrize("copy", [f"more/image/{A}.jpg", f"image/{A}.png", f"seen/positive_grasp/{A}_0.pt"])
def test_files_that_are_there_twice_are_an_error(root: Path, copy: str) -> None:
    write(root, {copy: b""})
    with pytest.raises(BadInput, match="there twice"):
        Source(root)


def test_a_description_that_is_code_is_skipped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    (root / f"scene_description/{A}.pkl").write_bytes(pickle.dumps(Evil()))
    (root / f"scene_description/{B}.pkl").write_bytes(pickle.dumps(("half \ud800", [])))
    (root / f"scene_description/{C}.pkl").write_bytes(pickle.dumps((1, 2)))
    source = Source(root)
    assert [source[index]["text"] for index in range(3)] == ["", "", ""] and source[0]["queries"] == []
    reasons = [source.missing(index) or "" for index in range(3)]
    assert f"scene_description/{A}.pkl: " in reasons[0] and "posix.mkdir" in reasons[0]
    assert "Unicode" in reasons[1] and "expected a pair" in reasons[2]
    assert not (root / "evil").exists()


def test_an_image_without_a_description(root: Path) -> None:
    (root / f"scene_description/{A}.pkl").unlink()
    source = Source(root)
    assert source[0]["text"] == "" and source.missing(0) == "no text: no scene_description"
    assert source[1]["text"] == TEXT[0]


def plusplus(root: Path) -> Path:
    """Grasp-Anything++ for its loaders: parts of objects, an instruction for each, other names of folders."""
    files: dict[str, bytes | str] = {f"{A}_{k}_{part}": b"" for k, part in ((0, 0), (0, 1), (10, 0))}
    made = {f"seen/positive_grasp/{stem}.pt": saved(rows(seed, 2)) for seed, stem in enumerate(files)}
    made |= {f"seen/grasp_instructions/{stem}.pkl": pickle.dumps(f"Grasp {stem}") for stem in list(files)[1:]}
    made |= {f"part_mask/{stem}.npy": npy(square(seed).astype(np.uint8)) for seed, stem in enumerate(files)}
    made |= {f"prompt/{A}.pkl": pickle.dumps(TEXT), f"image/{A}.jpg": image(1, suffix=".jpg")}
    return write(root, made)


def test_parts_of_objects(tmp_path: Path) -> None:
    root = plusplus(tmp_path / "set")
    assert detect(root) == ("grasp-anything", "Grasp-Anything: 1 image")
    source = Source(root)
    sample, stems = source[0], [f"{A}_0_0", f"{A}_0_1", f"{A}_10_0"]
    assert sample["label_keys"] == stems
    assert sample["grasp_objects"].tolist() == [0, 0, 0, 0, 10, 10]
    assert sample["grasp_labels"].tolist() == [0, 0, 1, 1, 2, 2]
    assert sample["instructions"] == [None, f"Grasp {stems[1]}", f"Grasp {stems[2]}"]
    assert np.array_equal(sample["grasp_rows"], np.concatenate([rows(seed, 2) for seed in range(3)]))
    assert "mask" not in sample and sorted(np.unique(sample["part_mask"])) == [0, 1, 2, 3]
    assert source.missing(0) is None


def test_masks_of_parts_without_a_label_file_are_not_drawn(tmp_path: Path) -> None:
    root = plusplus(tmp_path / "set")
    (root / f"seen/positive_grasp/{A}_10_0.pt").unlink()
    assert Source(root)[0]["part_mask"].max() == 2


def test_the_smaller_of_two_masks_is_on_top(root: Path) -> None:
    large, small = np.zeros((48, 64), bool), np.zeros((48, 64), bool)
    large[5:40, 5:40], small[10:15, 10:15] = True, True
    for number, mask in ((0, small), (3, large)):
        (root / f"mask/{B}_{number}.npy").write_bytes(npy(mask))
    mask = Source(root)[1]["mask"]
    assert mask[12, 12] == 1 and mask[20, 20] == 4 and mask[0, 0] == 0


def test_objects_beyond_255_have_masks_of_16_bit(root: Path) -> None:
    write(root, {f"mask/{B}_{300}.npy": npy(square(2).astype(np.int64))})
    source = Source(root)
    assert source.schema["mask"].dtype == "uint16" and source[1]["mask"].max() == 301


def test_a_mask_of_the_complete_image_is_kept(root: Path) -> None:
    whole = np.arange(48 * 64, dtype=np.uint8).reshape(48, 64)
    write(root, {f"mask/{C}.npy": npy(whole)})
    assert np.array_equal(Source(root)[2]["mask"], whole)
    write(root, {f"mask/{B}.npy": npy(whole)})
    with pytest.raises(BadInput, match="there twice"):
        Source(root)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (npy(np.zeros((48, 65), bool)), "65x48"),
        (npy(np.zeros((48, 64), np.float32)), r"found float32 \(48, 64\)"),
        (npy(np.zeros(48 * 8, np.uint8)), r"found uint8 \(384,\)"),
        (npy(np.zeros((48, 64), bool))[:-1], "3071 bytes"),
        (npy(np.array([[None]])), "Python objects"),
        (b"", "npy file"),
    ],
)
def test_a_mask_that_is_not_valid_is_an_error(root: Path, data: bytes, word: str) -> None:
    (root / f"mask/{B}_3.npy").write_bytes(data)
    with pytest.raises(BadInput, match=rf"mask/{B}_3\.npy: .*{word}"):
        Source(root)[1]


def test_places_and_names_of_folders(root: Path) -> None:
    before = Source(root)[0]
    (root / "images").mkdir()
    for old, new in (("image", "images/image"), ("grasp_label_positive", "a_0.pt/grasp_label"), ("mask", "image/mask")):
        (root / new).parent.mkdir(exist_ok=True)
        (root / old).rename(root / new)
    after = Source(root)[0]
    for name in ("key", "rgb", "label_keys"):
        assert after[name] == before[name]
    for name in ("grasp_rows", "mask"):
        assert np.array_equal(after[name], before[name])
