"""examples/train_detection.py on rectangles in COCO's layout: it packs them, and its loss falls."""

import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.support.repository import loaded
from tests.support.source_trees import encoded, write

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("examples/train_detection.py")


def rectangles(root: Path, count: int) -> Path:
    """Red and blue rectangles in gray images; every fourth image has none."""
    random = np.random.default_rng(1)
    files: dict[str, bytes] = {}
    images, things = [], []
    for number in range(count):
        pixels = np.full((64, 80, 3), 90, np.uint8)
        for place in range(number % 4):
            x, y, w, h = 4 + 26 * place, int(random.integers(2, 30)), *random.integers(14, 24, 2).tolist()
            kind = int(random.integers(2))
            pixels[y : y + h, x : x + w] = ((220, 20, 20), (20, 20, 220))[kind]
            box = {"id": len(things) + 1, "image_id": number, "category_id": kind + 1, "bbox": [x, y, w, h]}
            things.append(box | {"area": w * h, "iscrowd": 0, "segmentation": []})
        files[f"images/{number:03d}.png"] = encoded(".png", pixels)
        images.append({"id": number, "file_name": f"{number:03d}.png", "height": 64, "width": 80})
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}]
    members = {"images": images, "annotations": things, "categories": categories}
    return write(root, {**files, "annotations/instances_all.json": json.dumps(members).encode()})


@pytest.mark.full  # by default the examples of grasps and of a classifier learn
def test_the_loss_falls(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = rectangles(tmp_path / "coco", 24)
    words = [str(root), str(tmp_path / "coco.pack"), "--size", "64", "--epochs", "6", "--device", "cpu"]
    losses = example.train(example.parsed(words))
    assert len(re.findall(r"^epoch \d: loss [\d.]+$", capsys.readouterr().out, re.MULTILINE)) == 6
    assert losses[-1] < 0.7 * losses[0]


def test_the_loss_is_of_the_cell_with_the_center_and_of_its_sides(example: ModuleType) -> None:
    target = {"boxes": torch.tensor([[8.0, 16.0, 24.0, 32.0]]), "labels": torch.tensor([1])}  # its center: (16, 24)
    scores = torch.full((1, 2, 8, 8), -20.0)
    scores[0, 1, 3, 2] = 20
    sides = torch.zeros(1, 4, 8, 8)
    sides[0, :, 3, 2] = torch.tensor([1.5, 1.5, 0.5, 0.5])
    assert example.loss_of(scores, sides, [target]).item() < 1e-6
    assert example.loss_of(scores, sides + 1, [target]).item() == pytest.approx(4)
    assert example.loss_of(-scores, sides, [target]).item() > 100
