"""Python objects of the libraries themselves: torchvision's folders, Hugging Face data sets, in their environments."""

import json
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.pack import manifest as manifests
from tests.support.foreign_environments import said_by
from tests.support.source_trees import image, mask, photos, tree

pytestmark = pytest.mark.foreign

# the compiled half of torchvision's wheels needs the torch that they were built with; without it two operators are
# missed as soon as it is imported, which nothing here runs
_TORCHVISION = """
import importlib.util, json, sys
from pathlib import Path
import packer, torch

try:
    for library in Path(importlib.util.find_spec("torchvision").origin).parent.glob("_C*.so"):
        torch.ops.load_library(library)
except OSError:
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torch.utils.data import Subset
from torchvision import transforms
from torchvision.datasets import CIFAR10, FakeData, ImageFolder

root, out = sys.argv[1:]
folder = ImageFolder(root)
said = {"whole": packer.convert(folder, f"{out}/whole.pack").pack_id}
rows = [5, 0, 3]
packer.convert(Subset(folder, rows), f"{out}/subset.pack")
said["subset"] = [[folder.samples[row][0], folder.samples[row][1]] for row in rows]
refused = []
fields = {"image": "image", "label": "number"}
for data, options in (
    (ImageFolder(root, transform=transforms.ToTensor()), {}),
    (FakeData(20, transform=transforms.ToTensor()), {"fields": fields}),
    (FakeData(20, transform=transforms.RandomCrop(32)), {"fields": fields}),
):
    try:
        packer.convert(data, f"{out}/refused.pack", **options)
    except packer.errors.InvalidRequest as error:
        refused.append(str(error))
said["refused"] = refused
fake = FakeData(20, image_size=(3, 24, 24))
fake.classes = [f"class {number}" for number in range(10)]
packer.convert(fake, f"{out}/fake.pack", fields=fields)
with packer.open(f"{out}/fake.pack", output="pil", as_tuple=("image", "label")) as found:
    assert found.classes == fake.classes
    said["fake"] = all(found[i][0].tobytes() == fake[i][0].tobytes() and found[i][1] == fake[i][1] for i in range(20))
print(json.dumps(said))
"""

_DATASETS = """
import json, sys
import packer
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value, load_dataset

root, images, out = sys.argv[1:]
said = {}
folder = load_dataset("imagefolder", data_dir=root, split="train", cache_dir=f"{out}/cache")
said["whole"] = packer.convert(folder, f"{out}/whole.pack").pack_id
said["kind"] = type(folder[0]["image"]).__module__.partition(".")[0]
rows = [{"image": f"{images}/{n}.jpg", "mask": f"{images}/{n}.png", "label": n % 2, "caption": f"no {n}",
         "tokens": [n]} for n in range(20)]
features = Features({"image": Image(), "mask": Image(), "label": ClassLabel(names=["cat", "dog"]),
                     "caption": Value("string"), "tokens": List(Value("int32"))})
embedded = Dataset.from_list(rows, features=features).map(lambda row: row)
said["again"] = []
for name in ("a", "b"):
    said["again"].append(packer.convert(embedded, f"{out}/{name}.pack").pack_id)
packer.convert(embedded.select([7, 3]).with_format("torch"), f"{out}/two.pack", key="caption")
packer.convert(embedded.to_iterable_dataset(), f"{out}/stream.pack", length=20)
parts = embedded.train_test_split(0.3, seed=0)
packer.convert(parts, f"{out}/parts.pack", key="caption")
said["parts"] = {name: list(part["caption"]) for name, part in parts.items()}
named = embedded.remove_columns(["image", "mask"]).map(lambda row: {"split": ["val", "train"][row["label"]]})
packer.convert(named, f"{out}/named.pack", key="caption")
refused = []
unlabeled = embedded.map(lambda row: {**row, "label": -1})
other = embedded.cast_column("label", ClassLabel(names=["dog", "cat"]))
for data in (embedded.with_transform(lambda batch: batch), DatasetDict(train=embedded, test=other), unlabeled):
    try:
        packer.convert(data, f"{out}/refused.pack")
    except packer.errors.PackerError as error:
        refused.append(str(error))
said["refused"] = refused
turned = Dataset.from_list([{"image": f"{images}/turned.jpg"}], features=Features({"image": Image()}))
said["shown"] = list(turned[0]["image"].size)
packer.convert(turned, f"{out}/turned.pack", exif="rotate")
with packer.open(f"{out}/turned.pack", output="pil") as found:
    said["packed"] = list(found[0]["image"].size)
print(json.dumps(said))
"""


def told(name: str, program: str, *words: Path) -> dict[str, Any]:
    said = json.loads(said_by(name, program, *words).splitlines()[-1])
    assert isinstance(said, dict)
    return said


def test_folders_of_torchvision(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    said = told("torchvision", _TORCHVISION, root, tmp_path)
    assert said["whole"] == packer.convert(root, tmp_path / "ours.pack").pack_id
    with packer.open(tmp_path / "subset.pack", fields=("key", "label")) as found:
        assert [[str(root / found[row]["key"]), found[row]["label"]] for row in range(3)] == said["subset"]
    transform, scaled, cropped = said["refused"]
    assert "transform is set" in transform
    assert "ToTensor" in scaled
    assert "another sample" in cropped
    assert said["fake"]


def test_data_sets_of_hugging_face(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    images = tmp_path / "images"
    images.mkdir()
    for number in range(20):
        (images / f"{number}.jpg").write_bytes(image(number, suffix=".jpg"))
        (images / f"{number}.png").write_bytes(mask(number))
    (images / "turned.jpg").write_bytes(turned(image(1, suffix=".jpg")))
    said = told("datasets", _DATASETS, root, images, tmp_path)
    assert said["whole"] == packer.convert(root, tmp_path / "ours.pack").pack_id
    assert said["kind"] == "PIL"  # what the library itself gives
    assert len(set(said["again"])) == 1
    packer.extract(tmp_path / "a.pack", tmp_path / "again")
    packer.extract(tmp_path / "stream.pack", tmp_path / "streamed")
    for found in (tree(tmp_path / "again"), tree(tmp_path / "streamed")):
        for number in range(20):
            assert found[b"%08d.jpg" % number] == (images / f"{number}.jpg").read_bytes()
            assert found[b"%08d.mask.png" % number] == (images / f"{number}.png").read_bytes()
    schema = manifests.read(tmp_path / "a.pack").schema
    assert [schema[name].kind for name in ("image", "mask", "label", "caption", "tokens")] == [
        *("image", "mask", "number", "text", "number")
    ]
    assert schema["label"].classes == ("cat", "dog")
    with packer.open(tmp_path / "two.pack", fields=("key", "label")) as two:
        assert [two[row] for row in range(2)] == [{"key": "no 7", "label": 1}, {"key": "no 3", "label": 1}]
    transform, splits, labels = said["refused"]
    assert "a transform is set" in transform
    assert "'test'" in splits
    for name, captions in said["parts"].items():
        with packer.open(tmp_path / "parts.pack", split=name) as part:
            assert list(part.keys()) == captions
            assert [part[row]["label"] for row in range(len(part))] == [int(text[3:]) % 2 for text in captions]
    with packer.open(tmp_path / "named.pack", split="train") as named:
        assert list(named.keys()) == [f"no {number}" for number in range(1, 20, 2)]
    assert "label -1" in labels
    assert said["shown"] == said["packed"]


def turned(jpeg: bytes) -> bytes:
    """The same with EXIF orientation 6."""
    exif = (
        b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00"
    )
    return jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
