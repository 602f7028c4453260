"""A pack of photos staged as it is and with its images as ycc420: images/s from there, bytes, and the time it takes.

Each copy is made and released by the command, whole processes in turn; then packer.Loader reads both in turn, crops
(RandomResizedCrop 224 and flip) and whole images, with two threads and two workers. The page cache holds the pack.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import base

import packer
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop

BATCH = 64
SIDE = 224
COPIES: dict[str, list[str]] = {"as it is": [], "as ycc420": ["--as", "ycc420"]}
LOADERS = {"threads": {"threads": 2}, "workers": {"num_workers": 2}}


def reads(pack: Path, to: str, *, copy: str, task: str, how: dict[str, int]) -> Callable[[], float]:
    """images/s of an epoch."""
    crop = Compose(RandomResizedCrop(SIDE, antialias=False), RandomHorizontalFlip()) if task == "crops" else None
    codec = COPIES[copy][-1] if COPIES[copy] else None
    data_set = packer.open(pack, fields=("image",), stage=to, stage_as=codec)
    loader = packer.Loader(data_set, BATCH, shuffle=True, geometry=crop, **how)

    def run() -> float:
        took = -time.perf_counter()
        images = sum(len(batch["image"]) for batch in loader)
        return images / (took + time.perf_counter())

    return run


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=2000, rounds=5, to="auto")
    with base.scratch() as scratch:
        pack = scratch / "photos.pack"
        photos = base.photos(args.folder, scratch, args.samples)
        subprocess.run([*base.PACKER, "convert", str(photos), str(pack)], check=True)
        stage = [*base.PACKER, "stage", str(pack), "--to", args.to]

        def staged(options: list[str]) -> float:
            subprocess.run([*stage, "--release"], check=True, stdout=subprocess.DEVNULL)
            return base.seconds([*stage, *options])

        commands = {copy: lambda options=options: staged(options) for copy, options in COPIES.items()}
        times = base.interleaved(commands, args.rounds)  # type: ignore[arg-type]
        try:
            sizes = {}
            for copy, options in COPIES.items():
                base.seconds([*stage, *options])
                listed = subprocess.run([*stage, "--list", "--json"], check=True, capture_output=True).stdout
                codec = options[-1] if options else None
                found = [each for each in json.loads(listed) if each["origin"] == str(pack.resolve())]
                sizes[copy] = next(each["bytes"] for each in found if each["codec"] == codec)
            runs = {
                f"{task}, {way}, {copy}": reads(pack, args.to, copy=copy, task=task, how=how)
                for task in ("crops", "whole")
                for way, how in LOADERS.items()
                for copy in COPIES
            }
            rates = base.interleaved(runs, args.rounds)
            del runs
        finally:
            subprocess.run([*stage, "--release", "--force"], check=True)
    rows = {f"time, {copy}": f"{base.spread(values, 's', 2)}" for copy, values in times.items()}
    rows |= {f"bytes, {copy}": f"{size / 1e6:.1f} MB" for copy, size in sizes.items()}
    plain = "as it is"
    for name, values in rates.items():
        same = f"{name.rpartition(', ')[0]}, {plain}"
        rows[name] = f"{base.spread(values, 'images/s', 0)}, this / as it is {base.ratio(rates, name, same):.2f}"
    figures = {"seconds": times, "bytes": sizes, "images_per_second": rates}
    base.report(f"staged: {args.samples} photos at most, crops of {SIDE} px", rows, figures, args)


if __name__ == "__main__":
    main()
