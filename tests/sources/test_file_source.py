"""The engine of all sources of small files, on a set that is declared here: groups, options, order, schema, notes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Groups, Policies
from packer.sources._small_file_source import FileRole, FileSample, LabelFile, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import SourceRoot
from tests.support.source_trees import image, keys, mask, write

TREE = SourceRoot(Path())


def parse(data: bytes, path: Path, strict: bool) -> Parsed:
    words = data.split()
    numbers = [word for word in words if word.isdigit()]
    if strict and len(numbers) < len(words):
        raise BadInput(f"{path}: not a number")
    return Parsed({"count": np.array(numbers, np.int64)}, len(words), len(words) - len(numbers))


class Source(FileSource):
    kind, title, noun = "counts", "counts of things", "view"
    roles: tuple[FileRole, ...] = (  # type: ignore[assignment]
        FileRole("image", "N.png", r"(?P<key>[0-9]+)\.png", Field("image", "image", "encoded")),
        FileRole("mask", "N_mask.png", r"(?P<key>[0-9]+)_mask\.png", Field("mask", "mask", "encoded"), "alike"),
        FileRole(
            "counts", "N.txt", r"(?P<key>[0-9]+)\.txt", Field("counts", "bytes", "encoded", hidden=True), "labels"
        ),
        FileRole("old", "N.old", r"(?P<key>[0-9]+)\.old", None, "optional", stands_in_for="counts"),
    )
    labels = (LabelFile("counts", (Field("count", "number", "raw:int64", "int64", (None,)),), parse),)
    recognized_by = (("image", "counts"), ("image", "old"))

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        duplicates: str = "error",
        bad_labels: str = "error",
        follow_links: bool = False,
    ) -> None:
        self._list(root, Policies(missing, duplicates, bad_labels), follow_links=follow_links)

    def order(self, sample: FileSample) -> int:
        return int(sample.key)

    def split_of(self, sample: FileSample) -> str:
        return sample.paths["image"].rpartition("/")[0]


class Anchored(Source):
    anchor = "counts"
    carries_skipped = False


class PerFolder(Source):
    is_per_folder = True


class Selected(Source):
    """Samples are those with a mask; edges are read if all of them have one."""

    roles = (
        Source.roles[0],
        replace(Source.roles[1], need="select"),
        *Source.roles[2:],
        FileRole("edges", "N_edges.png", r"(?P<key>[0-9]+)_edges\.png", Field("edges", "image", "encoded"), "shared"),
    )


class Many(Source):
    """A sample may have several files with counts, which no label file parses."""

    roles = (*Source.roles[:2], replace(Source.roles[2], field=None, is_many=True))
    labels = ()


class InFolders(Source):
    """Images are in `images/`, or in any folder if there is no image in `images/`."""

    anchor = "image"
    roles = (
        replace(Source.roles[0], pattern=r"(?:.*/)?images/(?P<key>[0-9]+)\.png", fallback=Source.roles[0].pattern),
    )
    roles += Source.roles[1:]


class Background(Source):
    """Samples without labels are complete; a set has masks."""

    labels = (replace(Source.labels[0], may_be_empty=True),)

    def choose(self, groups: Groups) -> None:
        if all("mask" not in roles for roles in groups.values()):
            raise InvalidRequest(f"{self.root}: no masks")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files: dict[str, bytes | str] = {"train/readme.md": "of no view"}
    for number, folder in ((10, "train"), (9, "train"), (2, "val")):
        files |= {f"{folder}/{number}.png": image(number), f"{folder}/{number}.txt": f"{number} 1"}
        files[f"{folder}/{number}_mask.png"] = mask(number)
    return write(tmp_path / "set", files)


def test_files_with_one_key_are_one_sample(root: Path) -> None:
    source = Source(root)
    assert keys(source) == ["2", "9", "10"]
    assert source.schema.names == ("key", "image", "mask", "count", "split", "files", "counts")
    assert source.schema["split"].classes == ("train", "val")
    sample = source[0]
    assert sample["files"] == {"image": "val/2.png", "mask": "val/2_mask.png", "counts": "val/2.txt"}
    assert (sample["image"], sample["counts"]) == ((root / "val/2.png").read_bytes(), b"2 1")
    assert (sample["count"].tolist(), int(sample["split"])) == ([2, 1], 1)
    assert source.extras == ["train/readme.md"]
    assert source.companions == ["mask"]
    assert source.entry(0).stem == "val/2"
    assert all(source.value(0, name) is not None for name in source.schema.names)
    assert [source.missing(index) for index in range(3)] == [None] * 3


def test_one_field_reads_only_its_file(root: Path) -> None:
    source = Source(root)
    (root / "val/2_mask.png").unlink()
    assert source.value(0, "split") == 1
    assert source.value(0, "count").tolist() == [2, 1]
    assert source.value(0, "image") == (root / "val/2.png").read_bytes()


def test_a_sample_without_labels_is_kept_skipped_or_an_error(root: Path) -> None:
    (root / "train/9.txt").unlink()
    kept = Source(root)
    assert (kept[1]["count"].shape, kept[1]["counts"]) == ((0,), b"")
    assert [kept.missing(index) for index in range(3)] == [None, "no N.txt", None]
    assert any("N.txt" in note for note in kept.notes)
    skipped = Source(root, missing="skip")
    assert (keys(skipped), skipped.left_out) == (["2", "10"], [("9", "no N.txt")])
    assert "train/9.png" in skipped.extras
    with pytest.raises(BadInput, match=r"9 \(no N\.txt\).*--missing"):
        Source(root, missing="error")


@pytest.mark.parametrize(("path", "example"), [("train/9.png", "N.png"), ("train/9_mask.png", "N_mask.png")])
def test_a_file_that_samples_need_is_named(root: Path, path: str, example: str) -> None:
    (root / path).unlink()
    with pytest.raises(BadInput, match=rf"9 \(no {example}\)"):
        Source(root)
    assert Source(root, missing="skip").left_out == [("9", f"no {example}")]


def test_if_all_samples_would_be_skipped_it_is_an_error(root: Path) -> None:
    for path in root.rglob("*.txt"):
        path.unlink()
    with pytest.raises(BadInput, match="3 views"):
        Source(root, missing="skip")


def test_a_file_in_two_folders_is_an_error_the_first_or_skipped(root: Path) -> None:
    write(root, {"a/9.png": b"stray"})
    with pytest.raises(BadInput, match=r"a/9\.png, train/9\.png.*--duplicates"):
        Source(root)
    assert Source(root, duplicates="first")[1]["files"]["image"] == "a/9.png"
    skipped = Source(root, duplicates="skip")
    assert (keys(skipped), skipped.left_out) == (["2", "10"], [("9", "there twice: a/9.png, train/9.png")])
    (root / "a/9.png").rename(root / "a/9.txt")  # of two label files the one next to the image is the first
    assert Source(root, duplicates="first")[1]["count"].tolist() == [9, 1]


def test_samples_of_two_folders_may_share_a_number_within_each(root: Path) -> None:
    write(root, {"val/9.png": image(1), "val/9.txt": "5", "val/9_mask.png": mask(1)})
    with pytest.raises(BadInput, match=r"train/9.*val/9"):
        PerFolder(root)
    assert PerFolder(root, duplicates="first")[1]["count"].tolist() == [9, 1]


def test_another_role_stands_in(root: Path) -> None:
    (root / "train/9.txt").rename(root / "train/9.old")
    assert Source(root)[1]["files"]["counts"] == "train/9.old"
    (root / "train/9.txt").write_text("4")
    source = Source(root)
    assert source[1]["count"].tolist() == [4]
    assert "train/9.old" in source.extras


def test_files_without_the_anchor_are_no_samples(root: Path) -> None:
    (root / "train/9.txt").unlink()
    source = Anchored(root)
    assert keys(source) == ["2", "10"]
    assert {"train/9.png", "train/9_mask.png"} <= set(source.extras)
    assert any("1 view without N.txt" in note for note in source.notes)


def test_labels_without_the_anchor_are_skipped_or_an_error(root: Path) -> None:
    write(root, {"images/5.png": image(5), "images/5.txt": "5", "images/6.txt": "6", "images/7_mask.png": mask(7)})
    source = InFolders(root, missing="keep")
    assert source.left_out == [(key, "no N.png") for key in ("10", "2", "6", "9")]
    assert "images/6.txt" in source.extras
    with pytest.raises(BadInput, match=r"6 \(no N\.png\)"):
        InFolders(root, missing="error")


def test_the_fallback_is_for_sets_without_files_of_the_pattern(root: Path) -> None:
    source = InFolders(root)
    assert (keys(source), source.left_out) == (["2", "9", "10"], [])
    write(root, {"train/images/9.png": image(1)})
    source = InFolders(root)
    assert keys(source) == ["9"]
    assert {"train/9.png", "train/10.png", "val/2.png"} <= set(source.extras)


def test_samples_without_a_file_that_selects_are_skipped(root: Path) -> None:
    (root / "train/9_mask.png").unlink()
    (root / "train/9.txt").unlink()
    for missing in ("keep", "error"):
        source = Selected(root, missing=missing)
        assert (keys(source), source.left_out) == (["2", "10"], [("9", "no N_mask.png")])


def test_a_shared_file_is_read_if_all_samples_have_it(root: Path) -> None:
    write(root, {"val/2_edges.png": image(2), "train/10_edges.png": image(3)})
    assert "edges" not in Selected(root).schema
    assert "edges" not in Selected(root)[0]["files"]
    write(root, {"train/9_edges.png": image(4)})
    source = Selected(root)
    assert source.schema.names[:4] == ("key", "image", "mask", "edges")
    assert source[1]["edges"] == image(4)


def test_a_sample_may_have_several_files_of_a_role(root: Path) -> None:
    write(root, {"more/9.txt": "1"})
    (root / "val/2.txt").unlink()
    source = Many(root)
    assert [source.key(index) for index in range(3)] == ["2", "9", "10"]
    assert [len(base.file_paths(source, index)) for index in range(3)] == [2, 4, 3]
    assert Many(root, missing="skip").left_out == [("2", "no N.txt")]


def test_a_role_that_no_sample_has_is_no_field_and_a_source_may_refuse_a_set_without(root: Path) -> None:
    assert len(Background(root)) == 3
    for path in root.rglob("*_mask.png"):
        path.unlink()
    source = Source(root)
    assert "mask" not in source.schema
    assert any("N_mask.png" in note for note in source.notes)
    with pytest.raises(InvalidRequest, match="no masks"):
        Background(root)


def test_a_label_that_is_not_valid_is_an_error_or_skipped(root: Path) -> None:
    (root / "val/2.txt").write_text("2 x")
    strict, lenient = Source(root), Source(root, bad_labels="skip")
    with pytest.raises(BadInput, match=r"2\.txt"):
        strict[0]
    assert strict.missing(0) is None
    assert lenient[0]["count"].tolist() == [2]
    assert str(lenient.missing(0)).startswith("1 of 2 labels")


def test_an_empty_label_file_is_incomplete(root: Path) -> None:
    (root / "val/2.txt").write_bytes(b"")
    source = Source(root)
    assert (source[0]["count"].shape, source.missing(0)) == ((0,), "N.txt is empty")
    assert Background(root).missing(0) is None


def test_a_folder_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"counts.*N\.png, N\.txt"):
        Source(write(tmp_path, {"a.txt": "1", "b.md": ""}))


def test_recognition_counts_samples_with_labels() -> None:
    assert Source.recognize(TREE, ["a/1.png", "a/1.txt", "2.png", "3.png", "3.old"]) == "counts of things: 2 views"
    assert Source.recognize(TREE, ["1.png", "2.txt"]) is None
