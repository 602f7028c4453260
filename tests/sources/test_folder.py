"""The folder source: torchvision's ImageFolder, and flat folders."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.errors import BadInput, InvalidRequest
from packer.sources._file_pattern import IMAGE_SUFFIXES
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.image_files.folder import Source
from tests.support.source_trees import image, image_folder, keys, write

TREE = SourceRoot(Path())

PARTS = st.text("ab-.A é", min_size=1, max_size=3).filter(lambda part: part.strip(".") != "")


def image_folder_rule(root: Path) -> list[tuple[str, int]]:
    """torchvision.datasets.ImageFolder(root).samples, written out from its documentation."""
    samples = []
    for label, name in enumerate(sorted(entry.name for entry in os.scandir(root) if entry.is_dir())):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(IMAGE_SUFFIXES):
                    samples.append((Path(folder, file).relative_to(root).as_posix(), label))
    return samples


def test_classes_are_sorted_folders_and_samples_stand_in_imagefolder_order(tmp_path: Path) -> None:
    source = Source(image_folder(tmp_path))
    assert source.schema["label"].classes == ("Zebra", "cat", "dog's")
    assert keys(source) == [
        "Zebra/1.webp",
        "cat/A.JPEG",
        "cat/b.jpg",
        "cat/deep er/c.png",
        "dog's/new\nline.bmp",
        "dog's/ünï.png",
    ]
    assert [int(source[index]["label"]) for index in range(6)] == [0, 1, 1, 1, 2, 2]
    assert source[0]["label"].dtype == np.int64
    assert source[2]["image"] == image(1, suffix=".jpg")
    assert source.schema.names == ("key", "image", "label")


@settings(max_examples=60, deadline=None)
@given(paths=st.sets(st.lists(PARTS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=12))
def test_order_and_labels_are_imagefolders(
    paths: set[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("folder")
    write(root, {"/".join(["c" + path[0], *(f"_{part}_" for part in path[1:]), "i.Jpg"]): b"" for path in paths})
    source = Source(root, folders="class")  # as ImageFolder, whatever the folders look like
    found = [(source.key(index), int(source[index]["label"])) for index in range(len(source))]
    assert found == image_folder_rule(root)


def test_every_suffix_in_any_case_is_an_image(tmp_path: Path) -> None:
    names = [f"c/{number}{suffix}" for number, suffix in enumerate(IMAGE_SUFFIXES)]
    root = write(tmp_path, {name.upper().replace("C/", "c/"): b"" for name in names} | {"c/x.mov": b"", "c/jpg": b""})
    assert len(Source(root)) == len(IMAGE_SUFFIXES) == 9


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"b.png": b"1", "a.jpg": b"2", "annotations/a.xml": b""}))
    assert keys(source) == ["a.jpg", "b.png"]
    assert source.schema.names == ("key", "image")
    assert source[0] == {"key": "a.jpg", "image": b"2"}


def test_images_in_and_beside_folders_need_a_decision(tmp_path: Path) -> None:
    root = write(tmp_path, {"loose.png": b"", "c/a.png": b"", "c/b.png": b""})
    with pytest.raises(InvalidRequest, match="root.*loose.png.*--folders"):
        Source(root)
    labeled = Source(root, folders="class")
    assert keys(labeled) == ["c/a.png", "c/b.png"]
    assert [key for key, _ in labeled.left_out] == ["loose.png"]
    plain = Source(root, folders="none")
    assert keys(plain) == ["loose.png", "c/a.png", "c/b.png"]
    assert plain.left_out == []
    assert "label" not in plain.schema


def test_an_empty_class_is_an_error_unless_allowed(tmp_path: Path) -> None:
    root = write(tmp_path, {"b/x.png": b"", "c/readme.txt": b""})
    (root / "a").mkdir()
    with pytest.raises(InvalidRequest, match="without.*: a, c; .*--allow-empty"):
        Source(root)
    source = Source(root, allow_empty=True)
    assert source.schema["label"].classes == ("a", "b", "c")
    assert int(source[0]["label"]) == 1


def test_classes_without_any_folder_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--folders none"):
        Source(write(tmp_path, {"a.png": b""}), folders="class")


def test_a_class_that_is_a_second_name_of_another_is_an_error(tmp_path: Path) -> None:
    root = write(tmp_path, {"cat/x.png": b"1", "dog/y.png": b"2"})
    (root / "kitten").symlink_to("cat")
    with pytest.raises(BadInput, match=r"link.*kitten \(cat\);"):
        Source(root)
    assert keys(Source(root, folders="none")) == ["cat/x.png", "dog/y.png"]


def test_ignored_suffixes_are_no_samples(tmp_path: Path) -> None:
    root = write(tmp_path, {"c/a.png": b"", "c/a_mask.png": b"", "c/a_d.tiff": b""})
    source = Source(root, ignore_suffixes=("_mask.png", "_d.tiff"))
    assert keys(source) == ["c/a.png"]
    assert any("2 other files" in note for note in source.notes)


def test_the_stem_is_the_path_without_its_last_suffix(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"c/a.b.png": b"", "c/.png": b""}))
    assert [source.entry(index).stem for index in range(2)] == ["c/.png", "c/a.b"]


def test_a_folder_named_like_an_image_is_no_sample(tmp_path: Path) -> None:
    assert keys(Source(write(tmp_path, {"c/dir.jpg/a.jpg": b"", "c/b.jpg": b""}))) == ["c/b.jpg", "c/dir.jpg/a.jpg"]


def test_recognize_counts_images_and_folders() -> None:
    assert Source.recognize(TREE, ["a.jpg", "b.png", "x.txt"]) == "image folder: 2 images"
    assert (
        Source.recognize(TREE, ["c/a.jpg", "d/b.png", "d/e/c.png"])
        == "image folder: 3 images in 2 folders (--folders sets their meaning)"
    )
    assert Source.recognize(TREE, ["x.txt"]) is None
