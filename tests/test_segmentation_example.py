"""examples/train_segmentation.py on drawn things: it packs them, its loss falls and its score rises."""

import re
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import torch

import packer
from packer.synthetic import load
from tests.support.repository import loaded
from tests.support.source_trees import encoded, write

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("examples/train_segmentation.py")


@pytest.mark.full  # by default the examples of grasps and of a classifier learn
def test_the_loss_falls_and_the_score_rises(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("pairs")(tmp_path / "pairs", samples=24, seed=1, classes=1, size=(32, 32))
    words = f"--size 32 --width 4 --batch-size 4 --epochs 12 --device cpu --image {tmp_path / 'out.png'}".split()
    history = example.train(example.parsed([str(tmp_path / "pairs"), str(tmp_path / "pack"), *words]))
    printed = capsys.readouterr().out
    assert len(re.findall(r"^epoch \d+: loss [\d.]+, IoU [\d.]+% of 2 classes$", printed, re.MULTILINE)) == 12
    assert history[-1][0] < 0.8 * history[0][0]
    assert history[-1][1] > 0.6  # a network that sees no thing anywhere has 0.49
    image = cv2.imread(str(tmp_path / "out.png"))
    assert image is not None
    assert image.shape == (3 * 32, 4 * 32, 3)  # the first batch


def dataset_of(root: Path, *masks: np.ndarray) -> packer.datasets.PackDataset:
    """A pack of gray images with these masks."""
    gray = encoded(".png", np.full((8, 8, 3), 90, np.uint8))
    files = {f"im_aug/{number}.png": gray for number in range(len(masks))}
    write(root / "set", files | {f"gt_aug/{number}.png": encoded(".png", mask) for number, mask in enumerate(masks)})
    packer.convert(root / "set", root / "pack")
    return packer.open(root / "pack", fields=("image", "mask"))


def test_classes_are_the_values_that_masks_hold_but_for_void(example: ModuleType, tmp_path: Path) -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[0, :4], mask[1] = 7, 255
    other = np.full((8, 8), 3, np.uint8)
    classes = example.Classes(dataset_of(tmp_path, mask, other))
    assert classes.count == 3
    assert classes.of(torch.tensor([0, 3, 7, 255, 9])).tolist() == [0, 1, 2, 255, 255]
    shares = torch.tensor([52, 64, 4]) / 120
    assert torch.allclose(classes.weights, 1 / shares.sqrt())


def test_masks_of_0_and_255_have_two_classes(example: ModuleType, tmp_path: Path) -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[:2] = 255
    classes = example.Classes(dataset_of(tmp_path, mask))
    assert classes.of(torch.tensor([0, 255])).tolist() == [0, 1]


def test_the_score_is_intersection_over_union_without_void(example: ModuleType, tmp_path: Path) -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[:4], mask[4] = 1, 255
    dataset = dataset_of(tmp_path, mask)
    scores = torch.zeros(1, 2, 8, 8)
    scores[:, 0], scores[:, 1, :2], scores[:, 1, 4:6] = 0.5, 1, 1

    class Fixed(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return scores

    found = example.iou(Fixed(), packer.Loader(dataset, 1), example.Classes(dataset))
    assert found == pytest.approx(16 / 40)  # of the thing two rows of five, and of the table two of five
