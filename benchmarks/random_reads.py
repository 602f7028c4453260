"""Random reads of small raw images (224x224x3) from each format, beside a plain copy of the same bytes."""

import statistics
import subprocess
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import base
import numpy as np

from packer import formats
from packer.datasets.pack_dataset import PackDataset

SIDE = 224
MOST_RATIO = 1.5


def copies(samples: int, batch_size: int) -> Callable[[], float]:
    """samples/s of NumPy copying images from random places of one array into new memory, as reads do."""
    source = np.ones((samples, SIDE, SIDE, 3), np.uint8)

    def run() -> float:
        order = np.random.default_rng().permutation(samples)
        started = time.perf_counter()
        for at in range(0, samples, batch_size):
            batch = np.empty((min(batch_size, samples - at), SIDE, SIDE, 3), np.uint8)
            for position, index in enumerate(order[at : at + batch_size].tolist()):
                batch[position] = source[index]
        return samples / (time.perf_counter() - started)

    return run


def reads(pack: Path, batch_size: int) -> Callable[[], float]:
    """samples/s of a data set, every sample once in random order; batch_size 1: `dataset[i]`."""
    dataset = PackDataset(pack, ("image",))

    def run() -> float:
        order = np.random.default_rng().permutation(len(dataset)).tolist()
        started = time.perf_counter()
        if batch_size == 1:
            for index in order:
                dataset[index]
        else:
            for at in range(0, len(order), batch_size):
                dataset.__getitems__(order[at : at + batch_size])
        return len(order) / (time.perf_counter() - started)

    return run


def build(photos: Path, scratch: Path) -> dict[str, Path]:
    """A pack of raw images in each format, all made of the first one."""
    found: dict[str, Path] = {}
    for name in formats.names():
        pack = scratch / f"{name}.pack"
        command = [*base.PACKER, "convert", str(next(iter(found.values()), photos)), str(pack), "--to", name]
        if not found:
            command += ["--resize", f"{SIDE}x{SIDE}", "--codec", "image=raw"]
        subprocess.run(command, check=True)
        found[name] = pack
    return found


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=2000, batch_size=64, rounds=9)
    with base.scratch() as scratch:
        found_packs = build(base.photos(args.folder, scratch, args.samples), scratch)
        count = len(PackDataset(next(iter(found_packs.values()))))
        runs = {"plain copy": copies(count, args.batch_size)}
        for name, pack in found_packs.items():
            runs[f"{name}, one by one"] = reads(pack, 1)
            runs[f"{name}, batches"] = reads(pack, args.batch_size)
        found = base.interleaved(runs, args.rounds)
    rows = {name: base.spread(values, "samples/s", 0) for name, values in found.items()}
    for name in found_packs:
        rows[f"{name}, batches / plain copy"] = f"{base.ratio(found, f'{name}, batches', 'plain copy'):.2f}"
    mapped = [name for name in found_packs if not formats.load(name).Reader.is_folder]  # a file per image is opened
    for way in ("one by one", "batches"):
        medians = [statistics.median(found[f"{name}, {way}"]) for name in mapped]
        worst = max((max(pair) / min(pair) for pair in combinations(medians, 2)), default=1.0)
        rows[f"fastest / slowest of {', '.join(mapped)}, {way}"] = f"{worst:.2f}  (wanted: <= {MOST_RATIO})"
    title = f"random reads of {count} raw images of {SIDE}x{SIDE}x3, batches of {args.batch_size}, one thread"
    base.report(title, rows, {"samples_per_second": found}, args)


if __name__ == "__main__":
    main()
