"""Boxes and all that belongs to them through geometries, rules and loaders: they stay over the pixels they are of."""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import packer
from packer.datasets import PackDataset
from packer.errors import CorruptRecord, InvalidRequest
from packer.geometry import BoxRule, CenterCrop, Geometry, RandomHorizontalFlip, Resize
from packer.schema import Field
from tests.support import annotated_source, array_packs
from tests.support.annotated_source import ROWS, AnnotatedSource

RULE = BoxRule(clip=True, least_visible=0.5)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("annotated")
    packer.convert(AnnotatedSource(annotated_source.small_set(root / "set")), root / "pack")
    return root / "pack"


def extent(pixels: npt.NDArray[Any], value: int) -> list[int]:
    rows, columns = np.nonzero(pixels[..., 0] == value)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


def runs(sample: dict[str, Any]) -> list[npt.NDArray[Any]]:
    return [
        np.asarray(run) for run in np.split(np.asarray(sample["polygons"]), np.asarray(sample["polygon_starts"]))[1:]
    ]


@pytest.mark.parametrize("geometry", [None, RandomHorizontalFlip(1.0), Resize((80, 120)), CenterCrop((36, 30))])
def test_everything_moves_with_the_pixels(pack: Path, geometry: Geometry | None) -> None:
    """A polygon of edges and a keypoint of centers move by one pixel differently in a flip."""
    sample = packer.open(pack, output="numpy", geometry=geometry)[0]
    whole = [
        place
        for place, (x0, y0, x1, y1) in enumerate(sample["boxes"])
        if x0 >= 0 and y0 >= 0 and x1 <= sample["image"].shape[1] and y1 <= sample["image"].shape[0]
    ]
    assert whole
    for place in whole if not isinstance(geometry, Resize) else ():
        box = extent(sample["image"], annotated_source.color(place))
        assert sample["boxes"][place].tolist() == box
        mine = np.concatenate(
            [run for run, owner in zip(runs(sample), sample["polygon_box"], strict=True) if owner == place]
        )
        assert [*mine.min(axis=0), *mine.max(axis=0)] == box
        ends = sample["keypoints"][place]
        assert [*ends.min(axis=0), *(ends.max(axis=0) + 1)] == box
    if isinstance(geometry, Resize):  # edges are doubled, centers move to (2 x + 0.5)
        stored = packer.open(pack, output="numpy")[0]
        assert np.allclose(sample["polygons"], stored["polygons"] * 2)
        assert np.allclose(sample["keypoints"], stored["keypoints"] * 2 + 0.5)


def test_without_a_rule_nothing_is_cut_dropped_or_looked_at(pack: Path) -> None:
    sample = packer.open(pack, output="numpy", geometry=CenterCrop((20, 20)))[0]
    assert len(sample["boxes"]) == len(sample["box_labels"]) == 3
    assert sample["boxes"].min() < 0
    assert packer.open(pack).sample_decoder().relations is None


def by_hand(sample: dict[str, Any], size: tuple[int, int]) -> dict[str, list[Any]]:
    """What RULE leaves of a sample that no rule was used for: object by object."""
    height, width = size
    left: dict[str, list[Any]] = {name: [] for name in ROWS}
    for place, (x0, y0, x1, y1) in enumerate(np.asarray(sample["boxes"], np.float64).tolist()):
        inside = max(0.0, min(x1, width) - max(x0, 0)) * max(0.0, min(y1, height) - max(y0, 0))
        if inside < 0.5 * (x1 - x0) * (y1 - y0):
            continue
        left["boxes"].append(
            [min(max(x0, 0), width), min(max(y0, 0), height), min(max(x1, 0), width), min(max(y1, 0), height)]
        )
        for name in ("box_labels", "box_crowd", "keypoints", "keypoint_visibility"):
            left[name].append(np.asarray(sample[name])[place].tolist())
        for run, owner in zip(runs(sample), np.asarray(sample["polygon_box"]).tolist(), strict=True):
            if owner == place:
                left["polygon_starts"].append(len(left["polygons"]))
                left["polygon_box"].append(len(left["boxes"]) - 1)
                left["polygons"] += run.tolist()
    return left


@pytest.mark.parametrize("geometry", [None, CenterCrop((20, 20)), CenterCrop((36, 30)), RandomHorizontalFlip(1.0)])
@pytest.mark.parametrize("output", ["numpy", "torch", "pil"])
def test_the_rule_leaves_what_is_worked_out_by_hand(pack: Path, geometry: Geometry | None, output: Any) -> None:
    plain = packer.open(pack, output="numpy", geometry=geometry)
    ruled = packer.open(pack, output=output, geometry=geometry, boxes=RULE)
    for index in range(len(plain)):
        wanted, found = by_hand(plain[index], plain[index]["image"].shape[:2]), ruled[index]
        assert list(found) == list(plain[index])
        for name in ROWS:
            assert found[name].tolist() == wanted[name], (index, name)
            assert np.asarray(found[name]).shape[1:] == plain[index][name].shape[1:]
            assert np.asarray(found[name]).dtype == plain[index][name].dtype


def test_a_side_that_is_too_short_takes_its_rows_along(pack: Path) -> None:
    """Of c the one object is a row of pixels; of d a crop leaves a corner of one object, 2 px wide."""
    rule, crop = BoxRule(clip=True, min_side=3), CenterCrop((36, 30))
    assert len(packer.open(pack)[2]["boxes"]) == 1
    sample = packer.open(pack, boxes=rule)[2]
    assert all(len(sample[name]) == 0 for name in ROWS)
    plain, ruled = packer.open(pack, geometry=crop)[3], packer.open(pack, geometry=crop, boxes=rule)[3]
    cut = np.clip(plain["boxes"].numpy(), 0, [30, 36, 30, 36])
    stays = ((cut[:, 2:] - cut[:, :2]) >= 3).all(axis=1)
    assert 0 < stays.sum() < len(stays)
    for name in ("box_labels", "box_crowd", "keypoints", "keypoint_visibility"):
        assert np.array_equal(ruled[name], plain[name].numpy()[stays])
    assert np.array_equal(ruled["boxes"], cut[stays])
    assert set(ruled["polygon_box"].tolist()) == set(range(stays.sum()))


@pytest.fixture(scope="module", params=[None, (15, 40)])
def areas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 80x60 px, one with two boxes, one without; as they are, and as 40x15 px."""
    sample: dict[str, Any] = {
        "image": np.zeros((60, 80, 3), np.uint8),
        "boxes": [[0, 0, 8, 4], [70, 50, 90, 70]],
        "box_areas": np.asarray([32, np.nan]),
        "weights": np.asarray([32.0, 1.0]),
    }
    folder = tmp_path_factory.mktemp("areas") / "pack"
    fields = {"image": "image", "boxes": "boxes", "box_areas": "number", "weights": "number"}
    none = sample | {"boxes": np.zeros((0, 4)), "box_areas": np.zeros(0), "weights": np.zeros(0)}
    packer.convert([sample, none], folder, fields=fields, resize=request.param)
    return folder


@pytest.mark.parametrize(
    ("geometry", "size"),
    [
        (None, None),
        (Resize((30, 40)), (30, 40)),
        (Resize((120, 20)), (120, 20)),
        (packer.geometry.Compose(Resize((60, 80)), RandomHorizontalFlip(1.0), CenterCrop(20)), (60, 80)),
    ],
)
def test_areas_scale_with_their_boxes(areas: Path, geometry: Geometry | None, size: tuple[int, int] | None) -> None:
    dataset = packer.open(areas, output="numpy", geometry=geometry, boxes=BoxRule(clip=True))
    height, width = size or dataset[0]["image"].shape[:2]
    wanted = [32 * height * width / 4800, np.nan]
    batch = next(iter(packer.Loader(packer.open(areas), 2, geometry=geometry)))
    for values in (dataset[0]["box_areas"], batch["box_areas"][0].numpy()):
        assert values.dtype == np.float64
        assert np.allclose(values, wanted, equal_nan=True, rtol=1e-12)
    assert dataset[0]["weights"].tolist() == [32, 1]


def same(found: Any, wanted: Any) -> bool:
    return found.shape == wanted.shape and found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize(
    "load",
    [
        lambda dataset: packer.Loader(dataset, 3, threads=2),
        lambda dataset: packer.Loader(dataset, 3, num_workers=2),
        lambda dataset: torch.utils.data.DataLoader(dataset, 3, num_workers=1),
    ],
    ids=["threads", "workers", "stock"],
)
def test_every_loader_gives_what_the_data_set_gives(pack: Path, load: Callable[[PackDataset], Iterable[Any]]) -> None:
    dataset = packer.open(pack, fields=["image", *ROWS], geometry=CenterCrop((20, 20)), boxes=RULE)
    batches = list(load(dataset))
    found = {name: [row for batch in batches for row in batch[name]] for name in ROWS}
    assert len(found["boxes"]) == len(dataset)
    for index in range(len(dataset)):
        for name in ROWS:
            assert same(found[name][index], dataset[index][name]), (index, name)


def test_images_of_one_stored_shape_are_gathered_and_the_rule_knows_their_size(tmp_path: Path) -> None:
    image = Field("image", "image", "raw", "uint8", (8, 10, 3))
    boxes = np.float32([[-4, 0, 6, 4], [7, 3, 30, 9]])
    folder = array_packs.displayed(
        tmp_path / "pack", [image, array_packs.BOXES], [{"image": np.zeros((8, 10, 3), np.uint8), "boxes": boxes}]
    )
    dataset = packer.open(folder, boxes=RULE)
    assert dataset.sample_decoder().is_fixed_size(dataset.schema["image"])
    batch = dataset.__getitems__([0])
    assert batch[0]["boxes"].tolist() == dataset[0]["boxes"].tolist() == [[0, 0, 6, 4]]


def test_the_rule_travels_with_the_data_set(pack: Path) -> None:
    dataset = pickle.loads(pickle.dumps(packer.open(pack, geometry=CenterCrop((20, 20)), boxes=RULE)))
    assert len(dataset[0]["boxes"]) == 1
    chosen = dataset.with_(fields=["image", "boxes", "box_labels"])
    assert chosen[0]["box_labels"].tolist() == dataset[0]["box_labels"].tolist()


def test_fields_that_the_rule_needs(pack: Path) -> None:
    with pytest.raises(InvalidRequest, match="'box_labels' depends.*'boxes'"):
        packer.open(pack, ["image", "box_labels"], boxes=RULE)
    with pytest.raises(InvalidRequest, match=r"boxes=0\.5: expected BoxRule"):
        packer.open(pack, boxes=0.5)  # type: ignore[arg-type]


def test_rows_of_a_pack_that_do_not_fit_together_are_damage(tmp_path: Path) -> None:
    labels = Field("box_labels", "number", "raw:int64", "int64", (None,), of="boxes")
    folder = array_packs.displayed(
        tmp_path / "pack",
        [array_packs.IMAGE, array_packs.BOXES, labels],
        [{"image": array_packs.plain(9, 9), "boxes": np.float32([[20, 20, 22, 22]]), "box_labels": np.int64([1, 2])}],
    )
    assert packer.open(folder)[0]["box_labels"].tolist() == [1, 2]
    for read in (lambda: packer.open(folder, boxes=RULE)[0], lambda: packer.open(folder, boxes=RULE).__getitems__([0])):
        with pytest.raises(CorruptRecord, match="box_labels .*2 rows, boxes 1"):
            read()
