"""The Jacquard source: both nestings, angle sign, missing grasps, pixel files that not all views have."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.sources.grasp._label_files import corners
from packer.sources.grasp.jacquard import Source
from tests.support.source_trees import HASH_31, HASH_32, JACQUARD_ROWS, jacquard, keys, view, write

ROWS = st.tuples(
    *[st.floats(-2000, 2000)] * 2,
    st.floats(-90, 90),
    *[st.floats(1, 300)] * 2,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return jacquard(tmp_path / "jacquard")


def test_views_hold_what_their_files_hold(root: Path) -> None:
    source = Source(root)
    assert keys(source) == [f"0_{HASH_32}", f"1_{HASH_32}", f"0_{HASH_31}", f"1_{HASH_31}"]
    assert source.schema.names == (
        *("key", "rgb", "depth", "depth_stereo", "mask", "grasps", "grasp_rows", "object_id", "files", "grasps_file"),
    )
    assert source.schema["depth_stereo"].invalid == -1
    assert source.schema["depth"].invalid is None
    sample = source[0]
    beginning = f"Jacquard_Dataset_0/{HASH_32}/0_{HASH_32}"
    assert sample["files"] == {
        "rgb": f"{beginning}_RGB.png",
        "depth": f"{beginning}_perfect_depth.tiff",
        "depth_stereo": f"{beginning}_stereo_depth.tiff",
        "mask": f"{beginning}_mask.png",
        "grasps_file": f"{beginning}_grasps.txt",
    }
    for field, path in sample["files"].items():
        assert sample[field] == (root / path).read_bytes()
    assert sample["object_id"] == HASH_32
    assert sample["grasp_rows"].tolist() == [
        [52.5, 40.25, 68.2203, 25.5, 26.0661],
        [52.5, 40.25, 68.2203, 25.5, 13.03305],
        [20, 30, -89.94, 12, 24],
    ]
    assert sample["grasps_file"] == JACQUARD_ROWS.encode()
    assert (source[3]["grasps"].shape, source[3]["grasp_rows"].shape) == ((0, 4, 2), (0, 5))
    assert [source.missing(index) for index in range(4)] == [None, None, None, "no _grasps.txt"]


def test_objects_may_lie_directly_in_the_root_and_have_any_name(tmp_path: Path) -> None:
    write(tmp_path / "a", view("0_a", 1) | view("10_a", 1) | view("2_from_rgbd", 2))
    source = Source(tmp_path)
    assert keys(source) == ["0_a", "10_a", "2_from_rgbd"]
    assert source.entry(0).stem == "a/0_a"
    assert source[2]["object_id"] == "from_rgbd"


def test_order_is_that_of_the_paths_and_differs_between_nestings(tmp_path: Path) -> None:
    for part, name in (("2", "a"), ("10", "b")):
        write(tmp_path / "nested" / f"Jacquard_Dataset_{part}" / name, view(f"0_{name}", 1))
        write(tmp_path / "plain" / name, view(f"0_{name}", 1))
    assert keys(Source(tmp_path / "nested")) == ["0_b", "0_a"]
    assert keys(Source(tmp_path / "plain")) == ["0_a", "0_b"]


def test_foreign_files_are_extras_and_counted(root: Path) -> None:
    write(root, {f"Jacquard_Dataset_0/{HASH_32}/0_{HASH_32}_edges2.tiff": b"", "Thumbs.db": b""})
    source = Source(root)
    assert "2 other files (.png 1, .tiff 1) of no view" in source.notes
    assert "ignored, hidden or written by desktops and editors: .DS_Store 1, Thumbs.db 1" in source.notes
    assert len(source) == 4


@given(st.lists(ROWS, max_size=5))
def test_corners_and_rows_say_the_same(rows: list[tuple[float, ...]]) -> None:
    values = np.asarray(rows, np.float64).reshape(-1, 5)
    found = corners(values)
    assert found.shape == (len(rows), 4, 2)
    assert found.dtype == np.float32
    p0, p1, p2, _ = found.astype(np.float64).transpose(1, 0, 2)
    assert np.allclose(found.mean(axis=1), values[:, :2], atol=1e-2)
    assert np.allclose(np.linalg.norm(p1 - p0, axis=1), values[:, 3], atol=1e-2)
    assert np.allclose(np.linalg.norm(p2 - p1, axis=1), values[:, 4], atol=1e-2)
    opening = np.stack([np.cos(np.radians(values[:, 2])), np.sin(np.radians(values[:, 2]))], axis=1)
    assert np.allclose(p1 - p0, opening * values[:, 3:4], atol=1e-2)
