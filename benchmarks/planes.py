"""How near codec ycc420 comes to the pixels of a folder's pictures, whole and in crops, and in how many bytes.

Whole pictures are compared with what libjpeg makes of the same file, or other pictures' own pixels: 4:2:0 JPEGs, whose
planes are kept, apart from all others, whose chroma is made smaller. Crops are compared with the same crop of what the
codec decodes whole: what scaling each plane by itself changes. Differences are in grey levels, the mean that over all
pictures; PSNR is each picture's (99 dB of equal ones), its median and that of the worst.
"""

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import base
import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import PackerError
from packer.geometry import RandomResizedCrop, draw
from packer.geometry.warp import warp
from packer.images import decode, sniff
from packer.schema import Field

SIDE = 224
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_EQUAL_DB = 99.0

Pixels = npt.NDArray[np.uint8]


class Differences:
    """Of pairs of pictures, in grey levels."""

    def __init__(self) -> None:
        self._most = 0
        self._means = list[float]()
        self._psnr = list[float]()

    def add(self, one: Pixels, other: Pixels) -> None:
        """Compare two pictures of one size."""
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


def pictures(folder: Path, most: int) -> Iterator[tuple[bytes, Pixels]]:
    """File and pixels of each picture that packer reads."""
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


def measured(folder: Path, most: int, crops: int) -> dict[str, Any]:
    """Differences by what is compared; bytes by what is stored, over all pictures."""
    codec = codecs.make(Field("image", "image", "ycc420", dtype="uint8", shape=(None, None, 3)))
    found = {name: Differences() for name in ("4:2:0 JPEGs", "other pictures", "crops", "crops, antialiased")}
    sizes = {"files": 0, "ycc420": 0, "raw": 0}
    geometries = [RandomResizedCrop(SIDE, antialias=antialias) for antialias in (False, True)]
    for index, (file, pixels) in enumerate(pictures(folder, most)):
        planes = codec.encode_file(file, sniff(file))
        stored = planes if planes is not None else codec.encode(pixels)
        whole = codec.decode(stored)
        found["4:2:0 JPEGs" if planes is not None else "other pictures"].add(whole, pixels)
        for name, size in (("files", len(file)), ("ycc420", len(stored)), ("raw", pixels.nbytes)):
            sizes[name] += size
        for epoch in range(crops):
            for geometry, name in zip(geometries, ("crops", "crops, antialiased"), strict=True):
                numbers = draw(0, epoch, np.asarray([index]), geometry.draws)[0].tolist()
                view = geometry.view(*pixels.shape[:2], numbers)
                found[name].add(codec.decode(stored, view), warp(whole, view, "image"))
    return {"differences": {name: made for name, each in found.items() if (made := each.figures())}, "bytes": sizes}


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=300, crops=4)
    with base.scratch() as scratch:
        figures = measured(base.photos(args.folder, scratch, args.samples), args.samples, args.crops)
    rows = {
        name: f"{each['pairs']} pairs: at most {each['most']}, mean {each['mean']:.3f} grey levels, "
        f"PSNR {each['psnr']:.1f} dB, {each['least']:.1f} of the worst"
        for name, each in figures["differences"].items()
    }
    count = sum(figures["differences"].get(name, {}).get("pairs", 0) for name in ("4:2:0 JPEGs", "other pictures"))
    if not count:
        raise SystemExit(f"{args.folder}: no picture with one of the suffixes {', '.join(SUFFIXES)} that packer reads")
    sizes = figures["bytes"]
    share = sizes["ycc420"] / sizes["raw"]
    each_kb = (f"{name} {size / count / 1e3:.1f}" for name, size in sizes.items())
    rows["KB per picture"] = f"{', '.join(each_kb)}; ycc420 / raw {share:.3f}"
    base.report(f"ycc420: {count} pictures, crops of {SIDE} px", rows, figures, args)


if __name__ == "__main__":
    main()
