"""OCID-Grasp: its files read by a few lines of the test, and the traps of its layout."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.grasp.ocid_grasp import UNLISTED, Source
from tests.support.layout_trees import ocid_grasp
from tests.support.layout_trees.ocid_grasp import BALL, CUP, SEQUENCES
from tests.support.source_trees import encoded, image, write

TREE = SourceRoot(Path())

FIRST = f"{SEQUENCES[0]}/result_2018-08-21.1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ocid_grasp.build(tmp_path / "set")


def corners(path: Path) -> npt.NDArray[np.float32]:
    """Rectangles of four lines x y, as the loader of Cornell's files reads them."""
    numbers = [float(word) for word in path.read_text().split()]
    return np.array(numbers, np.float32).reshape(-1, 4, 2)


def by_key(source: Source) -> dict[str, int]:
    return {source.key(index): index for index in range(len(source))}


def test_sequences_are_found_at_any_depth(root: Path) -> None:
    found = sorted(path.relative_to(root) for path in root.rglob("Annotations/*.txt"))
    assert {len(path.parts) - 2 for path in found} == {4, 5, 6}
    assert [source_key(path) for path in found] == [Source(root).key(index) for index in range(4)]


def source_key(path: Path) -> str:
    return str(path.parent.parent / path.name.removesuffix(".txt"))


def test_a_set_without_masks_classes_and_depth_has_no_such_fields(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        words = {"depth", "seg_mask_labeled_combi", "seg_mask_instances_combi", "Annotations_per_class"}
        if path.is_file() and words & set(path.relative_to(root).parts):
            path.unlink()
    source = Source(root)
    assert source.schema.names == ("key", "rgb", "grasps", "split", "files", "grasps_file")
    assert Source.recognize(TREE, sorted(str(path.relative_to(root)) for path in root.rglob("*.*"))) is None


def test_splits_are_those_of_the_lists(root: Path) -> None:
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation")
    for row, split in enumerate(("training", "validation")):
        lines = (root / "data_split" / f"{split}_0.txt").read_text().split()
        listed = {line.replace(",", "/").removesuffix(".png") for line in lines}
        assert {source.key(index) for index in range(4) if source[index]["split"] == row} == listed
    assert "split" not in Source(root, own_splits=False).schema


def test_lists_may_be_incomplete_or_have_images_that_do_not_exist(root: Path) -> None:
    path = root / "data_split/training_0.txt"
    path.write_text(path.read_text().splitlines()[0] + "\r\n\r\nARID20/gone/seq09,x.png\r\n")
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation", UNLISTED)
    assert any("not found: ARID20/gone/seq09/x" in note for note in source.notes)
    with pytest.raises(BadInput, match="gone/seq09/x"):
        Source(root, missing="error")


def test_an_image_in_two_lists_is_an_error(root: Path) -> None:
    path = root / "data_split/training_0.txt"
    (root / "data_split/validation_0.txt").write_text(path.read_text())
    with pytest.raises(BadInput, match="two lists"):
        Source(root)


@pytest.mark.parametrize("line", ["no comma", ",x.png", "a/b,x.txt", "a/b,c/x.png", "a,.png"])
def test_a_line_that_is_not_an_image_is_an_error(root: Path, line: str) -> None:
    (root / "data_split/training_0.txt").write_text(f"\n{line}\n")
    with pytest.raises(BadInput, match=r"training_0\.txt:2: .*list"):
        Source(root)


def test_the_list_with_the_lowest_number_counts(root: Path) -> None:
    write(root, {"data_split/training_1.txt": "unused,elsewhere.png\n"})
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation")
    assert not any("unused" in note for note in source.notes)


def test_ill_formed_labels(root: Path) -> None:
    sequence, _, name = FIRST.rpartition("/")
    path = root / sequence / "Annotations" / f"{name}.txt"
    path.write_text(BALL + "1 2\n3 x\n5 6\n7 8\n" + CUP)
    index = by_key(Source(root))[FIRST]
    with pytest.raises(BadInput, match=rf"{name}\.txt:6"):
        Source(root)[index]
    lenient = Source(root, bad_labels="skip")
    assert lenient[index]["grasp_objects"].tolist() == [2, 8]
    assert "1 of 3 labels" in str(lenient.missing(index))


def test_masks_of_16_bit_keep_their_values(root: Path, tmp_path: Path) -> None:
    for path in root.rglob("seg_mask_instances_combi/*.png"):
        path.write_bytes(encoded(".png", np.full((48, 64), 300, np.uint16)))  # type: ignore[arg-type]
    convert(root, tmp_path / "out.pack")
    sample = packer.open(tmp_path / "out.pack", output="numpy")[0]
    assert sample["instances"].dtype == np.int32 and set(np.unique(sample["instances"])) == {300}
    assert sample["mask"].dtype == np.uint8


def test_all_files_but_point_clouds_are_carried_along(root: Path) -> None:
    write(root, {f"{SEQUENCES[0]}/pcd/1.pcd": b"VERSION", f"{SEQUENCES[0]}/label/1.png": image(9), "more/1.pcd": b""})
    source = Source(root)
    assert f"{SEQUENCES[0]}/label/1.png" in source.extras
    assert not any(name.endswith(".pcd") for name in source.extras)
