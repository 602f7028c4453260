"""DetectionCollate: images and a dict of tensors per image, of DataLoader and Loader alike."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import packer
from packer.datasets import DetectionCollate, PackDataset
from packer.errors import InvalidRequest
from packer.geometry import BoxRule, RandomHorizontalFlip, Resize
from tests.support import annotated_source
from tests.support.annotated_source import AnnotatedSource


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("detection")
    packer.convert(AnnotatedSource(annotated_source.small_set(root / "set")), root / "pack")
    return root / "pack"


def test_every_loader_gives_the_samples_boxes_and_labels(pack: Path) -> None:
    dataset = packer.open(pack, geometry=Resize((32, 40)))
    collate = DetectionCollate(first_label=1, others=("box_crowd",), keep_crowd=True)
    count = len(dataset)
    loaders: tuple[Iterable[Any], ...] = (
        DataLoader(dataset, count, collate_fn=collate),
        DataLoader(dataset, count, collate_fn=collate, num_workers=1),
        packer.Loader(dataset, count, collate_fn=collate, threads=2),
        packer.Loader(dataset, count, collate_fn=collate, num_workers=1),
    )
    for loader in loaders:
        ((images, targets),) = loader
        assert images.shape == (count, 3, 32, 40) and len(targets) == count
        for index, target in enumerate(targets):
            sample = dataset[index]
            assert set(target) == {"boxes", "labels", "box_crowd"}
            assert torch.equal(images[index], sample["image"])
            assert torch.equal(target["boxes"], sample["boxes"]) and target["boxes"].dtype == torch.float32
            assert torch.equal(target["labels"], sample["box_labels"] + 1) and target["labels"].dtype == torch.int64
            assert torch.equal(target["box_crowd"], sample["box_crowd"])


def test_a_image_without_boxes_has_a_target_of_no_rows() -> None:
    sample = {
        "image": torch.zeros(3, 4, 5),
        "boxes": torch.zeros(0, 4),
        "box_labels": torch.zeros(0, dtype=torch.int64),
    }
    images, targets = DetectionCollate()([sample, sample])
    assert isinstance(images, torch.Tensor) and images.shape == (2, 3, 4, 5)
    assert [target["boxes"].shape for target in targets] == [(0, 4), (0, 4)]


def test_images_of_many_sizes_are_a_list_and_numbers_become_tensors() -> None:
    def sample(width: int, number: int) -> dict[str, Any]:
        return {
            "image": torch.full((3, 4, width), number),
            "rois": torch.ones(1, 4),
            "kinds": torch.tensor([2]),
            "id": number,
        }

    collate = DetectionCollate(image="image", boxes="rois", labels="kinds", others=("id",))
    images, targets = collate([sample(5, 7), sample(6, 8)])
    assert isinstance(images, list) and [tuple(image.shape) for image in images] == [(3, 4, 5), (3, 4, 6)]
    assert [target["id"].item() for target in targets] == [7, 8]
    assert [target["labels"].tolist() for target in targets] == [[2], [2]]


def test_crowd_boxes_are_in_no_target(pack: Path) -> None:
    dataset = packer.open(pack)
    others = ("box_crowd", "keypoints", "keypoint_visibility")
    ((_, targets),) = packer.Loader(dataset, len(dataset), collate_fn=DetectionCollate(others=others))
    for index, target in enumerate(targets):
        sample = dataset[index]
        single = sample["box_crowd"] == 0
        assert torch.equal(target["boxes"], sample["boxes"][single])
        assert torch.equal(target["labels"], sample["box_labels"][single])
        for name in others:
            assert torch.equal(target[name], sample[name][single])
    assert [len(target["boxes"]) for target in targets] == [2, 0, 1, 3]
    alone = packer.open(pack, ("image", "boxes", "box_labels"))
    ((_, targets),) = packer.Loader(alone, len(alone), collate_fn=DetectionCollate())
    assert [len(target["boxes"]) for target in targets] == [3, 0, 1, 5]


def test_others_are_rows_of_boxes_or_numbers() -> None:
    sample = {
        "image": torch.zeros(3, 4, 5),
        "boxes": torch.zeros(2, 4),
        "box_labels": torch.zeros(2),
        "box_crowd": torch.tensor([1, 0], dtype=torch.uint8),
        "pose": torch.zeros(3),
    }
    with pytest.raises(InvalidRequest, match="pose"):
        DetectionCollate(others=("pose",))([sample])


def test_boxes_that_the_rule_drops_are_in_no_target(pack: Path) -> None:
    rule = BoxRule(clip=True, least_visible=1.0)
    geometry = packer.geometry.Compose(packer.geometry.CenterCrop(12), RandomHorizontalFlip(1.0))
    dataset: PackDataset = packer.open(pack, geometry=geometry, boxes=rule)
    ((_, targets),) = DataLoader(dataset, len(dataset), collate_fn=DetectionCollate())
    whole = packer.open(pack)
    assert sum(len(target["boxes"]) for target in targets) < sum(len(whole[i]["boxes"]) for i in range(len(whole)))
    for index, target in enumerate(targets):
        single = dataset[index]["box_crowd"] == 0
        assert torch.equal(target["boxes"], dataset[index]["boxes"][single])
        assert torch.equal(target["labels"], dataset[index]["box_labels"][single])


def test_what_is_wrong_is_said() -> None:
    sample: dict[str, Any] = {"image": torch.zeros(3, 4, 5), "boxes": torch.zeros(2, 4), "box_labels": torch.zeros(1)}
    with pytest.raises(InvalidRequest, match="2 'boxes'.*1 'box_labels'"):
        DetectionCollate()([sample])
    with pytest.raises(InvalidRequest, match=r"'rois' .*image, boxes, box_labels"):
        DetectionCollate(boxes="rois")([sample])
    with pytest.raises(InvalidRequest, match="tuple; .*as_tuple"):
        DetectionCollate()([tuple(sample.values())])
    with pytest.raises(InvalidRequest, match="'image': .*ndarray"):
        DetectionCollate()([sample | {"image": sample["image"].numpy()}])
    with pytest.raises(InvalidRequest, match="'labels' already"):
        DetectionCollate(others=("labels",))
