"""packer itself: a pack of the files' own bytes in LMDB; its Loader, and the same data set in torch's DataLoader."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import packer
from benchmarks.harness import stacking
from benchmarks.harness.job import Job
from benchmarks.harness.pictures import RATIO, SCALE, Picture, cropped, raw

_HAS_LOADER = hasattr(packer, "Loader")
_PLAIN = ("loader", "dataloader") if _HAS_LOADER else ("dataloader",)
_CROPS = ("loader", "loader antialias", "dataloader") if _HAS_LOADER else ("dataloader",)

TASKS = {"full": _PLAIN, "rrc": _CROPS, "raw224": _PLAIN, "big": _CROPS}
WITHOUT: dict[str, str] = {}
DOES = "packer convert --to lmdb; packer.Loader with threads, or LMDBDataset in a DataLoader with worker processes"
PACKAGES = ("packer", "torch", "lmdb", "simplejpeg", "opencv-python")
SYSTEM = ()


def prepare(job: Job) -> None:
    source, codec = job.images, []
    if job.task == "raw224":
        import cv2

        source, codec = job.work / "bmp", ["--codec", "image=raw"]
        source.mkdir()
        for index, picture in enumerate(raw(job.images)):
            cv2.imwrite(str(source / f"{index:08d}.bmp"), picture[..., ::-1])
    command = [sys.executable, "-m", "packer", "convert", str(source), str(job.work / "set.pack"), "--to", "lmdb"]
    subprocess.run([*command, *codec], check=True)
    if source != job.images:
        shutil.rmtree(source)


class Crop:
    """A sample -> the same with its image cropped; for a packer without geometries in its data sets."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"image": cropped(sample["image"], self.side)}


def geometry(job: Job) -> Any:
    """RandomResizedCrop and flip as one warp."""
    from packer.geometry import Compose, HorizontalFlip, RandomResizedCrop

    antialias = job.variant.endswith("antialias")
    return Compose(RandomResizedCrop(job.side, scale=SCALE, ratio=RATIO, antialias=antialias), HorizontalFlip())


def epochs(job: Job) -> Callable[[], Iterator[Picture]]:
    from packer.datasets import LMDBDataset

    pack: Path = job.work / "set.pack"
    if job.variant == "dataloader":
        options = {"output": "numpy", "transform": Crop(job.side)} if job.crops else {}
        return stacking.shuffled(LMDBDataset(pack, ("image",), **options), job, "image")
    from packer import Loader  # not in every version

    warp = {"geometry": geometry(job)} if job.crops else {}
    loader = Loader(LMDBDataset(pack, ("image",)), batch_size=job.batch_size, shuffle=True, threads=job.threads, **warp)
    return stacking.epochs(loader, "image")
