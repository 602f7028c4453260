"""Images for peers that leave decoding and cropping to the user: all of them get the same fast code.

Source of the crop rule: the documentation of torchvision.transforms.v2.RandomResizedCrop.
"""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.job import Job

Image = npt.NDArray[np.uint8]
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
RAW = "pixels.npy"


def files(folder: Path) -> list[str]:
    """Every image of a folder tree, sorted."""
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


def raw(folder: Path) -> Image:
    """The images of task raw224, memory-mapped."""
    pixels: Image = np.load(folder / RAW, mmap_mode="r")
    return pixels


def random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random crop; drawn from `random`."""
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for _ in range(10):
        area = height * width * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(low, high))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return random.randint(0, height - tall), random.randint(0, width - wide), tall, wide
    tall = min(height, round(width / RATIO[0]))
    wide = min(width, round(height * RATIO[1]))
    return (height - tall) // 2, (width - wide) // 2, tall, wide


class Decode:
    """A JPEG file's bytes -> RGB (height, width, 3) with OpenCV; cropped, resized and flipped where the job says so."""

    def __init__(self, job: Job) -> None:
        self.side = job.side if job.crops else None

    def __call__(self, buffer: Any) -> Image:
        import cv2

        image = cv2.imdecode(np.frombuffer(buffer, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        if image is None:
            raise ValueError("OpenCV cannot decode an image of the set")
        return image if self.side is None else cropped(image, self.side)


class Copy:
    """The bytes of a raw image -> an array of its own, (side, side, 3)."""

    def __init__(self, side: int) -> None:
        self.shape = (side, side, 3)

    def __call__(self, buffer: Any) -> Image:
        return np.frombuffer(buffer, np.uint8).reshape(self.shape).copy()


def cropped(image: Image, side: int, out: Image | None = None) -> Image:
    """A random crop, resized bilinearly to side x side, flipped every other time; into `out` where given."""
    import cv2

    top, left, height, width = random_crop(*image.shape[:2])
    part = image[top : top + height, left : left + width]
    if random.random() < 0.5:
        return cv2.flip(cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR), 1, dst=out)
    return cv2.resize(part, (side, side), dst=out, interpolation=cv2.INTER_LINEAR)
