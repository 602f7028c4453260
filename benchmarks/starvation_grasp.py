"""GPU starvation of a grasp network: how long a step waits for data, from GG-CNN's own loader and from a pack.

Needs scikit-image and imageio. --samples: a folder that holds `cornell` and `jacquard`; without it, synthetic ones.
The step is simulated: the CPU sleeps, as it does while a GPU computes, for 0.33 of the time that the folder needs for a
batch when nothing is computed. RGB-D items of 300 px, turned and zoomed at random, batches of 8 as in GG-CNN's
training; folder: scikit-image in a stock DataLoader; pack: GraspDataset in packer.Loader with as many workers.
"""

import statistics
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import base
import cv2
import torch
from grasp import sets
from grasp_reference import Reference
from starvation import OF_A_BATCH, no_threads, waited
from torch.utils.data import ConcatDataset, DataLoader, Subset

import packer
from packer.grasp import GraspDataset

BATCH = 8
MORE_STEPS = {"cornell": 6, "jacquard": 1}  # its items take the folder a tenth of the time


def many(dataset: Any, items: int) -> Any:
    """The data set over and over, so that an epoch has so many items."""
    times = -(-items // len(dataset))
    return Subset(ConcatDataset([dataset] * times), range(items))


def from_folder(folder: Path, items: int, workers: int) -> DataLoader[Any]:
    how: dict[str, Any] = {"num_workers": workers, "persistent_workers": True, "worker_init_fn": no_threads}
    return DataLoader(many(Reference(folder), items), BATCH, shuffle=True, drop_last=True, **how)


def from_pack(folder: Path, scratch: Path, items: int, workers: int) -> packer.Loader:
    pack = scratch / f"{folder.name}.pack"
    if not pack.exists():
        command = [*base.PACKER, "convert", str(folder), str(pack), "--preset", "ggcnn"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    dataset = GraspDataset(pack, 300)
    indices = torch.arange(items).remainder(len(dataset)).tolist()
    return packer.Loader(Subset(dataset, indices), BATCH, shuffle=True, drop_last=True, num_workers=workers)


def main() -> None:
    args = base.arguments(__doc__ or "", samples=None, synthetic=12, workers=2, rounds=3, steps=10)
    torch.set_num_threads(1)  # the trainer's own work is the step
    cv2.setNumThreads(0)
    rows, figures = {}, {}
    with base.scratch() as scratch:
        folder = sets(args.samples, scratch, args.synthetic)
        for name, times in MORE_STEPS.items():
            steps = times * args.steps
            items = steps * BATCH
            makers: dict[str, Callable[[], Iterable[Any]]] = {
                "folder": partial(from_folder, folder / name, items, args.workers),
                "pack": partial(from_pack, folder / name, scratch, items, args.workers),
            }
            step_s = OF_A_BATCH * waited(makers["folder"](), steps, 0)[1]
            found: dict[str, list[tuple[float, float]]] = {each: [] for each in makers}
            for _ in range(args.rounds):
                for each, make in makers.items():
                    found[each].append(waited(make(), steps, step_s))
            for each, values in found.items():
                rows[f"{name}, {each}, a step of {1000 * step_s:.0f} ms"] = (
                    f"waits {base.spread([100 * share for share, _ in values], '%', 1)}, "
                    f"{1000 * statistics.median(seconds for _, seconds in values):.0f} ms per step"
                )
            figures[name] = {"step_s": step_s, "share_and_seconds": found}
    base.report(f"Waiting for grasp items, batches of {BATCH}, {args.workers} workers", rows, figures, args)


if __name__ == "__main__":
    main()
