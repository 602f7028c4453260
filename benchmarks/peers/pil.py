"""Pillow: a folder of JPEG files, PIL.Image, torch's DataLoader. What torchvision's ImageFolder does."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness.job import Job
from benchmarks.harness.pictures import Picture, files, random_crop
from benchmarks.harness.stacking import Fetched, shuffled

TASKS = {"full": ("",), "rrc": ("",), "big": ("",)}
WITHOUT = {"raw224": "a folder of JPEG files has no raw pictures"}
DOES = "PIL.Image.open, DataLoader with worker processes; crops: Image.resize, bilinear, which always antialiases"
PACKAGES = ("pillow", "torch")
SYSTEM = ()


class Open:
    """A path -> RGB picture."""

    def __init__(self, job: Job) -> None:
        self.side = job.side if job.crops else None

    def __call__(self, path: Any) -> Picture:
        from PIL import Image

        with Image.open(path) as image:
            picture = image.convert("RGB")
        if self.side is not None:
            top, left, height, width = random_crop(picture.height, picture.width)
            box = (left, top, left + width, top + height)
            picture = picture.resize((self.side, self.side), Image.Resampling.BILINEAR, box)
            if random.random() < 0.5:
                picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.array(picture)


def prepare(job: Job) -> None:
    """Nothing: the folder is the format."""


def epochs(job: Job) -> Callable[[], Iterator[Picture]]:
    paths = files(job.images)
    return shuffled(Fetched(paths.__getitem__, len(paths), Open(job)), job)
