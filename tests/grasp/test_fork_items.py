"""Items of OCID and VMRD: those of andvg3/Grasp-Anything's loaders, and what is right without them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.errors import BadInput, InvalidRequest
from packer.grasp import GraspDataset
from tests.support import fork_loaders, grasp_folders, slow_grasps
from tests.support.conversions import packed
from tests.support.fork_loaders import FORK, SIZE, assert_same_items, keys

LOADERS: dict[str, Callable[[Path], list[fork_loaders.ForkItem]]] = {
    "ocid": fork_loaders.ocid,
    "vmrd": fork_loaders.vmrd,
}
FOLDERS = {"ocid": grasp_folders.ocid, "vmrd": grasp_folders.vmrd}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pack of each set, beside its folder."""
    root = tmp_path_factory.mktemp("fork")
    for name, write in FOLDERS.items():
        packed(write(root / name), root / f"{name}.pack", codecs=(("rgb", "raw"),))
    return {name: root / f"{name}.pack" for name in FOLDERS}


@pytest.mark.parametrize("name", FOLDERS)
def test_exact_items_are_those_of_the_fork(name: str, made: dict[str, Path]) -> None:
    items = LOADERS[name](made[name].with_suffix(""))
    assert_same_items(GraspDataset(made[name], SIZE, seed=1, **FORK), items)


def test_the_fork_lists_sequences_of_five_folders_alone(made: dict[str, Path]) -> None:
    plain: dict[str, Any] = {"include_depth": False, "items": "label"}
    every = keys(GraspDataset(made["ocid"], SIZE, **plain))
    assert {key.rpartition("/")[0] for key in every} == set(grasp_folders.SEQUENCES)
    assert {key.rpartition("/")[0] for key in keys(GraspDataset(made["ocid"], SIZE, **FORK))} == {
        grasp_folders.SEQUENCES[1]
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_without_exact_the_window_is_kept_within_the_image(name: str, made: dict[str, Path]) -> None:
    """The fork's is not where the image is not of the size in its code: then it is smaller, and stretched."""
    dataset = GraspDataset(made[name], SIZE, include_depth=False)
    fork = GraspDataset(made[name], SIZE, **FORK)
    differ = []
    for item in LOADERS[name](made[name].with_suffix("")):
        [key] = [key for key in keys(fork) if key.endswith(item.name)]
        height, width = item.image.shape[:2]
        right = fork_loaders.ForkItem(item.name, item.image, item.labels, (height, width))
        assert right.window(SIZE)[1][2:] == (SIZE, SIZE)
        found = dataset.get_rgb(dataset.index_of(key), 0, 1.0, normalise=False)
        top, left, *_ = right.window(SIZE)[1]
        np.testing.assert_array_equal(found, item.image[top : top + SIZE, left : left + SIZE])
        at = dataset.index_of(key)
        np.testing.assert_array_equal(dataset.get_gtbb(at, np.pi, 0.7), right.rectangles(SIZE, np.pi, 0.7))
        differ.append(right.window(SIZE) != item.window(SIZE))
    assert differ == [False, True, True]


def test_where_the_fork_shows_nothing_it_is_an_error_and_without_it_an_item(tmp_path: Path) -> None:
    root = grasp_folders.vmrd(tmp_path / "set")
    (root / "Grasps/00001.txt").write_text("5 200 15 200 15 210 5 210 1\n")
    packed(root, tmp_path / "pack", codecs=(("rgb", "raw"),))
    with pytest.raises(BadInput, match=r"'00001'.*\(756, 1008\).*outside"):
        GraspDataset(tmp_path / "pack", SIZE, **FORK)[0]
    assert len(GraspDataset(tmp_path / "pack", SIZE, include_depth=False)[0]) == 5


@pytest.mark.parametrize("name", ["cornell", "jacquard"])
def test_of_cornell_and_jacquard_the_fork_has_other_sizes_in_its_code(name: str, tmp_path: Path) -> None:
    packed(grasp_folders.FOLDERS[name](tmp_path / name), tmp_path / "pack")
    dataset = GraspDataset(tmp_path / "pack", SIZE, exact="fork", style="grconvnet")
    plain = GraspDataset(tmp_path / "pack", SIZE, style="grconvnet")
    for index in range(len(dataset)):
        values = plain.sample_decoder().sample(index, None, ())
        if name == "cornell":
            expected = slow_grasps.cornell(values["grasps"], SIZE, np.pi, 0.7)
        else:
            expected = slow_grasps.jacquard(values["grasp_rows"], SIZE, np.pi, 0.7)
        np.testing.assert_array_equal(dataset.get_gtbb(index, np.pi, 0.7), expected)
    assert dataset[0][0].shape == (4, SIZE, SIZE)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ocid", {"exact": "fork", "include_depth": False}, 'style="grconvnet"'),
        ("vmrd", {"exact": "fork", "style": "grconvnet"}, "include_depth=False"),
        ("vmrd", {"items": "object"}, "'image', 'label'"),
        ("vmrd", {"exact": "spoon"}, "expected 'fork' or None"),
    ],
)
def test_options_that_the_fork_has_not_are_refused(
    name: str, options: dict[str, Any], message: str, made: dict[str, Path]
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        GraspDataset(made[name], SIZE, **options)
