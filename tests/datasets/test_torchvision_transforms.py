"""output="tv" under the transforms of torchvision itself, in its environment: everything ends where it must."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.synthetic import load
from tests.support import annotated_source
from tests.support.annotated_source import AnnotatedSource
from tests.support.foreign_environments import TORCHVISION_OPERATORS, said_by

pytestmark = pytest.mark.foreign

Sample = dict[str, npt.NDArray[Any]]

_TORCHVISION = (
    TORCHVISION_OPERATORS
    + """
import json, sys
import packer
from torchvision import tv_tensors, transforms as v1
from torchvision.transforms import v2
"""
)

_PROGRAM = (
    _TORCHVISION
    + """
crop = v2.RandomCrop((18, 26))
transforms = {
    "plain": v2.Identity(),
    "flip": v2.RandomHorizontalFlip(1.0),
    "resize": v2.Resize((24, 80)),
    "crop": crop,
    "sane": v2.Compose([crop, v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample["box_labels"])]),
}
said = {}
for name, transform in transforms.items():
    dataset = packer.open(sys.argv[1], output="tv", transform=transform)
    torch.manual_seed(4)
    sample = dataset[int(sys.argv[2])]
    kinds = {field: type(value).__name__ for field, value in sample.items() if isinstance(value, torch.Tensor)}
    said[name] = {field: sample[field].tolist() for field in kinds} | {"kinds": kinds}
height, width = packer.open(sys.argv[1])[int(sys.argv[2])]["image"].shape[1:]
places = torch.stack([torch.arange(width).expand(height, width), torch.arange(height)[:, None].expand(height, width)])
torch.manual_seed(4)
said["corner"] = crop(tv_tensors.Mask(places))[:, 0, 0].tolist()
print(json.dumps(said))
"""
)

# every transform of torchvision's that takes an image: does it move a mask, which no change of colors does?
_MOVING_PROGRAM = (
    _TORCHVISION
    + """
from packer.datasets.batch import image_transforms, moving_transform

arguments = {
    "CenterCrop": (8,), "RandomCrop": (8,), "RandomResizedCrop": (8,), "Resize": (8,), "Pad": (2,), "FiveCrop": (8,),
    "TenCrop": (8,), "RandomRotation": ((20, 40),), "RandomAffine": ((20, 40),), "RandomResize": (8, 9),
    "ScaleJitter": ((70, 70),), "RandomShortestSize": (8,), "GaussianBlur": (3,), "Lambda": (lambda value: value,),
    "RandomPosterize": (2, 1.0), "RandomSolarize": (9, 1.0), "RandomAdjustSharpness": (2, 1.0),
}
always = ("RandomHorizontalFlip", "RandomVerticalFlip", "RandomPerspective", "RandomZoomOut", "RandomErasing")
left_out = (  # of batches, floats, values that are not images; containers; what needs the compiled half
    "JPEG", "MixUp", "CutMix", "Compose", "RandomApply", "RandomChoice", "RandomOrder", "LinearTransformation",
    "Normalize", "ConvertBoundingBoxFormat", "UniformTemporalSubsample", "SetClampingMode", "SanitizeBoundingBoxes",
    "GaussianNoise", "SanitizeKeyPoints", "ToPILImage", "PILToTensor", "ToTensor", "Transform", "ToDtype",
    "ClampBoundingBoxes", "ClampKeyPoints", "ConvertImageDtype",
)
refusing_masks = ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "FiveCrop", "TenCrop")
generator = torch.Generator().manual_seed(3)
image = torch.randint(256, (3, 50, 60), dtype=torch.uint8, generator=generator)
mask = torch.randint(256, (50, 60), dtype=torch.uint8, generator=generator)
boxes = tv_tensors.BoundingBoxes([[2.0, 3.0, 29.0, 28.0]], format="XYXY", canvas_size=(50, 60))
said = {}
for name, kind in vars(v2).items():
    if not isinstance(kind, type) or not issubclass(kind, v2.Transform) or name in left_out:
        continue
    made = kind(*arguments.get(name, ()), **({"p": 1.0} if name in always else {}))
    sample = {"image": tv_tensors.Image(image), "mask": tv_tensors.Mask(mask)}
    if name == "RandomIoUCrop":
        sample["boxes"] = boxes
    moves = name in refusing_masks
    for seed in () if moves else range(8):
        torch.manual_seed(seed)
        found = made(sample)["mask"]
        moves |= isinstance(found, (tuple, list)) or not torch.equal(found.as_subclass(torch.Tensor), mask)
    said["v2." + name] = [moves, moving_transform(made)]
    if (first := getattr(v1, name, None)) is not None:
        said["v1." + name] = [moves, moving_transform(first(*arguments.get(name, ())))]
for name, kind in (("v2", v2), ("v1", v1)):
    for inner, moves in ((kind.ColorJitter(0.2), False), (kind.RandomCrop(8), True)):
        for holder in (kind.Compose([inner]), kind.RandomApply([inner]), kind.RandomOrder([inner])):
            said[name + repr(holder)] = [moves, moving_transform(holder)]
            assert image_transforms(holder) == [type(inner).__name__] * (name == "v1")
assert image_transforms(v1.Compose([v2.RandomCrop(8)])) == image_transforms(v1.Lambda(len)) == []
assert image_transforms(v1.RandAugment()) == ["RandAugment"]
print(json.dumps(said))
"""
)


def told(pack: Path, index: int) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(said_by("torchvision", _PROGRAM, pack, index))
    return said


def arrays(sample: dict[str, Any]) -> Sample:
    return {name: np.asarray(value) for name, value in sample.items() if name != "kinds"}


def shifted(boxes: npt.NDArray[Any], x: int, y: int) -> npt.NDArray[Any]:
    """Boxes of a crop at x, y of 26x18 px, cut at its edges."""
    return np.clip(boxes - [x, y, x, y], 0, [26, 18, 26, 18])


def test_images_boxes_and_masks(tmp_path: Path) -> None:
    load("voc")(tmp_path / "set", samples=6, seed=3, size=(48, 64))
    packer.convert(tmp_path / "set", tmp_path / "pack")
    with packer.open(tmp_path / "pack", output="numpy") as dataset:
        index = int(np.argmax([len(sample["boxes"]) for sample in dataset]))
        stored = dataset[index]
    said = told(tmp_path / "pack", index)
    wanted = {"image": "Image", "mask": "Mask", "object_mask": "Mask", "boxes": "BoundingBoxes", "box_labels": "Tensor"}
    assert wanted.items() <= said["plain"]["kinds"].items()
    plain, flipped, small, cut, sane = (arrays(said[name]) for name in ("plain", "flip", "resize", "crop", "sane"))
    assert len(plain["boxes"]) > 2
    assert all(np.array_equal(plain[name], stored[name]) for name in ("boxes", "mask", "object_mask"))

    for name in ("image", "mask", "object_mask"):
        assert np.array_equal(flipped[name], plain[name][..., ::-1])
    x0, y0, x1, y1 = plain["boxes"].T
    assert np.array_equal(flipped["boxes"], np.stack([64 - x1, y0, 64 - x0, y1], 1))

    rows, columns = np.arange(24) * 48 // 24, np.arange(80) * 64 // 80
    assert np.array_equal(small["mask"], plain["mask"][rows][:, columns])
    assert np.allclose(small["boxes"], plain["boxes"] * [1.25, 0.5, 1.25, 0.5])

    x, y = said["corner"]
    for name in ("image", "mask", "object_mask"):
        assert np.array_equal(cut[name], plain[name][..., y : y + 18, x : x + 26])
    assert np.array_equal(cut["boxes"], shifted(plain["boxes"], x, y))
    # what lies outside has a box without area, which SanitizeBoundingBoxes drops, with its label
    whole = (cut["boxes"][:, 2:] > cut["boxes"][:, :2]).all(1)
    assert 0 < whole.sum() < len(whole)
    assert np.array_equal(sane["boxes"].reshape(-1, 4), cut["boxes"][whole])
    assert np.array_equal(sane["box_labels"], plain["box_labels"][whole])


def test_key_points_and_polygons(tmp_path: Path) -> None:
    packer.convert(AnnotatedSource(annotated_source.small_set(tmp_path / "set")), tmp_path / "pack")
    said = told(tmp_path / "pack", 0)
    assert {"keypoints": "KeyPoints", "polygons": "KeyPoints"}.items() <= said["plain"]["kinds"].items()
    plain, flipped, resized, cut = (arrays(said[name]) for name in ("plain", "flip", "resize", "crop"))
    height, width = plain["image"].shape[1:]
    with packer.open(tmp_path / "pack", output="numpy") as dataset:
        assert np.array_equal(plain["keypoints"], dataset[0]["keypoints"])
        assert np.array_equal(plain["polygons"] + 0.5, dataset[0]["polygons"])
        for name in ("keypoints", "polygons"):
            mirrored = plain[name] * [-1, 1] + [width - 1, 0]
            assert np.array_equal(flipped[name], mirrored)
            assert np.array_equal(cut[name], plain[name] - said["corner"])
            # torchvision scales about the middle of the first pixel, where what is seen is scaled about its corner
            scale = np.array([80 / width, 24 / height])
            assert np.allclose(resized[name], plain[name] * scale, atol=1e-4)
    with packer.open(tmp_path / "pack", output="numpy", geometry=packer.geometry.Resize((24, 80))) as dataset:
        exact = dataset[0]["keypoints"]
        assert np.allclose(exact, (plain["keypoints"] + 0.5) * scale - 0.5, atol=1e-4)
        assert np.abs(exact - resized["keypoints"]).max() == pytest.approx(np.abs(scale - 1).max() / 2, abs=1e-4)


def test_what_moves_pixels_is_what_moves_a_mask() -> None:
    said: dict[str, Any] = json.loads(said_by("torchvision", _MOVING_PROGRAM))
    assert {name for name, (moves, found) in said.items() if moves != (found is not None)} == set()
    moving = {name for name, (moves, _) in said.items() if moves}
    assert len(moving) > 30 and len(said) - len(moving) > 20
    assert {"v2.Resize", "v1.Resize", "v2.RandomIoUCrop", "v2.AugMix", "v1.AugMix"} <= moving
