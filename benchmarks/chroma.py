"""What `packer convert --resize` loses in luma and in chroma with codec jpeg:95 and with jpeg:95:444, and their sizes.

Each image of a folder is resized as `--resize SIZE` does it, stored by each codec and decoded again. PSNR is each
image's, against the resized pixels: of the luma, and of both chroma planes together, by the matrix of JFIF; the
median, and that of the worst image. `scripts/bench chroma --folder FOLDER --samples 10000 --size 256`
"""

import math
import statistics
from pathlib import Path

import base
import numpy as np
import numpy.typing as npt
from planes import images

from packer import codecs
from packer.geometry import Resize
from packer.geometry.warp import warp
from packer.schema import Field

CODECS = ("jpeg:95", "jpeg:95:444")
_EQUAL_DB = 99.0
_YCC = np.asarray(  # JFIF 1.02, 1992, page 3, without the constant 128
    [[0.299, 0.587, 0.114], [-0.168735892, -0.331264108, 0.5], [0.5, -0.418687589, -0.081312411]]
)

Pixels = npt.NDArray[np.uint8]


def psnr(one: Pixels, other: Pixels) -> tuple[float, float]:
    """In dB, of the luma and of the chroma; at most 99, of equal ones."""
    error = np.square((one.astype(np.float64) - other) @ _YCC.T).mean(axis=(0, 1))
    found = [
        min(_EQUAL_DB, 10 * math.log10(255**2 / each)) if each else _EQUAL_DB for each in (error[0], error[1:].mean())
    ]
    return found[0], found[1]


def measured(folder: Path, samples: int, size: int) -> dict[str, list[tuple[float, float, int]]]:
    """Of each codec and image: PSNR of luma and chroma, and bytes."""
    made = {name: codecs.make(Field("image", "image", name, dtype="uint8", shape=(None, None, 3))) for name in CODECS}
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in CODECS}
    for _, whole in images(folder, samples):
        pixels = np.ascontiguousarray(warp(whole, Resize(size).view(*whole.shape[:2]), "image"))
        for name, codec in made.items():
            stored = codec.encode(pixels)
            found[name].append((*psnr(codec.decode(stored), pixels), len(stored)))
    return found


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=300, size=256)
    with base.scratch() as scratch:
        found = measured(base.photos(args.folder, scratch, args.samples), args.samples, args.size)
    if not found[CODECS[0]]:
        raise SystemExit(f"{args.folder}: no image that packer reads")
    rows, figures = {}, {}
    for name, values in found.items():
        luma, chroma, sizes = zip(*values, strict=True)
        figures[name] = {"images": len(values), "luma": luma, "chroma": chroma, "bytes": sizes}
        planes = (
            f"{what} {statistics.median(each):.1f} dB, {min(each):.1f} of the worst"
            for what, each in (("luma", luma), ("chroma", chroma))
        )
        ratio = sum(sizes) / sum(bytes_ for *_, bytes_ in found[CODECS[0]])
        size = f"{statistics.mean(sizes) / 1e3:.1f} KB each, {ratio:.3f} of {CODECS[0]}"
        rows[name] = f"{len(values)} images: {'; '.join([*planes, size])}"
    base.report(f"what is left of images of {args.size} px", rows, figures, args)


if __name__ == "__main__":
    main()
