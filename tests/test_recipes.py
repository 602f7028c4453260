"""The recipes of docs/train/augment.md and docs/train/frameworks.md run with the libraries that they are about.

Each test runs the blocks of one section of a page, and then checks what they made. scripts/foreign creates the
environments.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer.synthetic import load
from tests.support import repository
from tests.support.conversions import packed
from tests.support.foreign_environments import TORCHVISION_OPERATORS, said_by
from tests.support.source_trees import photos

pytestmark = pytest.mark.foreign

TRAIN = Path(__file__).parent.parent / "docs/train"


def blocks(page: str, heading: str) -> str:
    """The code of one section of a page."""
    text = (TRAIN / f"{page}.md").read_text()
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page}.md has no section {heading}"
    code = repository.blocks(found[1], "py")
    assert code, f"{page}.md: the section {heading} has no code"
    return "\n".join(code)


def photo_pack(folder: Path, count: int = 12) -> Path:
    """A folder with photos.pack."""
    packed(photos(folder / "photos", count), folder / "photos.pack")
    return folder


COLORS = """
plain = packer.Loader(dataset.with_(output="torch"), 4, shuffle=True, geometry=augment, normalize=(mean, std))
loader.set_epoch(0)
mixed = 0
for batch, bare in zip(loader, plain, strict=True):
    assert batch["image"].shape == (4, 3, 64, 64) and batch["image"].dtype == torch.float32
    assert torch.equal(batch["label"], bare["label"])
    for colored, image in zip(batch["image"], bare["image"], strict=True):
        assert not torch.allclose(colored, image, atol=0.01), "the colors are those of the pack"
        assert torch.corrcoef(torch.stack([colored.mean(0).flatten(), image.mean(0).flatten()]))[0, 1] > 0.5
    done = mix(batch)
    assert done["image"].shape == (4, 3, 64, 64) and done["image"].dtype == torch.float32
    assert done["label"].shape == (4, 3) and torch.allclose(done["label"].sum(1), torch.ones(4))
    for row, shares in enumerate(done["label"]):
        if shares.max() < 1:
            assert not torch.equal(done["image"][row], batch["image"][row]), "only the labels are mixed"
            mixed += 1
assert mixed
"""


def test_colors_and_mixed_batches(tmp_path: Path) -> None:
    program = TORCHVISION_OPERATORS + blocks("augment", "Colors, MixUp and CutMix") + COLORS
    said_by("torchvision", program, folder=photo_pack(tmp_path), libraries=("torchvision",))


LIGHTNING = """
import os, sys
import lightning
from lightning.pytorch.callbacks import Callback

target, stop, found = sys.argv[1], int(sys.argv[2]), []

class Record(Callback):
    def on_train_batch_start(self, trainer, module, batch, index):
        found.append({"epoch": trainer.current_epoch, **batch})
        if len(found) == stop:
            os._exit(0)  # as a process that is killed

class Trainer(lightning.Trainer):
    def __init__(self, *, callbacks, **options):
        super().__init__(accelerator="cpu", callbacks=[*callbacks, Record()], logger=False, **options)

lightning.Trainer = Trainer
"""
SAVED = """
torch.save(found, target)
"""


def assert_same(rest: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Assert that two lists of batches are equal, bit for bit."""
    assert len(rest) == len(wanted)
    for batch, other in zip(rest, wanted, strict=True):
        assert batch.keys() == other.keys()
        for name, value in batch.items():
            same = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
            assert same, f"{name} differs"


@pytest.mark.parametrize(("when", "at"), [("every_n_train_steps=2", 6), ("every_n_epochs=1", 5)])
def test_lightning_resumes_from_a_checkpoint_in_or_after_an_epoch(tmp_path: Path, when: str, at: int) -> None:
    recipe = blocks("frameworks", "Lightning")
    assert "every_n_train_steps=2" in recipe
    recipe = recipe.replace("every_n_train_steps=2", when)
    program = TORCHVISION_OPERATORS + LIGHTNING + recipe + SAVED
    found: dict[str, list[dict[str, Any]]] = {}
    for run, name, stop in (("whole", "whole", 0), ("stopped", "stopped", 8), ("rest", "stopped", 0)):
        folder = tmp_path / name
        if not folder.exists():
            photo_pack(folder, 20)
        said_by("lightning", program, tmp_path / f"{run}.pt", stop, folder=folder, libraries=("lightning",))
        found[run] = torch.load(tmp_path / f"{run}.pt") if stop == 0 else []
    assert [batch["epoch"] for batch in found["whole"]] == [0] * 5 + [1] * 5
    assert found["whole"][0]["image"].shape == (4, 3, 64, 64)
    assert not torch.equal(found["whole"][0]["image"], found["whole"][5]["image"]), "each epoch has the same order"
    assert_same(found["rest"], found["whole"][at:])


ACCELERATE = """
import os, sys
import packer

target, stop, found = sys.argv[1], int(sys.argv[2]), []

class Loader(packer.Loader):
    def __iter__(self):
        for batch in super().__iter__():
            found.append(batch)
            if len(found) == stop:
                os._exit(0)  # as a process that is killed
            yield batch

packer.Loader = Loader
"""
ACCELERATE_SAVED = """
assert all(batch["image"].device.type == accelerator.device.type for batch in found)
target = f"{target}-{accelerator.process_index}"
"""
TORCHRUN = """
import sys
from torch.distributed.run import main
main(["--standalone", "--nproc-per-node", *sys.argv[1:]])
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate_resumes_in_an_epoch(tmp_path: Path, processes: int) -> None:
    recipe = ACCELERATE + blocks("frameworks", "Accelerate") + ACCELERATE_SAVED + SAVED
    program = tmp_path / "program.py"
    program.write_text(TORCHVISION_OPERATORS + recipe)
    for run, name, stop in (("whole", "whole", 0), ("stopped", "stopped", 9), ("rest", "stopped", 0)):
        folder = tmp_path / name
        if not folder.exists():
            photo_pack(folder, 20 * processes)
        words = (processes, program, tmp_path / run, stop)
        said_by("lightning", TORCHRUN, *words, folder=folder, libraries=("accelerate",))
    wholes = [torch.load(tmp_path / f"whole-{rank}") for rank in range(processes)]
    for rank, whole in enumerate(wholes):
        assert len(whole) == 10
        assert whole[0]["image"].shape == (4, 3, 64, 64) and whole[0]["image"].dtype == torch.float32
        assert_same(torch.load(tmp_path / f"rest-{rank}"), whole[7:])
    for epoch in (slice(0, 5), slice(5, 10)):
        images = torch.cat([batch["image"] for whole in wholes for batch in whole[epoch]])
        assert len({image.numpy().tobytes() for image in images}) == 20 * processes, "two ranks share samples"


TIMM = """
import torch

assert size == 224
exact = create_transform(**{**config, "interpolation": "bilinear"}, is_training=False)
pictures = packer.open("photos.pack", output="pil", as_tuple=("image", "label"), transform=exact)
seen = 0
for batch in val:
    assert batch["image"].shape == (4, 3, 224, 224) and batch["image"].dtype == torch.float32
    for image, label in zip(batch["image"], batch["label"], strict=True):
        wanted, number = pictures[seen]
        assert number == label
        assert (image - wanted).abs().max() < 4 / 255 / min(config["std"]), "timm's own transform differs"
        seen += 1
assert seen == 12
assert images.shape == (4, 3, 224, 224) and images.dtype == torch.float32 and labels.dtype == torch.int64
mean, std = (torch.tensor(each)[:, None, None] for each in normalize)
values = images * std + mean
assert values.min() > -0.01 and values.max() < 1.01 and values.std() > 0.05
assert model(images).shape == (4, len(dataset.classes))
"""


def test_timm(tmp_path: Path) -> None:
    program = TORCHVISION_OPERATORS + blocks("frameworks", "timm") + TIMM
    said_by("torchvision", program, folder=photo_pack(tmp_path), libraries=("torchvision", "timm"))


ALBUMENTATIONS = """
import numpy as np

plain = packer.open("voc.pack", fields=fields)
width = plain[0]["image"].shape[-1]

def drawn():
    with packer.Loader(dataset, 4, num_workers=2) as loader:
        return list(loader)

def alike(one, other):
    return float(torch.corrcoef(torch.stack([one.flatten().float(), other.flatten().float()]))[0, 1])

batches, flips, changed = drawn(), [], 0
for number, stored in enumerate(plain):
    batch, at = batches[number // 4], number % 4
    image, mask, boxes, labels = (batch[name][at] for name in fields)
    assert image.dtype == mask.dtype == torch.uint8 and boxes.dtype == torch.float32 and labels.dtype == torch.int64
    flips.append(alike(image, stored["image"].flip(-1)) > alike(image, stored["image"]))
    x0, y0, x1, y1 = stored["boxes"].T
    if flips[-1]:
        stored = {name: value.flip(-1) for name, value in stored.items() if name in ("image", "mask")} | {
            "boxes": torch.stack([width - x1, y0, width - x0, y1], 1), "box_labels": stored["box_labels"]
        }
    assert torch.equal(mask, stored["mask"])
    assert torch.allclose(boxes, stored["boxes"], atol=1e-3)
    assert torch.equal(labels, stored["box_labels"])
    changed += not torch.equal(image, stored["image"])
assert changed and len(batches) == 6 and len(set(flips)) == 2

def of_worker(number):
    return [flip for at, flip in enumerate(flips) if at // 4 % 2 == number]

assert of_worker(0) != of_worker(1), "the processes repeat each other"
again = drawn()
assert all(torch.equal(one["image"], other["image"]) for one, other in zip(batches, again, strict=True))

empty = {"boxes": np.zeros((0, 4), np.float32), "box_labels": np.zeros(0, np.int64)}
made = transform({"image": np.zeros((8, 9, 3), np.uint8), "mask": np.zeros((8, 9), np.uint8), **empty})
assert made["image"].shape == (3, 8, 9) and made["boxes"].shape == (0, 4)
assert made["box_labels"].shape == (0,) and made["box_labels"].dtype == torch.int64
"""


def test_albumentations_moves_the_fields_of_a_sample_together(tmp_path: Path) -> None:
    load("voc")(tmp_path / "voc", samples=24, seed=3, size=(48, 64))
    packer.convert(tmp_path / "voc", tmp_path / "voc.pack")
    program = blocks("frameworks", "albumentations") + ALBUMENTATIONS
    said_by("albumentations", program, folder=tmp_path, libraries=("albumentations",))
