"""What more threads of packer.Loader give, and workers: from every format, JPEGs and raw images.

Beside them processes of one thread each, which share nothing: what they give and threads do not is what the GIL takes.
"""

import multiprocessing
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import base

import packer
from packer import formats
from packer.geometry import Compose, Geometry, RandomHorizontalFlip, RandomResizedCrop

BATCH = 64
SIDE = 224
SECONDS = 2.0
CROPS = "crops of jpeg:90"


def build(photos: Path, scratch: Path, only: str) -> dict[str, Path]:
    """A pack of raw images, and one of the files' own bytes, in each format; one for crops. only: a part of names."""
    resized = ["--resize", f"{SIDE}x{SIDE}"]  # in bmp an image is a BMP, elsewhere its pixels
    raw = {form: resized if form == "bmp" else [*resized, "--codec", "image=raw"] for form in formats.names()}
    wanted = {
        **{f"kept, {form}": ["--to", form, "--codec", "image=encoded"] for form in formats.names()},
        **{f"raw, {form}": ["--to", form, *options] for form, options in raw.items()},
        CROPS: ["--codec", "image=jpeg:90"],
    }
    found = {}
    for name, options in wanted.items():
        if only in name:
            found[name] = scratch / f"{len(found)}.pack"
            subprocess.run([*base.PACKER, "convert", str(photos), str(found[name]), *options], check=True)
    return found


def geometry(name: str) -> Geometry | None:
    """RandomResizedCrop and flip, for those that are cropped."""
    return Compose(RandomResizedCrop(SIDE, antialias=False), RandomHorizontalFlip()) if name == CROPS else None


def reads(name: str, pack: Path, **how: int) -> Callable[[], float]:
    """images/s over whole epochs of at least some seconds. how: threads or num_workers of the Loader."""
    data_set = packer.open(pack, fields=("image",))
    loader = packer.Loader(data_set, BATCH, shuffle=True, geometry=geometry(name), **how)

    def run() -> float:
        images, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < SECONDS:
            images += sum(len(batch["image"]) for batch in loader)
        return images / took

    return run


def serve(pipe: Connection, name: str, pack: Path) -> None:
    """One process: answers each line with its images/s."""
    run = reads(name, pack, threads=1)
    run()
    with suppress(EOFError):  # the other end is gone
        while pipe.recv():
            pipe.send(run())


def processes(name: str, pack: Path, count: int) -> Callable[[], float]:
    """images/s of so many processes of one thread each, at once."""
    context, pipes = multiprocessing.get_context("spawn"), []
    for _ in range(count):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, name, pack), daemon=True).start()
        theirs.close()
        pipes.append(ours)

    def run() -> float:
        for pipe in pipes:
            pipe.send(1)
        return sum(float(pipe.recv()) for pipe in pipes)

    return run


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=2000, rounds=5, threads="1,2,4", only="")
    rows, figures = {}, {}
    counts = [int(word) for word in args.threads.split(",")]
    with base.scratch() as scratch:
        packs = build(base.photos(args.folder, scratch, args.samples), scratch, args.only)
        for name, pack in packs.items():
            runs = {f"{count} threads": reads(name, pack, threads=count) for count in counts}
            runs["2 workers"] = reads(name, pack, num_workers=2)
            runs["2 processes"] = processes(name, pack, 2)
            found = figures[name] = base.interleaved(runs, args.rounds)
            first = f"{counts[0]} threads"
            rows[name] = ", ".join(
                f"{way} {statistics.median(values):.0f}/s ({base.ratio(found, way, first):.2f})"
                for way, values in found.items()
            )
    base.report("packer.Loader over threads: images/s (times that of the first)", rows, {"found": figures}, args)


if __name__ == "__main__":
    main()
