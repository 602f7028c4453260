"""A subclass with a `__getitem__` of its own is read through it, by torch's DataLoader and by packer.Loader."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import packer
from packer import Loader
from packer.datasets.pack_dataset import LMDBDataset, PackDataset
from packer.errors import InvalidRequest, WrongType
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop, draw
from packer.grasp import GraspDataset
from tests.support import grasp_folders, marked_packs

RANDOM = Compose(RandomResizedCrop(24), RandomHorizontalFlip())
_COUNT = 11


class Normalised(LMDBDataset):
    """The usual habit: images as numbers, one value more, some left out."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return {"image": sample["image"].float() / 255, "best": index * 2}


class Twice(LMDBDataset):
    def __len__(self) -> int:
        return 2 * super().__len__()

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index % super().__len__())["image"]


class Mixed(LMDBDataset):
    """Two samples in one."""

    def __getitem__(self, index: int) -> Any:
        other = super().__getitem__((index + 1) % len(self))["image"]
        return (super().__getitem__(index)["image"].float() + other) / 2


class OfAMixin:
    """Changes what a data set returns, from the side."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["label"] + 100  # type: ignore[misc]


class Labels(OfAMixin, LMDBDataset):
    """A mixin and a data set."""


class Sampled(LMDBDataset):
    """Another way to make one sample."""

    def sample_at(self, index: int, geometry: Any, random: Any) -> Any:
        return super().sample_at(index, geometry, random)["label"] + 7


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.every_format(tmp_path_factory.mktemp("posed"), _COUNT) / "jpeg.pack"


def equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(equal(found[name], wanted[name]) for name in wanted)
    return torch.equal(torch.as_tensor(found), torch.as_tensor(wanted))


def collated(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples)


@pytest.mark.one_in(16)
@pytest.mark.parametrize("kind", [Normalised, Twice, Labels, Sampled])
@pytest.mark.parametrize("make", [
    lambda data: DataLoader(data, 4),
    lambda data: DataLoader(data, 4, num_workers=1),
    lambda data: Loader(data, 4),
    lambda data: Loader(data, 4, num_workers=1),
])  # fmt: skip
def test_both_loaders_read_through_it(pack: Path, kind: Any, make: Any) -> None:
    dataset = kind(pack, fields=("image", "label"), geometry=packer.geometry.Resize((20, 30)))
    batches = list(make(dataset))
    samples = [dataset[index] for index in range(len(dataset))]
    assert len(batches) == -(-len(dataset) // 4)
    for number, batch in enumerate(batches):
        assert equal(batch, collated(samples[4 * number : 4 * number + 4]))


def test_a_subset_and_a_concatenation_of_it_are_read_through_it(pack: Path) -> None:
    dataset = Normalised(pack, fields=("image",), geometry=packer.geometry.Resize((20, 30)))
    for wrapped in (Subset(dataset, [5, 2, 8]), torch.utils.data.ConcatDataset([Subset(dataset, [5, 2, 8])])):
        for loader in (DataLoader(wrapped, 3), Loader(wrapped, 3)):
            (batch,) = loader
            assert batch["best"].tolist() == [10, 4, 16]
            assert equal(batch["image"], torch.stack([dataset[index]["image"] for index in (5, 2, 8)]))


def test_transforms_come_after_it(pack: Path) -> None:
    dataset = Normalised(pack, fields=("image",), geometry=packer.geometry.Resize((20, 30)))
    (batch,) = Loader(dataset, _COUNT, transform=lambda sample: sample["best"] + 1)
    assert batch.tolist() == [2 * index + 1 for index in range(_COUNT)]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_geometry_of_a_loader_and_its_random_numbers_reach_it(pack: Path, threads: int) -> None:
    """As for a data set that overrides nothing: of seed, epoch and sample alone."""
    plain, own = packer.open(pack, fields=("image",)), Normalised(pack, fields=("image",))
    wanted = Loader(plain, 4, shuffle=True, seed=5, geometry=RANDOM, threads=threads)
    found = Loader(own, 4, shuffle=True, seed=5, geometry=RANDOM, threads=threads)
    for _ in range(2):
        for one, other in zip(wanted, found, strict=True):
            assert equal(other["image"], one["image"].float() / 255)


def test_what_is_read_twice_for_one_sample_takes_further_numbers(pack: Path) -> None:
    twice, mixed = Twice(pack, fields=("image",)), Mixed(pack, fields=("image",))
    (batch,) = Loader(twice, 2 * _COUNT, seed=3, geometry=RANDOM)
    assert not torch.equal(batch[:_COUNT], batch[_COUNT:]), "the second time it is turned as the first time"
    numbers = draw(3, 0, np.arange(_COUNT), 2 * RANDOM.draws)
    plain = packer.open(pack, fields=("image",))
    for threads in (1, 4):
        (found,) = Loader(mixed, _COUNT, seed=3, geometry=RANDOM, threads=threads)
        for index in range(_COUNT):
            first = plain.sample_at((index + 1) % _COUNT, RANDOM, numbers[index, : RANDOM.draws].tolist())["image"]
            second = plain.sample_at(index, RANDOM, numbers[index, RANDOM.draws :].tolist())["image"]
            assert torch.equal(found[index], (second.float() + first) / 2)


class Scaled(GraspDataset):
    """The grasp networks' items with one thing changed."""

    def __getitem__(self, index: int) -> Any:
        x, maps, *rest = super().__getitem__(index)
        return x * 2, maps, *rest


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [DataLoader, Loader])
def test_grasp_items_are_read_through_it(tmp_path: Path, make: Any) -> None:
    pack = grasp_folders.packs(tmp_path, codecs=(("rgb", "raw"), ("depth", "raw")))["cornell"]
    own = Scaled(pack, 64, random_rotate=False, random_zoom=False)
    plain = GraspDataset(pack, 64, random_rotate=False, random_zoom=False)
    x = torch.cat([batch[0] for batch in make(own, 2)])
    assert torch.equal(x, torch.stack([plain[index][0] * 2 for index in range(len(plain))]))


def test_an_error_in_it_names_the_sample(pack: Path) -> None:
    class Failing(LMDBDataset):
        def __getitem__(self, index: int) -> Any:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no") as error:
        list(Loader(Failing(pack), 2))
    assert "in sample 0 of Failing" in error.value.__notes__[0]  # type: ignore[attr-defined]


def _negative(self: Any, index: int) -> Any:
    return -1 - index


@pytest.mark.one_in(6)
@pytest.mark.parametrize("make", [
    lambda data: DataLoader(data, 4),
    lambda data: DataLoader(data, 4, num_workers=1, multiprocessing_context="fork"),
    lambda data: DataLoader(Subset(data, range(_COUNT)), 4),
    lambda data: Loader(data, 4),
])  # fmt: skip
@pytest.mark.parametrize("place", ["its class", "LMDBDataset", "PackDataset"])
def test_what_is_assigned_to_a_class_later_is_read_through(
    pack: Path, monkeypatch: pytest.MonkeyPatch, make: Any, place: str
) -> None:
    """As a notebook's cell does it."""

    class Own(LMDBDataset):
        pass

    dataset = Own(pack, as_tuple=("label",))
    loader = make(dataset)
    assert next(iter(loader))[0].tolist() == [dataset[index][0] for index in range(4)]
    changed: Any = {"its class": Own, "LMDBDataset": LMDBDataset, "PackDataset": PackDataset}[place]
    monkeypatch.setattr(changed, "__getitem__", _negative)
    assert torch.cat(list(loader)).tolist() == [-1 - index for index in range(_COUNT)]


def test_a_transform_that_is_set_later_is_called(pack: Path) -> None:
    dataset = packer.open(pack, as_tuple=("label",))
    loader = Loader(dataset, _COUNT)
    dataset.transform = lambda label: label + 100
    for batch in (next(iter(loader)), next(iter(DataLoader(dataset, _COUNT)))):
        assert min(batch[0].tolist()) >= 100


@pytest.mark.parametrize("name", ["target_transform", "transforms", "loader"])
def test_an_attribute_of_image_folder_that_nothing_would_call_is_refused(pack: Path, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"LMDBDataset\.{name}: .*transform=.*__getitem__"):
        setattr(packer.open(pack), name, lambda label: label)
    own = Normalised(pack)
    setattr(own, name, len)  # whose own __getitem__ may call it
    assert getattr(own, name) is len


def test_packers_own_data_sets_decode_whole_batches() -> None:
    assert LMDBDataset.decodes_batches()
    assert GraspDataset.decodes_batches()
    assert not any(kind.decodes_batches() for kind in (Normalised, Twice, Mixed, Labels, Sampled))


def test_a_class_of_ones_own_does_not_take_the_place_of_packers(pack: Path) -> None:
    class Own(PackDataset):
        format = "lmdb"

    assert type(packer.open(pack)) is LMDBDataset
    assert type(Own(pack)) is Own


def test_open_takes_what_a_data_set_takes() -> None:
    wanted = inspect.signature(PackDataset.__init__).parameters
    found = inspect.signature(packer.open).parameters
    assert [*found.values()] == [each for name, each in wanted.items() if name != "self"]


@pytest.mark.parametrize("index", ["0001", 1.5, None, [1, 2], (1,)])
def test_what_is_no_index_is_refused(pack: Path, index: Any) -> None:
    dataset = packer.open(pack)
    for error in (TypeError, InvalidRequest):
        with pytest.raises(error, match="whole number.*index_of.*Subset"):
            dataset[index]


def test_indices_that_are_no_whole_numbers_are_refused(pack: Path) -> None:
    dataset = packer.open(pack, fields=("label",))
    for indices in ([0.5, 1], ["a"], [None]):
        with pytest.raises(TypeError, match="expected whole numbers"):
            dataset.__getitems__(indices)  # type: ignore[arg-type]
    assert len(dataset.__getitems__([])) == 0
    assert dataset[np.int32(3)]["label"] == dataset[torch.tensor(3)]["label"] == dataset[3]["label"]


@pytest.mark.parametrize("dataset", ["photos.pack", Path("photos.pack"), b"photos", bytearray(b"x")])
def test_letters_are_no_data_set(dataset: Any) -> None:
    with pytest.raises(TypeError, match="dataset: .*packer.open"):
        Loader(dataset, 2)


@pytest.mark.parametrize("name", ["transform", "geometry", "output", "as_tuple", "fields", "split_name"])
def test_an_attribute_that_opening_sets_is_refused_in_a_class(name: str) -> None:
    with pytest.raises(TypeError, match=rf"Own\.{name}: .*super\(\)"):
        type("Own", (LMDBDataset,), {name: None})


_HOOKS = ("target_transform", "transforms", "loader", "find_classes", "make_dataset", "is_valid_file")
_OF_THE_PACK = ("classes", "class_to_idx", "targets", "samples", "imgs")


@pytest.mark.parametrize("name", [*_HOOKS, *_OF_THE_PACK])
def test_what_image_folders_users_override_is_refused_where_nothing_would_ask_for_it(pack: Path, name: str) -> None:
    keyword = "nothing calls it.*__getitem__" if name in _HOOKS else "comes? from the pack"
    own = property(lambda self: []) if name in _OF_THE_PACK else lambda *given: given
    with pytest.raises(TypeError, match=rf"Own\.{name}: .*{keyword}"):
        type("Own", (LMDBDataset,), {name: own})
    with pytest.raises(TypeError, match=rf"Own\.{name}: .*{keyword}"):
        type("Own", (type("AMixin", (), {name: own}), LMDBDataset), {})
    kept = type("Kept", (Normalised,), {name: own})  # whose own __getitem__ may use it
    assert len(kept(pack)) == _COUNT


@pytest.mark.parametrize("name", ["transform", "geometry", "output", "as_tuple"])
def test_what_is_set_before_opening_is_not_reset(pack: Path, name: str) -> None:
    class Before(LMDBDataset):
        def __init__(self, path: Path) -> None:
            setattr(self, name, None)
            super().__init__(path)

    class Behind(LMDBDataset):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.transform = len

    with pytest.raises(TypeError, match=rf"Before\.{name}: .*before super\(\).__init__.*{name}="):
        Before(pack)
    assert Behind(pack).transform is len


def test_a_batch_door_alone_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Own\.__getitems__ without __getitem__"):
        type("Own", (LMDBDataset,), {"__getitems__": lambda self, indices: []})


@pytest.mark.parametrize("name", ["get_rgb", "get_depth", "get_gtbb"])
def test_what_items_are_not_made_through_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=rf"Own\.{name}: .*items"):
        type("Own", (GraspDataset,), {name: lambda self, index, rot=0, zoom=1: None})


@pytest.mark.parametrize(
    ("name", "advice"), [("pin_memory", "device="), ("persistent_workers", "omit it"), ("sharpness", "help")]
)
def test_an_unknown_argument_of_the_loader_is_refused_with_advice(pack: Path, name: str, advice: str) -> None:
    wrong: dict[str, Any] = {name: True}
    with pytest.raises(WrongType, match=rf"{name}=: .*{advice}"):
        Loader(packer.open(pack), 2, **wrong)


def test_what_is_not_a_geometry_is_refused_with_advice(pack: Path) -> None:
    wrong: Any = [RandomHorizontalFlip()]
    dataset = packer.open(pack)
    for make in (lambda: packer.open(pack, geometry=wrong), lambda: Loader(dataset, 2, geometry=wrong)):
        with pytest.raises(WrongType, match=r"Compose\(.* transform="):
            make()
    with pytest.raises(WrongType, match="Compose"):
        dataset.with_(geometry=wrong)


@pytest.mark.parametrize("wrong", [{"fields": "image"}, {"as_tuple": "image"}, {"as_tuple": True}, {"transform": 3}])
def test_what_is_no_names_and_no_function_is_refused(pack: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(wrong))}=.*: expected"):
        packer.open(pack, **wrong)


@pytest.mark.parametrize("name", ["fields", "split_name"])
def test_what_opening_has_settled_cannot_be_changed_afterwards(pack: Path, name: str) -> None:
    dataset = packer.open(pack, fields=("label",))
    assert (dataset.fields, dataset.split_name) == (("label",), None)
    with pytest.raises(AttributeError):
        setattr(dataset, name, ("image",))
