"""Which labels an item is made of: by the source that a pack says, else by its fields."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import convert
from packer.errors import InvalidRequest, UnknownKey
from packer.grasp import GraspDataset
from tests.support import grasp_folders, slow_grasps
from tests.support.conversions import opened, packed
from tests.support.layout_trees import graspnet_rect, ivalab, regrad

SIZE = 20
SHAPE = (48, 64)


@pytest.mark.parametrize("build", [graspnet_rect.build, ivalab.build])
def test_corners_are_seen_in_a_window_about_them_whatever_rows_there_are(
    build: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = build(tmp_path / "set")
    packed(root, tmp_path / "pack", codecs=(("rgb", "raw"),))
    dataset = GraspDataset(tmp_path / "pack", SIZE, include_depth=False, style="grconvnet", seed=0)
    source = opened(root)
    counts = []
    for index in range(len(source)):
        grasps = source[index]["grasps"]
        counts.append(len(grasps))
        found = dataset.get_gtbb(index, np.pi / 2, 0.8)
        if len(grasps):
            expected = slow_grasps.cornell(grasps, SIZE, np.pi / 2, 0.8, SHAPE)
            np.testing.assert_array_equal(found, expected)
            _, maps, _, rot, zoom = dataset[index]
            drawn, _ = slow_grasps.maps(slow_grasps.cornell(grasps, SIZE, rot, zoom, SHAPE), SIZE, SIZE / 2)
            assert [each.numpy().tobytes() for each in maps] == [each.tobytes() for each in drawn]
    assert max(counts) >= 2
    with pytest.raises(InvalidRequest, match="depth.*missing pixels.*include_depth=False"):
        GraspDataset(tmp_path / "pack", SIZE)
    with pytest.raises(InvalidRequest, match="loaders for jacquard, grasp-anything, cornell"):
        GraspDataset(tmp_path / "pack", SIZE, include_depth=False, style="grconvnet", exact="fork")


def test_rows_of_regrad_are_no_labels_before_their_angles_are_known(tmp_path: Path) -> None:
    root = regrad.build(tmp_path / "set")
    packed(root, tmp_path / "rows")
    with pytest.raises(InvalidRequest, match="'grasp_rows'.*'grasps'"):
        GraspDataset(tmp_path / "rows", SIZE, include_depth=False)
    source = opened(root, "regrad", angle_convention="cv44")
    convert(source, tmp_path / "pack")
    [index] = [index for index in range(len(source)) if len(source[index]["grasps"]) == 2]
    found = GraspDataset(tmp_path / "pack", SIZE, include_depth=False).get_gtbb(index, 0, 1.0)
    np.testing.assert_array_equal(found, slow_grasps.cornell(source[index]["grasps"], SIZE, 0, 1.0, SHAPE))


def test_labels_that_the_rule_reads_must_be_packed(tmp_path: Path) -> None:
    packed(grasp_folders.jacquard(tmp_path / "set", 2), tmp_path / "pack", fields=("rgb", "depth", "grasps"))
    with pytest.raises(InvalidRequest, match="'grasp_rows', .*exact="):
        GraspDataset(tmp_path / "pack", SIZE, style="grconvnet", exact="fork")
    assert GraspDataset(tmp_path / "pack", SIZE)[0][0].shape == (4, SIZE, SIZE)


def test_python_objects_go_by_the_names_of_their_fields(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.uniform(10, 40, (3, 5))
    corners = random.uniform(10, 40, (3, 4, 2)).astype(np.float32)
    image = random.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    cases: dict[str, tuple[dict[str, Any], list[Any]]] = {
        "rows": ({"grasp_rows": rows, "grasps": corners}, slow_grasps.jacquard(rows, SIZE, np.pi, 0.7, 64)),
        "corners": ({"grasps": corners}, slow_grasps.cornell(corners, SIZE, np.pi, 0.7, (64, 64))),
        "scored": (
            {"grasp_rows": np.zeros((3, 6)), "grasps": corners},
            slow_grasps.cornell(corners, SIZE, np.pi, 0.7, (64, 64)),
        ),
    }
    kinds = {"rgb": "image", "grasps": "points", "grasp_rows": "number"}
    for name, (labels, expected) in cases.items():
        sample = {"rgb": image, **labels}
        convert([sample], tmp_path / name, fields={field: kinds[field] for field in sample})
        dataset = GraspDataset(tmp_path / name, SIZE, include_depth=False)
        np.testing.assert_array_equal(dataset.get_gtbb(0, np.pi, 0.7), expected)
    with pytest.raises(UnknownKey, match="no field 'depth'"):
        GraspDataset(tmp_path / "rows", SIZE)
