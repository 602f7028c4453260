"""An original data set as a torch data set: what the pack gives, without the pack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer.errors import UnknownKey
from packer.geometry import CenterCrop, RandomHorizontalFlip
from packer.tools.measured_workload import FolderDataset, Subject
from tests.support import source_trees
from tests.support.conversions import opened, packed


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
    folder: Any = Subject(root, geometry=geometry).open()
    pack = packer.open(tmp_path / "out.pack", geometry=geometry)
    assert len(folder) == len(pack)
    for index in range(len(pack)):
        ours, theirs = folder[index], pack[index]
        assert list(ours) == list(theirs)
        for name in theirs:
            assert same(ours[name], theirs[name]), name


def test_fields_are_chosen_and_a_transform_is_called(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    chosen: Any = Subject(root, ("depth", "key")).open()
    assert list(chosen[0]) == ["depth", "key"]
    transformed = FolderDataset(opened(root), ("key",), None, lambda sample: sample["key"] + "!", max_pixels=1)
    assert transformed[1] == "0101!"
    with pytest.raises(UnknownKey, match="'nose'; .*key, rgb"):
        Subject(root, ("nose",)).open()
