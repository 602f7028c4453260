"""GPU starvation: the share of a training loop's time that waits for data, folder and stock DataLoader against a pack.

The step is simulated: the CPU sleeps, as it does while a GPU computes. Its time is chosen so that the folder waits for
two thirds of its own: 0.33 of the time that the folder needs for a batch when nothing is computed (--step-ms sets it).
Both make the same crops, RandomResizedCrop(224) and flips. The folder makes normalized floats of them in worker
processes with Pillow, as torchvision's ImageFolder and transforms do it, or with OpenCV. From a pack, bytes travel and
are normalized on the GPU (device= and normalize= of the Loader): no work of the CPU, and no part of this.
"""

import math
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import base
import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import packer
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OF_A_BATCH = 0.33


def box(height: int, width: int) -> tuple[int, int, int, int]:
    """top, left, height, width: RandomResizedCrop's rule."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        high, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < high <= height and 0 < wide <= width:
            return random.randint(0, height - high), random.randint(0, width - wide), high, wide
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def with_pillow(path: str) -> np.ndarray[Any, Any]:
    with Image.open(path) as image:
        rgb = image.convert("RGB")
    top, left, height, width = box(rgb.height, rgb.width)
    return np.asarray(rgb.crop((left, top, left + width, top + height)).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def with_opencv(path: str) -> np.ndarray[Any, Any]:
    image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
    top, left, height, width = box(*image.shape[:2])
    return cv2.resize(image[top : top + height, left : left + width], (SIDE, SIDE))


class Folder(Dataset[Any]):
    """What people write: a file is opened, decoded, cut, flipped, and made a normalized float tensor."""

    def __init__(self, root: Path, read: Callable[[str], Any]) -> None:
        self.read = read
        self.paths = sorted(str(path) for path in root.rglob("*.jpg"))
        names = [os.path.basename(os.path.dirname(path)) for path in self.paths]
        self.labels = [sorted(set(names)).index(name) for name in names]
        self.mean, self.std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = torch.from_numpy(np.ascontiguousarray(self.read(self.paths[index]).transpose(2, 0, 1)))
        if random.random() < 0.5:
            image = image.flip(-1)
        return image.float().div(255).sub_(self.mean).div_(self.std), self.labels[index]


def no_threads(_: int) -> None:
    cv2.setNumThreads(0)


def waited(loader: Iterable[Any], steps: int, step_s: float) -> tuple[float, float]:
    """Share of the time that waits for batches, and seconds per step; after a first epoch that does not count."""
    for _ in loader:
        pass
    waiting, done, began = 0.0, 0, time.perf_counter()
    while done < steps:
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waiting += time.perf_counter() - asked
            if batch is None or done == steps:
                break
            time.sleep(step_s)
            done += 1
    total = time.perf_counter() - began
    return waiting / total, total / steps


def main() -> None:
    defaults = {"samples": 3000, "workers": 2, "batch_size": 32, "rounds": 3, "steps": 180, "step_ms": 0.0}
    args = base.arguments(__doc__ or "", folder=None, **defaults)
    with base.scratch() as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        packs = {"pack, bytes kept": (), "pack, --resize 256": ("--resize", "256")}
        packs["pack, --resize 256, raw"] = (*packs["pack, --resize 256"], "--codec", "image=raw")
        for name, options in packs.items():
            subprocess.run([*base.PACKER, "convert", str(photos), str(scratch / name), *options], check=True)
        torch.set_num_threads(1)  # the trainer's own work is the step
        stock: dict[str, Any] = {"shuffle": True, "num_workers": args.workers, "drop_last": True}
        stock |= {"persistent_workers": True, "worker_init_fn": no_threads}
        augment = Compose(RandomResizedCrop(SIDE), RandomHorizontalFlip())

        def opened(name: str) -> packer.Loader:
            dataset = packer.open(scratch / name, fields=("image", "label"), as_tuple=("image", "label"))
            how: dict[str, Any] = {"geometry": augment, "drop_last": True}
            return packer.Loader(dataset, args.batch_size, shuffle=True, threads=args.workers, **how)

        makers: dict[str, Callable[[], Any]] = {
            "folder, Pillow": lambda: DataLoader(Folder(photos, with_pillow), args.batch_size, **stock),
            "folder, OpenCV": lambda: DataLoader(Folder(photos, with_opencv), args.batch_size, **stock),
            **{name: lambda name=name: opened(name) for name in packs},
        }
        step_s = args.step_ms / 1000 or OF_A_BATCH * waited(makers["folder, Pillow"](), args.steps, 0)[1]
        runs = {name: lambda make=make: waited(make(), args.steps, step_s) for name, make in makers.items()}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for _ in range(args.rounds):
            for name, run in runs.items():
                found[name].append(run())
    rows = {
        name: f"waits {base.spread([100 * each[0] for each in values], '%', 1)}, "
        f"{1000 * statistics.median(each[1] for each in values):.1f} ms per step"
        for name, values in found.items()
    }
    title = f"Waiting for data, batches of {args.batch_size}, a step of {1000 * step_s:.1f} ms, {args.workers} workers"
    base.report(title, rows, {"step_s": step_s, "share_and_seconds": found}, args)


if __name__ == "__main__":
    main()
