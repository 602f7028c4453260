"""An original data set as a torch data set: what the pack gives, without the pack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer.errors import UnknownKey
from packer.geometry import CenterCrop, RandomHorizontalFlip
from packer.tools.workload import FolderDataset
from tests.support import source_trees
from tests.support.conversions import packed


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types; NaN equals NaN."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.is_floating_point())
    return bool(one == other)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("kind", ["cornell", "jacquard", "folder"])
@pytest.mark.parametrize("geometry", [None, CenterCrop(24), RandomHorizontalFlip(1.0)])
def test_it_gives_what_a_pack_of_it_gives(tmp_path: Path, kind: str, geometry: Any) -> None:
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    packed(root, tmp_path / "out.pack")
    folder, pack = FolderDataset(root, geometry=geometry), packer.open(tmp_path / "out.pack", geometry=geometry)
    assert len(folder) == len(pack)
    for index in range(len(pack)):
        ours, theirs = folder[index], pack[index]
        assert list(ours) == list(theirs)
        for name in theirs:
            assert same(ours[name], theirs[name]), name


def test_fields_are_chosen_and_a_transform_is_called(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    assert list(FolderDataset(root, ("depth", "key"))[0]) == ["depth", "key"]
    assert FolderDataset(root, ("key",), transform=lambda sample: sample["key"] + "!")[1] == "0101!"
    with pytest.raises(UnknownKey, match="no field 'nose'; there are: key, rgb"):
        FolderDataset(root, ("nose",))
