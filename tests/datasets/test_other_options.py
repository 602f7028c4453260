"""PackDataset.with_: another data set over the same open pack, and `splits` and slices."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer.datasets.pack_dataset import PackDataset
from packer.errors import UnknownKey, WrongType
from packer.geometry import CenterCrop
from packer.grasp import GraspDataset
from packer.pack.reader import Pack
from tests.support import grasp_folders
from tests.support.conversions import packed
from tests.support.source_trees import photos

_COUNT = 12


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with")
    packer.convert(
        photos(folder / "in", _COUNT), folder / "a.pack", splits={"train": 0.75, "val": 0.25}, resize=(20, 24)
    )
    return folder / "a.pack"


@pytest.mark.parametrize(
    "options",
    [
        {"fields": ("label",)},
        {"split": "val"},
        {"geometry": CenterCrop(8)},
        {"transform": str},
        {"output": "numpy"},
        {"as_tuple": ("image", "label")},
        {"as_tuple": ("image", "label"), "fields": ("image", "label", "key")},
        {"decoder": "opencv", "dct": "accurate"},
        {"split": "train", "geometry": CenterCrop(8), "output": "numpy", "as_tuple": ("image",)},
    ],
    ids=str,
)
def test_a_data_set_with_other_options_is_that_opened_with_them(pack: Path, options: Any) -> None:
    plain = packer.open(pack)
    before = vars(copy.copy(plain))
    other, opened = plain.with_(**options), packer.open(pack, **options)
    assert type(other) is type(plain)
    assert repr(other[:]) == repr(opened[:])
    assert (other.fields, other.split_name, len(other)) == (opened.fields, opened.split_name, len(opened))
    back = dict.fromkeys(options) | {"output": "torch", "decoder": "auto", "dct": "accurate"}
    assert repr(other.with_(**back)[:]) == repr(plain[:])  # type: ignore[arg-type]
    after = vars(copy.copy(plain))
    assert {name for name in before if before[name] != after[name]} == {"_shares_pack"}
    assert repr(pickle.loads(pickle.dumps(plain.with_(fields=("label",))))[:]) == repr(packer.open(pack, ("label",))[:])


def test_with_does_not_open_the_pack_again(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = packer.open(pack)
    monkeypatch.setattr(Pack, "__init__", None)
    assert len(dataset.with_(split="val", output="numpy")[0]) == len(dataset[0])


def test_each_of_two_data_sets_over_one_pack_may_be_closed_first(pack: Path) -> None:
    one = packer.open(pack)
    opened = one.sample_decoder().pack
    other = one.with_(fields=("label",))
    one.close()
    assert opened._closing.alive and other[3] == {"label": one[3]["label"]}
    del opened
    closing = other.sample_decoder().pack._closing
    other.close()
    assert not closing.alive
    assert other[3]["label"] == one[3]["label"]  # opened again


def test_what_with_cannot_change_is_refused(pack: Path) -> None:
    dataset = packer.open(pack, as_tuple=("image", "label"))
    for wrong in ({"verify": "never"}, {"colour": 1}, {"fields": "image"}, {"output": "tensor"}):
        with pytest.raises(WrongType, match=f"{next(iter(wrong))}=.*expected"):
            dataset.with_(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownKey, match="'test'.*train, val"):
        dataset.with_(split="test")
    with pytest.raises(UnknownKey, match="as_tuple"):
        dataset.with_(fields=("key",))
    with pytest.raises(UnknownKey, match="colour"):
        dataset.with_(fields=("colour",), as_tuple=None)


def test_a_class_of_ones_own_keeps_its_attributes(pack: Path) -> None:
    class Own(PackDataset):
        def __init__(self, root: Path, factor: int) -> None:
            super().__init__(root / "a.pack", ("label",))
            self.factor = factor

        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)["label"] * self.factor

    own = Own(pack.parent, 10)
    val = own.with_(split="val")
    assert [val[at] for at in range(len(val))] == [each * 10 for each in packer.open(pack, split="val").targets]


def test_items_of_grasps_change_what_does_not_change_the_items(tmp_path: Path) -> None:
    packed(grasp_folders.jacquard(tmp_path / "set"), tmp_path / "pack", resize="72x72")
    grasps = GraspDataset(tmp_path / "pack", 40, random_rotate=False, random_zoom=False)
    assert grasps.with_(transform=lambda item: item[2])[1] == 1
    assert torch.equal(grasps.with_(decoder="opencv")[1][0], grasps[1][0])
    with pytest.raises(WrongType, match="fields=: .*dct, decoder, transform"):
        grasps.with_(fields=("rgb",))


def test_splits(pack: Path, tmp_path: Path) -> None:
    assert packer.open(pack).splits == packer.open(pack, split="val").splits == ("train", "val")
    packer.convert(photos(tmp_path / "in", 3), tmp_path / "a.pack")
    assert packer.open(tmp_path / "a.pack").splits == ()


@pytest.mark.parametrize("split", [None, "train"])
@pytest.mark.parametrize(
    "bounds", [slice(0, 3), slice(None), slice(-2, None), slice(7, 900), slice(5, 2), slice(None, None, -3)], ids=str
)
def test_a_slice_is_a_list_of_samples(pack: Path, split: str | None, bounds: slice) -> None:
    dataset = packer.open(pack, fields=("label", "key"), split=split)
    found = dataset[bounds]
    assert isinstance(found, list)
    assert found == [dataset[index] for index in range(len(dataset))][bounds]


def test_a_slice_of_samples_of_ones_own_is_refused(pack: Path) -> None:
    class Own(PackDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)["label"]

    with pytest.raises(WrongType, match="slice.*range"):
        Own(pack)[0:2]  # type: ignore[index]
