"""Pillow: a folder of JPEG files, PIL.Image, torch's DataLoader. What torchvision's ImageFolder does."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness.images import Image as Pixels
from benchmarks.harness.images import files, random_crop
from benchmarks.harness.job import Job
from benchmarks.harness.stacking import Fetched, shuffled

TASKS = {"full": ("",), "rrc": ("",), "big": ("",)}
WITHOUT = {"raw224": "a folder of JPEG files has no raw images"}
DOES = "PIL.Image.open, DataLoader with worker processes; crops: Image.resize, bilinear, which always antialiases"
PACKAGES = ("pillow", "torch")
SYSTEM = ()


class Open:
    """A path -> RGB pixels."""

    def __init__(self, job: Job) -> None:
        self.side = job.side if job.crops else None

    def __call__(self, path: Any) -> Pixels:
        from PIL import Image

        with Image.open(path) as image:
            rgb = image.convert("RGB")
        if self.side is not None:
            top, left, height, width = random_crop(rgb.height, rgb.width)
            box = (left, top, left + width, top + height)
            rgb = rgb.resize((self.side, self.side), Image.Resampling.BILINEAR, box)
            if random.random() < 0.5:
                rgb = rgb.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.array(rgb)


def prepare(job: Job) -> None:
    """Nothing: the folder is the format."""


def epochs(job: Job) -> Callable[[], Iterator[Pixels]]:
    paths = files(job.images)
    return shuffled(Fetched(paths.__getitem__, len(paths), Open(job)), job)
