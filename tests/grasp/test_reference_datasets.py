"""GGCNNDataset and GRConvNetDataset: GraspDataset, with the constructors and defaults of the projects' own classes."""

import re
from pathlib import Path

import pytest
import torch

from packer.grasp import GGCNNDataset, GraspDataset, GRConvNetDataset, SliceSplit
from tests.support import grasp_folders

PATCHES = Path(__file__).parents[2] / "examples/patches"


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grasp_folders.packs(tmp_path_factory.mktemp("packs"), codecs=(("rgb", "raw"), ("depth", "raw")))["cornell"]


def same(one: GraspDataset, other: GraspDataset) -> bool:
    assert len(one) == len(other)
    pairs = [(one[index], other[index]) for index in range(len(one))]
    return all(torch.equal(x, y) and all(map(torch.equal, maps, others)) for (x, maps, *_), (y, others, *_) in pairs)


def test_ggcnn_as_its_training_script_calls_it(pack: Path) -> None:
    """Arguments by position and as 0 and 1, as argparse gives them; depth alone unless asked for more."""
    plain = dict(random_rotate=False, random_zoom=False)
    train = GGCNNDataset(pack, start=0.0, end=0.5, ds_rotate=0.4, include_depth=1, include_rgb=0, **plain)
    wanted = GraspDataset(pack, 300, include_rgb=False, split=SliceSplit(0.0, 0.5, rotate=0.4), **plain)
    assert same(train, wanted)
    assert train[0][0].shape == (1, 300, 300)
    assert same(
        GGCNNDataset(pack, 0.5, 1.0, 0.4, include_rgb=1), GraspDataset(pack, split=SliceSplit(0.5, 1.0, 0.4), **plain)
    )


def test_grconvnet_as_its_training_script_calls_it(pack: Path) -> None:
    dataset = GRConvNetDataset(pack, output_size=224, ds_rotate=0.5, include_depth=1, include_rgb=1)
    plain = dict(random_rotate=False, random_zoom=False, style="grconvnet")
    assert same(dataset, GraspDataset(pack, 224, split=SliceSplit(rotate=0.5), **plain))
    assert dataset.length == 6
    assert dataset[0][0].shape == (4, 224, 224)
    assert GRConvNetDataset(pack)[0][0].shape == (1, 224, 224)


@pytest.mark.parametrize("name", ["ggcnn", "grconvnet"])
def test_a_patch_names_what_there_is(name: str) -> None:
    text = (PATCHES / f"{name}.patch").read_text()
    added = re.findall(r"^\+.*from packer\.grasp import (\w+)", text, re.MULTILINE)
    assert set(added) == {{"ggcnn": "GGCNNDataset", "grconvnet": "GRConvNetDataset"}[name]}
    removed = re.findall(r"^-(?!--).*", text, re.MULTILINE)
    assert any("np.int)" in line for line in removed)
