"""Sets of things with labels: what `packer convert` reads, untold of the layout, is what was drawn, to the pixel."""

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
from packer.synthetic._growing_files import SharedFile
from packer.synthetic._labelled_scenes import CLASSES, LabelledScene, LabelledThing, SceneStudio
from packer.synthetic.base import DrawnSample, publishing, write_samples
from tests.support.foreign_environments import said_by

SAMPLES = 9  # the eighth has no things
SEED = 2
SIZE = (72, 96)
Opened = tuple[Path, PackDataset]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    """The folder of a set and its pack, made of it as `packer convert FOLDER PACK` does."""
    place = tmp_path_factory.mktemp("labelled")

    def of(name: str) -> Opened:
        is_slow = name in ("cornell", "jacquard")
        options = {} if is_slow else {"size": SIZE, "classes": 5}
        synthetic.load(name).write(place / name, samples=1 if is_slow else SAMPLES, seed=SEED, threads=2, **options)
        packer.convert(place / name, place / f"{name}.pack")
        return place / name, packer.open(place / f"{name}.pack", output="numpy")

    return of


@pytest.fixture(scope="module")
def scenes() -> list[LabelledScene]:
    studio = SceneStudio(seed=SEED, classes=5, size=SIZE)
    return [studio.scene(index) for index in range(SAMPLES)]


def number_of(dataset: PackDataset, index: int) -> int:
    """Which sample of the set it is, of which its key ends in the number."""
    key = str(dataset.key(index))
    return int(re.findall(r"\d+", key)[-1])


def surrounded(points: Iterable[Sequence[float]], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The pixels whose centre a closed line goes around an odd number of times."""
    inside = np.zeros(size, bool)
    y, columns = np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5
    line = [(float(x), float(y)) for x, y in points]
    for one, other in zip(line, [*line[1:], line[0]], strict=True):
        (left, top), (right, bottom) = sorted((one, other), key=lambda point: point[1])
        if top != bottom:  # each edge that is not level turns all pixels to its right
            crossing = left + (y - top) * (right - left) / (bottom - top)
            inside ^= ((y > top) & (y < bottom))[:, None] & (columns > crossing[:, None])
    return inside


def check_things(
    sample: dict[str, npt.NDArray[np.float32]], names: tuple[str, ...] | None, things: tuple[LabelledThing, ...]
) -> None:
    """The boxes and the classes of a sample are those of the things in it."""
    assert names is not None
    assert sample["boxes"].tolist() == [list(thing.box) for thing in things]
    assert [names[int(label)] for label in sample["box_labels"]] == [CLASSES[thing.label] for thing in things]


def check_polygons(sample: dict[str, npt.NDArray[np.float32]], things: tuple[LabelledThing, ...]) -> None:
    """The polygons of a sample surround the pixels of the things in it."""
    starts = [*sample["polygon_starts"].tolist(), len(sample["polygons"])]
    assert sample["polygon_box"].tolist() == list(range(len(things)))
    for thing, (start, end) in zip(things, itertools.pairwise(starts), strict=True):
        assert np.array_equal(surrounded(sample["polygons"][start:end], SIZE), thing.pixels)


def polygons(place: Path, dataset: PackDataset, scenes: list[LabelledScene], first: int) -> None:
    for index in range(SAMPLES):
        things = scenes[number_of(dataset, index) - first].things
        check_things(dataset[index], dataset.schema["box_labels"].classes, things)
        check_polygons(dataset[index], things)


def coco(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    polygons(place, dataset, scenes, 1)
    assert dataset.schema["split"].classes == ("train2017", "val2017")


def yolo(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    polygons(place, dataset, scenes, 0)


def voc(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    for index in range(SAMPLES):
        scene, sample = scenes[number_of(dataset, index)], dataset[index]
        check_things(sample, dataset.schema["box_labels"].classes, scene.things)
        for number, thing in enumerate(scene.things, start=1):
            assert np.array_equal(sample["object_mask"] == number, thing.pixels)
            assert set(sample["mask"][thing.pixels]) == {1 + thing.label}
        assert np.array_equal(sample["mask"] > 0, sample["object_mask"] > 0)
        assert sample["object_mask"].max() == len(scene.things)


def pairs(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    names = (place / "classes.txt").read_text().splitlines()
    for index in range(SAMPLES):
        wanted = np.full(SIZE, "table", dtype="<U16")
        for thing in scenes[number_of(dataset, index)].things:
            wanted[thing.pixels] = CLASSES[thing.label]
        assert np.array_equal(np.array(names)[dataset[index]["mask"]], wanted)


def table(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    studio = SceneStudio(seed=SEED, classes=5, size=SIZE, most_things=1)
    for index in range(SAMPLES):
        (thing,) = studio.scene(number_of(dataset, index)).things
        check_things(dataset[index], dataset.schema["box_labels"].classes, (thing,))
        assert np.array_equal(dataset[index]["mask"], np.where(thing.pixels, 255, 0))


def folder(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    assert [dataset.classes[int(sample["label"])] for sample in dataset] == [
        str(dataset.key(index)).partition("/")[0] for index in range(SAMPLES)
    ]


def cornell(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
    (path,) = place.glob("*/pcd*cpos.txt")
    corners = np.array([line.split() for line in path.read_text().splitlines()], np.float32).reshape(-1, 4, 2)
    whole = corners[~np.isnan(corners).any((1, 2))]
    assert len(whole)
    assert np.array_equal(dataset[0]["grasps"], whole)


def jacquard(place: Path, dataset: PackDataset, scenes: list[LabelledScene]) -> None:
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
def test_what_is_read_is_what_was_drawn(
    name: str, opened: Callable[[str], Opened], scenes: list[LabelledScene]
) -> None:
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
def test_pycocotools_draws_the_same_pixels(scenes: list[LabelledScene], tmp_path: Path) -> None:
    synthetic.load("coco").write(tmp_path / "coco", samples=SAMPLES, seed=SEED, size=SIZE, classes=5)
    said = json.loads(said_by("pycocotools", _PYCOCOTOOLS, *(tmp_path / "coco/annotations").iterdir()))
    for index, scene in enumerate(scenes):
        found = said.get(str(index + 1), [])
        assert len(found) == len(scene.things)
        for rows, thing in zip(found, scene.things, strict=True):
            assert np.array_equal(np.array([[letter == "1" for letter in row] for row in rows]), thing.pixels)


def test_scenes_have_things_that_are_seen_and_some_have_none(scenes: list[LabelledScene]) -> None:
    assert [len(scene.things) > 0 for scene in scenes] == [index != 7 for index in range(SAMPLES)]
    assert any(len(scene.things) > 1 for scene in scenes)
    for scene in scenes:
        covered = sum((thing.pixels.astype(int) for thing in scene.things), np.zeros(SIZE, int))
        assert covered.max(initial=0) <= 1
        assert all(thing.pixels.any() for thing in scene.things)


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
    assert np.array_equal(surrounded(LabelledThing(0, pixels).polygon(), (len(rows), len(rows[0]))), pixels)


def test_a_file_of_lists_holds_the_rows_of_all_samples_in_order(tmp_path: Path) -> None:
    shared = SharedFile("a/list.json", (b'{"one": [', b'], "two": [', b"]}"), b",")

    def draw(index: int) -> DrawnSample:
        rows = [str(index).encode()], [b'"x"'] * (index % 3)
        return DrawnSample({f"{index}.txt": b""}, {shared.name: rows})

    with publishing(tmp_path / "set") as folder:
        done = write_samples(draw, folder, samples=6, threads=3, shared=[shared])
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [*(f"{n}.txt" for n in range(6)), "a"]
    written = (tmp_path / "set/a/list.json").read_bytes()
    assert json.loads(written) == {"one": list(range(6)), "two": ["x"] * 6}
    assert (done.files, done.size_bytes) == (7, len(written))


@pytest.mark.parametrize("wish", [{"classes": 0}, {"classes": 20}, {"size": (8, 90)}, {"samples": 0}, {"seed": -1}])
@pytest.mark.parametrize("name", ["coco", "pairs"])
def test_what_cannot_be_drawn_is_refused(name: str, wish: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        synthetic.load(name).write(tmp_path / "set", **{"samples": 1, **wish})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["coco", "yolo"])  # whose descriptions name the splits
def test_a_set_of_one_sample_is_read(name: str, tmp_path: Path) -> None:
    synthetic.load(name).write(tmp_path / "set", samples=1, size=None)
    assert packer.convert(tmp_path / "set", tmp_path / "pack").samples == 1
