"""OCID-Grasp: what its files say, read here again by a few lines of their own, and the traps of its layout."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput, InvalidRequest
from packer.sources._detection import detect
from packer.sources.ocid_grasp import UNLISTED, Source, recognise
from tests.support.layout_trees import ocid_grasp
from tests.support.layout_trees.ocid_grasp import BALL, CUP, SEQUENCES, UNKNOWN
from tests.support.source_trees import encoded, picture, tree, write

FIRST = f"{SEQUENCES[0]}/result_2018-08-21.1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ocid_grasp.build(tmp_path / "set")


def corners(path: Path) -> npt.NDArray[np.float32]:
    """What the fork's loader of Cornell's files reads: four lines each, x and y."""
    numbers = [float(word) for word in path.read_text().split()]
    return np.array(numbers, np.float32).reshape(-1, 4, 2)


def by_key(source: Source) -> dict[str, int]:
    return {source.key(index): index for index in range(len(source))}


def test_every_sequence_is_found_however_deep_it_lies(root: Path) -> None:
    found = sorted(path.relative_to(root) for path in root.rglob("Annotations/*.txt"))
    assert {len(path.parts) - 2 for path in found} == {4, 5, 6}
    assert [source_key(path) for path in found] == [Source(root).key(index) for index in range(4)]


def source_key(path: Path) -> str:
    return str(path.parent.parent / path.name.removesuffix(".txt"))


@pytest.mark.parametrize("name", ["txt", "Annotations", "Annotations_per_class/txt/rgb", "a.txt", "data_split"])
def test_what_the_folders_above_are_called_says_nothing(root: Path, tmp_path: Path, name: str) -> None:
    """The loader of the Grasp-Anything fork replaces both words in the whole path, and finds no picture."""
    moved = tmp_path / "moved" / name
    moved.parent.mkdir(parents=True)
    root.rename(moved)
    assert len(Source(moved)) == 4
    assert detect(moved)[0] == "ocid-grasp"
    above = Source(tmp_path / "moved")
    assert [above.key(index) for index in range(4)] == [f"{name}/{Source(moved).key(index)}" for index in range(4)]
    assert above.schema["split"].classes == ("training", "validation")


def test_values_are_those_of_the_files(root: Path, tmp_path: Path) -> None:
    convert(root, tmp_path / "out.pack")
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    for index, sequence_and_name in enumerate(sorted(by_key(Source(root)))):
        sample = dataset[index]
        sequence, _, name = sequence_and_name.rpartition("/")
        assert sample["key"] == sequence_and_name
        for field, folder in (
            ("rgb", "rgb"),
            ("depth", "depth"),
            ("mask", "seg_mask_labeled_combi"),
            ("instances", "seg_mask_instances_combi"),
        ):
            with Image.open(root / sequence / folder / f"{name}.png") as image:
                expected = np.asarray(image)
            assert np.array_equal(sample[field], expected), field
        assert np.array_equal(sample["grasps"], corners(root / sequence / "Annotations" / f"{name}.txt"))
        assert sample["grasps"].shape[1:] == (4, 2)
    assert dataset.schema["depth"].invalid == 0
    assert dataset.schema["depth"].dtype == "uint16"


def test_class_31_is_a_class_in_masks_and_grasps(root: Path, tmp_path: Path) -> None:
    convert(root, tmp_path / "out.pack")
    sample = packer.open(tmp_path / "out.pack", output="numpy")[by_key(Source(root))[FIRST]]
    assert sample["mask"].max() == 31
    assert sample["grasp_objects"].tolist() == [31, 8, 2]
    assert sample["grasps"][0].tolist() == [[40, 40], [50, 40], [50, 44], [40, 44]]


def test_grasps_stand_in_the_order_of_the_file_and_keep_their_class(root: Path) -> None:
    source = Source(root)
    for index in range(len(source)):
        sample = source[index]
        sequence, _, name = source.key(index).rpartition("/")
        folder = root / sequence / "Annotations_per_class" / name
        for grasp, number in zip(sample["grasps"], sample["grasp_objects"], strict=True):
            of_class = corners(folder / str(number) / f"{name}.txt")
            assert any(np.array_equal(grasp, other) for other in of_class)


def test_one_rectangle_of_two_classes_is_there_once_for_each(tmp_path: Path) -> None:
    root = write(tmp_path, ocid_grasp.files("ARID20/seq01", "1", 1, {2: BALL, 3: BALL}))
    assert Source(root)[0]["grasp_objects"].tolist() == [2, 3]


def test_grasps_of_no_class_and_of_a_class_alone_are_told(root: Path) -> None:
    sequence, _, name = FIRST.rpartition("/")
    write(root / sequence, {
        f"Annotations/{name}.txt": BALL + UNKNOWN,
        f"Annotations_per_class/{name}/31/{name}.txt": "1 1\n2 1\n2 2\n1 2\n",
    })  # fmt: skip
    source = Source(root)
    index = by_key(source)[FIRST]
    assert source[index]["grasp_objects"].tolist() == [2, -1]
    said = source.missing(index)
    assert said is not None
    assert "1 of 2 grasps in no file of Annotations_per_class: class -1" in said
    assert "2 grasps of Annotations_per_class not in Annotations/" in said


def test_an_empty_annotation_file_is_no_grasps(root: Path) -> None:
    source = Source(root)
    index = by_key(source)[f"{SEQUENCES[2]}/result_2018-08-21.1"]
    assert source[index]["grasps"].shape == (0, 4, 2)
    assert source[index]["grasp_objects"].shape == (0,)
    assert source.missing(index) == "no grasps: the file in Annotations/ is empty"


def test_a_picture_without_an_annotation_file(root: Path) -> None:
    (root / SEQUENCES[1] / "Annotations" / "result_2018-08-21.1.txt").unlink()
    source = Source(root)
    index = by_key(source)[f"{SEQUENCES[1]}/result_2018-08-21.1"]
    assert source[index]["grasps_file"] == b"" and len(source[index]["grasps"]) == 0
    assert source.missing(index) == "no grasps: no file in Annotations/"
    skipped = Source(root, missing="skip")
    assert len(skipped) == 3
    assert [key for key, _ in skipped.left_out] == [f"{SEQUENCES[1]}/result_2018-08-21.1"]
    with pytest.raises(BadInput, match=r"seq02/Annotations/result_2018-08-21\.1\.txt"):
        Source(root, missing="error")


@pytest.mark.parametrize("folder", ["rgb", "depth", "seg_mask_labeled_combi"])
def test_a_picture_that_lacks_what_others_have_is_named(root: Path, folder: str) -> None:
    (root / SEQUENCES[1] / folder / "result_2018-08-21.1.png").unlink()
    with pytest.raises(BadInput, match=rf"seq02/{folder}/result_2018-08-21\.1\.png.*--missing skip"):
        Source(root)
    assert len(Source(root, missing="skip")) == 3


def test_a_set_without_masks_classes_and_depth_has_no_such_fields(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        words = {"depth", "seg_mask_labeled_combi", "seg_mask_instances_combi", "Annotations_per_class"}
        if path.is_file() and words & set(path.relative_to(root).parts):
            path.unlink()
    source = Source(root)
    assert source.schema.names == ("key", "rgb", "grasps", "split", "files", "grasps_file")
    assert "no depth: no picture has one" in source.notes
    assert recognise(sorted(str(path.relative_to(root)) for path in root.rglob("*.*"))) is None


def test_splits_are_those_of_the_lists(root: Path) -> None:
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation")
    for row, split in enumerate(("training", "validation")):
        lines = (root / "data_split" / f"{split}_0.txt").read_text().split()
        listed = {line.replace(",", "/").removesuffix(".png") for line in lines}
        assert {source.key(index) for index in range(4) if source[index]["split"] == row} == listed
    assert "split" not in Source(root, own_splits=False).schema


def test_lists_that_do_not_name_all_or_name_what_is_not_there(root: Path) -> None:
    path = root / "data_split/training_0.txt"
    path.write_text(path.read_text().splitlines()[0] + "\r\n\r\nARID20/gone/seq09,x.png\r\n")
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation", UNLISTED)
    assert any("1 picture of the lists in data_split/ not there: ARID20/gone/seq09/x" in note for note in source.notes)
    with pytest.raises(BadInput, match="gone/seq09/x"):
        Source(root, missing="error")


def test_a_picture_in_two_lists_is_an_error(root: Path) -> None:
    path = root / "data_split/training_0.txt"
    (root / "data_split/validation_0.txt").write_text(path.read_text())
    with pytest.raises(BadInput, match="2 pictures in two lists"):
        Source(root)


@pytest.mark.parametrize("line", ["no comma", ",x.png", "a/b,x.txt", "a/b,c/x.png", "a,.png"])
def test_a_line_that_is_no_picture_is_named(root: Path, line: str) -> None:
    (root / "data_split/training_0.txt").write_text(f"\n{line}\n")
    with pytest.raises(BadInput, match=r"training_0\.txt:2: cannot read the list"):
        Source(root)


def test_the_list_of_the_lowest_number_counts(root: Path) -> None:
    write(root, {"data_split/training_1.txt": "mended,elsewhere.png\n"})
    source = Source(root)
    assert source.schema["split"].classes == ("training", "validation")
    assert not any("mended" in note for note in source.notes)


def test_ill_formed_labels(root: Path) -> None:
    sequence, _, name = FIRST.rpartition("/")
    path = root / sequence / "Annotations" / f"{name}.txt"
    path.write_text(BALL + "1 2\n3 x\n5 6\n7 8\n" + CUP)
    index = by_key(Source(root))[FIRST]
    with pytest.raises(BadInput, match=rf"{name}\.txt:6: cannot read the label"):
        Source(root)[index]
    lenient = Source(root, labels="lenient")
    assert lenient[index]["grasp_objects"].tolist() == [2, 8]
    assert "1 of 3 grasps left out" in str(lenient.missing(index))


def test_masks_of_16_bit_keep_their_values(root: Path, tmp_path: Path) -> None:
    for path in root.rglob("seg_mask_instances_combi/*.png"):
        path.write_bytes(encoded(".png", np.full((48, 64), 300, np.uint16)))  # type: ignore[arg-type]
    convert(root, tmp_path / "out.pack")
    sample = packer.open(tmp_path / "out.pack", output="numpy")[0]
    assert sample["instances"].dtype == np.int32 and set(np.unique(sample["instances"])) == {300}
    assert sample["mask"].dtype == np.uint8


def test_all_files_but_point_clouds_come_back(root: Path, tmp_path: Path) -> None:
    from packer.inspect.extraction import extract

    write(root, {f"{SEQUENCES[0]}/pcd/1.pcd": b"VERSION", f"{SEQUENCES[0]}/label/1.png": picture(9)})
    convert(root, tmp_path / "out.pack")
    extract(tmp_path / "out.pack", tmp_path / "back")
    original, back = tree(root), tree(tmp_path / "back")
    assert back.items() <= original.items()
    assert original.keys() - back.keys() == {f"{SEQUENCES[0]}/pcd/1.pcd".encode()}


def test_another_folder_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.png": picture(1), "a/1.txt": ""})
    with pytest.raises(InvalidRequest, match="no OCID grasps: found 2 files .* expected pictures"):
        Source(tmp_path)


def test_decoders_agree_about_the_depth(root: Path) -> None:
    source = Source(root)
    found = cv2.imdecode(np.frombuffer(source[0]["depth"], np.uint8), cv2.IMREAD_UNCHANGED)
    assert found.dtype == np.uint16 and found.min() == 0 and found.max() > 255
