"""Crops of 224 px out of large photos through packer.Loader, against two threads that decode all and cut."""

import statistics
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import base
import numpy as np
import simplejpeg

import packer
from packer.geometry import RandomCrop

SIDE, BATCH, THREADS = 224, 16, 2
CODECS = {"packer, jpeg:90": "jpeg:90", "packer, kept bytes": "encoded"}


def decode_all(files: list[bytes]) -> None:
    """Every image decoded whole by one of the threads, and a crop of it copied into a batch."""

    def run(number: int) -> None:
        random, out = np.random.default_rng(number), np.empty((BATCH, SIDE, SIDE, 3), np.uint8)
        for at, file in enumerate(files[number::THREADS]):
            whole = simplejpeg.decode_jpeg(file)
            top, left = (int(random.integers(0, length - SIDE + 1)) for length in whole.shape[:2])
            out[at % BATCH] = whole[top : top + SIDE, left : left + SIDE]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def drained(loader: packer.Loader) -> None:
    for _ in loader:
        pass


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=128, rounds=5)
    with base.scratch() as scratch:
        photos: Path = args.folder or scratch / "photos"
        if args.folder is None:
            command = [*base.PACKER, "synth", "folder", str(photos), "--samples", str(args.samples)]
            subprocess.run([*command, "--size", "3000x2000"], check=True)
        files = [path.read_bytes() for path in sorted(photos.rglob("*.jp*g"))]
        runs = {"decode all, cut": partial(decode_all, files)}
        for number, (name, codec) in enumerate(CODECS.items()):
            pack = scratch / f"{number}.pack"
            base.seconds([*base.PACKER, "convert", photos, pack, "--codec", f"image={codec}"])
            data_set = packer.open(pack, fields=("image",), geometry=RandomCrop(SIDE))
            runs[name] = partial(drained, packer.Loader(data_set, BATCH, shuffle=True, threads=THREADS))

        def rate(name: str) -> float:
            started = time.perf_counter()
            runs[name]()
            return len(files) / (time.perf_counter() - started)

        found = base.interleaved({name: lambda name=name: rate(name) for name in runs}, args.rounds)
    rows = {name: base.spread(values, "images/s", 0) for name, values in found.items()}
    for name in CODECS:
        ratio = statistics.median(found[name]) / statistics.median(found["decode all, cut"])
        rows[f"{name} / decode all"] = f"{ratio:.1f}"
    base.report(f"crops of {SIDE} px out of {len(files)} photos, {THREADS} threads", rows, found, args)


if __name__ == "__main__":
    sys.exit(main())
