"""Packs of scenes with one marked spot, where every kind of field says where the spot is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import formats
from packer.schema import Field, Schema, Shape
from tests.support import built_packs

Pixels = npt.NDArray[Any]

WIDTH_PX = 2.5  # standard deviation of the spot


def schema(
    *, size: Shape = (None, None), image: str = "raw", mask: Shape | None = None, hidden: bool = False
) -> Schema:
    """Every kind of field. size, mask: of the images, None where they differ. hidden: with a stored matrix."""
    fields = [
        Field("key", "text", "text"),
        Field("image", "image", image, dtype="uint8", shape=(*size, 3)),
        Field("depth", "depth", "raw", dtype="float32", shape=size),
        Field("mask", "mask", "raw", dtype="uint8", shape=mask or size),
        Field("spots", "points", "raw:float32", dtype="float32", shape=(None, 2)),
        Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
        Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)),
        Field("label", "number", "number", dtype="int64", shape=(), classes=("cat", "dog")),
        Field("weight", "number", "number", dtype="float64", shape=()),
        Field("pose", "number", "number", dtype="float32", shape=(3,)),
        Field("sound", "number", "raw", dtype="int16", shape=(None,)),
        Field("caption", "text", "text"),
        Field("meta", "json", "json"),
        Field("blob", "bytes", "encoded"),
    ]
    if hidden:
        fields.append(Field("matrix", "number", "number", dtype="float64", shape=(2, 3), hidden=True))
    return Schema(tuple(fields))


def spot(height: int, width: int, x: float, y: float, *, wide: float = WIDTH_PX) -> Pixels:
    """float (H, W): 1 at (x, y), falling off as a Gaussian."""
    rows, columns = np.mgrid[:height, :width]
    return np.asarray(np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * wide**2)))


def scene(number: int, *, height: int = 60, width: int = 80, at: tuple[float, float] | None = None) -> dict[str, Any]:
    """One sample; `number` points, grasps and boxes (1 to 4) of which the first is the spot's."""
    random = np.random.default_rng(number)
    x, y = at or (random.uniform(10, width - 11), random.uniform(10, height - 11))
    bright, count = spot(height, width, x, y), 1 + number % 4
    spots = np.concatenate([[[x, y]], random.uniform(0, 50, (count - 1, 2))]).astype(np.float32)
    square = np.asarray([[-3, -2], [3, -2], [3, 2], [-3, 2]], np.float32)
    return {
        "key": f"scene {number:04d}",
        "image": np.repeat(np.rint(250 * bright).astype(np.uint8)[..., None], 3, axis=2),
        "depth": (2 - bright).astype(np.float32),
        "mask": (bright > 0.4).astype(np.uint8),
        "spots": spots,
        "grasps": spots[:, None] + square,
        "boxes": np.concatenate([spots - 4, spots + 4], axis=1) + np.float32(0.5),
        "label": number % 2,
        "weight": number / 7,
        "pose": random.random(3).astype(np.float32),
        "sound": np.arange(number % 5, dtype=np.int16),
        "caption": f"caption {number}",
        "meta": {"number": number, "list": list(range(number % 3))},
        "blob": bytes([number % 256]) * (number % 9),
    }


def write(
    folder: Path, samples: Sequence[dict[str, Any]], fields: Schema, *, format: str = "lmdb", parts: int = 2
) -> Path:
    """A pack of these samples."""
    records = [built_packs.encoded(fields, sample) for sample in samples]
    built_packs.make_pack(folder, records, format=format, schema=fields, parts=parts)
    return folder


def pack(folder: Path, count: int = 10, *, format: str = "lmdb", image: str = "raw", parts: int = 2) -> Path:
    """A pack of scenes of one size."""
    samples = [scene(number) for number in range(count)]
    return write(folder, samples, schema(size=(60, 80), image=image), format=format, parts=parts)


def every_format(folder: Path, count: int) -> Path:
    """A folder with the same scenes as a pack of each format, `<format>.pack`, and as JPEG, `jpeg.pack`."""
    for name in formats.names():
        pack(folder / f"{name}.pack", count, format=name)
    pack(folder / "jpeg.pack", count, image="jpeg:90", parts=3)
    return folder


def middle(weights: Pixels) -> tuple[float, float]:
    """x, y of the mean of the weights' places."""
    rows, columns = np.mgrid[: weights.shape[0], : weights.shape[1]]
    total = weights.sum()
    return float((columns * weights).sum() / total), float((rows * weights).sum() / total)


def places(sample: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """x, y of the spot as each field of a NumPy sample says it; images that do not show it are left out."""
    x0, y0, x1, y1 = sample["boxes"][0]
    found = {
        "spots": tuple(sample["spots"][0]),
        "grasps": tuple(sample["grasps"][0].mean(axis=0)),
        "boxes": ((x0 + x1 - 1) / 2, (y0 + y1 - 1) / 2),
    }
    depth = np.where(np.isnan(sample["depth"]), 2, sample["depth"])
    images = {
        "image": sample["image"][..., 0].astype(float),
        "depth": 2 - depth,
        "mask": sample["mask"].astype(float),
    }
    weights = {name: np.where(value > 0.05 * value.max(), value, 0) for name, value in images.items()}
    return found | {name: middle(value) for name, value in weights.items() if value.sum() > 0}  # type: ignore[return-value]
