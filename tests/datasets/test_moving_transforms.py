"""Transforms of torchvision that move pixels: refused where they would move one image and leave the labels."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

import packer
from packer.errors import InvalidRequest
from packer.grasp import GraspDataset
from tests.support import grasp_folders, marked_packs
from tests.support.conversions import packed
from tests.support.object_standins import of

BOXES = ("image", "boxes", "label")


@of("torchvision.transforms.v2._geometry")
class RandomHorizontalFlip(torch.nn.Module):
    """Moves the first tensor that it finds, as torchvision's does with plain tensors."""

    def forward(self, sample: Any) -> Any:
        return {**sample, "image": sample["image"].flip(-1)} if isinstance(sample, dict) else sample.flip(-1)


@of("torchvision.transforms.v2._auto_augment")
class RandAugment(RandomHorizontalFlip):
    pass


@of("torchvision.transforms.v2._color")
class ColorJitter(torch.nn.Module):
    def forward(self, sample: Any) -> Any:
        return sample


@of("torchvision.transforms.v2._container")
class Compose(torch.nn.Module):
    def __init__(self, transforms: Any) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


@of("torchvision.transforms.transforms")
class OldCompose:
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        return sample


@of("torchvision.transforms.transforms")
class OldFlip(torch.nn.Module):
    pass


@of("torchvision.transforms.transforms")
class OldJitter(torch.nn.Module):
    pass


@of("torchvision.transforms.transforms")
class ToTensor:
    def __call__(self, sample: Any) -> Any:
        return sample


OldFlip.__name__ = "RandomHorizontalFlip"
OldCompose.__name__ = "Compose"


class Own(RandomHorizontalFlip):
    """A user's."""


MOVING = {
    "flip": RandomHorizontalFlip(),
    "augment": RandAugment(),
    "own": Own(),
    "compose": Compose([ColorJitter(), RandomHorizontalFlip()]),
    "nested": Compose([Compose([RandomHorizontalFlip()])]),
    "sequential": torch.nn.Sequential(ColorJitter(), RandomHorizontalFlip()),
}
UNMOVING: dict[str, Any] = {
    "jitter": ColorJitter(),
    "compose": Compose([ColorJitter(), torch.nn.Identity()]),
    "function": lambda sample: sample,
    "old compose": OldCompose([ColorJitter()]),
}


@pytest.fixture(autouse=True)
def _torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = ModuleType("torchvision.transforms.v2._geometry")
    geometry.RandomHorizontalFlip = RandomHorizontalFlip  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, geometry.__name__, geometry)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "pack", 3)


def opened_with(pack: Path, transform: Any, **given: Any) -> object:
    return packer.open(pack, transform=transform, **given)


def set_afterwards(pack: Path, transform: Any, **given: Any) -> object:
    dataset = packer.open(pack, **given)
    dataset.transform = transform
    return dataset


def changed_with(pack: Path, transform: Any, **given: Any) -> object:
    return packer.open(pack, ("image",)).with_(**{"fields": None, **given}, transform=transform)


def loader_with(pack: Path, transform: Any, **given: Any) -> object:
    return packer.Loader(packer.open(pack, **given), 2, transform=transform)


def loader_of_subset(pack: Path, transform: Any, **given: Any) -> object:
    return packer.Loader(Subset(packer.open(pack, **given), [1, 0]), 2, transform=transform)


def loader_of_several(pack: Path, transform: Any, **given: Any) -> object:
    plain, other = packer.open(pack, ("image", "label")), packer.open(pack, **given)
    return packer.Loader(ConcatDataset([plain, Subset(other, [0])]), 2, transform=transform)


WAYS: tuple[Callable[..., object], ...] = (
    opened_with,
    set_afterwards,
    changed_with,
    loader_with,
    loader_of_subset,
    loader_of_several,
)


@pytest.mark.parametrize("transform", MOVING.values(), ids=MOVING)
@pytest.mark.parametrize("way", WAYS)
def test_what_moves_one_image_is_refused(pack: Path, way: Callable[..., object], transform: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"boxes.*output=\"tv\".*geometry="):
        way(pack, transform, fields=BOXES)


@pytest.mark.parametrize("name", ["boxes", "mask", "grasps", "depth"])
@pytest.mark.parametrize("output", ["torch", "numpy", "pil"])
@pytest.mark.parametrize("way", WAYS)
def test_of_every_kind_that_moves(pack: Path, way: Callable[..., object], output: str, name: str) -> None:
    for given in ({"fields": ("image", name)}, {"as_tuple": ("image", name)}):
        with pytest.raises(InvalidRequest, match=name):
            way(pack, MOVING["flip"], output=output, **given)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_moves_nothing_or_all_is_taken(pack: Path, way: Callable[..., object]) -> None:
    for transform in UNMOVING.values():
        way(pack, transform, fields=BOXES)
        way(pack, transform, as_tuple=BOXES)
    for transform in MOVING.values():
        way(pack, transform, fields=("image", "label"))
        way(pack, transform, as_tuple=("image", "label"))
        way(pack, transform, fields=BOXES, output="tv")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", ["torch", "tv", "pil"])
def test_version_1_needs_one_image(pack: Path, way: Callable[..., object], output: str) -> None:
    for transform in (OldFlip(), OldJitter(), OldCompose([OldJitter()]), Compose([OldFlip()])):
        with pytest.raises(InvalidRequest, match="for one image.*as_tuple.*v2"):
            way(pack, transform, fields=("image", "label"), output=output)


def test_version_1_gets_the_image_of_a_tuple(pack: Path) -> None:
    for transform in (OldFlip(), OldCompose((OldJitter(), OldFlip()))):
        packer.open(pack, as_tuple=("image", "label"), transform=transform)
        with pytest.raises(InvalidRequest, match="boxes"):
            packer.open(pack, as_tuple=BOXES, transform=transform)
    converting = OldCompose([OldFlip(), ToTensor()])
    output: Any
    for output in ("pil", "numpy"):
        packer.open(pack, as_tuple=("image", "label"), transform=converting, output=output)
    for output in ("torch", "tv"):
        with pytest.raises(InvalidRequest, match='ToTensor.*output="pil"'):
            packer.open(pack, as_tuple=("image", "label"), transform=converting, output=output)


def test_a_container_of_the_user_may_do_anything(pack: Path) -> None:
    class OfImage:
        transforms = (OldFlip(), RandomHorizontalFlip())

        def __call__(self, sample: Any) -> Any:
            return sample

    packer.open(pack, BOXES, transform=OfImage())


def test_an_output_for_torchvision_is_checked_where_one_value_moves_alone(pack: Path) -> None:
    with pytest.raises(InvalidRequest, match="as_tuple"):
        packer.open(pack, as_tuple=BOXES, output="tv", transform=MOVING["flip"])
    packer.Loader(packer.open(pack, as_tuple=BOXES, output="tv"), 2, transform=MOVING["flip"])
    dataset = packer.open(pack, BOXES, output="tv", transform=MOVING["flip"])
    with pytest.raises(InvalidRequest, match='boxes.*output="tv"'):
        dataset.with_(output="torch")


def test_a_data_set_that_makes_its_own_samples_is_the_users(pack: Path) -> None:
    class Images(packer.datasets.PackDataset):
        def __getitem__(self, index: int) -> Any:
            return {"image": super().__getitem__(index)["image"]}

    flipped = next(iter(packer.Loader(Images(pack), 1, transform=MOVING["flip"])))
    assert torch.equal(flipped["image"][0], packer.open(pack)[0]["image"].flip(-1))


def test_of_items_of_grasps(tmp_path: Path) -> None:
    packed(grasp_folders.jacquard(tmp_path / "set"), tmp_path / "pack", resize="72x72")
    with pytest.raises(InvalidRequest, match="maps"):
        GraspDataset(tmp_path / "pack", transform=MOVING["flip"])
    GraspDataset(tmp_path / "pack", transform=UNMOVING["jitter"])
