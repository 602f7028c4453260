"""The Cornell source: every layout that is passed on, depth from files or clouds, labels, objects."""

import re
from pathlib import Path

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources import base
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.grasp.cornell import Source
from tests.support.source_trees import NAN_RECTANGLE, RECTANGLES, cornell, keys, scene, write

TREE = SourceRoot(Path())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return cornell(tmp_path / "cornell")


def remove(root: Path, pattern: str) -> None:
    for path in [*root.rglob(pattern)]:
        path.unlink()


def test_scenes_hold_what_their_files_hold(root: Path) -> None:
    source = Source(root)
    assert keys(source) == ["0100", "0101", "0200", "1034"]
    assert source.schema.names == (
        *("key", "rgb", "depth", "grasps", "grasps_negative", "object_id", "category"),
        *("files", "grasps_file", "grasps_negative_file"),
    )
    assert [field.name for field in source.schema if field.hidden] == ["files", "grasps_file", "grasps_negative_file"]
    sample = source[0]
    assert sample["rgb"] == (root / "01/pcd0100r.png").read_bytes()
    assert sample["depth"] == (root / "01/pcd0100d.tiff").read_bytes()
    assert sample["grasps"].tolist() == [
        [[253, np.float32(319.7)], [309, 324], [307, 350], [251, np.float32(345.7)]],
        [[10, 10], [10, 30], [2.5, 30], [2.5, 10]],
    ]
    assert sample["grasps_file"] == RECTANGLES.encode()
    assert sample["files"] == {
        "rgb": "01/pcd0100r.png",
        "depth": "01/pcd0100d.tiff",
        "grasps_file": "01/pcd0100cpos.txt",
        "grasps_negative_file": "01/pcd0100cneg.txt",
    }
    assert source[1]["grasps"].shape == (2, 4, 2)
    assert source[1]["grasps_file"] == (RECTANGLES + NAN_RECTANGLE).encode()
    assert str(source.missing(1)).startswith("1 of 3 labels in pcdNNNNcpos.txt")
    found = [(int(source[index]["object_id"]), source[index]["category"]) for index in range(4)]
    assert found == [(26, "Plastic_Cup"), (26, "Plastic_Cup"), (27, "Plastic_Cup"), (281, "Marker")]
    assert source.schema["depth"].codec == "encoded"
    assert Source(root, depth_from="tiff").schema == source.schema
    assert "depth" not in Source(root, depth_from="none").schema
    assert "depth" not in Source(root, depth_from="none")[0]["files"]


def test_files_of_a_scene_may_be_in_folders_by_role(root: Path) -> None:
    expected = Source(root)
    for path in [*root.rglob("pcd[0-9]*.tiff"), *root.rglob("pcd[0-9]*.txt")]:
        write(root, {f"{path.name[7:]}/{path.name}": path.read_bytes()})
        path.unlink()
    source = Source(root)
    assert sorted(keys(source)) == sorted(keys(expected))
    assert source[0]["files"]["depth"] == "d.tiff/pcd0100d.tiff"


def test_order_is_that_of_the_cpos_paths(tmp_path: Path) -> None:
    for folder, number in (("b", "0100"), ("a", "0200"), ("10", "1000"), ("9", "0900")):
        write(tmp_path / folder, scene(number, 1))
    assert keys(Source(tmp_path)) == ["1000", "0900", "0200", "0100"]


def test_an_empty_cneg_and_an_absent_one_are_no_negatives(root: Path) -> None:
    (root / "01/pcd0100cneg.txt").unlink()
    source = Source(root)
    empty, absent = source[2], source[0]
    for sample in (empty, absent):
        assert sample["grasps_negative"].shape == (0, 4, 2)
        assert sample["grasps_negative"].dtype == np.float32
        assert sample["grasps_negative_file"] == b""
    assert "grasps_negative_file" in empty["files"]
    assert "grasps_negative_file" not in absent["files"]
    assert absent is not None and source.missing(0) is None


def test_names_must_match_in_case_and_whole(tmp_path: Path) -> None:
    write(
        tmp_path,
        scene("0100", 1)
        | {"PCD0200r.png": b"", "pcd0200R.png": b"", "xpcd0200r.png": b"", "pcd٠١٠٠r.png": b"", "pcd٠١٠٠cpos.txt": b""},
    )
    assert keys(Source(tmp_path)) == ["0100"]


def test_tif_is_tiff(tmp_path: Path) -> None:
    write(tmp_path, {"pcd0100r.png": b"1", "pcd0100d.tif": b"2", "pcd0100cpos.txt": b""})
    assert Source(tmp_path)[0]["depth"] == b"2"
    (tmp_path / "pcd0100d.tiff").write_bytes(b"3")
    with pytest.raises(BadInput, match="pcd0100d.tif, pcd0100d.tiff"):
        Source(tmp_path)


def test_no_depth_at_all_is_no_field_and_a_note(root: Path) -> None:
    remove(root, "*d.tiff")
    source = Source(root)
    assert "depth" not in source.schema
    assert any("--depth-from pcd" in note for note in source.notes)
    assert "depth" not in source[0]
    with pytest.raises(BadInput, match="4 scenes.*0100 .*0101 .*0200 .*1034"):
        Source(root, depth_from="tiff")


def test_depth_of_some_scenes_is_an_error_with_two_choices(root: Path) -> None:
    (root / "02/pcd0200d.tiff").unlink()
    (root / "01/pcd0101d.tiff").unlink()
    for option in ("auto", "tiff"):
        with pytest.raises(BadInput, match=r"2 scenes.*0101.*pcdNNNNd\.tiff") as caught:
            Source(root, depth_from=option)
        assert set(re.findall(r"--[a-z-]+ \w+", str(caught.value))) == {"--depth-from pcd", "--depth-from none"}


def test_depth_from_clouds_is_an_array_of_the_images_size(root: Path) -> None:
    source = Source(root, depth_from="pcd")
    field = source.schema["depth"]
    assert (field.codec, field.dtype) == ("raw:float32", "float32")
    values = source[0]["depth"]
    assert values.shape == (48, 64)
    assert values.dtype == np.float32
    assert 0 < values.min() < values.max() < 4
    assert "depth" not in source[0]["files"]
    assert base.file_paths(source, 0)[1].name == "pcd0100.txt"
    (root / "01/pcd0100.txt").unlink()
    with pytest.raises(BadInput, match=r"1 scene.*0100.*pcdNNNN\.txt"):
        Source(root, depth_from="pcd")


def test_a_damaged_cloud_is_bad_input_with_its_path(root: Path) -> None:
    (root / "01/pcd0100.txt").write_text("DATA ascii\n1 2 3 0 999999\n")
    with pytest.raises(BadInput, match="01/pcd0100.txt: .*fit"):
        Source(root, depth_from="pcd")[0]


def test_scenes_that_the_table_of_objects_lacks_are_marked(root: Path) -> None:
    (root / "processedData/z.txt").write_text("0100 26 Cup pcdb_0002\r\n\r\n")
    source = Source(root)
    assert [int(source[index]["object_id"]) for index in range(4)] == [26, -1, -1, -1]
    assert source[1]["category"] == ""
    (root / "processedData/z.txt").unlink()
    source = Source(root)
    assert "object_id" not in source.schema
    assert "category" not in source[0]


@pytest.mark.parametrize(
    "line",
    [
        *("0100 27 Cup pcdb_0002", "0101 x Cup pcdb_0002", "0101 1 Cup", "0101 -1 Cup b"),
        *(f"0101 {'9' * digits} Cup b" for digits in (19, 5000)),
    ],
)
def test_a_line_that_does_not_fit_the_table_is_an_error_or_skipped(root: Path, line: str) -> None:
    (root / "processedData/z.txt").write_text(f"0100 26 Cup pcdb_0002\n{line}\n")
    with pytest.raises(BadInput, match="z.txt:2"):
        Source(root)
    assert int(Source(root, bad_labels="skip")[0]["object_id"]) == 26


def test_two_tables_are_an_error(root: Path) -> None:
    write(root, {"z.txt": "0100 26 Cup pcdb_0002\n"})
    with pytest.raises(BadInput, match="processedData/z.txt, z.txt"):
        Source(root)
