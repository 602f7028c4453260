"""Other rows and columns of datasets, in memory and saved, against plain lists of dicts."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch.utils.data import DataLoader

import packer
from packer.errors import BadInput, CorruptPack, InvalidRequest, PackExists, UnknownKey, WrongType
from packer.schema import Field
from packer.synthetic.labeled_sets import write_coco
from scripts import make_golden
from tests.support.array_packs import SCORE, displayed

CLASSES = {"a": ("cup", "ball", "mug"), "b": ("mug", "fork"), "c": ("cup", "ball")}
FIELDS: dict[str, str | Field] = {
    "image": "image",
    "score": "number",
    "text": "text",
    "boxes": "boxes",
    "box_labels": Field("box_labels", "number", "raw:int64", "int64", (None,), of="boxes"),
}
Sample = dict[str, Any]
Model = list[Sample]


def samples_of(name: str, count: int) -> Model:
    """Return samples with names of classes, as a pack of these samples contains them."""
    random, classes = np.random.default_rng(len(name) + ord(name[0])), CLASSES[name]
    found = []
    for number in range(count):
        boxes = np.sort(random.integers(0, 9, (number % 3, 4)), axis=1)[:, [0, 1, 2, 3]].astype(np.float32)
        found.append(
            {
                "key": f"{name}{number:02}",
                "image": random.integers(0, 256, (4 + number % 3, 5, 3), np.uint8),
                "label": classes[number % len(classes)],
                "score": number / 4,
                "text": "tea" * (number % 4),
                "boxes": boxes,
                "box_labels": [classes[(number + at) % len(classes)] for at in range(len(boxes))],
            }
        )
    return found


def with_numbers_of(samples: Model, classes: tuple[str, ...]) -> Model:
    """Return samples with numbers in place of the names of classes."""
    return [
        {
            **each,
            "label": classes.index(each["label"]),
            "box_labels": np.asarray([classes.index(label) for label in each["box_labels"]], np.int64),
        }
        for each in samples
    ]


def fields_of(classes: tuple[str, ...]) -> dict[str, str | Field]:
    label = Field("label", "number", "number", "int64", (), classes=classes)
    box_labels = Field("box_labels", "number", "raw:int64", "int64", (None,), classes=classes, of="boxes")
    return {**FIELDS, "label": label, "box_labels": box_labels}


def pack_of(folder: Path, name: str, samples: Model, to: str) -> Path:
    classes = CLASSES[name]
    path = folder / f"{name}.pack"
    given = with_numbers_of(samples, classes)
    packer.convert(given, path, fields=fields_of(classes), key="key", to=to, part_bytes=400)
    return path


class Packs:
    """Three packs of several formats, and their samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = {name: samples_of(name, count) for name, count in (("a", 13), ("b", 7), ("c", 1))}
        formats = {"a": "lmdb", "b": "hdf5", "c": "pth"}
        self.paths = {name: pack_of(folder, name, model, formats[name]) for name, model in self.models.items()}
        self.saved = 0

    def open(self, name: str) -> Any:
        return packer.open(self.paths[name])

    def place(self) -> Path:
        self.saved += 1
        return self.folder / f"saved{self.saved}.pack"


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    return Packs(tmp_path_factory.mktemp("packs"))


IMAGES = ("image", "rgb", "photo")  # names of the image, one at a time


def named(dataset: Any, name: str, value: Any) -> Any:
    classes = dataset.schema[name].classes
    if classes is None:
        return value
    return [classes[each] for each in value] if isinstance(value, torch.Tensor) else classes[value]


def check(dataset: Any, model: Model) -> None:
    """Compare everything that a dataset offers with a list of samples."""
    assert len(dataset) == len(model)
    assert list(dataset.keys()) == [each["key"] for each in model]
    for at, expected in enumerate(model):
        found = dataset[at]
        assert found.keys() == expected.keys()
        assert dataset.index_of(expected["key"]) == at
        for name, value in expected.items():
            shown = named(dataset, name, found[name])
            if name in IMAGES:
                assert np.array_equal(shown.permute(1, 2, 0).numpy(), value)
            elif name == "boxes":
                assert np.array_equal(shown.numpy(), value)
            else:
                assert list(shown) == list(value) if name == "box_labels" else shown == value, name
    if model:
        plain = dataset.with_(fields=["key", "label"])
        batches = list(packer.Loader(plain, 3, threads=1))
        assert [key for batch in batches for key in batch["key"]] == [each["key"] for each in model]
        numbers = [named(dataset, "label", number) for batch in batches for number in batch["label"].tolist()]
        assert numbers == [each["label"] for each in model]


def widths_of(sample: Sample, name: str) -> list[float]:
    boxes = zip(sample["boxes"].tolist(), sample["box_labels"], strict=True)
    return [box[2] - box[0] for box, label in boxes if label == name]


class RowOperations(RuleBasedStateMachine):
    """Random trees of operations."""

    packs: Packs

    @initialize(name=st.sampled_from("abc"))
    def begin(self, name: str) -> None:
        self.dataset = self.packs.open(name)
        self.model = [dict(each) for each in self.packs.models[name]]
        self.joined = 0

    def change(self, dataset: Any, keep: Callable[[Sample], bool]) -> None:
        self.dataset = dataset
        self.model = [each for each in self.model if keep(each)]

    @rule(names=st.sets(st.sampled_from(["cup", "ball", "mug", "fork"]), min_size=1), least=st.floats(0, 4))
    def where_text(self, names: set[str], least: float) -> None:
        known = sorted(names & {*self.dataset.classes})
        if known:
            condition = f"label in ({', '.join(map(repr, known))},) or score >= {least}"
            self.change(self.dataset.where(condition), lambda each: each["label"] in known or each["score"] >= least)

    @rule(piece=st.sampled_from(["tea", "teatea", "x"]), count=st.integers(0, 3))
    def where_columns(self, piece: str, count: int) -> None:
        condition = f"{piece!r} in text or len(boxes) == {count}"
        self.change(self.dataset.where(condition), lambda each: piece in each["text"] or len(each["boxes"]) == count)

    @rule(name=st.sampled_from(["cup", "ball", "mug", "fork"]), most=st.integers(0, 9))
    def where_boxes(self, name: str, most: int) -> None:
        if name in self.dataset.schema["box_labels"].classes:
            found = self.dataset.where(f"any(box_labels == {name!r} and boxes.width <= {most})")
            self.change(found, lambda each: any(width <= most for width in widths_of(each, name)))

    @rule(height=st.integers(3, 7))
    def where_function(self, height: int) -> None:
        image = self.image()
        found = self.dataset.where(lambda columns: columns["height"] <= height)
        self.change(found, lambda each: len(each[image]) <= height)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def select(self, data: st.DataObject) -> None:
        order = data.draw(st.lists(st.integers(0, len(self.model) - 1), unique=True, min_size=1))
        self.dataset = self.dataset.select(order)
        self.model = [self.model[at] for at in order]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(st.sampled_from([each["key"] for each in self.model])))
        self.change(self.dataset.drop(keys), lambda each: each["key"] not in keys)

    @rule(share=st.floats(0.5, 1), seed=st.integers(0, 3))
    def sample(self, share: float, seed: int) -> None:
        found = self.dataset.sample(share, seed=seed)
        keys = {*found.keys()}
        assert len(keys) == round(share * len(self.model))
        self.change(found, lambda each: each["key"] in keys)

    @rule(by=st.sampled_from([None, "label", "text"]), seed=st.integers(0, 3))
    def split(self, by: str | None, seed: int) -> None:
        found = self.dataset.split(train=0.6, val=0.4, by=by, seed=seed)
        keys = {name: {*each.keys()} for name, each in found.items()}
        assert not keys["train"] & keys["val"]
        assert keys["train"] | keys["val"] == {each["key"] for each in self.model}
        if by is not None:
            values = [{each[by] for each in self.model if each["key"] in chosen} for chosen in keys.values()]
            assert not values[0] & values[1]
        self.change(found["train"], lambda each: each["key"] in keys["train"])

    @rule(factor=st.integers(1, 5))
    def with_numbers(self, factor: int) -> None:
        self.dataset = self.dataset.with_column("score", [each["score"] * factor for each in self.model])
        for each in self.model:
            each["score"] = each["score"] * factor

    @precondition(lambda self: self.model)
    @rule(data=st.data(), label=st.sampled_from(["cup", "new", "mug"]))
    def with_labels(self, data: st.DataObject, label: str) -> None:
        keys = data.draw(st.sets(st.sampled_from([each["key"] for each in self.model])))
        classes = dict.fromkeys([*self.dataset.classes, label])
        self.dataset = self.dataset.with_column("label", dict.fromkeys(keys, label), classes=list(classes))
        self.model = [{**each, "label": label} if each["key"] in keys else each for each in self.model]

    @rule(text=st.text(max_size=4))
    def with_texts(self, text: str) -> None:
        text = text.encode("utf-8", "replace").decode()
        self.dataset = self.dataset.with_column("text", [text + each["key"] for each in self.model], kind="text")
        self.model = [{**each, "text": text + each["key"]} for each in self.model]

    @rule()
    def with_boxes(self) -> None:
        moved = [each["boxes"] + 1 for each in self.model]
        self.dataset = self.dataset.with_column("boxes", moved)
        self.model = [{**each, "boxes": boxes} for each, boxes in zip(self.model, moved, strict=True)]

    def image(self) -> str:
        return next(name for name in IMAGES if name in self.dataset.schema)

    @rule()
    def rename(self) -> None:
        old = self.image()
        new = IMAGES[IMAGES.index(old) - 1]
        self.dataset = self.dataset.rename(**{old: new})
        self.model = [{(new if name == old else name): each[name] for name in each} for each in self.model]

    @precondition(lambda self: "image" in self.dataset.schema and self.joined < 3)
    @rule(name=st.sampled_from("abc"), first=st.booleans())
    def concat(self, name: str, first: bool) -> None:
        self.joined += 1
        prefix = f"{self.joined}/"
        other = [{**each, "key": prefix + each["key"]} for each in self.packs.models[name]]
        if first:
            self.dataset = packer.concat(self.packs.open(name), self.dataset, prefixes=[prefix, ""])
            self.model = [*other, *self.model]
        else:
            self.dataset = packer.concat(self.dataset, self.packs.open(name), prefixes=["", prefix])
            self.model = [*self.model, *other]

    @rule()
    def save_and_open(self) -> None:
        place = self.packs.place()
        self.dataset.save(place)
        assert packer.verify(place, level="full").ok
        self.dataset = packer.open(place)

    @rule()
    def pickled(self) -> None:
        self.dataset = pickle.loads(pickle.dumps(self.dataset))

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "dataset"):
            check(self.dataset, self.model)


def test_random_trees_of_operations_equal_lists(packs: Packs) -> None:
    class Machine(RowOperations):
        pass

    Machine.packs = packs
    case = Machine.TestCase
    case.settings = settings(
        max_examples=settings().max_examples // 2, stateful_step_count=8, suppress_health_check=list(HealthCheck)
    )
    case("runTest").runTest()


# ---- single operations


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_worker_processes_repeat_the_operations(packs: Packs, method: str) -> None:
    both = packer.concat(packs.open("a"), packs.open("b"), prefixes=["1/", "2/"]).where("score < 2")
    changed = both.with_column("label", {both.key(0): "new"}, classes=[*both.classes, "new"])
    loader = DataLoader(changed, 4, num_workers=2, multiprocessing_context=method, collate_fn=list)
    found = [sample for batch in loader for sample in batch]
    assert [sample["key"] for sample in found] == list(changed.keys())
    assert changed.classes[found[0]["label"]] == "new"


def test_a_loader_continues_with_equal_rows_only(packs: Packs) -> None:
    chosen = packs.open("a").with_(fields=["key"]).where("score < 3")
    loader = packer.Loader(chosen, 2, shuffle=True, threads=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["key"] for batch in batches]
    again = packer.Loader(packs.open("a").with_(fields=["key"]).where("score < 3"), 2, shuffle=True, threads=1)
    again.load_state_dict(state)
    assert [batch["key"] for batch in again] == rest
    other = packer.Loader(packs.open("a").with_(fields=["key"]).where("score > 0"), 2, shuffle=True, threads=1)
    with pytest.raises(InvalidRequest, match="pack was"):
        other.load_state_dict(state)


def test_a_csv_file_corrects_labels(packs: Packs, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text('key,label\na01,"a ""new"" one"\na02,cup\n')
    classes = [*packs.open("a").classes, 'a "new" one']
    dataset = packs.open("a").with_column("label", tmp_path / "new.csv", classes=classes)
    labels = [dataset.classes[number] for number in dataset.targets]
    assert labels[:4] == ["cup", 'a "new" one', "cup", "cup"]
    (tmp_path / "twice.csv").write_text("key,label\na01,cup\na01,1\n")
    with pytest.raises(InvalidRequest, match="twice"):
        packs.open("a").with_column("label", tmp_path / "twice.csv")
    (tmp_path / "number.csv").write_text("key,label\na01,2\n")
    assert packs.open("a").with_column("label", tmp_path / "number.csv").targets[1] == 2
    (tmp_path / "weight.csv").write_text("key,weight\n" + "".join(f"a{at:02},{at}.5\n" for at in range(13)))
    weighed = packs.open("a").with_column("weight", tmp_path / "weight.csv", kind="number")
    assert weighed.column("weight").tolist() == [at + 0.5 for at in range(13)]
    assert weighed.where("weight > 3").with_column("weight", {"a04": 2})[1]["weight"] == 2
    (tmp_path / "text.csv").write_text('key,text\na01,"two\nlines"\n')
    assert packs.open("a").with_column("text", tmp_path / "text.csv")[1]["text"] == "two\nlines"
    (tmp_path / "bad.csv").write_text("name,label\na01,cup\n")
    with pytest.raises(InvalidRequest, match=r"bad.csv: .*columns"):
        packs.open("a").with_column("label", tmp_path / "bad.csv")


def test_a_table_contains_all_but_the_pixels(packs: Packs) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    found = packs.open("b").where("len(boxes) > 0").table().to_pylist()
    expected = [each for each in packs.models["b"] if len(each["boxes"])]
    for row, sample in zip(found, expected, strict=True):
        assert (row["key"], row["label"], row["text"]) == (sample["key"], sample["label"], sample["text"])
        assert (row["image_height"], row["image_width"]) == sample["image"].shape[:2]
        assert row["boxes"] == sample["boxes"].tolist()
        assert row["boxes_count"] == len(sample["boxes"])


@pytest.mark.parametrize("name", ["lmdb", "version-2"])
def test_a_pack_without_values_of_rows_is_refused(name: str) -> None:
    dataset = packer.open(make_golden.GOLDEN / name / "pack")
    with pytest.raises(InvalidRequest, match="packer convert"):
        dataset.where("any(boxes.width < 5)")


def test_appended_boxes_are_found(packs: Packs, tmp_path: Path) -> None:
    pack = shutil.copytree(packs.paths["a"], tmp_path / "a.pack")
    more = [{**each, "key": f"more/{each['key']}"} for each in packs.models["a"]]
    packer.append(pack, with_numbers_of(more, CLASSES["a"]), key="key", fields=fields_of(CLASSES["a"]))
    found = packer.open(pack).where("any(box_labels == 'mug' and boxes.width > 2)")
    expected = [
        each["key"] for each in (*packs.models["a"], *more) if any(width > 2 for width in widths_of(each, "mug"))
    ]
    assert list(found.keys()) == expected != []


def test_incomplete_samples_of_several_packs_are_chosen(tmp_path: Path) -> None:
    found = []
    for name, incomplete in (("a", ["a2"]), ("b", ["b0", "b3"])):
        samples = [{"key": f"{name}{number}", "score": float(number)} for number in range(4)]
        reasons = [(key, "no image") for key in incomplete]
        found.append(packer.open(displayed(tmp_path / f"{name}.pack", [SCORE], samples, incomplete=reasons)))
    joined = packer.concat(*found)
    chosen = joined.where("incomplete == 1")
    chosen.save(tmp_path / "c.pack")
    for dataset in (chosen, packer.open(tmp_path / "c.pack").where("incomplete == 1")):
        assert [dataset.key(row) for row in range(len(dataset))] == ["a2", "b0", "b3"]
    assert len(joined.where("incomplete == 0")) == 5


def test_a_split_by_class_divides_each_class(packs: Packs) -> None:
    found = packs.open("a").split(train=0.5, val=0.5, stratify="label", seed=1)
    counts = {name: np.bincount(each.targets, minlength=3).tolist() for name, each in found.items()}
    assert all(abs(one - other) <= 1 for one, other in zip(counts["train"], counts["val"], strict=True))
    again = packs.open("a").split(train=0.5, val=0.5, stratify="label", seed=1)
    assert list(again["train"].keys()) == list(found["train"].keys())


def refused(packs: Packs) -> list[tuple[type[Exception], str, Callable[[], object]]]:
    a, b = packs.open("a"), packs.open("b")
    return [
        (InvalidRequest, "13 values", lambda: a.where([True])),
        (InvalidRequest, "labl", lambda: a.where("labl == 'cup'")),
        (UnknownKey, "nothing", lambda: a.drop(["nothing"])),
        (InvalidRequest, "at most 13", lambda: a.sample(14)),
        (InvalidRequest, "at most 1 in all", lambda: a.split(train=0.8, val=0.8)),
        (InvalidRequest, "at most 1 in all", lambda: a.split(train=0.8, val=float("nan"))),
        (InvalidRequest, "leave one", lambda: a.split(train=0.5, by="text", stratify="label")),
        (UnknownKey, "nothing", lambda: a.with_column("label", {"nothing": "cup"})),
        (InvalidRequest, "no value for 12", lambda: a.with_column("new", {"a01": 3})),
        (InvalidRequest, "kind=", lambda: a.with_column("new", [object()] * 13)),
        (InvalidRequest, "not one of the 3 classes", lambda: a.with_column("label", [0.5] * 13)),
        (InvalidRequest, "not one of the 3 classes", lambda: a.with_column("label", {"a01": 7})),
        (InvalidRequest, "did you mean 'cup'", lambda: a.with_column("label", {"a01": "cupp"})),
        (InvalidRequest, "classes begin with", lambda: a.with_column("label", {"a01": "mug"}, classes=["mug", "cup"])),
        (WrongType, "expected keys", lambda: a.drop([3])),
        (InvalidRequest, "expected number", lambda: a.with_column("image", [0] * 13)),
        (InvalidRequest, "more than once", lambda: len(a.select([1, 1]).with_column("new", [1, 2]))),
        (UnknownKey, "nothing", lambda: a.rename(nothing="new")),
        (InvalidRequest, "keeps its name", lambda: a.rename(key="name")),
        (InvalidRequest, "not unique", lambda: a.rename(image="label")),
        (BadInput, "'a00'", lambda: packer.concat(a, packs.open("a"))),
        (InvalidRequest, "same fields", lambda: packer.concat(a, b.with_column("new", [0] * 7))),
        (InvalidRequest, "expected 2 prefixes", lambda: packer.concat(a, b, prefixes=["x"])),
        (PackExists, "already there", lambda: a.save(packs.paths["a"])),
    ]


def test_what_does_not_fit_is_refused(packs: Packs) -> None:
    for error, keyword, call in refused(packs):
        with pytest.raises(error) as caught:
            call()
        assert keyword in str(caught.value)


def test_a_replaced_pack_is_noticed(packs: Packs, tmp_path: Path) -> None:
    shutil.copytree(packs.paths["a"], tmp_path / "a.pack")
    changed = packer.open(tmp_path / "a.pack").with_column("score", np.zeros(13))
    shutil.rmtree(tmp_path / "a.pack")
    shutil.copytree(packs.paths["b"], tmp_path / "a.pack")
    changed.close()
    with pytest.raises(CorruptPack, match="replaced"):
        changed[0]


def test_boxes_of_resized_and_original_images_are_measured_in_stored_pixels(tmp_path: Path) -> None:
    write_coco(tmp_path / "coco", samples=4, size=(48, 64))
    packer.convert(tmp_path / "coco", tmp_path / "small.pack", resize=24, order="stored")
    packer.convert(tmp_path / "coco", tmp_path / "large.pack", codecs={"image": "jpeg:95"}, order="stored")
    small, large = packer.open(tmp_path / "small.pack"), packer.open(tmp_path / "large.pack")
    both = packer.concat(large, small, prefixes=["large/", "small/"])
    moved = both.select([5, 0]).with_column("boxes", [np.array([[0, 0, 8, 6]], np.float32)] * 2)
    for dataset in (large, small, both, moved):
        boxes = [dataset[row]["boxes"].numpy() for row in range(len(dataset))]
        for most in (3, 5, 8, 20):
            expected = [row for row, some in enumerate(boxes) if (some[:, 2] - some[:, 0] < most).any()]
            assert list(dataset.where(f"any(boxes.width < {most})").keys()) == [dataset.key(row) for row in expected]
