"""How near codec ycc420 comes to the pixels of a folder's images, whole and in crops, in how much time and bytes.

Whole images are compared with what libjpeg makes of the same file, or other images' own pixels: 4:2:0 JPEGs, whose
planes are kept, apart from all others, whose chroma is made smaller. Crops are compared with the same crop of what the
codec decodes whole: what scaling each plane by itself changes. Differences are in gray levels, the mean that over all
images; PSNR is each image's (99 dB of equal ones), its median and that of the worst. Times are CPU time of one
thread, in turn: the same images and crops of what the codec stores, of the pixels of codec raw, and of the files
decoded whole. Everything is in memory.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import base
import cv2
import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.codecs import base as base_codec
from packer.errors import PackerError
from packer.geometry import RandomResizedCrop, View, draw
from packer.geometry.warp import warp
from packer.images import decode, sniff
from packer.schema import Field

SIDE = 224
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
PLANES, OTHERS = "4:2:0 JPEGs", "other images"
CROPS = {
    "crops": RandomResizedCrop(SIDE, antialias=False),
    "crops, antialiased": RandomResizedCrop(SIDE, antialias=True),
}
_EQUAL_DB = 99.0

Pixels = npt.NDArray[np.uint8]


class Differences:
    """Of pairs of images, in gray levels."""

    def __init__(self) -> None:
        self._most = 0
        self._means = list[float]()
        self._psnr = list[float]()

    def add(self, one: Pixels, other: Pixels) -> None:
        """Compare two images of one size."""
        apart = np.abs(one.astype(np.int16) - other)
        self._most = max(self._most, int(apart.max()))
        self._means.append(float(apart.mean()))
        error = float(np.square(apart, dtype=np.int32).mean())
        self._psnr.append(min(_EQUAL_DB, 10 * math.log10(255**2 / error)) if error else _EQUAL_DB)

    def figures(self) -> dict[str, float]:
        """By name; empty where nothing was compared."""
        if not self._means:
            return {}
        mean, median = statistics.mean(self._means), statistics.median(self._psnr)
        return {"pairs": len(self._means), "most": self._most, "mean": mean, "psnr": median, "least": min(self._psnr)}


def images(folder: Path, most: int) -> Iterator[tuple[bytes, Pixels]]:
    """File and pixels of each image that packer reads."""
    count = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in SUFFIXES or count == most:
            continue
        file = path.read_bytes()
        try:
            pixels = decode(file, "image")
        except PackerError as error:
            print(f"  left out: {path}: {error}", file=sys.stderr)
            continue
        count += 1
        yield file, pixels


class Measured(NamedTuple):
    """Differences by what is compared; of each image its file, what codec ycc420 stores, its pixels, and crops."""

    differences: dict[str, Differences]
    files: list[bytes]
    stored: list[bytes]
    pixels: list[Pixels]
    views: dict[str, list[list[View]]]


def measured(codec: base_codec.Codec, folder: Path, most: int, crops: int) -> Measured:
    """Every image compared, whole and in crops."""
    found = Measured(
        {name: Differences() for name in (PLANES, OTHERS, *CROPS)}, [], [], [], {name: [] for name in CROPS}
    )
    for index, (file, pixels) in enumerate(images(folder, most)):
        planes = codec.encode_file(file, sniff(file))
        stored = planes if planes is not None else codec.encode(pixels)
        whole = codec.decode(stored)
        found.differences[OTHERS if planes is None else PLANES].add(whole, pixels)
        found.files.append(file)
        found.stored.append(stored)
        found.pixels.append(pixels)
        for name, geometry in CROPS.items():
            numbers = (draw(0, epoch, np.asarray([index]), geometry.draws)[0].tolist() for epoch in range(crops))
            views = [geometry.view(*pixels.shape[:2], each) for each in numbers]
            found.views[name].append(views)
            for view in views:
                found.differences[name].add(codec.decode(stored, view), warp(whole, view, "image"))
    return found


def timed(codec: base_codec.Codec, found: Measured, rounds: int) -> dict[str, list[float]]:
    """Microseconds per image of every round."""
    out = np.empty((SIDE, SIDE, 3), np.uint8)
    memory = np.empty(max(each.size for each in found.pixels), np.uint8)
    wholes = [memory[: each.size].reshape(each.shape) for each in found.pixels]

    def cropped(name: str, crop: Callable[[int, View], object]) -> float:
        started = time.thread_time()
        for index, views in enumerate(found.views[name]):
            for view in views:
                crop(index, view)
        return (time.thread_time() - started) / sum(map(len, found.views[name])) * 1e6

    def whole(read: Callable[[int], object]) -> float:
        started = time.thread_time()
        for index in range(len(found.files)):
            read(index)
        return (time.thread_time() - started) / len(found.files) * 1e6

    runs: dict[str, Callable[[], float]] = {
        "whole, ycc420": lambda: whole(lambda at: codec.decode(found.stored[at], None, wholes[at])),
        "whole, raw": lambda: whole(lambda at: np.copyto(wholes[at], found.pixels[at])),
        "whole, files": lambda: whole(lambda at: decode(found.files[at], "image", out=wholes[at])),
    }
    for name in CROPS:
        ways: dict[str, Callable[[int, View], object]] = {
            "ycc420": lambda at, view: codec.decode(found.stored[at], view, out),
            "raw": lambda at, view: warp(found.pixels[at], view, "image", out=out),
            "files": lambda at, view: warp(decode(found.files[at], "image", out=wholes[at]), view, "image", out=out),
        }
        runs |= {f"{name}, {way}": lambda name=name, crop=crop: cropped(name, crop) for way, crop in ways.items()}  # type: ignore[misc]
    return base.interleaved(runs, rounds)


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=300, crops=4, rounds=5)
    cv2.setNumThreads(0)  # threads of OpenCV's own would not count
    codec = codecs.make(Field("image", "image", "ycc420", dtype="uint8", shape=(None, None, 3)))
    with base.scratch() as scratch:
        found = measured(codec, base.photos(args.folder, scratch, args.samples), args.samples, args.crops)
    if not found.files:
        raise SystemExit(f"{args.folder}: no image with one of the suffixes {', '.join(SUFFIXES)} that packer reads")
    differences = {name: made for name, each in found.differences.items() if (made := each.figures())}
    rows = {
        name: f"{each['pairs']} pairs: at most {each['most']}, mean {each['mean']:.3f} gray levels, "
        f"PSNR {each['psnr']:.1f} dB, {each['least']:.1f} of the worst"
        for name, each in differences.items()
    }
    sizes = {
        "files": sum(map(len, found.files)),
        "ycc420": sum(map(len, found.stored)),
        "raw": sum(each.nbytes for each in found.pixels),
    }
    each_kb = (f"{name} {size / len(found.files) / 1e3:.1f}" for name, size in sizes.items())
    rows["KB per image"] = f"{', '.join(each_kb)}; ycc420 / raw {sizes['ycc420'] / sizes['raw']:.3f}"
    times = timed(codec, found, args.rounds)
    for name, values in times.items():
        what = name.rpartition(", ")[0]
        rows[name] = f"{base.spread(values, 'us', 0)}, files / this {base.ratio(times, f'{what}, files', name):.2f}"
    figures = {"differences": differences, "bytes": sizes, "microseconds": times}
    base.report(f"ycc420: {len(found.files)} images, crops of {SIDE} px", rows, figures, args)


if __name__ == "__main__":
    main()
