"""Items of GG-CNN from a pack against its own path with scikit-image: same items, same maps, one core, in turn.

Needs scikit-image and imageio. --samples: a folder that holds `cornell` and `jacquard`; without it, synthetic ones.
Every item is RGB-D at 300 px with the exact maps, turned and zoomed by the numbers that packer draws for it.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import base
import cv2
import numpy as np
import torch
from grasp_reference import Reference

import packer
from packer.geometry import draw
from packer.grasp import GraspDataset, TurnAndZoom

SMALL = ("--codec", "rgb=jpeg:95", "--codec", "depth=raw:float16")
PACKS = {  # name -> set, options, wanted times the reference
    "jacquard, raw": ("jacquard", (), 150),
    "jacquard, jpeg:95 + float16": ("jacquard", SMALL, 100),
    "cornell, raw": ("cornell", (), 25),
}
BATCH = 16
WARM = 8  # batches before the time is taken: memory is there, and as many are made ahead as ever


def on_cores(count: int, run: Callable[[], float]) -> float:
    """What `run` returns on that many cores; threads that it starts stay on them."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:count])
    try:
        return run()
    finally:
        os.sched_setaffinity(0, every)


def reference_rate(reference: Reference, seed: int) -> float:
    """Items/s of the whole set, once."""
    seen = draw(seed, 0, np.arange(len(reference)), TurnAndZoom.draws)
    turns = [TurnAndZoom().chosen(numbers) for numbers in seen.tolist()]
    started = time.perf_counter()
    for index, (rot, zoom) in enumerate(turns):
        reference.item(index, rot, zoom)
    return len(reference) / (time.perf_counter() - started)


def single_rate(dataset: GraspDataset, items: int) -> float:
    """Items/s of dataset[i]."""
    started = time.perf_counter()
    for number in range(items):
        dataset[number % len(dataset)]
    return items / (time.perf_counter() - started)


def loader_rate(dataset: GraspDataset, items: int, **how: int) -> float:
    """Items/s of batches from packer.Loader with these threads or workers, after some batches."""
    steps = items // BATCH
    loader = packer.Loader(dataset, BATCH, shuffle=True, steps_per_epoch=steps + WARM, **how)
    batches = iter(loader)
    for _ in range(WARM):
        next(batches)
    started = time.perf_counter()
    for _ in batches:
        pass
    rate = steps * BATCH / (time.perf_counter() - started)
    loader.close()
    return rate


def sets(folder: Path | None, scratch: Path, samples: int) -> Path:
    """The given folder, or one with synthetic sets."""
    if folder is not None:
        return folder
    for name in ("cornell", "jacquard"):
        command = [*base.PACKER, "synth", name, str(scratch / name), "--samples", str(samples)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return scratch


def main() -> None:
    args = base.arguments(__doc__ or "", samples=None, synthetic=12, items=640, rounds=5)
    torch.set_num_threads(1)
    with base.scratch() as scratch:
        folder = sets(args.samples, scratch, args.synthetic)
        runs: dict[str, Callable[[], float]] = {}
        for name in ("jacquard", "cornell"):
            reference = Reference(folder / name)
            runs[f"{name}, reference"] = lambda it=reference: on_cores(1, lambda: reference_rate(it, 0))
        for number, (name, (source, options, _)) in enumerate(PACKS.items()):
            pack = scratch / f"{number}.pack"
            command = [*base.PACKER, "convert", str(folder / source), str(pack), "--preset", "ggcnn", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            one = GraspDataset(pack, 300, seed=0)
            runs[f"{name}, dataset[i]"] = lambda it=one: on_cores(1, lambda: single_rate(it, args.items))
            for how, count in (("threads", 1), ("threads", 2), ("num_workers", 2)):
                runs[f"{name}, Loader, {count} {how.removeprefix('num_')}"] = lambda it=one, how=how, n=count: on_cores(
                    n, lambda: loader_rate(it, args.items, **{how: n})
                )
        cv2.setNumThreads(0)
        found = base.interleaved(runs, args.rounds)
    report(found, args)


def report(found: dict[str, list[float]], args: argparse.Namespace) -> None:
    """The rates, and the ratios that are wanted."""
    rows: dict[str, str] = {name: base.spread(values, "items/s", 1) for name, values in found.items()}
    figures: dict[str, Any] = {"items_per_second": found}
    for name, (source, _, wanted) in PACKS.items():
        for how in ("Loader, 1 threads", "dataset[i]"):
            ratio = base.ratio(found, f"{name}, {how}", f"{source}, reference")
            rows[f"{name}, {how} / reference"] = f"{ratio:.0f}  (wanted: >= {wanted})"
        for how in ("threads", "workers"):
            scaling = base.ratio(found, f"{name}, Loader, 2 {how}", f"{name}, Loader, 1 threads")
            rows[f"{name}, Loader, 2 {how} / one core"] = f"{scaling:.2f}  (wanted: >= 1.8)"
    base.report("Grasp items, RGB-D, 300 px, random turn and zoom, exact maps", rows, figures, args)


if __name__ == "__main__":
    main()
