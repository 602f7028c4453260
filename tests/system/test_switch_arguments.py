"""Arguments that are True or False: a text, which is true whatever it says, is refused by every public function."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.errors import InvalidRequest
from packer.grasp import GGCNNDataset
from packer.system.argument_types import check_switches
from tests.support import grasp_folders
from tests.support.source_trees import image, write

_Call = Callable[[Path, dict[str, Any]], object]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("switches")
    write(place / "in", {f"{n}.png": image(n) for n in range(3)})
    packer.convert(place / "in", place / "a.pack")
    (place / "cornell").mkdir()
    grasp_folders.packs(place / "cornell", codecs=(("rgb", "raw"), ("depth", "raw")))
    return place


def _again(place: Path, given: dict[str, Any]) -> object:
    return packer.convert(place / "in", place / "a.pack", **given)


def _grasps(kind: Any) -> _Call:
    return lambda place, given: kind(next((place / "cornell").rglob("packer.json")).parent, **given)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", ["no", "False", "", None, 2, 1.0, [False]], ids=repr)
@pytest.mark.parametrize(("name", "call"), [
    *((name, _again) for name in ("allow_empty", "follow_links", "overwrite", "restart")),
    *((name, lambda place, given: packer.extract(place / "a.pack", place / "out", **given))
      for name in ("only_exact", "skip_bad")),
    *((name, lambda place, given: packer.Loader(packer.open(place / "a.pack"), 2, **given))
      for name in ("shuffle", "drop_last")),
    ("channels_last", lambda place, given: packer.loading.CUDAPrefetcher([], "cpu", **given)),
    ("antialias", lambda place, given: packer.geometry.RandomResizedCrop(8, **given)),
    ("antialias", lambda place, given: packer.geometry.Resize(8, **given)),
    *((name, _grasps(kind)) for name in ("include_depth", "random_rotate")
      for kind in (packer.grasp.GraspDataset, GGCNNDataset)),
])  # fmt: skip
def test_what_is_neither_true_nor_false_is_refused(place: Path, name: str, call: _Call, value: object) -> None:
    if value is None and name in ("shuffle", "drop_last"):
        return  # as a DataLoader's default
    before = (place / "a.pack/packer.json").read_bytes()
    with pytest.raises(InvalidRequest, match=f"{name}=.*: |one size"):
        call(place, {name: value})
    assert (place / "a.pack/packer.json").read_bytes() == before
    assert not (place / "out").exists()


@pytest.mark.parametrize("value", [True, False, 0, 1, np.True_, np.int64(0)], ids=repr)
def test_what_is_true_or_false_is_taken(value: object) -> None:
    check_switches({"overwrite": value})
