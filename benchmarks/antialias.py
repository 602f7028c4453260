"""How near random crops come to Pillow's antialiased bilinear of the same crops: packer, INTER_AREA, bilinear."""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import base
import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from packer.geometry import RandomResizedCrop, View, draw
from packer.geometry.warp.axis_aligned_steps import axis_aligned_steps
from packer.images import DecodeOptions, Decoder

Pixels = npt.NDArray[np.uint8]
SIDE = 224


def psnr(one: Pixels, other: Pixels) -> float:
    """Peak signal to noise in dB, at most 60: a few equal crops must not decide a mean."""
    error = float(np.mean((one.astype(np.float64) - other) ** 2))
    return min(60.0, 10 * np.log10(255**2 / error)) if error else 60.0


def crops(file: bytes, view: View) -> dict[str, float]:
    """One crop through everybody: the box is the same, cut from the accurately decoded image."""
    whole = Decoder("image")(file)
    steps = axis_aligned_steps(view, *whole.shape[:2])
    if steps is None:
        raise SystemExit("a random crop is not a box of whole pixels")
    cut = np.ascontiguousarray(whole[steps.rows, steps.columns])
    wanted = np.asarray(Image.fromarray(cut).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    fast = Decoder("image", DecodeOptions(dct="fast"))(file)[steps.rows, steps.columns]
    found = {
        "packer, antialias=True": Decoder("image")(file, view),
        "packer, antialias=False": Decoder("image")(file, view._replace(antialias=False)),
        "INTER_AREA": cv2.resize(cut, (SIDE, SIDE), interpolation=cv2.INTER_AREA),
        "INTER_AREA after the fast DCT, as FFCV": cv2.resize(fast, (SIDE, SIDE), interpolation=cv2.INTER_AREA),
    }
    shape = "shrunk" if min(steps.shape) >= SIDE else "enlarged" if max(steps.shape) < SIDE else "mixed"
    return {f"{name}, {part}": psnr(pixels, wanted) for name, pixels in found.items() for part in ("all", shape)}


def main() -> None:
    args = base.arguments(__doc__ or "", images=None, samples=300, crops=4)
    geometry, figures = RandomResizedCrop(SIDE), dict[str, list[float]]()
    with tempfile.TemporaryDirectory(prefix="packer-bench-") as name:
        folder = base.photos(args.images, Path(name), args.samples)
        files = sorted(path for path in folder.rglob("*.jp*g"))[: args.samples]
        for index, path in enumerate(files):
            file = path.read_bytes()
            height, width = Decoder("image")(file).shape[:2]
            for epoch in range(args.crops):
                random = draw(0, epoch, np.asarray([index]), geometry.draws)[0].tolist()
                for label, value in crops(file, geometry.view(height, width, random)).items():
                    figures.setdefault(label, []).append(value)
    means: dict[str, Any] = {label: statistics.mean(values) for label, values in figures.items()}
    rows = {label: f"{means[label]:.2f} dB  ({len(figures[label])} crops)" for label in sorted(figures)}
    base.report(f"PSNR of {SIDE} px crops against Pillow's antialiased bilinear", rows, means, args)


if __name__ == "__main__":
    sys.exit(main())
