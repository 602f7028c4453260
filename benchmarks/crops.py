"""Decoding a crop: time against its area, for kept bytes and for jpeg:90, and how long each image holds the GIL.

The time is the CPU time of one thread that decodes boxes of random places and a random aspect (3/4 to 4/3), the same
ones of every file, in turn. How long the interpreter is held, which is what many threads share, is measured as the time
of a call in which libjpeg-turbo's own work, done without the GIL, is taken out: by a C function that returns at once
(PyTurboJPEG), or by an image of one pixel (simplejpeg, which leaves some 2 us of C in). What is left is Python, NumPy
and ctypes; it is the least of many rounds, since whatever else runs on the machine only adds.
"""

import ctypes
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import base
import cv2
import numpy as np
import simplejpeg

from packer import codecs
from packer.images import DecodeOptions, Header, decode, sniff
from packer.images.backends import simplejpeg as simplejpeg_backend
from packer.images.backends import strict_jpeg, turbojpeg
from packer.images.lossless_jpeg_crop import Box
from packer.images.region_decoder import decode_region
from packer.schema import Field

SIZES = ((500, 375), (1000, 750), (2000, 1333), (3000, 2000))
AREAS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9, 1.0)
BOXES = 24
TRUSTED = DecodeOptions(trusted=True, interval_tables=True)

File = tuple[bytes, Header]


def files(scratch: Path, size: tuple[int, int], photos: Path | None) -> dict[str, list[File]]:
    """Images of that size as OpenCV writes them at quality 90, and as packer's codec does."""
    folder = scratch / f"{size[0]}x{size[1]}"
    if photos is None:
        words = ["synth", "folder", str(folder), "--samples", "4", "--seed", "0", "--size", f"{size[0]}x{size[1]}"]
        subprocess.run([*base.PACKER, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    paths = sorted(path for path in (photos or folder).rglob("*") if path.suffix in (".jpg", ".jpeg"))[:4]
    pixels = [cv2.resize(decode(path.read_bytes(), "image"), size, interpolation=cv2.INTER_CUBIC) for path in paths]
    codec = codecs.load("jpeg").Codec(Field("image", "image", "jpeg:90", dtype="uint8", shape=(None, None, 3)))
    made = {
        "kept": [
            cv2.imencode(".jpg", each[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes() for each in pixels
        ],
        "jpeg:90": [codec.encode(each) for each in pixels],
    }
    return {name: [(file, sniff(file)) for file in each] for name, each in made.items()}


def boxes(size: tuple[int, int], area: float) -> list[Box]:
    """As RandomResizedCrop chooses them, of one area."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(BOXES):
        aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        width = min(size[0], max(1, round((size[0] * size[1] * area * aspect) ** 0.5)))
        height = min(size[1], max(1, round(size[0] * size[1] * area / width)))
        top, left = random.integers(0, size[1] - height + 1), random.integers(0, size[0] - width + 1)
        found.append((int(top), int(left), height, width))
    return found


def once(chosen: list[File], wanted: list[Box], *, eighths: int = 8) -> float:
    """Microseconds per image."""
    started = time.thread_time()
    for number, box in enumerate(wanted):
        file, found = chosen[number % len(chosen)]
        decode_region(file, found, box=box, eighths=eighths, options=TRUSTED)
    return (time.thread_time() - started) / len(wanted) * 1e6


def against_area(made: dict[str, list[File]], size: tuple[int, int], rounds: int) -> dict[str, dict[float, float]]:
    """Time of each kind for each area, as a share of decoding all of the kept bytes."""
    shares: dict[str, dict[float, float]] = {name: {} for name in made}
    for area in AREAS:
        wanted = boxes(size, area)
        runs = {name: lambda each=each, wanted=wanted: once(each, wanted) for name, each in made.items()}
        runs["whole"] = lambda: once(made["kept"], boxes(size, 1.0))
        measured = base.interleaved(runs, rounds)
        for name in made:
            shares[name][area] = base.ratio(measured, name, "whole")
    return shares


def best(run: Callable[[], Any], *, calls: int = 1000, rounds: int = 15) -> float:
    """Microseconds of a call; the least, since all else that runs on the machine only adds."""
    least = float("inf")
    for _ in range(rounds):
        started = time.thread_time()
        for _ in range(calls):
            run()
        least = min(least, time.thread_time() - started)
    return least / calls * 1e6


def without_decoding(library: strict_jpeg.JPEGLibrary) -> Any:
    """A patch that takes libjpeg-turbo's work out of a library."""
    if isinstance(library, turbojpeg.PyTurboJPEG):
        # abs(0) of the C library is 0, which means success; further arguments of a C call do not matter to it
        nothing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 8)(("abs", ctypes.CDLL(None)))
        return mock.patch.object(library, "_decompress", lambda handle, *rest: nothing(0, *rest))
    tiny, real = simplejpeg.encode_jpeg(np.zeros((1, 1, 3), np.uint8)), simplejpeg.decode_jpeg

    def decode_tiny(data: Any, form: str, fast: bool, up: bool, *rest: Any) -> Any:
        real(tiny, form, fast, up, 0, 0, 1, rest[3], True)
        return rest[3]

    return mock.patch.object(simplejpeg.simplejpeg, "decode_jpeg", decode_tiny)


def libraries() -> dict[str, strict_jpeg.JPEGLibrary]:
    """Each way to call libjpeg-turbo that works here; PyTurboJPEG needs the system's library."""
    found: dict[str, strict_jpeg.JPEGLibrary] = {}
    try:
        found["PyTurboJPEG"] = turbojpeg.PyTurboJPEG()
    except (RuntimeError, OSError) as error:
        print(f"without PyTurboJPEG: {error}")
    return {**found, "simplejpeg": simplejpeg_backend.SimpleJPEG()}


def held(made: dict[str, list[File]], size: tuple[int, int]) -> dict[str, float]:
    """Microseconds of a call without decoding, by kind and library."""
    (box,) = boxes(size, 0.35)[:1]
    (plain, plain_header), (file, header) = made["kept"][0], made["jpeg:90"][0]
    bare = cv2.imencode(".jpg", decode(file, "image"), [cv2.IMWRITE_JPEG_RST_INTERVAL, header.intervals.mcus])[
        1
    ].tobytes()
    bare_header = sniff(bare)
    out = np.empty((size[1], size[0], 3), np.uint8)
    found = {"header, kept": best(lambda: sniff(plain)), "header, jpeg:90": best(lambda: sniff(file))}
    for name, library in libraries().items():
        with without_decoding(library), mock.patch.object(strict_jpeg, "library", lambda library=library: library):
            found[f"whole into out, {name}"] = best(lambda: decode_region(plain, plain_header, out=out))
            found[f"crop, {name}"] = best(lambda: decode_region(file, header, box=box, options=TRUSTED))
            found[f"crop, no table, {name}"] = best(lambda: decode_region(bare, bare_header, box=box))
    return found


def explain_missing() -> None:
    """End with what to install, before minutes of measuring."""
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("--plot needs the package 'matplotlib': scripts/install plot")


def plot(shares: dict[str, dict[str, dict[float, float]]], path: Path) -> None:
    """A PNG of time against area."""
    from matplotlib import pyplot  # noqa: PLC0415  an extra

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for size, kinds in shares.items():
        axes.plot(list(kinds["jpeg:90"]), list(kinds["jpeg:90"].values()), marker="o", label=f"jpeg:90, {size}")
    mean = [statistics.mean(kinds["kept"][area] for kinds in shares.values()) for area in AREAS]
    axes.plot(AREAS, mean, color="black", linestyle="--", label="kept bytes, any size")
    axes.set(xlabel="area of the crop / image", ylabel="time / decoding the whole", xlim=(0, 1.02), ylim=(0, 1.2))
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    args = base.arguments(__doc__ or "", rounds=7, photos=None, plot=None)
    if args.plot:
        explain_missing()
    shares, rows = {}, {}
    with base.scratch() as scratch:
        for size in SIZES:
            name = f"{size[0]}x{size[1]}"
            made = files(scratch, size, args.photos)
            shares[name] = against_area(made, size, args.rounds)
            for kind, share in shares[name].items():
                rows[f"{name}, {kind}: time by area"] = "  ".join(f"{a:.2f}: {t:.2f}" for a, t in share.items())
            if size == SIZES[0]:
                small = made
            sizes = {kind: sum(len(file) for file, _ in each) for kind, each in made.items()}
            rows[f"{name}: bytes"] = f"jpeg:90 / kept {sizes['jpeg:90'] / sizes['kept']:.4f}"
        held_us = held(small, SIZES[0])
        rows |= {f"GIL, {kind}": f"{us:.1f} us" for kind, us in held_us.items()}
    figures = {"time_by_area": shares, "gil_us": held_us}
    if args.plot:
        plot(shares, args.plot)
    base.report("crops: time / decoding the whole of kept bytes", rows, figures, args)


if __name__ == "__main__":
    main()
