"""Items of Grasp-Anything, with label files for every object: by image, by label file, as the fork has them."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from packer import Loader
from packer.conversion.options import preset_options
from packer.errors import BadInput, InvalidRequest, UnknownKey
from packer.grasp import GraspDataset
from packer.pack import manifest as manifests
from tests.support import fork_loaders, grasp_folders, slow_grasps
from tests.support.conversions import opened, packed
from tests.support.fork_loaders import AUGMENTED, FORK, SIZE, assert_same_items, keys
from tests.support.grasp_folders import SIDE, equal, flat


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("anything")
    packed(grasp_folders.anything(root / "set"), root / "set.pack", codecs=(("rgb", "raw"),))
    return root / "set.pack"


def test_exact_items_are_those_of_the_fork(pack: Path) -> None:
    dataset = GraspDataset(pack, SIZE, seed=1, **FORK)
    assert_same_items(dataset, fork_loaders.anything(pack.with_suffix("")))
    labels = keys(GraspDataset(pack, SIZE, include_depth=False, items="label"))
    assert labels == ["3f731b45_0", "3f731b45_1", "3f731b45_10", "83c43efd_0", "83c43efd_3"]
    assert keys(dataset) == [key for key in labels if key[-2:] != "10"]
    with pytest.raises(InvalidRequest, match='items="label"'):
        GraspDataset(pack, SIZE, **FORK | {"items": "image"})


def test_without_exact_labels_of_any_square_image_are_scaled_by_its_own_size(pack: Path) -> None:
    dataset = GraspDataset(pack, SIZE, include_depth=False)
    assert keys(dataset) == list(grasp_folders.ANYTHING)
    root = pack.with_suffix("")
    for index, (key, objects) in enumerate(grasp_folders.ANYTHING.items()):
        expected = []
        for number in objects:
            rows = torch.load(root / f"grasp_label_positive/{key}_{number}.pt", weights_only=True).numpy()
            expected += slow_grasps.jacquard(rows[:, [1, 2, 5, 3, 4]], SIZE, np.pi / 2, 0.8, SIDE)
        found = dataset.get_gtbb(index, np.pi / 2, 0.8)
        np.testing.assert_array_equal(found, np.asarray(expected, np.int64).reshape(-1, 4, 2))
        assert len(found) == sum(objects.values())


def test_a_label_file_shows_its_own_grasps_alone(pack: Path) -> None:
    whole = GraspDataset(pack, SIZE, include_depth=False)
    dataset = GraspDataset(pack, SIZE, include_depth=False, items="label", seed=3)
    counts = [len(dataset.get_gtbb(index)) for index in range(len(dataset))]
    assert counts == [3, 2, 4, 0, 5]
    np.testing.assert_array_equal(np.concatenate([dataset.get_gtbb(index) for index in range(3)]), whole.get_gtbb(0))
    np.testing.assert_array_equal(dataset.get_rgb(2), whole.get_rgb(0))
    assert [dataset.index_of(key) for key in keys(dataset)] == list(range(5))
    assert dataset.key(-1) == dataset.get_jname(4) == "83c43efd_3"
    assert np.array_equal(dataset.get_gtbb(-1), dataset.get_gtbb(4))
    with pytest.raises(UnknownKey, match="label file.*'3f731b45'"):
        dataset.index_of("3f731b45")
    quality = dataset[3][1][0]  # of the empty one
    assert float(quality.max()) == 0


def test_batches_and_loaders_have_the_label_files_of_single_items(pack: Path) -> None:
    dataset = GraspDataset(pack, SIZE, include_depth=False, items="label", seed=3)
    batch = dataset.__getitems__([4, 0, 2])
    for index, item in zip((4, 0, 2), batch, strict=True):
        assert all(equal(a, b) for a, b in zip(flat(dataset[index]), flat(item), strict=True))
    with Loader(pickle.loads(pickle.dumps(dataset)), batch_size=5, seed=3) as loader:
        [(x, maps, index, rot, zoom)] = list(loader)
    assert index.tolist() == list(range(5))
    assert list(zip(rot.tolist(), zoom.tolist(), strict=True)) == [dataset[at][3:] for at in range(5)]
    for at in range(5):
        assert all(equal(a, b[at]) for a, b in zip(flat(dataset[at])[:5], (x, *maps), strict=True))


def test_a_image_that_is_not_square_is_stretched_by_the_fork_and_refused_without_it(tmp_path: Path) -> None:
    root = grasp_folders.anything(tmp_path / "set", width=SIDE + 32)
    packed(root, tmp_path / "pack", codecs=(("rgb", "raw"),))
    dataset = GraspDataset(tmp_path / "pack", SIZE, **FORK)
    for index, item in enumerate(fork_loaders.anything(root)):
        for rot, zoom in AUGMENTED[:4]:
            difference = np.abs(dataset.get_rgb(index, rot, zoom, normalise=False) - item.look(SIZE, rot, zoom))
            assert difference[1:-1, 1:-1].max() <= 2
    with pytest.raises(BadInput, match="128x96 px.*square"):
        GraspDataset(tmp_path / "pack", SIZE, include_depth=False)[0]


def test_a_pack_without_the_names_of_label_files_is_refused(pack: Path, tmp_path: Path) -> None:
    packed(pack.with_suffix(""), tmp_path / "pack", fields=("rgb", "grasps", "grasp_rows"))
    with pytest.raises(InvalidRequest, match="field 'label_keys'"):
        GraspDataset(tmp_path / "pack", SIZE, include_depth=False, items="label")
    assert len(GraspDataset(tmp_path / "pack", SIZE, include_depth=False)) == 3


def test_a_preset_keeps_what_tells_label_files_apart(pack: Path) -> None:
    schema = opened(pack.with_suffix("")).schema
    found = preset_options("grconvnet", schema, {})
    assert found == {
        "fields": ("rgb", "grasps", "grasp_rows", "grasp_labels", "label_keys"),
        "codecs": (("rgb", "raw"),),
    }


def test_a_pack_of_a_pack_keeps_the_rule(pack: Path, tmp_path: Path) -> None:
    packed(pack, tmp_path / "pack")
    assert manifests.read(tmp_path / "pack").source["kind"] == "grasp-anything"
    one, other = (GraspDataset(path, SIZE, **FORK) for path in (pack, tmp_path / "pack"))
    np.testing.assert_array_equal(one.get_gtbb(0, np.pi, 0.6), other.get_gtbb(0, np.pi, 0.6))
    assert keys(one) == keys(other)
