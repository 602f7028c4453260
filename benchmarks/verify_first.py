"""What verify="first" costs: JPEGs read for the first time, each crc32 compared, against verify="never"."""

import subprocess
import time
from pathlib import Path

import base
import numpy as np

from packer.datasets.pack_dataset import PackDataset


def epoch(pack: Path, verify: str, *, batch_size: int, seed: int) -> float:
    """images/s of one shuffled epoch of a data set that nobody has read from before: first is really first."""
    dataset = PackDataset(pack, ("image", "label"), verify=verify)
    order = np.random.default_rng(seed).permutation(len(dataset)).tolist()
    started = time.perf_counter()
    for at in range(0, len(order), batch_size):
        dataset.__getitems__(order[at : at + batch_size])
    return len(order) / (time.perf_counter() - started)


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=2000, batch_size=64, rounds=15, to="lmdb")
    with base.scratch() as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        pack = scratch / "photos.pack"
        subprocess.run([*base.PACKER, "convert", str(photos), str(pack), "--to", args.to], check=True)
        seeds = iter(range(1 << 30))

        def run(verify: str) -> float:
            return epoch(pack, verify, batch_size=args.batch_size, seed=next(seeds) // 2)

        found = base.interleaved({name: lambda name=name: run(name) for name in ("first", "never")}, args.rounds)
    cost = 100 * (1 - base.ratio(found, "first", "never"))
    rows = {f'verify="{name}"': base.spread(values, "images/s", 0) for name, values in found.items()}
    rows["cost of first"] = f"{cost:.1f} %  (wanted: <= 3)"
    figures = {"images_per_second": found, "cost_percent": cost}
    base.report(f"first read of {args.samples} JPEGs, one thread, {args.to}", rows, figures, args)


if __name__ == "__main__":
    main()
