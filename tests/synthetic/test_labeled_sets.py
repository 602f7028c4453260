"""`packer convert` detects the layout of each set and reads the labels that were drawn, to the pixel."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer import synthetic
from packer.datasets import PackDataset
from packer.errors import InvalidRequest
from packer.synthetic.drawing import KINDS
from packer.synthetic.labeled_sets import LabeledObject, LabeledScene, Scenes
from tests.support.foreign_environments import said_by

SAMPLES = 9  # the eighth has no objects
SEED = 2
SIZE = (72, 96)
Opened = tuple[Path, PackDataset]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    """The folder of a set and its pack, made of it as `packer convert FOLDER PACK` does."""
    place = tmp_path_factory.mktemp("labeled")

    def of(name: str) -> Opened:
        is_slow = name in ("cornell", "jacquard")
        options = {} if is_slow else {"size": SIZE, "classes": 5}
        synthetic.load(name)(place / name, samples=1 if is_slow else SAMPLES, seed=SEED, threads=2, **options)
        packer.convert(place / name, place / f"{name}.pack")
        return place / name, packer.open(place / f"{name}.pack", output="numpy")

    return of


@pytest.fixture(scope="module")
def scenes() -> list[LabeledScene]:
    return [drawn(index) for index in range(SAMPLES)]


def drawn(index: int, *, most_objects: int = 4) -> LabeledScene:
    return Scenes(SEED, KINDS[:5], (SIZE,), most_objects).draw(index)


def number_of(dataset: PackDataset, index: int) -> int:
    """Which sample of the set it is, of which its key ends in the number."""
    key = str(dataset.key(index))
    return int(re.findall(r"\d+", key)[-1])


def surrounded(points: Iterable[Sequence[float]], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The pixels whose center a closed line goes around an odd number of times."""
    inside = np.zeros(size, bool)
    y, columns = np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5
    line = [(float(x), float(y)) for x, y in points]
    for one, other in zip(line, [*line[1:], line[0]], strict=True):
        (left, top), (right, bottom) = sorted((one, other), key=lambda point: point[1])
        if top != bottom:  # each edge that is not level turns all pixels to its right
            crossing = left + (y - top) * (right - left) / (bottom - top)
            inside ^= ((y > top) & (y < bottom))[:, None] & (columns > crossing[:, None])
    return inside


def check_objects(
    sample: dict[str, npt.NDArray[np.float32]], names: tuple[str, ...] | None, objects: tuple[LabeledObject, ...]
) -> None:
    """The boxes and the classes of a sample are those of the objects in it."""
    assert names is not None
    assert sample["boxes"].tolist() == [list(shown.box) for shown in objects]
    assert [names[int(label)] for label in sample["box_labels"]] == [KINDS[shown.label] for shown in objects]


def check_polygons(sample: dict[str, npt.NDArray[np.float32]], objects: tuple[LabeledObject, ...]) -> None:
    """The polygons of a sample surround the pixels of the objects in it."""
    starts = [*sample["polygon_starts"].tolist(), len(sample["polygons"])]
    assert sample["polygon_box"].tolist() == list(range(len(objects)))
    for shown, (start, end) in zip(objects, itertools.pairwise(starts), strict=True):
        assert np.array_equal(surrounded(sample["polygons"][start:end], SIZE), shown.pixels)


def polygons(place: Path, dataset: PackDataset, scenes: list[LabeledScene], first: int) -> None:
    for index in range(SAMPLES):
        objects = scenes[number_of(dataset, index) - first].objects
        check_objects(dataset[index], dataset.schema["box_labels"].classes, objects)
        check_polygons(dataset[index], objects)


def coco(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    polygons(place, dataset, scenes, 1)
    assert dataset.schema["split"].classes == ("train2017", "val2017")


def yolo(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    polygons(place, dataset, scenes, 0)


def voc(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    for index in range(SAMPLES):
        scene, sample = scenes[number_of(dataset, index)], dataset[index]
        check_objects(sample, dataset.schema["box_labels"].classes, scene.objects)
        for number, shown in enumerate(scene.objects, start=1):
            assert np.array_equal(sample["object_mask"] == number, shown.pixels)
            assert set(sample["mask"][shown.pixels]) == {1 + shown.label}
        assert np.array_equal(sample["mask"] > 0, sample["object_mask"] > 0)
        assert sample["object_mask"].max() == len(scene.objects)


def pairs(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    names = (place / "classes.txt").read_text().splitlines()
    for index in range(SAMPLES):
        wanted = np.full(SIZE, "table", dtype="<U16")
        for shown in scenes[number_of(dataset, index)].objects:
            wanted[shown.pixels] = KINDS[shown.label]
        assert np.array_equal(np.array(names)[dataset[index]["mask"]], wanted)


def table(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    for index in range(SAMPLES):
        (shown,) = drawn(number_of(dataset, index), most_objects=1).objects
        check_objects(dataset[index], dataset.schema["box_labels"].classes, (shown,))
        assert np.array_equal(dataset[index]["mask"], np.where(shown.pixels, 255, 0))


def folder(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    assert [dataset.classes[int(sample["label"])] for sample in dataset] == [
        str(dataset.key(index)).partition("/")[0] for index in range(SAMPLES)
    ]


def cornell(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    (path,) = place.glob("*/pcd*cpos.txt")
    corners = np.array([line.split() for line in path.read_text().splitlines()], np.float32).reshape(-1, 4, 2)
    assert len(corners)
    assert np.array_equal(dataset[0]["grasps"], corners)


def jacquard(place: Path, dataset: PackDataset, scenes: list[LabeledScene]) -> None:
    (mask,) = place.glob("*/*/*_mask.png")
    assert np.array_equal(dataset[0]["mask"], np.asarray(Image.open(mask)))
    (rows,) = place.glob("*/*/*_grasps.txt")
    numbers = [list(map(float, line.split(";"))) for line in rows.read_text().splitlines()]
    assert np.array_equal(dataset[0]["grasp_rows"], np.array(numbers))


CHECKS = {check.__name__: check for check in (coco, cornell, folder, jacquard, pairs, table, voc, yolo)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name in ("cornell", "folder", "jacquard") else name
        for name in synthetic.names()
    ],
)
def test_what_is_read_is_what_was_drawn(name: str, opened: Callable[[str], Opened], scenes: list[LabeledScene]) -> None:
    place, dataset = opened(name)
    with dataset:
        CHECKS[name](place, dataset, scenes)


_PYCOCOTOOLS = """
import json, sys
from contextlib import redirect_stdout
from pycocotools.coco import COCO

said = {}
for file in sys.argv[1:]:
    with redirect_stdout(sys.stderr):
        found = COCO(file)
    for each in found.dataset["annotations"]:
        rows = ["".join(map(str, row)) for row in found.annToMask(each).tolist()]
        said.setdefault(each["image_id"], []).append(rows)
print(json.dumps(said))
"""


@pytest.mark.foreign
def test_pycocotools_draws_the_same_pixels(scenes: list[LabeledScene], tmp_path: Path) -> None:
    synthetic.load("coco")(tmp_path / "coco", samples=SAMPLES, seed=SEED, size=SIZE, classes=5)
    said = json.loads(said_by("pycocotools", _PYCOCOTOOLS, *(tmp_path / "coco/annotations").iterdir()))
    for index, scene in enumerate(scenes):
        found = said.get(str(index + 1), [])
        assert len(found) == len(scene.objects)
        for rows, shown in zip(found, scene.objects, strict=True):
            assert np.array_equal(np.array([[letter == "1" for letter in row] for row in rows]), shown.pixels)


def test_scenes_have_objects_that_are_seen_and_some_have_none(scenes: list[LabeledScene]) -> None:
    assert [len(scene.objects) > 0 for scene in scenes] == [index != 7 for index in range(SAMPLES)]
    assert any(len(scene.objects) > 1 for scene in scenes)
    for scene in scenes:
        covered = sum((shown.pixels.astype(int) for shown in scene.objects), np.zeros(SIZE, int))
        assert covered.max(initial=0) <= 1
        assert all(shown.pixels.any() for shown in scene.objects)


@pytest.mark.parametrize(
    "rows",
    [
        ["...", ".x.", "..."],
        ["xx", "xx"],
        ["x..", ".x.", "..x"],  # parts that touch at corners alone
        ["xxxx", "x..x", "x.xx", "xxxx"],
        ["xxx", "x.x", "xxx", "...", "x.x"],  # a hole, and parts
    ],
)
def test_a_polygon_surrounds_the_pixels_whatever_their_shape(rows: list[str]) -> None:
    pixels = np.array([[letter == "x" for letter in row] for row in rows])
    assert np.array_equal(surrounded(LabeledObject(0, pixels).polygon(), (len(rows), len(rows[0]))), pixels)


@pytest.mark.parametrize("wish", [{"classes": 0}, {"classes": 20}, {"size": (8, 90)}, {"samples": 0}, {"seed": -1}])
@pytest.mark.parametrize("name", ["coco", "pairs"])
def test_what_cannot_be_drawn_is_refused(name: str, wish: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        synthetic.load(name)(tmp_path / "set", **{"samples": 1, **wish})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["coco", "yolo"])  # whose descriptions name the splits
def test_a_set_of_one_sample_is_read(name: str, tmp_path: Path) -> None:
    synthetic.load(name)(tmp_path / "set", samples=1, size=None)
    assert packer.convert(tmp_path / "set", tmp_path / "pack").samples == 1
