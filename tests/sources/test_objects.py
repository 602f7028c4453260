"""Python objects as sources: what becomes of each value, and the traps of sets that change when they are read."""

import io
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import packer
from packer.conversion.convert import dry_run
from packer.conversion.options import OnError
from packer.datasets.pack_dataset import PackDataset
from packer.errors import BadInput, BadInputs, Interrupted, InvalidRequest, PackerError
from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.schema import Field
from packer.sources.objects._object_recognition import ObjectOptions, open_object
from packer.sources.objects._object_source import ObjectSource
from packer.system.progress_callback import Progress
from tests.support import object_standins as standins
from tests.support.child_processes import child
from tests.support.conversions import digest
from tests.support.source_trees import image, mask, photos, tree


def rgb(seed: int, height: int = 24, width: int = 32) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def samples(count: int = 5) -> list[dict[str, Any]]:
    return [{"image": image(seed), "label": seed % 3, "text": f"no {seed}"} for seed in range(count)]


def opened(data: Any, **options: Any) -> ObjectSource:
    found = open_object(data, ObjectOptions(**options))[0]
    assert isinstance(found, ObjectSource)
    return found


def kinds(data: Any, **options: Any) -> dict[str, str]:
    return {field.name: field.kind for field in opened(data, **options).schema if field.name not in ("key", "files")}


def loaded(pack: Path, **options: Any) -> list[dict[str, Any]]:
    with packer.open(pack, output="numpy", **options) as dataset:
        return [dict(dataset[index]) for index in range(len(dataset))]


# ---- values


def test_a_list_of_dicts_is_packed_and_read_back(tmp_path: Path) -> None:
    given = samples()
    summary = packer.convert(given, tmp_path / "out.pack")
    assert summary.samples == 5
    for number, sample in enumerate(loaded(tmp_path / "out.pack", fields=("key", "image", "label", "text"))):
        pixels = np.asarray(PIL.Image.open(io.BytesIO(given[number]["image"])).convert("RGB"))
        assert np.array_equal(sample["image"], pixels)
        assert (sample["key"], sample["label"], sample["text"]) == (f"{number:08d}", number % 3, f"no {number}")
    assert not packer.verify(tmp_path / "out.pack", level="full").problems
    described = manifests.read(tmp_path / "out.pack").source
    assert (described["kind"], described["of"], described["samples"], described["files"]) == ("object", "list", 5, 0)
    packer.extract(tmp_path / "out.pack", tmp_path / "again")
    found = tree(tmp_path / "again")
    assert [found[b"%08d.png" % number] for number in range(5)] == [sample["image"] for sample in given]
    assert found[b"00000003.text.txt"] == b"no 3"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("value", "name", "kind"),
    [
        (b"no image", "x", "bytes"),
        (image(1), "x", "image"),
        (image(1, suffix=".jpg"), "x", "image"),
        (mask(1), "mask", "mask"),
        ("a text", "x", "text"),
        (True, "x", "number"),
        (3, "x", "number"),
        (np.float32(2.5), "x", "number"),
        (torch.tensor([1, 2, 3]), "x", "number"),
        ([1.5, 2.5], "x", "number"),
        ([[1, 2], [3]], "x", "json"),
        (["a", "b"], "x", "json"),
        ({"a": (1, 2)}, "x", "json"),
        (rgb(1), "x", "image"),
        (torch.from_numpy(np.moveaxis(rgb(1), 2, 0).copy()), "x", "image"),
        (rgb(1)[:, :, 0], "x", "image"),
        (rgb(1)[:, :, 0], "mask", "mask"),
        (rgb(1)[:, :, 0].astype(np.int64), "segmentation", "mask"),
        (rgb(1)[:, :, 0].astype(np.float32), "depth", "depth"),
        (rgb(1)[:, :, 0].astype(np.uint16), "depth", "depth"),
        (np.zeros((3, 3), np.float32), "matrix_of_it", "number"),
        (PIL.Image.fromarray(rgb(1)), "x", "image"),
        (PIL.Image.fromarray(rgb(1)[:, :, 0]), "labels", "mask"),
        (PIL.Image.fromarray(rgb(1)[:, :, 0].astype(np.uint16)), "x", "depth"),
    ],
)
def test_a_kind_is_told_by_the_value_and_its_name(value: Any, name: str, kind: str, tmp_path: Path) -> None:
    data = [{name: value}] * 3
    assert kinds(data) == {name: kind}
    packer.convert(data, tmp_path / "out.pack")
    assert not packer.verify(tmp_path / "out.pack", level="full").problems


def test_pixels_come_back_as_they_were(tmp_path: Path) -> None:
    given = [
        {
            "image": torch.from_numpy(np.moveaxis(rgb(seed), 2, 0).copy()),
            "gray": PIL.Image.fromarray(rgb(seed)[:, :, 1]),
            "mask": rgb(seed)[:, :, 0] > 100,
            "depth": rgb(seed)[:, :, 0].astype(np.float32) / 3,
        }
        for seed in range(3)
    ]
    fields = {"image": "image", "gray": "image", "mask": "mask", "depth": "depth"}
    assert [*opened(given, fields=fields).companions] == ["gray", "mask", "depth"]
    packer.convert(given, tmp_path / "out.pack", fields=fields)
    for seed, sample in enumerate(loaded(tmp_path / "out.pack")):
        assert np.array_equal(sample["image"], rgb(seed))
        assert np.array_equal(sample["gray"], np.repeat(rgb(seed)[:, :, 1:2], 3, axis=2))
        assert np.array_equal(sample["mask"], (rgb(seed)[:, :, 0] > 100).astype(np.uint8))
        assert np.array_equal(sample["depth"], given[seed]["depth"])


def test_masks_of_16_bit_are_asked_for(tmp_path: Path) -> None:
    ids = rgb(1)[:, :, 0].astype(np.int64) * 100
    done, file = cv2.imencode(".png", ids.astype(np.uint16))
    assert done
    for value in (ids, torch.from_numpy(ids), PIL.Image.fromarray(ids.astype(np.uint16)), file.tobytes()):
        target = tmp_path / f"{type(value).__name__}.pack"
        with pytest.raises(PackerError, match=r"mask:uint16"):
            packer.convert([{"ids": value}] * 2, target, fields={"ids": "mask"})
        packer.convert([{"ids": value}] * 2, target, fields={"ids": "mask:uint16"})
        assert all(np.array_equal(sample["ids"], ids) for sample in loaded(target))


def test_numbers_keep_their_dtype_and_may_differ_in_length(tmp_path: Path) -> None:
    given = [
        {
            "label": np.uint8(seed),
            "vector": np.arange(4, dtype=np.float32) + seed,
            "many": list(range(seed)),
            "boxes": np.full((seed, 4), seed, np.float64),
            "tokens": torch.arange(seed + 1, dtype=torch.int16),
        }
        for seed in range(4)
    ]
    fields = {"label": "number", "vector": "number", "many": "number", "boxes": "boxes", "tokens": "number"}
    schema = opened(given, fields=fields).schema
    assert (schema["label"].dtype, schema["label"].shape) == ("int64", ())
    assert (schema["vector"].dtype, schema["vector"].shape) == ("float32", (4,))
    assert (schema["many"].dtype, schema["many"].shape) == ("int64", (None,))
    assert (schema["tokens"].dtype, schema["tokens"].shape) == ("int16", (None,))
    assert (schema["boxes"].dtype, schema["boxes"].shape) == ("float32", (None, 4))
    packer.convert(given, tmp_path / "out.pack", fields=fields)
    found = loaded(tmp_path / "out.pack")
    assert [sample["many"].tolist() for sample in found] == [[], [0], [0, 1], [0, 1, 2]]
    assert [len(sample["boxes"]) for sample in found] == [0, 1, 2, 3]


def test_a_value_may_be_the_path_of_a_file(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 6)
    pairs = [(str(path), number) for number, path in enumerate(sorted((tmp_path / "photos").rglob("*.jpg")))]
    fields = {"image": "image", "label": "number"}
    packer.convert(pairs, tmp_path / "out.pack", fields=fields)
    packer.extract(tmp_path / "out.pack", tmp_path / "again")
    found = tree(tmp_path / "again")
    assert [found[b"%08d.jpg" % number] for number in range(6)] == [Path(path).read_bytes() for path, _ in pairs]
    Path(pairs[0][0]).unlink()
    with pytest.raises(BadInputs, match=r"<list>\[0\]: .*'image': .*\.jpg: "):
        packer.convert(pairs, tmp_path / "other.pack", fields=fields)
    assert packer.convert(pairs, tmp_path / "other.pack", fields=fields, on_error="skip").samples == 5


def test_a_bad_sample_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    given = samples(40)
    given[17]["image"] = given[17]["image"][:60]
    given[18]["label"] = "three"
    with pytest.raises(BadInputs) as refused:
        packer.convert(given, tmp_path / "out.pack")
    assert "2 of 40" in str(refused.value)
    assert "<list>[17]: cannot pack (sample 17, field 'image')" in str(refused.value)
    assert "<list>[18]: field 'label': " in str(refused.value)
    summary = packer.convert(given, tmp_path / "out.pack", on_error="skip")
    assert [key for key, _ in summary.skipped] == ["00000017", "00000018"]


# ---- what is refused


def test_places_need_names_and_an_image_and_a_class_cannot_change_places() -> None:
    """FFCV names fields by place alone."""
    pairs = [(image(seed), seed) for seed in range(3)]
    with pytest.raises(InvalidRequest, match=r'bytes, int 0.*fields=\{"image": "image", "label": "number"\}'):
        opened(pairs)
    with pytest.raises(InvalidRequest, match="2 values"):
        opened(pairs, fields={"image": "image"})
    with pytest.raises(InvalidRequest, match="field 'label'"):
        opened(pairs, fields={"label": "number", "image": "image"})
    assert kinds(pairs, fields={"image": "image", "label": "number"}) == {"image": "image", "label": "number"}


def test_pixels_that_were_scaled_are_refused() -> None:
    scaled = [{"image": torch.rand(3, 24, 32)}] * 3
    with pytest.raises(InvalidRequest, match=r"'image'.*ToTensor"):
        opened(scaled)
    with pytest.raises(InvalidRequest, match=r"'image'.*ToTensor"):
        opened(scaled, fields={"image": "image"})
    assert kinds(scaled, fields={"image": "number"}) == {"image": "number"}


class Flipping(Dataset[dict[str, Any]]):
    """A data set with a random transform."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = rgb(index)
        return {"image": pixels[:, ::-1] if self.random.random() < 0.5 else pixels, "label": index}


def test_samples_that_are_others_when_they_are_read_again_are_refused() -> None:
    class Shuffled:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter(random.sample(samples(30), 30))

    with pytest.raises(InvalidRequest, match=r"Flipping>\[\d+\].*another sample"):
        opened(Flipping())
    with pytest.raises(InvalidRequest, match="another sample"):
        opened(Shuffled(), length=30)


def test_another_shape_and_another_entry_that_come_later_are_named(tmp_path: Path) -> None:
    given = [{"x": np.zeros(3 if seed != 33 else 4)} for seed in range(40)]
    given[34]["a"] = np.zeros(3)
    with pytest.raises(BadInputs, match=r"(?s)<list>\[33\].*\(4,\).*\(3,\).*<list>\[34\].*'a'"):
        packer.convert(given, tmp_path / "out.pack")
    del given[33]
    assert packer.convert(given, tmp_path / "out.pack", fields=["x"]).samples == 39


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "no samples to pack"),
        ({"a": 1}, {}, "mapping"),
        (7, {}, "not a source"),
        (iter([{"x": 1}]), {}, "give length="),
        ([{"x": 1}], {"length": 2}, "1 sample, length="),
        ([{"x": 1}] * 2, {"length": 0}, "length=0"),
        ([{"x": object()}], {}, "'x'.*object"),
        ([{"x": None}], {}, "'x'.*NoneType"),
        ([{"x": 1}, {"x": "a"}], {}, "several kinds"),
        ([{"x": np.zeros(3)}, {"x": np.zeros((3, 1))}], {}, r"\(3,\) and \(3, 1\)"),
        ([{"x": 1}, {"other": 1}], {}, "other, x"),
        ([{"x": 1}], {"fields": {"x": "photo"}}, "unknown kind 'photo'"),
        ([{"x": 1}], {"fields": {"y": "number"}}, "'y'"),
        ([{"x": 1}], {"axes": "chw"}, "option axes"),
        ([{"x": 1}], {"follow_links": True}, "follow_links"),
        ([3, 4], {}, "state name and kind"),
        ([{"x": rgb(1, 3, 3)}], {"fields": {"x": "image"}}, "axes="),
        ([{"x": 1}] * 2, {"key": ["a", "a"]}, "several samples: a"),
        ([{"x": 1}] * 2, {"key": ["a"]}, "1 text"),
        ([{"x": 1.5}] * 2, {"key": "x"}, "expected a text or a whole number"),
        (DataLoader(TensorDataset(torch.zeros(4, 3))), {}, "returns batches"),
    ],
)
def test_what_cannot_be_packed_says_why(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidRequest, BadInput), match=message):
        opened(data, **options)


def split_pack(root: Path, **options: Any) -> Path:
    """A pack of JPEG files with keys, classes and splits that say more than numbers do."""
    packer.convert(photos(root / "photos", 12), root / "in.pack", splits={"train": 0.5, "val": 0.5}, **options)
    return root / "in.pack"


def records(pack: Path) -> dict[str, dict[str, bytes]]:
    """The stored record of each key, in order."""
    opened_pack = Pack(pack)
    names = opened_pack.schema.names
    found = {}
    for row in range(len(opened_pack)):
        with opened_pack.record(row, names) as record:
            found[opened_pack.index.key(row)] = {name: bytes(record[name]) for name in names}
    opened_pack.close()
    return found


def test_a_packer_data_set_is_its_pack(tmp_path: Path) -> None:
    pack = split_pack(tmp_path)
    copied = packer.convert(pack, tmp_path / "copied.pack")
    for name, options in {"plain": {}, "pil": {"output": "pil"}}.items():
        with packer.open(pack, **options) as dataset:
            assert packer.convert(dataset, tmp_path / f"{name}.pack").pack_id == copied.pack_id
    with packer.open(pack) as dataset, pytest.raises(InvalidRequest, match="key is for"):
        packer.convert(dataset, tmp_path / "named.pack", key="label")
    with packer.open(pack) as dataset, pytest.raises(InvalidRequest, match="--split"):
        packer.convert(dataset, tmp_path / "named.pack", splits={"train": 1.0})


def test_a_subset_of_a_packer_data_set_is_its_records_in_that_order(tmp_path: Path) -> None:
    pack = split_pack(tmp_path)
    before = records(pack)
    keys = list(before)
    with packer.open(pack) as dataset:
        packer.convert(Subset(Subset(dataset, [7, 2, 9, -1]), [3, 0, 1]), tmp_path / "few.pack")
        packer.convert(Subset(dataset, [7, 2]), tmp_path / "mixed.pack", order="shuffled", seed=1)
    after = records(tmp_path / "few.pack")
    assert list(after) == [keys[11], keys[7], keys[2]]
    assert all(before[key] == record for key, record in after.items())
    assert set(records(tmp_path / "mixed.pack")) == {keys[7], keys[2]}
    kept, schema = manifests.read(tmp_path / "few.pack"), manifests.read(pack).schema
    assert [kept.schema[name].classes for name in ("label", "split")] == [
        schema[name].classes for name in ("label", "split")
    ]
    assert not packer.verify(tmp_path / "few.pack", source=tmp_path / "photos").problems


def test_what_a_packer_data_set_reads_is_what_is_copied(tmp_path: Path) -> None:
    pack = split_pack(tmp_path)
    before = records(pack)
    with packer.open(pack, split="val", as_tuple=("image", "label")) as dataset:
        packer.convert(dataset, tmp_path / "two.pack")
        packer.convert(Subset(dataset, [1]), tmp_path / "more.pack", fields=["image", "split"])
        assert list(records(tmp_path / "two.pack")) == list(dataset.keys())
        assert list(records(tmp_path / "more.pack")) == [dataset.key(1)]
    shown = [field.name for field in manifests.read(tmp_path / "two.pack").schema if not field.hidden]
    assert shown == ["key", "image", "label"]
    assert "split" in manifests.read(tmp_path / "more.pack").schema
    for key, record in records(tmp_path / "two.pack").items():
        assert record["image"] == before[key]["image"]


class Halved(PackDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["image"][:, ::2]


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (packer.open, {"geometry": packer.geometry.Resize((8, 8))}, "geometry"),
        (packer.open, {"transform": lambda sample: sample}, "transform"),
        (Halved, {}, "__getitem__"),
    ],
)
def test_samples_that_are_not_the_records_are_refused(made: Any, options: Any, said: str, tmp_path: Path) -> None:
    with made(split_pack(tmp_path), **options) as dataset:
        for data in (dataset, Subset(dataset, [0])):
            with pytest.raises(InvalidRequest, match=said):
                packer.convert(data, tmp_path / "out.pack")
        if made is packer.open:
            packer.convert(iter(dataset), tmp_path / "out.pack", fields=["image"], length=len(dataset))
            assert np.array_equal(loaded(tmp_path / "out.pack")[2]["image"].transpose(2, 0, 1), dataset[2]["image"])


def test_boxes_that_a_rule_changes_are_not_the_records(tmp_path: Path) -> None:
    given = [{"image": image(1), "boxes": [[0, 0, 4, 4]]}]
    packer.convert(given, tmp_path / "in.pack", fields={"image": "image", "boxes": "boxes"})
    rule = packer.geometry.BoxRule(clip=True)
    with packer.open(tmp_path / "in.pack", boxes=rule) as dataset, pytest.raises(InvalidRequest, match="boxes="):
        packer.convert(dataset, tmp_path / "out.pack")


def test_a_subset_that_makes_samples_of_its_own_is_read_by_them(tmp_path: Path) -> None:
    class Small(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return {"image": self.dataset[self.indices[index]]["image"][:, ::2]}

        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    with packer.open(split_pack(tmp_path)) as dataset:
        packer.convert(Small(dataset, [4]), tmp_path / "out.pack")
        assert loaded(tmp_path / "out.pack")[0]["image"].shape[0] == (dataset[4]["image"].shape[1] + 1) // 2


def test_rows_that_no_pack_can_have_are_refused(tmp_path: Path) -> None:
    pack = split_pack(tmp_path)
    with packer.open(pack) as dataset:
        for rows, said in (([3, 1, 3], "once"), ([], "no samples"), ([99], "99")):
            with pytest.raises(PackerError, match=said):
                packer.convert(Subset(dataset, rows), tmp_path / "out.pack")
        packer.convert(tmp_path / "photos", pack, overwrite=True)
        with pytest.raises(PackerError, match="replaced"):
            packer.convert(Subset(dataset, [1]), tmp_path / "out.pack")


def test_other_rows_do_not_go_on_with_unfinished_work(tmp_path: Path) -> None:
    pack = split_pack(tmp_path)
    with packer.open(pack) as dataset:
        first, second = Subset(dataset, range(1, 12)), Subset(dataset, range(11))
        with pytest.raises(Interrupted):
            packer.convert(first, tmp_path / "out.pack", part_bytes=1, progress=StopAfter(4), threads=1)
        with pytest.raises(InvalidRequest, match="interrupted conversion"):
            packer.convert(second, tmp_path / "out.pack", part_bytes=1)
        assert packer.convert(first, tmp_path / "out.pack", part_bytes=1).resumed_samples > 0


def test_options_of_folders_are_refused_for_objects_and_the_other_way_round(tmp_path: Path) -> None:
    for options in ({"kind": "folder"}, {"folders": "class"}, {"sidecars": ["m=.png:mask"]}, {"splits": {"a": 0.5}}):
        with pytest.raises(InvalidRequest, match="samples.*Python object"):
            packer.convert(samples(), tmp_path / "out.pack", **options)
    photos(tmp_path / "photos", 3)
    for given in ({"key": "label"}, {"length": 3}, {"fingerprint": "a"}, {"fields": {"image": "image"}}):
        with pytest.raises(InvalidRequest, match="for Python objects"):
            packer.convert(tmp_path / "photos", tmp_path / "out.pack", **given)  # type: ignore[arg-type]


# ---- fields and keys


def test_fields_chooses_renames_and_describes(tmp_path: Path) -> None:
    label = Field("label", "number", "number", dtype="int64", shape=(), classes=("cat", "dog", "hen"))
    rows = [{"img": image(seed), "target": seed % 3, "other": object()} for seed in range(4)]
    fields = {"img": Field("image", "image", "encoded"), "target": label}
    packer.convert(rows, tmp_path / "out.pack", fields=fields)
    with packer.open(tmp_path / "out.pack") as dataset:
        assert dataset.classes == ["cat", "dog", "hen"]
        assert {"image", "label"} <= set(dataset[0])
    assert kinds(rows, fields=["img", "target"]) == {"img": "image", "target": "number"}
    two = Field("label", "number", "number", dtype="int64", shape=(), classes=("cat", "dog"))
    with pytest.raises(BadInputs, match=r"<list>\[2\].*label 2"):
        packer.convert(rows, tmp_path / "two.pack", fields={"target": two})


def splits(pack: Path) -> dict[str, list[str]]:
    """The texts of the samples of each split, in the order of the splits."""
    names = manifests.read(pack).schema["split"].classes
    found = {}
    for name in names or ():
        with packer.open(pack, fields=("text", "split"), split=name) as dataset:
            found[name] = [dataset[index]["text"] for index in range(len(dataset))]
            assert [dataset[index]["split"] for index in range(len(dataset))] == [len(found) - 1] * len(dataset)
    return found


SPLITS = Field("split", "number", "number", dtype="int64", shape=(), classes=("train", "val"))


def test_texts_of_a_field_split_are_the_splits(tmp_path: Path) -> None:
    given = [{**sample, "split": "val" if number % 5 == 3 else "train"} for number, sample in enumerate(samples(40))]
    expected = {
        "train": [sample["text"] for sample in given if sample["split"] == "train"],
        "val": [sample["text"] for sample in given if sample["split"] == "val"],
    }
    renamed = [{"text": sample["text"], "fold": sample["split"]} for sample in given]
    texts = {"text": "text", "fold": Field("split", "text", "text")}
    declared = {"text": "text", "split": SPLITS}
    for name, data, options in (
        ("whole", given, {}),
        ("renamed", renamed, {"fields": texts}),
        ("declared", given, {"fields": declared}),
        ("streamed", iter(given), {"fields": declared, "length": 40}),
        ("mixed", given, {"order": "shuffled"}),
    ):
        packer.convert(data, tmp_path / f"{name}.pack", **options)  # type: ignore[arg-type]
        found = splits(tmp_path / f"{name}.pack")
        assert {key: sorted(value) for key, value in found.items()} == {
            key: sorted(value) for key, value in expected.items()
        }
        assert name == "mixed" or found == expected
        assert not packer.verify(tmp_path / f"{name}.pack", level="full").problems


def test_texts_that_are_no_split_are_refused(tmp_path: Path) -> None:
    given = [{"text": "a", "split": "train"}] * 20 + [{"text": "b", "split": "other"}]
    declared = {"text": "text", "split": SPLITS}
    with pytest.raises(BadInputs, match=r"\[20\]: .*'split'.*'other'.*train, val"):
        packer.convert(given, tmp_path / "out.pack", fields=declared)  # type: ignore[arg-type]
    given[20] = {"text": "b", "split": 3}  # type: ignore[dict-item]
    with pytest.raises(BadInputs, match=r"\[20\]: field 'split'"):
        packer.convert(given, tmp_path / "out.pack")
    packer.convert(given, tmp_path / "out.pack", on_error="skip")
    assert splits(tmp_path / "out.pack") == {"train": ["a"] * 20}
    with pytest.raises(InvalidRequest, match=r"'split'.*classes="):
        packer.convert(iter(given), tmp_path / "streamed.pack", length=21)
    with pytest.raises(InvalidRequest, match="field split"):
        packer.convert(given, tmp_path / "drawn.pack", splits={"train": 0.5, "val": 0.5})


class Labeled(Dataset[tuple[Any, int]]):
    """As torchvision's CIFAR10: tuples, and the names of the classes beside."""

    def __init__(self, classes: Any) -> None:
        self.classes = classes

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return rgb(index), index % 3


def test_the_classes_of_a_data_set_are_those_of_its_labels(tmp_path: Path) -> None:
    fields = {"image": "image", "label": "number"}
    names = ["cat", "dog", "hen"]
    for number, (given, expected) in enumerate(
        (
            (names, ["cat", "dog", "hen"]),
            ({"cat": 0}, []),
            ([1, 2, 3], []),
            ((), []),
        )
    ):
        packer.convert(Labeled(given), tmp_path / f"{number}.pack", fields=fields)
        with packer.open(tmp_path / f"{number}.pack") as dataset:
            assert dataset.classes == expected
            assert dataset.targets == [0, 1, 2, 0, 1, 2]
    packer.convert(Subset(Subset(Labeled(names), [5, 1, 2]), [2, 0]), tmp_path / "few.pack", fields=fields)
    with packer.open(tmp_path / "few.pack") as dataset:
        assert (dataset.classes, dataset.targets) == (["cat", "dog", "hen"], [2, 2])
    with pytest.raises(BadInput, match="label 2: .*0 to 1"):
        packer.convert(Labeled(names[:2]), tmp_path / "two.pack", fields=fields)
    assert kinds(Labeled(names[:2]), fields={"image": "image", "target": "number"})["target"] == "number"


def test_names_that_no_field_can_have_are_changed() -> None:
    assert kinds([{"image/encoded": image(1), "key": "a", "files": 3}]) == {
        "image_encoded": "image",
        "key_": "text",
        "files_": "number",
    }


@pytest.mark.parametrize("key", ["text", [f"no {number}" for number in range(5)], lambda number: f"no {number}"])
def test_keys_are_a_field_texts_or_a_function(key: Any, tmp_path: Path) -> None:
    packer.convert(samples(), tmp_path / "out.pack", key=key)
    with packer.open(tmp_path / "out.pack", fields=("key", "label")) as dataset:
        assert [dataset[number]["key"] for number in range(5)] == [f"no {number}" for number in range(5)]


# ---- iterables


class Stream(IterableDataset[dict[str, Any]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(samples(self.count))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [Stream, lambda count: iter(samples(count))])
def test_an_iterable_gives_the_pack_of_its_list(make: Any, tmp_path: Path) -> None:
    packer.convert(samples(200), tmp_path / "list.pack", threads=4)
    packer.convert(make(200), tmp_path / "out.pack", length=200, threads=4, key="text")
    for one, other in zip(loaded(tmp_path / "list.pack"), loaded(tmp_path / "out.pack"), strict=True):
        assert np.array_equal(one["image"], other["image"])
        assert one["label"] == other["label"]
        assert other["key"] == one["text"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("count", "message"), [(90, "ended after 90"), (120, "goes on after 100")])
def test_an_iterable_of_another_length_leaves_nothing(count: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"{message}.*length="):
        packer.convert(iter(samples(count)), tmp_path / "out.pack", length=100, part_bytes=10_000)
    assert list(tmp_path.iterdir()) == []


class Streaming(IterableDataset[dict[str, Any]]):
    """As LitData's StreamingDataset: `iter` begins a pass of the one that there is, which takes its time."""

    def __init__(self, count: int) -> None:
        self.count, self.passes, self.at = count, 0, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return samples(self.count)[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.passes += 1
        self.at = 0
        return self

    def __next__(self) -> dict[str, Any]:
        if self.at >= self.count:
            raise StopIteration
        self.at += 1
        return self[self.at - 1]


class Sharing(Streaming):
    """Whose passes share one place, too, though each is an object of its own; one of the first samples is bad."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return super().__getitem__(index) | ({"image": 3} if index == 15 else {})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        super().__iter__()
        return iter(self.__next__, None)


@pytest.mark.parametrize(("made", "passes"), [(Streaming, 1), (Sharing, 2)])
def test_a_pass_over_an_iterable_is_one_iterator(made: type[Streaming], passes: int, tmp_path: Path) -> None:
    data = made(40)
    packer.convert(data, tmp_path / "out.pack", fields={"image": "image"}, key="text", on_error="skip")
    assert data.passes == passes  # one that is packed, one to see whether it gives the same again
    skipped = [15] if made is Sharing else []
    with packer.open(tmp_path / "out.pack") as dataset:
        assert list(dataset.keys()) == [f"no {number}" for number in range(40) if number not in skipped]


class Failing:
    """Gives so many samples, then fails: a generator fails once, and ends after that."""

    def __init__(self, count: int, error: Exception) -> None:
        self.count, self.error = count, error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from samples(self.count)
        raise self.error


def test_the_exception_of_an_iterable_reaches_the_user_whichever_thread_met_it(tmp_path: Path) -> None:
    for threads in (None, 2, 16):
        with pytest.raises(ValueError, match="lost") as caught:
            packer.convert(Failing(117, ValueError("lost")), tmp_path / "out.pack", length=400, threads=threads)
        assert type(caught.value) is ValueError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_a_file_that_an_iterable_cannot_read_ends_it(on_error: OnError, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"<.*Failing>: .*117 samples.*disk") as caught:
        packer.convert(Failing(117, OSError("disk")), tmp_path / "out.pack", length=400, on_error=on_error)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []


def test_an_iterable_that_repeats_a_key_is_refused(tmp_path: Path) -> None:
    rows = [*samples(50), samples(1)[0]]
    with pytest.raises(BadInputs, match=r"<list_iterator>\[50\]: .*'no 0'.*earlier"):
        packer.convert(iter(rows), tmp_path / "out.pack", length=51, key="text")


def test_an_iterable_is_not_shuffled(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="order='stored'"):
        packer.convert(iter(samples()), tmp_path / "out.pack", length=5, order="shuffled")


# ---- threads, resuming, what is said


class NotShared:
    """Fails where two threads are in it at once."""

    def __init__(self) -> None:
        self.inside = threading.Lock()

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> dict[str, Any]:
        assert self.inside.acquire(blocking=False)
        try:
            return {"image": rgb(index), "label": index}
        finally:
            self.inside.release()


def test_an_object_is_read_by_one_thread_at_a_time(tmp_path: Path) -> None:
    packer.convert(NotShared(), tmp_path / "one.pack", threads=1)
    packer.convert(NotShared(), tmp_path / "many.pack", threads=8)
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "many.pack")


class StopAfter:
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __call__(self, now: Progress) -> None:
        if now.samples >= self.samples:
            raise Interrupted(2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("told", [{"key": "text"}, {"fingerprint": "v1"}])
def test_a_killed_run_leaves_no_pack_and_goes_on_where_the_object_can_be_told(
    told: dict[str, Any], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"part_bytes": 20_000, **told}

    def kill(now: Progress) -> None:
        if now.samples >= 40:
            os.kill(os.getpid(), signal.SIGKILL)

    ended = child(lambda: packer.convert(samples(60), tmp_path / "out", threads=1, progress=kill, **given).samples)
    assert (ended.kind, ended.signal) == ("signal", signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    assert packer.convert(samples(60), tmp_path / "out", **given).resumed_samples > 0
    packer.convert(samples(60), tmp_path / "clean", **given)
    assert digest(tmp_path / "out") == digest(tmp_path / "clean")


def test_another_object_does_not_go_on(tmp_path: Path) -> None:
    given: dict[str, Any] = {"part_bytes": 20_000, "fingerprint": "v1"}
    with pytest.raises(Interrupted):
        packer.convert(samples(60), tmp_path / "out.pack", progress=StopAfter(40), threads=1, **given)
    changed = samples(60)
    changed[0]["label"] = 2
    for data, options in ((changed, given), (samples(61), given), (samples(60), {**given, "fingerprint": "v2"})):
        with pytest.raises(InvalidRequest, match="interrupted conversion"):
            packer.convert(data, tmp_path / "out.pack", **options)


def test_without_keys_a_run_that_is_interrupted_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    notes: list[str] = []
    with pytest.raises(Interrupted):
        packer.convert(
            samples(60),
            tmp_path / "out.pack",
            part_bytes=20_000,
            progress=StopAfter(40),
            threads=1,
            on_note=notes.append,
        )
    assert any("cannot resume" in note and "key= or fingerprint=" in note for note in notes)
    assert list(tmp_path.iterdir()) == []


def test_work_that_a_kill_left_is_not_taken_up_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # as a kill, which nobody cleans up after
        patch.setattr("packer.conversion.publication.FolderPublication.remove", lambda self: None)
        with pytest.raises(Interrupted):
            packer.convert(samples(60), tmp_path / "out.pack", part_bytes=20_000, progress=StopAfter(40), threads=1)
    with pytest.raises(InvalidRequest, match="key= or fingerprint=.*restart=True"):
        packer.convert(samples(60), tmp_path / "out.pack", part_bytes=20_000)
    packer.convert(samples(60), tmp_path / "out.pack", part_bytes=20_000, restart=True)
    packer.convert(samples(60), tmp_path / "clean.pack", part_bytes=20_000)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(tmp_path: Path) -> None:
    notes: list[str] = []
    found = dry_run(samples(), tmp_path / "out.pack", {}, notes.append)
    assert (found.size.samples, found.refused) == (5, None)
    assert "5 samples: image (image), label (number), text (text)" in notes
    assert list(tmp_path.iterdir()) == []


# ---- torchvision


def image_folder(tmp_path: Path, count: int = 12) -> standins.ImageFolder:
    return standins.ImageFolder(photos(tmp_path / "photos", count))


def test_an_image_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/notes.csv").write_text("a,b")
    one = packer.convert(image_folder(tmp_path), tmp_path / "one.pack")
    other = packer.convert(tmp_path / "photos", tmp_path / "other.pack")
    assert one.pack_id == other.pack_id
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "other.pack")
    assert not packer.verify(tmp_path / "one.pack", source=tmp_path / "photos").problems


def test_classes_that_are_named_as_splits_are_the_folder_with_its_layout(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / f"photos/{'train' if number % 2 else 'val'}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    one = packer.convert(standins.ImageFolder(tmp_path / "photos"), tmp_path / "one.pack")
    other = packer.convert(tmp_path / "photos", tmp_path / "other.pack", folders="class")
    assert one.pack_id == other.pack_id


def test_a_subset_of_an_image_folder_keeps_files_and_labels(tmp_path: Path) -> None:
    dataset = image_folder(tmp_path)
    rows = [7, 2, 9]
    subset: Any = Subset(Subset(dataset, [0, *rows]), [1, 2, 3])  # type: ignore[arg-type]
    packer.convert(subset, tmp_path / "out.pack")
    with packer.open(tmp_path / "out.pack", fields=("key", "label")) as found:
        assert found.classes == dataset.classes
        for index, row in enumerate(rows):
            path, label = dataset.samples[row]
            assert found[index] == {"key": Path(path).relative_to(dataset.root).as_posix(), "label": label}
    with pytest.raises(InvalidRequest, match="Python object"):
        packer.verify(tmp_path / "out.pack", source=tmp_path / "photos")
    packer.extract(tmp_path / "out.pack", tmp_path / "again")
    assert tree(tmp_path / "again").items() <= tree(tmp_path / "photos").items()


@pytest.mark.parametrize("name", ["transform", "target_transform"])
def test_what_a_list_of_files_cannot_be_packed_with_is_refused(name: str, tmp_path: Path) -> None:
    dataset = image_folder(tmp_path)
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (standins.ImageFolder(tmp_path / "photos", **{name: abs}), {}, f"{name}=None"),
        (dataset, {"fields": {"image": "mask"}}, "follow_links alone"),
        (Subset(dataset, [1, 1]), {}, "listed more than once"),  # type: ignore[arg-type]
    )
    for data, options, said in refused:
        with pytest.raises((BadInput, InvalidRequest), match=said):
            packer.convert(data, tmp_path / "out.pack", **options)


def test_a_folder_with_a_loader_of_its_own_is_asked_for_its_samples(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 6)

    def size(path: str) -> int:
        return Path(path).stat().st_size

    dataset = standins.DatasetFolder(tmp_path / "photos", loader=size)
    fields = {"size": "number", "label": "number"}
    packer.convert(dataset, tmp_path / "out.pack", fields=fields)
    with packer.open(tmp_path / "out.pack") as found:
        assert [found[index]["size"] for index in range(6)] == [size(path) for path, _ in dataset.samples]


# ---- Hugging Face


def hugging_face(count: int = 5, *, fingerprint: str = "f00d", labels: bool = True) -> standins.Dataset:
    rows = [
        {
            "image": {"bytes": image(seed, suffix=".jpg"), "path": f"{seed}.jpg"},
            "annotation": {"bytes": mask(seed), "path": None},
            "label": seed % 2 if labels else -1,
            "caption": f"no {seed}",
            "score": 0.5,
            "tokens": list(range(seed)),
        }
        for seed in range(count)
    ]
    features = {
        "image": standins.Image(),
        "annotation": standins.Image(),
        "label": standins.ClassLabel(["cat", "dog"]),
        "caption": standins.Value("string"),
        "score": standins.Value("float32"),
        "tokens": standins.List(standins.Value("int32")),
    }
    return standins.Dataset(rows, features, fingerprint)


@pytest.mark.parametrize("is_stream", [False, True])
def test_images_of_hugging_face_are_never_encoded_again(tmp_path: Path, is_stream: bool) -> None:
    dataset = hugging_face(40)
    packer.convert(standins.IterableDataset(dataset) if is_stream else dataset, tmp_path / "out.pack", length=40)
    packer.extract(tmp_path / "out.pack", tmp_path / "again")
    found = tree(tmp_path / "again")
    assert dataset.decoded == 0
    for number, row in enumerate(dataset.rows):
        assert found[b"%08d.jpg" % number] == row["image"]["bytes"]
        assert found[b"%08d.annotation.png" % number] == row["annotation"]["bytes"]


def test_features_say_the_fields(tmp_path: Path) -> None:
    source = opened(hugging_face())
    told = {field.name: (field.kind, field.dtype, field.shape, field.classes) for field in source.schema}
    assert told["label"] == ("number", "int64", (), ("cat", "dog"))
    assert told["score"] == ("number", "float32", (), None)
    assert told["tokens"] == ("number", "int32", (None,), None)
    assert [told[name][0] for name in ("image", "annotation", "caption")] == ["image", "mask", "text"]
    assert source.resume_reason is None and opened(samples()).resume_reason is not None
    packer.convert(hugging_face(), tmp_path / "out.pack")
    described = manifests.read(tmp_path / "out.pack").source
    assert (described["of"], described["fingerprint"]) == ("datasets.Dataset", "f00d")


def test_labels_of_test_splits_are_refused_with_the_way_out(tmp_path: Path) -> None:
    dataset = hugging_face(labels=False)
    with pytest.raises(BadInput, match=r"label -1.*fields="):
        packer.convert(dataset, tmp_path / "out.pack")
    packer.convert(dataset, tmp_path / "out.pack", fields=["image", "caption"])
    late = hugging_face(40)
    late.rows[33]["label"] = -1
    with pytest.raises(BadInputs, match=r"\[33\]: field 'label': .*-1"):
        packer.convert(late, tmp_path / "late.pack")


def test_a_transform_of_hugging_face_is_refused_and_a_format_taken_off(tmp_path: Path) -> None:
    dataset = hugging_face()
    dataset.format = {"type": "custom", "columns": dataset.column_names}
    with pytest.raises(InvalidRequest, match="reset_format"):
        packer.convert(dataset, tmp_path / "out.pack")
    dataset.format = {"type": "torch", "columns": ["image", "label"]}
    assert kinds(dataset) == {"image": "image", "label": "number"}


@pytest.mark.parametrize("key", [None, "caption", [f"no {number}" for number in (0, 1, 2, 5, 6, 7, 8, 9)]])
def test_a_dict_of_splits_is_one_pack(key: Any, tmp_path: Path) -> None:
    train, test = hugging_face(3), hugging_face(10).select([5, 6, 7, 8, 9])
    parts = standins.DatasetDict(train=train, none=hugging_face(0), test=test)
    packer.convert(parts, tmp_path / "out.pack", key=key)
    assert train.decoded == 0
    described = manifests.read(tmp_path / "out.pack").source
    assert (described["of"], described["fingerprint"]) == ("datasets.DatasetDict", "f00d,f00d,f00d")
    schema = manifests.read(tmp_path / "out.pack").schema
    assert (schema["label"].classes, schema["split"].classes) == (("cat", "dog"), ("train", "none", "test"))
    for name, rows, numbers in (
        ("train", train.rows, (0, 1, 2)),
        ("test", test.rows, (3, 4, 5, 6, 7)),
        ("none", [], ()),
    ):
        with packer.open(tmp_path / "out.pack", split=name) as dataset:
            captions = [row["caption"] for row in rows]
            assert list(dataset.keys()) == (captions if key else [f"{number:08d}" for number in numbers])
            if key != "caption":
                assert [dataset[index]["caption"] for index in range(len(dataset))] == captions
    packer.extract(tmp_path / "out.pack", tmp_path / "again")
    name = b"no 9.jpg" if key else b"00000007.jpg"
    assert tree(tmp_path / "again")[name] == test.rows[4]["image"]["bytes"]


def test_a_column_split_of_hugging_face_is_the_splits(tmp_path: Path) -> None:
    rows = [{"text": f"no {number}", "split": "ab"[number > 20]} for number in range(30)]
    features = {"text": standins.Value("string"), "split": standins.Value("string")}
    read: list[int] = []

    class Counted(standins.Dataset):
        def __getitem__(self, key: Any) -> Any:
            read.extend([key] if isinstance(key, int) else [])
            return super().__getitem__(key)

    packer.convert(Counted(rows, features), tmp_path / "out.pack")
    assert {name: len(texts) for name, texts in splits(tmp_path / "out.pack").items()} == {"a": 21, "b": 9}
    assert max(map(read.count, read)) <= 3  # looked at twice at most, then packed
    rows[25]["split"] = None  # type: ignore[assignment]
    with pytest.raises(BadInputs, match=r"\[25\]: field 'split'"):
        packer.convert(standins.Dataset(rows, features), tmp_path / "none.pack")


def test_splits_that_differ_are_refused(tmp_path: Path) -> None:
    other = hugging_face()
    other.features["label"] = standins.ClassLabel(["dog", "cat"])
    own = standins.Dataset([{"split": 1}], {"split": standins.Value("int64")})
    for parts, said in (
        (standins.DatasetDict(train=hugging_face(), test=other), "'test'.*'train'"),
        (standins.DatasetDict(train=own), "'split'"),
        (standins.DatasetDict(), "mapping"),
        (standins.IterableDatasetDict(train=standins.IterableDataset(own)), "one of its data sets"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            packer.convert(parts, tmp_path / "out.pack")
    assert kinds(hugging_face(), fields=["image"]) == {"image": "image"}


def test_what_no_kind_holds_is_refused(tmp_path: Path) -> None:
    sounds = standins.Dataset([{"sound": 1, "label": 0}], {"sound": standins.Audio(), "label": standins.Value("int64")})
    with pytest.raises(InvalidRequest, match=r"'sound'.*Audio"):
        packer.convert(sounds, tmp_path / "out.pack")
    assert kinds(sounds, fields=["label"]) == {"label": "number"}


def test_a_subset_of_hugging_face_is_a_selection() -> None:
    source = opened(Subset(hugging_face(), [3, 1]))  # type: ignore[arg-type]
    assert [source[index]["caption"] for index in range(2)] == ["no 3", "no 1"]
    assert source.schema["label"].classes == ("cat", "dog")


def from_folder(root: Path) -> standins.Dataset:
    paths = sorted(root.rglob("*.jpg"))
    classes = sorted({path.parent.name for path in paths})
    rows = [{"image": {"bytes": None, "path": str(path)}, "label": classes.index(path.parent.name)} for path in paths]
    features = {"image": standins.Image(), "label": standins.ClassLabel(classes)}
    return standins.Dataset(rows, features)


def test_a_data_set_of_imagefolder_is_the_folder_and_a_selection_its_files(tmp_path: Path) -> None:
    dataset = from_folder(photos(tmp_path / "photos"))
    one = packer.convert(dataset, tmp_path / "one.pack")
    other = packer.convert(tmp_path / "photos", tmp_path / "other.pack")
    assert one.pack_id == other.pack_id
    few = dataset.select([4, 2])
    files = [Path(row["image"]["path"]).read_bytes() for row in few.rows]
    assert [opened(few)[index]["image"] for index in range(2)] == files


# ---- the bar


def test_true_shows_a_bar_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int]] = []

    class NotebookBar:
        __module__ = "tqdm.notebook"

        def __init__(self, **options: Any) -> None:
            self.n, self.total, self.initial = 0, options["total"], 0

        def set_postfix_str(self, text: str, refresh: bool = True) -> None:
            assert text.endswith("MB/s")

        def update(self, count: int) -> None:
            self.n += count
            shown.append((self.n, self.total))

        def close(self) -> None:
            shown.append((-1, -1))

    monkeypatch.setitem(__import__("sys").modules, "IPython", type(random)("IPython"))
    monkeypatch.setattr("tqdm.auto.tqdm", NotebookBar)
    packer.convert(samples(), tmp_path / "out.pack", progress=True)
    assert shown[-2:] == [(5, 5), (-1, -1)]
    shown.clear()
    packer.convert(samples(), tmp_path / "quiet.pack", progress=False)
    assert shown == []


# ---- places, and entries that come later


@pytest.mark.parametrize("number", [float, np.float64])
def test_boxes_and_points_of_floats_are_rounded_to_float32(tmp_path: Path, number: type) -> None:
    places = [[number(value) for value in (0.1, 0.2, 20.7, 15.3)]]
    given = [{"image": rgb(seed), "boxes": places, "points": [[0.1, 7.3]]} for seed in range(3)]
    packer.convert(given, tmp_path / "out.pack", fields={"image": "image", "boxes": "boxes", "points": "points"})
    sample = loaded(tmp_path / "out.pack")[1]
    assert np.array_equal(sample["boxes"], np.array(places, np.float32))
    assert np.array_equal(sample["points"], np.float32([[0.1, 7.3]]))


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ([1, 2, 3, 4], r"\(4,\) is not an array of boxes: expected \(N, 4\)"),
        ([[1, 2, 3, 4, 5]], r"\(1, 5\) is not an array of boxes"),
        ([[1, 2, 3, 4], [float("nan"), 2, 3, 4]], "box 2: found nan 2 3 4, expected x0 y0 x1 y1"),
        ([[30, 20, 3, 4]], "box 1: found 30 20 3 4"),
        ([[1.0, 2.0, 1e39, 4.0]], "1e\\+39 is beyond float32"),
    ],
)
def test_what_is_no_box_is_one_line(tmp_path: Path, boxes: Any, said: str) -> None:
    given = [{"image": rgb(seed), "boxes": boxes} for seed in range(2)]
    with pytest.raises(PackerError, match=said) as raised:
        packer.convert(given, tmp_path / "out.pack", fields={"image": "image", "boxes": "boxes"})
    assert "<list>[0]" in str(raised.value) and "\n" not in str(raised.value)


class Slow:
    """A data set of images, one of which cannot be read."""

    def __init__(self, count: int, bad: int = -1) -> None:
        self._count = count
        self._bad = bad

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self._bad:
            raise OSError("no such file")
        if index == self._bad + 1 and self._bad >= 0:
            raise ZeroDivisionError("of the user")
        return {"image": rgb(index), "number": index}


@pytest.mark.parametrize("order", ["stored", "shuffled"])
def test_processes_read_the_same_samples_in_the_same_order(tmp_path: Path, order: Any) -> None:
    for workers in (0, 3):
        packer.convert(
            Slow(100), tmp_path / f"{workers}", num_workers=workers, part_bytes=20_000, order=order, threads=3
        )
    assert digest(tmp_path / "0") == digest(tmp_path / "3")


def test_an_error_in_a_process_names_the_index(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"Subset>\[50\].*no such file"):
        packer.convert(Subset(Slow(60, 50), range(51)), tmp_path / "out", num_workers=2)
    with pytest.raises(ZeroDivisionError) as raised:
        packer.convert(Slow(60, 50), tmp_path / "out", num_workers=2)
    assert any("[51]" in note for note in raised.value.__notes__)
    with pytest.raises(InvalidRequest, match="num_workers"):
        packer.convert(iter([{"a": 1}]), tmp_path / "out", length=1, num_workers=2)
    assert not (tmp_path / "out").exists()


def test_whole_numbers_beside_floats_stay_exact(tmp_path: Path) -> None:
    large = 2**60 + 1
    given = [{"image": image(seed), "ids": [large, 0.5]} for seed in range(2)]
    packer.convert(given, tmp_path / "out.pack")
    assert loaded(tmp_path / "out.pack")[0]["ids"] == [large, 0.5]
    with pytest.raises(PackerError, match="field 'ids'"):
        packer.convert(given, tmp_path / "b.pack", fields={"image": "image", "ids": "number"})


def test_a_masked_array_is_refused_where_it_masks_anything(tmp_path: Path) -> None:
    values = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    given = [{"image": image(seed), "v": values} for seed in range(2)]
    with pytest.raises(PackerError, match="masked values"):
        packer.convert(given, tmp_path / "out.pack")
    open_values = np.ma.masked_array([1.0, 2.0], mask=False)
    packer.convert([{"image": image(1), "v": open_values}], tmp_path / "b.pack")
    assert loaded(tmp_path / "b.pack")[0]["v"].tolist() == [1.0, 2.0]
