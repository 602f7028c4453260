"""Memory of a training process and its workers with whole images, and what more batches ahead gain.

A step that takes as long as loading its batch or longer lets batches pile up, to as many as `prefetch_bytes` allows:
that is the case that counts for memory. Each figure is of a process of its own.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import base

import packer

STEP_S = 0.06  # more than it takes to load a batch of these images with two cores
_CHILD = """
import json, os, sys, time
from packer.system.resource_usage import MemoryWatch, memory_mb
def own(): return memory_mb(os.getpid())["own"]
import numpy, torch
found = {"torch": own()}
import packer
options, step = json.loads(sys.argv[2]), float(sys.argv[3])
loader = packer.Loader(packer.open(sys.argv[1], fields=("image",)), int(sys.argv[4]), shuffle=True, **options)
found["opened"] = own()
def epoch():
    for batch in loader:
        batch["image"][:, :, ::16, ::16].sum()
        time.sleep(step)
    return batch["image"].nbytes
with MemoryWatch(0.02) as watch:
    for _ in range(2):
        epoch()
    found["batch"] = next(iter(loader))["image"].nbytes / 1e6
found["peak"] = watch.peak["own"]
print(json.dumps(found))
loader.close()
"""


def memory(pack: Path, batch: int, step: float, **options: int) -> dict[str, float]:
    """MB of anonymous and shared memory of a process tree: torch imported, pack opened, highest; and of a batch."""
    words = [sys.executable, "-c", _CHILD, str(pack), json.dumps(options), str(step), str(batch)]
    found: dict[str, float] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def epoch(loader: packer.Loader, step: float) -> Callable[[], float]:
    """images/s of one epoch whose steps take from nothing to twice `step`, the same ones each time."""

    def run() -> float:
        draws, images, started = random.Random(0), 0, time.perf_counter()
        for batch in loader:
            images += len(batch["image"])
            time.sleep(draws.uniform(0, 2 * step))
        return images / (time.perf_counter() - started)

    return run


def main() -> None:
    args = base.arguments(__doc__ or "", photos=None, pack=None, samples=1024, rounds=9, batch=64)
    rows, figures = {}, {}
    with base.scratch() as scratch:
        pack = args.pack or scratch / "photos.pack"
        if args.pack is None:
            photos = base.photos(args.photos, scratch, args.samples)
            subprocess.run([*base.PACKER, "convert", str(photos), str(pack), "--to", "lmdb"], check=True)
        engines = {"2 threads": {"threads": 2}, "2 workers": {"num_workers": 2}}
        engines["2 threads, prefetch_bytes=256 MiB"] = {"threads": 2, "prefetch_bytes": 256 << 20}
        for name, options in engines.items():
            for title, step in (("fast steps", 0.0), ("slow steps", STEP_S)):
                found = figures[f"{name}, {title}"] = memory(pack, args.batch, step, **options)
                batches = (found["peak"] - found["opened"]) / found["batch"]
                rows[f"{name}, {title}"] = (
                    f"peak {found['peak']:.0f} MB: torch {found['torch']:.0f}, opened pack "
                    f"{found['opened'] - found['torch']:.0f}, the rest {batches:.1f} batches of {found['batch']:.0f}"
                )
        for title, step in (("fast steps", 0.0), ("uneven steps", STEP_S / 2)):
            runs = {}
            for name, options in {"default": {}, "256 MiB": {"prefetch_bytes": 256 << 20}}.items():
                data_set = packer.open(pack, fields=("image",))
                loader = packer.Loader(data_set, args.batch, shuffle=True, threads=2, **options)
                runs[name] = epoch(loader, step)
            times = base.interleaved(runs, args.rounds)
            figures[f"images/s, {title}"] = times
            rows[f"images/s, {title}"] = (
                f"{base.spread(times['default'], 'images/s', 0)}, with prefetch_bytes=256 MiB "
                f"{base.spread(times['256 MiB'], 'images/s', 0)}, ratio {base.ratio(times, 'default', '256 MiB'):.3f}"
            )
    base.report("memory of training", rows, figures, args)


if __name__ == "__main__":
    main()
