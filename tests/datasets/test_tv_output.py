"""output="tv": torchvision's transforms move images, masks and points of a sample as one."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import packer
from packer.datasets.batch import as_tv
from packer.errors import InvalidRequest, MissingPackage
from packer.schema import Field, Schema
from tests.support import id_masks, marked_packs


def why_no_torchvision() -> str:
    """Why its tv_tensors cannot be used here; empty where they can."""
    try:
        import torchvision.transforms.v2  # noqa: F401, PLC0415
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        return f"torchvision cannot be used here: {str(error).splitlines()[0]}"
    return ""


WHY = why_no_torchvision()
needs_torchvision = pytest.mark.skipif(bool(WHY), reason=WHY or "torchvision is there")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.every_format(tmp_path_factory.mktemp("posed"), 3) / "jpeg.pack"


@needs_torchvision
def test_a_batch_of_a_data_loader(pack: Path) -> None:
    dataset = packer.open(pack, fields=("image", "mask", "label"), output="tv", geometry=packer.geometry.Resize((8, 9)))
    (batch,) = torch.utils.data.DataLoader(dataset, 3)
    plain = packer.open(pack, fields=("image", "mask", "label"), geometry=packer.geometry.Resize((8, 9)))
    (wanted,) = torch.utils.data.DataLoader(plain, 3)
    assert all(torch.equal(torch.as_tensor(batch[name]), wanted[name]) for name in wanted)


@pytest.mark.skipif(not WHY, reason="torchvision is there")
def test_without_torchvision_the_error_says_how_to_get_it(pack: Path) -> None:
    if "No module named" not in WHY:
        pytest.skip("torchvision is there, but does not import")
    with pytest.raises(MissingPackage, match=r'output="tv".*pip install torchvision'):
        packer.open(pack, output="tv")[0]


def test_images_of_two_sizes_have_no_canvas(monkeypatch: pytest.MonkeyPatch) -> None:
    class StandIn:
        Image = Mask = staticmethod(lambda value: value)

    monkeypatch.setattr("packer.datasets.batch.import_or_explain", lambda *_: StandIn)
    schema = Schema((Field("image", "image", "raw"), Field("mask", "mask", "raw"), Field("grasps", "points", "raw")))
    sample = {
        "image": np.zeros((3, 4, 5), np.uint8),
        "mask": np.zeros((2, 3), np.uint8),
        "grasps": np.zeros((1, 2), np.float32),
    }
    with pytest.raises(InvalidRequest, match="2 sizes.*fields="):
        as_tv(schema, sample)
    sample["mask"] = np.zeros((4, 5), np.uint8)
    with pytest.raises(InvalidRequest, match=r"torchvision 0\.23"):
        as_tv(schema, sample)


def test_edges_are_key_points_half_a_pixel_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's flips take x to width - 1 - x for all key points; edges are to become width - x."""

    class StandIn:
        Image = staticmethod(lambda value: value)
        Mask = staticmethod(lambda value: ("a mask", value))
        KeyPoints = staticmethod(lambda value, canvas_size: value)

    monkeypatch.setattr("packer.datasets.batch.import_or_explain", lambda *_: StandIn)
    points = Field("points", "points", "raw", "float32", (None, 2))
    pixels = Field("image", "image", "raw"), Field("depth", "depth", "raw")
    schema = Schema((*pixels, points, replace(points, name="polygons", edges=True)))
    corners, depth = np.float32([[0, 0], [5, 4]]), np.ones((4, 5), np.float32)
    sample = {"image": np.zeros((3, 4, 5), np.uint8), "depth": depth, "points": corners, "polygons": corners.copy()}
    made = as_tv(schema, sample)
    assert made["depth"][0] == "a mask"
    assert made["points"].tolist() == [[0, 0], [5, 4]]
    assert made["polygons"].tolist() == [[-0.5, -0.5], [4.5, 3.5]]


@needs_torchvision
def test_a_mask_of_16_bit_moves_with_every_id(tmp_path: Path) -> None:
    from torchvision import tv_tensors  # noqa: PLC0415
    from torchvision.transforms import v2  # noqa: PLC0415

    packer.convert(id_masks.tree(tmp_path / "in", 2), tmp_path / "pack", sidecars=id_masks.SIDECAR)
    plain = packer.open(tmp_path / "pack")
    sample = packer.open(tmp_path / "pack", output="tv", transform=v2.RandomHorizontalFlip(1.0))[0]
    assert type(sample["mask"]) is tv_tensors.Mask and sample["mask"].dtype == torch.int32
    assert torch.equal(torch.as_tensor(sample["mask"]), plain[0]["mask"].flip(-1))
    small = packer.open(tmp_path / "pack", output="tv", transform=v2.Resize((24, 32)))[0]["mask"]
    assert set(small.unique().tolist()) <= set(plain[0]["mask"].unique().tolist())
    assert bool((small == id_masks.ID).any())


def test_a_mask_of_16_bit_is_int32_for_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packer.convert(id_masks.tree(tmp_path / "in", 1), tmp_path / "pack", sidecars=id_masks.SIDECAR)
    stand_in = ModuleType("torchvision.tv_tensors")
    stand_in.Mask = stand_in.Image = lambda value: value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.tv_tensors", stand_in)
    mask = packer.open(tmp_path / "pack", output="tv")[0]["mask"]
    assert mask.dtype == torch.int32 and np.array_equal(mask.numpy(), id_masks.mask_of(0))
