"""Loader: its batches are the data set's samples, for every kind of field, format, geometry and number of threads."""

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

import packer
from packer import Loader, formats
from packer.datasets.pack_dataset import PackDataset
from packer.errors import BadIndex, BadInput, InvalidRequest
from packer.geometry import Compose, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, draw
from packer.schema import Field, Schema
from tests.support import marked_packs, source_trees
from tests.support.conversions import packed
from tests.support.sample_digests import digest_of, same

RANDOM = Compose(RandomResizedCrop((40, 48), scale=(0.3, 1)), RandomHorizontalFlip())
STACKED = ("image", "depth", "mask", "label", "weight", "pose")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same 23 posed in packs of every format, and as JPEG."""
    return marked_packs.every_format(tmp_path_factory.mktemp("posed"), 23)


@pytest.fixture
def dataset(root: Path) -> PackDataset:
    return packer.open(root / "jpeg.pack")


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of images of three sizes."""
    folder = tmp_path_factory.mktemp("sizes")
    files = {f"{height}.png": source_trees.image(height, height=height) for height in (20, 30, 40)}
    packed(source_trees.write(folder / "in", files), folder / "sizes.pack")
    return folder / "sizes.pack"


def check_batch(batch: dict[str, Any], samples: list[dict[str, Any]]) -> None:
    assert list(batch) == list(samples[0])
    for name, values in batch.items():
        wanted = [sample[name] for sample in samples]
        if name in STACKED:
            stacked = torch.stack([torch.as_tensor(value, dtype=values.dtype) for value in wanted])
            assert torch.equal(values, stacked), name
        else:
            assert isinstance(values, list), name
            assert all(same(value, each) for value, each in zip(values, wanted, strict=True)), name


@pytest.mark.one_in(12)
@pytest.mark.parametrize("geometry", [None, Resize((32, 32)), RANDOM])
@pytest.mark.parametrize("name", [*formats.names(), "jpeg"])
def test_batches_are_the_samples(root: Path, name: str, geometry: Any) -> None:
    dataset = packer.open(root / f"{name}.pack")
    loader = Loader(dataset, 5, geometry=geometry, threads=2, seed=3)
    assert len(loader) == 5
    numbers = draw(3, 0, np.arange(23), geometry.draws if geometry else 0)
    samples = [dataset.sample_at(at, geometry, numbers[at].tolist()) for at in range(23)]
    batches = list(loader)
    assert [len(batch["key"]) for batch in batches] == [5, 5, 5, 5, 3]
    for at, batch in enumerate(batches):
        check_batch(batch, samples[5 * at : 5 * at + 5])


def test_layouts_and_dtypes_are_as_documented(dataset: PackDataset) -> None:
    batch = next(iter(Loader(dataset, 4)))
    assert tuple(batch["image"].shape) == (4, 3, 60, 80) and batch["image"].dtype == torch.uint8
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert tuple(batch["depth"].shape) == (4, 1, 60, 80) and batch["depth"].dtype == torch.float32
    assert tuple(batch["mask"].shape) == (4, 60, 80) and batch["mask"].dtype == torch.uint8
    assert batch["label"].dtype == torch.int64 and batch["weight"].dtype == torch.float64
    assert tuple(batch["pose"].shape) == (4, 3)
    batch["image"].zero_()  # it is the caller's
    assert dataset[0]["image"].any()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("by_sample", [False, True])
def test_the_number_of_threads_changes_nothing(dataset: PackDataset, by_sample: bool) -> None:
    transform = (lambda sample: sample) if by_sample else None
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "geometry": RANDOM, "transform": transform}
    found = [digest_of(Loader(dataset, 4, threads=threads, **options)) for threads in (1, 2, 4, 1)]
    assert len(set(found)) == 1
    assert digest_of(Loader(dataset, 4, **{**options, "seed": 6})) != found[0]
    both = [digest_of(Loader(dataset, 4, **{**options, "transform": how})) for how in (None, lambda sample: sample)]
    assert both == [found[0]] * 2, "a transform that changes nothing changed something"


class Drawing:
    """A transform that draws from the generator of torch, NumPy or `random`, as augmentations do."""

    def __init__(self, generator: str) -> None:
        self.generator = generator

    def draw(self) -> float:
        if self.generator == "torch":
            return float(torch.rand(()).item())
        return float(np.random.random()) if self.generator == "numpy" else random.random()

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"key": sample["key"], "drawn": self.draw()}


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.mark.parametrize("generator", ["torch", "numpy", "random"])
def test_threads_draw_from_the_generators_of_the_process(dataset: PackDataset, generator: str) -> None:
    """What a transform draws is not a function of (seed, epoch, index): the numbers come in the threads' order."""
    drawing = Drawing(generator)
    seed_all(1)
    expected = [drawing.draw() for _ in range(23)]
    seed_all(1)
    drawn = [each for batch in Loader(dataset, 4, transform=drawing, threads=1) for each in batch["drawn"].tolist()]
    assert drawn == expected
    seed_all(1)
    drawn = [each for batch in Loader(dataset, 4, transform=drawing, threads=2) for each in batch["drawn"].tolist()]
    assert sorted(drawn) == sorted(expected)


@pytest.mark.parametrize("generator", ["torch", "numpy", "random"])
def test_workers_draw_from_generators_seeded_by_the_loader(dataset: PackDataset, generator: str) -> None:
    def epochs(seed: int) -> list[tuple[str, float]]:
        seed_all(seed)  # of this process: it does not matter
        with Loader(dataset, 4, shuffle=True, seed=3, transform=Drawing(generator), num_workers=2) as loader:
            batches = [batch for _ in range(2) for batch in loader]
        return [pair for batch in batches for pair in zip(batch["key"], batch["drawn"].tolist(), strict=True)]

    found = epochs(1)
    assert found == epochs(2)
    assert len({drawn for _, drawn in found}) == len(found), "epochs or workers draw the same numbers"


def test_ragged_fields_can_be_padded(dataset: PackDataset) -> None:
    def check(batch: dict[str, Any]) -> None:
        counts = [1 + number % 4 for number in range(6)]
        assert batch["grasps_count"].tolist() == batch["boxes_count"].tolist() == counts
        assert tuple(batch["grasps"].shape) == (6, 4, 4, 2) and tuple(batch["boxes"].shape) == (6, 4, 4)
        for at, count in enumerate(counts):
            assert torch.equal(batch["grasps"][at, :count], dataset[at]["grasps"])
            assert not batch["grasps"][at, count:].any()
        assert batch["sound_count"].tolist() == [0, 1, 2, 3, 4, 0]
        assert isinstance(batch["caption"], list) and "caption_count" not in batch

    check(next(iter(Loader(dataset, 6, ragged="pad"))))
    check(next(iter(Loader(dataset, 6, ragged="pad", transform=lambda sample: sample))))


@pytest.mark.parametrize("ragged", ["list", "pad"])
@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_equal_lengths_by_chance_change_no_type(dataset: PackDataset, ragged: str, transform: Any) -> None:
    (batch,) = Loader(dataset, 3, ragged=ragged, transform=transform, sampler=[1, 5, 9])  # two grasps each
    assert isinstance(batch["grasps"], list) == (ragged == "list")
    assert ("grasps_count" in batch) == (ragged == "pad")
    (one,) = Loader(Subset(dataset, [2]), 1, ragged=ragged, transform=transform)
    assert isinstance(one["meta"], list) and one["meta"] == [{"number": 2, "list": [0, 1]}]


def test_images_of_different_sizes_name_the_geometry_to_pass(sizes: Path) -> None:
    dataset = packer.open(sizes)
    message = r"'image'.*3x20x64, 3x30x64, 3x40x64.*geometry=Resize\(\(224, 224\)\) or RandomResizedCrop\(224\)"
    for options in ({}, {"transform": lambda sample: sample}, {"threads": 1}):
        with pytest.raises(InvalidRequest, match=message):
            next(iter(Loader(dataset, 3, **options)))  # type: ignore[arg-type]
    for how in ({"as_tuple": ("image", "key")}, {"output": "numpy"}, {"as_tuple": ("image",), "output": "numpy"}):
        with pytest.raises(InvalidRequest, match=r"'image'.*geometry="):
            next(iter(Loader(packer.open(sizes, **how), 3)))
    assert [batch["image"].shape[-2] for batch in Loader(dataset)] == [20, 30, 40]
    for geometry in (Resize((32, 32)), RandomResizedCrop(32), Compose(Resize(40), RandomCrop(32))):
        (batch,) = Loader(dataset, 3, geometry=geometry)
        assert tuple(batch["image"].shape) == (3, 3, 32, 32)
    with pytest.raises(BadInput, match=r"part-00000.*20\.png.*64x20.*Resize"):
        list(Loader(packer.open(sizes), geometry=RandomCrop(32)))


def test_a_transform_runs_in_the_threads(dataset: PackDataset) -> None:
    ran = set()

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        ran.add(threading.current_thread().name)
        return {"mean": sample["image"].float().mean(), "first": sample["key"], "n": 3, "f": 0.5, "t": (1, "a")}

    (batch,) = Loader(dataset, 23, transform=transform, threads=2)
    assert ran <= {"packer-loader-0", "packer-loader-1"}
    assert batch["mean"].shape == (23,) and batch["mean"].dtype == torch.float32
    assert batch["n"].dtype == torch.int64 and batch["f"].dtype == torch.float64
    assert batch["t"][0].tolist() == [1] * 23 and batch["t"][1] == ["a"] * 23
    assert batch["first"] == list(dataset.keys())


def test_a_transform_may_put_a_map_in_the_place_of_points(dataset: PackDataset) -> None:
    def drawn(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "grasps": torch.zeros(5, 5), "label": None, "sound": np.ones(2, np.float16)[::-1]}

    (batch,) = Loader(dataset, 23, transform=drawn)
    assert tuple(batch["grasps"].shape) == (23, 5, 5)
    assert batch["label"] == [None] * 23


@pytest.mark.parametrize("output", ["torch", "numpy", "pil"])
def test_tuples_and_other_outputs(root: Path, output: str) -> None:
    dataset = packer.open(root / "jpeg.pack", as_tuple=("image", "label", "spots"), output=output)
    images, labels, spots = next(iter(Loader(dataset, 4)))
    assert labels.tolist() == [0, 1, 0, 1]
    assert all(np.array_equal(value, dataset[at][2]) for at, value in enumerate(spots))
    assert isinstance(spots, list)
    if output == "pil":
        assert [image.size for image in images] == [(80, 60)] * 4
    else:
        assert all(np.array_equal(image, dataset[at][0]) for at, image in enumerate(images))
    with pytest.raises(InvalidRequest, match="as_tuple"):
        Loader(dataset, 4, ragged="pad")
    doubled = packer.open(root / "jpeg.pack", as_tuple=("image", "label"), transform=lambda image: image.float() / 255)
    images, _ = next(iter(Loader(doubled, 4, transform=lambda pair: (pair[0] * 2, pair[1]))))
    assert torch.equal(images[3], doubled[3][0] * 2)


def test_a_subset_is_decoded_as_a_pack(dataset: PackDataset) -> None:
    inner = Subset(Subset(dataset, [9, 8, 7, 6, 5]), [4, 0, 2])
    (batch,) = Loader(inner, 3)
    assert batch["key"] == [dataset.key(at) for at in (5, 9, 7)]
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    runs = [digest_of(Loader(inner, 2, geometry=RANDOM, shuffle=True, threads=each)) for each in (1, 4)]
    assert runs[0] == runs[1]
    with pytest.raises(BadIndex):
        list(Loader(Subset(dataset, [99]), 1))


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index) ** 2, {"index": index, "name": str(index)}


def test_other_data_sets_are_read_in_threads(dataset: PackDataset) -> None:
    squares, rest = next(iter(Loader(Squares(), 7)))
    assert squares.tolist() == [0, 1, 4, 9, 16, 25, 36]
    assert rest["index"].tolist() == list(range(7)) and rest["name"][3] == "3"
    both = ConcatDataset([dataset, dataset])
    assert [key for batch in Loader(both, 10) for key in batch["key"]] == 2 * list(dataset.keys())


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("names", [("fields", "other"), ("other", "fields")])
def test_samples_of_other_fields_make_no_batch(names: tuple[str, str], is_nested: bool) -> None:
    samples = [{"image": torch.zeros(2), **({"split": 1} if name == "other" else {})} for name in names]
    given = [(0, sample) for sample in samples] if is_nested else samples
    with pytest.raises(InvalidRequest, match="'split'"):
        next(iter(Loader(given, 2)))


def as_lists(samples: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """A collate function that stacks nothing, for images of any sizes."""
    return {name: [sample[name] for sample in samples] for name in samples[0]}


@pytest.mark.parametrize("how", [{"threads": 2}, {"num_workers": 1}], ids=str)
def test_a_collate_function_gets_the_samples_of_a_batch(sizes: Path, how: dict[str, int]) -> None:
    dataset = packer.open(sizes)
    with Loader(dataset, 3, collate_fn=as_lists, **how) as loader:  # type: ignore[arg-type]
        (batch,) = loader
    assert [tuple(image.shape) for image in batch["image"]] == [tuple(dataset[at]["image"].shape) for at in range(3)]
    assert all(torch.equal(batch["image"][at], dataset[at]["image"]) for at in range(3))


def test_a_collate_function_sees_geometry_transform_and_order_of_the_loader(dataset: PackDataset) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "geometry": RANDOM}
    mine = Loader(dataset, 4, collate_fn=as_lists, **options)
    for batch, wanted in zip(mine, Loader(dataset, 4, **options), strict=True):
        assert batch["key"] == wanted["key"]
        assert torch.equal(torch.stack(batch["image"]), wanted["image"])
    keys = next(iter(Loader(dataset, 4, transform=lambda sample: sample["key"], collate_fn=tuple)))
    assert keys == tuple(dataset.keys()[at] for at in range(4))
    pairs = packer.open(dataset.path, as_tuple=("image", "label"))
    assert next(iter(Loader(pairs, 4, collate_fn=lambda samples: [label for _, label in samples]))) == [
        dataset[at]["label"] for at in range(4)
    ]


def test_what_a_collate_function_raises_reaches_the_loop(dataset: PackDataset) -> None:
    def failing(samples: Sequence[Any]) -> Any:
        raise ValueError(f"{len(samples)} samples")

    with pytest.raises(ValueError, match="4 samples"):
        list(Loader(dataset, 4, collate_fn=failing))


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(3))


def test_what_does_not_go_together_is_refused(dataset: PackDataset) -> None:
    for message, given, options in (
        ("threads=0", dataset, {"threads": 0}),
        ("ragged='x'", dataset, {"ragged": "x"}),
        ("num_workers", dataset, {"num_workers": "auto"}),
        ("num_workers=-1", dataset, {"num_workers": -1}),
        ("num_workers=1.5", dataset, {"num_workers": 1.5}),
        ("geometry", Squares(), {"geometry": RANDOM}),
        ("geometry", dataset, {"geometry": "flip"}),
        ("geometry=.*packer.open", ConcatDataset([dataset, Squares()]), {"geometry": RANDOM}),
        (r"len\(\)", Endless(), {}),
        ("both or neither", dataset, {"rank": 1}),
        ("drop threads", dataset, {"num_workers": 2, "threads": 2}),
        ("drop threads", dataset, {"num_workers": 2, "prefetch_bytes": 5}),
        ("sampler", dataset, {"sampler": [1], "shuffle": True}),
        ("shuffle=.*: expected", dataset, {"shuffle": "no"}),
        ("drop_last=.*: expected", dataset, {"drop_last": "yes"}),
        ("seed=.*: expected", dataset, {"seed": "a"}),
    ):
        with pytest.raises(InvalidRequest, match=message):
            Loader(given, 2, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"found 64.*Loader\(dataset, batch_size\)"):
        Loader(64, dataset)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="ragged='pad'"):
        Loader(dataset, 4, collate_fn=list, ragged="pad")
    with pytest.raises(TypeError, match="collate_fn=3: expected"):
        Loader(dataset, 4, collate_fn=3)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packs with the same class, as number 0 of "all" and "some", and as number 1 of "others"."""
    folder = tmp_path_factory.mktemp("numbered")
    for name, classes in (("all", "bc"), ("some", "bc"), ("others", "ab")):
        files = {f"{each}/{name}.png": source_trees.image(0) for each in classes}
        packed(source_trees.write(folder / "in" / name, files), folder / f"{name}.pack")
    return folder


@pytest.mark.parametrize("nested", [False, True])
def test_packs_that_number_classes_differently_are_not_mixed(numbered: Path, nested: bool) -> None:
    def both(name: str, **options: Any) -> ConcatDataset[Any]:
        packs: list[Any] = [packer.open(numbered / f"{each}.pack", **options) for each in ("all", name)]
        return ConcatDataset([packs[0], Subset(ConcatDataset(packs[1:]), [1, 0])] if nested else packs)

    with pytest.raises(InvalidRequest, match=r"others.pack.*'label'.*packer\.concat"):
        Loader(both("others"), 2)
    assert [batch["label"].tolist() for batch in Loader(both("some"), 4)] == [[0, 1, 1, 0] if nested else [0, 1, 0, 1]]
    (batch,) = Loader(both("others", fields=("key",)), 4)
    assert len(batch["key"]) == 4


def test_small_files_of_bare_pixels_are_read_by_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.loading.loader.usable_cores", lambda: 3)
    folder = source_trees.write(tmp_path / "in", {"small.png": source_trees.image(0, height=40)})
    large = source_trees.write(tmp_path / "in of large", {"large.png": source_trees.image(0, height=300, width=300)})
    for name, source, options, threads in (
        ("bmp", folder, {"to": "bmp", "codecs": (("image", "bmp"),)}, 1),
        ("files", folder, {"to": "bmp", "codecs": (("image", "encoded"),)}, 3),
        ("mapped", folder, {"to": "lmdb", "codecs": (("image", "raw"),)}, 3),
        ("large", large, {"to": "bmp", "codecs": (("image", "bmp"),)}, 3),
    ):
        packed(source, tmp_path / name, **options)
        dataset = packer.open(tmp_path / name)
        assert Loader(dataset, 1).threads == threads, name
        assert Loader(dataset, 1, threads=2).threads == 2, name
        assert Loader(dataset, 1, geometry=Resize((8, 8))).threads == 3, name
        assert Loader(dataset, 1, num_workers=1).threads == 0, name
    assert Loader(packer.open(tmp_path / "bmp", transform=dict), 1).threads == 3
    assert Loader(Subset(packer.open(tmp_path / "bmp"), [0]), 1).threads == 1


def test_splits_and_data_set_geometry(tmp_path: Path) -> None:
    split = Field("split", "number", "number", dtype="int64", shape=(), classes=("train", "val"))
    samples = [{**marked_packs.scene(number), "split": number % 2} for number in range(6)]
    marked_packs.write(tmp_path / "out.pack", samples, Schema((*marked_packs.schema().fields, split)))
    dataset = packer.open(tmp_path / "out.pack", split="val", geometry=Resize((16, 16)))
    (batch,) = Loader(dataset, 3)
    assert batch["key"] == ["scene 0001", "scene 0003", "scene 0005"]
    assert tuple(batch["image"].shape) == (3, 3, 16, 16)
    (batch,) = Loader(dataset, 3, geometry=Resize((8, 8)))
    assert tuple(batch["image"].shape) == (3, 3, 8, 8)
